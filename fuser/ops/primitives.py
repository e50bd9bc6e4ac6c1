"""Ops of the compiler that are no rows of the op table: casts, movement ops and reductions."""

from collections.abc import Sequence
from typing import Any, overload

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.arguments import (
    Dims,
    Number,
    Operand,
    Size,
    Vector,
    along_a_dim,
    as_dtype,
    defined,
    fits,
    reduced_dims,
)
from fuser.errors import DTypeError, ShapeError
from fuser.ops.elementwise import Elementwise
from fuser.ops.methods import checked_methods
from fuser.ops.op_table import NUMBERS


@checked_methods
class Primitives(Elementwise):
    """Casts, movement ops and reductions, each one op of the compiler or a few."""

    def __init__(self, builder: _core.Builder) -> None:
        self._builder = builder
        # Original tensor of a result whose only dim was squeezed, by the id of that result.
        # result() needs it to return further results of the reduction.
        self._before: dict[int, Tensor] = {}

    @overload
    def set(self, x: Tensor, /) -> Tensor: ...
    @overload
    def set(self, x: Scalar | Number, /) -> Scalar: ...
    def set(self, x: Operand, /) -> Any:
        """set(x), elementwise.

        Shape: shape of x; a Scalar gives a Scalar.
        Types: all; the result has the type of x, half types too.
        Accuracy: exact, or correctly rounded. NaN is passed on. Raises nothing.
        """
        if isinstance(x, Tensor) and x.dtype() != x.dtype().compute:
            return self.cast(x, x.dtype())
        return _core.pointwise(self._builder, NUMBERS["set"], x)

    @overload
    def cast(self, arg: Tensor, dtype: Any) -> Tensor: ...
    @overload
    def cast(self, arg: Scalar | Number, dtype: Any) -> Scalar: ...
    def cast(self, arg: Operand, dtype: Any) -> Any:
        """Converts `arg` to `dtype`, a DataType or a torch.dtype. No other op converts to a half
        type.

        Float to half rounds to nearest even. Beyond its range float8_e4m3fn, which has no infinity,
        saturates at 448 (as torch does from 2.13 on). Float to integer drops the fraction and
        saturates; NaN gives 0. Raises DTypeError `cast-1` for complex to real.
        """
        return _core.cast(self._builder, arg, as_dtype(dtype))

    def full(self, shape: Sequence[Size], fill_value: Scalar | Number, dtype: Any) -> Tensor:
        """A tensor filled with one value. Kernels that use it read no memory for it. Raises
        ShapeError `full-1` for a negative size; DTypeError `cast-1` for a complex value of a real
        type, `scalar-fits-1` for an integer that does not fit into the type.
        """
        return _core.full(self._builder, shape, fill_value, as_dtype(dtype))

    def broadcast(self, arg: Tensor, is_broadcast_dim: Sequence[bool]) -> Tensor:
        """Inserts dims of size 1 where the flag is true; the other dims are the dims of `arg`, in
        order. Moves no memory.

        Raises ShapeError `broadcast-2` unless the number of false flags equals the rank of `arg`.
        """
        return _core.movement(self._builder, "broadcast", arg, list(is_broadcast_dim))

    def broadcast_in_dim(
        self, arg: Tensor, shape: Sequence[Size], broadcast_dims: Sequence[int]
    ) -> Tensor:
        """Places dim i of `arg` at dim `broadcast_dims[i]` of a result of this `shape`. Moves no
        memory.

        Raises ShapeError `broadcast-in-dim-1` for a wrong number of dims, `broadcast-in-dim-2`
        unless they increase and are below the rank, `expand-2` if a size is neither 1 nor the
        target size, `expand-3` for a negative size.
        """
        return _core.broadcast_in_dim(self._builder, arg, shape, list(broadcast_dims))

    def expand(self, arg: Tensor, shape: Sequence[Size]) -> Tensor:
        """Expands dims of size 1 to `shape`; -1 keeps a size. New dims come first. Moves no memory.

        Raises ShapeError `expand-1` for fewer sizes than dims, `expand-2` if a size other than 1
        would change, `expand-3` for a size below -1.
        """
        return _core.movement(self._builder, "expand", arg, shape)

    def squeeze(self, arg: Tensor, dims: Sequence[int], squeeze_expanded: bool = False) -> Tensor:
        """Removes these dims, which must have size 1. Moves no memory. `squeeze_expanded` also
        removes dims that expand() has expanded, and dims of inputs whose contiguity is None.

        Raises ShapeError `squeeze-1` for a dim out of range, `squeeze-2` for a size other than 1.
        """
        return _core.movement(self._builder, "squeeze", arg, list(dims), squeeze_expanded)

    def permute(self, arg: Tensor, dims: Sequence[int]) -> Tensor:
        """Dim i of the result is dim `dims[i]` of `arg`. Moves no memory. Raises ShapeError
        `permute-1`.
        """
        return _core.movement(self._builder, "permute", arg, list(dims))

    def stride_order(self, arg: Tensor, stride_order: Sequence[int]) -> Tensor:
        """Returns equal values; as an output the tensor is laid out in this order:
        `stride_order[i]` is 0 for the innermost dim.

        Raises ShapeError `permute-1`.
        """
        return _core.movement(self._builder, "stride_order", arg, list(stride_order))

    def split_dim(self, arg: Tensor, dim: int, sizes: Sequence[Size]) -> Tensor:
        """Splits dim `dim` into two dims of these sizes, outer and inner. One size may be -1 and is
        then computed from the other. As torch.unflatten. Moves no memory.

        Raises ShapeError `split-dim-1` for a dim out of range, `split-dim-2` unless there are two
        sizes that are not negative and determine each other, `split-dim-3` if their product is not
        the size.
        """
        if len(sizes) != 2:
            raise ShapeError(
                f"split_dim(t{arg.id}, {dim}): expected two sizes, got {len(sizes)}{defined(arg)}",
                rule="split-dim-2",
            )
        return _core.movement(self._builder, "split_dim", arg, dim, sizes)

    def merge_dims(self, arg: Tensor, dim: int, size: Size = -1) -> Tensor:
        """Merges dims `dim` and `dim + 1`; the latter varies fastest. As torch.flatten. `size` is
        the scalar for their product, if the definition already has one.

        Raises ShapeError `merge-dims-1` for a dim out of range, `merge-dims-2` for another size.
        """
        return _core.movement(self._builder, "merge_dims", arg, dim, size)

    def iota(
        self,
        length: Size,
        start: Scalar | Number | None = None,
        step: Scalar | Number | None = None,
        dtype: Any = DataType.Int,
    ) -> Tensor:
        """start + i * step for i in 0 .. length - 1 (default: start 0, step 1). Reads no memory.

        Floats are computed in `dtype` (float32 for half types). Integers are computed in int64 and
        wrap if they do not fit into `dtype`. Raises ShapeError `iota-1` for a negative length,
        DTypeError `scalar-fits-1` for an integer `start` that does not fit into `dtype`.
        """
        dtype = as_dtype(dtype)
        first: Any = start.value if isinstance(start, Scalar) else start
        if dtype.kind == "Int" and fits(first, int):
            try:
                _core.constant(self._builder, int(first), dtype)
            except DTypeError as error:
                text = str(error).replace("define_scalar()", "iota()", 1)
                raise DTypeError(text, rule=error.rule) from None
        result = _core.iota(self._builder, length)
        if dtype.kind in ("Float", "Complex"):
            result = self.cast(result, dtype.compute)
        if step is not None:
            result = self.mul(result, step)
        if start is not None:
            result = self.add(result, start)
        return result if result.dtype() == dtype else self.cast(result, dtype)

    @along_a_dim
    def take_along_axis(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """arg[..., index[..., i, ...], ...] along `dim`. As torch.take_along_dim: the other sizes
        broadcast, the result has the type of `arg`.

        A negative index counts from the end. An index out of range raises IndexRangeError
        `index-range-1` on the CPU and reads the nearest element on a GPU. A float index, e.g.
        where(c, index, 0.0), is truncated; torch would raise. Raises ShapeError `take-along-axis-1`
        for another rank, `take-along-axis-2` for a dim out of range, `broadcast-1` for sizes that
        do not broadcast, `reduce-empty-1` for elements of a dim of size 0; DTypeError
        `index-dtype-1` for a bool or complex index.
        """
        if index.dtype().kind == "Float":
            index = self.cast(index, DataType.Int)
        return _core.take_along_axis(self._builder, arg, index, dim, False)

    @along_a_dim
    def gather(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """Like take_along_axis(), but the other sizes do not broadcast: they are the sizes of
        `index`, which may not exceed the sizes of `arg`. As torch.gather.

        Raises ShapeError `gather-1` if `index` is larger than `arg` in another dim, and the errors
        of take_along_axis(); a float index also raises DTypeError `index-dtype-1`.
        """
        return _core.take_along_axis(self._builder, arg, index, dim, True)

    # ---- reductions

    def reduction(
        self, op: str, arg: Tensor, dims: Sequence[int], identity: bool = False
    ) -> Tensor:
        """Result 0 of the reduction named `op` (csrc/ir/reductions.def) over `dims`, which are
        dropped. For "argmax" result 0 is the value, and result(..., 1) is the index.

        Half types are accumulated in float32; bool and integers are summed and multiplied in int64.
        The result has the accumulation type. Equal sizes, strides and device give equal bits. If
        `identity`, max and min over no elements give the identity (-inf, or the least integer)
        instead of an error.

        Raises ShapeError `reduce-dim-1` for a dim out of range, `reduce-dim-2` for a duplicate dim,
        `reduce-dim-3` for no dims, `reduce-empty-1` for max, min, argmax and argmin over no
        elements (in the definition if the size is known, otherwise in the run); DTypeError
        `reduce-dtype-1` for an unsupported type; UserError `reduction-1` for an unknown name.
        """
        return _core.reduce(self._builder, op, arg, list(dims), identity)

    def result(self, of: Tensor, index: int) -> Tensor:
        """Result `index` (1, 2, ...) of a reduction or library op with several results. Raises
        UserError `result-1` if `of` is another kind of tensor, `result-2` for an index out of
        range.
        """
        before = self._before.get(of.id)
        if before is not None:
            return self.squeeze(_core.result(self._builder, before, index), [0])
        return _core.result(self._builder, of, index)

    def _without_dim(self, arg: Tensor) -> Tensor:
        """Squeezes the only dim of `arg`. result() accepts the squeezed tensor instead of `arg`."""
        squeezed = self.squeeze(arg, [0])
        self._before[squeezed.id] = arg
        return squeezed

    def sum(
        self,
        arg: Tensor,
        dims: Dims | DataType = None,
        keepdim: bool = False,
        dtype: Any = None,
        *,
        dim: int | None = None,
    ) -> Tensor:
        """The sum over `dims` (a dim, several, or by default all; [] sums nothing), 0 over no
        elements. As torch.sum: `arg` is cast to `dtype` first, and bool and integers give int64.

        sum(arg, dtype) sums over all dims. With `keepdim` the reduced dims stay, of size 1. Half
        types are accumulated in float32 and give float32 unless `dtype` says otherwise. Accuracy:
        within (log2(n) + 16) units in the last place of sum(|arg|). Raises as reduction() does.
        """
        return self._arithmetic("sum", arg, dims, keepdim, dtype, dim)

    def prod(
        self,
        arg: Tensor,
        dims: Dims | DataType = None,
        keepdim: bool = False,
        dtype: Any = None,
        *,
        dim: int | None = None,
    ) -> Tensor:
        """The product over `dims`, 1 over no elements; otherwise as sum()."""
        return self._arithmetic("prod", arg, dims, keepdim, dtype, dim)

    def max(
        self,
        arg: Tensor,
        dims: Dims | DataType = None,
        keepdim: bool = False,
        dtype: Any = None,
        *,
        dim: int | None = None,
        identity: bool = False,
    ) -> Tensor:
        """The maximum over `dims` as torch.amax: exact, NaN wins. The result has the type of `arg`,
        half types too, or is cast to `dtype`.

        Raises ShapeError `reduce-empty-1` over no elements; if `identity`, gives -inf or the least
        integer instead. Raises as reduction() does; complex numbers have no order.
        """
        return self._choice("max", arg, dims, keepdim, dtype, dim, identity)

    def min(
        self,
        arg: Tensor,
        dims: Dims | DataType = None,
        keepdim: bool = False,
        dtype: Any = None,
        *,
        dim: int | None = None,
        identity: bool = False,
    ) -> Tensor:
        """The minimum over `dims`; otherwise as max()."""
        return self._choice("min", arg, dims, keepdim, dtype, dim, identity)

    def any(
        self,
        arg: Tensor,
        dims: Dims | DataType = None,
        keepdim: bool = False,
        dtype: Any = None,
        *,
        dim: int | None = None,
    ) -> Tensor:
        """True if an element over `dims` is not 0 (NaN is not 0). Bool, or cast to `dtype`; false
        over no elements.
        """
        return self._choice("any", arg, dims, keepdim, dtype, dim, False)

    def all(
        self,
        arg: Tensor,
        dims: Dims | DataType = None,
        keepdim: bool = False,
        dtype: Any = None,
        *,
        dim: int | None = None,
    ) -> Tensor:
        """True if no element over `dims` is 0. Bool, or cast to `dtype`; true over no elements."""
        return self._choice("all", arg, dims, keepdim, dtype, dim, False)

    def xor_sum(
        self, arg: Tensor, dims: Dims = None, keepdim: bool = False, *, dim: int | None = None
    ) -> Tensor:
        """The exclusive or of the bits over `dims`, 0 over no elements: a checksum in any order of
        the elements. As torch.hash_tensor, but int64: `arg` is bool or integers, converted to
        int64. Raises as reduction() does.
        """
        return self._arithmetic("xor_sum", arg, dims, keepdim, None, dim)

    def argmax(self, arg: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The int64 index of the maximum along `dim`, by default in the flattened `arg`. As
        torch.argmax: NaN wins, then the lowest index. Raises as reduction() does.
        """
        return self._index("argmax", arg, dim, keepdim)

    def argmin(self, arg: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The index of the minimum; otherwise as argmax()."""
        return self._index("argmin", arg, dim, keepdim)

    def _arithmetic(
        self,
        op: str,
        arg: Tensor,
        dims: Dims | DataType,
        keepdim: bool,
        dtype: Any,
        dim: int | None,
    ) -> Tensor:
        which, dtype = reduced_dims(op, arg, dims, dtype, dim)
        if dtype is not None and arg.dtype() != dtype:
            arg = self.cast(arg, dtype)
        if which:
            result = self.keep_dims(self.reduction(op, arg, which), arg, which, keepdim)
        elif arg.dtype().kind in ("Bool", "Int"):
            result = self.cast(arg, DataType.Int)
        else:
            result = self.cast(arg, arg.dtype().compute)
        return self.cast(result, dtype) if dtype not in (None, result.dtype()) else result

    def _choice(
        self,
        op: str,
        arg: Tensor,
        dims: Dims | DataType,
        keepdim: bool,
        dtype: Any,
        dim: int | None,
        identity: bool,
    ) -> Tensor:
        which, dtype = reduced_dims(op, arg, dims, dtype, dim)
        if dtype is None:
            dtype = DataType.Bool if op in ("any", "all") else arg.dtype()
        if not which:
            return self.cast(arg, dtype)
        reduced = self.reduction(op, arg, which, identity)
        result = self.keep_dims(reduced, arg, which, keepdim)
        return result if result.dtype() == dtype else self.cast(result, dtype)

    def _index(self, op: str, arg: Tensor, dim: int | None, keepdim: bool) -> Tensor:
        which, _ = reduced_dims(op, arg, dim, None, None)
        if not which:
            return self.full([], 0, DataType.Int)
        index = self.result(self.reduction(op, arg, which), 1)
        return self.keep_dims(index, arg, which, keepdim)

    def keep_dims(
        self, reduced: Tensor, arg: Tensor, dims: Sequence[int], keepdim: bool = True
    ) -> Tensor:
        """Restores `dims` with size 1 in `reduced`, a reduction of `arg` over `dims`."""
        if not keepdim or not dims:
            return reduced
        places = {d % arg.ndim for d in dims}
        return self.broadcast(reduced, [d in places for d in range(arg.ndim)])

    def size(self, arg: Tensor, dim: int) -> Scalar:
        """The size of a dim as an int64 Scalar. Raises ShapeError `size-dim-1` for a dim out of
        range.
        """
        return _core.size(self._builder, arg, dim)

    def shape(self, arg: Tensor) -> Vector:
        """All sizes as int64 Scalars."""
        return Vector(_core.shape(self._builder, arg))

    def tensor_sizes(self, arg: Tensor) -> Vector:
        """Alias of shape(), its older name."""
        return self.shape(arg)

    def at(self, vector: Sequence[Scalar], index: int) -> Scalar:
        """vector[index], for a vector from shape() or define_vector()."""
        return vector[index]
