"""Interface of the table: rows by name, argument binding, refusals, emission."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch

from fuser import FusionDefinition, Tensor, Unsupported, UserError
from fuser.adapters.aten import (
    complexes,
    composites,
    factories,
    gradients,
    losses,
    norms,
    pointwise,
    random_numbers,
    reductions,
    shapes,
)
from fuser.adapters.aten.emitter import Emitter
from fuser.arguments import as_dtype
from fuser.kernel_names import recorded_as

Kind = Literal["compute", "view", "create", "random", "library"]

NO_ROW = "fuser has no counterpart of this op"


@dataclass(frozen=True)
class Row:
    """One op of torch.

    kind  "compute": reads and writes elements. "view": a view of its first argument in torch, free
          unless it is fused. "create": reads no tensor. "random": draws from torch's generator.
          "library": torch computes it, as a step between kernels.
    """

    name: str
    kind: Kind
    write: Callable[..., Any]


def _table() -> dict[str, Row]:
    parts: list[tuple[Kind, Mapping[str, Callable[..., Any]]]] = [
        ("compute", pointwise.ROWS),
        ("compute", gradients.ROWS),
        ("compute", reductions.ROWS),
        ("compute", norms.ROWS),
        ("compute", losses.ROWS),
        ("compute", shapes.ROWS),
        ("compute", composites.ROWS),
        ("compute", complexes.ROWS),
        ("compute", shapes.COPIES),
        ("view", shapes.VIEWS),
        ("view", composites.VIEWS),
        ("view", complexes.VIEWS),
        ("compute", factories.ROWS),
        ("create", factories.CREATIONS),
        ("random", random_numbers.ROWS),
        ("compute", random_numbers.GRADIENTS),
        ("library", reductions.LIBRARY),
    ]
    table: dict[str, Row] = {}
    for kind, rows_of in parts:
        for name, write in rows_of.items():
            assert name not in table, name
            table[name] = Row(name, kind, write)
    return table


_ROWS = _table()


def rows() -> Mapping[str, Row]:
    """All rows, by name."""
    return _ROWS


def row(name: str) -> Row | None:
    """The row of an overload, e.g. "aten.add.Tensor"."""
    return _ROWS.get(name)


def reduces(name: str) -> bool:
    """True if torch's kernel reads its data more than once: reductions, norms, losses."""
    return any(name in part.ROWS for part in (reductions, norms, losses))


def by_element(name: str) -> bool:
    """True if each element of the result depends on one element of each operand."""
    return name in pointwise.ROWS or name in gradients.ROWS


def moves(name: str) -> bool:
    """True if the op is a view, a movement op, or a factory op with a tensor operand; it may have
    sizes as arguments.
    """
    return any(name in part for part in (shapes.VIEWS, shapes.COPIES, shapes.ROWS, factories.ROWS))


def bind(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Returns positional arguments in the schema's order and keyword-only ones by name, including
    defaults.

    Arguments of ops that this torch lacks are returned unchanged.
    """
    schema = _schema(name)
    if schema is None:
        return list(args), dict(kwargs)
    bound: list[Any] = []
    named: dict[str, Any] = {}
    for place, argument in enumerate(schema.arguments):
        if argument.name in kwargs:
            value = kwargs[argument.name]
        elif not argument.kwarg_only and place < len(args):
            value = args[place]
        else:
            value = argument.default_value if argument.has_default_value() else None
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            bound.append(value)
    return bound, named


def _schema(name: str) -> Any:
    namespace, _, rest = name.partition(".")
    op, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), op, None)
    found = getattr(packet, overload or "default", None)
    return getattr(found, "_schema", None)


def emit(
    fd: FusionDefinition,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    on_gpu: bool = False,
) -> Any:
    """Emits the op into `fd`, for bound arguments with Tensors of `fd` in place of torch tensors.
    Returns a Tensor, or a tuple or list of them as torch does, with None for a result that was not
    requested.

    Sizes may be ints or Scalars of `fd`. Results have torch's dtypes, except statistics of norms,
    which keep their compute type: torch's type depends on the device. Raises Unsupported with the
    reason.
    """
    found = _ROWS.get(name)
    if found is None:
        raise Unsupported(f"{name}: {NO_ROW}", rule="adapter-row")
    try:
        with recorded_as(fd.ops._builder, name):
            return found.write(Emitter(fd, on_gpu), *args, **kwargs)
    except Unsupported:
        raise
    except (UserError, TypeError, ValueError, AttributeError, IndexError) as error:
        # An unsupported form of the op; torch decides whether it is valid.
        raise Unsupported(f"{name}: {error}", rule="adapter-form") from error


def refusal(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The reason why a call cannot be part of a definition, if it cannot. Determined by emitting it
    into a trial definition.

    Tensor arguments may be any objects with dtype, ndim, shape and device.
    """
    if name not in _ROWS:
        return NO_ROW
    given = [_described(a) for a in args]
    named = {key: _described(a) for key, a in kwargs.items()}
    text = repr((name, given, named, torch.get_default_dtype()))
    return _tried(_Call(text, name, given, named))


class _Operand(NamedTuple):
    """Properties of a tensor for a trial; symbolic sizes are -1."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    device: torch.device


@dataclass(frozen=True)
class _Call:
    """A call of an op. Its text is the hash key, because it distinguishes 1, 1.0 and True."""

    text: str
    name: str = field(compare=False)
    args: list[Any] = field(compare=False)
    kwargs: dict[str, Any] = field(compare=False)


def _described(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_described(v) for v in value)
    if hasattr(value, "dtype") and hasattr(value, "ndim"):
        shape = tuple(n if isinstance(n, int) else -1 for n in value.shape)
        return _Operand(value.dtype, shape, torch.device(value.device))
    return 2 if isinstance(value, torch.SymInt) else value


@lru_cache(maxsize=4096)  # repeated layers of a network make equal calls
def _tried(call: _Call) -> str | None:
    fd = FusionDefinition()
    devices: list[torch.device] = []

    def stand_in(value: Any) -> Any:
        if isinstance(value, _Operand):
            if value.shape or not devices:
                devices.append(value.device)
            return fd.define_tensor(shape=value.shape, dtype=as_dtype(value.dtype))
        if isinstance(value, list | tuple):
            return type(value)(stand_in(v) for v in value)
        return value

    try:
        given = [stand_in(a) for a in call.args]
        named = {key: stand_in(a) for key, a in call.kwargs.items()}
        wide = [d for d in devices if d != devices[0]]
        if wide:
            return f"tensors on {devices[0]} and {wide[0]}"
        wanted = call.kwargs.get("device")
        if wanted is not None and devices and not _same_device(torch.device(wanted), devices[0]):
            return f"moves from {devices[0]} to {wanted}"
        emit(fd, call.name, given, named)
    except (Unsupported, UserError) as error:
        return str(error).split("\n")[0]
    return None


def _same_device(a: torch.device, b: torch.device) -> bool:
    return a.type == b.type and (a.index is None or b.index is None or a.index == b.index)


def tensors_of(value: Any) -> list[Tensor]:
    """The Tensors of an op's result, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for v in value for t in tensors_of(v)]
    return []
