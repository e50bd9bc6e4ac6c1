"""The families of norms over rows: layer and RMS norm, with a residual, and their backward passes.

The saved statistics are results of the forward and inputs of the backward pass, in float32, as in a
training step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import contenders
from benchmarks.case import Bound, Case, Data, Goal, Row, Shape
from benchmarks.contenders import EPS
from benchmarks.families import rows

bf16, f32 = torch.bfloat16, torch.float32

_BACKWARD = 0.88  # fraction of a copy's speed
_WIDE_LAYER_NORM_BACKWARD = 0.80  # for rows of 16,384 elements or more
_LONG_BACKWARD = 0.75  # for rows of 32,768 elements or more, which exceed one block's memory
# Fraction of a copy's speed if a tensor is transposed: its tiles are staged through shared memory.
_ACROSS, _ACROSS_BACKWARD = 0.70, 0.60

# Contenders may round the residual sum to half before the norm: half a rounding step of a number
# below 8, times a weight of 4.
_RESIDUAL = Bound(1e-5, half=6e-2)


def layer_norm(shape: Shape, dtype: torch.dtype) -> Case:
    n = shape[-1]

    def eager(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return torch.native_layer_norm(x, [n], weight, bias, EPS)

    return Case(
        name="layer_norm",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(s, dtype) for s in (shape, (n,), (n,))],
        eager=eager,
        define=lambda ops, x, weight, bias: ops.layer_norm(x, [n], weight, bias, EPS),
        outputs=(dtype, f32, f32),
        peers={"quack": contenders.quack_layer_norm, "liger": contenders.liger_layer_norm},
        goal=rows.forward_goal("layer_norm", shape, dtype, widest_but_one=0.90),
    )


def rms_norm(shape: Shape, dtype: torch.dtype) -> Case:
    n = shape[-1]

    def compiled(x: Tensor, weight: Tensor) -> list[Tensor]:
        wide = x.float()
        rstd = torch.rsqrt(wide.square().mean(1, keepdim=True) + EPS)
        return [(wide * rstd * weight).to(x.dtype), rstd]

    return Case(
        name="rms_norm",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(s, dtype) for s in (shape, (n,))],
        eager=lambda x, weight: torch.ops.aten._fused_rms_norm(x, [n], weight, EPS),
        compiled=compiled,
        define=lambda ops, x, weight: ops.rms_norm(x, [n], weight, EPS),
        outputs=(dtype, f32),
        peers={"quack": contenders.quack_rms_norm, "liger": contenders.liger_rms_norm},
        goal=rows.forward_goal("rms_norm", shape, dtype),
    )


def add_layer_norm(shape: Shape, dtype: torch.dtype) -> Case:
    """The sum of two tensors, and its layer norm."""
    n = shape[-1]

    def eager(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        total = x + residual
        return [F.layer_norm(total, [n], weight, bias, EPS), total]

    def define(ops: Any, x: Any, residual: Any, weight: Any, bias: Any) -> list[Any]:
        total = x + residual
        return [ops.layer_norm(total, [n], weight, bias, EPS)[0], total]

    return Case(
        name="add_layer_norm",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(s, dtype) for s in (shape, shape, (n,), (n,))],
        eager=eager,
        define=define,
        outputs=(dtype, dtype),
        bounds=(_RESIDUAL, Bound()),
    )


def dropout_add_layer_norm(shape: Shape, dtype: torch.dtype) -> Case:
    """Layer norm of dropout(x + bias) + residual, with probability 0 as in
    pointwise.bias_dropout_add."""
    n = shape[-1]

    def eager(x: Tensor, b: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        total = x + b + residual
        return [F.layer_norm(total, [n], weight, bias, EPS), total]

    def define(ops: Any, x: Any, b: Any, residual: Any, weight: Any, bias: Any) -> list[Any]:
        total = ops.dropout(x + b, 0.0)[0] + residual
        return [ops.layer_norm(total, [n], weight, bias, EPS)[0], total]

    return Case(
        name="dropout_add_layer_norm",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(s, dtype) for s in (shape, (n,), shape, (n,), (n,))],
        eager=eager,
        define=define,
        outputs=(dtype, dtype),
        bounds=(_RESIDUAL, Bound()),
    )


def add_rms_norm(shape: Shape, dtype: torch.dtype) -> Case:
    """The sum of two tensors, and its RMS norm."""
    n = shape[-1]

    def eager(x: Tensor, residual: Tensor, weight: Tensor) -> list[Tensor]:
        total = x + residual
        return [F.rms_norm(total, [n], weight, EPS), total]

    def define(ops: Any, x: Any, residual: Any, weight: Any) -> list[Any]:
        total = x + residual
        return [ops.rms_norm(total, [n], weight, EPS)[0], total]

    return Case(
        name="add_rms_norm",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(s, dtype) for s in (shape, shape, (n,))],
        eager=eager,
        define=define,
        outputs=(dtype, dtype),
        bounds=(_RESIDUAL, Bound()),
        peers={"quack": contenders.quack_add_rms_norm, "liger": contenders.liger_add_rms_norm},
    )


def layer_norm_across(stored: bool) -> Callable[[Shape, torch.dtype], Case]:
    """The sum of two tensors, and its layer norm over the channels of [images, tokens, channels],
    as in Mixer. One summand is stored as [images, channels, tokens]; with `stored` the norm is
    instead."""

    def build(shape: Shape, dtype: torch.dtype) -> Case:
        n = shape[2]
        across = (shape[0], n, shape[1])

        def eager(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
            total = x + (y if stored else y.transpose(1, 2))
            norm = F.layer_norm(total, [n], weight, bias, EPS)
            return [norm.transpose(1, 2).contiguous() if stored else norm, total]

        def define(ops: Any, x: Any, y: Any, weight: Any, bias: Any) -> list[Any]:
            total = x + (y if stored else ops.permute(y, [0, 2, 1]))
            norm = ops.layer_norm(total, [n], weight, bias, EPS)[0]
            if stored:
                norm = ops.stride_order(ops.cast(ops.permute(norm, [0, 2, 1]), dtype), [2, 1, 0])
            return [norm, total]

        return Case(
            name="add_layer_norm_stored_across" if stored else "add_layer_norm_across",
            shape=shape,
            dtype=dtype,
            make=lambda data: [
                data.normal(s, dtype) for s in (shape, shape if stored else across, (n,), (n,))
            ],
            eager=eager,
            define=define,
            outputs=(dtype, dtype),
            bounds=(_RESIDUAL, Bound()),
            goal=Goal(copy=_ACROSS),
        )

    return build


def _gradients(
    dy: Any, hat: Any, rstd: Any, weight: Any, mean: Callable[[Any], Any], centred: bool
) -> Any:
    """dx for y = hat * weight + bias with hat = (x - its mean) * rstd (centred), or x * rstd.
    mean() reduces each row and keeps the dim."""
    wdy = dy * weight
    dx = wdy - hat * mean(hat * wdy)
    return (dx - mean(wdy) if centred else dx) * rstd


def layer_norm_backward(shape: Shape, dtype: torch.dtype) -> Case:
    """dx, dweight and dbias from dy, x, the saved statistics and the weight."""
    n = shape[1]

    def make(data: Data) -> list[Tensor]:
        dy, x, weight = (data.normal(s, dtype) for s in (shape, shape, (n,)))
        variance, mean = torch.var_mean(x.float(), 1, correction=0, keepdim=True)
        return [dy, x, mean, torch.rsqrt(variance + EPS), weight]

    def primitive(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor) -> list[Any]:
        dy, x, weight, dtype = *(t.to(rstd.dtype) for t in (dy, x, weight)), x.dtype
        hat = (x - mean) * rstd
        dx = _gradients(dy, hat, rstd, weight, lambda t: t.mean(1, keepdim=True), centred=True)
        results = [dx, (dy * hat).sum(0), dy.sum(0)]
        return [t.to(dtype) for t in results]

    def eager(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor) -> Any:
        if not x.is_cuda:  # on the CPU it expects statistics of the dtype of x
            return primitive(dy, x, mean, rstd, weight)
        return torch.ops.aten.native_layer_norm_backward(
            dy, x, [n], mean, rstd, weight, weight, [True, True, True]
        )

    def define(ops: Any, dy: Any, x: Any, mean: Any, rstd: Any, weight: Any) -> list[Any]:
        hat = (x - mean) * rstd
        dx = _gradients(
            dy, hat, rstd, weight, lambda t: ops.mean(t, [1], keepdim=True), centred=True
        )
        return [dx, ops.sum(dy * hat, [0]), ops.sum(dy, [0])]

    return rows.norm_backward(
        Case(
            name="layer_norm_backward",
            shape=shape,
            dtype=dtype,
            make=make,
            eager=eager,
            define=define,
            outputs=(dtype,) * 3,
            peers={"liger": contenders.liger_layer_norm_backward},
            goal=_backward_goal(n, _WIDE_LAYER_NORM_BACKWARD if n >= 16384 else _BACKWARD),
        ),
        shape[0],
        primitive,
    )


def layer_norm_backward_across(shape: Shape, dtype: torch.dtype) -> Case:
    """layer_norm_backward over the channels of [images, tokens, channels]; dy is stored as [images,
    channels, tokens], and the residual's gradient is added to dx."""
    images, tokens, n = shape

    def make(data: Data) -> list[Tensor]:
        dy, x, past, weight = (
            data.normal(s, dtype) for s in ((images, n, tokens), shape, shape, (n,))
        )
        variance, mean = torch.var_mean(x.float(), 2, correction=0, keepdim=True)
        return [dy, x, past, mean, torch.rsqrt(variance + EPS), weight]

    def eager(
        dy: Tensor, x: Tensor, past: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor
    ) -> Any:
        dy, x, past, weight, dtype = *(t.to(rstd.dtype) for t in (dy, x, past, weight)), x.dtype
        dy, hat = dy.transpose(1, 2), (x - mean) * rstd
        dx = _gradients(dy, hat, rstd, weight, lambda t: t.mean(2, keepdim=True), centred=True)
        return [t.to(dtype) for t in (past + dx, (dy * hat).sum((0, 1)), dy.sum((0, 1)))]

    def define(
        ops: Any, dy: Any, x: Any, past: Any, mean: Any, rstd: Any, weight: Any
    ) -> list[Any]:
        dy, hat = ops.permute(dy, [0, 2, 1]), (x - mean) * rstd
        dx = _gradients(
            dy, hat, rstd, weight, lambda t: ops.mean(t, [2], keepdim=True), centred=True
        )
        return [past + dx, ops.sum(dy * hat, [0, 1]), ops.sum(dy, [0, 1])]

    return rows.norm_backward(
        Case(
            name="layer_norm_backward_across",
            shape=shape,
            dtype=dtype,
            make=make,
            eager=eager,
            define=define,
            outputs=(dtype,) * 3,
            goal=Goal(copy=_ACROSS_BACKWARD),
        ),
        images * tokens,
    )


