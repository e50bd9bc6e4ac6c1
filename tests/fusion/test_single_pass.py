"""Pairs of reduction loops that are merged into one, and similar ones that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition
from tests.support.groups import check, values

Define = Callable[[FusionDefinition, Any], None]
X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))


def shorter(define: Define, dtype: DataType = DataType.Float, static: bool = False) -> list[str]:
    """The reductions of the single-pass form, [] if it does not exist; compares the results."""
    fd = FusionDefinition()
    define(fd, fd.define_tensor([6, 8] if static else [-1, -1], dtype=dtype))
    grouped = check(fd, [X.to(getattr(torch, dtype.torch_name))])
    (group,) = grouped.groups
    one = grouped.single_pass()
    (problem,) = grouped.problems()
    assert (problem["single_pass"] is None) == (one is None)
    if one is None:
        return []
    # Outputs, their coordinates and their layout are unchanged.
    assert [(s["output"], s["at"]) for s in one["stores"]] == [
        (s["output"], s["at"]) for s in group["stores"]
    ]
    assert problem["single_pass"]["order"] == problem["order"]
    assert problem["single_pass"]["output_order"] == problem["output_order"]
    return [v["how"] for v in one["values"] if v["how"].startswith(("reduce", "project"))]


def variance(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.var(x, 1))


def written_out(divide: Callable[[Any, Any], Any]) -> Define:
    def define(fd: FusionDefinition, x: Any) -> None:
        mean = divide(fd.ops.sum(x, 1, True), x.size(1))
        distance = x - mean
        fd.add_output(fd.ops.sum(distance * distance, 1))

    return define


def by_reciprocal(fd: FusionDefinition, x: Any) -> None:
    written_out(lambda s, n: s * fd.ops.reciprocal(n))(fd, x)


def with_pow(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(fd.ops.pow(x - fd.ops.mean(x, 1, True), 2.0), 1))


def after_tanh(fd: FusionDefinition, x: Any) -> None:
    variance(fd, fd.ops.tanh(x) * 2.0)


WELFORD: dict[str, Define] = {
    "var": variance,
    "std and mean": lambda fd, x: [fd.add_output(t) for t in fd.ops.var_mean(x, 1)] and None,
    "layer norm": lambda fd, x: fd.add_output(fd.ops.layer_norm(x, [x.size(1)])[0]),
    "of a column": lambda fd, x: fd.add_output(fd.ops.var(x, 0)),
    "of all": lambda fd, x: fd.add_output(fd.ops.var(x)),
    "of a value": after_tanh,
    "divided": written_out(lambda s, n: s / n),
    "times the inverse": written_out(lambda s, n: s * (1.0 / n)),
    "times the reciprocal": by_reciprocal,
    "squared by pow": with_pow,
}


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("case", WELFORD)
def test_a_variance_becomes_welford(case: str, static: bool) -> None:
    assert shorter(WELFORD[case], static=static) == ["reduce welford", "project 1"]


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Half, DataType.Double])
def test_through_casts_that_change_nothing(dtype: DataType) -> None:
    def cast_first(fd: FusionDefinition, x: Any) -> None:
        wide = fd.ops.cast(x, DataType.Double)
        mean = fd.ops.mean(wide, 1, True)
        distance = fd.ops.cast(x, DataType.Double) - mean
        fd.add_output(fd.ops.sum(distance * distance, 1))

    assert shorter(variance, dtype) == ["reduce welford", "project 1"]
    assert shorter(cast_first, dtype) == ["reduce welford", "project 1"]
    assert shorter(softmax, dtype) == ["reduce online_softmax", "project 1"]


def softmax(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.softmax(x, 1))


def half_softmax(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.cast(fd.ops.softmax(x, 1), DataType.Half))


ONLINE: dict[str, Define] = {
    "softmax": softmax,
    "log softmax": lambda fd, x: fd.add_output(fd.ops.log_softmax(x, 1)),
    "logsumexp": lambda fd, x: fd.add_output(fd.ops.logsumexp(x, 1)),
    "of a column": lambda fd, x: fd.add_output(fd.ops.softmax(x, 0)),
    "of a value": lambda fd, x: fd.add_output(fd.ops.softmax(fd.ops.tanh(x), 1)),
    "to half": half_softmax,
}


@pytest.mark.parametrize("case", ONLINE)
def test_a_sum_of_exponentials_becomes_online(case: str) -> None:
    assert shorter(ONLINE[case]) == ["reduce online_softmax", "project 1"]


def test_the_loss_of_a_row_walks_it_once() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    target = fd.define_tensor([-1], dtype=DataType.Int)
    fd.add_output(fd.ops.cross_entropy(x, target, reduction="none"))
    grouped = check(fd, [X, torch.arange(6)])
    one = grouped.single_pass()
    assert one is not None
    assert [v["how"] for v in values(one, "reduce")] == ["reduce online_softmax"]
    assert not grouped.fission()


def test_both_forms_in_one_kernel() -> None:
    def define(fd: FusionDefinition, x: Any) -> None:
        fd.add_output(fd.ops.var(fd.ops.softmax(x, 1), 1))

    assert shorter(define) == ["reduce online_softmax", "project 1", "reduce welford", "project 1"]


def other_mean(fd: FusionDefinition, x: Any) -> None:
    distance = x - fd.ops.mean(fd.ops.tanh(x), 1, True)
    fd.add_output(fd.ops.sum(distance * distance, 1))


def rounded_mean(fd: FusionDefinition, x: Any) -> None:
    distance = x - fd.ops.cast(fd.ops.mean(x, 1, True), DataType.BFloat16)
    fd.add_output(fd.ops.sum(distance * distance, 1))


def product_of_two(fd: FusionDefinition, x: Any) -> None:
    mean = fd.ops.mean(x, 1, True)
    fd.add_output(fd.ops.sum((x - mean) * (mean - x), 1))


def with_cube(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(fd.ops.pow(x - fd.ops.mean(x, 1, True), 3.0), 1))


def sum_is_needed(fd: FusionDefinition, x: Any) -> None:
    total = fd.ops.sum(x, 1, True)
    distance = x - total / x.size(1)
    fd.add_output(fd.ops.sum(distance * distance, 1))
    fd.add_output(total)


def least(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(fd.ops.exp(x - fd.ops.min(x, 1, True)), 1))


def other_base(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(fd.ops.exp2(x - fd.ops.max(x, 1, True)), 1))


def max_of_another(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(fd.ops.exp(x - fd.ops.max(fd.ops.abs(x), 1, True)), 1))


def two_reductions(fd: FusionDefinition, x: Any) -> None:
    fd.add_output(fd.ops.sum(x * x, 1))
    fd.add_output(fd.ops.max(x, 1))


NEITHER: dict[str, Define] = {
    "the mean of another value": other_mean,
    "another count": written_out(lambda s, n: s / (n - 1)),
    "the inverse of another count": written_out(lambda s, n: s * (1.0 / (n - 1))),
    "twice the inverse": written_out(lambda s, n: s * (2.0 / n)),
    "the product with the count": written_out(lambda s, n: s * n),
    "divided by the inverse": written_out(lambda s, n: s / (1.0 / n)),
    "cubed by pow": with_cube,
    "a mean that was rounded": rounded_mean,
    "a product of two": product_of_two,
    "the sum is an output": sum_is_needed,
    "minimum": least,
    "exp2": other_base,
    "the maximum of another value": max_of_another,
    "one walk already": two_reductions,
}


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("case", NEITHER)
def test_what_only_looks_like_it_stays(case: str, static: bool) -> None:
    assert shorter(NEITHER[case], static=static) == []
