"""Losses of classification: methods of fd.ops like any other.

Logits are [C] or [N, C, ...], classes are integers [] or [N, ...]. Half types are computed in
float32, and the loss stays float32. A class outside [0, C) that is not `ignore_index` reads the
nearest class.
"""

import operator

from fuser._core import DataType, Tensor
from fuser.arguments import defined
from fuser.errors import ShapeError, UserError
from fuser.ops.methods import composed
from fuser.ops.reductions import Reductions, shifted


@composed
class Losses(Reductions):
    """Losses of classification."""

    def nll_loss(
        self,
        input: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Tensor:
        """-weight[target] * input[target], as torch.nn.functional.nll_loss: `input` holds log
        probabilities; 0 if the target is `ignore_index`. "mean" divides by the sum of the weights.

        Raises UserError `loss-1` for another `reduction`, ShapeError `loss-2` for another rank of
        the target.
        """
        _check("nll_loss", input, target, reduction, input.ndim - 1)
        classes = _Classes(self, input, target, weight, ignore_index)
        return classes.loss(classes.look_up(input), reduction)

    def cross_entropy(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """nll_loss(log_softmax(logits), target), as torch.nn.functional.cross_entropy. The target
        may also hold probabilities: floats of the shape of the logits.

        Reads the logits at most twice and never stores the log probabilities. Raises as nll_loss().
        """
        probabilities = target.dtype().kind == "Float"
        rank = logits.ndim if probabilities else logits.ndim - 1
        _check("cross_entropy", logits, target, reduction, rank)
        dim = 1 if logits.ndim > 1 else 0
        largest, distance, total = shifted(self, logits, [dim], logits.dtype().compute)
        log_total = self.log(total)
        count = logits.size(dim)
        if probabilities:
            if label_smoothing > 0:
                smooth = self.truediv(label_smoothing, count)
                target = self.add(self.mul(target, 1.0 - label_smoothing), smooth)
            terms = self.mul(self.sub(distance, log_total), target)
            if weight is not None:
                others = [d for d in range(logits.ndim) if d != dim]
                terms = self.mul(terms, self.keep_dims(weight, logits, others))
            loss = self.neg(self.sum(terms, dim))
            if reduction == "none":
                return loss
            if reduction == "mean":
                return self.mean(loss)
            return self.sum(loss)

        classes = _Classes(self, logits, target, weight, ignore_index)
        chosen = self.sub(classes.look_up(logits), self.squeeze(largest, [dim]))
        loss = classes.loss(self.sub(chosen, self.squeeze(log_total, [dim])), reduction)
        if label_smoothing == 0:
            return loss
        terms = self.sub(distance, log_total)
        if weight is not None:
            terms = self.mul(terms, classes.along(weight))
        spread = classes.zeroed(self.neg(self.sum(terms, dim)))
        if reduction != "none":
            spread = self.sum(spread)
        if reduction == "mean":
            spread = self.truediv(spread, classes.total())
        even = self.mul(spread, self.truediv(label_smoothing, count))
        return self.add(self.mul(loss, 1.0 - label_smoothing), even)


def _check(op: str, logits: Tensor, target: Tensor, reduction: str, rank: int) -> None:
    if reduction not in ("none", "sum", "mean"):
        raise UserError(
            f"{op}(): reduction: expected 'none', 'sum' or 'mean', got {reduction!r}", rule="loss-1"
        )
    if logits.ndim == 0 or target.ndim != rank:
        raise ShapeError(
            f"{op}(t{logits.id}, t{target.id}): expected a target of {max(rank, 0)} dims"
            f"{defined(logits, target)}",
            rule="loss-2",
        )


class _Classes:
    """Class targets: the ignore mask, the class weights, and the lookup of values at the
    targets.
    """

    def __init__(
        self,
        ops: Losses,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ignore_index: int,
    ) -> None:
        self.ops, self.logits, self.weight = ops, logits, weight
        self.dim = 1 if logits.ndim > 1 else 0
        if target.dtype() != DataType.Int:
            target = ops.cast(target, DataType.Int)
        self.ignored = ops.eq(target, operator.index(ignore_index))
        self.place = ops.keep_dims(ops.where(self.ignored, 0, target), logits, [self.dim])
        self.share = None if weight is None else self.zeroed(self.look_up(self.along(weight)))

    def along(self, weight: Tensor) -> Tensor:
        """Broadcasts weight[C] to the logits."""
        return self.ops.keep_dims(
            weight, self.logits, [d for d in range(self.logits.ndim) if d != self.dim]
        )

    def look_up(self, values: Tensor) -> Tensor:
        """Looks up `values` at the target classes."""
        return self.ops.squeeze(self.ops.take_along_axis(values, self.place, self.dim), [self.dim])

    def zeroed(self, loss: Tensor) -> Tensor:
        """Replaces the loss of ignored targets by 0."""
        return self.ops.where(self.ignored, 0.0, loss)

    def total(self) -> Tensor:
        """Sum of the weights of all targets."""
        ops = self.ops
        if self.share is not None:
            return ops.sum(self.share)
        return ops.sum(ops.logical_not(self.ignored))

    def loss(self, chosen: Tensor, reduction: str) -> Tensor:
        """Computes the loss from the log probabilities of the target classes."""
        ops = self.ops
        loss = ops.neg(chosen)
        if self.share is not None:
            loss = ops.mul(loss, self.share)
        loss = self.zeroed(loss)
        if reduction == "none":
            return loss
        loss = ops.sum(loss)
        return ops.truediv(loss, self.total()) if reduction == "mean" else loss
