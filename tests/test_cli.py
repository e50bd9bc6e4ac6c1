"""python -m fuser, and the table of options in docs/options.md, which is generated from the option
rows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fuser import __main__ as cli
from fuser import _core

ROOT = Path(__file__).resolve().parent.parent
NAMES = [
    "fuser",
    "python",
    "torch",
    "NVRTC",
    "CUDA driver",
    "GPUs",
    "CPU",
    "C++ compiler",
    "kernel cache",
    "options",
]

# A locale in which Python reads and writes ASCII only.
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuser", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


def test_help_lists_every_option_and_the_environment() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    for variable, _, default, text in _core.option_rows():
        assert f"{variable} (" in words
        assert f"default {default or 'empty'}" in words
        assert text in words
    for name in NAMES:
        assert f"  {name}:" in done.stdout


def test_help_shows_a_changed_option() -> None:
    assert "FUSER_CACHE_MB (int, default 1024, now 5)" in run("--help", FUSER_CACHE_MB="5").stdout


def test_without_arguments_prints_the_help() -> None:
    assert run().stdout.startswith("usage: python -m fuser")


def test_env() -> None:
    done = run("env")
    assert done.returncode == 0
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines()] == NAMES
    assert re.search(r"torch: +\d+\.\d+", done.stdout)


def test_env_in_a_locale_that_cannot_write_its_paths(tmp_path: Path) -> None:
    done = run("env", FUSER_CACHE_DIR=str(tmp_path / "größe"), **ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"gr\udcc3\udcb6\udcc3\udc9fe" in done.stdout  # escaped by Python in that locale


def test_unknown_subcommand_is_an_error() -> None:
    done = run("nonsense")
    assert done.returncode == 2
    assert "invalid choice: 'nonsense'" in done.stderr


def test_repro_of_no_file_is_an_error() -> None:
    done = run("repro", "absent.py")
    assert done.returncode == 2
    assert "expected an existing file, got absent.py" in done.stderr


@pytest.mark.parametrize("command", ["env", "manual", "repro"])
def test_subcommands_have_help(command: str) -> None:
    done = run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: python -m fuser {command}")


def test_a_missing_compiler_is_said_in_its_line() -> None:
    done = run("env", FUSER_CXX="no-such-compiler")
    assert done.returncode == 0
    assert "not usable: the C++ compiler no-such-compiler does not start" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_line_never_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise OSError("it is not there")

    monkeypatch.setitem(cli.ENVIRONMENT, name, broken)
    assert cli.environment()[name] == "not usable: it is not there"


def test_the_documents_list_every_option() -> None:
    text = (ROOT / "docs" / "options.md").read_text()
    rows = re.findall(r"^\| `(FUSER_\w+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(v, f"`{d}`" if d else "", t) for v, _, d, t in _core.option_rows()]
