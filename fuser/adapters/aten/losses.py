"""Rows of losses and of their gradients. `reduction` is torch's number: 0 none, 1 mean, 2 sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser import DataType, Tensor, Unsupported
from fuser.adapters.aten import reductions
from fuser.adapters.aten.emitter import Emitter
from fuser.arguments import count_over

Row = Callable[..., Any]
_NAMES = ("none", "mean", "sum")
_NONE, _MEAN = 0, 1


class _Targets:
    """Class targets for logits [C], [N, C] or [N, C, ...]."""

    def __init__(
        self, e: Emitter, x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
    ) -> None:
        if x.ndim == 0 or target.dtype() not in (DataType.Int, DataType.Byte):
            raise Unsupported("targets that are not class indices")
        ops = e.ops
        self.ops, self.dim = ops, 1 if x.ndim > 1 else 0
        if target.ndim == x.ndim and x.ndim == 1:  # [1] for [C]
            target = ops.squeeze(target, [0])
        if target.dtype() != DataType.Int:
            target = ops.cast(target, DataType.Int)
        self.ignored = ops.eq(target, ignore_index)
        self.others = [d for d in range(x.ndim) if d != self.dim]
        self.classes = ops.where(self.ignored, 0, target)
        self.place = ops.keep_dims(self.classes, x, [self.dim])
        self.x = x
        self.share = self._zeroed(1.0 if weight is None else self._at(e.wide(weight)))

    def _zeroed(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            kept = self.ops.logical_not(self.ignored)
            return self.ops.cast(kept, self.x.dtype().compute)
        return self.ops.where(self.ignored, 0.0, value)

    def _at(self, weight: Tensor) -> Tensor:
        """weight[target]."""
        wide = self.ops.keep_dims(weight, self.x, self.others)
        return self.ops.squeeze(self.ops.take_along_axis(wide, self.place, self.dim), [self.dim])

    def chosen(self, x: Tensor) -> Tensor:
        """x at the targets; 0 for ignored targets."""
        taken = self.ops.squeeze(self.ops.take_along_axis(x, self.place, self.dim), [self.dim])
        return self.ops.where(self.ignored, 0.0, taken)


def _nll_forward(
    e: Emitter,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """The loss and the total weight of the targets, which is 0 without a reduction."""
    ops, wide = e.ops, e.wide(x)
    targets = _Targets(e, wide, target, weight, ignore_index)
    loss = ops.mul(ops.neg(targets.chosen(wide)), targets.share)
    # For unbatched logits torch returns the total weight even without a reduction.
    if reduction == _NONE and x.ndim > 1:
        return e.same(loss, x), ops.full([], 0, x.dtype())
    total = ops.sum(targets.share)
    loss = ops.sum(loss)
    if reduction == _MEAN:
        loss = ops.truediv(loss, total)
    return e.same(loss, x), e.same(total, x)


def _nll_backward(
    e: Emitter,
    g: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total: Tensor,
) -> Tensor:
    ops, wide = e.ops, e.wide(x)
    targets = _Targets(e, wide, target, weight, ignore_index)
    share = ops.mul(targets.share, ops.neg(e.wide(g)))
    if reduction == _MEAN:
        share = ops.truediv(share, e.wide(total))
    classes = ops.keep_dims(ops.iota(x.size(targets.dim)), x, targets.others)
    hot = ops.eq(classes, targets.place)
    share = ops.where(hot, ops.keep_dims(share, x, [targets.dim]), 0.0)
    return e.same(share, x)


def reduced(e: Emitter, loss: Tensor, reduction: int) -> Tensor:
    """Applies torch's `reduction` to an elementwise loss."""
    if reduction == _NONE:
        return loss
    op = "mean" if reduction == _MEAN else "sum"
    result: Tensor = reductions.ROWS[f"aten.{op}.default"](e, loss)
    return result


def stored_like(e: Emitter, value: Tensor, x: Tensor) -> Tensor:
    """Converts `value` to the dtype of x, for kernels of torch that store into memory like x."""
    if value.dtype().kind != x.dtype().kind:
        raise Unsupported(f"cannot store {value.dtype()} as {x.dtype()}")
    return e.narrow(value, x.dtype())


def _pairwise(
    function: Callable[..., Any], numbers: int = 0, rule: str = "float", like_x: bool = False
) -> Row:
    """A row for an elementwise loss of two tensors: loss(x, target, reduction, numbers). The result
    has their common dtype, or the dtype of x if `like_x`.
    """

    def write(e: Emitter, x: Tensor, y: Tensor, reduction: int = 1, *args: Any) -> Tensor:
        loss = e.pointwise(lambda a, b: function(e.ops, a, b, *args[:numbers]), x, y, rule=rule)
        return reduced(e, stored_like(e, loss, x) if like_x else loss, reduction)

    return write


def _pairwise_gradient(function: Callable[..., Any], numbers: int = 0) -> Row:
    """A row for the gradient in the dtype of x: (g, x, target, reduction, numbers)."""

    def write(e: Emitter, g: Tensor, x: Tensor, y: Tensor, reduction: int, *args: Any) -> Tensor:
        def whole(slope: Any, a: Any, b: Any) -> Any:
            value = e.ops.mul(function(e.ops, a, b, *args[:numbers]), slope)
            if reduction == _MEAN:
                value = e.ops.mul(value, e.ops.truediv(1.0, count_over(value, range(value.ndim))))
            return value

        return stored_like(e, e.pointwise(whole, g, x, y, rule="float"), x)

    return write


def _squared(ops: Any, x: Any, y: Any) -> Any:
    d = ops.sub(x, y)
    return ops.mul(d, d)


