"""fuser/progress.py: a progress bar, lines, or no output."""

from __future__ import annotations

import io
import re
import time

import pytest

from fuser import progress
from fuser.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "_REDRAW", 0.01)


def test_silent_when_it_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    terminal = Terminal()
    with Progress(5, terminal) as p:
        p.done(5)
    assert terminal.getvalue() == ""


def test_silent_for_one_kernel() -> None:
    terminal = Terminal()
    with Progress(1, terminal):
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_a_bar_on_a_terminal() -> None:
    terminal = Terminal()
    with Progress(4, terminal) as p:
        p.done()
        time.sleep(0.3)
    text = terminal.getvalue()
    assert "[######..................] 1/4 kernels" in text
    assert re.search(r"compiled 4 kernels in \d\.\d s", text.splitlines()[-1])


def test_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(progress._core, "log_line", lines.append)
    with Progress(3, io.StringIO()) as p:
        p.done(2)
        time.sleep(0.3)
    assert lines[0] == "compiling 3 kernels, 2 done"
    assert lines[-1].startswith("compiled 3 kernels in")


def test_nothing_is_said_to_be_compiled_after_an_error() -> None:
    terminal = Terminal()

    def fail() -> None:
        with Progress(2, terminal):
            time.sleep(0.2)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert "compiled" not in terminal.getvalue()
