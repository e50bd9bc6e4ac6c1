"""A process with a fake driver, which records launches without a GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


def in_new_process(code: str) -> str:
    """Output of the code, run with `_core`, `_core_testing` and `LaunchError` imported."""
    head = "from fuser import _core, _core_testing\nfrom fuser.errors import LaunchError\n"
    # Unbuffered, as the C library's output then is too, so that lines are in the order of the
    # calls.
    command = [sys.executable, "-u", "-c", head + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fake libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("fake_driver.c")
    flags = ["-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *flags, str(source), "-o", str(folder / "libcuda.so.1")], check=True)
    return folder


@pytest.fixture
def run(fake_driver: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """run(code, FAKE_..=..): output of the code in a process with the fake driver."""

    def run_with(code: str, **settings: object) -> str:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_driver))
        for name, value in settings.items():
            monkeypatch.setenv(name, str(value))
        return in_new_process(code)

    return run_with