def rms_norm_backward(shape: Shape, dtype: torch.dtype) -> Case:
    """dx and dweight from dy, x, the saved reciprocal root and the weight."""
    n = shape[1]

    def make(data: Data) -> list[Tensor]:
        dy, x, weight = (data.normal(s, dtype) for s in (shape, shape, (n,)))
        square = x.float().square().mean(1, keepdim=True)
        return [dy, x, torch.rsqrt(square + EPS), weight]

    def primitive(dy: Tensor, x: Tensor, rstd: Tensor, weight: Tensor) -> list[Any]:
        dy, x, weight, dtype = *(t.to(rstd.dtype) for t in (dy, x, weight)), x.dtype
        hat = x * rstd
        dx = _gradients(dy, hat, rstd, weight, lambda t: t.mean(1, keepdim=True), centred=False)
        return [t.to(dtype) for t in (dx, (dy * hat).sum(0))]

    def eager(dy: Tensor, x: Tensor, rstd: Tensor, weight: Tensor) -> Any:
        if not x.is_cuda:  # not available on the CPU
            return primitive(dy, x, rstd, weight)
        return torch.ops.aten._fused_rms_norm_backward(dy, x, [n], rstd, weight, [True, True])

    def define(ops: Any, dy: Any, x: Any, rstd: Any, weight: Any) -> list[Any]:
        hat = x * rstd
        dx = _gradients(
            dy, hat, rstd, weight, lambda t: ops.mean(t, [1], keepdim=True), centred=False
        )
        return [dx, ops.sum(dy * hat, [0])]

    return rows.norm_backward(
        Case(
            name="rms_norm_backward",
            shape=shape,
            dtype=dtype,
            make=make,
            eager=eager,
            define=define,
            outputs=(dtype,) * 2,
            peers={
                "quack": contenders.quack_rms_norm_backward,
                "liger": contenders.liger_rms_norm_backward,
            },
            goal=_backward_goal(n, _BACKWARD),
        ),
        shape[0],
        primitive,
    )


