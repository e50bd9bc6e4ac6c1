"""fd.ops: every operation of a definition.

Scalar ops come from the table of the compiler (csrc/ir/ops.def): one row there is one method here.
Movement ops and reductions are written out; composites.py, reductions.py, normalizations.py,
losses.py, shapes.py and random_numbers.py add what is made of several, library.py what torch
computes; those of block_scaled.py only say that they are not there.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from fuser import (
    _core,
    block_scaled,
    composites,
    library,
    losses,
    normalizations,
    random_numbers,
    reductions,
    shapes,
)
from fuser._core import DataType, Scalar, Tensor
from fuser.arguments import (
    Dims,
    Number,
    Operand,
    Size,
    Vector,
    along_a_dim,
    as_dtype,
    checked,
    defined,
    fits,
    flagged,
    reduced_dims,
)
from fuser.errors import DTypeError, ShapeError, UserError
from fuser.naming import word

__all__ = ["Number", "Operand", "Ops", "Size", "as_dtype", "is_internal"]


def is_internal(name: str) -> bool:
    """Is the row chosen by the compiler only: fma, and the short forms for narrow results? A
    definition that could name them would not mean the same on every machine."""
    return name == "fma" or name.endswith("_half")


# Argument names where they say more than their place.
_ARGUMENTS = {
    "complex": ("real", "imag"),
    "copysign": ("x", "sign"),
    "lerp": ("start", "end", "weight"),
    "where": ("c", "x", "y"),
    "clamp": ("x", "min", "max"),
    "threshold": ("x", "thr", "value"),
    "random32": ("index", "seed", "offset"),
    "random64": ("index", "seed", "offset"),
}

# What becomes of a NaN, where it is not that each gives NaN.
_NANS = {"isnan": "NaN is tested for", "copysign": "a NaN x gives NaN; the sign of a NaN counts"}

_RESULTS = {
    "Same": "the common type of the operands (float16, bfloat16 and float8 give float32)",
    "Float": "the common type of the operands, where bool and integers count as float32",
    "Predicate": "bool",
    "Real": "the common type of the operands; complex gives its real type",
    "Complex": "complex64 from float32, complex128 from float64",
    "Condition": "the common type of x and y, half types too",
    "Bounded": "the common type of the operands, half types too",
}


class Ops:
    """The operations of one definition.

    Operands are tensors, scalars or Python numbers; shapes broadcast and types promote as in torch.
    Half types are computed in float32, and the result stays float32 until it is cast; where(),
    clamp() and threshold(), which choose values or bound them, keep the type. Memory moves for
    inputs, results and what one kernel hands to another, not for ops: fuser.explain counts it.

    Where an op does not say otherwise, it is made of others: it takes and raises what they do, a
    NaN operand gives NaN, and it is off by a few units of the last place of its largest
    intermediate value. An argument of a type that a method does not take is a UserError
    `argument-kind-1`, or `operand-1` for one of the op table's.
    """

    def __init__(self, builder: _core.Builder) -> None:
        self._builder = builder
        # By the id of a result that lost its only dim: the tensor before, whose other results are
        # asked for by it.
        self._before: dict[int, Tensor] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        near = get_close_matches(name, [n for n in dir(type(self)) if not n.startswith("_")], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"fd.ops has no op {name!r}{hint}", name=name, obj=self)

    def set(self, x: Operand, /) -> Any:
        """set(x), elementwise.

        Shape: that of x; a Scalar gives a Scalar.
        Types: all; the result has that of x, half types too.
        Accuracy: exact, or correctly rounded. NaN is passed on. Raises nothing.
        """
        if isinstance(x, Tensor) and x.dtype() != x.dtype().compute:
            return self.cast(x, x.dtype())
        return _core.pointwise(self._builder, _SET, x)

    def cast(self, arg: Operand, dtype: Any) -> Any:
        """`arg` converted to `dtype`, a DataType or a torch.dtype; the only op that gives a half
        type.

        Float to half rounds to nearest even; beyond its range float8_e4m3fn, which has no infinity,
        saturates at 448 (as torch does from 2.13 on). Float to integer drops the fraction and
        saturates, NaN gives 0. Raises DTypeError `cast-1` for complex to real.
        """
        return _core.cast(self._builder, arg, as_dtype(dtype))

    def full(self, shape: Sequence[Size], fill_value: Scalar | Number, dtype: Any) -> Tensor:
        """A tensor of one value. A kernel that uses it reads nothing. Raises ShapeError `full-1`
        for a negative size; DTypeError `cast-1` for a complex value of a real type, `scalar-fits-1`
        for an integer that the type does not hold.
        """
        return _core.full(self._builder, shape, fill_value, as_dtype(dtype))

    def broadcast(self, arg: Tensor, is_broadcast_dim: Sequence[bool]) -> Tensor:
        """New dims of size 1 where the flag is true; the others are those of `arg`, in order. Free.

        Raises ShapeError `broadcast-2` unless as many flags are false as `arg` has dims.
        """
        return _core.broadcast(self._builder, arg, list(is_broadcast_dim))

    def broadcast_in_dim(
        self, arg: Tensor, shape: Sequence[Size], broadcast_dims: Sequence[int]
    ) -> Tensor:
        """`arg` with its dim i placed at `broadcast_dims[i]` of a result of this `shape`. Free.

        Raises ShapeError `broadcast-in-dim-1` for a wrong number of dims, `broadcast-in-dim-2`
        unless they increase and lie below the rank, `expand-2` where a size is neither 1 nor the
        one wanted, `expand-3` for a negative size.
        """
        return _core.broadcast_in_dim(self._builder, arg, shape, list(broadcast_dims))

    def expand(self, arg: Tensor, shape: Sequence[Size]) -> Tensor:
        """Dims of size 1 grown to `shape`; -1 keeps a size. Free.

        Raises ShapeError `expand-1` for another rank, `expand-2` where a size other than 1 would
        change, `expand-3` for a size below -1.
        """
        return _core.expand(self._builder, arg, shape)

    def squeeze(self, arg: Tensor, dims: Sequence[int], squeeze_expanded: bool = False) -> Tensor:
        """Without these dims, which have size 1. Free. `squeeze_expanded` also takes dims that
        expand() has grown.

        Raises ShapeError `squeeze-1` for a dim out of range, `squeeze-2` for a size other than 1.
        """
        return _core.squeeze(self._builder, arg, list(dims), squeeze_expanded)

    def permute(self, arg: Tensor, dims: Sequence[int]) -> Tensor:
        """Dim i of the result is dim `dims[i]` of `arg`. Free. Raises ShapeError `permute-1`."""
        return _core.permute(self._builder, arg, list(dims))

    def stride_order(self, arg: Tensor, stride_order: Sequence[int]) -> Tensor:
        """The same values; as an output it is laid out in this order: `stride_order[i]` is 0 for
        the innermost dim.

        Raises ShapeError `permute-1`.
        """
        return _core.stride_order(self._builder, arg, list(stride_order))

    def split_dim(self, arg: Tensor, dim: int, sizes: Sequence[Size]) -> Tensor:
        """Dim `dim` as two of these sizes, outer and inner; one of them may be -1: what the other
        leaves. As torch.unflatten. Free.

        Raises ShapeError `split-dim-1` for a dim out of range, `split-dim-2` for other than two
        sizes, negative ones or such that do not determine each other, `split-dim-3` for another
        product than the size.
        """
        if len(sizes) != 2:
            raise ShapeError(
                f"split_dim(t{arg.id}, {dim}): expected two sizes, got {len(sizes)}{defined(arg)}",
                rule="split-dim-2",
            )
        return _core.split_dim(self._builder, arg, dim, *sizes)

    def merge_dims(self, arg: Tensor, dim: int, size: Size = -1) -> Tensor:
        """Dims `dim` and `dim + 1` as one, the latter running fastest. As torch.flatten. `size`
        names the product of the two where the definition knows it by another name.

        Raises ShapeError `merge-dims-1` for a dim out of range, `merge-dims-2` for another size.
        """
        return _core.merge_dims(self._builder, arg, dim, size)

    def iota(
        self,
        length: Size,
        start: Scalar | Number | None = None,
        step: Scalar | Number | None = None,
        dtype: Any = DataType.Int,
    ) -> Tensor:
        """start + i * step for i in 0 .. length - 1 (default: start 0, step 1). Reads nothing.

        Floats are computed in `dtype` (float32 for half types), integers in int64, of which those
        beyond `dtype` wrap. Raises ShapeError `iota-1` for a negative length, DTypeError
        `scalar-fits-1` for an integer `start` that `dtype` does not hold.
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

    def take_along_axis(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """arg[..., index[..., i, ...], ...] along `dim`. As torch.take_along_dim: the other sizes
        broadcast, the result has the type of `arg`.

        A negative index counts from the end; one outside the range reads the nearest element, and
        is a UserError `index-range-1` on the CPU with FUSER_HOST_DEBUG=1. An index of floats, as
        where(c, index, 0.0) is one, loses its fractions; torch would raise.
        Raises ShapeError `take-along-axis-1` for another rank, `take-along-axis-2` for a dim out of
        range, `broadcast-1` for sizes that do not broadcast, `reduce-empty-1` where elements are
        wanted of a dim of size 0; DTypeError `index-dtype-1` for an index of bools or complex.
        """
        if index.dtype().kind == "Float":
            index = self.cast(index, DataType.Int)
        return _core.take_along_axis(self._builder, arg, index, dim, False)

    @along_a_dim
    def gather(self, arg: Tensor, index: Tensor, dim: int) -> Tensor:
        """take_along_axis() where the other sizes do not broadcast but are those of `index`, which
        are no larger than those of `arg`; as torch.gather.

        Raises ShapeError `gather-1` where `index` is larger than `arg` in another dim, and what
        take_along_axis() raises; an index of floats is a DTypeError too.
        """
        return _core.take_along_axis(self._builder, arg, index, dim, True)

    # ---- reductions

    def reduction(
        self, op: str, arg: Tensor, dims: Sequence[int], identity: bool = False
    ) -> Tensor:
        """Result 0 of the reduction of that name (csrc/ir/reductions.def) over `dims`, which it
        drops: of "argmax" the value, with the index as result(..., 1).

        Half types are accumulated in float32, bool and integers summed and multiplied in int64; the
        result has that type. Equal sizes, strides and device give equal bits. `identity`: of max
        and min over no elements the identity (-inf, or the least integer) instead of an error.

        Raises ShapeError `reduce-dim-1` for a dim out of range, `reduce-dim-2` for one named twice,
        `reduce-dim-3` for none, `reduce-empty-1` for max, min, argmax and argmin over no elements
        (known from the definition, otherwise in the run); DTypeError `reduce-dtype-1` for a type
        that has no such reduction; UserError `reduction-1` for another name.
        """
        return _core.reduce(self._builder, op, arg, list(dims), identity)

    def result(self, of: Tensor, index: int) -> Tensor:
        """Result `index` (1, 2, ...) of a reduction or library op that has several. Raises
        UserError `result-1` for another tensor, `result-2` for an index that it lacks.
        """
        before = self._before.get(of.id)
        if before is not None:
            return self.squeeze(_core.result(self._builder, before, index), [0])
        return _core.result(self._builder, of, index)

    def _without_dim(self, arg: Tensor) -> Tensor:
        """`arg` [1] without its dim; result() takes it for `arg`."""
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

        sum(arg, dtype) is the sum over all. With `keepdim` the dims stay, of size 1. Half types are
        accumulated in float32 and give float32 unless `dtype` says otherwise. Accuracy: within
        (log2(n) + 16) units of the last place of sum(|arg|). Raises as reduction() does.
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
        """The maximum over `dims` as torch.amax: exact, NaN wins. The result is cast to `dtype`.

        Over no elements ShapeError `reduce-empty-1`, with `identity` -inf or the least integer.
        Raises as reduction() does; complex numbers have no order.
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
        """The minimum over `dims`, otherwise as max()."""
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
        """Is an element over `dims` not 0 (NaN is not 0)? Bool, or cast to `dtype`; false over no
        elements.
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
        """Is no element over `dims` 0? Bool, or cast to `dtype`; true over no elements."""
        return self._choice("all", arg, dims, keepdim, dtype, dim, False)

    def argmax(self, arg: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The int64 index of the maximum along `dim`, by default in the flattened `arg`. As
        torch.argmax: NaN wins, then the lowest index. Raises as reduction() does.
        """
        return self._index("argmax", arg, dim, keepdim)

    def argmin(self, arg: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The index of the minimum, otherwise as argmax()."""
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
        if which:
            reduced = self.reduction(op, arg, which, identity)
            result = self.keep_dims(reduced, arg, which, keepdim)
        else:
            wanted = DataType.Bool if op in ("any", "all") else arg.dtype().compute
            result = self.cast(arg, wanted)
        return self.cast(result, dtype) if dtype not in (None, result.dtype()) else result

    def _index(self, op: str, arg: Tensor, dim: int | None, keepdim: bool) -> Tensor:
        which, _ = reduced_dims(op, arg, dim, None, None)
        if not which:
            return self.full([], 0, DataType.Int)
        index = self.result(self.reduction(op, arg, which), 1)
        return self.keep_dims(index, arg, which, keepdim)

    def keep_dims(
        self, reduced: Tensor, arg: Tensor, dims: Sequence[int], keepdim: bool = True
    ) -> Tensor:
        """`reduced`, a reduction of `arg` over `dims`, with these dims back, of size 1."""
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
        """shape() by its older name."""
        return self.shape(arg)

    def at(self, vector: Sequence[Scalar], index: int) -> Scalar:
        """vector[index], of what shape() and define_vector() give."""
        return vector[index]


def _argument_names(row: _core.OpRow) -> tuple[str, ...]:
    return _ARGUMENTS.get(row.name) or {1: ("x",), 2: ("a", "b"), 3: ("a", "b", "c")}[row.arity]


def _documentation(row: _core.OpRow) -> str:
    kinds = [kind.lower() for kind in row.accepts]
    if row.rule == "Float":
        kinds = [*kinds, "bool and int as float32"]
    operands = "operand" if row.arity == 1 else "operands"
    accuracy = (
        "exact, or correctly rounded" if row.ulp == 0 else f"within {row.ulp:g} ULP in float32"
    )
    nan = _NANS.get(row.name, "a NaN operand gives NaN")
    if row.rule in ("Predicate", "Condition") and row.name not in _NANS:
        nan = "NaN compares as in IEEE 754" if row.rule == "Predicate" else "NaN is passed on"
    return (
        f"{row.name}({', '.join(_argument_names(row))}), elementwise.\n\n"
        f"Shape: the broadcast of the {operands}. Scalars alone give a Scalar.\n"
        f"Types: {', '.join(kinds)}; the result is {_RESULTS[row.rule]}.\n"
        f"Accuracy: {accuracy}. {nan[0].upper()}{nan[1:]}.\n"
        f"Raises DTypeError `op-dtype-1` for another type, ShapeError `broadcast-1` for shapes "
        "that do not broadcast."
    )


def _method(number: int, row: _core.OpRow) -> Callable[..., Any]:
    def op(self: Ops, *args: Operand) -> Any:
        return _core.pointwise(self._builder, number, *args)

    positional = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter("self", positional)]
    parameters += [
        inspect.Parameter(name, positional, annotation=Operand) for name in _argument_names(row)
    ]
    op.__name__ = row.name
    op.__qualname__ = f"Ops.{row.name}"
    op.__doc__ = _documentation(row)
    op.__signature__ = inspect.Signature(parameters, return_annotation=Tensor | Scalar)  # type: ignore[attr-defined]
    return op


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function on Ops as a method, whose statements and errors bear its name."""

    name = word(function.__name__)

    @functools.wraps(function)
    def method(ops: Ops, *args: Any, **named: Any) -> Any:
        builder = ops._builder
        if builder.composite:  # a part of another one
            return function(ops, *args, **named)
        builder.composite = name
        try:
            return function(ops, *args, **named)
        except UserError as error:  # of one of the ops that it is made of?
            if str(error).startswith(function.__name__):
                raise
            raise type(error)(f"{function.__name__}(): {error}", rule=error.rule) from None
        finally:
            builder.composite = ""

    return method


for _number, _row in enumerate(_core.op_rows()):
    if _row.name == "set":
        _SET = _number
    elif not is_internal(_row.name):
        setattr(Ops, _row.name, _method(_number, _row))
for _module in (
    composites,
    reductions,
    normalizations,
    losses,
    shapes,
    random_numbers,
    library,
    block_scaled,
):
    for _name in _module.__all__:
        setattr(Ops, _name, _recorded(getattr(_module, _name)))
for _name, _written in list(vars(Ops).items()):
    if not _name.startswith("_"):
        setattr(Ops, _name, checked(flagged(_written)))
