"""Rows of composite ops that torch decomposes before autograd and tracing; only TorchScript keeps
them. Each row calls other rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fuser import DataType, Tensor, Unsupported
from fuser.adapters.aten import factories, losses, pointwise, reductions, shapes
from fuser.adapters.aten.emitter import Emitter, known

Row = Callable[..., Any]
_PARTS = {
    **pointwise.ROWS,
    **shapes.ROWS,
    **shapes.VIEWS,
    **factories.ROWS,
    **reductions.ROWS,
    **losses.ROWS,
}


def _by(e: Emitter, name: str, *args: Any, **named: Any) -> Any:
    """Calls the row of that name."""
    return _PARTS[f"aten.{name}"](e, *args, **named)


# ---- movements


def _pad(
    e: Emitter, x: Tensor, widths: Sequence[Any], mode: str = "constant", value: Any = None
) -> Tensor:
    if mode != "constant":
        raise Unsupported(f"pad in mode {mode}")
    return _by(e, "constant_pad_nd.default", x, widths, 0.0 if value is None else value)


def _tile(e: Emitter, x: Tensor, dims: Sequence[Any]) -> Tensor:
    return _by(e, "repeat.default", x, [*[1] * (x.ndim - len(dims)), *dims])


def _repeat_interleave(
    e: Emitter, x: Tensor, repeats: Any, dim: int | None = None, **_: Any
) -> Tensor:
    if dim is None or x.ndim == 0:
        x, dim = _by(e, "flatten.using_ints", x), 0
    dim %= x.ndim
    wide = _by(e, "unsqueeze.default", x, dim + 1)
    sizes = [repeats if d == dim + 1 else -1 for d in range(wide.ndim)]
    return _by(e, "flatten.using_ints", _by(e, "expand.default", wide, sizes), dim, dim + 1)


def _at_least(e: Emitter, x: Tensor, rank: int) -> Tensor:
    """Adds dims of size 1 at the positions of torch's atleast_1d, 2d and 3d."""
    if x.ndim == 0:
        x = _by(e, "unsqueeze.default", x, 0)
    if rank > 1 and x.ndim == 1:
        x = _by(e, "unsqueeze.default", x, 0)
    return _by(e, "unsqueeze.default", x, 2) if rank > 2 and x.ndim == 2 else x


