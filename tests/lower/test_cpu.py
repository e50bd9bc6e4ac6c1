"""CPU kernels compute what the definition says, for all shapes of their nests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from fuser import DataType, FusionDefinition, _core
from fuser.ops import as_dtype
from tests.support.reducing import PROGRAMS, assert_close, random_inputs

SetOption = Callable[[str, object], None]

F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16


@pytest.fixture(autouse=True)
def on_cpu(set_option: SetOption) -> None:
    set_option("FUSER_HOST_ARCH", 0)


def schedulers(fd: FusionDefinition, inputs: Sequence[Any]) -> set[str]:
    plans = fd.plan(inputs)
    return {plan["scheduler"] for plan in (plans if isinstance(plans, tuple) else [plans])}


def assert_on_cpu(fd: FusionDefinition, inputs: Sequence[Any]) -> None:
    used = schedulers(fd, inputs)
    assert used
    assert all(name.startswith("cpu_") for name in used), used


def test_every_byte_but_zero_is_true() -> None:
    """A bool of another library may be any byte; scalars, vectors and strided reads agree."""
    bytes_ = torch.full([40], 2, dtype=torch.uint8).view(torch.bool)
    for x in (bytes_[0], bytes_[:1], bytes_, bytes_[::2], bytes_[:1].expand(33)):
        with FusionDefinition() as fd:
            t = fd.from_pytorch(x)
            fd.add_output(fd.ops.cast(t, DataType.Float))
            fd.add_output(fd.ops.logical_not(t))
        as_float, negated = fd.execute([x])
        assert (as_float == 1).all()
        assert not negated.any()


def test_plans_have_the_fields_of_their_row() -> None:
    for make, scheduler in [
        (lambda fd, x: fd.ops.relu(x), "cpu_pointwise"),
        (lambda fd, x: fd.ops.sum(x, [1]), "cpu_inner"),
        (lambda fd, x: fd.ops.sum(x, [0]), "cpu_outer"),
    ]:
        with FusionDefinition() as fd:
            fd.add_output(make(fd, fd.define_tensor([-1, -1], contiguity=True)))
        x = torch.ones(40, 40)
        plan = fd.plan([x])
        assert list(plan) == ["scheduler", *(name for name, *_ in _core.plan_ranges()[scheduler])]
        assert plan["scheduler"] == scheduler


# Rows below, at and above a vector; rows beyond a block of 64 vectors; one element; few long rows,
# which several tasks share; many short ones.
SHAPES = [
    (1, 1),
    (3, 5),
    (7, 16),
    (5, 33),
    (40, 257),
    (2, 140_001),
    (9, 4_500),
    (140_001, 3),
    (513, 64),
]


@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "batch_norm"])
def test_reductions(name: str, dtype: torch.dtype, rng: np.random.Generator) -> None:
    program = PROGRAMS[name]
    fd = program.definition(dtype)
    for shape in SHAPES:
        if name.startswith("var") and 1 in shape:
            continue  # no degrees of freedom
        inputs = random_inputs(name, shape, dtype, rng)
        assert_on_cpu(fd, inputs)
        for got, exact in zip(fd.execute(inputs), program.exact(inputs), strict=True):
            assert_close(got, exact, dtype, scale=8.0)


# Axes of a 4-d tensor that are reduced: inner, outer, alternating.
AXES = [(3,), (2, 3), (0,), (0, 2), (1, 3), (0, 1), (1, 2), (0, 2, 3), (0, 1, 2, 3), (2,)]


@pytest.mark.parametrize("dims", AXES, ids=str)
def test_axes(dims: tuple[int, ...], rng: np.random.Generator) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * 4)
    kept = [d in dims for d in range(4)]
    total = fd.ops.sum(x, list(dims))
    fd.add_output(total)
    fd.add_output(x - fd.ops.broadcast(total, kept))
    fd.add_output(fd.ops.max(x, list(dims)))
    for shape in [(3, 5, 7, 9), (2, 80, 3, 70), (70, 2, 66, 4), (1, 1, 1, 1)]:
        value = torch.from_numpy(rng.normal(1.0, 2.0, size=shape)).to(F32)
        for given in (value, value.permute(0, 2, 3, 1), value[:, :, ::2], value.flip(3)):
            assert_on_cpu(fd, [given])
            exact = given.double().sum(dims)
            got = fd.execute([given])
            assert_close(got[0], exact, F32)
            assert_close(got[1], given.double() - given.double().sum(dims, keepdim=True), F32)
            assert torch.equal(got[2], given.amax(dims))


@pytest.mark.parametrize("name", ["sum_rows", "sum_columns", "sum_all"])
def test_empty(name: str) -> None:
    fd = PROGRAMS[name].definition()
    for shape in [(0, 5), (5, 0)]:
        x = torch.ones(shape)
        for got, exact in zip(fd.execute([x]), PROGRAMS[name].exact([x]), strict=True):
            assert torch.equal(got, exact.float())


def test_positions(rng: np.random.Generator) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    for dims in (0, 1, None):
        fd.add_output(fd.ops.argmax(x, dims))
        fd.add_output(fd.ops.argmin(x, dims))
    for shape in SHAPES:
        # Few distinct values: the first of equals wins.
        value = torch.from_numpy(rng.integers(0, 5, size=shape)).to(F32)
        got = iter(fd.execute([value]))
        for dims in (0, 1, None):
            for find in (np.argmax, np.argmin):
                assert next(got).tolist() == find(value.numpy(), dims).tolist()


# Lanes at one address, neighbours, strided and gathered; rows of any length.
@pytest.mark.parametrize("dtype", [F32, BF16, F64, torch.int32, torch.bool, torch.int8], ids=str)
def test_accesses(dtype: torch.dtype, rng: np.random.Generator) -> None:

    def make(*of: int) -> torch.Tensor:
        return torch.from_numpy(rng.integers(0, 3, size=of)).to(dtype)

    fd = FusionDefinition()
    x, row, column = (fd.define_tensor(shape, dtype=as_dtype(dtype)) for shape in ([-1, -1],) * 3)
    y = fd.ops.bitwise_or(x, row) if dtype == torch.bool else x + row
    fd.add_output(fd.ops.cast(y, as_dtype(dtype)))
    fd.add_output(fd.ops.where(x == column, x, row))
    fd.add_output(fd.ops.permute(x, [1, 0]))
    for rows, columns in SHAPES:
        if rows * columns > 100_000:
            continue
        a, b, c = make(rows, columns), make(1, columns), make(rows, 1)
        for given in (
            [a, b, c],
            [make(columns, rows).t(), b, c],
            [a, make(1, 2 * columns)[:, ::2], c],
        ):
            assert_on_cpu(fd, given)
            got = fd.execute(given)
            both = given[0] | given[1] if dtype == torch.bool else given[0] + given[1]
            assert torch.equal(got[0], both.to(dtype))
            assert torch.equal(got[1], torch.where(given[0] == given[2], given[0], given[1]))
            assert torch.equal(got[2], given[0].t())


# Sides of tiles: shorter than a tile that pays, incomplete, complete, several tasks.
SIDES = [(3, 40), (8, 9), (33, 64), (70, 100), (1030, 65), (65, 1030)]


def staged(fd: FusionDefinition, inputs: Sequence[Any]) -> int:
    """The accesses that move as tiles."""
    plan = fd.plan(inputs)
    assert not isinstance(plan, tuple)
    return int(plan["staged"])


@pytest.mark.parametrize(
    "dtype",
    [F32, BF16, F64, torch.float16, torch.int8, torch.int64, torch.bool, torch.complex64],
    ids=str,
)
def test_tiles(dtype: torch.dtype, rng: np.random.Generator) -> None:
    """Transposed reads and stores in batches, beside operands of one axis."""

    def make(*of: int) -> torch.Tensor:
        return torch.from_numpy(rng.integers(0, 2, size=of)).to(dtype)

    kind = as_dtype(dtype)
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * 3, dtype=kind, contiguity=True)
    y = fd.define_tensor([-1] * 3, dtype=kind, contiguity=True)
    row = fd.define_tensor([-1], dtype=kind)
    turned = fd.ops.permute(x, [0, 2, 1])
    where = turned == fd.ops.broadcast_in_dim(row, [y.size(0), y.size(1), y.size(2)], [2])
    fd.add_output(fd.ops.where(where, turned, y))
    for batch, (rows, columns) in [(2, sides) for sides in SIDES] + [(40, (16, 24))]:
        inputs = [make(batch, rows, columns), make(batch, columns, rows), make(rows)]
        assert_on_cpu(fd, inputs)
        assert bool(staged(fd, inputs)) == (min(rows, columns) >= 8)
        other = inputs[0].transpose(1, 2)
        exact = torch.where(other == inputs[2], other, inputs[1])
        assert torch.equal(fd.execute(inputs)[0], exact)


def test_tiled_stores(rng: np.random.Generator) -> None:
    """One kernel stores a tensor and its transpose; channels become the last dim and back."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], contiguity=True)
    fd.add_output(x * 2.0)
    fd.add_output(fd.ops.permute(x + 1.0, [1, 0]), stride_order=[1, 0])
    for sides in SIDES:
        value = torch.from_numpy(rng.normal(size=sides)).to(F32)
        assert_on_cpu(fd, [value])
        assert bool(staged(fd, [value])) == (min(sides) >= 8)
        got = fd.execute([value])
        assert torch.equal(got[0], value * 2)
        assert torch.equal(got[1], (value + 1).t())
    for order in ([0, 2, 3, 1], [0, 3, 1, 2], [3, 2, 1, 0]):
        fd = FusionDefinition()
        y = fd.define_tensor([-1] * 4, contiguity=True)
        fd.add_output(fd.ops.permute(y * 2.0, order), stride_order=[3, 2, 1, 0])
        for shape in [(3, 20, 17, 9), (2, 64, 8, 8), (1, 9, 40, 70)]:
            value = torch.from_numpy(rng.normal(size=shape)).to(F32)
            assert_on_cpu(fd, [value])
            assert torch.equal(fd.execute([value])[0], (value * 2).permute(order))


