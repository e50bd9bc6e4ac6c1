"""Deferred: tensors of a definition that exceed memory. A kernel computes only the elements that
its results need; fuser.evaluate does so slice by slice. Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

# Requested positions by dim; ranges may have any step, including negative ones.
Window = tuple[range, ...]


class Deferred(NamedTuple):
    shape: torch.Size
    read: Callable[[Window], torch.Tensor]

    def whole(self) -> torch.Tensor:
        return part(self, tuple(range(n) for n in self.shape))


def part(value: torch.Tensor | Deferred, window: Window) -> torch.Tensor:
    """Returns the elements of `value` at the positions of `window`."""
    if isinstance(value, Deferred):
        if all(window):
            return value.read(window)
        # Read an empty window in every dim: a later broadcast dim must not make the other dims be
        # read.
        nothing = value.read(tuple(r[:0] for r in window))
        return nothing.new_empty([len(r) for r in window])
    back = [d for d, r in enumerate(window) if r.step < 0]
    forward = [r[::-1] if r.step < 0 else r for r in window]
    taken = value[tuple(slice(r.start, r.stop, r.step) for r in forward)]
    return taken.flip(back) if back else taken


def iota(length: int) -> Deferred:
    def read(window: Window) -> torch.Tensor:
        (r,) = window
        return torch.arange(len(r)) * r.step + r.start

    return Deferred(torch.Size([length]), read)


def elementwise(
    function: Callable[..., torch.Tensor], args: Sequence[torch.Tensor | Deferred]
) -> Deferred:
    shape = torch.broadcast_shapes(*(a.shape for a in args))  # type: ignore[no-untyped-call]

    def operand(a: torch.Tensor | Deferred, window: Window) -> torch.Tensor:
        inner = window[len(window) - len(a.shape) :]
        ones = zip(a.shape, inner, strict=True)
        return part(a, tuple(range(1) if n == 1 and len(r) else r for n, r in ones))

    def read(window: Window) -> torch.Tensor:
        result = function(*(operand(a, window) for a in args))
        return result.expand([len(r) for r in window])

    return Deferred(shape, read)


def padded(
    value: torch.Tensor | Deferred, before: Sequence[int], shape: Sequence[int], fill: torch.Tensor
) -> Deferred:
    def read(window: Window) -> torch.Tensor:
        result = fill.expand([len(r) for r in window]).clone()
        there, here = [], []
        for r, b, n in zip(window, before, value.shape, strict=True):
            places = _inside(r, b, b + n)
            there.append(places)
            here.append(_moved(r[places], -b))
        result[tuple(there)] = part(value, tuple(here))
        return result

    return Deferred(torch.Size(shape), read)


def joined(values: Sequence[torch.Tensor | Deferred], dim: int) -> Deferred:
    sizes = list(values[0].shape)
    sizes[dim] = sum(v.shape[dim] for v in values)

    def read(window: Window) -> torch.Tensor:
        parts, first = [], 0
        for v in values:
            r = window[dim][_inside(window[dim], first, first + v.shape[dim])]
            wanted = (*window[:dim], _moved(r, -first), *window[dim + 1 :])
            parts.append(part(v, wanted))
            first += v.shape[dim]
        return torch.cat(parts if window[dim].step > 0 else parts[::-1], dim)

    return Deferred(torch.Size(sizes), read)


def rearranged(record: dict[str, Any], value: Deferred, number: Callable[[int], int]) -> Any:
    """Applies an op if it only renames elements."""
    shape = value.shape
    match record["kind"]:
        case "StrideOrder":
            return value
        case "Slice":
            names = ("start_indices", "end_indices", "strides")
            bounds = zip(*(record[name] for name in names), strict=True)
            taken = [
                range(n)[number(a) : number(b) : step]
                for n, (a, b, step) in zip(shape, bounds, strict=True)
            ]
        case "Flip":
            taken = [range(n)[:: -1 if d in record["dims"] else 1] for d, n in enumerate(shape)]
        case "Permute":
            dims = record["dims"]
            source = [dims.index(d) for d in range(len(dims))]
            return Deferred(
                torch.Size([shape[d] for d in dims]),
                lambda window: part(value, tuple(window[d] for d in source)).permute(dims),
            )
        case "Squeeze" if all(shape[d] == 1 for d in record["dims"]):
            dropped = record["dims"]
            kept = [d for d in range(len(shape)) if d not in dropped]

            def squeeze(window: Window) -> torch.Tensor:
                outer = iter(window)
                wanted = tuple(next(outer) if d in kept else range(1) for d in range(len(shape)))
                return part(value, wanted).squeeze(dropped)

            return Deferred(torch.Size([shape[d] for d in kept]), squeeze)
        case "Broadcast":
            new = record["is_broadcast_dim"]
            places = [d for d, is_new in enumerate(new) if not is_new]

            def broadcast(window: Window) -> torch.Tensor:
                inner = part(value, tuple(window[d] for d in places))
                for d, is_new in enumerate(new):
                    inner = inner.unsqueeze(d) if is_new else inner
                return inner.expand([len(r) for r in window])

            sizes = iter(shape)
            return Deferred(torch.Size([1 if is_new else next(sizes) for is_new in new]), broadcast)
        case _:
            return None
    return Deferred(
        torch.Size([len(r) for r in taken]),
        lambda window: part(
            value, tuple(r[_slice_of(w)] for r, w in zip(taken, window, strict=True))
        ),
    )


def _slice_of(r: range) -> slice:
    """The positions of `r` as a slice of a sequence; a stop of -1 becomes an open end."""
    return slice(r.start, r.stop if r.stop >= 0 else None, r.step) if len(r) else slice(0, 0)


def _inside(r: range, low: int, high: int) -> slice:
    """Slice of the positions in `r`, rising or falling, that have numbers in [low, high)."""
    up = r if r.step > 0 else r[::-1]
    below = _below(up, low)
    end = max(below, _below(up, high))
    return slice(below, end) if r.step > 0 else slice(len(r) - end, len(r) - below)


def _below(r: range, limit: int) -> int:
    """Count of numbers below `limit` in a rising range."""
    return min(len(r), max(0, -((r.start - limit) // r.step)))


def _moved(r: range, by: int) -> range:
    return range(r.start + by, r.stop + by, r.step)