def _stacked(rank: int, dim: int) -> Row:
    def write(e: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        parts = [_at_least(e, t, rank) for t in tensors]
        along = 0 if rank == 1 and parts[0].ndim == 1 else dim
        return _by(e, "cat.default", parts, along)

    return write


def _outer(e: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return _by(e, "mul.Tensor", _by(e, "unsqueeze.default", a, 1), b)


def _adjoint(e: Emitter, x: Tensor) -> Tensor:
    if x.dtype() in (DataType.ComplexFloat, DataType.ComplexDouble):
        raise Unsupported("lazily conjugated views")
    return _by(e, "transpose.int", x, -2, -1)


# ---- reductions


def _pair_of_extremes(
    e: Emitter, x: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    low, high = (_by(e, f"{op}.default", x, dim, keepdim) for op in ("amin", "amax"))
    return low, high


def _mean_of_numbers(
    e: Emitter, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    numbers = _by(e, "logical_not.default", _by(e, "isnan.default", x))
    count = _by(e, "sum.dim_IntList", numbers, dim, keepdim)
    return _by(e, "div.Tensor", _by(e, "nansum.default", x, dim, keepdim, dtype=dtype), count)


def _norm(
    e: Emitter,
    x: Tensor,
    order: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """linalg.norm of vectors; a tensor without `order` counts as one vector."""
    if order is not None and (x.ndim if dim is None else len(e.dims(dim, x.ndim))) != 1:
        raise Unsupported("matrix norms")
    power = 2 if order is None else order
    return _by(e, "linalg_vector_norm.default", x, power, dim, keepdim, dtype=dtype)


def _distance(e: Emitter, a: Tensor, b: Tensor, p: Any = 2) -> Tensor:
    return _by(e, "linalg_vector_norm.default", _by(e, "sub.Tensor", a, b), p)


def _pairwise_distance(
    e: Emitter, a: Tensor, b: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    apart = _by(e, "add.Scalar", _by(e, "sub.Tensor", a, b), eps)
    return _by(e, "linalg_vector_norm.default", apart, p, [-1], keepdim)


def _broadcast(e: Emitter, x: Tensor, other: Tensor) -> Tensor:
    """Expands x to the broadcast shape of x and `other`."""
    sizes, others = ([1] * (max(x.ndim, other.ndim) - t.ndim) + e.sizes(t) for t in (x, other))
    joint = [m if known(n) == 1 else n for n, m in zip(sizes, others, strict=True)]
    return _by(e, "expand.default", x, joint)


def _cosine_similarity(e: Emitter, a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    dtype = e.common([a, b])
    if dtype.kind != "Float":
        raise Unsupported("cosine_similarity of operands that are not real floats")

    def direction(x: Tensor, other: Tensor) -> Tensor:
        wide = _broadcast(e, e.narrow(e.computed(x, dtype), dtype), other)
        length = _by(e, "linalg_vector_norm.default", wide, 2, [dim], True)
        least = e.rounded(eps, dtype)
        return _by(e, "div.Tensor", wide, _by(e, "clamp_min.default", length, least))

    product = _by(e, "mul.Tensor", direction(a, b), direction(b, a))
    return _by(e, "sum.dim_IntList", product, [dim])


# ---- losses


def _loss(function: Callable[..., Any]) -> Row:
    """A loss of two tensors: function(fd.ops, x, target, numbers), then the reduction."""

    def write(e: Emitter, x: Tensor, y: Tensor, reduction: int, *numbers: Any) -> Tensor:
        value = e.pointwise(lambda a, b: function(e.ops, a, b, *numbers), x, y, rule="float")
        return losses.reduced(e, value, reduction)

    return write


def _divergence(
    e: Emitter, x: Tensor, y: Tensor, reduction: int = 1, *, log_target: bool = False
) -> Tensor:
    def loss(ops: Any, a: Any, b: Any) -> Any:
        if log_target:
            return ops.mul(ops.exp(b), ops.sub(b, a))
        return ops.sub(ops.xlogy(b, b), ops.mul(b, a))

    return _loss(loss)(e, x, y, reduction)


def _hinge_embedding(
    e: Emitter, x: Tensor, y: Tensor, margin: float = 1.0, reduction: int = 1
) -> Tensor:
    """The target, of any dtype, only selects. The margin is rounded to the dtype of x."""
    ops, most = e.ops, e.computed(margin, x.dtype())
    unlike, like = (_by(e, "ne.Scalar", y, other) for other in (1, -1))

    def loss(a: Any) -> Any:
        beyond = ops.where(unlike, ops.maximum(ops.sub(most, a), 0), 0)
        return ops.add(beyond, ops.where(like, a, 0))

    return losses.reduced(e, e.pointwise(loss, x), reduction)


def _margin_ranking(
    e: Emitter, a: Tensor, b: Tensor, y: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    ops = e.ops
    value = e.pointwise(
        lambda u, v, t: ops.maximum(ops.add(ops.mul(ops.neg(t), ops.sub(u, v)), margin), 0.0),
        *(a, b, y),
        rule="float",
    )
    return losses.reduced(e, value, reduction)


def _poisson(
    e: Emitter, x: Tensor, y: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    dtype = e.to_float(x.dtype())  # also for an integer x with a half-precision target

    def loss(ops: Any, a: Any, b: Any) -> Any:
        if log_input:
            value = ops.sub(ops.exp(a), ops.mul(b, a))
        else:
            value = ops.sub(a, ops.mul(b, ops.log(ops.add(a, eps))))
        if not full:
            return value
        stirling = ops.add(
            ops.sub(ops.mul(b, ops.log(b)), b),
            ops.mul(ops.log(ops.mul(b, 2 * math.pi)), 0.5),
        )
        return ops.add(value, ops.where(ops.le(b, 1), 0.0, stirling))

    return _loss(loss)(e, e.narrow(e.computed(x, dtype), dtype), y, reduction)


def _of_classes(
    e: Emitter,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> Tensor:
    return _by(e, "nll_loss_forward.default", x, target, weight, reduction, ignore_index)[0]


ROWS: dict[str, Row] = {
    "aten.pad.default": _pad,
    "aten.tile.default": _tile,
    "aten.repeat_interleave.self_int": _repeat_interleave,
    "aten.hstack.default": _stacked(1, 1),
    "aten.vstack.default": _stacked(2, 0),
    "aten.dstack.default": _stacked(3, 2),
    "aten.outer.default": _outer,
    "aten.zero.default": lambda e, x: _by(e, "zeros_like.default", x),
    "aten.aminmax.default": _pair_of_extremes,
    "aten.nanmean.default": _mean_of_numbers,
    "aten.linalg_norm.default": _norm,
    "aten.dist.default": _distance,
    "aten.pairwise_distance.default": _pairwise_distance,
    "aten.cosine_similarity.default": _cosine_similarity,
    "aten.kl_div.default": _divergence,
    "aten.hinge_embedding_loss.default": _hinge_embedding,
    "aten.margin_ranking_loss.default": _margin_ranking,
    "aten.poisson_nll_loss.default": _poisson,
    "aten.nll_loss.default": _of_classes,
    "aten.nll_loss_nd.default": _of_classes,
}

VIEWS: dict[str, Row] = {
    "aten.broadcast_to.default": shapes.VIEWS["aten.expand.default"],
    "aten.ravel.default": lambda e, x: _by(e, "reshape.default", x, [-1]),
    "aten.adjoint.default": _adjoint,
    "aten.mH.default": _adjoint,
}