def test_changed_tiles(rng: np.random.Generator) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], contiguity=True)
    fd.add_output(fd.ops.permute(x * 2.0, [1, 0]), stride_order=[1, 0])
    value = torch.from_numpy(rng.normal(size=(300, 200))).to(F32)
    assert staged(fd, [value])
    for changes in ({"tile_x": 40}, {"lanes": 4}, {"streaming": 2}, {"task": 1}):
        plan = fd.plan([value])
        assert not isinstance(plan, tuple)
        (got,) = fd.execute([value], plan=plan.replace(**changes))
        assert torch.equal(got, (value * 2).t())


# Channels: fewer than a vector, complete and incomplete vectors, more than a task has rows for.
@pytest.mark.parametrize("channels", [3, 8, 24, 32, 70, 513, 3000])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_rows_inside_a_vector(dtype: torch.dtype, channels: int, rng: np.random.Generator) -> None:
    """A batch norm of channels-last images, beside a factor per image and channel. Values of the
    channels alone are computed once per vector.
    """
    n, h, w = 3, 11, 9
    image = torch.from_numpy(rng.normal(size=(n, channels, h, w)))
    image = image.to(dtype).contiguous(memory_format=torch.channels_last)
    variance = torch.from_numpy(rng.uniform(0.5, 2, size=(1, channels, 1, 1))).to(F32)
    factor = torch.from_numpy(rng.normal(size=(n, channels, 1, 1))).to(dtype)
    inputs = [image, variance, factor]
    fd = FusionDefinition()
    x, v, f = (fd.from_pytorch(t) for t in inputs)
    y = x * fd.ops.rsqrt(v + 1e-5)
    fd.add_output(fd.ops.cast(y, as_dtype(dtype)))
    fd.add_output(fd.ops.cast(fd.ops.relu(y * f), as_dtype(dtype)))
    plan = fd.plan(inputs)
    assert not isinstance(plan, tuple)
    assert plan["rows_inside"] == (8 <= channels <= 2048)
    exact = image.double() * (variance.double() + 1e-5).rsqrt()
    wanted = [exact, (exact * factor.double()).relu()]
    bound = 4 * torch.finfo(dtype).eps
    # The plan, one task per row, other lanes, and rows outside.
    for changes in ({}, {"task": 1}, {"lanes": 4}, {"rows_inside": 0}, {"rows_inside": 1}):
        for got, want in zip(fd.execute(inputs, plan=plan.replace(**changes)), wanted, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=bound, atol=1e-30)
            assert got.is_contiguous(memory_format=torch.channels_last)


