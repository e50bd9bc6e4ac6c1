"""Every row of the op table x dtype x layout, through the complete compiler on the host executor.

A family is one definition: up to CHUNK ops with equal operand types, each an output. It runs on
contiguous operands without the host executor's debug mode. On another layout (one per family, all
with --thorough) it runs in debug mode, which also checks every access. All kernels of the file are
compiled in two batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import fuser
from fuser import FusionDefinition, _core, testing
from fuser.debug.interpreter import torch_dtype
from fuser.ops import is_internal
from tests.ops.accuracy import cast, check, check_narrow
from tests.ops.cases import cases
from tests.support.sampling import rotated

CHUNK = 12
TYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    *(torch.complex64, torch.complex128),
]
ROWS = {row.name: row for row in _core.op_rows() if not is_internal(row.name)}
# Ops without critical points of their own, used to draw operands by arity.
_LIKE = {1: "neg", 2: "add", 3: "clamp"}


def kind_of(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "Bool"
    if dtype.is_complex:
        return "Complex"
    return "Float" if dtype.is_floating_point else "Int"


@dataclass(frozen=True)
class Family:
    """One definition of rank 2 (or 0); its outputs are the results of some rows."""

    name: str
    operands: tuple[torch.dtype, ...]
    rows: tuple[str, ...]

    def define(self, rank: int) -> FusionDefinition:
        fd = FusionDefinition()
        inputs = [fd.define_tensor([-1] * rank, dtype=fuser.ops.as_dtype(t)) for t in self.operands]
        narrow = self.operands[-1].is_floating_point and self.operands[-1].itemsize < 4
        for name in self.rows:
            result = getattr(fd.ops, name)(*inputs)
            if narrow and result.dtype() == _core.DataType.Float:
                result = fd.ops.cast(result, self.operands[-1])
            fd.add_output(result)
        return fd


def families() -> list[Family]:
    found = []
    for dtype in TYPES:
        by_operands: dict[tuple[torch.dtype, ...], list[str]] = {}
        for row in ROWS.values():
            kind = kind_of(dtype)
            if kind in ("Bool", "Int") and row.rule == "Float" and dtype != torch.int64:
                kind = "Float"  # computed in float32
            if kind not in row.accepts:
                continue
            operands = [dtype] * row.arity
            if row.rule == "Condition":
                operands[0] = torch.bool
            by_operands.setdefault(tuple(operands), []).append(row.name)
        for operands, rows in by_operands.items():
            for start in range(0, len(rows), CHUNK):
                chunk = tuple(rows[start : start + CHUNK])
                short = str(dtype).removeprefix("torch.")
                found.append(Family(f"{short}-{len(operands)}-{chunk[0]}", operands, chunk))
    return found


FAMILIES = families()

# ---- layouts: each makes operands of equal shape (after broadcasting) from a function that draws
# tuples of operands of n elements.

Draw = Callable[[int], tuple[Tensor, ...]]


def contiguous(draw: Draw) -> list[Tensor]:
    return [t.reshape(16, 64) for t in draw(1024)]


def odd(draw: Draw) -> list[Tensor]:
    return [t.reshape(13, 67) for t in draw(871)]


def strided(draw: Draw) -> list[Tensor]:
    """Operand 0 in every second column, operand 1 transposed, operand 2 in padded rows."""
    views = []
    for place, t in enumerate(draw(17 * 24)):
        t = t.reshape(17, 24)
        if place == 0:
            views.append(torch.stack([t, t.flip(0)], dim=2)[:, :, 0])
        elif place == 1:
            views.append(t.t().contiguous().t())
        else:
            views.append(torch.cat([t, t[:, :5]], dim=1)[:, :24])
    return views


def broadcast(draw: Draw) -> list[Tensor]:
    """A row that is expanded (stride 0) or has size 1, a column, and a full operand."""
    drawn = draw(16 * 40)
    if len(drawn) == 1:
        return [drawn[0][:40].reshape(1, 40).expand(16, 40)]
    shapes = [(16, 40), (1, 40), (16, 1)]
    return [t[: r * c].reshape(r, c) for t, (r, c) in zip(drawn, shapes, strict=False)]


def misaligned(draw: Draw) -> list[Tensor]:
    """Dense, but one element past a 16-byte boundary."""
    return [torch.cat([t[:1], t])[1:].reshape(16, 64) for t in draw(1024)]


def empty(draw: Draw) -> list[Tensor]:
    return [t.reshape(0, 5) for t in draw(0)]


def zero_dim(draw: Draw) -> list[Tensor]:
    return [t.reshape(()) for t in draw(1)]


PLAIN = [contiguous]  # without debug mode
CHECKED = [odd, strided, broadcast, misaligned, zero_dim]  # in debug mode, and
TRIVIAL = [empty]
RUNS = [
    (family, layout)
    for place, family in enumerate(FAMILIES)
    for layout in (*PLAIN, *rotated(CHECKED, place, 1), *TRIVIAL)
]


class Pool:
    """Operands of a family: combinations of edge values of the type, mixed with random values."""

    def __init__(self, family: Family, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed + zlib.crc32(family.name.encode()))
        arity = len(family.operands)
        like = "where" if family.operands[0] != family.operands[-1] else _LIKE[arity]
        compute = family.operands[-1]
        if compute.itemsize == 1 and compute.is_floating_point:
            compute = torch.float32  # torch has no random float8 numbers
        values = cases(like, compute, self.generator, 2048)
        small = cases(
            "lerp" if compute.is_floating_point and arity == 3 else like,
            compute,
            self.generator,
            512,
        )
        self.values = [
            cast(torch.cat(both), dtype)
            for both, dtype in zip(zip(values, small, strict=True), family.operands, strict=True)
        ]

    def draw(self, count: int) -> tuple[Tensor, ...]:
        places = torch.randint(0, len(self.values[0]), (count,), generator=self.generator)
        return tuple(v[places] for v in self.values)


@dataclass
class Run:
    """One family on one layout."""

    fd: FusionDefinition
    inputs: list[Tensor]


@cache
def runs(seed: int) -> dict[tuple[str, str], Run]:
    """All runs of the file, compiled."""
    found = {}
    pools = {family.name: Pool(family, seed) for family in FAMILIES}
    definitions = {(f.name, rank): f.define(rank) for f in FAMILIES for rank in (0, 2)}
    for family, layout in RUNS:
        inputs = layout(pools[family.name].draw)
        fd = definitions[family.name, inputs[0].dim()]
        found[family.name, layout.__name__] = Run(fd, inputs)
    for plain in (True, False):
        _core.set_option("FUSER_HOST_DEBUG", "0" if plain else "1")
        chosen = [
            run
            for (_, layout), run in zip(RUNS, found.values(), strict=True)
            if (layout in PLAIN) == plain
        ]
        testing.compile_batch((run.fd, run.inputs) for run in chosen)
    return found


@pytest.fixture(autouse=True)
def own_options(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_CACHE", 0)
    set_option("FUSER_HOST_DEBUG", 0)


def compute_of(fd: FusionDefinition, place: int) -> torch.dtype:
    """The dtype in which output `place` is computed, ignoring a cast to a half type; the output's
    dtype if it is only passed through."""
    records = fd.fusion.records()
    record = records["tensors"][records["outputs"][place][0]]
    if record["kind"] == "Cast":
        record = records["tensors"][record["arg"]]
    return torch_dtype(record.get("compute", record["dtype"]))


@pytest.mark.parametrize(
    ("family", "layout"), RUNS, ids=[f"{f.name}-{layout.__name__}" for f, layout in RUNS]
)
def test_op(
    family: Family, layout: Callable[[Draw], list[Tensor]], request: pytest.FixtureRequest
) -> None:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    run = runs(seed)[family.name, layout.__name__]
    _core.set_option("FUSER_HOST_DEBUG", "0" if layout in PLAIN else "1")
    shape = torch.broadcast_shapes(*(t.shape for t in run.inputs))
    full = [t.expand(shape).reshape(-1) for t in run.inputs]
    for place, (name, got) in enumerate(zip(family.rows, run.fd.execute(run.inputs), strict=True)):
        assert got.shape == shape
        if not got.numel():
            continue
        row: Any = ROWS[name]
        compute = compute_of(run.fd, place)
        operands = [
            t if t.dtype == torch.bool and row.rule == "Condition" and i == 0 else cast(t, compute)
            for i, t in enumerate(full)
        ]
        result = got.reshape(-1)
        if result.is_floating_point() and result.dtype.itemsize < 4:
            check_narrow(row, operands, result)
        else:
            check(row, operands, result, compute)
