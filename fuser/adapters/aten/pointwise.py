"""Rows of elementwise ops and of dtype conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fuser import DataType, Scalar, Tensor, Unsupported
from fuser.adapters.aten import special
from fuser.adapters.aten.emitter import Emitter, Numbers, known
from fuser.arguments import as_dtype
from fuser.ops.composites import exponential_unit

Row = Callable[..., Any]


# Operands that torch's kernels take as numbers if they are 0-dim.
_TERMS: Numbers = ((0, "gpu"), (1, "gpu"))
_FACTORS: Numbers = ((0, "gpu"), (1, "gpu"), (1, "cpu"))
_DIVISOR: Numbers = ((1, "gpu"), (1, "cpu"))


def _op(
    op: str,
    rule: str = "same",
    operands: int = 1,
    jumps: bool = False,
    numbers: Numbers = (),
) -> Row:
    """A row for an op of fd.ops; the first `operands` arguments determine the type."""

    def write(e: Emitter, *args: Any, **_: Any) -> Tensor:
        taken, extra = args[:operands], args[operands:]
        return e.pointwise(op, *taken, rule=rule, extra=extra, jumps=jumps, numbers=numbers)

    return write


def _unary(names: str, rule: str) -> dict[str, Row]:
    """Rows of ops with one name in torch and fd.ops."""
    return {f"aten.{name}.default": _op(name, rule) for name in names.split()}


def _binary(
    names: str, op: str = "", rule: str = "same", overloads: str = "Tensor Scalar"
) -> dict[str, Row]:
    return {
        f"aten.{name}.{overload}": _op(op or name, rule, 2)
        for name in names.split()
        for overload in overloads.split()
    }


def _scaled(e: Emitter, x: Any, alpha: Any) -> Any:
    """x * alpha of add, sub and similar ops; omits an alpha of 1. Emitted inside the op, because
    the product must be computed in the common type of both operands.
    """
    if known(alpha) == 1 or (not isinstance(alpha, Scalar) and alpha == 1):
        return x
    return e.ops.mul(x, alpha)


def _alpha(op: str, swapped: bool = False) -> Row:
    """a op alpha * b; if `swapped`, b op alpha * a."""

    def write(e: Emitter, a: Any, b: Any, alpha: Any = 1, **_: Any) -> Tensor:
        def both(x: Any, y: Any) -> Any:
            if swapped:
                x, y = y, x
            return getattr(e.ops, op)(x, _scaled(e, y, alpha))

        if op == "sub" and e.common([a, b]) == DataType.Bool:
            raise Unsupported("subtraction of bools")
        return e.pointwise(both, a, b, numbers=_TERMS)

    return write


_floor_divide = _op("floor_divide", operands=2, jumps=True, numbers=_DIVISOR)


def _divide(e: Emitter, a: Any, b: Any, rounding_mode: str | None = None, **_: Any) -> Tensor:
    if rounding_mode is None:
        return e.pointwise("truediv", a, b, rule="float", numbers=_DIVISOR)
    if rounding_mode == "floor":
        return _floor_divide(e, a, b)
    dtype = e.common([a, b])
    if dtype.kind == "Int":
        return e.pointwise("div", a, b)
    # As in torch, the quotient of half-precision tensors is rounded before it is truncated.
    number = not isinstance(b, Tensor) or e.taken_as_number(b, 1, _DIVISOR)
    kept = dtype.compute if number else dtype
    cut = lambda x, y: e.ops.trunc(e.ops.cast(e.ops.truediv(x, y), kept))  # noqa: E731
    return e.pointwise(cut, a, b, jumps=True, numbers=_DIVISOR)


def _modulo(op: str) -> Row:
    return lambda e, *operands: e.pointwise(
        op, *(e.rounded(x, e.common(operands)) for x in operands), jumps=True
    )


def _nextafter(e: Emitter, a: Any, b: Any) -> Tensor:
    dtype = e.common([a, b])
    if dtype != dtype.compute:
        raise Unsupported(
            "nextafter of half types: kernels compute it in float32, with other neighbours"
        )
    return e.pointwise("nextafter", a, b)


def _power(e: Emitter, a: Any, b: Any, **_: Any) -> Tensor:
    """Small exponents by multiplication and square root, as in torch."""
    ops = e.ops
    float_result = e.common([a, b]).kind == "Float"
    short: dict[float, Callable[[Any, Any], Any]] = {2: lambda x, _: ops.mul(x, x)}
    if float_result:
        short |= {
            1: lambda x, _: ops.set(x),
            3: lambda x, _: ops.mul(ops.mul(x, x), x),
            0.5: lambda x, _: ops.sqrt(x),
            -0.5: lambda x, _: ops.rsqrt(x),
            -1: lambda x, _: ops.reciprocal(x),
            -2: lambda x, _: ops.reciprocal(ops.mul(x, x)),
        }
    exponent = b if isinstance(b, int | float) and not isinstance(b, bool) else None
    if isinstance(exponent, int) and exponent < 0 and e.common([a, b]).kind == "Int":
        raise Unsupported("a negative power of integers, which is an error in torch")
    if not isinstance(a, Tensor) or exponent not in short:
        return e.pointwise("pow", a, b)
    return e.pointwise(short[exponent], a, b)


def _clamp(e: Emitter, x: Any, low: Any = None, high: Any = None, **_: Any) -> Tensor:
    if low is not None and high is not None:
        return e.pointwise("clamp", x, low, high)
    if low is None and high is None:
        raise Unsupported("clamp without bounds")
    return e.pointwise("minimum" if low is None else "maximum", x, high if low is None else low)


def _extreme_number(op: str) -> Row:
    """fmax, fmin: a number wins over NaN."""

    def write(e: Emitter, a: Any, b: Any) -> Tensor:
        ops = e.ops

        def chosen(x: Any, y: Any) -> Any:
            extreme = getattr(ops, op)(x, y)
            return ops.where(ops.isnan(x), y, ops.where(ops.isnan(y), x, extreme))

        real = e.common([a, b]).kind == "Float"
        return e.pointwise(chosen if real else op, a, b)

    return write


def _lcm(e: Emitter, a: Any, b: Any) -> Tensor:
    ops = e.ops

    def multiple(x: Any, y: Any) -> Any:
        common = ops.gcd(x, y)
        return ops.where(ops.eq(common, 0), 0, ops.abs(ops.mul(ops.div(x, common), y)))

    return e.pointwise(multiple, a, b)


def _float_power(e: Emitter, a: Any, b: Any) -> Tensor:
    """Computes in double precision for all operand types."""

    def double(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        kind = x.dtype().kind
        return _convert(e, x, DataType.ComplexDouble if kind == "Complex" else DataType.Double)

    return _power(e, double(a), double(b))


def _angle(e: Emitter, x: Tensor) -> Tensor:
    ops = e.ops
    if x.dtype().kind == "Complex":
        return e.pointwise(lambda v: ops.atan2(ops.imag(v), ops.real(v)), x, rule="real")
    below = lambda v: ops.where(ops.lt(v, 0), math.pi, ops.where(ops.isnan(v), v, 0.0))  # noqa: E731
    return e.pointwise(below, x, rule="float")


def _where(e: Emitter, condition: Tensor, a: Any, b: Any) -> Tensor:
    test = condition if condition.dtype() == DataType.Bool else e.ops.ne(condition, 0)
    return e.pointwise(lambda x, y: e.ops.where(test, x, y), a, b)


def _masked_fill(e: Emitter, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    dtype = x.dtype()
    return e.narrow(e.ops.where(mask, e.computed(value, dtype), e.wide(x)), dtype)


def _addcmul(op: str) -> Row:
    def write(e: Emitter, x: Any, a: Any, b: Any, value: Any = 1, **_: Any) -> Tensor:
        rule = "float" if op == "addcdiv" else "same"
        if rule == "same" and e.common([x, a, b]).kind == "Int":  # torch truncates 2.5
            value = e.ops.cast(value, DataType.Int) if isinstance(value, Scalar) else int(value)
        return e.pointwise(op, x, a, b, rule=rule, extra=(value,))

    return write


def _logical(op: str) -> Row:
    """A row for operands that are converted to truth values."""

    def write(e: Emitter, *operands: Any) -> Tensor:
        return e.pointwise(op, *operands, rule="bool")

    return write


def _float_test(op: str, of_integers: bool) -> Row:
    """A row for isnan and similar tests; integers have a constant result."""

    def write(e: Emitter, x: Tensor) -> Tensor:
        if x.dtype().kind in ("Bool", "Int"):
            return e.ops.full(e.sizes(x), of_integers, DataType.Bool)
        return e.pointwise(op, x, rule="bool")

    return write


def _integer_free(op: str) -> Row:
    """A row for a rounding op; integers are copied."""

    def write(e: Emitter, x: Tensor, **_: Any) -> Tensor:
        if x.dtype().kind == "Int":
            return e.copy(x)
        return e.pointwise(op, x, jumps=True)

    return write


def _round(e: Emitter, x: Tensor, decimals: int = 0, **_: Any) -> Tensor:
    """Rounds to decimals as torch does: half types are scaled in their own type on a GPU, in
    float32 on the CPU.
    """
    dtype = x.dtype()
    if not decimals:
        return e.copy(x) if dtype.kind == "Int" else e.pointwise("round", x, jumps=True)
    if dtype.kind != "Float":
        raise Unsupported("round of integers with decimals")
    to, back = ("mul", "truediv") if decimals > 0 else ("truediv", "mul")
    range_of = dtype if e.on_gpu else dtype.compute
    # Python raises an error where torch's power is inf.
    power = e.rounded(10.0 ** abs(decimals) if abs(decimals) <= 308 else math.inf, range_of)

    def rounded(v: Any) -> Any:
        scaled = e.ops.cast(getattr(e.ops, to)(v, power), range_of)
        return getattr(e.ops, back)(e.ops.round(scaled), power)

    return e.pointwise(rounded, x, jumps=True)


def _sgn(e: Emitter, x: Tensor) -> Tensor:
    return e.copy(x) if x.dtype().kind == "Bool" else e.pointwise("sign", x, jumps=True)


def _abs(e: Emitter, x: Tensor) -> Tensor:
    return e.copy(x) if x.dtype() == DataType.Bool else e.pointwise("abs", x, rule="real")


def _times(e: Emitter, x: Tensor, factor: float) -> Tensor:
    return e.pointwise(lambda v: e.ops.mul(v, factor), x, rule="float")


def _sinc(e: Emitter, x: Tensor) -> Tensor:
    def sinc(v: Any) -> Any:
        angle = e.ops.mul(v, math.pi)
        quotient = e.ops.truediv(e.ops.sin(angle), angle)
        return e.ops.where(e.ops.eq(v, 0), 1.0, quotient)

    return e.pointwise(sinc, x, rule="float")


def _logit(e: Emitter, x: Tensor, eps: float | None = None) -> Tensor:
    """Clamps to eps first, then to 1 - eps, which may be smaller."""
    ops = e.ops

    def logit(v: Any) -> Any:
        if eps is None:
            return ops.logit(v)
        most = 1.0 - eps
        return ops.logit(ops.where(ops.lt(v, eps), eps, ops.where(ops.gt(v, most), most, v)))

    return e.pointwise(logit, x, rule="float")


def _nan_to_num(
    e: Emitter, x: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> Tensor:
    import torch

    dtype = x.dtype()
    if dtype.kind != "Float":
        if dtype.kind == "Complex":
            raise Unsupported("nan_to_num of complex numbers")
        return e.copy(x)
    limits = torch.finfo(getattr(torch, dtype.torch_name))
    ops = e.ops

    def replaced(v: Any) -> Any:
        w = ops.where(ops.isnan(v), 0.0 if nan is None else float(nan), v)
        w = ops.where(ops.isposinf(v), limits.max if posinf is None else float(posinf), w)
        return ops.where(ops.isneginf(v), limits.min if neginf is None else float(neginf), w)

    return e.pointwise(replaced, x, jumps=True)


def _heaviside(e: Emitter, x: Tensor, values: Tensor) -> Tensor:
    def step(v: Any, at_zero: Any) -> Any:
        return e.ops.where(e.ops.eq(v, 0), at_zero, e.ops.cast(e.ops.gt(v, 0), at_zero.dtype()))

    return e.pointwise(step, x, values, jumps=True)


# ---- activations


def _activation(op: str) -> Row:
    """A row for a composite of fd.ops with further arguments that are numbers."""

    def write(e: Emitter, x: Tensor, *numbers: Any, **named: Any) -> Tensor:
        function = getattr(e.ops, op)
        return e.pointwise(lambda v: function(v, *numbers, **named), x, rule="float")

    return write


def _elu(e: Emitter, x: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    return e.pointwise(
        lambda v: exponential_unit(e.ops, v, alpha, scale, input_scale), x, rule="float"
    )


def _celu(e: Emitter, x: Tensor, alpha: Any = 1.0) -> Tensor:
    return _elu(e, x, alpha, 1, 1.0 / alpha)


def _hardtanh(e: Emitter, x: Tensor, low: Any = -1, high: Any = 1) -> Tensor:
    return e.pointwise("clamp", x, extra=(e.computed(low, x.dtype()), e.computed(high, x.dtype())))


def _threshold(e: Emitter, x: Tensor, threshold: Any, value: Any) -> Tensor:
    dtype = x.dtype()
    extra = (e.computed(threshold, dtype), e.computed(value, dtype))
    return e.pointwise("threshold", x, extra=extra)


def _leaky_relu(e: Emitter, x: Tensor, slope: Any = 0.01) -> Tensor:
    return e.pointwise("leaky_relu", x, extra=(slope,))


def _prelu(e: Emitter, x: Tensor, weight: Tensor) -> Tensor:
    return e.pointwise("prelu", x, weight)


def _softplus(e: Emitter, x: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    return e.pointwise("softplus", x, rule="float", extra=(beta, threshold))


def _log_sigmoid_forward(e: Emitter, x: Tensor) -> tuple[Tensor, Tensor]:
    """The second result is a scratch buffer of torch's CPU kernel; it is empty on GPUs."""
    return e.pointwise("logsigmoid", x, rule="float"), e.ops.full([0], 0, x.dtype())


