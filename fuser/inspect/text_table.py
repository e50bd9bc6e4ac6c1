"""Text for terminals: tables, units, and colours."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def colours_wanted(stream: object = None) -> bool:
    """True if `stream` (default: standard output) is a terminal and NO_COLOR is not set."""
    stream = stream or sys.stdout
    is_terminal = getattr(stream, "isatty", lambda: False)()
    return bool(is_terminal) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, colours: bool) -> str:
    """Returns `text` in a style ("bold", "dim", "red", ...) if `colours`."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if colours and text else text


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "", colours: bool = False
) -> list[str]:
    """Lines of aligned columns; character c of `right` is "r" if column c is aligned right."""
    widths = [max(len(line[c]) for line in (header, *rows)) for c in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if right[c : c + 1] == "r" else cell.ljust(width)
            for c, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    return [styled(line(header), "bold", colours), *map(line, rows)]


def size(count: float) -> str:
    """Bytes in the largest unit that gives at least 1."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{count:.0f} B"


def duration(us: float | None) -> str:
    """Microseconds, or milliseconds from 10000 us on; "-" for a missing duration."""
    if us is None:
        return "-"
    return f"{us / 1e3:.2f} ms" if us >= 1e4 else f"{us:.1f} us"
