"""Reductions over a concatenated dim: each element is loaded from its known operand, without a
Select and without a reduction loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fuser import DataType, FusionDefinition, Plan
from tests.support.groups import check
from tests.support.reducing import kernels_for


def stacked(count: int, dim: int, rank: int = 2, dtype: DataType = DataType.Float) -> Any:
    fd = FusionDefinition()
    parts = [fd.define_tensor([-1] * rank, dtype=dtype) for _ in range(count)]
    return fd, fd.ops.stack(parts, dim)


def data(count: int, *shape: int) -> list[Tensor]:
    return [torch.randn(shape) for _ in range(count)]


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_the_mean_of_what_was_stacked_is_elementwise(count: int, dim: int) -> None:
    fd, stack = stacked(count, dim)
    fd.add_output(fd.ops.mean(stack, [dim]))
    inputs = data(count, 70, 36)
    check(fd, inputs, lambda *parts: torch.stack(parts, dim).mean(dim), 1e-5)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert plan.scheduler == "pointwise"
    assert plan.vector == 4
    (kernel,) = kernels_for(fd, [x.shape for x in inputs], text=True)
    assert kernel["ir"].count("load ") == count
    assert "where" not in kernel["ir"]


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=str)
def test_every_reduction_of_one_result(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randint(-2, 3, (9, 33), generator=generator).to(dtype) for _ in range(5)]
    if dtype.is_floating_point:
        inputs[2][0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    fd = FusionDefinition()
    stack = fd.ops.stack([fd.from_pytorch(x) for x in inputs], 1)
    fd.add_output(getattr(fd.ops, name)(stack, [1]))
    (got,) = fd.execute(inputs)
    whole = torch.stack(inputs, 1)
    if dtype == torch.bfloat16 and name in ("sum", "prod"):
        whole = whole.float()
    wanted = {
        "max": lambda t: t.amax(1),
        "min": lambda t: t.amin(1),
        "any": lambda t: t.any(1),
        "all": lambda t: t.all(1),
    }.get(name, lambda t: getattr(t, name)(1))(whole)
    torch.testing.assert_close(got, wanted.to(got.dtype), equal_nan=True)


def test_through_other_ops_and_with_dims_that_are_known() -> None:
    """A variance, whose second sum depends on the first; a reduction over two dims, one of them
    concatenated."""
    fd, stack = stacked(4, 0)
    fd.add_output(fd.ops.var(stack, [0], correction=1))
    check(fd, data(4, 6, 35), lambda *parts: torch.stack(parts).var(0), 1e-5)

    fd = FusionDefinition()
    parts = [fd.define_tensor([-1, 2], dtype=DataType.Float) for _ in range(3)]
    fd.add_output(fd.ops.sum(fd.ops.exp(fd.ops.stack(parts, 0)), [0, 2]))
    check(fd, data(3, 41, 2), lambda *parts: torch.stack(parts).exp().sum((0, 2)), 1e-4)


def test_joined_pieces_of_several_elements() -> None:
    fd = FusionDefinition()
    x, y = fd.define_tensor([3, -1]), fd.define_tensor([2, -1])
    fd.add_output(fd.ops.max(fd.ops.cat([x, y], 0), [0]))
    inputs = [torch.randn(3, 37), torch.randn(2, 37)]
    check(fd, inputs, lambda x, y: torch.cat([x, y]).amax(0))
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert plan.scheduler == "pointwise"


def test_walks_remain_where_all_is_stored_or_sizes_are_open() -> None:
    fd, stack = stacked(4, 0)
    fd.add_output(fd.ops.softmax(stack, 0))
    inputs = data(4, 6, 35)
    torch.testing.assert_close(fd.execute(inputs)[0], torch.stack(inputs).softmax(0))

    fd = FusionDefinition()
    x, y = fd.define_tensor([-1, -1]), fd.define_tensor([2, -1])
    fd.add_output(fd.ops.sum(fd.ops.cat([x, y], 0), [0]))
    inputs = [torch.randn(3, 37), torch.randn(2, 37)]
    torch.testing.assert_close(fd.execute(inputs)[0], torch.cat(inputs).sum(0))
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert plan.scheduler != "pointwise"

    fd, stack = stacked(9, 0)
    fd.add_output(fd.ops.sum(stack, [0]))
    inputs = data(9, 6, 35)
    torch.testing.assert_close(fd.execute(inputs)[0], torch.stack(inputs).sum(0))


def test_joined_along_two_dims_and_reduced_along_each() -> None:
    fd = FusionDefinition()
    parts = [fd.define_tensor([-1, -1]) for _ in range(16)]
    rows = [fd.ops.stack(parts[i : i + 4], 0) for i in range(0, 16, 4)]
    whole = fd.ops.exp(fd.ops.stack(rows, 0))
    fd.add_output(fd.ops.sum(fd.ops.max(whole, [0]), [0]))
    fd.add_output(fd.ops.sum(fd.ops.max(whole, [1]), [0]))
    inputs = data(16, 6, 35)
    first, second = fd.execute(inputs)
    exact = torch.stack(inputs).exp().view(4, 4, 6, 35)
    torch.testing.assert_close(first, exact.amax(0).sum(0))
    torch.testing.assert_close(second, exact.amax(1).sum(0))


@pytest.mark.parametrize("count", [4, 8])
def test_what_is_computed_at_too_many_places_is_stored_first(count: int) -> None:
    """A sum of operands plus its transpose needs the operands at twice as many coordinates, so the
    sum is materialized."""
    fd, stack = stacked(count, 0)
    total = fd.ops.sum(fd.ops.exp(fd.ops.sin(stack)), [0])
    fd.add_output(total + fd.ops.permute(total, [1, 0]))
    inputs = data(count, 40, 40)
    wanted = torch.stack(inputs).sin().exp().sum(0)
    torch.testing.assert_close(fd.execute(inputs)[0], wanted + wanted.t())
