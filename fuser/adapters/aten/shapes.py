"""Rows of views and of movement ops.

Sizes and bounds are ints or Scalars; ints add no arithmetic to the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser import DataType, Tensor, Unsupported
from fuser.adapters.aten.emitter import Emitter, known

Row = Callable[..., Any]


def _moved(function: Callable[..., Tensor]) -> Row:
    """A row for a movement op: function(e, wide x, ...), narrowed to the dtype of x."""

    def write(e: Emitter, x: Tensor, *args: Any, **named: Any) -> Tensor:
        return e.same(function(e, e.wide(x), *args, **named), x)

    return write


def _parts(function: Callable[..., Sequence[Tensor]]) -> Row:
    def write(e: Emitter, x: Tensor, *args: Any, **named: Any) -> list[Tensor]:
        return [e.same(t, x) for t in function(e, e.wide(x), *args, **named)]

    return write


def _copied(view: Row) -> Row:
    """A row for the copy of a view, or of several."""

    def write(e: Emitter, *args: Any, **named: Any) -> Any:
        found = view(e, *args, **named)
        return [e.copy(t) for t in found] if isinstance(found, list) else e.copy(found)

    return write


def _itself(e: Emitter, x: Tensor, *_: Any, **__: Any) -> Tensor:
    del e
    return x


# ---- views


def _view(e: Emitter, x: Tensor, size: Sequence[Any], *_: Any, **__: Any) -> Tensor:
    result: Tensor = e.ops.reshape(x, list(size))
    return result


def _flatten(e: Emitter, x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    if x.ndim == 0:
        return e.ops.broadcast(x, [True])
    start, end = start % x.ndim, end % x.ndim
    for _ in range(end - start):
        x = e.ops.merge_dims(x, start)
    return x


def _unflatten(e: Emitter, x: Tensor, dim: int, sizes: Sequence[Any]) -> Tensor:
    dim %= x.ndim
    old = e.sizes(x)
    return _view(e, x, [*old[:dim], *sizes, *old[dim + 1 :]])


def _permute(e: Emitter, x: Tensor, dims: Sequence[int]) -> Tensor:
    result: Tensor = e.ops.permute(x, [d % x.ndim for d in dims])
    return result


def _transpose(e: Emitter, x: Tensor, a: int, b: int) -> Tensor:
    if x.ndim == 0:
        return e.copy(x)
    dims = list(range(x.ndim))
    dims[a], dims[b] = dims[b], dims[a]
    return _permute(e, x, dims)


def _t(e: Emitter, x: Tensor) -> Tensor:
    return e.copy(x) if x.ndim < 2 else _transpose(e, x, 0, 1)


def _expand(e: Emitter, x: Tensor, sizes: Sequence[Any], **_: Any) -> Tensor:
    new = len(sizes) - x.ndim
    if new:
        x = e.ops.broadcast(x, [d < new for d in range(len(sizes))])
    wanted = [e.size(x, d) if known(n) == -1 else n for d, n in enumerate(sizes)]
    if all(known(n) is not None and known(n) == known(e.size(x, d)) for d, n in enumerate(wanted)):
        return x if new else e.copy(x)
    result: Tensor = e.ops.expand(x, wanted)
    return result


def _expand_as(e: Emitter, x: Tensor, other: Tensor) -> Tensor:
    return e.same(_expand(e, e.wide(x), e.sizes(other)), x)


def _squeeze(e: Emitter, x: Tensor, dim: Any = None) -> Tensor:
    """Squeezes dims with a size known to be 1; other named dims stay, as in torch."""
    if dim is None:
        places = list(range(x.ndim))
    else:
        dims = [dim] if isinstance(dim, int) else dim
        places = [d % x.ndim for d in dims if x.ndim]
    ones = [d for d in places if known(e.size(x, d)) == 1]
    return e.ops.squeeze(x, ones) if ones else e.copy(x)


def _unsqueeze(e: Emitter, x: Tensor, dim: int) -> Tensor:
    result: Tensor = e.ops.unsqueeze(x, dim)
    return result


def select(e: Emitter, x: Tensor, dim: int, index: Any) -> Tensor:
    """Selects one element along `dim`: by a slice if the index is known."""
    dim %= x.ndim
    at = known(index)
    if at is None:
        e.check_within(index, x.size(dim))
        return e.ops.select(x, index, dim)
    size = known(e.size(x, dim))
    if size is not None and not -size <= at < size:
        raise Unsupported(f"index {at} is out of range for a dim of size {size}")
    if at < 0:
        start = e.ops.add(x.size(dim), at) if size is None else size + at
        end = e.ops.add(x.size(dim), at + 1) if size is None else size + at + 1
    else:
        start, end = at, at + 1
    part = _between(e, x, dim, start, end)
    if known(part.size(dim).value) != 1:
        return e.ops.select(x, index, dim)
    return e.ops.squeeze(part, [dim])


def _between(e: Emitter, x: Tensor, dim: int, start: Any, end: Any, step: int = 1) -> Tensor:
    starts: list[Any] = [0] * x.ndim
    ends: list[Any] = [None] * x.ndim
    steps = [1] * x.ndim
    starts[dim], ends[dim], steps[dim] = start, end, step
    result: Tensor = e.ops.slice(x, starts, ends, steps)
    return result


def _slice(
    e: Emitter, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Tensor:
    dim %= x.ndim
    first = 0 if start is None else start
    last = known(end)
    to_end = end is None or (last is not None and last >= 2**62)
    if known(first) == 0 and to_end and known(step) == 1:
        return e.copy(x)
    steps = known(step)
    if steps is None:
        raise Unsupported("a slice with a step known only at run time")
    return _between(e, x, dim, first, None if to_end else end, steps)


def _narrow(e: Emitter, x: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """A slice that may not end past the dim."""
    dim %= x.ndim
    first = known(start)
    if first is not None and first < 0:
        start = _sum(e, e.size(x, dim), start)
    part = _between(e, x, dim, start, _sum(e, start, length))
    e.check_equal(e.size(part, dim), length)
    return part


def _sum(e: Emitter, *values: Any) -> Any:
    total: Any = 0
    for v in values:
        if isinstance(total, int) and isinstance(v, int):
            total += v
        else:
            total = e.ops.add(total, v)
    return total


def less(e: Emitter, a: Any, b: Any) -> Any:
    return a - b if isinstance(a, int) and isinstance(b, int) else e.ops.sub(a, b)


def _split_with_sizes(e: Emitter, x: Tensor, sizes: Sequence[Any], dim: int = 0) -> list[Tensor]:
    parts, start = [], 0
    for size in sizes:
        end = _sum(e, start, size)
        parts.append(_between(e, x, dim % x.ndim, start, end))
        start = end
    return parts


def _split(e: Emitter, x: Tensor, size: Any, dim: int = 0) -> list[Tensor]:
    total, width = known(e.size(x, dim)), known(size)
    if total is None or width is None:
        raise Unsupported("a number of chunks known only at run time")
    if width == 0 or total == 0:
        return [e.copy(x)]
    sizes = [min(width, total - i) for i in range(0, total, width)]
    return _split_with_sizes(e, x, sizes, dim)


def _chunk(e: Emitter, x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    total = known(e.size(x, dim))
    if total is None:
        return e.ops.chunk(x, chunks, dim)
    return _split(e, x, -(-total // chunks), dim)


def _unbind(e: Emitter, x: Tensor, dim: int = 0) -> list[Tensor]:
    total = known(e.size(x, dim))
    if total is None:
        raise Unsupported("a number of chunks known only at run time")
    return [select(e, x, dim, i) for i in range(total)]


def _movedim(e: Emitter, x: Tensor, source: Any, target: Any) -> Tensor:
    """Moves one dim or several; the other dims keep their order."""
    moved, places = e.dims(source, x.ndim), e.dims(target, x.ndim)
    dims = [d for d in range(x.ndim) if d not in moved]
    for place, d in sorted(zip(places, moved, strict=True)):
        dims.insert(place, d)
    return _permute(e, x, dims)


def _diagonal(e: Emitter, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dims, as the last dim."""
    rows, columns = dim1 % x.ndim, dim2 % x.ndim
    if rows == columns:
        raise Unsupported("a diagonal with dim1 equal to dim2")
    x = _permute(e, x, [d for d in range(x.ndim) if d not in (rows, columns)] + [rows, columns])
    down, right = max(-offset, 0), max(offset, 0)
    x = _between(e, _between(e, x, x.ndim - 2, down, None), x.ndim - 1, right, None)
    length = e.ops.minimum(x.size(x.ndim - 2), x.size(x.ndim - 1))
    x = _between(e, x, x.ndim - 2, 0, length)
    places = e.ops.iota(length, 0, 1, DataType.Int)
    index = _view(e, places, [*[1] * (x.ndim - 2), length, 1])
    index = e.ops.expand(index, [*(x.size(d) for d in range(x.ndim - 1)), 1])
    return _squeeze(e, e.ops.take_along_axis(x, index, x.ndim - 1), x.ndim - 1)


