"""Ops composed of rows of the op table: methods of fd.ops like any other.

They compute as torch.nn.functional does on float32 values: half types are widened, and the result
stays float32. Integers and bool count as float32. Operands of different types are converted to
their common type. A NaN operand gives NaN. The error is a few ULP of the largest intermediate
value.
"""

import math
import numbers
from typing import TYPE_CHECKING, Any

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.errors import UserError

if TYPE_CHECKING:
    from fuser.ops import Operand, Ops

__all__ = [
    "add_alpha",
    "addcdiv",
    "addcmul",
    "celu",
    "elu",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hypot",
    "leaky_relu",
    "log_add_exp",
    "logit",
    "logsigmoid",
    "mish",
    "prelu",
    "relu6",
    "rsub",
    "segment_set",
    "selu",
    "softplus",
    "softshrink",
    "softsign",
    "square",
    "sub_alpha",
    "tanhshrink",
    "xlogy",
]

# Constants of Klambauer et al., "Self-Normalizing Neural Networks" (2017).
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _promoted(ops: "Ops", *operands: "Operand", floating: bool = False) -> tuple[Any, ...]:
    """Converts the operands to their common type, as torch does before it computes; an op on some
    of them alone would round to a narrower type. If `floating`, bool and integers count as float32.
    """
    common = _core.common_dtype(ops._builder, *operands)
    if common is None:
        return operands  # the ops raise the error
    wanted = DataType.Float if floating and common.kind in ("Bool", "Int") else common
    return tuple(_as_type(ops, x, wanted) for x in operands)


def _as_type(ops: "Ops", x: Any, wanted: DataType) -> Any:
    if isinstance(x, Tensor):
        return x if x.dtype().compute == wanted else ops.cast(x, wanted)
    if isinstance(x, Scalar):  # a scalar computed from numbers only keeps the wider type
        wide = _core.promote_types(x.dtype(), wanted)
        return x if x.dtype() == wide else ops.cast(x, wide)
    return float(x) if wanted.kind == "Float" and isinstance(x, numbers.Real) else x


def _widened(ops: "Ops", x: "Operand") -> Any:
    """Casts a tensor of a half type to float32, for ops that would keep the half type."""
    if isinstance(x, Tensor) and x.dtype() != x.dtype().compute:
        return ops.cast(x, x.dtype().compute)
    return x


def segment_set(ops: "Ops", x: "Operand") -> Any:
    """x itself. nvFuser takes it as a hint to segment the fusion; fuser finds segments itself."""
    return ops.set(x)


def add_alpha(ops: "Ops", a: "Operand", b: "Operand", alpha: "Operand") -> Any:
    """a + alpha * b."""
    alpha, a, b = _scalable(ops, alpha, a, b)
    return ops.add(a, _scaled(ops, alpha, b))


def sub_alpha(ops: "Ops", a: "Operand", b: "Operand", alpha: "Operand") -> Any:
    """a - alpha * b."""
    alpha, a, b = _scalable(ops, alpha, a, b)
    return ops.sub(a, _scaled(ops, alpha, b))


def rsub(ops: "Ops", a: "Operand", b: "Operand", alpha: "Operand" = 1) -> Any:
    """b - alpha * a."""
    alpha, a, b = _scalable(ops, alpha, a, b)
    return ops.sub(b, _scaled(ops, alpha, a))


def addcmul(ops: "Ops", x: "Operand", t1: "Operand", t2: "Operand", value: "Operand" = 1) -> Any:
    """x + value * t1 * t2."""
    value, x, t1, t2 = _scalable(ops, value, x, t1, t2)
    return ops.add(x, ops.mul(_scaled(ops, value, t1), t2))


def addcdiv(ops: "Ops", x: "Operand", t1: "Operand", t2: "Operand", value: "Operand" = 1) -> Any:
    """x + value * t1 / t2, a true division."""
    value, x, t1, t2 = _scalable(ops, value, x, t1, t2, floating=True)
    return ops.add(x, ops.truediv(_scaled(ops, value, t1), t2))


def _is_one(value: "Operand") -> bool:
    return isinstance(value, int) and value == 1


def _scalable(
    ops: "Ops", factor: "Operand", *operands: "Operand", floating: bool = False
) -> tuple[Any, ...]:
    """The factor and the operands, promoted; a factor of 1 does not take part in promotion."""
    if _is_one(factor):
        return 1, *_promoted(ops, *operands, floating=floating)
    return _promoted(ops, factor, *operands, floating=floating)


