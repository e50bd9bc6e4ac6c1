"""torch.compile(backend="fuser") under torch's kinds of parallelism, on two processes.

python -m pytest tests/parallel            two processes on the CPU, with gloo
python -m pytest tests/parallel -m gpu     the same programs on two GPUs, with NCCL
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.parallel.programs import PROGRAMS, compare, fail
from tests.parallel.ranks import Ranks

# Differences from float64: at most FACTOR times those of eager mode, or ROUNDINGS float32 roundings
# of the largest number of a value. Sums in another order move the last bits of gradients.
FACTOR, ROUNDINGS = 4.0, 64.0

DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]


def _check_devices(device: str) -> None:
    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")


@pytest.fixture(scope="module", params=DEVICES)
def ranks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ranks]:
    """Two processes for all programs."""
    _check_devices(request.param)
    made = Ranks(tmp_path_factory.mktemp("group"), request.param)
    yield made
    made.end()


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_agrees_with_eager(ranks: Ranks, name: str) -> None:
    """Losses and gradients of three steps."""
    for rank, (fine, answer) in enumerate(ranks.ask(compare, name)):
        assert fine, f"rank {rank}: {answer}"
        values, runs = answer
        assert runs > 0, f"rank {rank}: no definition ran"
        assert any(v.scale > 0 for v in values.values())
        for key, v in values.items():
            bound = max(FACTOR * v.eager, ROUNDINGS * 2.0**-24 * v.scale)
            assert v.fuser <= bound, f"rank {rank}, {key}: {v}, bound {bound:.3g}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_failed_rank_ends_the_others(how: str, device: str, tmp_path: Path) -> None:
    """Rank 1 raises and stays, or is killed: rank 0 gets an error within the group's timeout."""
    _check_devices(device)
    made = Ranks(tmp_path, device, timeout=15.0)
    try:
        (fine, first), (ours, second) = made.ask(fail, how)
    finally:
        made.end(patience=1.0)
    assert not fine, first
    assert "ValueError" not in first
    assert not ours
    assert ("the batch of rank 1 is broken" if how == "raise" else "process ended") in second
