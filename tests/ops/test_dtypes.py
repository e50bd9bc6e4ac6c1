"""Casts between every pair of types, promotion as in torch, and edge cases of arithmetic."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuser import DataType, DTypeError, FusionDefinition, testing
from fuser.debug.interpreter import torch_dtype
from fuser.ops import as_dtype
from tests.ops.accuracy import cast
from tests.ops.cases import cases
from tests.ops.test_pointwise import TYPES
from tests.support.definitions import without_digest

HALVES = {t for t in TYPES if t.is_floating_point and t.itemsize < 4}


@pytest.fixture(autouse=True)
def checked(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)


def values(dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Every value of an 8-bit type; for other types edge cases and random values."""
    if dtype.itemsize == 1 and dtype != torch.bool:
        return torch.arange(256).to(torch.uint8).view(dtype)
    return cases("set", dtype, generator, 300)[0]


def test_casts(request: pytest.FixtureRequest) -> None:
    generator = torch.Generator().manual_seed(request.config.option.seed)
    print(f"seed {request.config.option.seed}")
    runs = []
    for source in TYPES:
        fd = FusionDefinition()
        x = fd.define_tensor([-1], dtype=as_dtype(source))
        real = {t for t in TYPES if not (t.is_complex or t == torch.bool)}
        targets = [t for t in TYPES if not (source.is_complex and t in real)]
        for target in targets:
            fd.add_output(fd.ops.cast(x, target))
        runs.append((fd, values(source, generator), targets))
    testing.compile_batch((fd, [x]) for fd, x, _ in runs)
    for fd, x, targets in runs:
        for got, target in zip(fd.execute([x]), targets, strict=True):
            expected = cast(x, target)
            assert got.dtype == target
            if target.is_complex:
                got, expected = torch.view_as_real(got), torch.view_as_real(expected)
            if got.is_floating_point():
                got, expected = got.double(), expected.double()
            torch.testing.assert_close(
                got, expected, rtol=0, atol=0, equal_nan=True, msg=f"{x.dtype} to {target}"
            )


def test_cast_to_int_saturates_and_takes_nan_to_0() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e20, -1e20, 3.99, -3.99, 300.0])
    fd = FusionDefinition()
    t = fd.define_tensor([-1])
    for dtype in (DataType.Int, DataType.Int32, DataType.Char, DataType.Byte):
        fd.add_output(fd.ops.cast(t, dtype))
    for got in fd.execute([x]):
        info = torch.iinfo(got.dtype)
        low, high = info.min, info.max
        whole = [0, high, low, high, low, 3, max(-3, low), min(300, high)]
        assert got.tolist() == whole, got.dtype


def test_complex_to_real_is_refused() -> None:
    fd = FusionDefinition()
    t = fd.define_tensor([-1], dtype=DataType.ComplexFloat)
    with pytest.raises(DTypeError, match="discards the imaginary part"):
        fd.ops.cast(t, DataType.Float)


def widened(dtype: torch.dtype) -> torch.dtype:
    """Results of half types are float32 until they are cast."""
    if dtype.is_complex and dtype.itemsize == 4:
        return torch.complex64
    return torch.float32 if dtype in HALVES else dtype


FLOAT8 = {torch.float8_e4m3fn, torch.float8_e5m2}  # torch does not promote them
PAIRS = [(a, b) for a, b in itertools.product(TYPES, TYPES) if not ({a, b} & FLOAT8) or a == b]
RANKS = {"tensors": (1, 1), "0-dim left": (0, 1), "0-dim right": (1, 0), "0-dim both": (0, 0)}


@pytest.mark.parametrize("ranks", RANKS)
def test_promotion_is_torchs(ranks: str) -> None:
    for a, b in PAIRS:
        fd = FusionDefinition()
        x, y = (
            fd.define_tensor([-1] * rank, dtype=as_dtype(dtype))
            for rank, dtype in zip(RANKS[ranks], (a, b), strict=True)
        )
        got = torch_dtype(fd.ops.add(x, y).dtype())
        sizes = [(3,) * rank for rank in RANKS[ranks]]
        expected = torch.result_type(torch.empty(sizes[0], dtype=a), torch.empty(sizes[1], dtype=b))
        assert got == widened(expected), f"{a} + {b}"


