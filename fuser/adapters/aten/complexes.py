"""Rows of complex ops, and of conversions between complex and real tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser import DataType, Tensor, Unsupported
from fuser.adapters.aten.emitter import Emitter
from fuser.adapters.aten.shapes import select

Row = Callable[..., Any]


def _complex(e: Emitter, real: Tensor, imaginary: Tensor) -> Tensor:
    if real.dtype() not in (DataType.Float, DataType.Double):
        raise Unsupported(f"complex numbers with parts of type {real.dtype()}")
    result: Tensor = e.ops.complex(real, imaginary)
    return result


def _as_complex(e: Emitter, x: Tensor) -> Tensor:
    return _complex(e, *(select(e, x, -1, part) for part in (0, 1)))


def _as_real(e: Emitter, x: Tensor) -> Tensor:
    return e.ops.stack([e.ops.real(x), e.ops.imag(x)], -1)


def _polar(e: Emitter, size: Tensor, angle: Tensor) -> Tensor:
    parts = (e.pointwise("mul", size, e.pointwise(op, angle)) for op in ("cos", "sin"))
    return _complex(e, *parts)


def _conjugate(e: Emitter, x: Tensor) -> Tensor:
    return e.ops.complex(e.ops.real(x), e.ops.neg(e.ops.imag(x)))


ROWS: dict[str, Row] = {
    "aten.complex.default": _complex,
    "aten.polar.default": _polar,
    "aten._conj.default": _conjugate,
}

VIEWS: dict[str, Row] = {
    "aten.view_as_complex.default": _as_complex,
    "aten.view_as_real.default": _as_real,
}
