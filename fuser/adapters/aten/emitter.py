"""Emitter: the interface of rows to a definition, with torch's type rules and unrounded values.

Torch rounds the result of every op to its dtype. A kernel keeps float32 between ops of half types,
as hand-written fused kernels do. `narrow` returns the rounded tensor, which is used as output of
the definition, and records the wide tensor, from which later ops compute. Explicit casts of the
program round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from fuser import DataType, FusionDefinition, Scalar, Tensor, Unsupported, _core
from fuser.arguments import as_dtype
from fuser.debug.interpreter import torch_dtype

_HALF = (DataType.Half, DataType.BFloat16, DataType.Float8_e4m3fn, DataType.Float8_e5m2)
# Half types for which torch may have a complex type; bfloat16 has one from 2.14 on.
_WITH_COMPLEX = (DataType.Half, DataType.BFloat16)
# (operand index, machine) pairs: see Emitter.taken_as_number().
Numbers = Sequence[tuple[int, str]]
# Rows of one operand that give half types for half types.
_KEEPING = {r.name for r in _core.op_rows() if r.arity == 1 and r.rule in ("Common", "Real")}
_CATEGORY = {"Bool": 0, "Int": 1, "Float": 2, "Complex": 3}

# Wide tensors by definition and id of the rounded tensor.
_WIDE: WeakKeyDictionary[FusionDefinition, dict[int, Tensor]] = WeakKeyDictionary()
# By definition: ids of 0-dim CPU tensors used with GPU tensors.
_CPU_SCALARS: WeakKeyDictionary[FusionDefinition, set[int]] = WeakKeyDictionary()


class Emitter:
    """The definition under construction, as rows see it.

    on_gpu  True if it will run on a GPU; a few ops have other results there
    """

    def __init__(self, fd: FusionDefinition, on_gpu: bool = False) -> None:
        self.fd, self.on_gpu = fd, on_gpu
        self.ops: Any = fd.ops
        self._wide = _WIDE.setdefault(fd, {})
        self.cpu_scalars = _CPU_SCALARS.setdefault(fd, set())

    # ---- values of half types

    def wide(self, x: Tensor) -> Tensor:
        """Value of x before it was rounded to its dtype."""
        return self._wide.get(x.id, x)

    def narrow(self, value: Tensor, dtype: Any) -> Tensor:
        """Rounds `value` to `dtype`; later ops compute from `value` itself."""
        dtype = as_dtype(dtype)
        if value.dtype() == dtype:
            return value
        rounded = self.cast(value, dtype)
        if dtype in _HALF and value.dtype() == DataType.Float:
            self._wide[rounded.id] = value
        return rounded

    def same(self, result: Tensor, x: Tensor) -> Tensor:
        """Narrows `result`, a movement of wide(x), to the dtype of x."""
        return self.narrow(result, x.dtype())

    def copy(self, x: Tensor) -> Tensor:
        """A copy of x with its own memory."""
        return self.same(self.ops.set(self.wide(x)), x)

    # ---- types

    def common(self, operands: Iterable[Any]) -> DataType:
        """The dtype in which torch computes an op: tensors take precedence over 0-dim tensors, and
        0-dim tensors over numbers, unless these have a higher kind (bool, int, float, complex).
        """
        with_dims = without = number = None
        for x in operands:
            if isinstance(x, Tensor):
                if x.ndim:
                    with_dims = _joined(with_dims, x.dtype())
                else:
                    without = _joined(without, x.dtype())
            elif x is not None:
                number = _joined(number, _type_of(x))
        found = _ranked(with_dims, _ranked(without, number))
        if found is None:
            raise Unsupported("an op without tensor operands")
        return found

    def to_float(self, dtype: DataType) -> DataType:
        """Type of ops with floating point results: bool and integers count as torch's default
        dtype.
        """
        if dtype.kind in ("Bool", "Int"):
            return as_dtype(torch.get_default_dtype())
        return dtype

    def decided(self, x: Any, dtype: DataType) -> Any:
        """Operand of a discontinuous op, e.g. a comparison or argmax. As computed(), but rounded to
        a half type if that is the common dtype. Comparing an unrounded value with a rounded one
        could select the wrong element.
        """
        if not isinstance(x, Tensor) or dtype not in _HALF:
            return self.computed(x, dtype)
        return x if x.dtype() == dtype else self.cast(x, dtype)

    def computed(self, x: Any, dtype: DataType) -> Any:
        """Operand of an op that computes in `dtype`: the wide value of a tensor of `dtype`; a
        tensor of another dtype is converted, with rounding, as in torch.
        """
        if not isinstance(x, Tensor):
            if isinstance(x, Scalar) and dtype.kind == "Int" and x.dtype().kind == "Float":
                return self.ops.cast(x, DataType.Int)  # as int() of a constant
            return _number(x, dtype)
        value = self.wide(x)
        if dtype in _HALF and x.dtype() == dtype:
            return value
        return value if value.dtype() == dtype else self.cast(value, dtype)

    def _widened(self, x: Any) -> Any:
        half = isinstance(x, Tensor) and x.dtype() in _HALF
        return self.ops.cast(x, DataType.Float) if half else x

    def cast(self, value: Tensor, dtype: DataType) -> Tensor:
        """Converts as torch does: floats become uint8 by way of int64, so that -1 becomes 255."""
        if dtype == DataType.Byte and value.dtype().kind == "Float":
            value = self.ops.cast(value, DataType.Int)
        result: Tensor = self.ops.cast(value, dtype)
        return result

    def real_for(self, x: Tensor, dtype: DataType) -> Tensor:
        """Drops the imaginary part of x before an explicit cast to a real dtype; bool tests for
        nonzero instead.
        """
        dropped = x.dtype().kind == "Complex" and dtype.kind in ("Int", "Float")
        real: Tensor = self.ops.real(x) if dropped else x
        return real

    def rounded(self, x: Any, dtype: DataType) -> Any:
        """Rounds a number to `dtype`, as torch does for comparisons and remainders."""
        if dtype.kind == "Float" and isinstance(x, Scalar):
            return x if x.dtype() == dtype else self.ops.cast(x, dtype)
        if dtype.kind != "Float" or not isinstance(x, int | float):
            return x
        return torch.tensor(float(x), dtype=getattr(torch, dtype.torch_name)).item()

    # ---- elementwise ops

    def taken_as_number(self, x: Any, place: int, numbers: Numbers) -> bool:
        """True if torch's kernels take a 0-dim tensor as a number, in float32 next to half types.
        `numbers` contains (operand index, "cpu") if the CPU kernels do, and (operand index, "gpu")
        if the GPU kernels do for a 0-dim CPU tensor.
        """
        if not isinstance(x, Tensor) or x.ndim:
            return False
        if self.on_gpu:
            return x.id in self.cpu_scalars and (place, "gpu") in numbers
        return (place, "cpu") in numbers

    def pointwise(
        self,
        op: str | Callable[..., Any],
        *operands: Any,
        rule: str = "same",
        extra: Any = (),
        jumps: bool = False,
        numbers: Numbers = (),
    ) -> Tensor:
        """Emits one op of fd.ops on operands converted to their common dtype, which is also the
        result's. rule "float": a floating dtype; "bool": bool; "real": without imaginary part.
        `extra` are arguments that do not affect the types. `jumps`: the op is discontinuous in its
        operands. `numbers`: see taken_as_number().
        """
        dtype = self.common(operands)
        if rule == "float":
            dtype = self.to_float(dtype)
        function = getattr(self.ops, op) if isinstance(op, str) else op
        if rule == "bool":
            operands = tuple(self.rounded(x, dtype) for x in operands)
        taken = self.decided if jumps or rule == "bool" else self.computed
        values = [
            self.computed(x, DataType.Float)
            if dtype in _HALF and self.taken_as_number(x, place, numbers)
            else taken(x, dtype)
            for place, x in enumerate(operands)
        ]
        if op in _KEEPING:  # what comes of them moves as float32, as results of other rows do
            values = [self._widened(x) for x in values]
        result = function(*values, *extra)
        if not isinstance(result, Tensor):
            raise Unsupported("an op with numbers as its only operands")
        if rule == "bool":
            return result
        if rule == "real" and dtype.kind == "Complex":
            dtype = _core.real_type(dtype)
        return self.narrow(result, dtype)

    # ---- shapes

    def dims(self, dim: Any, rank: int) -> list[int]:
        """Normalizes dims from torch's conventions (one, several, or None or [] for all) to
        nonnegative dims.
        """
        if dim is None:
            return list(range(rank))
        listed = [dim] if isinstance(dim, int) else [int(d) for d in dim]
        if rank == 0:
            return []
        return [d % rank for d in listed] or list(range(rank))

    def size(self, x: Tensor, dim: int) -> Any:
        """A size, as int if it is known."""
        size = x.size(dim)
        return size if size.value is None else int(size.value)

    def check_equal(self, size: Any, wanted: Any) -> None:
        """Makes a run raise an error if these sizes differ, by a reshape without users."""
        if not (isinstance(size, int) and isinstance(wanted, int)):
            self.ops.reshape(self.ops.full([size], 0.0, DataType.Float), [wanted])
        elif size != wanted:
            raise Unsupported(f"cannot view {size} elements as {wanted}", rule="aten-sizes")

    def check_within(self, index: Scalar, size: Scalar) -> None:
        """Makes a run raise an error if the index is out of range for a dim of that size; negative
        indices count from the end.
        """
        last = self.ops.sub(size, 1)
        nearest = self.ops.maximum(self.ops.minimum(index, last), self.ops.neg(size))
        self.check_equal(self.ops.add(self.ops.sub(nearest, index), 1), 1)

    def sizes(self, x: Tensor) -> list[Any]:
        """All sizes of x."""
        return [self.size(x, d) for d in range(x.ndim)]


def default_float() -> DataType:
    """Torch's default dtype."""
    return as_dtype(torch.get_default_dtype())