@pytest.mark.parametrize("number", [True, 2, 2.5, 1j])
def test_promotion_with_numbers_is_torchs(number: Any) -> None:
    for dtype in TYPES:
        if dtype in FLOAT8:
            continue
        fd = FusionDefinition()
        got = torch_dtype((fd.define_tensor([-1], dtype=as_dtype(dtype)) * number).dtype())
        expected = widened(torch.result_type(torch.empty(3, dtype=dtype), number))
        assert got == expected, f"{dtype} * {number}"


def test_0_dim_tensors() -> None:
    """A 0-dim tensor is an ordinary operand, but does not affect the dtype of a tensor with
    dims."""
    x, s = torch.arange(10, dtype=torch.float32), torch.tensor(2.5, dtype=torch.float64)
    fd = FusionDefinition()
    t = fd.define_tensor([-1])
    u = fd.define_tensor([], dtype=DataType.Double, is_cpu=True)
    fd.add_output(t * u)
    fd.add_output(u + 1.0)
    product, total = fd.execute([x, s])
    assert product.dtype == torch.float32
    assert torch.equal(product, x * s)
    assert total.shape == ()
    assert total == 3.5


@pytest.mark.parametrize("a", TYPES, ids=str)
def test_0_dim_tensors_of_every_type(a: torch.dtype) -> None:
    """Results have the types of the definition, which are torch's."""
    x = torch.tensor([0, 1, 2]).to(a)
    others = [b for b in TYPES if a == b or not {a, b} & FLOAT8]
    scalars = [torch.tensor(1).to(b) for b in others]
    fd = FusionDefinition()
    t = fd.define_tensor([-1], dtype=as_dtype(a))
    for b in others:
        u = fd.define_tensor([], dtype=as_dtype(b))
        fd.add_output(fd.ops.add(t, u))
        fd.add_output(fd.ops.where(fd.ops.cast(u, DataType.Bool), t, u))
    results = iter(fd.execute([x, *scalars]))
    for s, total, chosen in zip(scalars, results, results, strict=True):
        wanted = widened(torch.result_type(x, s))
        assert total.dtype == wanted, f"{x.dtype} + {s.dtype}"
        assert torch.equal(total, x.to(wanted) + s.to(wanted)), f"{x.dtype} + {s.dtype}"
        assert chosen.dtype == kept(torch.result_type(x, s)), f"{x.dtype}, {s.dtype}"
        assert torch.equal(chosen.to(wanted), x.to(wanted)), f"{x.dtype}, {s.dtype}"


def kept(dtype: torch.dtype) -> torch.dtype:
    """complex64 in place of complex32, which fuser does not have."""
    return torch.complex64 if dtype == torch.complex32 else dtype


