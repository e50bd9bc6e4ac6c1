"""The family of norms of images: batch norm in training, channels-last, with relu; group norm with
silu.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import peers
from benchmarks.case import Bound, Case, Data, Goal, Row, Shape
from benchmarks.peers import EPS

bf16, f32 = torch.bfloat16, torch.float32

_MOMENTUM = 0.1
# x is read twice where it does not fit on the chip, which bounds this at 67% of a copy.
_BATCH_NORM = 0.58
_GROUP_NORM = 0.80


def _first(results: Any) -> Any:
    return results[0] if isinstance(results, tuple | list) else results


def batch_norm_relu(shape: Shape, dtype: torch.dtype) -> Case:
    """relu of the norm of [N, H, W, C]; the running statistics are updated."""
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
        needs=("batch_norm",),
        goal=Goal(copy=_BATCH_NORM),
    )


def group_norm_silu(shape: Shape, dtype: torch.dtype) -> Case:
    """silu of the norm of [N, C, H, W] in 32 groups of channels, or in groups of one."""
    channels = shape[1]
    groups = 32 if channels % 32 == 0 else channels

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
        # silu of a norm of -5 that is rounded first is off by more than its own rounding.
        bounds=(Bound(1e-5, half=4e-3),),
        peers={"liger": peers.liger_group_norm_silu(groups)},
        needs=("group_norm",),
        goal=Goal(copy=_GROUP_NORM),
    )


TABLE = (
    Row(batch_norm_relu, (128, 112, 112, 64), bf16, main=True),
    Row(batch_norm_relu, (128, 28, 28, 512), bf16),
    Row(batch_norm_relu, (64, 56, 56, 256), f32),
    Row(group_norm_silu, (16, 320, 64, 64), bf16, main=True),
    Row(group_norm_silu, (64, 320, 64, 64), bf16, main=True),
    Row(group_norm_silu, (16, 640, 64, 64), f32),
)
