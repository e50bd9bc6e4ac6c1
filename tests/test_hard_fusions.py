"""Thirty fusions that a fusion compiler is likely to split, to spill or to get wrong. Each has an
expected number of kernels, and results equal to fuser.evaluate's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition, Tensor, testing

BF16, HALF, INT = DataType.BFloat16, DataType.Half, DataType.Int
Case = tuple[FusionDefinition, list[Any]]


class Definition:
    """A definition and its inputs."""

    def __init__(self) -> None:
        self.fd = FusionDefinition()
        self.ops = self.fd.ops
        self.inputs: list[Any] = []
        self.generator = torch.Generator().manual_seed(0)

    def tensor(self, *sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
        value = torch.randn(sizes, generator=self.generator).to(dtype)
        return self.given(value)

    def given(self, value: torch.Tensor, static: bool = False) -> Tensor:
        self.inputs.append(value)
        return self.fd.from_pytorch(value, static_sizes=static)

    def indices(self, limit: int, *sizes: int) -> Tensor:
        return self.given(torch.randint(0, limit, sizes, generator=self.generator))


CASES: dict[str, tuple[int, Callable[[Definition], list[Tensor]]]] = {}
Maker = Callable[[Definition], list[Tensor]]


def case(kernels: int) -> Callable[[Maker], Maker]:
    def add(make: Maker) -> Maker:
        CASES[make.__name__] = (kernels, make)
        return make

    return add


@case(1)
def bias_gelu_of_mixed_types(d: Definition) -> list[Tensor]:
    x, bias = d.tensor(6, 40, dtype=torch.bfloat16), d.tensor(40)
    return [d.ops.cast(d.ops.gelu(x + bias), BF16)]


@case(1)
def channels_last_with_row_major(d: Definition) -> list[Tensor]:
    x = torch.randn(2, 8, 5, 6, generator=d.generator)
    a = d.given(x.to(memory_format=torch.channels_last))
    return [a + d.tensor(2, 8, 5, 6)]


@case(1)
def softmax_with_mask_and_dropout(d: Definition) -> list[Tensor]:
    x, mask = d.tensor(2, 3, 8, 16), d.tensor(2, 1, 8, 16)
    return list(d.ops.dropout(d.ops.softmax(x + mask, 3), 0.25))


@case(1)
def layer_norm_forward(d: Definition) -> list[Tensor]:
    x, w, b = d.tensor(6, 40), d.tensor(40), d.tensor(40)
    return list(d.ops.layer_norm(x, [x.size(1)], w, b))


@case(1)
def layer_norm_backward(d: Definition) -> list[Tensor]:
    dy, x, w = d.tensor(6, 40), d.tensor(6, 40), d.tensor(40)
    var, mean = d.ops.var_mean(x, [1], 0, True)
    normal = (x - mean) * d.ops.rsqrt(var + 1e-5)
    g = dy * w
    dx = g - d.ops.mean(g, [1], True) - normal * d.ops.mean(g * normal, [1], True)
    return [
        dx * d.ops.rsqrt(var + 1e-5),
        d.ops.sum(dy * normal, [0]),
        d.ops.sum(dy, [0]),
    ]


@case(1)
def batch_norm_in_training(d: Definition) -> list[Tensor]:
    x, w, b = d.tensor(4, 5, 3, 2), d.tensor(5), d.tensor(5)
    mean, var = d.tensor(5), d.given(torch.rand(5, generator=d.generator) + 0.5)
    return list(d.ops.batch_norm(x, w, b, mean, var, 0.1, 1e-5, True))


@case(1)
def group_norm_affine_silu(d: Definition) -> list[Tensor]:
    x = d.given(torch.randn(2, 6, 4, 5, generator=d.generator), static=True)
    w, b = d.tensor(6), d.tensor(6)
    return [d.ops.silu(d.ops.group_norm(x, 3, w, b)[0])]


@case(1)
def batch_norm_channels_last(d: Definition) -> list[Tensor]:
    x = torch.randn(4, 5, 3, 2, generator=d.generator).to(memory_format=torch.channels_last)
    w, b, mean = d.tensor(5), d.tensor(5), d.tensor(5)
    var = d.given(torch.rand(5, generator=d.generator) + 0.5)
    return list(d.ops.batch_norm(d.given(x), w, b, mean, var, 0.1, 1e-5, True))


@case(1)
def group_norm_channels_last(d: Definition) -> list[Tensor]:
    x = torch.randn(2, 6, 4, 5, generator=d.generator).to(memory_format=torch.channels_last)
    w, b = d.tensor(6), d.tensor(6)
    return [d.ops.silu(d.ops.group_norm(d.given(x, static=True), 3, w, b)[0])]


@case(1)
def batch_norm_in_evaluation(d: Definition) -> list[Tensor]:
    x, w, b, mean = d.tensor(4, 5, 3, 2), d.tensor(5), d.tensor(5), d.tensor(5)
    var = d.given(torch.rand(5, generator=d.generator) + 0.5)
    return [d.ops.batch_norm(x, w, b, mean, var, 0.1, 1e-5, False)[0]]


def batch_norm_gradients(d: Definition, x: Tensor) -> list[Tensor]:
    dy, w, mean, rstd = d.tensor(4, 5, 3, 2), d.tensor(5), d.tensor(5), d.tensor(5)
    per_channel = [True, False, True, True]
    mean, rstd, w = (d.ops.broadcast(t, per_channel) for t in (mean, rstd, w))
    normal = (x - mean) * rstd
    g = dy * w
    over = [0, 2, 3]
    dx = g - d.ops.mean(g, over, True) - normal * d.ops.mean(g * normal, over, True)
    return [dx * rstd, d.ops.sum(dy * normal, over), d.ops.sum(dy, over)]


@case(1)
def batch_norm_backward(d: Definition) -> list[Tensor]:
    return batch_norm_gradients(d, d.tensor(4, 5, 3, 2))


@case(1)
def batch_norm_backward_channels_last(d: Definition) -> list[Tensor]:
    x = torch.randn(4, 5, 3, 2, generator=d.generator).to(memory_format=torch.channels_last)
    return batch_norm_gradients(d, d.given(x))


@case(1)
def group_norm_with_its_statistics(d: Definition) -> list[Tensor]:
    x = d.given(torch.randn(2, 6, 4, 5, generator=d.generator), static=True)
    return list(d.ops.group_norm(x, 3, d.tensor(6), d.tensor(6)))


@case(1)
def group_norm_of_one_group(d: Definition) -> list[Tensor]:
    x = torch.randn(2, 6, 4, 5, generator=d.generator).to(memory_format=torch.channels_last)
    return [d.ops.group_norm(d.given(x, static=True), 1, d.tensor(6), d.tensor(6))[0]]


@case(1)
def cross_entropy_of_each_row(d: Definition) -> list[Tensor]:
    return [d.ops.cross_entropy(d.tensor(7, 33), d.indices(33, 7), reduction="none")]


@case(2)
def cross_entropy_with_weights_and_smoothing(d: Definition) -> list[Tensor]:
    x, target, weight = d.tensor(7, 33), d.indices(33, 7), d.tensor(33)
    return [d.ops.cross_entropy(x, target, weight, 3, "mean", 0.1)]


@case(2)
def cross_entropy_that_keeps_what_its_backward_reads(d: Definition) -> list[Tensor]:
    """Outputs are the loss, and the maximum and the logarithm of the sum of each row."""
    x, target = d.tensor(7, 33), d.indices(33, 7)
    most = d.ops.max(x, [1], True)
    log = d.ops.log(d.ops.sum(d.ops.exp(x - most), [1], True))
    hit = d.ops.take_along_axis(x, d.ops.broadcast(target, [False, True]), 1)
    return [d.ops.mean(most + log - hit, [0, 1]), most, log]


@case(1)
def cross_entropy_backward_of_saved_rows(d: Definition) -> list[Tensor]:
    """Elementwise: no further row reduction."""
    x, most, log, target = d.tensor(7, 33), d.tensor(7, 1), d.tensor(7, 1), d.indices(33, 7)
    classes = d.ops.broadcast(d.ops.iota(x.size(1)), [True, False])
    hit = d.ops.eq(classes, d.ops.broadcast(target, [False, True]))
    return [(d.ops.exp(x - most - log) - d.ops.cast(hit, DataType.Float)) / 7.0]


@case(1)
def cross_entropy_backward(d: Definition) -> list[Tensor]:
    """Softmax minus one at the target, times the gradient of the row."""
    x, target, gradient = d.tensor(7, 33), d.indices(33, 7), d.tensor(7)
    classes = d.ops.broadcast(d.ops.iota(x.size(1)), [True, False])
    hit = d.ops.eq(classes, d.ops.broadcast(target, [False, True]))
    rest = d.ops.softmax(x, 1) - d.ops.cast(hit, DataType.Float)
    return [rest * d.ops.broadcast(gradient, [False, True])]


@case(2)
def cross_entropy(d: Definition) -> list[Tensor]:
    """A kernel for the rows, and one that sums over them."""
    return [d.ops.cross_entropy(d.tensor(7, 33), d.indices(33, 7))]


@case(1)
def rope_of_halves(d: Definition) -> list[Tensor]:
    x, cos, sin = d.tensor(2, 3, 5, 8), d.tensor(5, 8), d.tensor(5, 8)
    first = d.ops.slice(x, [0, 0, 0, 0], [None] * 3 + [4])
    second = d.ops.slice(x, [0, 0, 0, 4], [None] * 3 + [8])
    return [x * cos + d.ops.cat([-second, first], 3) * sin]


@case(1)
def rope_of_neighbours(d: Definition) -> list[Tensor]:
    """Rotary embedding of neighbouring pairs, rather than of halves."""
    x, cos, sin = d.tensor(2, 3, 5, 8), d.tensor(5, 4), d.tensor(5, 4)
    pairs = d.ops.reshape(x, [x.size(0), x.size(1), x.size(2), -1, 2])
    a, b = (d.ops.select(pairs, i, 4) for i in range(2))
    turned = d.ops.stack([a * cos - b * sin, a * sin + b * cos], 4)
    return [d.ops.reshape(turned, [x.size(0), x.size(1), x.size(2), -1])]


@case(1)
def qkv_split_permute_scale(d: Definition) -> list[Tensor]:
    qkv = d.given(torch.randn(2, 5, 3, 4, 8, generator=d.generator), static=True)
    parts = [d.ops.permute(d.ops.select(qkv, i, 2), [0, 2, 1, 3]) for i in range(3)]
    return [parts[0] * 0.5, parts[1] * 1.5, parts[2] * 2.5]


@case(1)
def cat_along_rows_then_norm(d: Definition) -> list[Tensor]:
    x = d.ops.cat([d.ops.relu(d.tensor(6, n)) for n in (8, 5, 11)], 1)
    return [d.ops.softmax(x, 1)]


@case(1)
def cat_along_rows_that_is_stored(d: Definition) -> list[Tensor]:
    return [d.ops.cat([d.ops.relu(d.tensor(6, n)) for n in (8, 5, 11)], 1)]


def parts(x: Tensor, bounds: list[Any], d: Definition) -> list[Tensor]:
    ends = [*bounds[1:], None]
    return [d.ops.slice(x, [0, a], [None, b]) for a, b in zip(bounds, ends, strict=True)]


@case(1)
def uneven_parts_changed_and_joined(d: Definition) -> list[Tensor]:
    a, b, c = parts(d.tensor(6, 24), [0, 5, 13], d)
    return [d.ops.cat([d.ops.silu(a), b * 2.0, -c], 1)]


@case(1)
def parts_of_run_time_sizes_changed_and_joined(d: Definition) -> list[Tensor]:
    x = d.tensor(6, 24)
    n = d.fd.define_scalar(INT)
    d.inputs.append(9)
    a, b = parts(x, [0, n], d)
    return [d.ops.cat([d.ops.silu(a), b * 2.0], 1)]


@case(1)
def parts_joined_the_other_way_round_then_norm(d: Definition) -> list[Tensor]:
    x = d.tensor(6, 24)
    n = d.fd.define_scalar(INT)
    d.inputs.append(9)
    a, b = parts(x, [0, n], d)
    return [d.ops.softmax(d.ops.cat([b * 2.0, d.ops.silu(a)], 1), 1)]


@case(1)
def pad_by_a_run_time_amount(d: Definition) -> list[Tensor]:
    x = d.tensor(6, 20)
    n = d.fd.define_scalar(INT)
    d.inputs.append(3)
    return [d.ops.relu(d.ops.pad(x, [n, 2])) + 1.0]


@case(1)
def roll_by_a_run_time_amount(d: Definition) -> list[Tensor]:
    x = d.tensor(6, 20)
    n = d.fd.define_scalar(INT)
    d.inputs.append(7)
    left = d.ops.slice(x, [0, n], [None, None])
    right = d.ops.slice(x, [0, 0], [None, n])
    return [d.ops.cat([left, right], 1) * 2.0]


@case(1)
def means_of_overlapping_windows(d: Definition) -> list[Tensor]:
    x = d.given(torch.randn(6, 20, generator=d.generator), static=True)
    windows = [d.ops.slice(x, [0, i], [6, i + 18]) for i in range(3)]
    return [(windows[0] + windows[1] + windows[2]) / 3.0]


@case(1)
def sums_of_two_halves(d: Definition) -> list[Tensor]:
    x = d.given(torch.randn(6, 40, generator=d.generator), static=True)
    left, right = (d.ops.slice(x, [0, i], [6, i + 20]) for i in (0, 20))
    return [d.ops.sum(left, [1]) + d.ops.sum(right, [1])]


@case(1)
def norms_around_a_reshape_of_unknown_sizes(d: Definition) -> list[Tensor]:
    """The reshape keeps the rows, which is known only at run time."""
    x = d.tensor(4, 5, 12)
    sizes = [d.fd.define_scalar(INT) for _ in range(2)]
    d.inputs += [20, 12]
    return [d.ops.softmax(d.ops.reshape(d.ops.softmax(x, 2), sizes), 1)]


@case(1)
def reshape_of_unknown_sizes(d: Definition) -> list[Tensor]:
    x, bias = d.tensor(2, 5, 12), d.tensor(4)
    return [d.ops.reshape(d.ops.relu(x), [10, 3, 4]) + bias]


@case(1)
def reshape_that_does_not_nest(d: Definition) -> list[Tensor]:
    x = d.given(torch.randn(6, 4, generator=d.generator), static=True)
    bias = d.given(torch.randn(4, generator=d.generator), static=True)
    return [d.ops.relu(d.ops.reshape(x + bias, [8, 3]))]


@case(1)
def row_sum_and_column_sum(d: Definition) -> list[Tensor]:
    x = d.tensor(6, 40)
    return [d.ops.sum(x, [1]), d.ops.sum(x, [0])]


@case(1)
def sum_over_outer_and_inner(d: Definition) -> list[Tensor]:
    return [d.ops.sum(d.tensor(4, 6, 10), [0, 2])]


@case(1)
def layer_norm_of_softmax(d: Definition) -> list[Tensor]:
    x = d.tensor(6, 40)
    return [d.ops.layer_norm(d.ops.softmax(x, 1), [x.size(1)])[0]]


@case(2)
def layer_norm_of_softmax_over_another_axis(d: Definition) -> list[Tensor]:
    x = d.tensor(6, 40)
    return [d.ops.layer_norm(d.ops.softmax(x, 0), [x.size(1)])[0]]


@case(7)
def softmaxes_of_rows_and_columns_in_turn(d: Definition) -> list[Tensor]:
    """Two kernels for each pair of softmaxes: column statistics, and both softmaxes, which
    rematerialize the row statistics."""
    x = d.tensor(6, 40)
    for i in range(6):
        x = d.ops.softmax(x * 2.0, i % 2)
    return [x]


@case(1)
def transpose_with_a_reduction(d: Definition) -> list[Tensor]:
    return [d.ops.sum(d.ops.permute(d.tensor(6, 40), [1, 0]) + d.tensor(40, 6), [1])]


@case(1)
def three_innermost_axes(d: Definition) -> list[Tensor]:
    x = torch.randn(4, 5, 6, generator=d.generator)
    y = torch.randn(5, 6, 4, generator=d.generator).permute(2, 0, 1)
    z = torch.randn(4, 6, 5, generator=d.generator).permute(0, 2, 1)
    return [d.given(x) + d.given(y) * d.given(z)]


@case(2)
def cumsum_with_pointwise(d: Definition) -> list[Tensor]:
    """A kernel before and one after torch's scan."""
    return [d.ops.relu(d.ops.cumsum(d.ops.sin(d.tensor(6, 40)), 1))]


