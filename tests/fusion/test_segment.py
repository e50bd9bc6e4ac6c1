"""The assignment of outputs to kernels, and the segmentation of graphs with reductions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fuser import DataType, FusionDefinition, Tensor, evaluate
from tests.support.groups import Group, Grouped, check, values

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))


def define(*ranks: int) -> tuple[FusionDefinition, list[Tensor]]:
    fd = FusionDefinition()
    return fd, [fd.define_tensor([-1] * rank) for rank in ranks]


def shape_of(grouped: Grouped) -> list[tuple[list[int], int, int]]:
    """(outputs, number of reduced axes, number of reduced axes of the second set) of each group."""
    return [
        (sorted(s["output"] for s in g["stores"]), len(g["rows"]), len(g["columns"]))
        for g in grouped.groups
    ]


def layer_norm_backward(o: Any, dy: Any, x: Any, w: Any, mean: Any, rstd: Any) -> list[Any]:
    """dx, dw and db of rows, with the operands of native_layer_norm_backward."""
    m, r = (o.broadcast(t, [False, True]) for t in (mean, rstd))
    normal = (x - m) * r
    g = dy * w
    n = x.size(1)
    dx = (g - o.sum(g, 1, True) / n - normal * (o.sum(g * normal, 1, True) / n)) * r
    return [dx, o.sum(dy * normal, 0), o.sum(dy, 0)]


def test_a_softmax_is_one_kernel() -> None:
    for dim in (0, 1):
        fd, (x,) = define(2)
        fd.add_output(fd.ops.softmax(x, dim))
        fd.add_output(fd.ops.log_softmax(x, dim))
        got = check(fd, [X], lambda x, d=dim: (x.softmax(d), x.log_softmax(d)))
        assert shape_of(got) == [([0, 1], 1, 0)]
        assert len(values(got.groups[0], "reduce")) == 2


def test_a_layer_norm_is_one_kernel() -> None:
    fd, (x, w, b) = define(2, 1, 1)
    for t in fd.ops.layer_norm(x, [x.size(1)], w, b):
        fd.add_output(t)
    got = check(
        fd,
        [X, X[0], X[1]],
        lambda x, w, b: torch.native_layer_norm(x, [8], w, b, 1e-5),
    )
    assert shape_of(got) == [([0, 1, 2], 1, 0)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_layer_norm_backward_is_one_kernel_with_two_sets(order: tuple[int, ...]) -> None:
    """The gradients of weight and bias are sums over all rows, on which dx does not depend."""
    fd, (dy, x, w, mean, rstd) = define(2, 2, 1, 1, 1)
    results = layer_norm_backward(fd.ops, dy, x, w, mean, rstd)
    for i in order:
        fd.add_output(results[i])

    def expected(dy: Any, x: Any, w: Any, mean: Any, rstd: Any) -> Any:
        normal = (x - mean[:, None]) * rstd[:, None]
        g = dy * w
        dx = g - g.mean(1, True) - normal * (g * normal).mean(1, True)
        results = (dx * rstd[:, None], (dy * normal).sum(0), dy.sum(0))
        return tuple(results[i] for i in order)

    inputs = [X, X.flip(0), X[0], X.mean(1), X.var(1)]
    got = check(fd, inputs, expected)
    assert shape_of(got) == [([0, 1, 2], 1, 1)]
    (group,) = got.groups
    dx = group["stores"][order.index(0)]
    assert [f"a{a}" for a in group["rows"]] == [dx["at"][1]]
    # Fission computes the column gradients in a single-pass kernel, separate from the row sums.
    columns, first, second = got.fission()
    assert not columns["columns"]
    assert not first["columns"]
    assert len(columns["stores"]) == 2
    assert [s["output"] for s in second["stores"]] == [order.index(0)]


def test_statistics_that_are_computed_again_stay_in_the_backward() -> None:
    """Full-rank values may use results of row reductions, and may be reduced over the columns."""
    fd, (dy, x, w) = define(2, 2, 1)
    var, mean = fd.ops.var_mean(x, 1, 0)
    for t in layer_norm_backward(fd.ops, dy, x, w, mean, fd.ops.rsqrt(var + 1e-5)):
        fd.add_output(t)
    assert shape_of(check(fd, [X, X.flip(0), X[0]])) == [([0, 1, 2], 1, 1)]


def test_an_rms_norm_and_what_it_adds_up() -> None:
    fd, (x, residual, w) = define(2, 2, 1)
    total = x + residual
    fd.add_output(total)
    y, rstd = fd.ops.rms_norm(total, [x.size(1)], w)
    fd.add_output(fd.ops.cast(y, DataType.BFloat16))
    fd.add_output(rstd)
    got = check(fd, [X, X * 2, X[0]], tolerance=1e-2)
    assert shape_of(got) == [([0, 1, 2], 1, 0)]


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_batch_norm_is_one_kernel_or_two(channels_last: bool) -> None:
    fd, (x, w, b, mean, var) = define(4, 1, 1, 1, 1)
    for t in fd.ops.batch_norm(x, w, b, mean, var, 0.1, 1e-5, True, channels_last):
        fd.add_output(t)
    c = 5
    inputs = [torch.randn(4, c, 3, 2), *(torch.rand(4, c) + 0.5)]
    if channels_last:
        inputs[0] = torch.randn(4, 3, 2, c)

    def expected(x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        rows = x.movedim(3, 1) if channels_last else x
        y = nn.functional.batch_norm(rows, mean, var, w, b, True, 0.1, 1e-5)
        save = rows.movedim(1, 0).reshape(c, -1)
        rstd = 1 / torch.sqrt(save.var(1, unbiased=False) + 1e-5)
        return mean, var, y.movedim(1, 3) if channels_last else y, save.mean(1), rstd

    got = check(fd, inputs, expected)
    assert shape_of(got) == [([0, 1, 2, 3, 4], 3, 0)]
    statistics, normalized = got.fission()
    assert [s["output"] for s in statistics["stores"]] == [0, 1, 3, 4]
    assert [s["output"] for s in normalized["stores"]] == [2]
    # Mean and rstd are outputs, and are loaded from there.
    assert not got.temps


def test_an_instance_norm_takes_means_over_the_batch_in_a_second_kernel() -> None:
    fd, (x, mean, var) = define(3, 1, 1)
    for t in fd.ops.instance_norm(x, None, None, mean, var, 0.1, 1e-5, True):
        fd.add_output(t)
    got = check(fd, [torch.randn(4, 5, 6), torch.rand(5), torch.rand(5)])
    assert [g["rows"] for g in got.groups] == [[2], [1]]
    assert [s["output"] for s in got.groups[1]["stores"]] == [0, 1]


def test_a_group_norm_of_split_channels() -> None:
    fd, (x, w) = define(4, 2)
    y, mean, _, rstd = _standardized(fd, x, [2, 3])
    fd.add_output(y * fd.ops.broadcast(w, [True, False, False, True]))
    fd.add_output(mean)
    fd.add_output(rstd)
    got = check(fd, [torch.randn(2, 3, 4, 5), torch.randn(3, 4)])
    assert shape_of(got) == [([0, 1, 2], 2, 0)]


def _standardized(
    fd: FusionDefinition, x: Any, dims: list[int], eps: float = 1e-5
) -> tuple[Any, ...]:
    var, mean = fd.ops.var_mean(x, dims, 0, True)
    rstd = fd.ops.rsqrt(var + eps)
    return (x - mean) * rstd, mean, var, rstd


def test_weights_repeated_beside_samples_that_come_merged() -> None:
    """An instance norm in torch's form: 3 samples of 4 channels are 12 channels of one sample."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([1, 12, 6]), fd.define_tensor([4])
    repeated = fd.ops.expand(fd.ops.broadcast(w, [True, False]), [3, 4])
    weight = fd.ops.broadcast(fd.ops.merge_dims(repeated, 0), [True, False, True])
    var, mean = fd.ops.var_mean(x, [0, 2], 0, keepdim=True)
    fd.add_output((x - mean) * fd.ops.rsqrt(var + 1e-5) * weight)
    fd.add_output(fd.ops.sum(x * weight, [0, 2]))

    def norm(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        var, mean = torch.var_mean(x, 2, correction=0, keepdim=True)
        weight = w.repeat(3).view(1, 12, 1)
        return (x - mean) * (var + 1e-5).rsqrt() * weight, (x * weight).sum((0, 2))

    data = torch.randn(1, 12, 6, generator=torch.Generator().manual_seed(1))
    got = check(fd, [data, data[0, :4, 0].contiguous()], norm)
    assert shape_of(got) == [([0, 1], 1, 0)]


def test_sums_of_rows_and_of_columns_are_one_kernel() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.sum(x, 1))
    fd.add_output(fd.ops.sum(x, 0))
    got = check(fd, [X], lambda x: (x.sum(1), x.sum(0)))
    assert shape_of(got) == [([0, 1], 1, 1)]
    assert len(got.fission()) == 2
    (problem,) = got.problems()
    assert (problem["reduced"], problem["columns"]) == ([1], [0])
    # The innermost axis is reduced as the rows.
    (problem,) = Grouped(fd, [X.T.contiguous().T]).problems()
    assert (problem["reduced"], problem["columns"]) == ([0], [1])


