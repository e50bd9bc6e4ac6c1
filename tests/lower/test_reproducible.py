"""Equal calls give equal results bit for bit: in repeated runs, on two threads at once, and with
scratch memory used by earlier calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from fuser import FusionDefinition, _core
from fuser.testing import compile_batch
from tests.support.reducing import PROGRAMS, Inputs, random_inputs

# Cases for every way to combine partial results: (program, shape, GPU generation).
CASES: list[tuple[str, tuple[int, ...], int]] = [
    ("softmax", (37, 1001), 80),
    ("layer_norm", (5, 4001), 80),
    ("layer_norm", (3, 20001), 90),  # uses a cluster
    ("softmax", (2, 20000), 80),  # loads the row again
    ("sum_rows", (1, 99_999), 80),  # combined by the last block
    ("sum_all", (333, 77), 80),
    ("logsumexp", (1, 50_001), 80),
    ("sum_columns", (5001, 24), 80),
    ("var_columns", (3001, 8), 80),
    ("softmax_columns", (300, 40), 80),
    ("norm_backward", (41, 257), 80),  # uses a cooperative grid
    ("norm_backward", (40, 256), 80),
]
Run = tuple[FusionDefinition, Inputs]


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[Any, Run]]:
    rng = np.random.default_rng(7)
    made: dict[Any, Run] = {}
    before = _core.get_option("FUSER_HOST_ARCH")
    for case in CASES:
        program, shape, _ = case
        inputs = random_inputs(program, shape, torch.float32, rng)
        made[case] = PROGRAMS[program].definition(), inputs
    for arch in (80, 90):
        _core.set_option("FUSER_HOST_ARCH", str(arch))
        compile_batch([run for case, run in made.items() if case[2] == arch])
    yield made
    _core.set_option("FUSER_HOST_ARCH", before)


def bits(results: list[torch.Tensor]) -> list[torch.Tensor]:
    return [r.contiguous().view(torch.uint8) if r.dim() else r for r in results]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_call_by_call_and_on_two_threads(
    case: tuple[str, tuple[int, ...], int], runs: dict[Any, Run], set_option: Any
) -> None:
    set_option("FUSER_HOST_ARCH", case[2])
    fd, inputs = runs[case]
    first = bits(fd.execute(inputs))
    found: list[list[torch.Tensor]] = [[], []]

    def calls(place: int) -> None:
        for _ in range(5):
            found[place] = bits(fd.execute(inputs))
            if any(not torch.equal(a, b) for a, b in zip(found[place], first, strict=True)):
                return

    threads = [threading.Thread(target=calls, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for results in (*found, bits(fd.execute(inputs))):
        for one, other in zip(results, first, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("number", [1, 3])
def test_the_number_of_host_threads_does_not_count(
    number: int, runs: dict[Any, Run], set_option: Any
) -> None:
    """Results do not depend on the number of host threads, which changes the core of each block and
    the last block."""
    for case in CASES:
        set_option("FUSER_HOST_ARCH", case[2])
        fd, inputs = runs[case]
        first = bits(fd.execute(inputs))
        set_option("FUSER_HOST_THREADS", number)
        again = bits(fd.execute(inputs))
        set_option("FUSER_HOST_THREADS", 0)
        for one, other in zip(again, first, strict=True):
            assert torch.equal(one, other), case
