"""The user's source lines that a step computes, found by the locations stored in tensors."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuser.inspect.report.graph import op_name


@dataclass(frozen=True)
class SourceLine:
    """A line of the program, and the ops that it defined: ("T7", "mul")."""

    file: str  # base name of the file
    number: int
    code: str  # empty if the file is not found
    ops: tuple[tuple[str, str], ...]


def source_lines(
    records: Sequence[dict[str, Any]], tensors: Iterable[int], places: Mapping[int, str]
) -> list[SourceLine]:
    """Returns lines in program order. places: locations that override the tensors' locations."""
    by_place: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for tensor in sorted(tensors):
        record = records[tensor]
        file, _, number = places.get(tensor, record["location"]).rpartition(":")
        if number.isdigit():
            by_place.setdefault((file, int(number)), []).append((f"T{tensor}", op_name(record)))
    return [
        SourceLine(Path(file).name, number, _code(file, number), tuple(ops))
        for (file, number), ops in by_place.items()
    ]


def _code(file: str, number: int) -> str:
    path = _path(file)
    return linecache.getline(path, number).rstrip() if path else ""


@cache
def _path(file: str) -> str | None:
    """The file itself, or the file of the only loaded module with this base name."""
    if Path(file).is_file():
        return file
    paths = {
        str(path)
        for module in list(sys.modules.values())
        if (path := getattr(module, "__file__", None)) and Path(str(path)).name == Path(file).name
    }
    return paths.pop() if len(paths) == 1 else None
