"""Rows of random ops. Their numbers differ from torch's: seed and offset come from torch's
generator, which each op advances by 4, and torch.manual_seed repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser import DataType, Tensor, Unsupported
from fuser.adapters.aten.emitter import Emitter, default_float
from fuser.arguments import as_dtype


def _default_generator(generator: Any) -> None:
    if generator is not None:
        raise Unsupported("a generator other than torch's default")


def _drawn(op: str, low: float, high: float) -> Callable[..., Any]:
    def write(
        e: Emitter, size: Sequence[Any], dtype: Any = None, generator: Any = None, **_: Any
    ) -> Tensor:
        _default_generator(generator)
        wanted = default_float() if dtype is None else as_dtype(dtype)
        return getattr(e.ops, op)(low, high, list(size), dtype=wanted)

    return write


def _drawn_like(op: str, low: float, high: float) -> Callable[..., Any]:
    draw = _drawn(op, low, high)

    def write(e: Emitter, x: Tensor, dtype: Any = None, **named: Any) -> Tensor:
        return draw(e, e.sizes(x), dtype=dtype or x.dtype(), **named)

    return write


def _uniform(
    e: Emitter, x: Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None
) -> Tensor:
    return _drawn_like("uniform", low, high)(e, x, generator=generator)


def _bernoulli(e: Emitter, x: Tensor, p: float, generator: Any = None) -> Tensor:
    _default_generator(generator)
    return e.narrow(_coin(e, e.sizes(x), p), x.dtype())


def _bernoulli_of(e: Emitter, x: Tensor, generator: Any = None) -> Tensor:
    _default_generator(generator)
    return e.narrow(_coin(e, e.sizes(x), e.wide(x)), x.dtype())


def _coin(e: Emitter, sizes: Sequence[Any], p: Any) -> Tensor:
    return e.ops.cast(e.ops.lt(e.ops.uniform(0, 1, list(sizes)), p), DataType.Float)


def _native_dropout(e: Emitter, x: Tensor, p: float, train: bool | None = True) -> Any:
    result, mask = e.ops.dropout(e.wide(x), p, train is None or bool(train))
    return e.same(result, x), mask


def _dropout(e: Emitter, x: Tensor, p: float, train: bool) -> Tensor:
    return _native_dropout(e, x, p, train)[0]


def _dropout_backward(e: Emitter, g: Tensor, mask: Tensor, scale: float) -> Tensor:
    return e.pointwise(lambda a: e.ops.mul(e.ops.mul(a, mask), scale), g, rule="float")


ROWS: dict[str, Callable[..., Any]] = {
    "aten.rand.default": _drawn("uniform", 0, 1),
    "aten.randn.default": _drawn("normal", 0, 1),
    "aten.rand_like.default": _drawn_like("uniform", 0, 1),
    "aten.randn_like.default": _drawn_like("normal", 0, 1),
    "aten.uniform.default": _uniform,
    "aten.bernoulli.p": _bernoulli,
    "aten.bernoulli.default": _bernoulli_of,
    "aten.native_dropout.default": _native_dropout,
    "aten.dropout.default": _dropout,
}

# Reads the saved mask and draws no random numbers.
GRADIENTS: dict[str, Callable[..., Any]] = {
    "aten.native_dropout_backward.default": _dropout_backward,
}