def _backward_goal(length: int, share: float) -> Goal:
    return Goal(copy=_LONG_BACKWARD if length >= 32768 else share)


LAYER_NORM = (
    *rows.forward_rows(layer_norm),
    Row(layer_norm, (524288, 100), bf16, main=True),
    Row(add_layer_norm, (32768, 1024), bf16),
    Row(add_layer_norm, (16384, 4096), bf16, main=True),
    Row(add_layer_norm, (8192, 4096), f32),
    Row(dropout_add_layer_norm, (8192, 4096), bf16),
    Row(dropout_add_layer_norm, (8192, 1024), f32, main=True),
    Row(layer_norm_across(stored=False), (64, 196, 768), bf16, main=True),
    Row(layer_norm_across(stored=True), (64, 196, 768), bf16, main=True),
)
RMS_NORM = (
    *rows.forward_rows(rms_norm),
    Row(add_rms_norm, (32768, 1024), bf16),
    Row(add_rms_norm, (16384, 4096), bf16, main=True),
    Row(add_rms_norm, (8192, 4096), f32),
)
BACKWARD = (
    Row(layer_norm_backward, (32768, 1024), bf16, main=True),
    Row(layer_norm_backward, (16384, 4096), bf16, main=True),
    Row(layer_norm_backward, (8192, 16384), bf16),
    Row(layer_norm_backward, (2048, 65536), bf16),
    Row(layer_norm_backward, (32768, 1024), f32),
    Row(layer_norm_backward, (8192, 4096), f32),
    Row(layer_norm_backward_across, (64, 196, 768), bf16, main=True),
    Row(rms_norm_backward, (32768, 1024), bf16),
    Row(rms_norm_backward, (16384, 4096), bf16, main=True),
    Row(rms_norm_backward, (8192, 16384), bf16),
    Row(rms_norm_backward, (2048, 65536), bf16),
    Row(rms_norm_backward, (8192, 4096), f32),
)
