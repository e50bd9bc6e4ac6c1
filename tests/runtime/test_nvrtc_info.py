"""fuser/runtime/nvrtc_info: information about the installed NVRTC, without loading it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_process_that_compiles_nothing_loads_no_compiler(tmp_path: Path) -> None:
    program = (
        "import sys; from fuser.runtime.toolchain import known; "
        "compilers = 'cuda.bindings.nvrtc', 'fuser.runtime.toolkit'; "
        "print(known(), *(name in sys.modules for name in compilers))"
    )
    root = str(Path(__file__).resolve().parents[2])
    lines = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PATH": "", "PYTHONPATH": root, "FUSER_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert lines[0][:-2] == lines[1][:-2]
    assert (lines[0][-2:], lines[1][-2:]) == (["True", "True"], ["False", "False"])
