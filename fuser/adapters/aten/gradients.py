"""Rows of the gradients of elementwise ops. Arguments: the gradient of the result, then operands or
results of the forward op.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fuser import Tensor
from fuser.adapters.aten.emitter import Emitter

Row = Callable[..., Any]


def _gradient(function: Callable[..., Any], tensors: int = 2) -> Row:
    """A row that calls function(e.ops, tensors, numbers)."""

    def write(e: Emitter, *args: Any, **named: Any) -> Tensor:
        def whole(*values: Any) -> Any:
            return function(e.ops, *values, *args[tensors:], **named)

        return e.pointwise(whole, *args[:tensors], rule="float")

    return write


def _where_else_zero(ops: Any, test: Any, value: Any) -> Any:
    return ops.where(test, value, 0.0)


def _tanh_gradient(ops: Any, g: Any, y: Any) -> Any:
    return ops.mul(g, ops.sub(1.0, ops.mul(y, y)))


def _sigmoid_gradient(ops: Any, g: Any, y: Any) -> Any:
    return ops.mul(ops.mul(g, ops.sub(1.0, y)), y)


def _silu_gradient(ops: Any, g: Any, x: Any) -> Any:
    s = ops.sigmoid(x)
    return ops.mul(ops.mul(g, s), ops.add(ops.mul(x, ops.sub(1.0, s)), 1.0))


def _gelu_gradient(ops: Any, g: Any, x: Any, approximate: str = "none") -> Any:
    """g * (Phi(x) + x * phi(x)), or the derivative of the tanh approximation."""
    if approximate == "none":
        cdf = ops.mul(ops.add(ops.erf(ops.mul(x, math.sqrt(0.5))), 1.0), 0.5)
        density = ops.mul(ops.exp(ops.mul(ops.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
        return ops.mul(g, ops.add(cdf, ops.mul(x, density)))
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    square = ops.mul(x, x)
    inner = ops.mul(ops.mul(x, scale), ops.add(ops.mul(square, cubic), 1.0))
    t = ops.tanh(inner)
    slope = ops.mul(ops.add(ops.mul(square, 3 * cubic), 1.0), scale)
    left = ops.mul(ops.add(t, 1.0), 0.5)
    right = ops.mul(ops.mul(ops.mul(x, 0.5), ops.sub(1.0, ops.mul(t, t))), slope)
    return ops.mul(g, ops.add(left, right))


def _threshold_gradient(ops: Any, g: Any, x: Any, threshold: Any) -> Any:
    return ops.where(ops.le(x, threshold), 0.0, g)


def _hardtanh_gradient(ops: Any, g: Any, x: Any, low: Any, high: Any) -> Any:
    outside = ops.logical_or(ops.le(x, low), ops.ge(x, high))
    return ops.where(outside, 0.0, g)


def _hardsigmoid_gradient(ops: Any, g: Any, x: Any) -> Any:
    inside = ops.logical_and(ops.gt(x, -3.0), ops.lt(x, 3.0))
    return _where_else_zero(ops, inside, ops.mul(g, 1 / 6))


def _hardswish_gradient(ops: Any, g: Any, x: Any) -> Any:
    middle = ops.mul(g, ops.add(ops.truediv(x, 3.0), 0.5))
    inner = ops.where(ops.lt(x, 3.0), middle, g)
    return ops.where(ops.le(x, -3.0), 0.0, inner)


def _leaky_relu_gradient(ops: Any, g: Any, x: Any, slope: Any, self_is_result: Any) -> Any:
    del self_is_result  # a nonnegative slope keeps the sign
    return ops.where(ops.gt(x, 0.0), g, ops.mul(g, slope))


def _elu_gradient(
    ops: Any, g: Any, x: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool
) -> Any:
    slope = alpha * scale
    if is_result:
        left = ops.mul(ops.mul(g, input_scale), ops.add(x, slope))
    else:
        left = ops.mul(ops.mul(g, slope * input_scale), ops.exp(ops.mul(x, input_scale)))
    return ops.where(ops.le(x, 0.0), left, ops.mul(g, scale))


def _elu_backward(
    e: Emitter, g: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Tensor
) -> Tensor:
    return e.pointwise(
        lambda a, b: _elu_gradient(e.ops, a, b, alpha, scale, input_scale, is_result),
        g,
        x,
        rule="float",
    )


def _softplus_gradient(ops: Any, g: Any, x: Any, beta: Any, threshold: Any) -> Any:
    scaled = ops.mul(x, beta)
    return ops.where(ops.gt(scaled, threshold), g, ops.mul(g, ops.sigmoid(scaled)))


def _log_sigmoid_gradient(ops: Any, g: Any, x: Any, buffer: Any) -> Any:
    del buffer
    return ops.mul(g, ops.sigmoid(ops.neg(x)))


def _shrink_gradient(ops: Any, g: Any, x: Any, limit: Any) -> Any:
    inside = ops.logical_and(ops.ge(x, -limit), ops.le(x, limit))
    return ops.where(inside, 0.0, g)


def _mish_gradient(ops: Any, g: Any, x: Any) -> Any:
    t = ops.tanh(ops.softplus(x))
    slope = ops.mul(ops.mul(x, ops.sigmoid(x)), ops.sub(1.0, ops.mul(t, t)))
    return ops.mul(g, ops.add(t, slope))


def _logit_gradient(ops: Any, g: Any, x: Any, eps: float | None = None) -> Any:
    value = ops.truediv(g, ops.mul(x, ops.sub(1.0, x)))
    low, high = (0.0, 1.0) if eps is None else (eps, 1.0 - eps)
    inside = ops.logical_and(ops.ge(x, low), ops.le(x, high))
    return ops.where(inside, value, math.nan if eps is None else 0.0)


ROWS: dict[str, Row] = {
    "aten.tanh_backward.default": _gradient(_tanh_gradient),
    "aten.sigmoid_backward.default": _gradient(_sigmoid_gradient),
    "aten.silu_backward.default": _gradient(_silu_gradient),
    "aten.gelu_backward.default": _gradient(_gelu_gradient),
    "aten.threshold_backward.default": _gradient(_threshold_gradient),
    "aten.hardtanh_backward.default": _gradient(_hardtanh_gradient),
    "aten.hardsigmoid_backward.default": _gradient(_hardsigmoid_gradient),
    "aten.hardswish_backward.default": _gradient(_hardswish_gradient),
    "aten.leaky_relu_backward.default": _gradient(_leaky_relu_gradient),
    "aten.elu_backward.default": _elu_backward,
    "aten.softplus_backward.default": _gradient(_softplus_gradient),
    "aten.log_sigmoid_backward.default": lambda e, g, x, buffer: e.pointwise(
        lambda a, b: _log_sigmoid_gradient(e.ops, a, b, None), g, x, rule="float"
    ),
    "aten.hardshrink_backward.default": _gradient(_shrink_gradient),
    "aten.softshrink_backward.default": _gradient(_shrink_gradient),
    "aten.mish_backward.default": _gradient(_mish_gradient),
    "aten.logit_backward.default": _gradient(_logit_gradient),
}
