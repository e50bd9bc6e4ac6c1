"""Rows of elementwise special functions that fd.ops lacks, composed of its ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fuser import Tensor
from fuser.adapters.aten.emitter import Emitter

Row = Callable[..., Any]


def _log_add_exp2(e: Emitter, a: Any, b: Any) -> Tensor:
    """log2(exp2(a) + exp2(b)). Equal infinities are returned, because their difference is NaN."""
    ops = e.ops

    def joint(x: Any, y: Any) -> Any:
        high = ops.maximum(x, y)
        rest = ops.log1p(ops.exp2(ops.neg(ops.abs(ops.sub(x, y)))))
        return ops.where(
            ops.logical_and(ops.isinf(x), ops.eq(x, y)),
            x,
            ops.add(high, ops.mul(rest, 1 / math.log(2))),
        )

    return e.pointwise(joint, a, b, rule="float")


def _ldexp(e: Emitter, x: Any, exponent: Any) -> Tensor:
    return e.pointwise("mul", x, e.pointwise("pow", 2.0, exponent))


def _digamma(e: Emitter, x: Tensor) -> Tensor:
    """By reflection below 0, by recurrence below 10, and by the asymptotic series with Bernoulli
    numbers from there on.
    """
    ops = e.ops

    def digamma(v: Any) -> Any:
        negative = ops.lt(v, 0)
        y, below = ops.where(negative, ops.sub(1.0, v), v), 0.0
        for _ in range(10):
            small = ops.lt(y, 10.0)
            below = ops.add(below, ops.where(small, ops.reciprocal(y), 0.0))
            y = ops.where(small, ops.add(y, 1.0), y)
        z, series = ops.reciprocal(ops.mul(y, y)), 0.0
        for term in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
            series = ops.mul(z, ops.add(series, term))
        half = ops.mul(ops.reciprocal(y), 0.5)
        total = ops.sub(ops.sub(ops.sub(ops.log(y), half), series), below)
        # Angle from the nearest integer: just above an integer, the angle from the previous one is
        # almost pi and inaccurate.
        turn = ops.mul(ops.sub(v, ops.round(v)), math.pi)
        mirrored = ops.sub(total, ops.div(math.pi, ops.tan(turn)))
        at_pole = ops.where(ops.eq(turn, 0), math.nan, mirrored)
        found = ops.where(negative, at_pole, total)
        return ops.where(ops.eq(v, 0), ops.copysign(math.inf, ops.neg(v)), found)

    return e.pointwise(digamma, x, rule="float")


def _entropy(e: Emitter, x: Tensor) -> Tensor:
    ops = e.ops

    def entropy(v: Any) -> Any:
        inside = ops.where(ops.eq(v, 0), 0.0, ops.neg(ops.mul(v, ops.log(v))))
        return ops.where(ops.lt(v, 0), -math.inf, inside)

    return e.pointwise(entropy, x, rule="float")


def _xlog1py(e: Emitter, a: Any, b: Any) -> Tensor:
    ops = e.ops

    def product(x: Any, y: Any) -> Any:
        nothing = ops.logical_and(ops.eq(x, 0), ops.logical_not(ops.isnan(y)))
        return ops.where(nothing, 0.0, ops.mul(x, ops.log1p(y)))

    return e.pointwise(product, a, b, rule="float")


def _normal_below(e: Emitter, x: Tensor) -> Tensor:
    """The fraction of a normal distribution below x."""
    ops = e.ops
    return e.pointwise(
        lambda v: ops.mul(ops.erfc(ops.mul(v, -math.sqrt(0.5))), 0.5), x, rule="float"
    )


ROWS: dict[str, Row] = {
    "aten.logaddexp2.default": _log_add_exp2,
    **{f"aten.special_xlog1py.{o}": _xlog1py for o in ("default", "self_scalar", "other_scalar")},
    "aten.ldexp.Tensor": _ldexp,
    **{f"aten.{n}.default": _digamma for n in ("digamma", "special_digamma", "special_psi")},
    "aten.special_entr.default": _entropy,
    "aten.special_ndtr.default": _normal_below,
}
