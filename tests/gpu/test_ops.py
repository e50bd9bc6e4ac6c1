"""Every row of the op table through the complete pipeline on the GPU, several rows per kernel.

All rows must have the accuracy that the table states; exact rows must also equal the host executor
bit for bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fuser
from fuser import FusionDefinition, _core, testing
from fuser.ops import as_dtype
from tests.ops.accuracy import check
from tests.ops.cases import random

pytestmark = pytest.mark.gpu

DTYPES = (
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
COUNT = 1 << 13
PER_KERNEL = 8

# The slow paths of these keep a table in local memory, which is not a spill.
WITH_TABLE = {"sin", "cos", "tan"}


def kind(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "Bool"
    if dtype.is_complex:
        return "Complex"
    return "Float" if dtype.is_floating_point else "Int"


def rows_of(dtype: torch.dtype) -> list[_core.OpRow]:
    """Rows that accept the dtype and are available to users: neither fma nor the short forms for
    half."""
    return [
        row
        for row in _core.op_rows()
        if kind(dtype) in row.accepts and row.name != "fma" and not row.name.endswith("_half")
    ]


def operand_types(row: _core.OpRow, dtype: torch.dtype) -> list[torch.dtype]:
    condition = [torch.bool] if row.rule == "Condition" else []
    return condition + [dtype] * (row.arity - len(condition))


def define(rows: list[_core.OpRow], operands: list[list[Tensor]]) -> FusionDefinition:
    """One output per row, each on operands of its own."""
    fd = FusionDefinition()
    for row, tensors in zip(rows, operands, strict=True):
        result = getattr(fd.ops, row.name)(*(fd.from_pytorch(t) for t in tensors))
        fd.add_output(result)
    return fd


def widen_half(t: Tensor) -> Tensor:
    """Computation type of the row: half types in float32."""
    return t.float() if t.is_floating_point() and t.itemsize < 4 else t


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise equality of bits; NaN equals NaN."""
    if not a.is_floating_point():
        return a == b
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return (a.view(integer) == b.view(integer)) | (a.isnan() & b.isnan())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows(dtype: torch.dtype, device: torch.device, request: pytest.FixtureRequest) -> None:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    generator = torch.Generator().manual_seed(seed + zlib.crc32(str(dtype).encode()))
    rows = rows_of(dtype)
    calls = []
    for first in range(0, len(rows), PER_KERNEL):
        some = rows[first : first + PER_KERNEL]
        operands = [
            [random(row.name, operand, generator, COUNT) for operand in operand_types(row, dtype)]
            for row in some
        ]
        fd = define(some, operands)
        flat = [t for tensors in operands for t in tensors]
        calls.append((some, fd, flat, [t.to(device) for t in flat]))
    testing.compile_batch((fd, host) for _, fd, host, _ in calls)
    testing.compile_batch((fd, gpu) for _, fd, _, gpu in calls)

    problems = []
    for some, fd, host, gpu in calls:
        on_gpu = [t.cpu() for t in fd.execute(gpu)]
        spills = {k.name: k.local_bytes for k in fd.fec.executor.kernels() if k.local_bytes}
        places = iter(host)
        for row, got, other in zip(some, on_gpu, fd.execute(host), strict=True):
            inputs = [widen_half(next(places)) for _ in range(row.arity)]
            try:
                check(row, inputs, got, inputs[-1].dtype)
            except AssertionError as wrong:
                problems.append(str(wrong).partition("\n")[0])
            if row.ulp == 0 and not dtype.is_complex and not same_bits(got, other).all():
                at = int((~same_bits(got, other)).nonzero()[0])
                problems.append(f"{row.name}: {got[at].item()!r}, host {other[at].item()!r}")
        if spills and not WITH_TABLE & {row.name for row in some} and not dtype.is_complex:
            problems.append(f"spills: {spills}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_forms_for_half(dtype: torch.dtype, device: torch.device) -> None:
    """Results cast to half at once may use the short forms, with an error below half an ULP."""
    x = (torch.randn(1 << 16, generator=torch.Generator().manual_seed(5)) * 3).to(dtype).to(device)
    fd = FusionDefinition()
    t = fd.from_pytorch(x)
    for name in ("exp", "sigmoid", "silu", "gelu_erf", "gelu_tanh", "tanh"):
        fd.add_output(fd.ops.cast(getattr(fd.ops, name)(t), dtype))
    assert len(fd.validate([x])) == len(fd.fusion.outputs())


@pytest.mark.parametrize("source", DTYPES[:4] + DTYPES[5:], ids=str)
def test_casts(source: torch.dtype, device: torch.device) -> None:
    """Casts to every real type equal the host's bit for bit."""
    values = (torch.randn(5000, generator=torch.Generator().manual_seed(6)) * 300).to(source)
    fd = FusionDefinition()
    t = fd.from_pytorch(values)
    targets = [*DTYPES[:4], *DTYPES[5:], torch.float8_e4m3fn, torch.float8_e5m2]
    for target in targets:
        fd.add_output(fd.ops.cast(t, as_dtype(target)))
    for got, other in zip(fd.execute([values.to(device)]), fd.execute([values]), strict=True):
        assert torch.equal(got.cpu().view(torch.uint8), other.view(torch.uint8)), str(got.dtype)


# Each wraps the smallest integer to itself.
WRAPPING: dict[str, Callable[[Any, Any], Any]] = {
    "neg": lambda ops, x: ops.neg(x),
    "times -1": lambda ops, x: ops.mul(x, -1),
    "from 0": lambda ops, x: ops.sub(0, x),
    "complement + 1": lambda ops, x: ops.add(ops.bitwise_not(x), 1),
    "abs": lambda ops, x: ops.abs(x),
    "greater": lambda ops, x: ops.maximum(x, ops.neg(x)),
    "by int64": lambda ops, x: ops.cast(ops.neg(ops.cast(x, torch.int64)), x.dtype()),
}


@pytest.mark.parametrize("first", WRAPPING)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers_that_wrap_in_front_of_another_op(
    dtype: torch.dtype, first: str, device: torch.device
) -> None:
    """The CUDA 13.0 assembler assumed -(-32768) to be positive in its users."""
    ends = torch.iinfo(dtype)
    some = [ends.min, ends.min + 1, ends.max, ends.max // 2, 0, 1, -1, 3, -7, 100]
    values = torch.tensor(some, dtype=dtype)
    x, y = values.repeat_interleave(len(some)), values.repeat(len(some))
    fd = FusionDefinition()
    ops, a, b = fd.ops, fd.from_pytorch(x), fd.from_pytorch(y)
    wrapped = WRAPPING[first](ops, a)
    fd.add_output(ops.cast(wrapped, torch.int64))
    fd.add_output(ops.bitwise_right_shift(wrapped, 2))
    for second in ("mod", "remainder", "div", "floor_divide", "lt"):
        fd.add_output(getattr(ops, second)(wrapped, b))
    results = fd.execute([x.to(device), y.to(device)])
    for got, exact in zip(results, fuser.evaluate(fd, [x, y]), strict=True):
        assert torch.equal(got.cpu(), exact.to(got.dtype)), f"{got}\n{exact}"
