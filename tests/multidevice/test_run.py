"""fuser/multidevice/run.py: sharded definitions on gloo processes, with kernels."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from fuser import DataType, FusionDefinition
from fuser.multidevice.run import executor_of
from tests.multidevice.compared import R, S, define, distributed, errors, mesh_of
from tests.multidevice.networks import norm_backward, normalized, transposed
from tests.multidevice.ranks import Ranks, ranks


def pointwise(fd: Any, x: Any, bias: Any) -> Sequence[Any]:
    return [fd.ops.gelu(x + bias) * 2.0]


def softmax(fd: Any, x: Any) -> Sequence[Any]:
    return [fd.ops.softmax(x, 1)]


def layer_norm(fd: Any, x: Any, weight: Any) -> Sequence[Any]:
    return fd.ops.layer_norm(x, [12], weight)


def rms_norm(fd: Any, x: Any, weight: Any) -> Sequence[Any]:
    return fd.ops.rms_norm(x, [12], weight)


def statistics(fd: Any, x: Any) -> Sequence[Any]:
    return [*fd.ops.var_mean(x, [1]), fd.ops.sum(x, [0]), fd.ops.max(x, [0, 1])]


def linear(fd: Any, x: Any, w: Any, b: Any) -> Sequence[Any]:
    return [fd.ops.relu(fd.ops.linear(x, w, b))]


def product(fd: Any, x: Any, w: Any) -> Sequence[Any]:
    return [fd.ops.matmul(x, transposed(fd, w))]


def layer_norm_backward(fd: Any, grad: Any, x: Any, weight: Any) -> Sequence[Any]:
    return norm_backward(fd, grad, weight, *normalized(fd, x))


def positions(fd: Any, x: Any) -> Sequence[Any]:
    return [fd.ops.argmax(x, 1), fd.ops.argmin(x, 1)]


X = torch.linspace(-2, 2, 96).reshape(8, 12).sin() + 0.25
ROW = torch.linspace(-1, 1, 12)
W = [X, torch.linspace(-1, 1, 16 * 12).reshape(16, 12).sin(), torch.linspace(-1, 1, 16)]
LONG = (torch.arange(4 * 40000) * 7919 % 40009).reshape(4, 40000) / 40009
A, G, RS = "all_reduce", "all_gather", "reduce_scatter"

CASES: dict[str, tuple[Any, ...]] = {
    "pointwise": (pointwise, [X, ROW], [[S(1)], [R]], []),
    "softmax": (softmax, [X], [[S(1)]], [A, A]),
    "layer norm": (layer_norm, [X, ROW], [[S(1)], [R]], [A, A]),
    "layer norm of rows": (layer_norm, [X, ROW], [[S(0)], [R]], []),
    "rms norm": (rms_norm, [X, ROW], [[S(1)], [S(0)]], [A]),
    "statistics": (statistics, [X + 100], [[S(1)]], [A, A, A]),
    "linear column-wise": (linear, W, [[R], [S(0)], [S(0)]], []),
    "linear row-wise": (linear, W, [[S(1)], [S(1)], [R]], [A]),
    "matmul column-wise": (product, W[:2], [[R], [S(0)]], []),
    "matmul row-wise": (product, W[:2], [[S(1)], [S(1)]], [A]),
    "layer norm backward": (
        layer_norm_backward,
        [X.cos(), (20 * X).sin(), ROW],
        [[S(1)], [S(1)], [S(0)]],
        [A, A, A, A],
    ),
    "layer norm backward of rows": (
        *(layer_norm_backward, [X.cos(), (20 * X).sin(), ROW], [[S(0)], [S(0)], [R]], [A, A]),
    ),
    "uneven and empty shards": (softmax, [X[:3, :5]], [[S(1)]], [A, A]),
    "positions": (positions, [LONG], [[S(1)]], [G, G, G, G]),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels(four: Ranks, case: str) -> None:
    build, inputs, placements, collectives = CASES[case]
    for found in four.run(errors, build, (4,), inputs, placements):
        assert max(found["errors"]) < 1e-6
        assert sorted(found["collectives"]) == collectives


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.bfloat16, 2**-6), (torch.float16, 2**-9), (torch.float64, 1e-14)]
)
def test_types(four: Ranks, dtype: torch.dtype, bound: float) -> None:
    """Partial products of half types are rounded once more than whole ones."""

    inputs = [x.to(dtype) for x in W]
    for found in four.run(errors, linear, (2,), inputs, [[S(1)], [S(1)], [R]])[:2]:
        assert max(found["errors"]) < bound


# ---- calls


def calls() -> list[Any]:
    """Types and values of calls with DTensors, tensors and DTensors again."""
    mesh = mesh_of(4)
    fd = define(pointwise, [X, ROW])
    given = [distributed(X, mesh, [S(1)]), distributed(ROW, mesh, [R])]
    expected = torch.nn.functional.gelu(X + ROW) * 2
    found = []
    for inputs in (given, [X, ROW], given):
        (y,) = fd.execute(inputs)
        whole = y.full_tensor() if isinstance(y, DTensor) else y
        fd = copy.deepcopy(fd)  # copies look up their plans themselves
        found += [isinstance(y, DTensor), float((whole - expected).abs().max()) < 1e-6]
    return found


def test_execute_takes_both(four: Ranks) -> None:
    for found in four.run(calls):
        assert found == [True, True, False, True, True, True]


def in_place() -> tuple[float, int]:
    """A running sum is stored into the caller's shards."""
    mesh = mesh_of(2, 2)
    if mesh.get_coordinate() is None:
        return 0.0, 0
    fd = FusionDefinition()
    total, x = fd.define_tensor([-1]), fd.define_tensor([-1, -1])
    fd.add_output(total + fd.ops.sum(x, [0]), total)
    fd.add_output(x * 2.0)
    stored = distributed(ROW.clone(), mesh, [R, S(0)])
    results = fd.execute([stored, distributed(X, mesh, [S(0), R])])
    return float((stored.full_tensor() - ROW - X.sum(0)).abs().max()), len(results)


