"""torch.nn's instance norms, with one definition for forward and one for backward.

Definitions are cached by rank and dtypes and serve all sizes and layouts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from fuser.definition import FusionDefinition

__all__ = ["InstanceNorm1dNVFuser", "InstanceNorm2dNVFuser", "InstanceNorm3dNVFuser"]

Dtypes = tuple[torch.dtype | None, ...]  # dtypes of optional arguments


def _define(fd: FusionDefinition, dtypes: Dtypes, rank: int = 1) -> list[Any]:
    return [None if t is None else fd.define_tensor([-1] * rank, True, t) for t in dtypes]


@cache
def _forward(
    rank: int, x_dtype: torch.dtype, others: Dtypes, use_input_stats: bool
) -> FusionDefinition:
    """Definition of the forward pass: maps x, the given ones of weight, bias and running
    statistics, momentum and eps to (result, mean, 1 / deviation).
    """
    with FusionDefinition() as fd:
        (x,) = _define(fd, (x_dtype,), rank)
        w, b, mean, var = _define(fd, others)
        momentum, eps = fd.define_scalar(), fd.define_scalar()
        y, mean, rstd = fd.ops.instance_norm(x, w, b, mean, var, momentum, eps, use_input_stats)
        for result in (fd.ops.cast(y, x_dtype), mean, rstd):
            fd.add_output(result)
    return fd


@cache
def _backward(
    rank: int,
    x_dtype: torch.dtype,
    statistics: Dtypes,
    weight: torch.dtype | None,
    use_input_stats: bool,
) -> FusionDefinition:
    """Definition of the backward pass: maps (gradient of the result, x, mean, 1 / deviation,
    weight) to the gradients of x, weight and bias.
    """
    with FusionDefinition() as fd:
        o = fd.ops
        grad, x = _define(fd, (x_dtype, x_dtype), rank)
        mean, rstd = _define(fd, statistics, 2 if use_input_stats else 1)
        (w,) = _define(fd, (weight,))
        space = list(range(2, rank))
        of_channel = [d != 1 for d in range(rank)]
        of_statistic = [d >= 2 for d in range(rank)] if use_input_stats else of_channel
        scale = o.broadcast(rstd, of_statistic)
        normal = o.mul(o.sub(x, o.broadcast(mean, of_statistic)), scale)
        grad_normal = grad if w is None else o.mul(grad, o.broadcast(w, of_channel))
        away = grad_normal
        if use_input_stats:
            along = o.mul(normal, o.mean(o.mul(grad_normal, normal), space, True))
            away = o.sub(o.sub(grad_normal, o.mean(grad_normal, space, True)), along)
        fd.add_output(o.cast(o.mul(away, scale), x_dtype))
        for of_each in (o.mul(grad, normal), grad):
            fd.add_output(o.cast(o.sum(of_each, [0, *space]), weight or x_dtype))
    return fd


class _InstanceNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        running: tuple[torch.Tensor | None, torch.Tensor | None],
        use_input_stats: bool,
        momentum: float,
        eps: float,
    ) -> torch.Tensor:
        others = (weight, bias, *running)
        dtypes = tuple(None if t is None else t.dtype for t in others)
        fd = _forward(x.ndim, x.dtype, dtypes, use_input_stats)
        given = [t for t in others if t is not None]
        y, mean, rstd = fd.execute([x, *given, momentum, eps])
        ctx.save_for_backward(x, mean, rstd, weight)
        ctx.use_input_stats = use_input_stats
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, mean, rstd, weight = ctx.saved_tensors
        of_weight = None if weight is None else weight.dtype
        statistics = (mean.dtype, rstd.dtype)
        fd = _backward(x.ndim, x.dtype, statistics, of_weight, ctx.use_input_stats)
        given = [] if weight is None else [weight]
        found = fd.execute([grad, x, mean, rstd, *given])
        wanted = [g if n else None for g, n in zip(found, ctx.needs_input_grad, strict=False)]
        return (*wanted, None, None, None, None)


class _Fused:
    """Mixin in front of a torch.nn class that computes its result by definitions."""

    def _apply_instance_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
        tracked = (self.running_mean, self.running_var)
        use_input_stats = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        arguments = (x, self.weight, self.bias, tracked, use_input_stats, momentum, self.eps)
        result: torch.Tensor = _InstanceNorm.apply(*arguments)  # type: ignore[no-untyped-call]
        return result


class InstanceNorm1dNVFuser(_Fused, torch.nn.InstanceNorm1d):
    """torch.nn.InstanceNorm1d."""


class InstanceNorm2dNVFuser(_Fused, torch.nn.InstanceNorm2d):
    """torch.nn.InstanceNorm2d."""


class InstanceNorm3dNVFuser(_Fused, torch.nn.InstanceNorm3d):
    """torch.nn.InstanceNorm3d."""
