# Written by `python -m fuser.ops.stubs` from the op table; a test says when it is stale.
# One file because it declares one class.
from typing import overload

from fuser import _core
from fuser._core import Scalar, Tensor
from fuser.arguments import Number, Operand

_Value = Scalar | Number

class Elementwise:
    """Scalar ops. Tensors broadcast. Shapes that do not raise ShapeError `broadcast-1`, other types
    raise DTypeError `op-dtype-1`.
    """

    _builder: _core.Builder
    @overload
    def real(self, x: _Value, /) -> Scalar:
        """real(x), elementwise.
        Types: bool, int, float, complex; the result is the type of the operand, including half
        types; complex gives its real type.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def real(self, x: Tensor, /) -> Tensor: ...
    @overload
    def imag(self, x: _Value, /) -> Scalar:
        """imag(x), elementwise.
        Types: complex; the result is the type of the operand, including half types; complex gives
        its real type.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def imag(self, x: Tensor, /) -> Tensor: ...
    @overload
    def complex(self, real: _Value, imag: _Value, /) -> Scalar:
        """complex(real, imag), elementwise.
        Types: float; the result is complex64 from float32, complex128 from float64.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def complex(self, real: Tensor, imag: Operand, /) -> Tensor: ...
    @overload
    def complex(self, real: Operand, imag: Tensor, /) -> Tensor: ...
    @overload
    def add(self, a: _Value, b: _Value, /) -> Scalar:
        """add(a, b), elementwise.
        Types: bool, int, float, complex; the result is the common type of the operands (float16,
        bfloat16 and float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def add(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def add(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def sub(self, a: _Value, b: _Value, /) -> Scalar:
        """sub(a, b), elementwise.
        Types: int, float, complex; the result is the common type of the operands (float16, bfloat16
        and float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def sub(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def sub(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def mul(self, a: _Value, b: _Value, /) -> Scalar:
        """mul(a, b), elementwise.
        Types: bool, int, unsigned, float, complex; the result is the common type of the operands
        (float16, bfloat16 and float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def mul(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def mul(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def neg(self, x: _Value, /) -> Scalar:
        """neg(x), elementwise.
        Types: int, float, complex; the result is the common type of the operands, including half
        types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def neg(self, x: Tensor, /) -> Tensor: ...
    @overload
    def abs(self, x: _Value, /) -> Scalar:
        """abs(x), elementwise.
        Types: int, float, complex; the result is the type of the operand, including half types;
        complex gives its real type.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def abs(self, x: Tensor, /) -> Tensor: ...
    @overload
    def sign(self, x: _Value, /) -> Scalar:
        """sign(x), elementwise.
        Types: bool, int, float; the result is the common type of the operands, including half
        types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def sign(self, x: Tensor, /) -> Tensor: ...
    @overload
    def truediv(self, a: _Value, b: _Value, /) -> Scalar:
        """truediv(a, b), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def truediv(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def truediv(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def div(self, a: _Value, b: _Value, /) -> Scalar:
        """div(a, b), elementwise.
        Types: int, float, complex; the result is the common type of the operands (float16, bfloat16
        and float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def div(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def div(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def floor_divide(self, a: _Value, b: _Value, /) -> Scalar:
        """floor_divide(a, b), elementwise.
        Types: int, float; the result is the common type of the operands (float16, bfloat16 and
        float8 give float32).
        Accuracy: within 1 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def floor_divide(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def floor_divide(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def ceil_div(self, a: _Value, b: _Value, /) -> Scalar:
        """ceil_div(a, b), elementwise.
        Types: int; the result is the common type of the operands (float16, bfloat16 and float8 give
        float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def ceil_div(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def ceil_div(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def mod(self, a: _Value, b: _Value, /) -> Scalar:
        """mod(a, b), elementwise.
        Types: int; the result is the common type of the operands (float16, bfloat16 and float8 give
        float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def mod(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def mod(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def fmod(self, a: _Value, b: _Value, /) -> Scalar:
        """fmod(a, b), elementwise.
        Types: int, float; the result is the common type of the operands (float16, bfloat16 and
        float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def fmod(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def fmod(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def remainder(self, a: _Value, b: _Value, /) -> Scalar:
        """remainder(a, b), elementwise.
        Types: int, float; the result is the common type of the operands (float16, bfloat16 and
        float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def remainder(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def remainder(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def reciprocal(self, x: _Value, /) -> Scalar:
        """reciprocal(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def reciprocal(self, x: Tensor, /) -> Tensor: ...
    @overload
    def gcd(self, a: _Value, b: _Value, /) -> Scalar:
        """gcd(a, b), elementwise.
        Types: int; the result is the common type of the operands (float16, bfloat16 and float8 give
        float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def gcd(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def gcd(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def lerp(self, start: _Value, end: _Value, weight: _Value, /) -> Scalar:
        """lerp(start, end, weight), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def lerp(self, start: Tensor, end: Operand, weight: Operand, /) -> Tensor: ...
    @overload
    def lerp(self, start: Operand, end: Tensor, weight: Operand, /) -> Tensor: ...
    @overload
    def lerp(self, start: Operand, end: Operand, weight: Tensor, /) -> Tensor: ...
    @overload
    def ceil(self, x: _Value, /) -> Scalar:
        """ceil(x), elementwise.
        Types: int, float; the result is the common type of the operands, including half types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def ceil(self, x: Tensor, /) -> Tensor: ...
    @overload
    def floor(self, x: _Value, /) -> Scalar:
        """floor(x), elementwise.
        Types: int, float; the result is the common type of the operands, including half types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def floor(self, x: Tensor, /) -> Tensor: ...
    @overload
    def round(self, x: _Value, /) -> Scalar:
        """round(x), elementwise.
        Types: int, float; the result is the common type of the operands, including half types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def round(self, x: Tensor, /) -> Tensor: ...
    @overload
    def trunc(self, x: _Value, /) -> Scalar:
        """trunc(x), elementwise.
        Types: int, float; the result is the common type of the operands, including half types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def trunc(self, x: Tensor, /) -> Tensor: ...
    @overload
    def frac(self, x: _Value, /) -> Scalar:
        """frac(x), elementwise.
        Types: float; the result is the common type of the operands, including half types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def frac(self, x: Tensor, /) -> Tensor: ...
    @overload
    def copysign(self, x: _Value, sign: _Value, /) -> Scalar:
        """copysign(x, sign), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: exact, or correctly rounded. A NaN x gives NaN; the sign of a NaN counts.
        """
    @overload
    def copysign(self, x: Tensor, sign: Operand, /) -> Tensor: ...
    @overload
    def copysign(self, x: Operand, sign: Tensor, /) -> Tensor: ...
    @overload
    def nextafter(self, a: _Value, b: _Value, /) -> Scalar:
        """nextafter(a, b), elementwise.
        Types: float; the result is the common type of the operands (float16, bfloat16 and float8
        give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def nextafter(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def nextafter(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def minimum(self, a: _Value, b: _Value, /) -> Scalar:
        """minimum(a, b), elementwise.
        Types: bool, int, float; the result is the common type of the operands (float16, bfloat16
        and float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def minimum(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def minimum(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def maximum(self, a: _Value, b: _Value, /) -> Scalar:
        """maximum(a, b), elementwise.
        Types: bool, int, float; the result is the common type of the operands (float16, bfloat16
        and float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def maximum(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def maximum(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def relu(self, x: _Value, /) -> Scalar:
        """relu(x), elementwise.
        Types: int, float; the result is the common type of the operands, including half types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def relu(self, x: Tensor, /) -> Tensor: ...
    @overload
    def clamp(self, x: _Value, min: _Value, max: _Value, /) -> Scalar:
        """clamp(x, min, max), elementwise.
        Types: int, float; the result is the common type of the operands, including half types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def clamp(self, x: Tensor, min: Operand, max: Operand, /) -> Tensor: ...
    @overload
    def clamp(self, x: Operand, min: Tensor, max: Operand, /) -> Tensor: ...
    @overload
    def clamp(self, x: Operand, min: Operand, max: Tensor, /) -> Tensor: ...
    @overload
    def threshold(self, x: _Value, thr: _Value, value: _Value, /) -> Scalar:
        """threshold(x, thr, value), elementwise.
        Types: int, float; the result is the common type of the operands, including half types.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def threshold(self, x: Tensor, thr: Operand, value: Operand, /) -> Tensor: ...
    @overload
    def threshold(self, x: Operand, thr: Tensor, value: Operand, /) -> Tensor: ...
    @overload
    def threshold(self, x: Operand, thr: Operand, value: Tensor, /) -> Tensor: ...
    @overload
    def where(self, c: _Value, x: _Value, y: _Value, /) -> Scalar:
        """where(c, x, y), elementwise.
        Types: bool, int, unsigned, float, complex; the result is the common type of x and y, half
        types too.
        Accuracy: exact, or correctly rounded. NaN is passed on.
        """
    @overload
    def where(self, c: Tensor, x: Operand, y: Operand, /) -> Tensor: ...
    @overload
    def where(self, c: Operand, x: Tensor, y: Operand, /) -> Tensor: ...
    @overload
    def where(self, c: Operand, x: Operand, y: Tensor, /) -> Tensor: ...
    @overload
    def eq(self, a: _Value, b: _Value, /) -> Scalar:
        """eq(a, b), elementwise.
        Types: bool, int, unsigned, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def eq(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def eq(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def ne(self, a: _Value, b: _Value, /) -> Scalar:
        """ne(a, b), elementwise.
        Types: bool, int, unsigned, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def ne(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def ne(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def lt(self, a: _Value, b: _Value, /) -> Scalar:
        """lt(a, b), elementwise.
        Types: bool, int, float; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def lt(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def lt(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def le(self, a: _Value, b: _Value, /) -> Scalar:
        """le(a, b), elementwise.
        Types: bool, int, float; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def le(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def le(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def gt(self, a: _Value, b: _Value, /) -> Scalar:
        """gt(a, b), elementwise.
        Types: bool, int, float; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def gt(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def gt(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def ge(self, a: _Value, b: _Value, /) -> Scalar:
        """ge(a, b), elementwise.
        Types: bool, int, float; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def ge(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def ge(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def isnan(self, x: _Value, /) -> Scalar:
        """isnan(x), elementwise.
        Types: bool, int, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN is tested for.
        """
    @overload
    def isnan(self, x: Tensor, /) -> Tensor: ...
    @overload
    def isinf(self, x: _Value, /) -> Scalar:
        """isinf(x), elementwise.
        Types: bool, int, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def isinf(self, x: Tensor, /) -> Tensor: ...
    @overload
    def isfinite(self, x: _Value, /) -> Scalar:
        """isfinite(x), elementwise.
        Types: bool, int, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def isfinite(self, x: Tensor, /) -> Tensor: ...
    @overload
    def isneginf(self, x: _Value, /) -> Scalar:
        """isneginf(x), elementwise.
        Types: bool, int, float; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def isneginf(self, x: Tensor, /) -> Tensor: ...
    @overload
    def isposinf(self, x: _Value, /) -> Scalar:
        """isposinf(x), elementwise.
        Types: bool, int, float; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def isposinf(self, x: Tensor, /) -> Tensor: ...
    @overload
    def isreal(self, x: _Value, /) -> Scalar:
        """isreal(x), elementwise.
        Types: bool, int, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def isreal(self, x: Tensor, /) -> Tensor: ...
    @overload
    def signbit(self, x: _Value, /) -> Scalar:
        """signbit(x), elementwise.
        Types: bool, int, float; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def signbit(self, x: Tensor, /) -> Tensor: ...
    @overload
    def logical_not(self, x: _Value, /) -> Scalar:
        """logical_not(x), elementwise.
        Types: bool, int, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def logical_not(self, x: Tensor, /) -> Tensor: ...
    @overload
    def logical_and(self, a: _Value, b: _Value, /) -> Scalar:
        """logical_and(a, b), elementwise.
        Types: bool, int, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def logical_and(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def logical_and(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def logical_or(self, a: _Value, b: _Value, /) -> Scalar:
        """logical_or(a, b), elementwise.
        Types: bool, int, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def logical_or(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def logical_or(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def logical_xor(self, a: _Value, b: _Value, /) -> Scalar:
        """logical_xor(a, b), elementwise.
        Types: bool, int, float, complex; the result is bool.
        Accuracy: exact, or correctly rounded. NaN compares as in IEEE 754.
        """
    @overload
    def logical_xor(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def logical_xor(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_not(self, x: _Value, /) -> Scalar:
        """bitwise_not(x), elementwise.
        Types: bool, int; the result is the common type of the operands (float16, bfloat16 and
        float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def bitwise_not(self, x: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_and(self, a: _Value, b: _Value, /) -> Scalar:
        """bitwise_and(a, b), elementwise.
        Types: bool, int, unsigned; the result is the common type of the operands (float16, bfloat16
        and float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def bitwise_and(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def bitwise_and(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_or(self, a: _Value, b: _Value, /) -> Scalar:
        """bitwise_or(a, b), elementwise.
        Types: bool, int, unsigned; the result is the common type of the operands (float16, bfloat16
        and float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def bitwise_or(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def bitwise_or(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_xor(self, a: _Value, b: _Value, /) -> Scalar:
        """bitwise_xor(a, b), elementwise.
        Types: bool, int, unsigned; the result is the common type of the operands (float16, bfloat16
        and float8 give float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def bitwise_xor(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def bitwise_xor(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_left_shift(self, a: _Value, b: _Value, /) -> Scalar:
        """bitwise_left_shift(a, b), elementwise.
        Types: int; the result is the common type of the operands (float16, bfloat16 and float8 give
        float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def bitwise_left_shift(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def bitwise_left_shift(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def bitwise_right_shift(self, a: _Value, b: _Value, /) -> Scalar:
        """bitwise_right_shift(a, b), elementwise.
        Types: int; the result is the common type of the operands (float16, bfloat16 and float8 give
        float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def bitwise_right_shift(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def bitwise_right_shift(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def logical_right_shift(self, a: _Value, b: _Value, /) -> Scalar:
        """logical_right_shift(a, b), elementwise.
        Types: int; the result is the common type of the operands (float16, bfloat16 and float8 give
        float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def logical_right_shift(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def logical_right_shift(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def pow(self, a: _Value, b: _Value, /) -> Scalar:
        """pow(a, b), elementwise.
        Types: int, float, complex; the result is the common type of the operands (float16, bfloat16
        and float8 give float32).
        Accuracy: within 4 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def pow(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def pow(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def sqrt(self, x: _Value, /) -> Scalar:
        """sqrt(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def sqrt(self, x: Tensor, /) -> Tensor: ...
    @overload
    def rsqrt(self, x: _Value, /) -> Scalar:
        """rsqrt(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def rsqrt(self, x: Tensor, /) -> Tensor: ...
    @overload
    def exp(self, x: _Value, /) -> Scalar:
        """exp(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def exp(self, x: Tensor, /) -> Tensor: ...
    @overload
    def exp2(self, x: _Value, /) -> Scalar:
        """exp2(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def exp2(self, x: Tensor, /) -> Tensor: ...
    @overload
    def expm1(self, x: _Value, /) -> Scalar:
        """expm1(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def expm1(self, x: Tensor, /) -> Tensor: ...
    @overload
    def log(self, x: _Value, /) -> Scalar:
        """log(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def log(self, x: Tensor, /) -> Tensor: ...
    @overload
    def log1p(self, x: _Value, /) -> Scalar:
        """log1p(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def log1p(self, x: Tensor, /) -> Tensor: ...
    @overload
    def log2(self, x: _Value, /) -> Scalar:
        """log2(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def log2(self, x: Tensor, /) -> Tensor: ...
    @overload
    def log10(self, x: _Value, /) -> Scalar:
        """log10(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def log10(self, x: Tensor, /) -> Tensor: ...
    @overload
    def sin(self, x: _Value, /) -> Scalar:
        """sin(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def sin(self, x: Tensor, /) -> Tensor: ...
    @overload
    def cos(self, x: _Value, /) -> Scalar:
        """cos(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def cos(self, x: Tensor, /) -> Tensor: ...
    @overload
    def tan(self, x: _Value, /) -> Scalar:
        """tan(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 4 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def tan(self, x: Tensor, /) -> Tensor: ...
    @overload
    def asin(self, x: _Value, /) -> Scalar:
        """asin(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 4 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def asin(self, x: Tensor, /) -> Tensor: ...
    @overload
    def acos(self, x: _Value, /) -> Scalar:
        """acos(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def acos(self, x: Tensor, /) -> Tensor: ...
    @overload
    def atan(self, x: _Value, /) -> Scalar:
        """atan(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def atan(self, x: Tensor, /) -> Tensor: ...
    @overload
    def atan2(self, a: _Value, b: _Value, /) -> Scalar:
        """atan2(a, b), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def atan2(self, a: Tensor, b: Operand, /) -> Tensor: ...
    @overload
    def atan2(self, a: Operand, b: Tensor, /) -> Tensor: ...
    @overload
    def sinh(self, x: _Value, /) -> Scalar:
        """sinh(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def sinh(self, x: Tensor, /) -> Tensor: ...
    @overload
    def cosh(self, x: _Value, /) -> Scalar:
        """cosh(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def cosh(self, x: Tensor, /) -> Tensor: ...
    @overload
    def tanh(self, x: _Value, /) -> Scalar:
        """tanh(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def tanh(self, x: Tensor, /) -> Tensor: ...
    @overload
    def asinh(self, x: _Value, /) -> Scalar:
        """asinh(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def asinh(self, x: Tensor, /) -> Tensor: ...
    @overload
    def acosh(self, x: _Value, /) -> Scalar:
        """acosh(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 4 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def acosh(self, x: Tensor, /) -> Tensor: ...
    @overload
    def atanh(self, x: _Value, /) -> Scalar:
        """atanh(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def atanh(self, x: Tensor, /) -> Tensor: ...
    @overload
    def sigmoid(self, x: _Value, /) -> Scalar:
        """sigmoid(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 8 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def sigmoid(self, x: Tensor, /) -> Tensor: ...
    @overload
    def silu(self, x: _Value, /) -> Scalar:
        """silu(x), elementwise.
        Types: float, complex, bool and int as float32; the result is the common type of the
        operands, with bool and integers promoted to float32.
        Accuracy: within 8 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def silu(self, x: Tensor, /) -> Tensor: ...
    @overload
    def gelu_erf(self, x: _Value, /) -> Scalar:
        """gelu_erf(x), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: within 13 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def gelu_erf(self, x: Tensor, /) -> Tensor: ...
    @overload
    def gelu_tanh(self, x: _Value, /) -> Scalar:
        """gelu_tanh(x), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: within 8 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def gelu_tanh(self, x: Tensor, /) -> Tensor: ...
    @overload
    def erf(self, x: _Value, /) -> Scalar:
        """erf(x), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: within 2 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def erf(self, x: Tensor, /) -> Tensor: ...
    @overload
    def erfc(self, x: _Value, /) -> Scalar:
        """erfc(x), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: within 5 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def erfc(self, x: Tensor, /) -> Tensor: ...
    @overload
    def erfcx(self, x: _Value, /) -> Scalar:
        """erfcx(x), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: within 4 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def erfcx(self, x: Tensor, /) -> Tensor: ...
    @overload
    def erfinv(self, x: _Value, /) -> Scalar:
        """erfinv(x), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: within 3 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def erfinv(self, x: Tensor, /) -> Tensor: ...
    @overload
    def erfcinv(self, x: _Value, /) -> Scalar:
        """erfcinv(x), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: within 4 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def erfcinv(self, x: Tensor, /) -> Tensor: ...
    @overload
    def lgamma(self, x: _Value, /) -> Scalar:
        """lgamma(x), elementwise.
        Types: float, bool and int as float32; the result is the common type of the operands, with
        bool and integers promoted to float32.
        Accuracy: within 6 ULP in float32. A NaN operand gives NaN.
        """
    @overload
    def lgamma(self, x: Tensor, /) -> Tensor: ...
    @overload
    def random32(self, index: _Value, seed: _Value, offset: _Value, /) -> Scalar:
        """random32(index, seed, offset), elementwise.
        Types: int; the result is the common type of the operands (float16, bfloat16 and float8 give
        float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def random32(self, index: Tensor, seed: Operand, offset: Operand, /) -> Tensor: ...
    @overload
    def random32(self, index: Operand, seed: Tensor, offset: Operand, /) -> Tensor: ...
    @overload
    def random32(self, index: Operand, seed: Operand, offset: Tensor, /) -> Tensor: ...
    @overload
    def random64(self, index: _Value, seed: _Value, offset: _Value, /) -> Scalar:
        """random64(index, seed, offset), elementwise.
        Types: int; the result is the common type of the operands (float16, bfloat16 and float8 give
        float32).
        Accuracy: exact, or correctly rounded. A NaN operand gives NaN.
        """
    @overload
    def random64(self, index: Tensor, seed: Operand, offset: Operand, /) -> Tensor: ...
    @overload
    def random64(self, index: Operand, seed: Tensor, offset: Operand, /) -> Tensor: ...
    @overload
    def random64(self, index: Operand, seed: Operand, offset: Tensor, /) -> Tensor: ...
