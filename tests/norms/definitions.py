"""Backward passes of normalizations, softmax and cross entropy, written in fd.ops.

Each takes the gradient of the result and the saved activations, and returns the gradients of its
inputs in float32 (float64 for float64). Tests and benchmarks use them; they are also examples of
backward passes written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser import DataType, Tensor
from fuser.ops import Ops


def softmax_backward(ops: Ops, dy: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    """Gradient of softmax(x, dim) = y: y * (dy - sum(dy * y))."""
    projected = ops.sum(dy * y, dim, keepdim=True)
    return y * (dy - projected)


def log_softmax_backward(ops: Ops, dy: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    """Gradient of log_softmax(x, dim) = y: dy - exp(y) * sum(dy)."""
    return dy - ops.exp(y) * ops.sum(dy, dim, keepdim=True)


def standardized_backward(
    ops: Ops, gradient: Tensor, normal: Tensor, rstd: Tensor, dims: Sequence[int]
) -> Tensor:
    """Gradient of x through normal = (x - mean) * rstd with mean and variance over `dims`. rstd
    broadcasts against x."""
    shift = ops.mean(gradient, dims, True)
    slope = ops.mean(gradient * normal, dims, True)
    return (gradient - shift - normal * slope) * rstd


def layer_norm_backward(
    ops: Ops, dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias for layer_norm over the dims of weight."""
    rows = list(range(x.ndim - weight.ndim))
    normal = (x - mean) * rstd
    dx = standardized_backward(ops, dy * weight, normal, rstd, range(len(rows), x.ndim))
    return dx, ops.sum(dy * normal, rows), ops.sum(dy, rows)


def rms_norm_backward(
    ops: Ops, dy: Tensor, x: Tensor, rstd: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of x and weight for rms_norm over the dims of weight."""
    rows = list(range(x.ndim - weight.ndim))
    inner = range(len(rows), x.ndim)
    normal, gradient = x * rstd, dy * weight
    slope = ops.mean(gradient * normal, inner, True)
    return (gradient - normal * slope) * rstd, ops.sum(dy * normal, rows)


def group_norm_backward(
    ops: Ops,
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor,
    num_groups: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias for group_norm of x[N, C, ...] with mean and rstd [N, G]."""
    grouped = ops.split_dim(x, 1, [num_groups, -1])
    sizes = [grouped.size(1), grouped.size(2)]
    gradient = ops.split_dim(dy, 1, sizes)
    inner = list(range(2, grouped.ndim))
    samples = [0, *range(3, grouped.ndim)]
    mean, rstd = (ops.keep_dims(t, grouped, inner) for t in (mean, rstd))
    scale = ops.keep_dims(ops.split_dim(weight, 0, sizes), grouped, samples)
    normal = (grouped - mean) * rstd
    dx = standardized_backward(ops, gradient * scale, normal, rstd, inner)
    channels = x.size(1)
    return (
        ops.merge_dims(dx, 1, channels),
        ops.merge_dims(ops.sum(gradient * normal, samples), 0, channels),
        ops.merge_dims(ops.sum(gradient, samples), 0, channels),
    )


def batch_norm_backward(
    ops: Ops,
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor,
    channels_last: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias for batch_norm in training with mean and rstd [C]. All three
    use the sums over a channel."""
    channel = x.ndim - 1 if channels_last else 1
    dims = [d for d in range(x.ndim) if d != channel]

    def along(t: Tensor) -> Tensor:
        return ops.keep_dims(t, x, dims)

    count: Any = 1
    for d in dims:
        count = x.size(d) * count
    normal = (x - along(mean)) * along(rstd)
    dbias = ops.sum(dy, dims)
    dweight = ops.sum(dy * normal, dims)
    shift, slope = along(dbias / count), along(dweight / count)
    dx = (dy - shift - normal * slope) * along(rstd * weight)
    return dx, dweight, dbias


def cross_entropy_backward(
    ops: Ops,
    dloss: Tensor,
    logits: Tensor,
    target: Tensor,
    log_total: Tensor,
    ignore_index: int = -100,
) -> Tensor:
    """Gradient of the logits for cross_entropy(logits[N, C], target[N], reduction="none") with the
    saved logsumexp(logits, 1): (softmax - one_hot) * dloss. Reads and writes [N, C] once."""
    column = [False, True]
    ignored = ops.eq(target, ignore_index)
    share = ops.broadcast(ops.where(ignored, 0.0, dloss), column)
    classes = ops.broadcast(ops.iota(logits.size(1), dtype=DataType.Int), [True, False])
    hot = ops.eq(classes, ops.broadcast(target, column))
    probability = ops.exp(logits - ops.broadcast(log_total, column))
    return (probability - ops.where(hot, 1.0, 0.0)) * share