def test_rows_inside_hoist_values_of_the_lanes() -> None:
    """The square root of a vector of channels is outside of the loop over rows."""
    x, v = torch.randn(100, 24), torch.rand(24) + 1
    fd = FusionDefinition()
    image, variance = fd.from_pytorch(x), fd.from_pytorch(v)
    fd.add_output(image * fd.ops.rsqrt(variance))
    fd.execute([x, v])
    text = fd.last_cuda_code()
    assert re.search(r"rsqrt_\(r_in1\[0\]\);\n +for \(", text), text
    assert "gather<" not in text
    torch.testing.assert_close(fd.execute([x, v])[0], x * v.rsqrt())


@pytest.mark.parametrize("group", [2, 4, 8])
def test_rows_inside_take_the_channels_of_groups_as_lanes(
    group: int, rng: np.random.Generator
) -> None:
    """Groups of few channels are no rows: lanes run along all channels, and each vector gathers the
    statistics of its groups once.
    """
    groups = 8
    sizes = [(2, 50, groups, group), (2, 1, groups, 1), (1, 1, groups, group)]
    image, mean, weight = (torch.from_numpy(rng.normal(size=size)).to(F32) for size in sizes)
    fd = FusionDefinition()
    x, m, w = (fd.from_pytorch(t) for t in (image, mean, weight))
    fd.add_output((x - m) * w)
    plan = fd.plan([image, mean, weight])
    assert not isinstance(plan, tuple)
    assert (plan["collapsed"], plan["rows_inside"]) == (2, 1)
    (got,) = fd.execute([image, mean, weight])
    wanted = (image.double() - mean.double()) * weight.double()
    torch.testing.assert_close(got.double(), wanted, rtol=1e-6, atol=1e-6)


