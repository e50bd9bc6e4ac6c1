"""Every row of the op table in every compute dtype, and every cast, against fuser.reference.

Kernels are made by hand from the rows' texts: this tests csrc/device and csrc/ir/ops.def without
the compiler. Run with -s to see the largest error of each op.
"""

from __future__ import annotations

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

DENSE = 1 << 18  # float32 samples of each one-operand op, of its domain and of all bit patterns

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


# ---- casts


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
