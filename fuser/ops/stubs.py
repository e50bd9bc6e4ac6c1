"""python -m fuser.ops.stubs: writes elementwise.pyi, the types of the methods of the op table."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from fuser import _core
from fuser.ops.op_table import argument_names, documentation, method_rows

PATH = Path(__file__).with_name("elementwise.pyi")

_HEAD = '''\
# Written by `python -m fuser.ops.stubs` from the op table; a test says when it is stale.
# One file because it declares one class.
from typing import overload

from fuser import _core
from fuser._core import Scalar, Tensor
from fuser.arguments import Number, Operand

_Value = Scalar | Number

class Elementwise:
    """Scalar ops. Tensors broadcast. Shapes that do not raise ShapeError `broadcast-1`, other types
    raise DTypeError `op-dtype-1`.
    """

    _builder: _core.Builder
'''


def stub() -> str:
    """The text of elementwise.pyi."""
    return _HEAD + "".join(line + "\n" for row in method_rows() for line in _declaration(row))


def _declaration(row: _core.OpRow) -> Iterator[str]:
    """Overloads of a method: a Tensor if an operand is one, otherwise a Scalar."""
    names = argument_names(row)
    yield "    @overload"
    yield _signature(row.name, names, ["_Value"] * len(names), "Scalar")
    yield from _docstring(row)
    for tensor in range(len(names)):
        kinds = ["Tensor" if i == tensor else "Operand" for i in range(len(names))]
        yield "    @overload"
        yield _signature(row.name, names, kinds, "Tensor") + " ..."


def _signature(op: str, names: tuple[str, ...], kinds: list[str], result: str) -> str:
    operands = ", ".join(f"{n}: {k}" for n, k in zip(names, kinds, strict=True))
    return f"    def {op}(self, {operands}, /) -> {result}:"


def _docstring(row: _core.OpRow) -> Iterator[str]:
    """First line, types and accuracy of the row's documentation, indented."""
    first, *others = documentation(row).splitlines()
    yield f'        """{first}'
    for line in (x for x in others if x.startswith(("Types:", "Accuracy:"))):
        yield from textwrap.wrap(line, 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
    yield '        """'


if __name__ == "__main__":
    PATH.write_text(stub())
