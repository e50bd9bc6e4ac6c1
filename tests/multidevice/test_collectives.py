"""fuser/multidevice/collectives.py: each collective moves shards exactly, on one mesh and two."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from fuser import FusionDefinition
from tests.multidevice.compared import P, R, S, device, distributed, mesh_of
from tests.multidevice.ranks import Ranks

DTYPES = ["float32", "float64", "bfloat16", "float16", "int64", "int32", "bool", "complex64"]


def moved(shape: Any, sizes: Any, dtype: str, pairs: Any) -> list[bool] | None:
    """For each pair of placements, True if a definition without ops moves a tensor exactly."""
    mesh = mesh_of(*shape)
    if mesh.get_coordinate() is None:
        return None
    x = (torch.arange(1, 1 + torch.Size(sizes).numel()) * 30 % 240).reshape(sizes)
    x = x.to(device(), getattr(torch, dtype))
    fd = FusionDefinition()
    fd.add_output(fd.from_pytorch(x))
    found = []
    for source, target in pairs:
        (y,) = fd.execute_with_dtensors([distributed(x, mesh, source)], [target])
        expected = distributed(x, mesh, target).to_local()
        found.append(y.placements == tuple(target) and y.to_local().equal(expected))  # type: ignore[attr-defined]
    return found


ONE = [([S(0)], [R]), ([S(0)], [S(1)]), ([S(1)], [S(0)]), ([S(1)], [R]), ([R], [S(1)])]
SUMS = [([P], [R]), ([P], [S(0)]), ([P], [S(1)])]


@pytest.mark.parametrize("dtype", DTYPES)
def test_types(four: Ranks, dtype: str) -> None:
    sums = SUMS if dtype not in ("bool", "int32", "int64") else []
    for found in four.run(moved, (2,), (4, 6), dtype, ONE + sums)[:2]:
        assert all(found), found


@pytest.mark.parametrize("sizes", [(8, 4), (5, 3), (1, 6), (3, 2)], ids=str)
def test_even_and_uneven_shards(four: Ranks, sizes: tuple[int, int]) -> None:
    for found in four.run(moved, (4,), sizes, "float64", ONE + SUMS):
        assert all(found), found


@pytest.mark.parametrize("sizes", [(8, 4), (5, 7)], ids=str)
def test_two_dims_of_a_mesh(four: Ranks, sizes: tuple[int, int]) -> None:
    one = [R, S(0), S(1)]
    pairs = list(itertools.product(itertools.product(one, repeat=2), repeat=2))
    pairs += [((P, S(0)), (S(0), S(1))), ((S(0), P), (S(1), R)), ((P, P), (R, S(0)))]
    for found in four.run(moved, (2, 2), sizes, "float64", pairs):
        assert all(found), [pair for pair, ok in zip(pairs, found, strict=True) if not ok]


def extremes(values: list[list[float]]) -> list[Any]:
    """max and min of this rank's row with the others', as partial results."""
    mesh = mesh_of(4)
    rank = mesh.get_local_rank()
    from torch.distributed.tensor import DTensor, Partial

    found = []
    for op in ("max", "min", "product"):
        x = DTensor.from_local(torch.tensor(values[rank]), mesh, [Partial(op)], run_check=False)
        fd = FusionDefinition()
        fd.add_output(fd.ops.neg(fd.define_tensor([-1])))
        found.append(fd.execute([x])[0].to_local().neg().tolist())  # type: ignore[attr-defined]
    return found


def test_nan_wins_in_partial_extremes(four: Ranks) -> None:
    values = [[1.0, 2.0, 3.0], [4.0, float("nan"), -1.0], [0.5, 1.0, 8.0], [2.0, 2.0, 2.0]]
    table = torch.tensor(values)
    expected = [table.amax(0), table.amin(0), table.prod(0)]
    for found in four.run(extremes, values):
        for row, e in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.tensor(row), e, equal_nan=True)
