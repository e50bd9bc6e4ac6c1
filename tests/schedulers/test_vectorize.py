"""Analysis of layouts for reductions: contiguous axes, conditions of 16-byte accesses, number of
reduction loops, and persistent values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition
from fuser.ops import as_dtype
from tests.support.reducing import REGISTERS, RELOAD, kernels_for

Define = Callable[..., Any]


def plan_of(
    define: Define,
    *layouts: tuple[Sequence[int], Sequence[int]],
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """The plan of a definition that is one kernel, for inputs of these sizes and strides."""
    fd = FusionDefinition()
    tensors = [fd.define_tensor([-1] * len(size), dtype=as_dtype(dtype)) for size, _ in layouts]
    results = define(fd.ops, *tensors)
    for result in results if isinstance(results, tuple) else (results,):
        fd.add_output(result)
    (kernel,) = kernels_for(fd, [s for s, _ in layouts], strides=[s for _, s in layouts])
    plan: dict[str, Any] = kernel["plan"]
    return plan


def rows(ops: Any, x: Any) -> Any:
    return ops.sum(x, [1, 2])


@pytest.mark.parametrize(
    ("strides", "vector", "whole"),
    [
        ((128, 16, 1), 4, 1),  # contiguous
        ((256, 16, 1), 4, 1),  # contiguous rows with gaps between them
        ((256, 20, 1), 4, 1),  # vectors along the inner axis only, without crossing its end
        ((256, 17, 1), 1, 0),  # unaligned rows
        ((129, 16, 1), 1, 0),
        ((256, 32, 2), 1, 0),  # no adjacent elements
        ((128, 0, 1), 4, 1),  # expanded
    ],
)
def test_runs_of_memory(strides: tuple[int, ...], vector: int, whole: int) -> None:
    plan = plan_of(rows, ((300, 8, 16), strides))
    assert (plan["scheduler"], plan["vector"], plan["lane_axes"]) == ("inner", vector, whole)


def test_a_run_over_axes_that_do_not_divide() -> None:
    """8 x 15 elements are a multiple of 4, but a vector may cross from one 15 to the next."""
    plan = plan_of(rows, ((300, 8, 15), (120, 15, 1)))
    assert (plan["vector"], plan["lane_axes"]) == (4, 0)
    apart = plan_of(rows, ((300, 8, 15), (160, 20, 1)))
    assert apart["vector"] == 1


def group_norm(ops: Any, x: Any, w: Any, b: Any) -> Any:
    return ops.group_norm(x, 4, w, b, 1e-5)[0]


def test_what_is_the_same_for_all_lanes_is_read_once() -> None:
    """The weight of a channel of 28 x 28 is loaded once per vector: a vector of 8 may cross image
    rows, but not the image."""
    fd = FusionDefinition()
    x, w, b = (fd.define_tensor([-1] * rank, dtype=DataType.BFloat16) for rank in (4, 1, 1))
    fd.add_output(fd.ops.cast(group_norm(fd.ops, x, w, b), DataType.BFloat16))
    (kernel,) = kernels_for(fd, [(64, 64, 28, 28), (64,), (64,)], text=True)
    assert (kernel["plan"]["vector"], kernel["plan"]["lane_axes"]) == (8, 2)
    assert "array r_in1 bf16 2\n" in kernel["ir"]  # of two steps
    assert kernel["plan"]["vectorized"] == 0b1001


def test_the_layout_says_which_axis_is_innermost() -> None:
    columns = plan_of(lambda o, x: o.sum(x, 1), ((64, 300), (1, 64)))
    assert (columns["scheduler"], columns["vector"]) == ("outer", 4)
    plan = plan_of(lambda o, x: o.sum(x, 0), ((300, 64), (1, 300)))
    assert (plan["scheduler"], plan["vector"]) == ("inner", 4)


def bias(ops: Any, x: Any, b: Any) -> Any:
    return ops.softmax(x + b, 1)


def test_each_access_is_wide_by_its_own_strides() -> None:
    x = (64, 1024), (1024, 1)
    assert plan_of(bias, x, ((1, 1024), (1024, 1)))["vectorized"] == 0b111
    every_second = plan_of(bias, x, ((1, 1024), (2048, 2)))
    assert every_second["vectorized"] == 0b101
    per_row = plan_of(bias, x, ((64, 1), (1, 1)))
    assert per_row["vectorized"] == 0b101
    padded = plan_of(bias, x, ((64, 1024), (1025, 1)))
    assert padded["vectorized"] == 0b101


def test_the_widest_type_counts() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.softmax(x, 1))  # float32
    (kernel,) = kernels_for(fd, [(64, 1024)])
    assert kernel["plan"]["vector"] == 4
    half = FusionDefinition()
    x = half.define_tensor([-1, -1], dtype=DataType.BFloat16)
    half.add_output(half.ops.softmax(x, 1, DataType.BFloat16))
    (kernel,) = kernels_for(half, [(64, 1024)])
    assert kernel["plan"]["vector"] == 8


ROW = (4096, 1024), (1024, 1)
LONG_ROW = (4096, 16384), (16384, 1)


@pytest.mark.parametrize(
    ("define", "place"),
    [
        (lambda o, x: o.sum(x, 1), RELOAD),  # one loop
        (lambda o, x: o.sum(o.exp(x), 1), RELOAD),
        (lambda o, x: o.logsumexp(x, 1), REGISTERS),  # two loops, short rows
        (lambda o, x: (o.sum(x, 1), o.max(x, 1)), RELOAD),  # two independent loops
        (lambda o, x: o.softmax(x, 1), REGISTERS),
        (lambda o, x: x - o.broadcast(o.max(x, 1), [False, True]), REGISTERS),
    ],
)
def test_a_row_stays_where_it_is_walked_again(define: Define, place: int) -> None:
    assert plan_of(define, ROW)["persistent_in"] == place


def test_a_long_row_is_walked_once_in_the_online_form() -> None:
    assert plan_of(lambda o, x: o.logsumexp(x, 1), LONG_ROW)["persistent_in"] == RELOAD


def test_all_reads_of_a_row_count() -> None:
    """Rows of two tensors use twice as many threads."""
    one = plan_of(lambda o, x: o.softmax(x, 1), ROW)
    two = plan_of(lambda o, x, y: o.softmax(x * y, 1), ROW, ROW)
    assert (one["persistent_in"], two["persistent_in"]) == (REGISTERS, REGISTERS)
    assert (one["unroll"], two["unroll"]) == (2, 1)
    assert two["threads_x"] == 2 * one["threads_x"]
