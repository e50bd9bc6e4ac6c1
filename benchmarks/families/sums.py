"""The family of pure reductions: sums over rows, columns and everything, and similar ones.

They write almost no bytes, so they are compared with the read-only probe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.case import Bound, Case, Goal, Row, Shape, key

bf16, f32 = torch.bfloat16, torch.float32

Build = Callable[[Shape, torch.dtype], Case]

_SUM = 0.90  # fraction of the probe's speed
_FULL_SUM = 0.98  # for large inputs, whose launch and last block take negligible time
_LARGE = 256 << 20


def reduction(
    name: str,
    dims: Sequence[int],
    eager: Callable[[Tensor, list[int]], Any],
    define: Callable[[Any, Any, list[int]], Any],
    outputs: int = 1,
    asked: bool = False,
    grows: bool = False,
) -> Build:
    """A reduction: eager(x, dims) and define(ops, x, dims). grows: results and their tolerance grow
    as the square root of the number of elements."""
    axes = list(dims)

    def build(shape: Shape, dtype: torch.dtype) -> Case:
        count = math.prod(shape[d] for d in axes)
        full = len(axes) == len(shape)
        if shape[-1] > 4096 and shape[-1] % 2:
            goal = Goal(aligned=key(name, dtype, (*shape[:-1], shape[-1] - 1)))
        else:
            goal = Goal(probe=_FULL_SUM if full and count >= _LARGE else _SUM)
        bound = Bound(1e-5 * math.sqrt(count)) if grows else Bound()
        return Case(
            name=name,
            shape=shape,
            dtype=dtype,
            make=lambda data: [data.normal(shape, dtype)],
            eager=lambda x: eager(x, axes),
            define=lambda ops, x: define(ops, x, axes),
            outputs=(dtype,) * outputs,
            bounds=(bound,) * outputs,
            reads=True,
            goal=goal if asked else Goal(),
        )

    return build


def _sum(name: str, dims: Sequence[int]) -> Build:
    return reduction(
        name,
        dims,
        lambda x, axes: x.sum(axes),
        lambda ops, x, axes: ops.sum(x, axes),
        asked=True,
        grows=True,
    )


sum_full = _sum("sum_full", [0])
sum_inner = _sum("sum_inner", [1])
sum_outer = _sum("sum_outer", [0])
sum_channels = _sum("sum_channels", [0, 2, 3])  # gradient of a convolution's bias
max_inner = reduction(
    "max_inner",
    [1],
    lambda x, axes: x.amax(axes),
    lambda ops, x, axes: ops.max(x, axes),
)
max_outer = reduction(
    "max_outer",
    [0],
    lambda x, axes: x.amax(axes),
    lambda ops, x, axes: ops.max(x, axes),
)
mean_inner = reduction(
    "mean_inner",
    [1],
    lambda x, axes: x.mean(axes),
    lambda ops, x, axes: ops.mean(x, axes),
)
mean_image = reduction(
    "mean_image",
    [2, 3],
    lambda x, axes: x.mean(axes),
    lambda ops, x, axes: ops.mean(x, axes),
)
var_mean_inner = reduction(
    "var_mean_inner",
    [1],
    lambda x, axes: torch.var_mean(x, axes, correction=1),
    lambda ops, x, axes: ops.var_mean(x, axes, correction=1),
    outputs=2,
)
var_mean_outer = reduction(
    "var_mean_outer",
    [0],
    lambda x, axes: torch.var_mean(x, axes, correction=1),
    lambda ops, x, axes: ops.var_mean(x, axes, correction=1),
    outputs=2,
)


def max_place(shape: Shape, dtype: torch.dtype) -> Case:
    """The maximum of each row, and the index of its first occurrence."""
    return Case(
        name="max_place",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype)],
        eager=lambda x: [x.amax(1), x.argmax(1)],
        define=lambda ops, x: [ops.max(x, [1]), ops.argmax(x, 1)],
        outputs=(dtype, torch.int64),
        reads=True,
    )


_VECTOR = ((4096,), (1031,))

TABLE = (
    Row(sum_full, (_LARGE,), f32, main=True, tiny=_VECTOR),
    Row(sum_full, (_LARGE,), bf16, main=True, tiny=_VECTOR),
    Row(sum_full, (16 << 20,), f32, tiny=_VECTOR),
    Row(sum_inner, (128, 524288), bf16, main=True),
    Row(sum_inner, (128, 524288), f32),
    Row(sum_inner, (512, 262144), bf16),
    Row(sum_inner, (1024, 65536), bf16),
    Row(sum_inner, (4096, 16384), bf16, main=True),
    Row(sum_inner, (4096, 16384), f32),
    Row(sum_inner, (16384, 4096), bf16),
    Row(sum_inner, (32768, 1024), bf16),
    Row(sum_inner, (32768, 1024), f32, main=True),
    Row(sum_inner, (262144, 256), bf16),
    Row(sum_inner, (16384, 4097), bf16, main=True),
    Row(sum_inner, (4096, 16385), f32),
    Row(sum_outer, (32768, 4096), bf16, main=True),
    Row(sum_outer, (32768, 4096), f32),
    Row(sum_outer, (524288, 256), bf16, main=True),
    Row(sum_outer, (524288, 256), f32),
    Row(sum_outer, (32768, 4097), bf16),
    Row(sum_channels, (128, 256, 56, 56), bf16, main=True),
    Row(max_inner, (16384, 4096), bf16, main=True),
    Row(max_outer, (32768, 4096), bf16),
    Row(mean_inner, (16384, 4096), f32, main=True),
    Row(mean_image, (1024, 2048, 7, 7), bf16, main=True),
    Row(sum_inner, (8388608, 8), f32),
    Row(max_place, (8192, 8192), f32, main=True),
    Row(var_mean_inner, (16384, 4096), bf16, main=True),
    Row(var_mean_inner, (1048576, 31), f32),
    Row(var_mean_outer, (32768, 4096), bf16),
)
