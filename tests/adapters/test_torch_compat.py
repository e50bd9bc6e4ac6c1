"""fuser/adapters/torch_compat.py: each internal API exists in the installed torch."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fuser.adapters import torch_compat
from fuser.adapters.torch_compat import LAZY

TEXT = Path(torch_compat.__file__).read_text()
RELEASES = re.compile(r"2\.\d+-2\.\d+")


@pytest.mark.parametrize("name", LAZY)
def test_lazy_names_exist(name: str) -> None:
    assert getattr(torch_compat, name) is not None


def test_type_checkers_see_the_lazy_names() -> None:
    """The imports under TYPE_CHECKING are the table: equal names, modules and attributes."""
    (block,) = (
        node
        for node in ast.parse(TEXT).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: path.replace(":", ".") for name, path in LAZY.items()}


def test_each_api_states_its_releases() -> None:
    """A comment or docstring with the releases is at each import, function and group of rows."""
    lines = TEXT.splitlines()
    for node in ast.parse(TEXT).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            for alias in node.names:
                line = lines[alias.lineno - 1]
                assert RELEASES.search(line), line
        elif isinstance(node, ast.FunctionDef):
            assert RELEASES.search(ast.get_docstring(node) or ""), node.name
    table = TEXT[TEXT.index("LAZY = {") :].splitlines()
    assert RELEASES.search(table[1])


def test_missing_apis_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release without an API fails at the import of its name; other names stay usable."""
    monkeypatch.setitem(LAZY, "absent", "torch._C:_absent")
    with pytest.raises(ImportError, match=r"torch 2\..* has no torch\._C:_absent"):
        from fuser.adapters.torch_compat import absent  # noqa: F401
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        torch_compat.unknown  # noqa: B018


def test_import_loads_only_torch() -> None:
    """The module adds nothing to `import torch`: no Dynamo, Inductor or sympy."""
    code = (
        "import sys, torch; before = set(sys.modules); import fuser.adapters.torch_compat; "
        "print(*sorted(m for m in set(sys.modules) - before if m.split('.')[0] != 'fuser'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {m for m in done.stdout.split() if m.startswith(("torch", "sympy"))}
