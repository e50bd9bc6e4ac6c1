"""NVRTC 12.9 in addition to the installed NVRTC 13, to compile for sm_70, which 13 no longer
supports.

A process uses the first NVRTC that it loads, so the second one needs its own process.
"""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, files

import pytest

_PRELUDE = """
import ctypes
ctypes.CDLL({library!r}, ctypes.RTLD_GLOBAL)  # cuda-bindings takes the one already loaded
"""


def nvrtc_12() -> str | None:
    """The path of libnvrtc.so.12 of the package nvidia-cuda-nvrtc-cu12, or None."""
    try:
        found = files("nvidia-cuda-nvrtc-cu12") or []
    except PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in found if file.name == "libnvrtc.so.12"), None)


needs_nvrtc_12 = pytest.mark.skipif(
    nvrtc_12() is None,
    reason="no NVRTC 12.9: pip install nvidia-cuda-nvrtc-cu12 (the extra 'test' brings it)",
)


def run_under_nvrtc_12(code: str) -> str:
    """Run Python code in a process whose NVRTC is 12.9; return its output."""
    library = nvrtc_12()
    assert library, "pip install nvidia-cuda-nvrtc-cu12 (the extra 'test' brings it)"
    command = [sys.executable, "-c", _PRELUDE.format(library=library) + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
