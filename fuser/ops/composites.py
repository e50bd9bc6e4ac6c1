"""Ops composed of rows of the op table: methods of fd.ops like any other.

They compute as torch.nn.functional does on float32 values: half types are widened, and the result
stays float32. Integers and bool count as float32. Operands of different types are converted to
their common type. A NaN operand gives NaN. The error is a few ULP of the largest intermediate
value.
"""

import math
import numbers
from typing import Any

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.arguments import Operand
from fuser.errors import UserError
from fuser.ops.methods import composed, nary, unary
from fuser.ops.primitives import Primitives

# Constants of Klambauer et al., "Self-Normalizing Neural Networks" (2017).
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@composed
class Composites(Primitives):
    """Ops composed of rows of the op table."""

    @unary
    def segment_set(self, x: Operand) -> Any:
        """x itself. nvFuser takes it as a hint to segment the fusion; fuser finds segments
        itself.
        """
        return self.set(x)

    @nary
    def add_alpha(self, a: Operand, b: Operand, alpha: Operand) -> Any:
        """a + alpha * b."""
        alpha, a, b = _scalable(self, alpha, a, b)
        return self.add(a, _scaled(self, alpha, b))

    @nary
    def sub_alpha(self, a: Operand, b: Operand, alpha: Operand) -> Any:
        """a - alpha * b."""
        alpha, a, b = _scalable(self, alpha, a, b)
        return self.sub(a, _scaled(self, alpha, b))

    @nary
    def rsub(self, a: Operand, b: Operand, alpha: Operand = 1) -> Any:
        """b - alpha * a."""
        alpha, a, b = _scalable(self, alpha, a, b)
        return self.sub(b, _scaled(self, alpha, a))

    @nary
    def addcmul(self, x: Operand, t1: Operand, t2: Operand, value: Operand = 1) -> Any:
        """x + value * t1 * t2."""
        value, x, t1, t2 = _scalable(self, value, x, t1, t2)
        return self.add(x, self.mul(_scaled(self, value, t1), t2))

    @nary
    def addcdiv(self, x: Operand, t1: Operand, t2: Operand, value: Operand = 1) -> Any:
        """x + value * t1 / t2, a true division."""
        value, x, t1, t2 = _scalable(self, value, x, t1, t2, floating=True)
        return self.add(x, self.truediv(_scaled(self, value, t1), t2))

    @unary
    def square(self, x: Operand) -> Any:
        """x * x; int64 for bool."""
        if isinstance(x, Tensor | Scalar) and x.dtype() == DataType.Bool:
            x = self.cast(x, DataType.Int)
        return self.mul(x, x)

    @nary
    def hypot(self, a: Operand, b: Operand) -> Any:
        """sqrt(a * a + b * b) without intermediate overflow; infinite if an operand is, even if the
        other is NaN.
        """
        a, b = _promoted(self, a, b, floating=True)  # the least integer has no absolute value
        a, b = self.abs(a), self.abs(b)
        large, small = self.maximum(a, b), self.minimum(a, b)
        ratio = self.truediv(small, large)
        length = self.mul(large, self.sqrt(self.add(self.mul(ratio, ratio), 1.0)))
        # 0 / 0 and inf / inf give NaN; there the larger operand is the result.
        length = self.where(self.eq(large, 0.0), large, length)
        infinite = self.logical_or(self.isinf(a), self.isinf(b))
        return self.where(infinite, math.inf, length)

    @nary
    def log_add_exp(self, a: Operand, b: Operand) -> Any:
        """log(exp(a) + exp(b)) without intermediate overflow."""
        a, b = _promoted(self, a, b, floating=True)
        large = self.maximum(a, b)
        distance = self.neg(self.abs(self.sub(a, b)))
        # Equal infinities: inf - inf is NaN, so return either operand.
        same = self.logical_and(self.isinf(large), self.eq(a, b))
        return self.where(same, large, self.add(large, self.log1p(self.exp(distance))))

    @nary
    def xlogy(self, a: Operand, b: Operand) -> Any:
        """a * log(b), and 0 if a is 0 and b is not NaN."""
        a, b = _promoted(self, a, b, floating=True)
        zero = self.logical_and(self.eq(a, 0), self.logical_not(self.isnan(b)))
        return self.where(zero, 0.0, self.mul(a, self.log(b)))

    @unary
    def logit(self, x: Operand) -> Any:
        """log(x / (1 - x)); NaN outside [0, 1]."""
        return self.log(self.truediv(x, self.sub(1.0, x)))

    @unary
    def gelu(self, x: Operand, approximate: str = "none") -> Any:
        """x * Phi(x) with the standard normal distribution function Phi ("none"), or its tanh
        approximation ("tanh").

        Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016). Raises UserError `gelu-1` for
        another `approximate`.
        """
        if approximate == "none":
            return self.gelu_erf(x)
        if approximate == "tanh":
            return self.gelu_tanh(x)
        raise UserError(
            f"gelu(): approximate: expected 'none' or 'tanh', got {approximate!r}", rule="gelu-1"
        )

    @unary
    def mish(self, x: Operand) -> Any:
        """x * tanh(softplus(x)). Misra, "Mish" (2019)."""
        (x,) = _promoted(self, x, floating=True)
        return self.mul(x, self.tanh(_softplus(self, x)))

    @unary
    def softplus(self, x: Operand, beta: float = 1.0, threshold: float = 20.0) -> Any:
        """log(1 + exp(beta * x)) / beta, and x itself if beta * x > threshold."""
        scaled = self.mul(x, beta)
        return self.where(
            self.gt(scaled, threshold), x, self.truediv(_softplus(self, scaled), beta)
        )

    @unary
    def logsigmoid(self, x: Operand) -> Any:
        """log(sigmoid(x)) = -softplus(-x)."""
        (x,) = _promoted(self, x, floating=True)
        return self.sub(self.minimum(x, 0.0), self.log1p(self.exp(self.neg(self.abs(x)))))

    @unary
    def softsign(self, x: Operand) -> Any:
        """x / (1 + |x|)."""
        (x,) = _promoted(self, x, floating=True)
        return self.truediv(x, self.add(self.abs(x), 1.0))

    @unary
    def tanhshrink(self, x: Operand) -> Any:
        """x - tanh(x)."""
        return self.sub(x, self.tanh(x))

    @unary
    def hardtanh(self, x: Operand, min_val: float = -1.0, max_val: float = 1.0) -> Any:
        """x clamped to [min_val, max_val]. Integers keep their type, and the bounds are truncated.
        Integers count as float32 for bounds that torch refuses: infinite bounds, and negative
        bounds of an unsigned type.
        """
        if isinstance(x, Tensor | Scalar) and x.dtype().kind == "Int":
            least = 0 if x.dtype().torch_name.startswith("uint") else -math.inf
            bounds = [_whole(self, v, least) for v in (min_val, max_val)]
            if None not in bounds:
                min_val, max_val = bounds
        return self.clamp(_widened(self, x), min_val, max_val)

    @unary
    def relu6(self, x: Operand) -> Any:
        """x clamped to [0, 6]; integers keep their type."""
        return self.hardtanh(x, 0.0, 6.0)

    @unary
    def hardsigmoid(self, x: Operand) -> Any:
        """(x + 3) / 6 clamped to [0, 1]."""
        return self.truediv(self.relu6(self.add(x, 3.0)), 6.0)

    @unary
    def hardswish(self, x: Operand) -> Any:
        """x * hardsigmoid(x)."""
        return self.truediv(self.mul(x, self.relu6(self.add(x, 3.0))), 6.0)

    @unary
    def leaky_relu(self, x: Operand, negative_slope: float = 0.01) -> Any:
        """x if x > 0, otherwise negative_slope * x."""
        return self.where(self.gt(x, 0.0), x, self.mul(x, negative_slope))

    @nary
    def prelu(self, x: Operand, weight: Operand) -> Any:
        """x if x > 0, otherwise weight * x; `weight` broadcasts against x."""
        return self.where(self.gt(x, 0.0), x, self.mul(weight, x))

    @unary
    def elu(self, x: Operand, alpha: float = 1.0) -> Any:
        """x if x > 0, otherwise alpha * (exp(x) - 1). Clevert et al. (2015)."""
        return exponential_unit(self, x, alpha, 1.0, 1.0)

    @unary
    def celu(self, x: Operand, alpha: float = 1.0) -> Any:
        """x if x > 0, otherwise alpha * (exp(x / alpha) - 1). Barron (2017)."""
        return exponential_unit(self, x, alpha, 1.0, 1.0 / alpha)

    @unary
    def selu(self, x: Operand) -> Any:
        """elu with the scale and alpha that preserve mean 0 and variance 1. Klambauer et al.
        (2017).
        """
        return exponential_unit(self, x, _SELU_ALPHA, _SELU_SCALE, 1.0)

    @unary
    def hardshrink(self, x: Operand, lambd: float = 0.5) -> Any:
        """0 if |x| <= lambd, otherwise x."""
        (x,) = _promoted(self, _widened(self, x), floating=True)
        return self.where(self.le(self.abs(x), lambd), 0.0, x)

    @unary
    def softshrink(self, x: Operand, lambd: float = 0.5) -> Any:
        """x moved towards 0 by lambd; 0 if |x| <= lambd."""
        (x,) = _promoted(self, x, floating=True)
        shrunk = self.sub(x, self.clamp(x, -lambd, lambd))
        # The comparison also turns -0 into +0 and passes NaN on.
        return self.where(self.le(self.abs(x), lambd), 0.0, shrunk)


