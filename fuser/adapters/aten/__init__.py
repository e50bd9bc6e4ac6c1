"""Table of the torch ops that a definition can express: implementations, and reasons for refusals.

Adapters look up torch ops by the name of an overload ("aten.add.Tensor"):

    name = "aten.add.Tensor"
    args, kwargs = bind(name, args, kwargs)            # all arguments in the schema's order
    if row(name) and refusal(name, args, kwargs) is None:
        result = emit(fd, name, args, kwargs)          # fuser Tensors in place of torch tensors

A row is one line if fd.ops has an equivalent op; each file of this folder holds the rows of one
subject. Shapes and types of results are torch's.

CPU kernels raise an error for an index out of range; on GPUs it reads the nearest element. Integer
division by zero gives -1 with the dividend as remainder; torch raises on the CPU.
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