@case(1)
def embedding_and_take_along_axis(d: Definition) -> list[Tensor]:
    table, tokens = d.tensor(11, 8), d.indices(11, 5)
    rows = d.ops.embedding_fwd(tokens, table)
    return [d.ops.take_along_axis(rows * 2.0, d.indices(8, 5, 3), 1)]


@case(1)
def argmax_with_its_maximum(d: Definition) -> list[Tensor]:
    x = d.tensor(6, 40)
    return [d.ops.argmax(x, 1), d.ops.max(x, [1])]


@case(1)
def doubles_complex_and_bool(d: Definition) -> list[Tensor]:
    x, c = d.tensor(6, 10, dtype=torch.float64), d.tensor(6, 10, dtype=torch.complex64)
    return [d.ops.where(d.ops.gt(x, 0.0), c * 2.0, c), d.ops.lt(x, 0.5)]


@case(1)
def no_elements_and_no_dims(d: Definition) -> list[Tensor]:
    return [d.ops.sum(d.tensor(0, 6), [0]) + d.tensor()]


@case(1)
def random_numbers_of_two_ops(d: Definition) -> list[Tensor]:
    x = d.tensor(6, 10)
    return [x + d.ops.rand_like(x), x * d.ops.randn_like(x)]


@case(2)
def two_independent_fusions(d: Definition) -> list[Tensor]:
    """Two iteration spaces: one launch would need horizontal fusion."""
    return [d.ops.sin(d.tensor(9)), d.ops.cos(d.tensor(6, 10))]


