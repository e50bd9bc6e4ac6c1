"""csrc/lower/build/builder_state: what a schedule says of memory and launch, for all builders."""

from __future__ import annotations

import re

import numpy as np

from fuser import _core
from tests.support import planning


def test_kernels_declare_memory_and_launch_of_their_schedules() -> None:
    device = _core.known_device(90)
    kinds = set()
    for case in planning.cases(np.random.default_rng(0)):
        for kernel in case.kernels(device):
            texts = kernel.texts()
            schedule, (head, *lines) = texts["schedule"], texts["ir"].splitlines()
            threads = re.search(r"launch threads\((\d+)\)", schedule)
            assert threads
            assert f" threads {threads[1]} " in f"{head} ", case.name
            limit = re.search(r"min_blocks_per_sm\((\d+)\)", schedule)
            if limit:
                assert f" min_blocks {limit[1]} " in f"{head} ", case.name
            cooperative = "Cooperative" in schedule
            assert (" cooperative" in head) == cooperative, case.name
            tensors = [line for line in lines if line.strip().startswith("buffer")]
            assert tensors, case.name
            kinds.add((schedule.count("nest\n"), cooperative, "GridThread" in schedule))
    assert len(kinds) > 3