def test_what_is_chosen_keeps_its_type() -> None:
    """Selection and movement ops keep half types: where with tensors with and without dims, and
    numbers; clamp, threshold, pad, cat, select, slices and indices. 13 types by 13."""
    runs: list[tuple[FusionDefinition, list[torch.Tensor]]] = []
    wanted: list[list[torch.Tensor]] = []
    p = torch.tensor([True, False, True])
    for a in TYPES:
        x, fd = torch.tensor([0, 1, 3]).to(a), FusionDefinition()
        inputs, wants, o = [p, x], [], fd.ops
        c, t = map(fd.from_pytorch, inputs)

        def choose(y: Any, u: Any, dtype: torch.dtype) -> None:
            fd.add_output(o.where(c, t, u))  # noqa: B023
            wants.append(torch.where(p, x.to(dtype), torch.as_tensor(y).to(dtype)))  # noqa: B023

        for b in [b for b in TYPES if not {a, b} & FLOAT8 or a == b]:
            y, s = torch.tensor([1, 0, 2]).to(b), torch.tensor(1).to(b)
            inputs += [y, s]
            choose(y, fd.from_pytorch(y), kept(torch.promote_types(a, b)))
            choose(s, fd.from_pytorch(s), kept(torch.result_type(x, s)))
        choose(1, 1, torch.int64 if a == torch.bool else a)
        if a.is_floating_point and a not in FLOAT8:
            fd.add_output(o.clamp(t, 0.5, 2.0))
            fd.add_output(o.threshold(t, 1.0, 0.25))
            wants += [x.clamp(0.5, 2.0), torch.nn.functional.threshold(x, 1.0, 0.25)]
        fd.add_output(o.flip(t, [0]))
        wants.append(x[[2, 1, 0]])
        runs.append((fd, inputs))
        wanted.append(wants)
        fd = FusionDefinition()
        t = fd.from_pytorch(x)
        for result in (fd.ops.pad(t, [1, 0], 1), fd.ops.cat([t, t]), fd.ops.select(t, 2, 0)):
            fd.add_output(result)
        fd.add_output(fd.ops.slice(t, [1], [3]))
        fd.add_output(fd.ops.index_select(t, fd.ops.iota(2), 0))
        runs.append((fd, [x]))
        wanted.append([x[[1, 0, 1, 2]], x[[0, 1, 2, 0, 1, 2]], x[2], x[1:], x[:2]])
    testing.compile_batch(runs)
    for (fd, inputs), wants in zip(runs, wanted, strict=True):
        for place, (got, want) in enumerate(zip(fd.execute(inputs), wants, strict=True)):
            assert got.dtype == want.dtype, f"{place} of {inputs}"
            assert torch.equal(got.to(torch.complex128), want.to(torch.complex128)), place


# Ops whose results are exact in the half type of the operand.
KEEPING = ("abs", "neg", "sign", "relu", "ceil", "floor", "round", "trunc", "frac", "real")


def test_what_is_exact_in_half_types_keeps_them() -> None:
    """Ten ops on every value of four types, and maxima and minima of pairs, are exact and keep the
    type."""
    runs = []
    for dtype in sorted(HALVES, key=str):
        bits = torch.arange(1 << 8 * dtype.itemsize)
        x = bits.to(torch.uint8 if dtype.itemsize == 1 else torch.uint16).view(dtype)
        fd = FusionDefinition()
        t = fd.define_tensor([-1], dtype=as_dtype(dtype))
        pairs = fd.ops.reshape(t, [-1, 2])
        for op in KEEPING:
            fd.add_output(getattr(fd.ops, op)(t))
        for op in ("max", "min"):
            fd.add_output(getattr(fd.ops, op)(pairs, [1]))
        runs.append((fd, x))
    testing.compile_batch((fd, [x]) for fd, x in runs)
    for fd, x in runs:
        wide = x.float()
        wanted = [getattr(torch, op)(wide) for op in KEEPING]
        wanted += [wide.view(-1, 2).amax(1), wide.view(-1, 2).amin(1)]
        for op, got, want in zip((*KEEPING, "max", "min"), fd.execute([x]), wanted, strict=True):
            assert got.dtype == x.dtype
            found = got.float()
            same = (found == want) | (found.isnan() & want.isnan())
            if op != "relu":  # relu(-0.0) may be either zero
                same &= (found.signbit() == want.signbit()) | want.isnan()
            assert same.all(), f"{op} of {x.dtype}"


@pytest.mark.parametrize("dtype", [DataType.Half, DataType.BFloat16])
def test_a_chain_of_ops_that_keep_half_types_rounds_nowhere(dtype: DataType) -> None:
    """The kernel computes in float32 without rounding, whatever the definition casts in between."""

    def text(widened: bool, casts: bool) -> str:
        with FusionDefinition() as fd:
            o, t = fd.ops, fd.define_tensor([-1], dtype=dtype)
            t = o.cast(t, DataType.Float) if widened else t
            for op in ("relu", "floor", "neg", "abs"):
                t = getattr(o, op)(t)
                t = o.cast(t, DataType.Float) if casts else t
            fd.add_output(o.cast(o.exp(t), dtype))
            fd.add_output(o.sum(t, [0]))
        x = torch.linspace(-9, 9, 64).to(torch_dtype(dtype))
        got, total = fd.execute([x])
        wide = x.float().relu().floor().neg().abs()
        assert torch.equal(total, wide.sum())
        torch.testing.assert_close(got.float(), wide.exp(), rtol=2.0**-7, atol=0)
        return re.sub(r"r_sum\d+", "r_sum", without_digest(fd.last_cuda_code()))

    assert text(False, False) == text(True, False) == text(False, True)