def test_a_third_set_is_a_kernel_of_its_own() -> None:
    fd, (x,) = define(2)
    for dims in (1, 0, [0, 1]):
        fd.add_output(fd.ops.sum(x, dims))
    got = check(fd, [X], lambda x: (x.sum(1), x.sum(0), x.sum()))
    assert shape_of(got) == [([0, 1], 1, 1), ([2], 2, 0)]


def test_a_second_set_that_leaves_an_axis_is_a_kernel_of_its_own() -> None:
    fd, (x,) = define(3)
    fd.add_output(fd.ops.sum(x, 2))
    fd.add_output(fd.ops.sum(x, 0))
    fd.add_output(fd.ops.sum(x, [0, 1]))
    got = check(fd, [torch.randn(2, 3, 4)])
    assert shape_of(got) == [([0, 2], 1, 2), ([1], 1, 0)]


def test_a_loss_of_rows_and_its_mean_are_two_kernels() -> None:
    fd, (x,) = define(2)
    target = fd.define_tensor([-1], dtype=DataType.Int)
    fd.add_output(fd.ops.cross_entropy(x, target))
    got = check(fd, [X, torch.arange(6)], lambda x, t: nn.functional.cross_entropy(x, t))
    assert [(g["rows"], len(g["axes"])) for g in got.groups] == [([1], 2), ([0], 1)]
    # The loss of each row is materialized, instead of a maximum and a sum.
    assert len(got.temps) == 1


