"""Rows of factory ops: tensors without operands, or with the shape of another tensor.

Sizes and bounds are ints or Scalars; ints add no arithmetic to the definition.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuser import DataType, Tensor, Unsupported
from fuser.adapters.aten.emitter import Emitter, default_float, known
from fuser.adapters.aten.shapes import less
from fuser.arguments import as_dtype

Row = Callable[..., Any]


def _type_of_fill(value: Any) -> DataType:
    if isinstance(value, bool):
        return DataType.Bool
    if isinstance(value, float):
        return default_float()
    if isinstance(value, complex):
        return DataType.ComplexFloat
    return DataType.Int


def _full(e: Emitter, size: Sequence[Any], value: Any, dtype: Any = None, **_: Any) -> Tensor:
    wanted = _type_of_fill(value) if dtype is None else as_dtype(dtype)
    return e.ops.full(list(size), value, wanted)


def _filled(value: Any) -> Row:
    def write(e: Emitter, size: Sequence[Any], dtype: Any = None, **_: Any) -> Tensor:
        return _full(e, size, value, dtype or default_float())

    return write


def _full_like(e: Emitter, x: Tensor, value: Any, dtype: Any = None, **_: Any) -> Tensor:
    return _full(e, e.sizes(x), value, dtype or x.dtype())


def _filled_like(value: Any) -> Row:
    def write(e: Emitter, x: Tensor, dtype: Any = None, **_: Any) -> Tensor:
        return _full_like(e, x, value, dtype)

    return write


def _new(value: Any) -> Row:
    def write(e: Emitter, x: Tensor, size: Sequence[Any], dtype: Any = None, **_: Any) -> Tensor:
        return _full(e, size, value, dtype or x.dtype())

    return write


def _new_full(
    e: Emitter, x: Tensor, size: Sequence[Any], value: Any, dtype: Any = None, **_: Any
) -> Tensor:
    return _full(e, size, value, dtype or x.dtype())


def _fill(e: Emitter, x: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        wide = e.computed(value, x.dtype())
        return e.narrow(e.ops.expand(e.ops.broadcast(wide, [True] * x.ndim), e.sizes(x)), x.dtype())
    return _full(e, e.sizes(x), value, x.dtype())


@functools.cache
def _cuts_bounds() -> bool:
    """True if torch truncates the bounds of an int64 range before it counts. Since 2.14 it counts
    as for other types.
    """
    return torch.arange(0, 1.5, dtype=torch.int64, device="meta").numel() == 1


def _arange(e: Emitter, start: Any, end: Any, step: Any = 1, dtype: Any = None, **_: Any) -> Tensor:
    numbers = [start, end, step]
    if dtype is not None and as_dtype(dtype) == DataType.Int and _cuts_bounds():
        numbers = [int(n) if isinstance(n, float) else n for n in numbers]
    whole = not any(isinstance(n, float) for n in numbers)
    wanted = as_dtype(dtype) if dtype is not None else DataType.Int if whole else default_float()
    # A step of -1.0 counts as -1: with integers, the length can be computed from symbols too.
    numbers = [int(n) if isinstance(n, float) and n.is_integer() else n for n in numbers]
    start, end, step = numbers
    whole = not any(isinstance(n, float) for n in numbers)
    if all(known(n) is not None for n in numbers):
        length: Any = max(0, -((start - end) // step))
    elif all(isinstance(n, int | float) for n in numbers):
        length = max(0, math.ceil((end - start) / step))
    elif whole:
        span = less(e, end, start)
        length = span if known(step) == 1 else e.ops.ceil_div(span, step)
    else:
        raise Unsupported("arange with bounds known only at run time")
    if wanted.kind == "Int":  # truncate only now
        start, step = (int(n) if isinstance(n, float) else n for n in (start, step))
    return e.ops.iota(length, start, step, wanted)


def _iota(e: Emitter, length: Any, *, start: Any, step: Any, dtype: Any, **_: Any) -> Tensor:
    return e.ops.iota(length, start, step, as_dtype(dtype))


def _scalar_tensor(e: Emitter, value: Any, dtype: Any = None, **_: Any) -> Tensor:
    return _full(e, [], value, dtype or default_float())


def _eye(e: Emitter, rows: Any, columns: Any = None, dtype: Any = None, **_: Any) -> Tensor:
    return e.ops.eye(rows, columns, as_dtype(dtype or default_float()))


ROWS: dict[str, Row] = {
    # The shape comes from the sizes of another tensor.
    "aten.full_like.default": _full_like,
    "aten.zeros_like.default": _filled_like(0),
    "aten.ones_like.default": _filled_like(1),
    "aten.fill.Scalar": _fill,
    "aten.fill.Tensor": _fill,
    "aten.new_zeros.default": _new(0),
    "aten.new_ones.default": _new(1),
    "aten.new_full.default": _new_full,
    # Uninitialized in torch, so any value is correct.
    "aten.empty_like.default": _filled_like(0),
    "aten.new_empty.default": _new(0),
    "aten.new_empty_strided.default": lambda e, x, size, _, **named: _new(0)(e, x, size, **named),
}

CREATIONS: dict[str, Row] = {
    "aten.full.default": _full,
    "aten.zeros.default": _filled(0),
    "aten.ones.default": _filled(1),
    "aten.empty.memory_format": _filled(0),
    "aten.empty_strided.default": lambda e, size, _, **named: _filled(0)(e, size, **named),
    "aten.scalar_tensor.default": _scalar_tensor,
    "aten.arange.default": lambda e, end, **named: _arange(e, 0, end, 1, **named),
    "aten.arange.start": _arange,
    "aten.arange.start_step": _arange,
    "prims.iota.default": _iota,
    "aten.eye.default": lambda e, n, **named: _eye(e, n, None, **named),
    "aten.eye.m": _eye,
}
