"""Ops that generate random numbers: methods of fd.ops like any other.

Element i of an op, row-major in the op's own shape, depends only on (seed, offset, i): see
csrc/device/random.cuh. So the numbers do not depend on kernel, schedule or layout. By default, each
run draws seed and offset from torch's default generator of the device, and each op advances it as
an op of torch does: torch.manual_seed() repeats the numbers. They differ from torch's own numbers.

An explicit offset counts ops, as in nvFuser: offsets 0, 1, 2, ... are independent. Torch's
generator counts words, four per op, so its offset is four times as large. The rows random32 and
random64 of the op table take torch's offset.
"""

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.arguments import Number, Size, as_dtype
from fuser.errors import DTypeError, UserError
from fuser.ops.methods import composed
from fuser.ops.primitives import Primitives

# Bits of a number in [0, 1) that the type holds exactly. Half types use fewer than 24, because 1 -
# 2^-24 would round to 1.
_DIGITS = {
    DataType.Double: 53,
    DataType.Float: 24,
    DataType.Half: 11,
    DataType.BFloat16: 8,
    DataType.Float8_e4m3fn: 4,
    DataType.Float8_e5m2: 3,
}
# 32-bit words of torch's generator per op: one call of Philox.
_WORDS = 4


@composed
class Random(Primitives):
    """Random numbers."""

    def uniform(
        self,
        minval: Scalar | Number,
        maxval: Scalar | Number,
        shape: Sequence[Size],
        *,
        rng_seed: Scalar | int | None = None,
        rng_offset: Scalar | int | None = None,
        dtype: Any = DataType.Float,
    ) -> Tensor:
        """minval + u * (maxval - minval), with u = k / 2^d uniform in [0, 1) and d the digits of
        `dtype`: 53 for float64, 24 for float32, 11 for float16, 8 for bfloat16. The sum is rounded,
        so `maxval` may occur unless it is u itself.

        `rng_seed` and `rng_offset`, numbers or integer Scalars, are given together: equal ones give
        equal numbers. Without them, each run draws both from torch's default generator of the
        device and advances it by 4, as an op of torch does. An offset is a quarter of torch's, as
        in nvFuser: each op takes one, and 0, 1, 2, ... are independent. It is taken modulo 2^62.
        Element i uses the words of Philox4x32-10 with key `rng_seed` and counter (rng_offset, i //
        4), for float64 (rng_offset, i // 2).

        Raises UserError `random-2` for one without the other, DTypeError `random-3` unless `dtype`
        is a real float type, DTypeError `random-4` for a seed or an offset that is no integer,
        ShapeError `full-1` for a negative size.
        """
        dtype = _real("uniform", dtype)
        state = _state(self, "uniform", rng_seed, rng_offset)
        unit = _unit(self, _elements(self, shape), state, dtype)
        if not (_is(minval, 0) and _is(maxval, 1)):
            unit = self.add(self.mul(unit, _difference(self, maxval, minval)), minval)
        return _as(self, unit, dtype)

    def normal(
        self,
        mean: Scalar | Number,
        std: Scalar | Number,
        shape: Sequence[Size],
        *,
        rng_seed: Scalar | int | None = None,
        rng_offset: Scalar | int | None = None,
        dtype: Any = DataType.Float,
    ) -> Tensor:
        """Normal numbers mean + std * sqrt(-2 log(u)) * cos(2 pi v) (Box and Muller 1958), with u
        in (0, 1] and v in [0, 1) of 24 bits each, or 53 bits for float64. Otherwise as uniform().
        """
        dtype = _real("normal", dtype)
        state = _state(self, "normal", rng_seed, rng_offset)
        index = _elements(self, shape)
        if dtype == DataType.Double:
            pairs = self.mul(index, 2)
            first = self.logical_right_shift(self.random64(pairs, *state), 11)
            second = self.logical_right_shift(self.random64(self.add(pairs, 1), *state), 11)
            wide, digits = DataType.Double, 53
        else:
            bits = self.random64(index, *state)
            first = self.cast(self.logical_right_shift(bits, 40), DataType.Int32)
            second = self.logical_right_shift(self.cast(bits, DataType.Int32), 8)
            wide, digits = DataType.Float, 24
        u = self.mul(self.cast(self.add(first, 1), wide), 2.0**-digits)
        angle = self.mul(self.cast(second, wide), 2 * math.pi * 2.0**-digits)
        result = self.mul(self.sqrt(self.mul(self.log(u), -2.0)), self.cos(angle))
        if not _is(std, 1):
            result = self.mul(result, std)
        if not _is(mean, 0):
            result = self.add(result, mean)
        return _as(self, result, dtype)

    def rand_like(
        self,
        arg: Tensor,
        *,
        rng_seed: Scalar | int | None = None,
        rng_offset: Scalar | int | None = None,
    ) -> Tensor:
        """uniform() in [0, 1) with the shape and type of `arg`, as torch.rand_like."""
        shape = self.shape(arg)
        return self.uniform(
            0, 1, shape, rng_seed=rng_seed, rng_offset=rng_offset, dtype=arg.dtype()
        )

    def randn_like(
        self,
        arg: Tensor,
        *,
        rng_seed: Scalar | int | None = None,
        rng_offset: Scalar | int | None = None,
    ) -> Tensor:
        """normal() with mean 0 and deviation 1 and the shape and type of `arg`, as
        torch.randn_like.
        """
        shape = self.shape(arg)
        return self.normal(0, 1, shape, rng_seed=rng_seed, rng_offset=rng_offset, dtype=arg.dtype())

    def dropout(self, x: Tensor, p: float, training: bool = True) -> tuple[Tensor, Tensor]:
        """(result, mask) as torch.native_dropout. Each element of `x` is kept with probability 1 -
        p, according to mask, and divided by 1 - p; other elements become 0, also NaN. Without
        `training` all elements are kept unchanged. Half types stay float32 until they are cast.
        Raises UserError `dropout-1` unless p is a number in [0, 1].
        """
        if not (isinstance(p, int | float) and 0 <= p <= 1):
            raise UserError(
                f"dropout(): p: expected a number in [0, 1], got {p!r}", rule="dropout-1"
            )
        if not training:
            wide = self.cast(x, x.dtype().compute)
            return wide, self.full(self.shape(x), True, DataType.Bool)
        draw = self.uniform(0, 1, self.shape(x))
        mask = self.lt(draw, 1.0 - p)
        scaled = self.mul(x, 0.0 if p == 1 else 1.0 / (1.0 - p))
        return self.where(mask, scaled, 0.0), mask


