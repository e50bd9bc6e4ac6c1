"""fuser/debug/minify.py: reduction of failing repro scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fuser
from fuser import CompileError, FusionDefinition
from fuser.debug.minify import error_of, shrunk


def script() -> str:
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1]) for _ in range(2))
    a = fd.ops.sin(fd.ops.exp(x + 1.0))
    fd.add_output(fd.ops.tanh(a) * y)
    fd.add_output(fd.ops.relu(y))
    return fd.repro_script_for([torch.randn(4, 8), torch.randn(4, 8)])


def test_a_script_that_runs_has_no_error() -> None:
    assert error_of(script()) == ""


def test_the_error_is_its_class_and_rule() -> None:
    assert (
        error_of(script().replace("dtype=torch.float32", "dtype=torch.int32", 1))
        == "DTypeError argument-dtype"
    )


def test_only_what_fails_is_left() -> None:
    """With a probe that fails on every exp, shrinking leaves a single exp op and its input."""

    def probe(text: str) -> str:
        planned = text.replace("fd.execute(inputs)", "fd.plan(inputs) and ()")
        values: dict[str, Any] = {}
        try:
            exec(planned, values)
            steps = fuser.explain(values["fd"], values["inputs"]).steps
        except Exception as error:
            return type(error).__name__
        return "bug" if any("exp" in step.name for step in steps) else ""

    small = shrunk(script(), "bug", probe)
    ops = [line for line in small.splitlines() if "= fd.ops." in line]
    assert len(ops) == 1
    assert "exp" in ops[0]
    assert small.count("define_tensor") == small.count("make_tensor") == 1
    assert small.count("add_output") == 1


def test_a_failed_run_says_where_its_script_is(set_option: object) -> None:
    assert callable(set_option)
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.exp(fd.ops.sin(x) * 1.23456) + 7.5)
    set_option("FUSER_CXX", "no-such-compiler")
    with pytest.raises(CompileError) as caught:
        fd.execute([torch.randn(3, 5).T])
    (note,) = caught.value.__notes__
    path = Path(note.split("this run as a script: ")[1].splitlines()[0])
    text = path.read_text()
    assert text.startswith("# CompileError: ")
    assert ".as_strided((5, 3), (1, 5), 0)" in text
    assert error_of(text) == "CompileError host-compiler"
    small = shrunk(text, "CompileError host-compiler")
    assert small.count("= fd.ops.") == 1, "any kernel fails so"


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "repro.py"
    file.write_text(script().replace("dtype=torch.float32", "dtype=torch.int32", 1))
    root = Path(fuser.__file__).parents[1]
    command = [sys.executable, "-m", "fuser", "repro", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert "repro.py: DTypeError argument-dtype" in done.stdout
    assert error_of((tmp_path / "repro.small.py").read_text()) == "DTypeError argument-dtype"
