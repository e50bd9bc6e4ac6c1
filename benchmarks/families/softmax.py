"""The families of softmax: forward, and softmax and log_softmax backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import contenders
from benchmarks.case import Bound, Case, Data, Goal, Row, Shape, key
from benchmarks.families import rows

bf16, f32 = torch.bfloat16, torch.float32


def softmax(shape: Shape, dtype: torch.dtype) -> Case:
    return Case(
        name="softmax",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype)],
        eager=lambda x: torch.softmax(x, -1),
        define=lambda ops, x: ops.softmax(x, 1),
        outputs=(dtype,),
        bounds=(Bound(1e-5 / shape[-1]),),
        peers={"quack": contenders.quack_softmax, "liger": contenders.liger_softmax},
        goal=rows.forward_goal("softmax", shape, dtype),
    )


def log_softmax(shape: Shape, dtype: torch.dtype) -> Case:
    return Case(
        name="log_softmax",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype)],
        eager=lambda x: torch.log_softmax(x, -1),
        define=lambda ops, x: ops.log_softmax(x, 1),
        outputs=(dtype,),
    )


def dy_and_y(
    forward: Callable[[Tensor, int], Tensor], shape: Shape, dtype: torch.dtype
) -> Callable[[Data], list[Tensor]]:
    def make(data: Data) -> list[Tensor]:
        y = forward(data.normal(shape, f32), -1)
        return [data.normal(shape, dtype), y.to(dtype)]

    return make


def softmax_backward(shape: Shape, dtype: torch.dtype) -> Case:
    """dx from dy and y."""
    return Case(
        name="softmax_backward",
        shape=shape,
        dtype=dtype,
        make=dy_and_y(torch.softmax, shape, dtype),
        eager=lambda dy, y: torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype),
        define=lambda ops, dy, y: (dy - ops.sum(dy * y, [1], keepdim=True)) * y,
        outputs=(dtype,),
        # y reaches 60 times its mean, and dy - sum cancels.
        bounds=(Bound(1e-4 / shape[-1]),),
        peers={
            "quack": contenders.quack_softmax_backward,
            "liger": contenders.liger_softmax_backward,
        },
        goal=Goal(aligned=key("softmax_backward", dtype, (shape[0], 4096)))
        if shape[1] == 4097
        else Goal(),
    )


def log_softmax_backward(shape: Shape, dtype: torch.dtype) -> Case:
    """dx from dy and y."""
    return Case(
        name="log_softmax_backward",
        shape=shape,
        dtype=dtype,
        make=dy_and_y(torch.log_softmax, shape, dtype),
        eager=lambda dy, y: torch.ops.aten._log_softmax_backward_data(dy, y, -1, y.dtype),
        define=lambda ops, dy, y: dy - ops.exp(y) * ops.sum(dy, [1], keepdim=True),
        outputs=(dtype,),
    )


FORWARD = (
    *rows.forward_rows(softmax),
    Row(softmax, (1048576, 17), f32, main=True),
    Row(softmax, (262144, 197), bf16),
    Row(log_softmax, (16384, 4096), bf16, main=True),
    Row(log_softmax, (4096, 50256), bf16),
    Row(log_softmax, (8192, 4096), f32),
)
BACKWARD = (
    Row(softmax_backward, (32768, 1024), bf16),
    Row(softmax_backward, (16384, 4096), bf16, main=True),
    Row(softmax_backward, (8192, 16384), bf16),
    Row(softmax_backward, (4096, 65536), bf16, main=True),
    Row(softmax_backward, (16384, 4097), bf16),
    Row(softmax_backward, (8192, 4096), f32, main=True),
    Row(log_softmax_backward, (16384, 4096), bf16, main=True),
    Row(log_softmax_backward, (8192, 4096), f32),
)
