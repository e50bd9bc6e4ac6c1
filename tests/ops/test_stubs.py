"""fuser/ops/stubs: elementwise.pyi equals the text generated from the op table."""

import ast
import inspect

from fuser.ops.elementwise import Elementwise
from fuser.ops.methods import op_names
from fuser.ops.op_table import method_rows
from fuser.ops.stubs import PATH, stub


def test_it_is_up_to_date() -> None:
    assert PATH.read_text() == stub(), "python -m fuser.ops.stubs"


def test_it_declares_every_method_with_its_operands() -> None:
    (body,) = (node.body for node in ast.parse(stub()).body if isinstance(node, ast.ClassDef))
    declared: dict[str, list[list[str]]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            declared.setdefault(node.name, []).append([a.arg for a in node.args.posonlyargs])
    assert list(declared) == op_names(Elementwise) == [row.name for row in method_rows()]
    for name, overloads in declared.items():
        written = list(inspect.signature(getattr(Elementwise, name)).parameters)
        assert overloads == [written] * len(written), name
