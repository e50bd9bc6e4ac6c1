"""csrc/lower/build/builder_state: what a schedule says of memory and launch, for all builders."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from fuser import _core
from tests.support import planning

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(r"constexpr [\w:<>, ]+ (\w+_steps)\[\] = \{\n(.*?)\n\};", re.DOTALL)


def test_the_document_lists_the_steps_of_every_builder() -> None:
    document = (ROOT / "docs/design/lower.md").read_text()
    found = 0
    for builder in ("pointwise", "reduction", "staged"):
        text = (ROOT / f"csrc/lower/build/{builder}.cpp").read_text()
        for name, rows in TABLE.findall(text):
            steps = re.findall(r'^    \{"([\w ]+)", &Builder::', rows, re.MULTILINE)
            assert len(steps) > 1, f"{builder}: {name}"
            assert f"| {', '.join(steps)} |" in document, f"{builder}: {name}"
            assert f"`{name}`" in document
            found += 1
    assert found == 9


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
