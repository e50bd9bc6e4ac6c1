"""The family of losses: cross-entropy of rows of logits with one loss per row, forward and
backward; a distillation loss."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import contenders
from benchmarks.case import Bound, Case, Data, Goal, Row, Shape, key

bf16, f32 = torch.bfloat16, torch.float32

_SHARE = 0.97  # fraction of a copy's speed


def _targets(data: Data, shape: Shape) -> Tensor:
    return torch.randint(0, shape[1], (shape[0],), device=data.device)


def cross_entropy(shape: Shape, dtype: torch.dtype) -> Case:
    def define(ops: Any, logits: Any, target: Any) -> Any:
        loss = ops.cross_entropy(logits, target, reduction="none")
        return loss[0] if isinstance(loss, tuple | list) else loss

    odd = shape[1] == 50257
    return Case(
        name="cross_entropy",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype), _targets(data, shape)],
        eager=lambda logits, target: F.cross_entropy(logits, target, reduction="none"),
        define=define,
        outputs=(f32,),
        peers={"quack": contenders.quack_cross_entropy, "liger": contenders.liger_cross_entropy},
        reads=True,
        goal=Goal(aligned=key("cross_entropy", dtype, (shape[0], 50256)))
        if odd
        else Goal(copy=_SHARE if shape[1] == 128256 else None),
    )


def cross_entropy_backward(shape: Shape, dtype: torch.dtype) -> Case:
    """dlogits from the logits, targets, log-sum-exp and the gradient of each loss.

    No reduction: exponentials and a comparison with the coordinate.
    """
    rows, classes = shape

    def make(data: Data) -> list[Tensor]:
        logits = data.normal(shape, dtype)
        lse = torch.logsumexp(logits.float(), 1, keepdim=True)
        return [logits, _targets(data, shape)[:, None], lse, data.normal((rows, 1), f32)]

    def eager(logits: Tensor, target: Tensor, lse: Tensor, dloss: Tensor) -> Tensor:
        p = torch.exp(logits.to(lse.dtype) - lse)
        hit = torch.arange(classes, device=logits.device) == target
        return (torch.where(hit, p - 1, p) * dloss).to(logits.dtype)

    def define(ops: Any, logits: Any, target: Any, lse: Any, dloss: Any) -> Any:
        p = ops.exp(logits - lse)
        column = ops.broadcast(ops.iota(ops.size(logits, 1)), [True, False])
        return ops.where(ops.eq(column, target), p - 1.0, p) * dloss

    return Case(
        name="cross_entropy_backward",
        shape=shape,
        dtype=dtype,
        make=make,
        eager=eager,
        define=define,
        outputs=(dtype,),
        bounds=(Bound(1e-5 / classes),),
        peers={"quack": contenders.quack_cross_entropy_backward},
    )


def distillation(shape: Shape, dtype: torch.dtype) -> Case:
    """The KL divergence of a student's class probabilities from a teacher's, summed over all
    rows."""

    def eager(student: Tensor, teacher: Tensor) -> Tensor:
        wide = torch.promote_types(student.dtype, f32)
        logs = [F.log_softmax(x.to(wide), 1) for x in (student, teacher)]
        return F.kl_div(*logs, reduction="sum", log_target=True) / shape[0]

    def define(ops: Any, student: Any, teacher: Any) -> Any:
        a, b = (ops.log_softmax(ops.cast(x, f32), 1) for x in (student, teacher))
        return ops.sum(ops.exp(b) * (b - a), [0, 1]) / shape[0]

    return Case(
        name="distillation",
        shape=shape,
        dtype=dtype,
        make=lambda data: [data.normal(shape, dtype), data.normal(shape, dtype)],
        eager=eager,
        define=define,
        outputs=(f32,),
        reads=True,
    )


TABLE = (
    Row(cross_entropy, (8192, 128256), bf16, main=True),
    Row(cross_entropy, (8192, 50256), bf16),
    Row(cross_entropy, (8192, 50257), bf16, main=True),
    Row(cross_entropy, (8192, 32000), bf16),
    Row(cross_entropy, (4096, 128256), f32),
    Row(distillation, (8192, 32000), bf16, main=True),
    Row(cross_entropy_backward, (8192, 128256), bf16, main=True),
    Row(cross_entropy_backward, (8192, 50257), bf16),
)
