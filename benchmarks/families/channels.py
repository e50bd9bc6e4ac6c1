"""The family of image normalizations: channels-last batch norm in training with relu, group norm
with silu, instance norm; backward passes of batch norm and group norm."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import contenders
from benchmarks.case import Bound, Case, Data, Goal, Row, Shape
from benchmarks.contenders import EPS
from benchmarks.families import rows

bf16, f32 = torch.bfloat16, torch.float32

_MOMENTUM = 0.1
# x is read twice if it does not fit into shared memory and registers. The bound is then 67% of the
# speed of a copy.
_BATCH_NORM = 0.58
_GROUP_NORM = 0.80


def _first(results: Any) -> Any:
    return results[0] if isinstance(results, tuple | list) else results


def _groups(channels: int) -> int:
    return 32 if channels % 32 == 0 else channels


def batch_norm_relu(shape: Shape, dtype: torch.dtype) -> Case:
    """relu of batch norm of [N, H, W, C]; updates the running statistics."""
    channels = shape[-1]

    def make(data: Data) -> list[Tensor]:
        x = data.normal(shape, dtype)
        weight, bias, mean, variance = (data.normal((channels,), f32) for _ in range(4))
        return [x, weight, bias, mean, variance.square() + 0.5]

    def eager(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        y = F.batch_norm(x.permute(0, 3, 1, 2), mean, variance, weight, bias, True, _MOMENTUM, EPS)
        return torch.relu(y).permute(0, 2, 3, 1)

    def define(ops: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any) -> Any:
        y = ops.batch_norm(
            x, weight, bias, mean, variance, _MOMENTUM, EPS, True, channels_last=True
        )
        return ops.relu(_first(y))

    return Case(
        name="batch_norm_relu",
        shape=shape,
        dtype=dtype,
        make=make,
        eager=eager,
        define=define,
        outputs=(dtype,),
        updates=(3, 4),
        bounds=(Bound(1e-5, half=1e-4), Bound(), Bound()),
        goal=Goal(copy=_BATCH_NORM),
    )


def group_norm_silu(shape: Shape, dtype: torch.dtype) -> Case:
    """silu of group norm of [N, C, H, W] with 32 groups of channels, or with groups of one
    channel."""
    channels = shape[1]
    groups = _groups(channels)

    def make(data: Data) -> list[Tensor]:
        return [data.normal(s, dtype) for s in (shape, (channels,), (channels,))]

    return Case(
        name="group_norm_silu",
        shape=shape,
        dtype=dtype,
        make=make,
        eager=lambda x, weight, bias: F.silu(F.group_norm(x, groups, weight, bias, EPS)),
        define=lambda ops, x, weight, bias: ops.silu(
            _first(ops.group_norm(x, groups, weight, bias, EPS))
        ),
        outputs=(dtype,),
        # Rounding the norm before silu causes an error above the rounding of silu itself, e.g. at
        # -5.
        bounds=(Bound(1e-5, half=4e-3),),
        peers={"liger": contenders.liger_group_norm_silu(groups)},
        goal=Goal(copy=_GROUP_NORM),
    )


def instance_norm(shape: Shape, dtype: torch.dtype) -> Case:
    """Instance norm of [N, C, H, W]."""
    channels = shape[1]
    return Case(
        name="instance_norm",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(s, dtype) for s in (shape, (channels,), (channels,))],
        eager=lambda x, weight, bias: F.instance_norm(x, None, None, weight, bias, eps=EPS),
        define=lambda ops, x, weight, bias: _first(
            ops.instance_norm(x, weight, bias, None, None, _MOMENTUM, EPS, True)
        ),
        outputs=(dtype,),
        bounds=(Bound(1e-5),),
    )


def batch_norm_backward(shape: Shape, dtype: torch.dtype) -> Case:
    """dx, dweight and dbias of [N, H, W, C] in training, from the saved statistics."""
    channels, count = shape[-1], math.prod(shape[:-1])

    def make(data: Data) -> list[Tensor]:
        dy, x = data.normal(shape, dtype), data.normal(shape, dtype)
        variance, mean = torch.var_mean(x.float(), (0, 1, 2), correction=0)
        return [dy, x, mean, torch.rsqrt(variance + EPS), data.normal((channels,), f32)]

    def eager(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor) -> list[Tensor]:
        images = (t.permute(0, 3, 1, 2) for t in (dy, x))
        dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            *images, weight, None, None, mean, rstd, True, EPS, [True, True, True]
        )
        return [dx.permute(0, 2, 3, 1), dweight, dbias]

    def primitive(dy: Any, x: Any, mean: Any, rstd: Any, weight: Any) -> list[Any]:
        dtype, dy, normal = x.dtype, dy.to(mean.dtype), (x.to(mean.dtype) - mean) * rstd
        dbias, dweight = dy.sum((0, 1, 2)), (dy * normal).sum((0, 1, 2))
        dx = (dy - dbias / count - normal * (dweight / count)) * (rstd * weight)
        return [dx.to(dtype), dweight, dbias]

    def define(ops: Any, dy: Any, x: Any, mean: Any, rstd: Any, weight: Any) -> list[Any]:
        normal = (x - mean) * rstd
        dbias, dweight = ops.sum(dy, [0, 1, 2]), ops.sum(dy * normal, [0, 1, 2])
        dx = (dy - dbias / count - normal * (dweight / count)) * (rstd * weight)
        return [dx, dweight, dbias]

    return rows.norm_backward(
        Case(
            name="batch_norm_backward",
            shape=shape,
            dtype=dtype,
            make=make,
            eager=eager,
            define=define,
            outputs=(dtype, f32, f32),
        ),
        count,
        primitive,
        Bound(1e-5, half=1e-4),
    )


def group_norm_backward(shape: Shape, dtype: torch.dtype) -> Case:
    """dx, dweight and dbias of [N, C, H, W], from the saved statistics of the groups."""
    size, channels, *image = shape
    groups = _groups(channels)
    grouped = (size, groups, channels // groups, math.prod(image))

    def make(data: Data) -> list[Tensor]:
        dy, x = data.normal(shape, dtype), data.normal(shape, dtype)
        variance, mean = torch.var_mean(x.float().view(size, groups, -1), 2, correction=0)
        return [dy, x, mean, torch.rsqrt(variance + EPS), data.normal((channels,), dtype)]

    def primitive(dy: Any, x: Any, mean: Any, rstd: Any, weight: Any) -> list[Any]:
        dtype, wide = x.dtype, mean.dtype
        gradient, values = dy.to(wide).view(grouped), x.to(wide).view(grouped)
        rstd = rstd[:, :, None, None]
        normal = (values - mean[:, :, None, None]) * rstd
        scaled = gradient * weight.to(wide).view(1, *grouped[1:3], 1)
        shift = scaled.mean((2, 3), keepdim=True)
        slope = (scaled * normal).mean((2, 3), keepdim=True)
        dx = ((scaled - shift - normal * slope) * rstd).view(shape)
        sums = ((gradient * normal).sum((0, 3)), gradient.sum((0, 3)))
        return [t.to(dtype) for t in (dx, *(s.view(channels) for s in sums))]

    def eager(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor) -> Any:
        if not x.is_cuda:  # on the CPU it expects statistics of the dtype of x
            return primitive(dy, x, mean, rstd, weight)
        return torch.ops.aten.native_group_norm_backward(
            *(dy, x, mean.to(dtype), rstd.to(dtype), weight, size, channels, grouped[3]),
            *(groups, [True, True, True]),
        )

    def define(ops: Any, dy: Any, x: Any, mean: Any, rstd: Any, weight: Any) -> list[Any]:
        gradient, values = (ops.reshape(t, grouped) for t in (dy, x))
        mean, rstd = (ops.broadcast(t, [False, False, True, True]) for t in (mean, rstd))
        normal = (values - mean) * rstd
        weight = ops.reshape(weight, [1, *grouped[1:3], 1])
        scaled = gradient * weight
        shift = ops.mean(scaled, [2, 3], keepdim=True)
        slope = ops.mean(scaled * normal, [2, 3], keepdim=True)
        dx = ops.reshape((scaled - shift - normal * slope) * rstd, shape)
        sums = (ops.sum(gradient * normal, [0, 3]), ops.sum(gradient, [0, 3]))
        return [dx, *(ops.reshape(s, [channels]) for s in sums)]

    return rows.norm_backward(
        Case(
            name="group_norm_backward",
            shape=shape,
            dtype=dtype,
            make=make,
            eager=eager,
            define=define,
            outputs=(dtype,) * 3,
        ),
        size * grouped[3],
        primitive,
        Bound(1e-5, half=1e-4),
    )


TABLE = (
    Row(batch_norm_relu, (128, 112, 112, 64), bf16, main=True),
    Row(batch_norm_relu, (128, 28, 28, 512), bf16),
    Row(batch_norm_relu, (64, 56, 56, 256), f32),
    Row(group_norm_silu, (16, 320, 64, 64), bf16, main=True),
    Row(group_norm_silu, (64, 320, 64, 64), bf16, main=True),
    Row(group_norm_silu, (16, 640, 64, 64), f32),
    Row(instance_norm, (64, 64, 128, 128), f32, main=True),
    Row(batch_norm_backward, (128, 56, 56, 256), bf16, main=True),
    Row(group_norm_backward, (64, 320, 64, 64), bf16, main=True),
)