def test_scalars_that_are_chosen_keep_their_type() -> None:
    """where of two scalars keeps their common type, as in nvFuser; for Python numbers torch's
    default type, as in torch."""
    p = torch.tensor([True, False])
    with FusionDefinition() as fd:
        c, o = fd.from_pytorch(p), fd.ops
        for kind in (DataType.Double, DataType.Float, DataType.Half, DataType.Int, DataType.Int32):
            fd.add_output(o.where(c, fd.define_scalar(1, kind), fd.define_scalar(5, kind)))
            s, t = (fd.define_scalar(kind) for _ in range(2))
            fd.add_output(o.where(c, s, t))
        fd.add_output(o.where(c, 0.1, 5.0))
        fd.add_output(o.where(c, fd.define_scalar(0.1, DataType.Double), 5))
    inputs = [p]
    for kind in (float, float, float, int, int):
        inputs += [kind(1), kind(5)]
    results = fd.execute(inputs)
    kinds = [torch.float64, torch.float32, torch.float16, torch.int64, torch.int32]
    assert [r.dtype for r in results] == [k for k in kinds for _ in range(2)] + [
        torch.float32,
        torch.float64,
    ]
    assert [r.tolist() for r in results[:10]] == [[1, 5]] * 10
    assert results[10].equal(torch.tensor([0.1, 5.0]))
    assert results[11].tolist() == [0.1, 5.0]
    again = FusionDefinition()
    exec(f"from fuser import DataType, FusionDefinition\n{fd!r}\nnvfuser_fusion(fd)", {"fd": again})
    assert again.fusion == fd.fusion


def test_any_byte_but_0_is_true() -> None:
    x = torch.tensor([0, 1, 2, 128, 255, 0, 3] * 5, dtype=torch.uint8)
    fd = FusionDefinition()
    t = fd.define_tensor([-1], dtype=DataType.Bool)
    fd.add_output(fd.ops.set(t))
    fd.add_output(fd.ops.cast(t, DataType.Int))
    fd.add_output(fd.ops.bitwise_not(t))
    fd.add_output(fd.ops.where(t, 1.0, 0.0))
    same, count, inverse, chosen = fd.execute([x.view(torch.bool)])
    assert torch.equal(same.view(torch.uint8), (x != 0).to(torch.uint8))
    assert torch.equal(count, (x != 0).long())
    assert torch.equal(inverse, x == 0)
    assert torch.equal(chosen.float(), (x != 0).float())


def test_integer_division() -> None:
    """Integer division by zero gives -1 and the dividend as remainder; the smallest integer by -1
    wraps. The process continues."""
    low = torch.iinfo(torch.int32).min
    a = torch.tensor([7, -7, 0, low, 7, -7, low], dtype=torch.int32)
    b = torch.tensor([0, 0, 0, -1, -2, 2, 3], dtype=torch.int32)
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1], dtype=DataType.Int32) for _ in range(2))
    for name in ("div", "floor_divide", "mod", "remainder"):
        fd.add_output(getattr(fd.ops, name)(x, y))
    div, floor, mod, remainder = (r.tolist() for r in fd.execute([a, b]))
    assert div == [-1, -1, -1, low, -3, -3, -715827882]
    assert floor == [-1, -1, -1, low, -4, -4, -715827883]
    assert mod == [7, -7, 0, 0, 1, -1, -2]
    assert remainder == [7, -7, 0, 0, -1, 1, 1]


