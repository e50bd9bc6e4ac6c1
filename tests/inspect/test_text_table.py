"""fuser/inspect/text_table.py: text tables, units and terminal colours."""

from __future__ import annotations

import pytest

from fuser.inspect.text_table import colours_wanted, duration, size, table


class Terminal:
    def isatty(self) -> bool:
        return True


def test_columns_are_aligned() -> None:
    lines = table(["name", "us"], [["a", "1.0"], ["longer", "12.5"]], right=" r")
    assert lines == ["name      us", "a        1.0", "longer  12.5"]


def test_units() -> None:
    assert [size(n) for n in (0, 1023, 1 << 10, 3 << 19, 1 << 30)] == [
        *("0 B", "1023 B", "1.00 KiB", "1.50 MiB", "1.00 GiB")
    ]
    assert [duration(us) for us in (None, 2.54, 12345.0)] == ["-", "2.5 us", "12.35 ms"]


def test_colours_need_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colours_wanted(Terminal())
    assert not colours_wanted(object())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours_wanted(Terminal())