def test_masks_and_loaded_coordinates(rng: np.random.Generator) -> None:
    fd = FusionDefinition()
    x, index = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1], dtype=DataType.Int)
    fd.add_output(fd.ops.pad(x, [2, 3]))
    fd.add_output(fd.ops.cat([x, x * 2.0], 1))
    fd.add_output(fd.ops.take_along_axis(x, index, 1))
    for rows, columns in [(1, 1), (5, 31), (3, 100), (40, 7)]:
        value = torch.from_numpy(rng.normal(size=(rows, columns))).to(F32)
        at = torch.from_numpy(rng.integers(0, columns, size=(rows, columns)))
        assert_on_cpu(fd, [value, at])
        got = fd.execute([value, at])
        assert torch.equal(got[0], torch.nn.functional.pad(value, [2, 3]))
        assert torch.equal(got[1], torch.cat([value, value * 2], 1))
        assert torch.equal(got[2], value.gather(1, at))


def test_bits_do_not_depend_on_threads(set_option: SetOption, rng: np.random.Generator) -> None:
    for name in ("sum_all", "sum_columns", "sum_rows", "softmax"):
        fd = PROGRAMS[name].definition()
        inputs = random_inputs(name, (300, 2_000), F32, rng)
        results = []
        for threads in (1, 2, 5):
            set_option("FUSER_HOST_THREADS", threads)
            results.append(fd.execute(inputs))
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
def test_rows_and_columns(
    dtype: torch.dtype, set_option: SetOption, rng: np.random.Generator
) -> None:
    """One kernel reduces rows twice and then columns over two axes, in any number of threads."""
    kind = as_dtype(dtype)
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1] * 3, dtype=kind, contiguity=True) for _ in range(2))
    over = [False, False, True]
    centered = x - fd.ops.broadcast(fd.ops.mean(x, [2]), over)
    result = centered * fd.ops.broadcast(fd.ops.sum(centered * y, [2]), over)
    fd.add_output(fd.ops.cast(result, kind))
    fd.add_output(fd.ops.cast(fd.ops.sum(centered * y, [0, 1]), kind))
    fd.add_output(fd.ops.max(y, [0, 1]))
    for shape in [(2, 3, 40), (7, 33, 300), (3, 1000, 17), (2, 300, 1024)]:
        values = [torch.from_numpy(rng.normal(size=shape)).to(dtype) for _ in range(2)]
        assert schedulers(fd, values) == {"cpu_inner_outer"}
        results = []
        for threads in (1, 2, 5):
            set_option("FUSER_HOST_THREADS", threads)
            results.append(fd.execute(values))
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
        a, b = (value.double() for value in values)
        exact = a - a.mean(2, keepdim=True)
        got = results[0]
        assert_close(got[0], exact * (exact * b).sum(2, keepdim=True), dtype, scale=8.0)
        assert_close(got[1], (exact * b).sum((0, 1)), dtype, scale=8.0)
        assert torch.equal(got[2], values[1].amax((0, 1)))