@case(1)
def two_hundred_ops_thirty_inputs(d: Definition) -> list[Tensor]:
    inputs = [d.tensor(64) for _ in range(30)]
    values = list(inputs)
    for i in range(170):
        values.append(d.ops.sin(values[-1] + values[len(values) - 1 - i % 30]))
    return values[-30:]


@case(1)
def softmax_of_odd_rows(d: Definition) -> list[Tensor]:
    return [d.ops.softmax(d.tensor(3, 1001, dtype=torch.bfloat16), 1)]


@pytest.fixture(scope="module")
def compiled() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for name, (_, make) in CASES.items():
        d = Definition()
        for result in make(d):
            d.fd.add_output(result)
        made[name] = (d.fd, d.inputs)
    testing.compile_batch(made.values())
    return made


@pytest.mark.parametrize("name", CASES)
def test_results_and_kernels(name: str, compiled: dict[str, Case]) -> None:
    fd, inputs = compiled[name]
    torch.manual_seed(0)
    fd.validate(inputs)
    assert len(fd.fec.executor.kernels(None)) == CASES[name][0]


def test_outputs_in_place_are_stored_after_all_reads() -> None:
    d = Definition()
    x = d.tensor(5, 5)
    d.fd.add_output(x + d.ops.permute(x, [1, 0]), x)
    before = d.inputs[0].clone()
    d.fd.execute(d.inputs)
    assert torch.equal(d.inputs[0], before + before.T)


def test_adam_on_many_tensors_is_a_kernel_for_each_tensor() -> None:
    d = Definition()
    for size in (3, 17, 64):
        p, g, m, v = (d.tensor(size) for _ in range(4))
        mean = m * 0.9 + g * 0.1
        square = v * 0.99 + g * g * 0.01
        d.fd.add_output(p - mean / (d.ops.sqrt(d.ops.abs(square)) + 1e-8) * 1e-3, p)
        d.fd.add_output(mean, m)
        d.fd.add_output(square, v)
    wanted = []
    for p, g, m, v in zip(*(iter(x.clone() for x in d.inputs),) * 4, strict=True):
        mean, square = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
        wanted += [p - mean / (square.abs().sqrt() + 1e-8) * 1e-3, mean, square]
    d.fd.execute(d.inputs)
    written = [x for i, x in enumerate(d.inputs) if i % 4 != 1]
    for got, want in zip(written, (w for w in wanted), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert len(d.fd.fec.executor.kernels(None)) == 3