# ---- conversions


def _convert(e: Emitter, x: Tensor, dtype: Any) -> Tensor:
    """An explicit cast: rounds, unlike `narrow`."""
    wanted = as_dtype(dtype)
    if x.dtype() == wanted:
        return x
    if wanted == DataType.Float and e.wide(x) is not x:
        return e.wide(x)
    return e.cast(e.real_for(x, wanted), wanted)


def _to_copy(e: Emitter, x: Tensor, dtype: Any = None, **_: Any) -> Tensor:
    return e.copy(x) if dtype in (None, x.dtype()) else _convert(e, x, dtype)


def _to_dtype(e: Emitter, x: Tensor, dtype: Any, *_: Any, **__: Any) -> Tensor:
    return _convert(e, x, dtype)


def _type_as(e: Emitter, x: Tensor, other: Tensor) -> Tensor:
    return _convert(e, x, other.dtype())


def _reduced_precision(
    e: Emitter, x: Tensor, cuda: bool, cpu: bool, cuda_dtype: Any, cpu_dtype: Any
) -> Tensor:
    """Autocast in scripts; it is enabled for one device, the device of the tensors."""
    if x.dtype() != DataType.Float or not (cuda or cpu):
        return x
    return _convert(e, x, cuda_dtype if cuda else cpu_dtype)