def test_what_is_handed_over_is_the_last_and_narrowest_of_its_size() -> None:
    fd, (x,) = define(2)
    scale = fd.ops.cast(fd.ops.rsqrt(fd.ops.mean(x * x, 0) + 1.0), DataType.BFloat16)
    fd.add_output(fd.ops.softmax(x * scale, 1))
    got = check(fd, [X], tolerance=1e-2)
    assert len(got.groups) == 2
    (temp,) = got.temps
    assert got.records[temp]["dtype"] == DataType.BFloat16


def test_a_norm_of_a_softmax_over_the_same_axis_is_one_kernel() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.layer_norm(fd.ops.softmax(x, 1), [x.size(1)])[0])
    got = check(fd, [X], lambda x: nn.functional.layer_norm(x.softmax(1), [8]))
    assert shape_of(got) == [([0], 1, 0)]
    # Maximum and sum, mean and variance, result.
    assert len(got.fission()) == 3


def test_a_norm_of_a_softmax_over_another_axis_is_cut() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.layer_norm(fd.ops.softmax(x, 0), [x.size(1)])[0])
    got = check(fd, [X], lambda x: nn.functional.layer_norm(x.softmax(0), [8]))
    assert shape_of(got) == [([1, 2], 1, 0), ([0], 1, 0)]
    # The softmax is not materialized, but a maximum, and a sum with a dim of size 1.
    assert [len(got.records[t]["shape"]) for t in got.temps] == [1, 2]


def test_a_matrix_and_its_transpose() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.softmax(x - fd.ops.permute(x, [1, 0]), 1))
    assert shape_of(check(fd, [X[:, :6]], lambda x: (x - x.T).softmax(1))) == [([0], 1, 0)]