def _promoted(ops: Composites, *operands: Operand, floating: bool = False) -> tuple[Any, ...]:
    """Converts the operands to their common type, as torch does before it computes; an op on some
    of them alone would round to a narrower type. If `floating`, bool and integers count as float32.
    """
    common = _core.common_dtype(ops._builder, *operands)
    if common is None:
        return operands  # the ops raise the error
    wanted = DataType.Float if floating and common.kind in ("Bool", "Int") else common
    return tuple(_as_type(ops, x, wanted) for x in operands)


def _as_type(ops: Composites, x: Any, wanted: DataType) -> Any:
    if isinstance(x, Tensor):
        return x if x.dtype().compute == wanted else ops.cast(x, wanted)
    if isinstance(x, Scalar):  # a scalar computed from numbers only keeps the wider type
        wide = _core.promote_types(x.dtype(), wanted)
        return x if x.dtype() == wide else ops.cast(x, wide)
    return float(x) if wanted.kind == "Float" and isinstance(x, numbers.Real) else x


def _widened(ops: Composites, x: Operand) -> Any:
    """Casts a tensor of a half type to float32, for ops that would keep the half type."""
    if isinstance(x, Tensor) and x.dtype() != x.dtype().compute:
        return ops.cast(x, x.dtype().compute)
    return x