def test_columns_of_no_rows() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.sum(x, [1]))
    fd.add_output(fd.ops.sum(x, [0]))
    for rows, columns in [(0, 5), (5, 0), (3, 5)]:
        x = torch.ones(rows, columns)
        got = fd.execute([x])
        assert torch.equal(got[0], x.sum(1))
        assert torch.equal(got[1], x.sum(0))


def test_short_forms_reach_zero() -> None:
    """bfloat16 holds values below the smallest that a short form computes."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.cast(fd.ops.exp(x), DataType.BFloat16))
    fd.add_output(fd.ops.cast(fd.ops.gelu(x), DataType.BFloat16))
    value = torch.tensor([-1000.0, -torch.inf, -100.0, -0.0, 1.0], dtype=BF16)
    assert_on_cpu(fd, [value])
    exp, gelu = fd.execute([value])
    assert exp[:2].tolist() == [0.0, 0.0]
    assert exp[2] <= 2.0**-100
    assert exp[3:].tolist() == [1.0, value[4].exp().item()]
    assert gelu[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0]


def test_lanes_share_one_element(rng: np.random.Generator) -> None:
    """An expanded operand, whole vectors and an incomplete one, of floats and integers."""
    for dtype, kind in [(F32, DataType.Float), (torch.int64, DataType.Int)]:
        fd = FusionDefinition()
        x = fd.define_tensor([-1, -1], dtype=kind, contiguity=[None, None])
        row = fd.define_tensor([-1, -1], dtype=kind, contiguity=[True, None])
        fd.add_output(fd.ops.neg(x))
        fd.add_output(fd.ops.mul(row, 2))
        for rows, columns in [(3, 40), (1, 2), (5, 64), (7, 33)]:
            value = torch.from_numpy(rng.integers(-9, 9, size=(rows, 1))).to(dtype)
            inputs = [value[:1].expand(rows, columns), value.expand(rows, columns)]
            assert_on_cpu(fd, inputs)
            got = fd.execute(inputs)
            assert torch.equal(got[0], -inputs[0])
            assert torch.equal(got[1], inputs[1] * 2)


def test_a_variance_beside_a_sum(rng: np.random.Generator) -> None:
    """A variance beside a sum of products, of rows that end in an incomplete vector."""
    for rows, columns in [(4, 33), (300, 1_000), (2, 70_001)]:
        fd = FusionDefinition()
        x = fd.define_tensor([-1, -1], contiguity=True)
        y = fd.define_tensor([-1, -1], contiguity=True)
        for result in fd.ops.welford(x, [1]):
            fd.add_output(result)
        fd.add_output(fd.ops.sum(x * y, [1]))
        value = torch.from_numpy(rng.normal(3.0, size=(rows, columns))).to(F32)
        other = torch.from_numpy(rng.normal(size=(rows, columns))).to(F32)
        assert_on_cpu(fd, [value, other])
        mean, squares, _, products = fd.execute([value, other])
        wanted = value.double()
        torch.testing.assert_close(
            products.double(), (wanted * other.double()).sum(1), rtol=1e-5, atol=1e-3
        )
        torch.testing.assert_close(mean.double(), wanted.mean(1), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            squares.double(), wanted.var(1, correction=0) * columns, rtol=1e-5, atol=1e-5
        )