def known(size: Any) -> int | None:
    """The value of a size, if it is known before the run."""
    if isinstance(size, Scalar):
        return None if size.value is None else int(size.value)
    return size if isinstance(size, int) else None


def _joined(a: DataType | None, b: DataType) -> DataType:
    return b if a is None else _core.promote_types(a, b)


def _type_of(number: Any) -> DataType:
    """The dtype of a number among tensors."""
    if isinstance(number, Scalar):
        kind = number.dtype().kind
    elif isinstance(number, bool | torch.SymBool):
        kind = "Bool"
    elif isinstance(number, int | torch.SymInt):
        kind = "Int"
    else:
        kind = "Complex" if isinstance(number, complex) else "Float"
    if kind == "Bool":
        return DataType.Bool
    if kind == "Int":
        return DataType.Int
    if kind == "Float":
        return default_float()
    double = default_float() == DataType.Double
    return DataType.ComplexDouble if double else DataType.ComplexFloat


def _ranked(high: DataType | None, low: DataType | None) -> DataType | None:
    """Combines the types of two operand levels: the lower level matters only if its kind is
    higher.
    """
    if high is None or low is None:
        return high or low
    if _CATEGORY[low.kind] <= _CATEGORY[high.kind]:
        return high
    if high.kind == "Float":  # with a complex number: the complex type of this precision
        if high in _WITH_COMPLEX and torch_dtype(high).to_complex().itemsize == 4:
            raise Unsupported("complex numbers of half precision", rule="aten-dtype")
        narrow = DataType.ComplexFloat
        return DataType.ComplexDouble if high == DataType.Double else narrow
    return low


def _number(x: Any, dtype: DataType) -> Any:
    """Converts a number to a constant of an op that computes in `dtype`; integers wrap."""
    if isinstance(x, Scalar) or not isinstance(x, bool | int | float | complex):
        return x
    if dtype.kind == "Float":
        return x if isinstance(x, complex) else float(x)
    if dtype.kind == "Int" and isinstance(x, float):
        return int(x)
    if dtype.kind == "Int" and isinstance(x, int) and dtype != DataType.Int:
        bits = 8 * dtype.bytes
        x = int(x) & ((1 << bits) - 1)
        return x - (1 << bits) if dtype != DataType.Byte and x >> (bits - 1) else x
    return x


def together(values: Sequence[Any]) -> Any:
    """The product of the values; 1 if there are no values."""
    product: Any = 1
    for value in values:
        product = value if isinstance(product, int) and product == 1 else product * value
    return product
