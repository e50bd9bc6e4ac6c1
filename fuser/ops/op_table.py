"""Methods of fd.ops for rows of the op table csrc/ir/ops.def, with their documentation."""

import inspect
from collections.abc import Callable
from typing import Any

from fuser import _core
from fuser._core import Scalar, Tensor
from fuser.arguments import Operand

# Position of each row in the op table, by name.
NUMBERS = {row.name: number for number, row in enumerate(_core.op_rows())}


def is_internal(name: str) -> bool:
    """True if only the compiler may select the op: fma and the short forms for narrow results. They
    are no methods, because they would not mean the same on every machine.
    """
    return name == "fma" or name.endswith("_half")


def method_rows() -> list[_core.OpRow]:
    """Rows with a method made from the row. The method of "set" is written out in primitives.py."""
    return [row for row in _core.op_rows() if row.name != "set" and not is_internal(row.name)]


# Argument names that are more descriptive than x, a, b, c.
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

# NaN behaviour of ops that do not simply give NaN for a NaN operand.
_NANS = {"isnan": "NaN is tested for", "copysign": "a NaN x gives NaN; the sign of a NaN counts"}

_RESULTS = {
    "Same": "the common type of the operands (float16, bfloat16 and float8 give float32)",
    "Float": "the common type of the operands, with bool and integers promoted to float32",
    "Predicate": "bool",
    "Real": "the type of the operand, including half types; complex gives its real type",
    "Complex": "complex64 from float32, complex128 from float64",
    "Condition": "the common type of x and y, half types too",
    "Common": "the common type of the operands, including half types",
}


def argument_names(row: _core.OpRow) -> tuple[str, ...]:
    """Names of the operands, for documentation."""
    return _ARGUMENTS.get(row.name) or {1: ("x",), 2: ("a", "b"), 3: ("a", "b", "c")}[row.arity]


def documentation(row: _core.OpRow) -> str:
    """The docstring of a row's method."""
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
        f"{row.name}({', '.join(argument_names(row))}), elementwise.\n\n"
        f"Shape: the broadcast of the {operands}. Scalars alone give a Scalar.\n"
        f"Types: {', '.join(kinds)}; the result is {_RESULTS[row.rule]}.\n"
        f"Accuracy: {accuracy}. {nan[0].upper()}{nan[1:]}.\n"
        f"Raises DTypeError `op-dtype-1` for another type, ShapeError `broadcast-1` for shapes "
        "that do not broadcast."
    )


def method(row: _core.OpRow) -> Callable[..., Any]:
    """The method of a row. elementwise.pyi has its types."""
    number = NUMBERS[row.name]

    def op(self: Any, *args: Operand) -> Any:
        return _core.pointwise(self._builder, number, *args)

    positional = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter("self", positional)]
    parameters += [
        inspect.Parameter(name, positional, annotation=Operand) for name in argument_names(row)
    ]
    op.__name__ = row.name
    op.__qualname__ = f"Ops.{row.name}"
    op.__doc__ = documentation(row)
    op.__signature__ = inspect.Signature(parameters, return_annotation=Tensor | Scalar)  # type: ignore[attr-defined]
    return op