def _is_one(value: Operand) -> bool:
    return isinstance(value, int) and value == 1


def _scalable(
    ops: Composites, factor: Operand, *operands: Operand, floating: bool = False
) -> tuple[Any, ...]:
    """The factor and the operands, promoted; a factor of 1 does not take part in promotion."""
    if _is_one(factor):
        return 1, *_promoted(ops, *operands, floating=floating)
    return _promoted(ops, factor, *operands, floating=floating)


def _scaled(ops: Composites, value: Operand, x: Operand) -> Any:
    """value * x; omits a factor of 1."""
    return x if _is_one(value) else ops.mul(value, x)


def _softplus(ops: Composites, x: Operand) -> Any:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), without overflow or cancellation."""
    return ops.add(ops.maximum(x, 0.0), ops.log1p(ops.exp(ops.neg(ops.abs(x)))))


def _whole(ops: Composites, bound: Any, least: float) -> Any:
    """The bound as an integer, if it is finite and at least `least`."""
    if isinstance(bound, Scalar):
        return ops.cast(bound, DataType.Int)
    whole = isinstance(bound, numbers.Real) and math.isfinite(bound) and float(bound) >= least
    return int(bound) if whole else None


def exponential_unit(ops: Any, x: Any, alpha: float, scale: float, rate: float) -> Any:
    """scale * x if x > 0, otherwise scale * alpha * (exp(rate * x) - 1)."""
    known = int, float  # a run-time scalar is not compared
    inner = x if isinstance(rate, known) and rate == 1 else ops.mul(x, rate)
    positive = x if isinstance(scale, known) and scale == 1 else ops.mul(x, scale)
    return ops.where(ops.gt(x, 0.0), positive, ops.mul(ops.expm1(inner), alpha * scale))