def test_a_sum_that_is_needed_at_two_coordinates_is_handed_over() -> None:
    """x / sqrt(degree[i] degree[j]): one of the two has the reduced axis as its coordinate, so
    degree is materialized."""
    fd, (x,) = define(2)
    degree = fd.ops.sum(x, 1)
    fd.add_output(
        x * fd.ops.broadcast(degree, [False, True]) * fd.ops.broadcast(degree, [True, False])
    )
    got = check(fd, [X[:, :6]], lambda x: x * x.sum(1)[:, None] * x.sum(1))
    assert [(g["rows"], len(g["stores"])) for g in got.groups] == [([1], 1), ([], 1)]


def test_both_means_of_a_matrix() -> None:
    """Neither mean is terminal, so the column mean is materialized."""
    fd, (x,) = define(2)
    fd.add_output(x - fd.ops.mean(x, 0, True) - fd.ops.mean(x, 1, True))
    got = check(fd, [X], lambda x: x - x.mean(0) - x.mean(1, True))
    assert [g["rows"] for g in got.groups] == [[1], [1]]
    assert len(got.temps) == 1


def test_a_diamond_is_cut_once() -> None:
    fd, (x,) = define(2)
    mean = fd.ops.mean(x, 0, True)
    left, right = fd.ops.softmax(x - mean, 1), fd.ops.softmax(x * mean, 1)
    fd.add_output(left + right)
    fd.add_output(left)
    got = check(fd, [X])
    assert shape_of(got) == [([2], 1, 0), ([0, 1], 1, 0)]


def test_a_cut_that_is_an_output_is_stored_once() -> None:
    fd, (x,) = define(2)
    mean = fd.ops.mean(x, 0)
    fd.add_output(mean)
    fd.add_output(fd.ops.softmax(x - mean, 1))
    got = check(fd, [X])
    assert shape_of(got) == [([0], 1, 0), ([1], 1, 0)]
    assert not got.temps


def test_elementwise_outputs_join_where_they_are_over_all_axes() -> None:
    fd, (x, w) = define(2, 1)
    fd.add_output(x * 2.0)
    fd.add_output(fd.ops.softmax(x * w, 1))
    fd.add_output(fd.ops.sum(x, 1))
    fd.add_output(w + 1.0)  # a value over the reduced axes that depends on no reduction
    fd.add_output(fd.ops.permute(x, [1, 0]) - 1.0)
    assert shape_of(check(fd, [X, X[0]])) == [([0, 1, 2, 4], 1, 0), ([3], 0, 0)]


def test_parameters_of_rows_and_of_columns_enter_arguments() -> None:
    fd, (x, w, m) = define(2, 1, 1)
    fd.add_output(fd.ops.sum((x - fd.ops.broadcast(m, [False, True])) * w, 1))
    fd.add_output(fd.ops.max(fd.ops.broadcast(w, [True, False]) * x, 1))
    got = check(fd, [X, X[0], X[:, 0]])
    assert shape_of(got) == [([0, 1], 1, 0)]


def test_a_reduction_of_less_than_the_kernel_walks_is_a_kernel_before() -> None:
    """A reduction over fewer axes is a separate kernel, or every row would rematerialize it."""
    fd, (x, w) = define(2, 1)
    fd.add_output(fd.ops.softmax(x / fd.ops.sum(w), 1))
    got = check(fd, [X, X[0]])
    assert [len(g["axes"]) for g in got.groups] == [1, 2]


def test_a_mask_of_no_operand_joins_the_kernel_that_needs_it() -> None:
    """The mask precedes the output that connects its axes with the statistics' axes."""
    fd, (x,) = define(2)
    row_max = fd.ops.max(x, 1, True)
    rows, columns = fd.ops.size(x, 0), fd.ops.size(x, 1)
    place = fd.ops.split_dim(fd.ops.iota(fd.ops.mul(rows, columns)), 0, [rows, columns])
    keep = fd.ops.gt(fd.ops.remainder(place, 3), 0)
    for output in (row_max, keep, fd.ops.exp(x - row_max) * fd.ops.cast(keep, DataType.Float)):
        fd.add_output(output)
    assert shape_of(check(fd, [X])) == [([0, 1, 2], 1, 0)]


