"""fuser/_core.pyi is typed in part: each name that it declares exists in the core."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fuser
from fuser import _core

STUB = ast.parse(Path(fuser.__file__).with_name("_core.pyi").read_text(encoding="utf-8"))
# Names for annotations alone, and the declaration of all other names.
PRIVATE = {"_Number", "_Sizes", "__getattr__"}


def declared(body: list[ast.stmt]) -> Iterator[str]:
    """Names of classes, functions and attributes that statements declare."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            assert isinstance(node.target, ast.Name)
            yield node.target.id


@pytest.mark.parametrize("name", sorted({*declared(STUB.body)} - PRIVATE))
def test_declared_names_exist(name: str) -> None:
    assert hasattr(_core, name), name
    for node in STUB.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for member in declared(node.body):
                assert hasattr(getattr(_core, name), member), f"{name}.{member}"


def parameters(function: ast.FunctionDef) -> tuple[list[str], int]:
    """Names of the positional parameters, and the number of defaults."""
    return [p.arg for p in function.args.args], len(function.args.defaults)


@pytest.mark.parametrize(
    "function",
    [f for f in STUB.body if isinstance(f, ast.FunctionDef) and f.name not in PRIVATE],
    ids=lambda f: f.name,
)
def test_declared_parameters_are_the_bound_ones(function: ast.FunctionDef) -> None:
    """The docstring of a bound function starts with its signature."""
    signature = getattr(_core, function.name).__doc__.splitlines()[0]
    (bound,) = ast.parse(f"def {signature}: ...").body
    assert isinstance(bound, ast.FunctionDef)
    assert parameters(function) == parameters(bound)
