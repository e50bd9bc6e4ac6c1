"""THE table of the ops of torch that a definition can express: which, how, and why one call cannot.

Adapters meet ops of torch by the name of an overload ("aten.add.Tensor") and ask here:

    name = "aten.add.Tensor"
    args, kwargs = bind(name, args, kwargs)            # all arguments in the schema's order
    if row(name) and refusal(name, args, kwargs) is None:
        result = emit(fd, name, args, kwargs)          # fuser Tensors where torch has tensors

A row is one line where fd.ops has an op of the same meaning; the files of this folder hold the
lines by theme. Shapes and types of results are torch's.

What a kernel meets in its data does not raise in it. Integers divided by zero give -1 and leave the
dividend as the rest, an index out of range reads the nearest element; torch raises on the CPU.
"""

from fuser.adapters.aten.decompositions import decompositions
from fuser.adapters.aten.table import (
    NO_ROW,
    Row,
    bind,
    by_element,
    emit,
    moves,
    reduces,
    refusal,
    row,
    rows,
    tensors_of,
)

__all__ = [
    "NO_ROW",
    "Row",
    "bind",
    "by_element",
    "decompositions",
    "emit",
    "moves",
    "reduces",
    "refusal",
    "row",
    "rows",
    "tensors_of",
]