def test_graphs_that_share_nothing_share_no_kernel() -> None:
    fd, (x, y) = define(2, 2)
    fd.add_output(fd.ops.softmax(x, 1))
    fd.add_output(fd.ops.softmax(y, 1))
    assert shape_of(check(fd, [X, X])) == [([0], 1, 0), ([1], 1, 0)]


def test_pieces_hand_over_results_and_nothing_of_the_size_of_a_row() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.softmax(fd.ops.tanh(x), 1))
    got = check(fd, [X])
    first, second = got.fission()
    assert [s["at"] for s in first["stores"]] == [["a0"], ["a0", "0"]]
    assert second["rows"] == []
    reads = values(second, "read")
    assert sorted(len(v["axes"]) for v in reads) == [1, 1, 2]


@pytest.mark.parametrize(("length", "alternate"), [(3, True), (12, True), (150, False), (60, True)])
def test_long_chains_of_norms(length: int, alternate: bool) -> None:
    """Long chains of norms are split where complete tensors are cheapest to materialize."""
    fd, (x,) = define(2)
    y = x
    for i in range(length):
        dim = i % 2 if alternate else 1
        y = (y - fd.ops.mean(y, [dim], True)) * fd.ops.rsqrt(fd.ops.mean(y * y, [dim], True) + 1.0)
    fd.add_output(y)
    start = time.monotonic()
    got = Grouped(fd, [X])
    assert time.monotonic() - start < 60  # detects exponential work; not a speed test
    assert all(len(g["values"]) <= 512 for g in got.groups)
    result = got.run()[0]
    (wanted,) = evaluate(fd, [X])
    assert result is not None
    torch.testing.assert_close(result, wanted, rtol=1e-6, atol=1e-6)


def long_chain(length: int) -> FusionDefinition:
    fd, (x,) = define(1)
    y = x
    for i in range(length):
        y = fd.ops.minimum(y, 1.0) if i % 3 else y + x
    fd.add_output(y)
    return fd


@pytest.mark.parametrize("length", [600, 1500])
def test_a_chain_too_long_for_a_kernel_is_cut_where_one_tensor_is_live(length: int) -> None:
    got = check(long_chain(length), [X[0]], tolerance=1e-5)
    assert all(len(g["values"]) <= 512 for g in got.groups)
    assert all(len(g["stores"]) == 1 for g in got.groups)
    assert len(got.groups) <= length // 256


def test_a_chain_of_ten_thousand_ops_meets_no_limit() -> None:
    """A long chain needs linear time and no recursion; the bound is not a speed test."""
    start = time.monotonic()
    fd = long_chain(10_000)
    assert len(Grouped(fd, [X[0]]).groups) <= 40
    assert repr(fd).count("fd.ops.minimum") == 6666
    assert hash(fd.fusion) == hash(long_chain(10_000).fusion)
    (result,) = evaluate(fd, [X[0]])
    assert result.shape == (8,)
    assert time.monotonic() - start < 30


def test_shifts_of_shifts_are_stored_before_they_multiply() -> None:
    """Nested shifts are materialized: inlined, an op would need more coordinates than its user."""
    fd, size = FusionDefinition(), 200
    y = fd.define_tensor([size])
    for shift in range(1, 17):
        size -= shift
        y = fd.ops.sin(fd.ops.slice(y, [0], [size])) + fd.ops.slice(y, [shift], [size + shift])
    fd.add_output(y)
    got = check(fd, [torch.linspace(-1, 1, 200)], tolerance=1e-4)
    assert 2 <= len(got.groups) <= 8
    assert all(len(g["values"]) <= 64 for g in got.groups)


def test_slices_of_what_is_costly_share_a_kernel_while_it_is_computed_at_few_places() -> None:
    """Slices of an expensive tensor are in one kernel up to a number of coordinates; the ninth
    slice would rematerialize the tensor a ninth time."""

    def costly(o: Any, x: Any) -> Any:
        for step in range(18):
            x = o.abs(x) if step % 2 else x - 0.75
        return x

    fd = FusionDefinition()
    x = costly(fd.ops, fd.define_tensor([12, 8]))
    for i in range(11):
        fd.add_output(fd.ops.slice(x, [i, 0], [i + 1, 8]))
    X = torch.arange(96.0).view(12, 8)
    got = check(fd, [X], lambda x: tuple(costly(torch, x).split(1))[:11])
    assert [len(outputs) for outputs, _, _ in shape_of(got)] == [8, 3]
    assert len(check_runs(fd, X)) == 11