def test_in_place_outputs(four: Ranks) -> None:
    for error, count in four.run(in_place):
        assert error < 1e-5
        assert count == 1


def scalars() -> list[int]:
    """Plans after calls with other numbers, then with other sizes."""
    mesh = mesh_of(4)
    fd = FusionDefinition()
    x, rate = fd.define_tensor([-1, -1]), fd.define_scalar(DataType.Double)
    shape = fd.define_vector(2)
    fd.add_output(fd.ops.reshape(x * rate, shape) / x.size(0))
    given = distributed(X, mesh, [S(0)])
    found = []
    for rate, sizes in ((2.0, [4, 24]), (3.0, [4, 24]), (3.0, [16, 6])):
        (y,) = fd.execute([given, rate, sizes])
        expected = (X * rate).reshape(sizes) / 8
        assert y.full_tensor().allclose(expected)  # type: ignore[attr-defined]
        found.append(len(executor_of(fd)._prepared))
    return found


def test_numbers_are_no_reason_for_a_plan_but_sizes_are(four: Ranks) -> None:
    assert four.run(scalars) == [[1, 1, 2]] * 4


def asked() -> list[str]:
    mesh = mesh_of(2, 2)
    fd = define(linear, W)
    given = [distributed(x, mesh, [R, R]) for x in W]
    found = []
    for placements in ([S(0), S(1)], [S(1), S(1)], [R, S(0)]):
        (y,) = fd.execute_with_dtensors(given, [placements])
        expected = torch.relu(torch.nn.functional.linear(*W))
        assert y.full_tensor().allclose(expected, atol=1e-5)  # type: ignore[attr-defined]
        found.append(str(y.placements == tuple(placements)))  # type: ignore[attr-defined]
    return found


def test_placements_of_results(four: Ranks) -> None:
    for found in four.run(asked):
        assert found == ["True"] * 3


# ---- a rank that dies


def dying(rank_that_dies: int) -> str:
    """One rank leaves in mid-step; the others sum what it would have sent."""
    mesh = mesh_of(2)
    fd = define(softmax, [X])
    given = [distributed(X, mesh, [S(1)])]
    fd.execute(given)
    torch.distributed.barrier()
    if torch.distributed.get_rank() == rank_that_dies:
        os._exit(1)
    try:
        while True:
            fd.execute(given)
    except RuntimeError as error:
        return type(error).__name__


def test_a_rank_that_dies_ends_the_others() -> None:
    """Within the group's timeout, with an error."""
    timeout = 10.0
    with ranks(2, timeout) as two:
        two.start(dying, 1)
        began = time.monotonic()
        ok, name = two.result(0, 60 + timeout)
        assert ok, name
        assert name.endswith("Error")
        assert time.monotonic() - began < 60 + timeout
