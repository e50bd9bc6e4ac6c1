"""The C++ compiler: search, versions, distribution of texts over translation units."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fuser.errors import CompileError
from fuser.runtime import cxx


def test_units_are_of_about_equal_size() -> None:
    processors = len(os.sched_getaffinity(0))
    units = cxx.split([5000] * 40, 16 << 10)
    assert len(units) == min(processors, 1 + 40 * 5000 // (16 << 10))
    assert sorted(index for unit in units for index in unit) == list(range(40))
    assert max(map(len, units)) - min(map(len, units)) <= 1


def test_small_texts_are_one_unit() -> None:
    assert cxx.split([100, 200, 300], 16 << 10) == [[0, 1, 2]]


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match=r"apt install g\+\+") as raised:
        cxx.compiler()
    assert raised.value.rule == "host-compiler"


@pytest.mark.parametrize("wanted", ["no-such-compiler", "false"])
def test_a_compiler_that_does_not_start(wanted: str) -> None:
    with pytest.raises(CompileError, match="does not start") as raised:
        cxx.compiler(wanted)
    assert raised.value.rule == "host-compiler"


@pytest.mark.parametrize("wanted", ["{path}", " {path} ", "'{path}'", "env '{path}'"])
def test_a_compiler_in_a_folder_with_a_space(wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "my tools" / "g++"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho version of $0\n")
    path.chmod(0o755)
    found = cxx.compiler(wanted.format(path=path))
    assert (found.command[-1], found.version) == (str(path), f"version of {path}\n")


def test_a_command_that_does_not_end() -> None:
    with pytest.raises(CompileError, match=r"No closing quotation: g\+\+ '") as raised:
        cxx.compiler("g++ '")
    assert raised.value.rule == "host-compiler"


def test_a_compiler_of_blanks_is_none_that_was_asked_for() -> None:
    assert cxx.compiler("  ") == cxx.compiler()


def test_a_compiler_that_an_earlier_process_asked_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_option: Callable[[str, object], None]
) -> None:
    set_option("FUSER_CACHE_DIR", tmp_path / "cache")
    real, other = tmp_path / "g++-1", tmp_path / "wrapper"
    for path in (real, other):
        path.write_text("#!/bin/sh\necho version of $0\n")
        path.chmod(0o755)
    link = tmp_path / "c++"
    link.symlink_to(real)
    answers = [cxx._probe.__wrapped__((str(path),)) for path in (link, other)]
    assert [a.version.split()[-1] for a in answers] == [str(link), str(other)]
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was started"))
    assert cxx._probe.__wrapped__((str(link),)) == answers[0]
    with pytest.raises(pytest.fail.Exception):  # an undetected change of the compiler
        cxx._probe.__wrapped__((str(other),))
    link.unlink()  # the link changes to another compiler, and back
    link.symlink_to(shutil.copy(real, tmp_path / "g++-2"))
    with pytest.raises(pytest.fail.Exception):
        cxx._probe.__wrapped__((str(link),))
    link.unlink()
    link.symlink_to(real)
    real.write_text("#!/bin/sh\necho newer\n")
    with pytest.raises(pytest.fail.Exception):
        cxx._probe.__wrapped__((str(link),))