def _smooth(ops: Any, x: Any, y: Any, beta: float = 1.0) -> Any:
    d = ops.abs(ops.sub(x, y))
    if beta == 0:
        return d
    inner = ops.mul(ops.mul(d, d), 0.5 / beta)
    return ops.where(ops.lt(d, beta), inner, ops.sub(d, 0.5 * beta))


def _smooth_slope(ops: Any, x: Any, y: Any, beta: float = 1.0) -> Any:
    d = ops.sub(x, y)  # clamp instead of sign, which loses NaN
    if beta == 0:  # torch gives -1 at 0
        return ops.where(ops.le(d, 0), -1.0, ops.clamp(d, 1.0, 1.0))
    return ops.clamp(ops.mul(d, 1.0 / beta), -1.0, 1.0)


def _huber(ops: Any, x: Any, y: Any, delta: float = 1.0) -> Any:
    d = ops.abs(ops.sub(x, y))
    inner = ops.mul(ops.mul(d, d), 0.5)
    return ops.where(ops.le(d, delta), inner, ops.mul(ops.sub(d, 0.5 * delta), delta))


def _huber_slope(ops: Any, x: Any, y: Any, delta: float = 1.0) -> Any:
    return ops.clamp(ops.sub(x, y), -delta, delta)


def _huber_loss(e: Emitter, x: Tensor, y: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    return _pairwise(_huber, 1, like_x=True)(e, x, y, reduction, delta)


# ---- binary cross entropy


def _weighted(e: Emitter, loss: Any, weight: Tensor | None) -> Any:
    return loss if weight is None else e.ops.mul(loss, e.wide(weight))


def _bce(
    e: Emitter, x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    ops = e.ops

    def loss(p: Any, t: Any) -> Any:
        yes = ops.maximum(ops.log(p), -100.0)
        no = ops.maximum(ops.log1p(ops.neg(p)), -100.0)
        value = ops.sub(ops.mul(ops.sub(t, 1.0), no), ops.mul(t, yes))
        return _weighted(e, value, weight)

    return reduced(e, e.pointwise(loss, x, y, rule="float"), reduction)


def _bce_backward(
    e: Emitter, g: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    def slope(ops: Any, p: Any, t: Any) -> Any:
        spread = ops.maximum(ops.mul(ops.sub(1.0, p), p), 1e-12)
        return _weighted(e, ops.truediv(ops.sub(p, t), spread), weight)

    return _pairwise_gradient(slope)(e, g, x, y, reduction)


def _bce_with_logits(
    e: Emitter,
    x: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    positive: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """Torch stores the result in the memory of 1 - target, so it has the target's dtype."""
    ops = e.ops

    def loss(v: Any, t: Any) -> Any:
        log_sigmoid = ops.logsigmoid(v)
        if positive is not None:
            log_sigmoid = ops.mul(
                log_sigmoid, ops.add(ops.mul(ops.sub(e.wide(positive), 1.0), t), 1.0)
            )
        value = ops.sub(ops.mul(ops.sub(1.0, t), v), log_sigmoid)
        return _weighted(e, value, weight)

    return reduced(e, stored_like(e, e.pointwise(loss, x, y, rule="float"), y), reduction)


def _soft_margin(ops: Any, x: Any, y: Any) -> Any:
    return ops.log1p(ops.exp(ops.mul(ops.neg(y), x)))


def _soft_margin_slope(ops: Any, x: Any, y: Any) -> Any:
    z = ops.exp(ops.mul(ops.neg(y), x))
    return ops.truediv(ops.mul(ops.neg(y), z), ops.add(z, 1.0))


def _cross_entropy(
    e: Emitter,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    dtype = x.dtype()
    if target.dtype().kind == "Float":  # probabilities: the loss is a product of three tensors
        dtype = e.common([x, target] if weight is None else [x, target, weight])
        target = e.computed(target, dtype)
    scale = None if weight is None else e.computed(weight, dtype)
    loss = e.ops.cross_entropy(
        e.computed(x, dtype), target, scale, ignore_index, _NAMES[reduction], label_smoothing
    )
    return e.narrow(loss, dtype)


ROWS: dict[str, Row] = {
    **{f"aten.{n}_forward.default": _nll_forward for n in ("nll_loss", "nll_loss2d")},
    **{f"aten.{n}_backward.default": _nll_backward for n in ("nll_loss", "nll_loss2d")},
    "aten.cross_entropy_loss.default": _cross_entropy,
    "aten.mse_loss.default": _pairwise(_squared),
    "aten.mse_loss_backward.default": _pairwise_gradient(
        lambda ops, x, y: ops.mul(ops.sub(x, y), 2.0)
    ),
    "aten.l1_loss.default": _pairwise(lambda ops, x, y: ops.abs(ops.sub(x, y)), rule="real"),
    "aten.smooth_l1_loss.default": _pairwise(_smooth, 1),
    "aten.smooth_l1_loss_backward.default": _pairwise_gradient(_smooth_slope, 1),
    "aten.huber_loss.default": _huber_loss,
    "aten.huber_loss_backward.default": _pairwise_gradient(_huber_slope, 1),
    "aten.binary_cross_entropy.default": _bce,
    "aten.binary_cross_entropy_backward.default": _bce_backward,
    "aten.binary_cross_entropy_with_logits.default": _bce_with_logits,
    "aten.soft_margin_loss.default": _pairwise(_soft_margin, like_x=True),
    "aten.soft_margin_loss_backward.default": _pairwise_gradient(_soft_margin_slope),
}
