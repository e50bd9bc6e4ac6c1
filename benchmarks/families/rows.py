"""Shapes and goals of the families that normalize rows, and a helper for gradients of norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchmarks.case import Bound, Case, Goal, Row, Shape, key

bf16, f32 = torch.bfloat16, torch.float32

# At least 64 MB of input and 64 MB of output.
EVEN: dict[torch.dtype, tuple[Shape, ...]] = {
    bf16: (
        (262144, 256),
        (32768, 1024),
        (16384, 4096),
        (8192, 16384),
        (4096, 65536),
        (1024, 262144),
    ),
    f32: (
        (131072, 256),
        (32768, 1024),
        (8192, 4096),
        (4096, 16384),
        (2048, 65536),
        (512, 262144),
    ),
}
# By odd shape: the aligned row length that it is compared with.
ODD: dict[torch.dtype, dict[Shape, int]] = {
    bf16: {(16384, 4097): 4096, (8192, 16385): 16384, (4096, 65537): 65536, (4096, 50257): 50256},
    f32: {(8192, 4097): 4096, (2048, 65537): 65536},
}
_MAIN = {(bf16, 1024), (bf16, 16384), (bf16, 65536), (bf16, 262144), (f32, 4096), (bf16, 4097)}

_SHARE = 0.94  # fraction of a copy's speed
_WIDEST = 0.85  # for rows of 262,144 elements
_USUAL = Bound()


def forward_goal(
    name: str, shape: Shape, dtype: torch.dtype, widest_but_one: float = _SHARE
) -> Goal:
    """Goal of a forward pass; widest_but_one: for rows of 65,536 elements."""
    aligned = ODD.get(dtype, {}).get(shape)
    if aligned:
        return Goal(aligned=key(name, dtype, (shape[0], aligned)))
    length = shape[-1]
    if length > 65536:
        return Goal(copy=_WIDEST)
    return Goal(copy=widest_but_one if length == 65536 else _SHARE)


def forward_rows(build: Callable[[Shape, torch.dtype], Case]) -> tuple[Row, ...]:
    """Every length in bfloat16 and float32, the odd lengths, and the aligned length that one of
    them is compared with."""
    rows = []
    for dtype, shapes in EVEN.items():
        beside = ((4096, 50256),) if dtype == bf16 else ()
        for shape in (*shapes, *beside, *ODD[dtype]):
            rows.append(Row(build, shape, dtype, main=(dtype, shape[-1]) in _MAIN))
    return tuple(rows)


def norm_backward(
    case: Case,
    rows: int,
    primitive: Callable[..., Any] | None = None,
    bound: Bound = _USUAL,
) -> Case:
    """Complete a case whose outputs are dx, with tolerance `bound`, and gradients of weight and
    bias, which are sums over `rows` rows. primitive: `eager` in ops that a compiler fuses, in
    float64 too."""
    sums = [Bound(1e-5 * math.sqrt(rows))] * (len(case.outputs) - 1)
    return replace(case, compiled=primitive, exact=primitive, bounds=(bound, *sums))
