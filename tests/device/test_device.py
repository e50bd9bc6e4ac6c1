"""Every row of the op table in every compute dtype, and every cast, compared with
fuser.ops.reference.

The kernels are written by hand from the rows' texts, which tests csrc/device and csrc/ir/ops.def
without the compiler. Run with -s to print the largest error of each op.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from tests.device.launch import Launch, on_gpu, on_host
from tests.device.programs import (
    COMPUTE,
    ELEMENT,
    convert_program,
    move_program,
    op_program,
    result_dtype,
)
from tests.ops.accuracy import cast, check
from tests.ops.cases import cases

DENSE = 1 << 18  # float32 samples per unary op, over its domain and over all bit patterns

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


# ---- complex numbers at the ends of their range


def complexes(values: Sequence[complex], dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=torch.complex128).to(dtype)


def of_row(
    launches: dict[torch.dtype, Launch], name: str, dtype: torch.dtype, *inputs: Tensor
) -> Tensor:
    names = [row.name for row in PROGRAMS[dtype].rows]
    return run(launches[dtype], names.index(name), inputs, dtype)


# Argument at which e^x overflows, and a magnitude whose square overflows.
ENDS = [
    pytest.param(torch.complex64, 90.0, 3.4e38, id="c64"),
    pytest.param(torch.complex128, 720.0, 1.7e308, id="c128"),
]


@pytest.mark.parametrize(("dtype", "large", "most"), ENDS)
@pytest.mark.parametrize("name", ["sin", "cos", "sinh", "cosh", "exp", "exp2"])
def test_a_part_of_zero_is_none_beside_infinity(
    name: str, dtype: torch.dtype, large: float, most: float, launches: dict[torch.dtype, Launch]
) -> None:
    """A zero component times infinity is 0 with torch's sign, instead of NaN."""
    size = 2 * large
    if name in ("sin", "cos"):
        places = [complex(re, im) for re in (0.0, -0.0) for im in (size, -size)]
    else:
        places = [complex(re, im) for re in (size, -size) for im in (0.0, -0.0)]
    z = complexes(places, dtype)
    got, expected = of_row(launches, name, dtype, z), getattr(torch, name)(z)
    for a, b in ((got.real, expected.real), (got.imag, expected.imag)):
        assert torch.equal(a.isinf(), b.isinf()), (got, expected)
        assert torch.equal(a == 0, b == 0), (got, expected)
        assert torch.equal(a.signbit(), b.signbit()), (got, expected)


@pytest.mark.parametrize(("dtype", "large", "most"), ENDS)
@pytest.mark.parametrize("name", ["log", "log2", "log10", "log1p", "sqrt", "rsqrt"])
def test_roots_and_logarithms_near_the_ends(
    name: str, dtype: torch.dtype, large: float, most: float, launches: dict[torch.dtype, Launch]
) -> None:
    """Results are accurate for operands whose squares overflow or underflow."""
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps  # smallest subnormal
    parts = (most, -most, most / 3, 0.0, 1.0)
    places = [complex(re, im) for re in parts for im in parts if abs(re) > 1 or abs(im) > 1]
    if "sqrt" in name:
        small = (least, -least, 0.0, 5 * least, 1e-31)
        places += [complex(re, im) for re in small for im in small if re or im]
    z = complexes(places, dtype)
    wide = z.to(torch.complex128)
    expected = getattr(torch, name)(wide)
    if dtype == torch.complex128:  # torch's result may overflow: scale a component by a power of 4
        by = torch.where(wide.abs() > 1, 2.0**-64, 2.0**64).double()
        scaled = torch.complex(wide.real * by, wide.imag * by)
        if "sqrt" in name:
            back = by.rsqrt() if name == "sqrt" else by.sqrt()
            expected = getattr(torch, name)(scaled) * back
        else:
            base = {"log2": 2.0, "log10": 10.0}.get(name, math.e)
            lost = torch.full_like(by, 64 * math.log(2) / math.log(base))
            of = "log" if name == "log1p" else name  # 1 is negligible
            expected = getattr(torch, of)(scaled) + lost
    got = of_row(launches, name, dtype, z).to(torch.complex128)
    error = (got - expected).abs() / expected.abs() / info.eps
    assert (error < 8).all(), list(zip(places, got.tolist(), expected.tolist(), strict=True))


@pytest.mark.parametrize(("dtype", "large", "most"), ENDS)
@pytest.mark.parametrize("name", ["sigmoid", "silu"])
def test_sigmoids_far_from_zero(
    name: str, dtype: torch.dtype, large: float, most: float, launches: dict[torch.dtype, Launch]
) -> None:
    """The result is 0 or z e^z far to the left, 1 or z far to the right, also if e^-z overflows."""
    parts = [scale * large for scale in (0.5, 0.97, 1.0, 1.2, 9.0, 1000.0)]
    places = [complex(s * re, im) for re in parts for s in (1, -1) for im in (0.0, 1e-6, -2.0, 3.0)]
    z = complexes(places, dtype)
    got = of_row(launches, name, dtype, z).to(torch.complex128)
    wide = z.to(torch.complex128)
    tail = torch.exp(wide) * (wide if name == "silu" else 1)
    expected = torch.where(wide.real < 0, tail, wide if name == "silu" else 1)
    size = expected.abs().clamp(min=torch.finfo(dtype).smallest_normal)
    error = (got - expected).abs() / size / torch.finfo(dtype).eps
    assert (error < 16).all(), list(zip(places, got.tolist(), expected.tolist(), strict=True))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_powers_of_zero(dtype: torch.dtype, launches: dict[torch.dtype, Launch]) -> None:
    """Powers of zero equal torch's, except 0 ** 0, which is 1 as for real numbers."""
    nan = math.nan
    powers = [1, 2, 0.5, 1 + 1j, -1, -2, -0.5 - 3j, 1j, -1j, complex(nan, 0), complex(0, nan)]
    powers += [math.inf, -math.inf]
    b = complexes(powers, dtype)
    got, expected = of_row(launches, "pow", dtype, torch.zeros_like(b), b), torch.zeros_like(b) ** b
    torch.testing.assert_close(
        torch.view_as_real(got), torch.view_as_real(expected), rtol=0, atol=0, equal_nan=True
    )
    zero = complexes([0j], dtype)
    assert of_row(launches, "pow", dtype, zero, zero).tolist() == [1 + 0j]


# ---- casts


def all_of(dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Every value of an 8-bit or 16-bit dtype; otherwise edge cases and random bit patterns."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.itemsize == 1:
        return torch.arange(256).to(torch.uint8).view(dtype)
    if dtype.itemsize == 2:
        return torch.arange(65536).to(torch.int16).view(dtype)
    edge = cases("set", dtype, generator)[0]
    part = dtype.to_real() if dtype.is_complex else dtype
    # Rounding ties of the small floats: short mantissas over their exponents.
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
        if dtype == torch.bool:  # any nonzero byte is true, and true is stored as 1
            expected = (expected != 0).to(torch.uint8)
        assert torch.equal(output, expected), f"{dtype} x {width}"