def _unfold(e: Emitter, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if x.ndim == 0:
        x = e.ops.broadcast(x, [True])
        return x if size else e.ops.slice(x, [0], [0])
    return e.ops.unfold(x, dim, size, step)


# ---- movements


def _cat(e: Emitter, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    # In torch, empty tensors of one dim can be in any cat.
    given = [t for t in tensors if not (t.ndim == 1 and known(e.size(t, 0)) == 0)]
    given = given or list(tensors[:1])
    dtype = e.common(list(tensors))
    result = e.ops.cat([e.computed(t, dtype) for t in given], dim)
    return e.narrow(result, dtype)


def _stack(e: Emitter, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    dtype = e.common(list(tensors))
    return e.narrow(e.ops.stack([e.computed(t, dtype) for t in tensors], dim), dtype)


def _flip(e: Emitter, x: Tensor, dims: Sequence[int]) -> Tensor:
    return e.ops.flip(x, [d % x.ndim for d in dims]) if x.ndim else e.copy(x)


def _roll(e: Emitter, x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    places = [dims] if isinstance(dims, int) else list(dims)
    if not places:
        flat = e.ops.roll(_flatten(e, x), moves, [0])
        return _view(e, flat, e.sizes(x))
    for shift, place in zip(moves, places, strict=True):
        dim = place % x.ndim
        x = e.ops.roll(x, [shift], [dim]) if dim == x.ndim - 1 else _rotated(e, x, shift, dim)
    return x


def _rotated(e: Emitter, x: Tensor, shift: Any, dim: int) -> Tensor:
    """Rotates one dim as a slice of two copies side by side, which are an expanded dim. The
    coordinate is then a remainder, and a kernel reads each operand once. A cat of two parts reads
    it twice with masks, and four times if two dims are rotated, but keeps vectors along the dim.
    """
    size = x.size(dim)
    start = e.ops.sub(size, e.ops.remainder(shift, e.ops.maximum(size, 1)))
    twice = _repeat(e, x, [2 if d == dim else 1 for d in range(x.ndim)])
    return _between(e, twice, dim, start, e.ops.add(start, size))


def _repeat(e: Emitter, x: Tensor, repeats: Sequence[Any]) -> Tensor:
    """Inserts a dim of `repeats` before each dim, expands it, and merges the two."""
    new = len(repeats) - x.ndim
    if new:
        x = e.ops.broadcast(x, [d < new for d in range(len(repeats))])
    for d in reversed(range(len(repeats))):
        if known(repeats[d]) == 1:
            continue
        wide = e.ops.unsqueeze(x, d)
        x = e.ops.merge_dims(_expand(e, wide, [*[-1] * d, repeats[d], *[-1] * (x.ndim - d)]), d)
    return x


def _pad(e: Emitter, x: Tensor, widths: Sequence[Any], value: Any = 0, *_: Any) -> Tensor:
    return e.ops.pad(x, list(widths), 0 if value is None else value)


def _slice_backward(
    e: Emitter, g: Tensor, sizes: Sequence[Any], dim: int, start: Any, end: Any, step: Any
) -> Tensor:
    del end
    dim %= g.ndim
    size = sizes[dim]
    if known(step) != 1:
        return _placed_apart(e, g, known(size), dim, known(start), known(step))
    begin = known(start)
    if begin is None:
        first = start
    else:
        whole = known(size)
        if begin < 0:
            first = max(whole + begin, 0) if whole is not None else _sum(e, size, begin)
        else:
            first = begin if whole is None else min(begin, whole)
    return _placed(e, g, size, dim, first)


def _placed_apart(
    e: Emitter, g: Tensor, size: int | None, dim: int, start: int | None, step: int | None
) -> Tensor:
    """Puts `step` - 1 rows of zeros after each row of g: adds a dim of `step` after its dim and
    merges the two.
    """
    rows = known(e.size(g, dim))
    if size is None or start is None or step is None or rows is None:
        raise Unsupported("the gradient of a slice with steps and a size known only at run time")
    first = min(max(start + size, 0) if start < 0 else start, size)
    apart = e.ops.pad(e.ops.unsqueeze(g, dim + 1), [0, 0] * (g.ndim - 1 - dim) + [0, step - 1], 0)
    apart = e.ops.merge_dims(apart, dim)
    if rows * step > size - first:  # fewer than `step` rows follow the last row
        apart = _between(e, apart, dim, 0, size - first)
    return _placed(e, apart, size, dim, first)


def _select_backward(e: Emitter, g: Tensor, sizes: Sequence[Any], dim: int, index: Any) -> Tensor:
    dim %= len(sizes)
    at = known(index)
    first = _sum(e, sizes[dim], at) if at is not None and at < 0 else index
    return _placed(e, e.ops.unsqueeze(g, dim), sizes[dim], dim, first)


def _placed(e: Emitter, g: Tensor, size: Any, dim: int, first: Any) -> Tensor:
    """Pads g with zeros to `size`, starting at `first`."""
    after = less(e, less(e, size, first), e.size(g, dim))
    widths = [0, 0] * (g.ndim - 1 - dim) + [first, after]
    return e.ops.pad(g, widths, 0)


def _triangle(op: str) -> Row:
    def write(e: Emitter, x: Tensor, diagonal: Any = 0) -> Tensor:
        return getattr(e.ops, op)(x, diagonal)

    return _moved(write)


# ---- elements by index


def _index_select(e: Emitter, x: Tensor, dim: int, index: Tensor) -> Tensor:
    if x.ndim == 0:
        return e.copy(x)  # its only element, whatever the dims of the index
    return e.ops.index_select(x, index, dim)


def _gather(e: Emitter, x: Tensor, dim: int, index: Tensor, **_: Any) -> Tensor:
    if x.ndim == 0:  # its only element
        return e.ops.broadcast_in_dim(x, [e.size(index, d) for d in range(index.ndim)], [])
    if index.ndim == 0:
        return _squeeze(e, e.ops.gather(x, e.ops.unsqueeze(index, 0), 0), 0)
    dim %= x.ndim
    for d in range(x.ndim):
        have, want = known(e.size(x, d)), known(e.size(index, d))
        if d != dim and (have is None or have != want):
            x = _between(e, x, d, 0, e.size(index, d))
    return e.ops.gather(x, index, dim)


def _embedding(e: Emitter, weight: Tensor, indices: Tensor, *_: Any) -> Tensor:
    return e.same(e.ops.embedding_fwd(indices, e.wide(weight)), weight)


def _index(e: Emitter, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[:, i], x[i, j]: indexing by integer tensors. Adjacent indexed dims are merged and replaced
    by the dims of the index; if other dims are between them, the result's index dims come first.
    """
    given = [(d, t) for d, t in enumerate(indices) if t is not None]
    if not given or any(t.dtype().kind != "Int" for _, t in given):
        raise Unsupported("indexing by a mask")
    dims = [d for d, _ in given]
    if dims[-1] - dims[0] >= len(dims):
        x = _permute(e, x, [*dims, *(d for d in range(x.ndim) if d not in dims)])
        dims = list(range(len(dims)))
    index = given[0][1]
    if len(dims) > 1:
        sizes = [e.size(x, d) for d in dims]
        places = [_wrapped(e, t, n) for n, (_, t) in zip(sizes, given, strict=True)]
        index = places[0]
        for size, place in zip(sizes[1:], places[1:], strict=True):
            index = e.ops.add(e.ops.mul(index, size), place)
            x = e.ops.merge_dims(x, dims[0])
    return _by_index(e, x, dims[0], index)


def _masked_index(
    e: Emitter, x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any
) -> Tensor:
    """`fill` if the mask is false; the indices are ignored there."""
    kept = [i if i is None else e.ops.where(mask, i, 0) for i in indices]
    value = e.same(_index(e, e.wide(x), kept), x)
    return e.pointwise(lambda a: e.ops.where(mask, a, fill), value)


def _wrapped(e: Emitter, index: Tensor, size: Any) -> Tensor:
    index = e.cast(index, DataType.Int)
    return e.ops.where(e.ops.lt(index, 0), e.ops.add(index, size), index)


def _by_index(e: Emitter, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Replaces the dim by the dims of `index`, which may have any rank."""
    if index.ndim == 1:
        return e.ops.index_select(x, index, dim)
    flat = e.ops.index_select(x, _flatten(e, index), dim)
    old = e.sizes(x)
    return _view(e, flat, [*old[:dim], *e.sizes(index), *old[dim + 1 :]])


def _take(e: Emitter, x: Tensor, index: Tensor) -> Tensor:
    return _by_index(e, _flatten(e, x), 0, index)


def _views(names: str, function: Callable[..., Tensor]) -> dict[str, Row]:
    return {f"aten.{name}": _moved(function) for name in names.split()}


VIEWS: dict[str, Row] = {
    **{f"aten.{name}.default": _itself for name in ("alias", "detach", "contiguous", "positive")},
    "aten.lift_fresh.default": _itself,
    **_views(
        "view.default _unsafe_view.default reshape.default _reshape_alias.default",
        _view,
    ),
    "prim.view_copy.default": _moved(_view),
    "prim.reshape_copy.default": _moved(_view),
    **_views("flatten.using_ints", _flatten),
    "prim.flatten_copy.default": _moved(_flatten),
    **_views("unflatten.int", _unflatten),
    **_views("permute.default", _permute),
    "prim.permute_copy.default": _moved(_permute),
    "prim.permute_copy.int": _moved(_permute),
    **_views("transpose.int swapaxes.default swapdims.default", _transpose),
    "prim.transpose_copy.int": _moved(_transpose),
    **_views("t.default", _t),
    "prim.t_copy.default": _moved(_t),
    **_views("mT.default", lambda e, x: _transpose(e, x, -2, -1)),
    **_views("numpy_T.default", lambda e, x: _permute(e, x, list(range(x.ndim))[::-1])),
    **_views("movedim.int movedim.intlist", _movedim),
    **_views("diagonal.default", _diagonal),
    **_views("unfold.default", _unfold),
    **_views("expand.default", _expand),
    "prim.expand_copy.default": _moved(_expand),
    "aten.expand_as.default": _expand_as,
    "prim.expand_as_copy.default": _expand_as,
    **_views("squeeze.default squeeze.dim squeeze.dims", _squeeze),
    "prim.squeeze_copy.default": _moved(_squeeze),
    "prim.squeeze_copy.dim": _moved(_squeeze),
    **_views("unsqueeze.default", _unsqueeze),
    "prim.unsqueeze_copy.default": _moved(_unsqueeze),
    **_views("select.int", select),
    **_views("slice.Tensor", _slice),
    **_views("narrow.default", _narrow),
    **{
        f"aten.{name}": _parts(function)
        for names, function in (
            ("split.Tensor", _split),
            ("split_with_sizes.default split.sizes", _split_with_sizes),
            ("chunk.default", _chunk),
            ("unbind.int", _unbind),
        )
        for name in names.split()
    },
    "prims.broadcast_in_dim.default": _moved(
        lambda e, x, shape, dims: e.ops.broadcast_in_dim(x, list(shape), list(dims))
    ),
    "prims.squeeze.default": _moved(_squeeze),
    "prims.transpose.default": _moved(_permute),
    "prims.split_dim.default": _moved(
        lambda e, x, dim, outer: e.ops.split_dim(x, dim, [outer, -1])
    ),
}

# Copies of views. Each has its view's values, and torch's layout of the copy.
COPIES: dict[str, Row] = {
    f"aten.{copied}": _copied(VIEWS[f"aten.{view}"])
    for copied, view in (
        ("alias_copy.default", "alias.default"),
        ("detach_copy.default", "detach.default"),
        ("lift_fresh_copy.default", "lift_fresh.default"),
        ("view_copy.default", "view.default"),
        ("_reshape_copy.default", "view.default"),
        ("permute_copy.default", "permute.default"),
        ("transpose_copy.int", "transpose.int"),
        ("t_copy.default", "t.default"),
        ("diagonal_copy.default", "diagonal.default"),
        ("unfold_copy.default", "unfold.default"),
        ("expand_copy.default", "expand.default"),
        ("squeeze_copy.default", "squeeze.default"),
        ("squeeze_copy.dim", "squeeze.dim"),
        ("squeeze_copy.dims", "squeeze.dims"),
        ("unsqueeze_copy.default", "unsqueeze.default"),
        ("select_copy.int", "select.int"),
        ("slice_copy.Tensor", "slice.Tensor"),
        ("narrow_copy.default", "narrow.default"),
        ("split_copy.Tensor", "split.Tensor"),
        ("split_with_sizes_copy.default", "split_with_sizes.default"),
        ("unbind_copy.int", "unbind.int"),
    )
}


def _glu(e: Emitter, x: Tensor, dim: int = -1) -> Tensor:
    dim %= x.ndim
    value, gate = (e.same(t, x) for t in e.ops.chunk(e.wide(x), 2, dim))
    return e.pointwise(lambda a, b: e.ops.mul(a, e.ops.sigmoid(b)), value, gate)


ROWS: dict[str, Row] = {
    "aten.glu.default": _glu,
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.flip.default": _moved(_flip),
    "aten.roll.default": _moved(_roll),
    "aten.repeat.default": _moved(_repeat),
    "aten.constant_pad_nd.default": _moved(_pad),
    "aten.slice_backward.default": _moved(_slice_backward),
    "aten.select_backward.default": _moved(_select_backward),
    "aten.tril.default": _triangle("tril"),
    "aten.triu.default": _triangle("triu"),
    "aten.index_select.default": _moved(_index_select),
    "aten.gather.default": _moved(_gather),
    "aten.embedding.default": _embedding,
    "aten.index.Tensor": _moved(_index),
    "aten._unsafe_index.Tensor": _moved(_index),
    "aten._unsafe_masked_index.default": _masked_index,
    "aten.take.default": _moved(_take),
}