def _real(op: str, dtype: Any) -> DataType:
    found = as_dtype(dtype)
    if found not in _DIGITS:
        raise DTypeError(
            f"{op}(): dtype: expected a type of real floats, got {found.torch_name}",
            rule="random-3",
        )
    return found


def _state(
    ops: Random, op: str, seed: Scalar | int | None, offset: Scalar | int | None
) -> tuple[Scalar | int, Scalar | int]:
    """Seed and offset in the form that random32 and random64 take."""
    if seed is None and offset is None:
        return _core.random_state(ops._builder, 1)
    if seed is None or offset is None:
        raise UserError(
            f"{op}(): expected both rng_seed and rng_offset or neither, got one of them\n"
            "  hint: omit both to use torch's generator",
            rule="random-2",
        )
    for name, value in (("rng_seed", seed), ("rng_offset", offset)):
        if isinstance(value, Scalar):
            whole, found = value.dtype().kind == "Int", f"a Scalar of {value.dtype().torch_name}"
        else:
            whole, found = isinstance(value, Integral), repr(value)
        if not whole:
            raise DTypeError(
                f"{op}(): {name}: expected an integer, got {found}\n"
                "  hint: cast it to DataType.Int",
                rule="random-4",
            )
    if isinstance(offset, Scalar):
        return seed, ops.mul(ops.cast(offset, DataType.Int), _WORDS)
    words = int(offset) * _WORDS % 2**64
    return seed, words - 2**64 if words >= 2**63 else words


def _elements(ops: Random, shape: Sequence[Size]) -> Tensor:
    """The row-major number of each element, as int64."""
    sizes = list(shape)
    if any(_is(_number(n), 0) for n in sizes):
        return ops.full(sizes, 0, DataType.Int)
    if not sizes:
        return ops.full([], 0, DataType.Int)
    behind: list[Size] = [sizes[-1]]  # behind[-1 - d]: number of elements of the dims from d on
    for size in reversed(sizes[:-1]):
        rest = behind[-1]
        either = isinstance(size, Scalar) or isinstance(rest, Scalar)
        behind.append(ops.mul(size, rest) if either else size * rest)
    index = ops.iota(behind[-1])
    for d, size in enumerate(sizes[:-1]):
        index = ops.split_dim(index, d, [size, behind[-2 - d]])
    return index


def _unit(
    ops: Random, index: Tensor, state: tuple[Scalar | int, Scalar | int], dtype: DataType
) -> Tensor:
    """u of uniform(), in the compute type of `dtype`."""
    digits = _DIGITS[dtype]
    if dtype == DataType.Double:
        bits = ops.logical_right_shift(ops.random64(index, *state), 64 - digits)
    else:
        word = ops.cast(ops.random32(index, *state), DataType.Int32)
        bits = ops.logical_right_shift(word, 32 - digits)
    return ops.mul(ops.cast(bits, dtype.compute), 2.0**-digits)


def _as(ops: Random, value: Tensor, dtype: DataType) -> Tensor:
    return value if value.dtype() == dtype else ops.cast(value, dtype)


def _number(size: Size) -> Any:
    return size.value if isinstance(size, Scalar) else size


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int | float) and value == number


def _difference(ops: Random, a: Scalar | Number, b: Scalar | Number) -> Any:
    if isinstance(a, Scalar) or isinstance(b, Scalar):
        return ops.sub(a, b)
    return a - b
