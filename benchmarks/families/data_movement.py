"""The family of data movement: rotary embeddings, the split of q, k and v, cat, and pad."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.case import Case, Data, Row, Shape

bf16, f16, f32 = torch.bfloat16, torch.float16, torch.float32


def rope_halves(shape: Shape, dtype: torch.dtype) -> Case:
    """Rotary embedding of x[batch, length, heads, dim] by position; pairs the first half with the
    second."""
    _, length, _, dim = shape

    def make(data: Data) -> list[Tensor]:
        return [data.normal(shape, dtype), *(data.normal((length, dim), f32) for _ in range(2))]

    def eager(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        turned = torch.cat([-second, first], -1)
        return (x * cos[:, None, :] + turned * sin[:, None, :]).to(x.dtype)

    def define(ops: Any, x: Any, cos: Any, sin: Any) -> Any:
        first, second = ops.chunk(x, 2, -1)
        turned = ops.cat([-second, first], -1)
        cos, sin = (ops.broadcast(t, [True, False, True, False]) for t in (cos, sin))
        return x * cos + turned * sin

    return Case(
        name="rope_halves",
        shape=shape,
        dtype=dtype,
        make=make,
        eager=eager,
        define=define,
        outputs=(dtype,),
    )


def rope_pairs(shape: Shape, dtype: torch.dtype) -> Case:
    """Rotary embedding of x[batch, length, heads, dim] by position; pairs neighbouring elements."""
    batch, length, heads, dim = shape

    def make(data: Data) -> list[Tensor]:
        turns = (data.normal((length, dim // 2), f32) for _ in range(2))
        return [data.normal(shape, dtype), *turns]

    def eager(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b, cos, sin = x[..., ::2], x[..., 1::2], cos[:, None, :], sin[:, None, :]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)

    def define(ops: Any, x: Any, cos: Any, sin: Any) -> Any:
        a, b = (
            ops.slice(x, [0, 0, 0, start], [batch, length, heads, dim], [1, 1, 1, 2])
            for start in (0, 1)
        )
        cos, sin = (ops.broadcast(t, [True, False, True, False]) for t in (cos, sin))
        turned = ops.stack([a * cos - b * sin, a * sin + b * cos], 4)
        return ops.merge_dims(turned, 3)

    return Case(
        name="rope_pairs",
        shape=shape,
        dtype=dtype,
        make=make,
        eager=eager,
        define=define,
        outputs=(dtype,),
    )


def split_heads(shape: Shape, dtype: torch.dtype) -> Case:
    """Split qkv[batch, length, 3 heads dim] into three tensors [batch, heads, length, dim]; q is
    scaled."""
    batch, length, width = shape
    dim = 128 if width % 384 == 0 else width // 3
    heads = width // 3 // dim

    def eager(x: Tensor) -> list[Tensor]:
        parts = x.reshape(batch, length, 3, heads, dim).permute(2, 0, 3, 1, 4)
        return [parts[0] * 0.125, parts[1].contiguous(), parts[2].contiguous()]

    def define(ops: Any, x: Any) -> list[Any]:
        parts = ops.permute(ops.reshape(x, [batch, length, 3, heads, dim]), [2, 0, 3, 1, 4])
        q, k, v = (ops.select(parts, i, 0) for i in range(3))
        return [ops.stride_order(t, [3, 2, 1, 0]) for t in (q * 0.125, k, v)]

    return Case(
        name="split_heads",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype)],
        eager=eager,
        define=define,
        outputs=(dtype,) * 3,
    )


def cat_relu(shape: Shape, dtype: torch.dtype) -> Case:
    """relu of three concatenated tensors; the middle one is half as wide."""
    rows, width = shape
    widths = (width, max(1, width // 2), width)

    return Case(
        name="cat_relu",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal((rows, w), dtype) for w in widths],
        eager=lambda *t: torch.relu(torch.cat(t, 1)),
        define=lambda ops, *t: ops.relu(ops.cat(list(t), 1)),
        outputs=(dtype,),
    )


def stack_mean(shape: Shape, dtype: torch.dtype) -> Case:
    """The mean of eight tensors."""

    def define(ops: Any, *t: Any) -> Any:
        return ops.mean(ops.stack(list(t), 0), [0])

    return Case(
        name="stack_mean",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype) for _ in range(8)],
        eager=lambda *t: torch.stack(t).mean(0),
        define=define,
        outputs=(dtype,),
    )


def pad_scale(shape: Shape, dtype: torch.dtype) -> Case:
    """1.5 x, cropped by one pixel and padded with zeros."""

    def eager(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x[:, :, 1:-1, 1:-1] * 1.5, (2, 2, 2, 2))

    def define(ops: Any, x: Any) -> Any:
        n, c, h, w = shape
        inner = ops.slice(x, [0, 0, 1, 1], [n, c, h - 1, w - 1])
        return ops.pad(inner * 1.5, [2, 2, 2, 2])

    return Case(
        name="pad_scale",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype)],
        eager=eager,
        define=define,
        outputs=(dtype,),
    )


_HEADS = ((2, 3, 4, 8), (2, 3, 5, 6))  # of even width
_WIDE = ((2, 4, 12), (2, 3, 15))

TABLE = (
    Row(rope_halves, (4, 2048, 32, 128), bf16, main=True, tiny=_HEADS),
    Row(rope_halves, (4, 8192, 32, 128), f16, tiny=_HEADS),
    Row(rope_pairs, (4, 2048, 32, 128), bf16, main=True, tiny=_HEADS),
    Row(split_heads, (4, 2048, 12288), bf16, main=True, tiny=_WIDE),
    Row(split_heads, (4, 2048, 12288), f32, tiny=_WIDE),
    Row(cat_relu, (8192, 8192), bf16, main=True),
    Row(cat_relu, (8192, 8191), f32),
    Row(stack_mean, (8192, 2048), bf16, main=True),
    Row(pad_scale, (32, 256, 56, 56), bf16, main=True),
)
