"""python -m fuser manual: the API reference, generated from the docstrings of exported names."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import fuser

_HEAD = """\
# API

`python -m fuser manual` prints this page from the docstrings.
"""


def manual() -> str:
    """The API reference as Markdown."""
    parts = [_HEAD, _contents()]
    for title, names in _groups().items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += _entry(name, getattr(fuser, name))
    ops = type(fuser.FusionDefinition().ops)
    parts += ["## Ops: the methods of fd.ops\n", _text(ops)]
    for name in _public(ops):
        parts.append(_function(f"fd.ops.{name}", getattr(ops, name), level=3))
    return "\n".join(parts).rstrip() + "\n"


def _groups() -> dict[str, list[str]]:
    """The exported names by purpose; names without a group are listed last."""
    groups = {
        "Definitions": ["FusionDefinition", "Fusion", "Tensor", "Scalar", "DataType", "Plan"],
        "Ways in from torch": [
            *("compile", "memory_efficient_fusion"),
            *("enable_torchscript_fuser", "torchscript_fuser"),
        ],
        "Looking": ["explain", "report", "evaluate"],
        "Caches": [
            *("CacheInfo", "cache_info", "clear_caches"),
            *("FusionCache", "FusionExecutorCache", "LRUCache", "LruFusionCache"),
        ],
        "Tuning": ["autotune", "specialize_after"],
        "Errors": [name for name in fuser.__all__ if _is_error(getattr(fuser, name))],
    }
    known = {name for names in groups.values() for name in names}
    groups["Others"] = [name for name in fuser.__all__ if name not in known]
    return {title: names for title, names in groups.items() if names}


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _contents() -> str:
    listed = {t: ", ".join(f"`{n}`" for n in names) for t, names in _groups().items()}
    lines = [f"- {title}: {names}" for title, names in listed.items()]
    return "\n".join([*lines, "- Ops: the methods of `fd.ops`\n"])


def _entry(name: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        yield _function(f"fuser.{name}", value, level=3)
        return
    if name in ("Tensor", "Scalar", "DataType"):  # C++ classes; omits text that pybind11 adds
        yield f"### class fuser.{name}\n\n{_text(value).split(chr(10) * 2)[0].rstrip()}\n"
        return
    yield f"### class fuser.{name}\n\n{_text(value)}"
    if _is_error(value):
        return
    for method in _public(value):
        member = inspect.getattr_static(value, method)
        if isinstance(member, property):
            yield f"#### {name}.{method}\n\n{_text(member)}"
        elif callable(getattr(value, method)):
            yield _function(f"{name}.{method}", getattr(value, method), level=4)


def _public(kind: type) -> list[str]:
    """Public names in alphabetical order, without names inherited from Python's containers."""
    inherited = set(dir(tuple)) | set(dir(dict)) | set(dir(list) if issubclass(kind, list) else ())
    return [n for n in dir(kind) if not n.startswith("_") and n not in inherited]


def _function(title: str, value: Any, level: int) -> str:
    call = f"{title.split('.')[-1]}{_signature(value)}"
    return f"{'#' * level} {title}\n\n```\n{call}\n```\n\n{_text(value)}"


def _signature(value: Any) -> str:
    try:
        given = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    kept = [p for n, p in given.parameters.items() if n != "self"]
    # Types without their modules.
    text = str(given.replace(parameters=kept))
    modules = r"fuser\._core|fuser\.arguments|fuser|typing|collections\.abc|_core"
    return re.sub(rf"\b(?:{modules})\.|'", "", text)


def _text(value: Any) -> str:
    """The docstring as Markdown: indented text and tables become code blocks."""
    text = inspect.getdoc(value) or ""
    blocks = []
    for block in re.split(r"\n\s*\n", text):
        if block.startswith("    "):
            blocks.append(f"```\n{textwrap.dedent(block)}\n```")
        elif re.search(r"^\w[\w, ]*  +\S", block, re.MULTILINE):
            blocks.append(f"```\n{block}\n```")  # a table of names and meanings
        else:
            blocks.append(block)
    return "\n\n".join(blocks) + "\n"
