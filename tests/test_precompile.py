"""fuser/precompile.py: a run of a script fills the kernel cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fuser
from fuser import precompile

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import sys

import torch

import fuser
import beside

with fuser.FusionDefinition() as fd:
    x = fd.define_tensor([-1], [True])
    fd.add_output(fd.ops.exp(fd.ops.mul(x, float(sys.argv[1]))))
assert __name__ == "__main__"
assert fd.execute([torch.zeros(3)])[0].tolist() == [1.0] * 3
sys.exit(beside.STATUS if len(sys.argv) > 2 else None)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("STATUS = 'no model'\n")
    (tmp_path / "job.py").write_text(SCRIPT)
    return tmp_path / "job.py"


def run(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "fuser", "precompile", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_second_run_loads_all(script: Path) -> None:
    """--check fails if a kernel is missing; arguments and modules beside the script are found."""
    folder = script.parent / "kernels"
    filled = f"fuser: 1 kernels compiled, 0 loaded, in {folder}\n"
    assert run("--folder", folder, script, "2")[:2] == (0, filled)
    assert run("--folder", folder, "--check", script, "2")[:2] == (
        0,
        filled.replace("1", "0", 1).replace(" 0 loaded", " 1 loaded"),
    )
    status, said, errors = run("--folder", folder, "--check", script, "3", "fail")
    assert (status, said, errors) == (1, filled, "no model\n")


def test_without_a_cache(script: Path, set_option) -> None:  # type: ignore[no-untyped-def]
    """precompile-1, before the script runs."""
    set_option("FUSER_CACHE", 0)
    with pytest.raises(fuser.UserError, match="expected a disk cache") as error:
        precompile.run(script, [], None, check=False)
    assert error.value.rule == "precompile-1"
