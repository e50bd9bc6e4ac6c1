"""Every row of the op table in every compute dtype, and every cast, against fuser.reference.

Kernels are made by hand from the rows' texts: this tests csrc/device and csrc/ir/ops.def without
the compiler. Run with -s to see the largest error of each op.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from fuser.reference import REFERENCES
from tests.device.launch import Launch, on_gpu, on_host
from tests.device.programs import (
    COMPUTE,
    ELEMENT,
    convert_program,
    move_program,
    op_program,
    result_dtype,
)
from tests.ops.cases import cases

DENSE = 1 << 18  # float32 samples of each one-operand op, of its domain and of all bit patterns

# float64 and complex are held to this many units of their last place; complex as whole numbers. The
# argument of gelu_tanh, up to 700, multiplies its rounding errors: in the reference too.
WIDE_ULP = 64.0
WIDE_ULP_OF = {"gelu_tanh": 1024.0, "gelu_tanh_half": 1024.0}

PROGRAMS = {dtype: op_program(dtype) for dtype in COMPUTE}
MACHINES = [
    pytest.param(on_host, id="host"),
    pytest.param(on_gpu, id="gpu", marks=pytest.mark.gpu),
]


@pytest.fixture(scope="module", params=MACHINES)
def launches(request: pytest.FixtureRequest) -> dict[torch.dtype, Launch]:
    return dict(zip(PROGRAMS, request.param(list(PROGRAMS.values())), strict=True))


def seeded(request: pytest.FixtureRequest) -> torch.Generator:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    return torch.Generator().manual_seed(seed + zlib.crc32(request.node.name.encode()))


def run(launch: Launch, which: int, inputs: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    output = torch.empty(len(inputs[0]), dtype=dtype)
    launch(which, [t.contiguous() for t in inputs], output)
    return output


def widen(x: Tensor) -> Tensor:
    """As references take operands: floats in float64, complex in complex128, the rest as it is."""
    if x.is_complex():
        return x.to(torch.complex128)
    return x.double() if x.is_floating_point() else x


def unit(x: Tensor, dtype: torch.dtype) -> Tensor:
    """One unit of the last place of `dtype` at x (float64)."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(x.abs().clamp(info.smallest_normal, info.max))[1] - 1
    return torch.ldexp(torch.full_like(x, info.eps), exponent)


def scale_of(op: str, inputs: Sequence[Tensor], exact: Tensor, dtype: torch.dtype) -> Tensor:
    """The number whose last place measures the error: the result, except where it is a difference
    that cancels by its nature."""
    if op == "lerp":
        a, b, weight = inputs
        return torch.stack([exact.abs(), a.abs(), b.abs(), (weight * (b - a)).abs()]).amax(0)
    if op == "fma" and dtype == torch.float64:  # the reference is not fused
        return torch.maximum(exact.abs(), (inputs[0] * inputs[1]).abs())
    if op == "lgamma":  # its zeros between the poles
        return torch.where(inputs[0] < 0, exact.abs().clamp(min=1), exact.abs())
    return exact.abs()


def real_error(row: Any, inputs: Sequence[Tensor], got: Tensor, exact: Tensor) -> Tensor:
    """The error in ULP; infinite where only one is NaN, or where infinities differ."""
    got64 = got.double()
    limit = torch.finfo(got.dtype).max
    rounded = exact.to(got.dtype).double()
    error = (got64 - exact).abs() / unit(scale_of(row.name, inputs, exact, got.dtype), got.dtype)
    # Beyond the largest number an infinity and the largest number are one unit apart.
    overflow = (rounded.abs() >= limit) & (got64.abs() >= limit) & (got64.sign() == exact.sign())
    error = torch.where(overflow, (got64 != rounded).double(), error)
    error = torch.where(got64.isnan() != exact.isnan(), math.inf, error)
    error = torch.where(got64.isnan() & exact.isnan(), 0.0, error)
    nearest = (got64 == exact) | (got64 == rounded)
    error = torch.where(nearest, error.nan_to_num(0.5).clamp(max=0.5), error)
    if row.name.startswith("gelu"):  # torch: NaN at -inf; here the limit 0 is right too
        at_left_end = (inputs[0] == -math.inf) & ((got64 == 0) | got64.isnan())
        error = torch.where(at_left_end, 0.0, error)
    if row.name == "erfcinv":  # the reference underflows
        error = torch.where(inputs[0].abs() < 1e-300, 0.0, error)
    if row.name.endswith("_half"):
        error = torch.where((exact.abs() < 2.0**-100) & (got64.abs() < 2.0**-99), 0.0, error)
    return error


def complex_error(got: Tensor, exact: Tensor) -> Tensor:
    """|error| against |result| in units of the last place; 0 where the reference is not finite."""
    info = torch.finfo(got.dtype)
    size = exact.abs().clamp(min=info.smallest_normal)
    error = (got.to(torch.complex128) - exact).abs() / size / info.eps
    error = torch.where(error.isnan(), math.inf, error)
    return torch.where(exact.isfinite() & (exact.abs() < info.max / 4), error, 0.0)


def bound_of(row: Any, dtype: torch.dtype) -> float:
    if dtype == torch.float32:
        return max(row.ulp, 0.5) + 2.0**-16  # the reference rounds too
    return WIDE_ULP_OF.get(row.name, WIDE_ULP)