def _scaled(ops: "Ops", value: "Operand", x: "Operand") -> Any:
    """value * x; omits a factor of 1."""
    return x if _is_one(value) else ops.mul(value, x)


def square(ops: "Ops", x: "Operand") -> Any:
    """x * x; int64 for bool."""
    if isinstance(x, Tensor | Scalar) and x.dtype() == DataType.Bool:
        x = ops.cast(x, DataType.Int)
    return ops.mul(x, x)


def hypot(ops: "Ops", a: "Operand", b: "Operand") -> Any:
    """sqrt(a * a + b * b) without intermediate overflow; infinite if an operand is, even if the
    other is NaN.
    """
    a, b = _promoted(ops, a, b, floating=True)  # the least integer has no absolute value
    a, b = ops.abs(a), ops.abs(b)
    large, small = ops.maximum(a, b), ops.minimum(a, b)
    ratio = ops.truediv(small, large)
    length = ops.mul(large, ops.sqrt(ops.add(ops.mul(ratio, ratio), 1.0)))
    # 0 / 0 and inf / inf give NaN; there the larger operand is the result.
    length = ops.where(ops.eq(large, 0.0), large, length)
    infinite = ops.logical_or(ops.isinf(a), ops.isinf(b))
    return ops.where(infinite, math.inf, length)


def log_add_exp(ops: "Ops", a: "Operand", b: "Operand") -> Any:
    """log(exp(a) + exp(b)) without intermediate overflow."""
    a, b = _promoted(ops, a, b, floating=True)
    large = ops.maximum(a, b)
    distance = ops.neg(ops.abs(ops.sub(a, b)))
    # Equal infinities: inf - inf is NaN, so return either operand.
    same = ops.logical_and(ops.isinf(large), ops.eq(a, b))
    return ops.where(same, large, ops.add(large, ops.log1p(ops.exp(distance))))


def xlogy(ops: "Ops", a: "Operand", b: "Operand") -> Any:
    """a * log(b), and 0 if a is 0 and b is not NaN."""
    a, b = _promoted(ops, a, b, floating=True)
    zero = ops.logical_and(ops.eq(a, 0), ops.logical_not(ops.isnan(b)))
    return ops.where(zero, 0.0, ops.mul(a, ops.log(b)))


def logit(ops: "Ops", x: "Operand") -> Any:
    """log(x / (1 - x)); NaN outside [0, 1]."""
    return ops.log(ops.truediv(x, ops.sub(1.0, x)))


def gelu(ops: "Ops", x: "Operand", approximate: str = "none") -> Any:
    """x * Phi(x) with the standard normal distribution function Phi ("none"), or its tanh
    approximation ("tanh").

    Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016). Raises UserError `gelu-1` for
    another `approximate`.
    """
    if approximate == "none":
        return ops.gelu_erf(x)
    if approximate == "tanh":
        return ops.gelu_tanh(x)
    raise UserError(
        f"gelu(): approximate: expected 'none' or 'tanh', got {approximate!r}", rule="gelu-1"
    )


def mish(ops: "Ops", x: "Operand") -> Any:
    """x * tanh(softplus(x)). Misra, "Mish" (2019)."""
    (x,) = _promoted(ops, x, floating=True)
    return ops.mul(x, ops.tanh(_softplus(ops, x)))


def _softplus(ops: "Ops", x: "Operand") -> Any:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), without overflow or cancellation."""
    return ops.add(ops.maximum(x, 0.0), ops.log1p(ops.exp(ops.neg(ops.abs(x)))))


def softplus(ops: "Ops", x: "Operand", beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + exp(beta * x)) / beta, and x itself if beta * x > threshold."""
    scaled = ops.mul(x, beta)
    return ops.where(ops.gt(scaled, threshold), x, ops.truediv(_softplus(ops, scaled), beta))


def logsigmoid(ops: "Ops", x: "Operand") -> Any:
    """log(sigmoid(x)) = -softplus(-x)."""
    (x,) = _promoted(ops, x, floating=True)
    return ops.sub(ops.minimum(x, 0.0), ops.log1p(ops.exp(ops.neg(ops.abs(x)))))


def softsign(ops: "Ops", x: "Operand") -> Any:
    """x / (1 + |x|)."""
    (x,) = _promoted(ops, x, floating=True)
    return ops.truediv(x, ops.add(ops.abs(x), 1.0))