def test_many_reductions_of_one_tensor() -> None:
    fd, (x,) = define(2)
    for i in range(120):
        fd.add_output(fd.ops.sum(x * float(i), i % 2))
    got = check(fd, [X])
    assert 2 <= len(got.groups) <= 6


class Maker:
    """Random definitions: reductions, norms, gathers, movement, arithmetic."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.fd = FusionDefinition()
        self.inputs: list[torch.Tensor] = []
        self.nodes: list[tuple[Any, tuple[int, ...]]] = []
        self.rank = self.pick([1, 2, 2, 2, 3, 3])
        self.sizes = [self.pick([2, 3, 4, 5]) for _ in range(self.rank)]
        if rng.random() < 0.3:
            self.sizes = [self.sizes[0]] * self.rank
        self.static = rng.random() < 0.3

    def pick(self, items: list[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def add_input(self, dims: list[int | None]) -> None:
        sizes = [1 if d is None else self.sizes[d] for d in dims]
        shape = sizes if self.static else [1 if d is None else -1 for d in dims]
        dtype = self.pick([DataType.Float, DataType.Double])
        self.nodes.append((self.fd.define_tensor(shape, dtype=dtype), tuple(sizes)))
        value = torch.from_numpy(self.rng.standard_normal(sizes))
        self.inputs.append(value.to(getattr(torch, dtype.torch_name)))

    def reduction(self, t: Any, sizes: tuple[int, ...]) -> None:
        o, dims = self.fd.ops, [self.pick(list(range(len(sizes))))]
        if self.rng.random() < 0.4:
            dims = [d for d in range(len(sizes)) if self.rng.random() < 0.5 or d == dims[0]]
        keep = bool(self.rng.random() < 0.7)
        t = self.pick([o.sum, o.sum, o.max, o.mean, o.min])(t, dims, keep)
        kept = [1 if d in dims else n for d, n in enumerate(sizes) if keep or d not in dims]
        self.nodes.append((o.tanh(t) if self.rng.random() < 0.5 else t, tuple(kept)))

    def norm(self, t: Any, sizes: tuple[int, ...]) -> None:
        d = self.pick(list(range(len(sizes))))
        if self.rng.random() < 0.5:
            self.nodes.append((self.fd.ops.softmax(t, d), sizes))
        else:
            # A small eps would amplify the rounding error of a row of equal elements.
            self.nodes.append((_standardized(self.fd, t, [d], 1.0)[0], sizes))

    def lookup(self, t: Any, sizes: tuple[int, ...]) -> None:
        o, d = self.fd.ops, self.pick(list(range(len(sizes))))
        index = o.cast(o.sum(t, [d], True) * 3.0, DataType.Int)
        kept = tuple(1 if i == d else n for i, n in enumerate(sizes))
        self.nodes.append((o.take_along_axis(t, index, d), kept))

    def permute(self, t: Any, sizes: tuple[int, ...]) -> None:
        dims = [int(d) for d in self.rng.permutation(len(sizes))]
        self.nodes.append((self.fd.ops.permute(t, dims), tuple(sizes[d] for d in dims)))

    def arithmetic(self, t: Any, sizes: tuple[int, ...]) -> None:
        other, others = self.pick(self.nodes)
        try:
            met = tuple(torch.broadcast_shapes(sizes, others))
        except RuntimeError:
            return
        o = self.fd.ops
        self.nodes.append((o.tanh(self.pick([o.add, o.mul, o.sub])(t, other)), met))

    def make(self) -> None:
        for _ in range(self.pick([1, 2, 3])):
            self.add_input(list(range(self.rank)))
        for _ in range(self.pick([0, 1, 2])):
            self.add_input([d if self.rng.random() < 0.5 else None for d in range(self.rank)])
        given = len(self.nodes)
        steps: list[Callable[[Any, tuple[int, ...]], None]] = [self.arithmetic] * 4
        steps += [self.reduction] * 3 + [self.norm] * 2 + [self.permute, self.lookup]
        for _ in range(self.pick(list(range(2, 15)))):
            t, sizes = self.pick(self.nodes[-6:] if self.rng.random() < 0.7 else self.nodes)
            self.pick(steps if sizes else [self.arithmetic])(t, sizes)
        made = self.nodes[given:] or self.nodes
        for i in self.rng.permutation(len(made))[: self.pick([1, 2, 3, 4])]:
            self.fd.add_output(made[int(i)][0])


def test_random_graphs(rng: np.random.Generator) -> None:
    """In 150 random graphs every output is stored once and every tensor is stored before it is
    read. Results equal the definition's, with and without fission, and in single-pass form."""
    seen: list[Group] = []
    for _ in range(150):
        maker = Maker(rng)
        maker.make()
        try:
            got = check(maker.fd, maker.inputs)
            got.problems()
        except BaseException:
            print(maker.fd)
            raise
        seen += got.groups
    assert any(g["columns"] for g in seen)
    assert any(not g["rows"] for g in seen)