def _full_precision(e: Emitter, x: Tensor, cuda: bool, cpu: bool) -> Tensor:
    half = x.dtype() in (DataType.Half, DataType.BFloat16)
    return _convert(e, x, DataType.Float) if half and (cuda or cpu) else x


def _copy(e: Emitter, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return e.copy(x)


def _copy_to(e: Emitter, x: Tensor, source: Tensor, *_: Any) -> Tensor:
    """copy(x, source): source in the shape and dtype of x."""
    value = e.computed(source, x.dtype())
    if source.ndim != x.ndim or x.ndim:
        value = e.ops.broadcast_in_dim(value, e.sizes(x), list(range(x.ndim - source.ndim, x.ndim)))
    return e.narrow(value, x.dtype())


ROWS: dict[str, Row] = {
    # arithmetic
    **{f"aten.add.{o}": _alpha("add") for o in ("Tensor", "Scalar")},
    **{f"aten.sub.{o}": _alpha("sub") for o in ("Tensor", "Scalar")},
    **{f"aten.rsub.{o}": _alpha("sub", swapped=True) for o in ("Tensor", "Scalar")},
    **{f"aten.mul.{o}": _op("mul", operands=2, numbers=_FACTORS) for o in ("Tensor", "Scalar")},
    **{
        f"aten.{op}.{of}": _modulo(op)
        for op in ("fmod", "remainder")
        for of in ("Tensor", "Scalar")
    },
    "aten.remainder.Scalar_Tensor": _modulo("remainder"),
    **{f"aten.div.{o}": _divide for o in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    "aten.true_divide.Tensor": _divide,
    "aten.true_divide.Scalar": _divide,
    **{f"aten.floor_divide.{o}": _floor_divide for o in ("default", "Scalar")},
    **{f"aten.pow.Tensor_{o}": _power for o in ("Tensor", "Scalar")},
    "aten.pow.Scalar": _power,
    **_binary("minimum maximum gcd", overloads="default"),
    "aten.fmax.default": _extreme_number("maximum"),
    "aten.fmin.default": _extreme_number("minimum"),
    "aten.lcm.default": _lcm,
    "aten.max.other": _op("maximum", "same", 2),
    "aten.min.other": _op("minimum", "same", 2),
    "aten.atan2.default": _op("atan2", "float", 2),
    "aten.hypot.default": _op("hypot", "float", 2),
    **_binary("copysign", rule="float"),
    "aten.nextafter.default": _nextafter,
    "aten.logaddexp.default": _op("log_add_exp", "float", 2),
    **{
        f"aten.xlogy.{o}": _op("xlogy", "float", 2)
        for o in ("Tensor", "Scalar_Self", "Scalar_Other")
    },
    **{f"aten.float_power.{o}": _float_power for o in ("Tensor_Tensor", "Tensor_Scalar", "Scalar")},
    **special.ROWS,
    "aten.heaviside.default": _heaviside,
    **{f"aten.lerp.{o}": _op("lerp", "float", 3) for o in ("Tensor", "Scalar")},
    "aten.addcmul.default": _addcmul("addcmul"),
    "aten.addcdiv.default": _addcmul("addcdiv"),
    "prims.fma.default": lambda e, a, b, c: e.pointwise(
        lambda x, y, z: e.ops.add(e.ops.mul(x, y), z), a, b, c
    ),
    "prim.add_optional.default": lambda e, x, bias: (
        x if bias is None else e.pointwise("add", x, bias)
    ),
    # bits and logic
    **_binary("bitwise_and bitwise_or bitwise_xor", overloads="Tensor Scalar Scalar_Tensor"),
    **_binary(
        "bitwise_left_shift bitwise_right_shift", overloads="Tensor Tensor_Scalar Scalar_Tensor"
    ),
    **_binary("__and__", "bitwise_and"),
    **_binary("__or__", "bitwise_or"),
    **_binary("__xor__", "bitwise_xor"),
    **_binary("__lshift__", "bitwise_left_shift"),
    **_binary("__rshift__", "bitwise_right_shift"),
    "aten.bitwise_not.default": _op("bitwise_not"),
    "aten.logical_not.default": _logical("logical_not"),
    **{f"aten.{n}.default": _logical(n) for n in ("logical_and", "logical_or", "logical_xor")},
    # comparisons and choice
    **_binary("eq ne lt le gt ge", rule="bool"),
    "aten.isnan.default": _float_test("isnan", False),
    "aten.isinf.default": _float_test("isinf", False),
    "aten.isfinite.default": _float_test("isfinite", True),
    "aten.isneginf.default": _float_test("isneginf", False),
    "aten.isposinf.default": _float_test("isposinf", False),
    "aten.isreal.default": _float_test("isreal", True),
    "aten.signbit.default": _op("signbit", "bool"),
    **{f"aten.where.{o}": _where for o in ("self", "ScalarSelf", "ScalarOther", "Scalar")},
    **{f"aten.masked_fill.{o}": _masked_fill for o in ("Scalar", "Tensor")},
    **{f"aten.clamp.{o}": _clamp for o in ("default", "Tensor")},
    **{f"aten.clamp_min.{o}": _clamp for o in ("default", "Tensor")},
    **{
        f"aten.clamp_max.{o}": lambda e, x, high: _clamp(e, x, None, high)
        for o in ("default", "Tensor")
    },
    "aten.nan_to_num.default": _nan_to_num,
    # functions of one operand
    **_unary("neg", "same"),
    **{f"aten.{n}.default": _integer_free(n) for n in ("ceil", "floor", "trunc")},
    "aten.round.default": _round,
    "aten.round.decimals": _round,
    "aten.frac.default": _op("frac", jumps=True),
    "aten.sign.default": _sgn,
    "aten.sgn.default": _sgn,
    "aten.deg2rad.default": lambda e, x: _times(e, x, math.pi / 180),
    "aten.rad2deg.default": lambda e, x: _times(e, x, 180 / math.pi),
    "aten.sinc.default": _sinc,
    "aten.angle.default": _angle,
    "aten.abs.default": _abs,
    "aten.relu.default": _op("relu"),
    "aten.square.default": lambda e, x: _power(e, x, 2),
    **_unary(
        "reciprocal sqrt rsqrt exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan "
        "sinh cosh tanh asinh acosh atanh sigmoid silu erf erfc erfinv lgamma mish",
        "float",
    ),
    "aten.special_erfcx.default": _op("erfcx", "float"),
    "aten.logit.default": _logit,
    # activations
    "aten.gelu.default": _activation("gelu"),
    "aten.elu.default": _elu,
    "aten.celu.default": _celu,
    "aten.selu.default": _activation("selu"),
    "aten.relu6.default": lambda e, x: _hardtanh(e, x, 0, 6),
    "aten.hardtanh.default": _hardtanh,
    "aten.hardsigmoid.default": _activation("hardsigmoid"),
    "aten.hardswish.default": _activation("hardswish"),
    "aten.hardshrink.default": _activation("hardshrink"),
    "aten.softshrink.default": _activation("softshrink"),
    "aten.leaky_relu.default": _leaky_relu,
    "aten.prelu.default": lambda e, x, w: _prelu(e, x, _channelwise(e, x, w)),
    "aten._prelu_kernel.default": _prelu,
    "aten.softplus.default": _softplus,
    "aten.threshold.default": _threshold,
    "aten.log_sigmoid.default": lambda e, x: _log_sigmoid_forward(e, x)[0],
    "aten.log_sigmoid_forward.default": _log_sigmoid_forward,
    # conversions and copies
    "aten._to_copy.default": _to_copy,
    "prims.convert_element_type.default": _to_dtype,
    "aten.to.dtype": _to_dtype,
    "aten.type_as.default": _type_as,
    "aten._autocast_to_reduced_precision.default": _reduced_precision,
    "aten._autocast_to_full_precision.default": _full_precision,
    "aten.clone.default": _copy,
    "aten.copy.default": _copy_to,
}


def _channelwise(e: Emitter, x: Tensor, weight: Tensor) -> Tensor:
    """Broadcasts a weight per channel (dim 1) of x, or a single weight."""
    if weight.ndim != 1 or x.ndim == 0:
        return weight
    one = known(e.size(weight, 0)) == 1
    channel = x.ndim - 1 if x.ndim < 2 or one else 1
    places = [d != channel for d in range(x.ndim)]
    return e.same(e.ops.broadcast(e.wide(weight), places), weight)
