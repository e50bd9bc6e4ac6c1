"""Ops that move elements or select them by index: methods of fd.ops like any other.

slice, flip, unfold, pad and cat are tensor ops of the compiler: they change coordinates of loads
and copy nothing. The other ops are composed of them, split_dim, merge_dims, iota and
take_along_axis.
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.arguments import Number, Size, defined, known_number
from fuser.errors import ShapeError, UserError
from fuser.ops.methods import composed
from fuser.ops.reductions import Reductions

# Maximum operands of one cat; longer lists become a cat of cats. A kernel has a limited number of
# reads, and the fusion may be segmented between cats.
_MOST = 48


@composed
class Shapes(Reductions):
    """Ops that move elements or select them by index."""

    def slice(
        self,
        arg: Tensor,
        start_indices: Sequence[Size],
        end_indices: Sequence[Size | None],
        strides: Sequence[Size] | None = None,
        manual_normalization: bool = False,
    ) -> Tensor:
        """Elements start, start + stride, ... before end, of each dim. Moves no memory.

        Bounds may be Scalars. As in torch indexing, negative bounds count from the end and all are
        clamped into the dim; an end of None is the size. `manual_normalization` asserts that bounds
        are in range; it has no effect here. Raises ShapeError `slice-1` unless there is one bound
        for every dim, `slice-2` for strides below 1, DTypeError `slice-3` for bounds that are no
        integers, Unsupported `number-1` for a stride that is only known at run time.
        """
        if len(end_indices) != arg.ndim:
            raise ShapeError(
                f"slice(t{arg.id}): expected {arg.ndim} end_indices, one for each dim, got "
                f"{len(end_indices)}{defined(arg)}",
                rule="slice-1",
            )
        ends: list[Size] = [arg.size(d) if e is None else e for d, e in enumerate(end_indices)]
        steps = [known_number("slice", "strides", n) for n in strides or [1] * len(ends)]
        starts = list(start_indices)
        return _core.movement(self._builder, "slice", arg, starts, ends, steps)

    def flip(self, arg: Tensor, dims: Sequence[int]) -> Tensor:
        """Reverses these dims, as torch.flip. Moves no memory. Raises ShapeError `flip-1` for a dim
        out of range, `flip-2` for a duplicate dim.
        """
        return _core.movement(self._builder, "flip", arg, list(dims))

    def unfold(self, arg: Tensor, dim: int, size: int, step: int = 1) -> Tensor:
        """The windows of `size` elements along `dim`, `step` elements apart: `dim` counts windows,
        and a new last dim has their elements. As torch.Tensor.unfold. Windows may overlap. Moves no
        memory; an op before it is computed again for each window that has the element.

        Raises ShapeError `unfold-1` for a dim out of range, `unfold-2` for a negative size or a
        step below 1, `unfold-3` for a dim shorter than a window.
        """
        return _core.movement(self._builder, "unfold", arg, dim, size, step)

    def pad(
        self,
        arg: Tensor,
        pad_widths: Sequence[Size],
        value: Scalar | Number | None = None,
    ) -> Tensor:
        """Pads with `value` (default 0), as torch.nn.functional.pad: pad_widths has two numbers per
        dim, before and after, the innermost dim first; dims without widths are unchanged. Negative
        widths remove elements. Padding is not read from memory.

        Raises ShapeError `pad-1` for an odd number of widths or too many, `pad-3` for a size below
        0, DTypeError `pad-2` for widths that are no integers, and the errors of full() for a value.
        """
        widths = list(pad_widths)
        if len(widths) % 2 or len(widths) > 2 * arg.ndim:
            raise ShapeError(
                f"pad(t{arg.id}): expected two widths for each of at most {arg.ndim} dims, got "
                f"{len(widths)}{defined(arg)}",
                rule="pad-1",
            )
        before: list[Size] = [0] * arg.ndim
        after: list[Size] = [0] * arg.ndim
        for i in range(len(widths) // 2):
            before[arg.ndim - 1 - i] = widths[2 * i]
            after[arg.ndim - 1 - i] = widths[2 * i + 1]
        return _core.pad(self._builder, arg, before, after, 0 if value is None else value)

    def cat(self, tensors: Sequence[Tensor], dim: int = 0, manual_padding: bool = False) -> Tensor:
        """Concatenates the tensors along `dim` in their common type, as torch.cat. Operands are
        read in place, without a copy.

        With `manual_padding`, as in programs that nvFuser generated, each tensor has been padded
        with zeros to the shape of the result; then the result is their sum (-0.0 becomes 0.0).

        Raises ShapeError `cat-1` for no tensors, `cat-2` for a dim out of range, `cat-3` for
        different ranks, `cat-5` for different sizes in other dims.
        """
        given = _listed(tensors)
        if len(given) > _MOST and not manual_padding:
            parts = [self.cat(given[i : i + _MOST], dim) for i in range(0, len(given), _MOST)]
            return self.cat(parts, dim)
        if given:
            dtype = given[0].dtype()
            for t in given[1:]:
                dtype = _core.promote_types(dtype, t.dtype())
            if manual_padding:
                whole = functools.reduce(self.add, given)
                return whole if whole.dtype() == dtype else self.cast(whole, dtype)
            given = [t if t.dtype() == dtype else self.cast(t, dtype) for t in given]
        return _core.cat(self._builder, given, dim)

    def stack(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Stacks the tensors along a new dim, as torch.stack. Raises as cat() does."""
        return self.cat([self.unsqueeze(t, dim) for t in _listed(tensors)], dim)

    def chunk(self, arg: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
        """Splits into `chunks` chunks of equal size along `dim`; the last ones are smaller or empty
        if `chunks` does not divide the size. As torch.chunk, except for the number of chunks. Moves
        no memory.
        """
        if chunks < 1:
            raise UserError(f"chunk(): expected at least one chunk, got {chunks}", rule="chunk-1")
        place = _core.dim_of(arg, "chunk", dim)
        length = self.ceil_div(arg.size(place), chunks)
        bounds = [self.mul(length, i) for i in range(chunks + 1)]
        return [_part(self, arg, place, *bounds[i : i + 2]) for i in range(chunks)]

    def select(self, arg: Tensor, index: Size, dim: int) -> Tensor:
        """Element `index` along `dim`, which is dropped; negative indices count from the end. As
        torch.select. An index that is a number moves no memory and gives a view as a result. A
        Scalar index is a gather: a kernel reads it element by element, and a result is a copy. A
        Scalar out of range at run time is as an index of take_along_axis().

        Raises ShapeError `select-dim` for a dim out of range, `select-1` for an index out of range,
        `squeeze-2` if the size is only known at run time.
        """
        place = _core.dim_of(arg, "select", dim)
        size, known = _known(arg.size(place)), _known(index)
        if size is not None and known is not None and not -size <= known < size:
            raise ShapeError(
                f"select(t{arg.id}): index {known} is out of range for size {size} of dim {place}"
                f"{defined(arg)}",
                rule="select-1",
            )
        if known is not None:
            end = known + 1 or arg.size(place)
            return self.squeeze(_part(self, arg, place, known, end), [place])
        at = self.add(self.iota(1), index)
        wide = self.broadcast(at, [d != place for d in range(arg.ndim)])
        return self.squeeze(self.take_along_axis(arg, wide, place), [place])

    def index_select(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """Selects elements along `dim` by a 0-dim or 1-dim `index`, as torch.index_select. An `arg`
        without dims has one element, and so has its result.

        Raises ShapeError `index-select-1` for an index of more dims, and the errors of gather().
        """
        if arg.ndim == 0 and dim in (0, -1):
            return self.squeeze(self.index_select(self.broadcast(arg, [True]), index, 0), [0])
        place = _core.dim_of(arg, "index_select", dim)
        if index.ndim > 1:
            raise ShapeError(
                f"index_select(t{arg.id}, t{index.id}): expected an index of one dim, got "
                f"{index.ndim}{defined(arg, index)}",
                rule="index-select-1",
            )
        if index.ndim == 0:
            index = self.broadcast(index, [True])
        wide = self.broadcast(index, [d != place for d in range(arg.ndim)])
        return _core.take_along_axis(self._builder, arg, wide, place, False)

    def embedding_fwd(
        self,
        input: Tensor,
        weight: Tensor,
        padding_idx: Scalar | int | None = None,
        max_norm: Scalar | float | None = None,
        norm_type: Scalar | float | None = None,
        scale_grad_by_freq: Scalar | bool | None = None,
        sparse: Scalar | bool | None = None,
    ) -> Tensor:
        """Rows of `weight` selected by `input`, [*input.shape, weight.size(1)], as
        torch.nn.functional.embedding. padding_idx, scale_grad_by_freq and sparse concern gradients.

        Rows with a `norm_type`-norm (default 2) above `max_norm` are scaled to that norm, only in
        the result: `weight` is not changed. Raises as gather() and norm() do.
        """
        rank = input.ndim
        table = self.broadcast(weight, [True] * rank + [False, False])
        index = self.broadcast(input, [False] * rank + [True, True])
        along = _core.take_along_axis(self._builder, table, index, rank, False)
        rows = self.squeeze(along, [rank])
        if max_norm is None:
            return rows
        size = self.norm(rows, 2.0 if norm_type is None else norm_type, [-1], keepdim=True)
        factor = self.where(self.gt(size, max_norm), self.div(max_norm, self.add(size, 1e-7)), 1.0)
        return self.cast(self.mul(rows, factor), weight.dtype())

    def roll(self, arg: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int]) -> Tensor:
        """Rotates elements by `shifts` along `dims`, as torch.roll with dims. Moves no memory."""
        moves = [shifts] if isinstance(shifts, int) else list(shifts)
        places = [dims] if isinstance(dims, int) else list(dims)
        if len(moves) != len(places):
            raise ShapeError(
                f"roll(t{arg.id}): expected as many shifts as dims, got {len(moves)} and "
                f"{len(places)}{defined(arg)}",
                rule="roll-1",
            )
        for shift, dim in zip(moves, places, strict=True):
            place = _core.dim_of(arg, "roll", dim)
            size = arg.size(place)
            start = self.sub(size, self.remainder(shift, self.maximum(size, 1)))
            arg = self.cat(
                [_part(self, arg, place, start, size), _part(self, arg, place, 0, start)],
                place,
            )
        return arg

    def triu(self, arg: Tensor, diagonal: Size = 0) -> Tensor:
        """`arg` on and above a diagonal of its last two dims, 0 elsewhere, as torch.triu. The
        result has the type of `arg`. Raises ShapeError `triu-1` for fewer than two dims.
        """
        return _triangle(self, "triu", arg, diagonal)

    def tril(self, arg: Tensor, diagonal: Size = 0) -> Tensor:
        """`arg` on and below a diagonal; otherwise as triu()."""
        return _triangle(self, "tril", arg, diagonal)

    def eye(self, rows: Size, columns: Size | None = None, dtype: Any = DataType.Float) -> Tensor:
        """1 on the main diagonal, 0 elsewhere, as torch.eye."""
        i, j = self.iota(rows), self.iota(rows if columns is None else columns)
        same = self.eq(self.broadcast(i, [False, True]), self.broadcast(j, [True, False]))
        return self.cast(same, dtype)

    def unsqueeze(self, arg: Tensor, dim: int) -> Tensor:
        """Inserts a dim of size 1 at `dim`, as torch.unsqueeze. Moves no memory."""
        place = _core.dim_of(arg, "unsqueeze", dim, more=1)
        return self.broadcast(arg, [d == place for d in range(arg.ndim + 1)])

    def reshape(self, arg: Tensor, new_shape: Sequence[Size]) -> Tensor:
        """The elements in row-major order as a tensor of this shape; one size may be -1. As
        torch.reshape. If dims are only split or merged, it costs nothing; otherwise coordinates are
        divided.

        Sizes may be Scalars. Scalars computed from the operand's sizes are matched symbolically;
        other Scalars are compared at run time, and -1 has no special meaning for them. Raises
        ShapeError `reshape-1` for more than one -1, `reshape-2` for another number of elements,
        `reshape-3` for a negative size.
        """
        wanted = [s if isinstance(s, Scalar) else operator.index(s) for s in new_shape]
        open_dims = [d for d, size in enumerate(wanted) if _known(size) == -1]
        if len(open_dims) > 1:
            raise ShapeError(
                f"reshape(t{arg.id}): expected at most one -1, got {wanted}{defined(arg)}",
                rule="reshape-1",
            )
        sizes = [arg.size(d) for d in range(arg.ndim)]
        have, want = [_known(s) for s in sizes], [_known(s) for s in wanted]
        if any(n is not None and n < -1 for n in want):
            raise ShapeError(
                f"reshape(t{arg.id}): expected sizes of at least 0, or -1, got {wanted}"
                f"{defined(arg)}",
                rule="reshape-3",
            )
        if None not in have and None not in want:
            return _reshape_known(
                self, arg, [int(n or 0) for n in have], [int(n or 0) for n in want]
            )
        if 0 in want and -1 not in want:
            # checks that the operand has no elements either
            renamed(self, self.reshape(arg, [-1]), 0, 0)
            return self.full(wanted, 0, arg.dtype())
        return _reshape_open(self, arg, wanted)


def _listed(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns a list of tensors; a tensor is not treated as a list of its rows."""
    if isinstance(tensors, Tensor):
        raise TypeError("expected a list of tensors")
    return list(tensors)


def _known(size: Size) -> int | None:
    if not isinstance(size, Scalar):
        return operator.index(size)
    return None if size.value is None else int(size.value)


def _reshape_known(ops: Shapes, arg: Tensor, have: list[int], want: list[int]) -> Tensor:
    """Reshape with known sizes: groups dims of both shapes from the left by equal products, merges
    each group to one dim and splits it again.
    """
    total = math.prod(have)
    if -1 in want:
        rest = -math.prod(want)
        if rest == 0 or total % rest:
            raise ShapeError(
                f"reshape(t{arg.id}): {have} cannot become {want}: {total} elements do not divide"
                f"{defined(arg)}",
                rule="reshape-2",
            )
        want = [total // rest if n == -1 else n for n in want]
    if math.prod(want) != total:
        raise ShapeError(
            f"reshape(t{arg.id}): {have} has {total} elements, {want} has {math.prod(want)}"
            f"{defined(arg)}",
            rule="reshape-2",
        )
    if total == 0:
        return ops.full(want, 0, arg.dtype())
    # Squeeze dims of size 1 first and restore them last: they belong to no group.
    ones = [d for d, n in enumerate(have) if n == 1]
    result = ops.squeeze(arg, ones) if ones else arg
    left = [n for n in have if n != 1]
    right = [n for n in want if n != 1]
    dim = 0
    while left or right:
        mine, theirs = [left.pop(0)], [right.pop(0)]
        while math.prod(mine) != math.prod(theirs):
            if math.prod(mine) < math.prod(theirs):
                mine.append(left.pop(0))
            else:
                theirs.append(right.pop(0))
        for _ in mine[1:]:
            result = ops.merge_dims(result, dim)
        for i in range(len(theirs) - 1):
            result = ops.split_dim(result, dim + i, [theirs[i], math.prod(theirs[i + 1 :])])
        dim += len(theirs)
    return ops.broadcast(result, [n == 1 for n in want]) if 1 in want else result


def _reshape_open(ops: Shapes, arg: Tensor, want: list[Size]) -> Tensor:
    """Reshape with sizes known at run time: keeps equal sizes at both ends, merges the dims between
    them and splits the merged dim.
    """
    first = 0
    while first < min(arg.ndim, len(want)) and same_size(arg.size(first), want[first]):
        first += 1
    last = 0
    while last < min(arg.ndim, len(want)) - first and same_size(
        arg.size(arg.ndim - 1 - last), want[len(want) - 1 - last]
    ):
        last += 1
    count = arg.ndim - first - last
    if count == 0 < arg.ndim and any(_known(n) is None for n in want[first : len(want) - last]):
        # The new sizes must be 1, which is only known at run time: compare them together with a
        # neighbouring dim.
        first, last, count = (first, last - 1, 1) if last else (first - 1, last, 1)
    middle = want[first : len(want) - last]
    result = arg
    if count == 0:
        for i, size in enumerate(middle):
            if _known(size) is None:
                result = renamed(ops, ops.unsqueeze(result, first + i), first + i, size)
                continue
            if _known(size) not in (1, -1):
                raise ShapeError(
                    f"reshape(t{arg.id}): size {size} cannot take elements from the operand"
                    f"{defined(arg)}",
                    rule="reshape-2",
                )
            result = ops.unsqueeze(result, first + i)
        return result
    if not middle:
        for _ in range(count):
            result = ops.squeeze(result, [first])
        return result
    for _ in range(count - 1):
        result = ops.merge_dims(result, first)
    if len(middle) == 1:
        open_size = _known(middle[0]) == -1
        return result if open_size else renamed(ops, result, first, middle[0])
    where_open = [i for i, size in enumerate(middle) if _known(size) == -1]
    if not where_open:
        # The first split compares all elements with all sizes; later splits divide its result.
        for i in range(len(middle) - 1, 0, -1):
            result = ops.split_dim(result, first, [_product(ops, middle[:i]), middle[i]])
        return result
    at = where_open[0]
    # Split off dims from the left up to the open size, and from the right after it.
    for i in range(at):
        result = ops.split_dim(result, first + i, [middle[i], -1])
    for i in range(len(middle) - 1, at, -1):
        result = ops.split_dim(result, first + at, [-1, middle[i]])
    return result


def _product(ops: Shapes, sizes: list[Size]) -> Size:
    return functools.reduce(ops.mul, sizes) if len(sizes) > 1 else sizes[0]


def renamed(ops: Shapes, arg: Tensor, dim: int, size: Size) -> Tensor:
    """Replaces the size scalar of a dim by `size`; both are compared at run time."""
    return ops.merge_dims(ops.unsqueeze(arg, dim), dim, size)


def same_size(a: Size, b: Size) -> bool:
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return a.is_same(b)
    return _known(a) is not None and _known(a) == _known(b)


def _part(ops: Shapes, arg: Tensor, dim: int, start: Size, end: Size) -> Tensor:
    """arg[start:end] along one dim."""
    starts: list[Size] = [0] * arg.ndim
    ends: list[Size] = [arg.size(d) for d in range(arg.ndim)]
    starts[dim], ends[dim] = start, end
    return ops.slice(arg, starts, ends)


def _triangle(ops: Shapes, op: str, arg: Tensor, diagonal: Size) -> Tensor:
    if arg.ndim < 2:
        raise ShapeError(
            f"{op}(t{arg.id}): expected at least two dims, got {arg.ndim}{defined(arg)}",
            rule="triu-1",
        )
    diagonal = diagonal if isinstance(diagonal, Scalar) else operator.index(diagonal)
    row = ops.broadcast(ops.iota(arg.size(-2)), [False, True])
    column = ops.broadcast(ops.iota(arg.size(-1)), [True, False])
    away = ops.sub(column, row)
    inside = ops.ge(away, diagonal) if op == "triu" else ops.le(away, diagonal)
    kept: Tensor = ops.where(inside, arg, 0)
    return kept if kept.dtype() == arg.dtype() else ops.cast(kept, arg.dtype())