def check_runs(fd: FusionDefinition, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The results, which must equal evaluate()'s."""
    got = fd.execute(list(inputs))
    for mine, exact in zip(got, evaluate(fd, list(inputs)), strict=True):
        assert torch.equal(mine.double(), exact.double())
    return got


def test_the_position_of_one_element_needs_no_reduction() -> None:
    fd, (x,) = define(1)
    one = fd.ops.broadcast(fd.ops.sum(x, [0]), [True])
    fd.add_output(fd.ops.broadcast(fd.ops.argmax(one, 0), [True]))
    assert check_runs(fd, X[0])[0].item() == 0


def test_an_index_into_what_is_the_same_everywhere() -> None:
    """A gather from a broadcast tensor, whose index, a reduction over another axis, is dead."""
    fd, (x, y) = define(2, 2)
    index = fd.ops.cast(fd.ops.sum(x, [0], keepdim=True) * 0.0, DataType.Int)
    rows = fd.ops.max(y, [1], keepdim=True)
    same = fd.ops.expand(rows, [-1, 8])
    fd.add_output(fd.ops.take_along_axis(same, fd.ops.expand(index, [6, -1]), 1))
    check_runs(fd, X, X + 1)


def test_outputs_without_elements_have_no_kernel() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2, -1, -1, 0], dtype=DataType.Int32)
    merged = fd.ops.merge_dims(x, dim=2)
    fd.add_output(fd.ops.argmin(fd.ops.all(merged, [1]), 0))
    fd.add_output(fd.ops.sum(x))
    got = fd.execute([torch.zeros(2, 3, 4, 0, dtype=torch.int32)])
    assert list(got[0].shape) == [0]
    assert got[1].item() == 0
    assert len(fd.fec.executor.kernels()) == 1


def test_a_position_whose_value_another_kernel_stores() -> None:
    """The index of the first minimum selects the element that is read; its kernel rematerializes
    minimum and index."""
    fd = FusionDefinition()
    x = fd.define_tensor([16], dtype=DataType.Short)
    three = fd.ops.cat([x, x, x], 0)
    most = fd.ops.le(fd.ops.broadcast(fd.ops.max(x, [0]), [True]), three)
    back = fd.ops.flip(most, [0])
    place = fd.ops.result(fd.ops.reduction("argmin", three, [0]), 1)
    index = fd.ops.remainder(fd.ops.cast(fd.ops.broadcast(place, [True]), DataType.Int), 48)
    there = fd.ops.max(fd.ops.take_along_axis(back, index, 0), [0])
    either = fd.ops.maximum(fd.ops.cast(most, DataType.Byte), back)
    fd.add_output(fd.ops.add(fd.ops.broadcast(there, [True]), either))
    for least in range(16):
        given = torch.arange(16, dtype=torch.int16).roll(least)
        tripled = given.repeat(3)
        largest = tripled >= given.max()
        wanted = largest.flip(0)[tripled.argmin()] + (largest | largest.flip(0)).to(torch.uint8)
        (got,) = fd.execute([given])
        assert torch.equal(got.long(), wanted.long())
