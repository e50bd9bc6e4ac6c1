"""fd.ops: every operation of a definition.

Scalar ops come from the table of the compiler (csrc/ir/ops.def): one row there is one method here.
Movement ops are written out, and composites.py adds what is made of several rows.
"""

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from fuser import _core, composites
from fuser._core import DataType, Scalar, Tensor

Number = bool | int | float | complex
Operand = Tensor | Scalar | Number
Size = int | Scalar


def is_internal(name: str) -> bool:
    """Is the row chosen by the compiler only: fma, and the short forms for narrow results? A
    definition that could name them would not mean the same on every machine."""
    return name == "fma" or name.endswith("_half")


# Argument names where they say more than their place.
_ARGUMENTS = {
    "complex": ("real", "imag"),
    "lerp": ("start", "end", "weight"),
    "where": ("c", "x", "y"),
    "clamp": ("x", "min", "max"),
    "threshold": ("x", "thr", "value"),
}

_RESULTS = {
    "Same": "the common type of the operands (float16, bfloat16 and float8 give float32)",
    "Float": "the common type of the operands, where bool and integers count as float32",
    "Predicate": "bool",
    "Real": "the common type of the operands; complex gives its real type",
    "Complex": "complex64 from float32, complex128 from float64",
    "Condition": "the common type of x and y",
}


def as_dtype(dtype: Any) -> DataType:
    """The DataType of a DataType or of a torch.dtype. Raises DTypeError `dtype-torch` for a type
    fuser lacks.
    """
    if isinstance(dtype, DataType):
        return dtype
    return _core.dtype_from_torch(str(dtype).removeprefix("torch."))


class Ops:
    """The operations of one definition.

    Operands are tensors, scalars or Python numbers; shapes broadcast and types promote as in torch.
    Half types are computed in float32, and the result stays float32 until it is cast.
    """

    def __init__(self, builder: _core.Builder) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        near = get_close_matches(name, [n for n in dir(type(self)) if not n.startswith("_")], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"fd.ops has no op {name!r}{hint}", name=name, obj=self)

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
        for a negative size.
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
        one wanted.
        """
        return _core.broadcast_in_dim(self._builder, arg, shape, list(broadcast_dims))

    def expand(self, arg: Tensor, shape: Sequence[Size]) -> Tensor:
        """Dims of size 1 grown to `shape`; -1 keeps a size. Free.

        Raises ShapeError `expand-1` for another rank, `expand-2` where a size other than 1 would
        change.
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

    def size(self, arg: Tensor, dim: int) -> Scalar:
        """The size of a dim as an int64 Scalar. Raises ShapeError `size-dim-1` for a dim out of
        range.
        """
        return _core.size(self._builder, arg, dim)

    def shape(self, arg: Tensor) -> list[Scalar]:
        """All sizes as int64 Scalars."""
        return _core.shape(self._builder, arg)


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
    nan = "NaN is tested for" if row.name == "isnan" else "a NaN operand gives NaN"
    if row.rule in ("Predicate", "Condition") and row.name != "isnan":
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


for _number, _row in enumerate(_core.op_rows()):
    if not is_internal(_row.name):
        setattr(Ops, _row.name, _method(_number, _row))
for _name in composites.__all__:
    setattr(Ops, _name, getattr(composites, _name))
