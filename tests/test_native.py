"""fuser/_native.py: an unsupported version of torch is rejected before a binary is loaded."""

import importlib.metadata
import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fuser import _core, _native
from fuser.errors import BuildMismatch

ROOT = Path(__file__).resolve().parent.parent


def test_the_build_names_the_torch_that_is_there() -> None:
    assert _core.torch_version == importlib.metadata.version("torch").partition("+")[0]


@pytest.mark.parametrize("imported", ["2.13.0", "2.13.0+cpu", "2.13.0+cu130"])
def test_same_release_fits(imported: str) -> None:
    _native.check_torch("2.13.0", imported)


@pytest.mark.parametrize("imported", ["2.11.0", "2.13.1", "2.13.0a0", "3.0.0+cpu"])
def test_build_torch(imported: str) -> None:
    with pytest.raises(BuildMismatch) as caught:
        _native.check_torch("2.13.0", imported)
    message = str(caught.value)
    assert f"built against torch 2.13.0, but torch {imported} is imported" in message
    assert _native.rebuild_command() in message
    assert isinstance(caught.value, ImportError)
    assert caught.value.rule == "build-torch"


def test_build_without_torch_says_so() -> None:
    with pytest.raises(BuildMismatch, match="built without torch, but torch 2"):
        _native.check_torch("", "2.13.0")


def test_mismatch_is_raised_before_the_binary_is_loaded() -> None:
    code = (
        "import torch, sys\n"
        "torch.__version__ = '9.9.9'\n"
        "from fuser import _native, errors\n"
        "try: _native.load_torch()\n"
        "except errors.BuildMismatch as error: print('9.9.9' in str(error))\n"
        "print('fuser._torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "True\nFalse\n", done.stderr


def test_the_command_that_builds_takes_folders_with_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "a checkout"
    (checkout / "fuser").mkdir(parents=True)
    (checkout / "setup.py").touch()
    monkeypatch.setattr(_native, "_PACKAGE", checkout / "fuser")
    for tools in (None, object()):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, found=tools: found)
        assert str(checkout) in shlex.split(_native.rebuild_command())


def test_build_missing(tmp_path: Path) -> None:
    for name in ("__init__.py", "_native.py", "errors.py"):
        (tmp_path / "fuser").mkdir(exist_ok=True)
        text = "" if name == "__init__.py" else (ROOT / "fuser" / name).read_text()
        (tmp_path / "fuser" / name).write_text(text)
    code = (
        "from fuser import _native\n"
        "try:\n    _native.load_core()\n"
        "except _native.BuildMismatch as error:\n    print(error.rule, error)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],  # without site-packages, which may contain fuser
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("build-missing fuser is not built for "), done.stderr
    assert "build it: " in done.stdout