def tanhshrink(ops: "Ops", x: "Operand") -> Any:
    """x - tanh(x)."""
    return ops.sub(x, ops.tanh(x))


def hardtanh(ops: "Ops", x: "Operand", min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """x clamped to [min_val, max_val]. Integers keep their type, and the bounds are truncated.
    Integers count as float32 for bounds that torch refuses: infinite bounds, and negative bounds of
    an unsigned type.
    """
    if isinstance(x, Tensor | Scalar) and x.dtype().kind == "Int":
        least = 0 if x.dtype().torch_name.startswith("uint") else -math.inf
        bounds = [_whole(ops, v, least) for v in (min_val, max_val)]
        if None not in bounds:
            min_val, max_val = bounds
    return ops.clamp(_widened(ops, x), min_val, max_val)


def _whole(ops: "Ops", bound: Any, least: float) -> Any:
    """The bound as an integer, if it is finite and at least `least`."""
    if isinstance(bound, Scalar):
        return ops.cast(bound, DataType.Int)
    whole = isinstance(bound, numbers.Real) and math.isfinite(bound) and float(bound) >= least
    return int(bound) if whole else None


def relu6(ops: "Ops", x: "Operand") -> Any:
    """x clamped to [0, 6]; integers keep their type."""
    return hardtanh(ops, x, 0.0, 6.0)


def hardsigmoid(ops: "Ops", x: "Operand") -> Any:
    """(x + 3) / 6 clamped to [0, 1]."""
    return ops.truediv(relu6(ops, ops.add(x, 3.0)), 6.0)


def hardswish(ops: "Ops", x: "Operand") -> Any:
    """x * hardsigmoid(x)."""
    return ops.truediv(ops.mul(x, relu6(ops, ops.add(x, 3.0))), 6.0)


def leaky_relu(ops: "Ops", x: "Operand", negative_slope: float = 0.01) -> Any:
    """x if x > 0, otherwise negative_slope * x."""
    return ops.where(ops.gt(x, 0.0), x, ops.mul(x, negative_slope))


def prelu(ops: "Ops", x: "Operand", weight: "Operand") -> Any:
    """x if x > 0, otherwise weight * x; `weight` broadcasts against x."""
    return ops.where(ops.gt(x, 0.0), x, ops.mul(weight, x))


def _exponential_unit(ops: "Ops", x: "Operand", alpha: float, scale: float, rate: float) -> Any:
    """scale * x if x > 0, otherwise scale * alpha * (exp(rate * x) - 1)."""
    inner = x if rate == 1.0 else ops.mul(x, rate)
    positive = x if scale == 1.0 else ops.mul(x, scale)
    return ops.where(ops.gt(x, 0.0), positive, ops.mul(ops.expm1(inner), alpha * scale))


def elu(ops: "Ops", x: "Operand", alpha: float = 1.0) -> Any:
    """x if x > 0, otherwise alpha * (exp(x) - 1). Clevert et al. (2015)."""
    return _exponential_unit(ops, x, alpha, 1.0, 1.0)


def celu(ops: "Ops", x: "Operand", alpha: float = 1.0) -> Any:
    """x if x > 0, otherwise alpha * (exp(x / alpha) - 1). Barron (2017)."""
    return _exponential_unit(ops, x, alpha, 1.0, 1.0 / alpha)


def selu(ops: "Ops", x: "Operand") -> Any:
    """elu with the scale and alpha that preserve mean 0 and variance 1. Klambauer et al. (2017)."""
    return _exponential_unit(ops, x, _SELU_ALPHA, _SELU_SCALE, 1.0)


def hardshrink(ops: "Ops", x: "Operand", lambd: float = 0.5) -> Any:
    """0 if |x| <= lambd, otherwise x."""
    (x,) = _promoted(ops, _widened(ops, x), floating=True)
    return ops.where(ops.le(ops.abs(x), lambd), 0.0, x)


def softshrink(ops: "Ops", x: "Operand", lambd: float = 0.5) -> Any:
    """x moved towards 0 by lambd; 0 if |x| <= lambd."""
    (x,) = _promoted(ops, x, floating=True)
    shrunk = ops.sub(x, ops.clamp(x, -lambd, lambd))
    # The comparison also turns -0 into +0 and passes NaN on.
    return ops.where(ops.le(ops.abs(x), lambd), 0.0, shrunk)
