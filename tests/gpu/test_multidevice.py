"""Sharded definitions on two GPUs with NCCL: `pytest -m gpu tests/gpu/test_multidevice.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.multidevice.compared import S, errors
from tests.multidevice.networks import NETWORKS, placements
from tests.multidevice.ranks import Ranks, ranks
from tests.multidevice.test_collectives import DTYPES, ONE, SUMS, moved
from tests.multidevice.test_run import CASES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    with ranks(2, backend="nccl") as found:
        yield found


@pytest.mark.parametrize("dtype", DTYPES)
def test_collectives(two: Ranks, dtype: str) -> None:
    sums = SUMS if dtype not in ("bool", "int32", "int64") else []
    for found in two.run(moved, (2,), (4, 6), dtype, ONE + sums):
        assert all(found), found


@pytest.mark.parametrize("case", CASES)
def test_kernels(two: Ranks, case: str) -> None:
    build, inputs, given, _ = CASES[case]
    for found in two.run(errors, build, (2,), inputs, given):
        assert max(found["errors"]) < 1e-5


def network(name: str, data: Any) -> Any:
    build, inputs = NETWORKS[name]
    # TF32 products would hide errors.
    torch.backends.cuda.matmul.allow_tf32 = False
    shape = (2, 1) if data else (2,)
    return errors(build, shape, inputs(torch.float32), placements(name, data))


@pytest.mark.parametrize("data", [[], [S(0)], [S(1)]], ids=["heads", "batch", "tokens"])
def test_networks(two: Ranks, data: list[Any]) -> None:
    """The MLP, with weights divided, or with activations divided."""
    for found in two.run(network, "mlp", data):
        assert max(found["errors"]) < 1e-5
