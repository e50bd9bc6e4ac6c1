"""The API reference, generated from the docstrings: no public name is missing."""

from __future__ import annotations

import inspect
import re

import pytest

import fuser
from fuser import _core
from fuser.inspect.manual import manual
from fuser.ops import is_internal

OPS = type(fuser.FusionDefinition().ops)
# Classes of C++ and errors have a docstring for the class alone.
CLASSES = [
    kind
    for kind in (getattr(fuser, name) for name in fuser.__all__)
    if inspect.isclass(kind)
    and not issubclass(kind, Exception)
    and kind not in (fuser.Tensor, fuser.Scalar, fuser.DataType)
]


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """The text below each heading, without its signature."""
    parts = re.split(r"^#+ (.*)\n", manual(), flags=re.MULTILINE)
    titles, texts = parts[1::2], parts[2::2]
    assert len(titles) == len(set(titles)), "a heading occurs twice"
    signature = re.compile(r"\A\s*```\n\w+\(.*\n```\n")
    return {
        title: signature.sub("", text).strip() for title, text in zip(titles, texts, strict=True)
    }


def test_every_exported_name_is_documented(sections: dict[str, str]) -> None:
    for name in fuser.__all__:
        kind = "class " if inspect.isclass(getattr(fuser, name)) else ""
        assert sections.get(f"{kind}fuser.{name}"), name


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_member_is_documented(kind: type, sections: dict[str, str]) -> None:
    for name, member in vars(kind).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            assert sections.get(f"{kind.__name__}.{name}"), f"{kind.__name__}.{name}"


def test_every_op_is_documented(sections: dict[str, str]) -> None:
    ops = {name for name in dir(OPS) if not name.startswith("_")}
    rows = {row.name for row in _core.op_rows() if not is_internal(row.name)}
    assert len(ops) > 200
    assert not rows - ops, "rows of csrc/ir/ops.def without a method"
    for name in ops:
        assert sections.get(f"fd.ops.{name}"), name


def test_text_has_no_address() -> None:
    assert " object at 0x" not in manual()