def check(row: Any, inputs: Sequence[Tensor], got: Tensor, dtype: torch.dtype) -> float:
    """Asserts that `got` is right and returns the largest error in ULP."""
    wide = [*inputs] if row.name == "nextafter" else [widen(t) for t in inputs]
    exact = REFERENCES[row.name](*wide)
    if not (got.is_floating_point() or got.is_complex()):
        error = torch.where(got == exact.to(got.dtype), 0.0, math.inf)
    elif got.is_complex() or dtype.is_complex:
        error = complex_error(got, exact)
    else:
        error = real_error(row, wide, got, exact.double())
    worst = int(error.argmax())
    bound = bound_of(row, dtype)
    assert error[worst] <= bound, (
        f"{row.name} of {[t[worst].item() for t in inputs]} in {dtype}: {got[worst].item()!r}, "
        f"exact {exact[worst].item()!r}: {error[worst].item():.3g} ULP, bound {bound:.3g}"
        f" ({int((error > bound).sum())} of {len(error)} wrong)"
    )
    return float(error[worst])


OP_CASES = [
    pytest.param(which, dtype, id=f"{row.name}-{COMPUTE[dtype]}")
    for dtype, program in PROGRAMS.items()
    for which, row in enumerate(program.rows)
]


@pytest.mark.parametrize(("which", "dtype"), OP_CASES)
def test_op(
    which: int,
    dtype: torch.dtype,
    launches: dict[torch.dtype, Launch],
    request: pytest.FixtureRequest,
) -> None:
    row = PROGRAMS[dtype].rows[which]
    generator = seeded(request)
    inputs = cases(row.name, dtype, generator)
    worst = check(row, inputs, run(launches[dtype], which, inputs, result_dtype(row, dtype)), dtype)
    if dtype == torch.float32 and row.arity == 1:
        bits = torch.randint(-(2**31), 2**31, (DENSE,), generator=generator).to(torch.int32)
        for dense in (bits.view(torch.float32), cases(row.name, dtype, generator, DENSE)[0]):
            got = run(launches[dtype], which, [dense], result_dtype(row, dtype))
            worst = max(worst, check(row, [dense], got, dtype))
    print(f"{row.name} {dtype}: largest error {worst:.3g} ULP, stated {row.ulp:g}")


# ---- casts


def saturated(x: Tensor, target: torch.dtype) -> Tensor:
    """float to integer: truncated and saturated, NaN gives 0; exact, by way of float64."""
    info = torch.iinfo(target)
    inside = (x > info.min - 1.0) & (x < info.max + 1.0)
    whole = torch.where(inside, x, torch.zeros_like(x)).trunc().to(target)
    whole = torch.where(x >= info.max + 1.0, info.max, whole)
    return torch.where(x <= info.min, info.min, whole).to(target)


def cast(x: Tensor, target: torch.dtype) -> Tensor:
    """What to<target>(x) means: torch's own cast but for float to integer."""
    integer = not (target.is_floating_point or target.is_complex or target == torch.bool)
    if x.is_complex() and not (target.is_complex or target == torch.bool):
        x = x.real
    if integer and x.is_floating_point():
        return saturated(x.double(), target)
    if target.is_floating_point and target.itemsize < 4:
        x = x.float()
    return x.to(target)


def all_of(dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Every value of an 8-bit or 16-bit dtype; else edges and random bit patterns."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.itemsize == 1:
        return torch.arange(256).to(torch.uint8).view(dtype)
    if dtype.itemsize == 2:
        return torch.arange(65536).to(torch.int16).view(dtype)
    edge = cases("set", dtype, generator)[0]
    part = dtype.to_real() if dtype.is_complex else dtype
    # Halfway cases of the small floats: short mantissas over their exponents.
    small = torch.randint(-4096, 4096, (4096,), generator=generator).double()
    exponent = torch.randint(-30, 20, (4096,), generator=generator)
    halves = torch.ldexp(small, exponent)
    bits = torch.randint(0, 256, (8 * 4096,), generator=generator).to(torch.uint8).view(dtype)
    return torch.cat([edge, cast(halves, part).to(dtype), bits])


@pytest.mark.parametrize("machine", MACHINES)
def test_cast(machine: Callable[..., list[Launch]], request: pytest.FixtureRequest) -> None:
    generator = seeded(request)
    (launch,) = machine([convert_program()], operands=1)
    types = list(ELEMENT)
    for source in types:
        x = all_of(source, generator)
        for place, target in enumerate(types):
            got = run(launch, types.index(source) * len(types) + place, [x], target)
            expected = cast(x, target)
            if target.is_complex:
                got, expected = torch.view_as_real(got), torch.view_as_real(expected)
                x_shown = torch.view_as_real(x.to(target))
            else:
                x_shown = x
            if got.is_floating_point():
                got, expected = got.double(), expected.double()
            both_nan = (got != got) & (expected != expected)
            same = (got == expected) & (got.double().signbit() == expected.double().signbit())
            wrong = ~(same | both_nan)
            assert not wrong.any(), (
                f"{source} to {target}: {x_shown[wrong][:4].tolist()} gave"
                f" {got[wrong][:4].tolist()}, not {expected[wrong][:4].tolist()};"
                f" {int(wrong.sum())} wrong"
            )


# ---- memory


@pytest.mark.parametrize("machine", MACHINES)
def test_move(machine: Callable[..., list[Launch]], request: pytest.FixtureRequest) -> None:
    generator = seeded(request)
    program = move_program()
    (launch,) = machine([program], operands=1)
    for which, (dtype, width) in enumerate(program.rows):
        count = 64 * width * dtype.itemsize
        data = torch.randint(0, 256, (count,), generator=generator).to(torch.uint8)
        data = torch.where(torch.rand(count, generator=generator) < 0.5, 0, data).to(torch.uint8)
        output = torch.zeros(64, width * dtype.itemsize, dtype=torch.uint8)
        launch(which, [data], output)
        expected = data.reshape(64, -1)
        if dtype == torch.bool:  # any byte but 0 is true, and true is stored as 1
            expected = (expected != 0).to(torch.uint8)
        assert torch.equal(output, expected), f"{dtype} x {width}"
