"""The repr of a definition read again, once it is known to do nothing but define."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition


# Syntax that the repr of a definition uses.
_SYNTAX = (
    *(ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Assign, ast.Expr, ast.Call),
    *(ast.keyword, ast.Attribute, ast.Name, ast.Constant, ast.List, ast.Tuple, ast.UnaryOp),
    *(ast.USub, ast.Load, ast.Store),
)
_METHODS = r"fd\.(ops\.[a-z]\w*|define_(tensor|scalar)|random_state|add_output)"
_CALLS = re.compile(rf"{_METHODS}|float|complex")
_ATTRIBUTES = re.compile(rf"{_METHODS}|fd\.ops|DataType\.[A-Z]\w*")
_ASSIGNED = re.compile(r"[A-Z]\d+")


def is_definition(text: str) -> bool:
    """True if `text` is the repr of a definition, which only defines.

    Calls are checked by name. Therefore an assigned name may only stand for a tensor or a scalar,
    and attributes that lead to other functions may not be read.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        return False
    function = tree.body[0]
    if function.name != "nvfuser_fusion" or function.decorator_list:
        return False
    return ast.unparse(function.args) == "fd: FusionDefinition" and all(
        map(_is_part_of_a_definition, ast.walk(tree))
    )


def _is_part_of_a_definition(node: ast.AST) -> bool:
    match node:
        case ast.Call():
            return bool(_CALLS.fullmatch(ast.unparse(node.func)))
        case ast.Attribute():
            loaded = isinstance(node.ctx, ast.Load)
            return loaded and bool(_ATTRIBUTES.fullmatch(ast.unparse(node)))
        case ast.Name(ctx=ast.Store()):
            return bool(_ASSIGNED.fullmatch(node.id))
    return isinstance(node, _SYNTAX)


def define_again(text: str, target: FusionDefinition) -> None:
    """Runs `text`, the repr of a definition, on `target`."""
    _program(text)["nvfuser_fusion"](target)


def defined(text: str) -> FusionDefinition:
    """A new definition of `text`, the repr of a definition."""
    program = _program(text)
    fd: FusionDefinition = program["FusionDefinition"]()
    program["nvfuser_fusion"](fd)
    return fd


def _program(text: str) -> dict[str, Any]:
    program: dict[str, Any] = {}
    exec(f"from fuser import DataType, FusionDefinition\n{text}", program)
    return program