@pytest.mark.parametrize("arch", [0, 80])
@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 24), (torch.float64, 53)], ids=str)
def test_floor_divide_rounds_a_large_integer_once(
    dtype: torch.dtype,
    digits: int,
    arch: int,
    rng: np.random.Generator,
    set_option: Callable[[str, object], None],
) -> None:
    """Quotients with about as many digits as the type holds, on both sides of that number."""
    set_option("FUSER_HOST_ARCH", arch)
    quotients = 2.0 ** rng.uniform(digits - 6, digits + 6, size=4000)
    divisors = rng.normal(size=4000) * 2.0 ** rng.integers(-20, 20, size=4000)
    a = torch.from_numpy(quotients * divisors * rng.choice([-1, 1], size=4000)).to(dtype)
    b = torch.from_numpy(divisors).to(dtype)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.floor_divide(fd.from_pytorch(a), fd.from_pytorch(b)))
    (got,) = fd.execute([a, b])
    for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        exact = math.floor(Fraction(x) / Fraction(y))
        unit = 2 ** max(0, abs(exact).bit_length() - digits)
        assert 2 * abs(int(z) - exact) <= (unit if unit > 1 else 0), (x, y, z, exact)


def test_shifts_by_any_count() -> None:
    a = torch.tensor([1, -8, -8, -8, -8, 5], dtype=torch.int16)
    b = torch.tensor([15, 1, 16, -1, 100, 0], dtype=torch.int16)
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1], dtype=DataType.Short) for _ in range(2))
    for name in ("bitwise_left_shift", "bitwise_right_shift", "logical_right_shift"):
        fd.add_output(getattr(fd.ops, name)(x, y))
    left, right, logical = (r.tolist() for r in fd.execute([a, b]))
    assert left == [-32768, -16, 0, 0, 0, 5]
    assert right == [0, -4, -1, -1, -1, 5]
    assert logical == [0, 32764, 0, 0, 0, 5]


SCALARS = {
    DataType.Bool: True,
    DataType.Int: -(2**40) - 1,
    DataType.Int32: -(2**31),
    DataType.Short: -300,
    DataType.Char: -100,
    DataType.Byte: 200,
    DataType.Double: 0.1,
    DataType.Float: 0.1,
    DataType.Half: 0.1,
    DataType.BFloat16: 0.1,
    DataType.Float8_e4m3fn: 0.1,
    DataType.Float8_e5m2: 0.1,
    DataType.ComplexFloat: 1.5 - 2j,
    DataType.ComplexDouble: 0.1 + 0.2j,
}


@pytest.mark.parametrize("dtype", SCALARS, ids=lambda d: d.torch_name)
def test_scalar_inputs_of_every_type(dtype: DataType) -> None:
    """Scalar inputs of every type combine with tensors of every kind, and are converted once."""
    number = SCALARS[dtype]
    fd = FusionDefinition()
    s = fd.define_scalar(dtype)
    f = fd.define_tensor([-1])
    c = fd.define_tensor([-1], dtype=DataType.ComplexDouble)
    i = fd.define_tensor([-1], dtype=DataType.Int)
    fd.add_output(fd.ops.full([3], s, dtype))
    fd.add_output(fd.ops.add(f, s))
    fd.add_output(fd.ops.add(c, s))
    fd.add_output(fd.ops.mul(i, s))
    inputs = [
        number,
        torch.tensor([0.0, 1.0, 2.0]),
        torch.tensor([0, 1, 1j]).to(torch.complex128),
        torch.tensor([0, 1, 2]),
    ]
    wide_type = {float: torch.float64, complex: torch.complex128}.get(type(number))
    exact = torch.tensor(number, dtype=wide_type).to(torch_dtype(dtype))
    full, *results = fd.execute(inputs)
    assert torch.equal(full, exact.expand(3))
    wide = exact.to(torch.complex128)
    operands = [x.to(torch.complex128) for x in inputs[1:]]
    wanted = [operands[0] + wide, operands[1] + wide, operands[2] * wide]
    for got, expected in zip(results, wanted, strict=True):
        expected = expected if got.is_complex() else expected.real
        torch.testing.assert_close(got, expected.to(got.dtype))
