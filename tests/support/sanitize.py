"""python -m tests.support.sanitize FOLDER ARGUMENTS: build the compiler, libfuser.so, with
AddressSanitizer and UndefinedBehaviorSanitizer (FUSER_SANITIZE), create FOLDER/tree, a checkout
that uses it, and run pytest with the arguments there. `make sanitize` calls it.

The bindings and torch's modules are those of `make build`, because the headers of pybind11 and
torch take long to compile with sanitizers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tests.support.nvrtc12 import nvrtc_12

ROOT = Path(__file__).resolve().parents[2]


def main(folder: Path, arguments: Sequence[str]) -> int:
    tree = make_tree(folder / "tree", compile_library(folder / "cmake"))
    # Capture no file descriptors, because pytest drops them if a fault ends the process.
    options = ("-p", "no:cacheprovider", "--capture=sys")
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    return subprocess.run(command, cwd=tree, env=environment(), check=False).returncode


def compile_library(build: Path) -> Path:
    """Returns the sanitized libfuser.so."""
    import pybind11

    # cmake and ninja of this environment, or else of the system.
    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    subprocess.run(
        [
            *("cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja"),
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DPython_EXECUTABLE={sys.executable}",
            "-DFUSER_SANITIZE=ON",
        ],
        check=True,
    )
    subprocess.run(["cmake", "--build", str(build), "--target", "fuser"], check=True)
    return build / "libfuser.so"


def make_tree(tree: Path, library: Path) -> Path:
    """Creates a checkout: a copy of the built package with this libfuser.so, links to the rest."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT / "fuser", tree / "fuser", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(library, tree / "fuser" / library.name)
    for name in ("benchmarks", "csrc", "tests", "pyproject.toml"):
        os.symlink(ROOT / name, tree / name)
    return tree


def environment() -> dict[str, str]:
    """Variables of the test run. The interpreter is not sanitized, so it loads the run-time
    libraries first; the compiler of kernels runs without them. Leaks are not reported, because
    Python does not free everything at exit.
    """
    runtime = [_library(name) for name in ("libasan.so", "libubsan.so")]
    compiler = os.environ.get("FUSER_CXX", "c++")
    changed = {
        "LD_PRELOAD": " ".join(runtime),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "FUSER_CXX": f"env -u LD_PRELOAD {compiler}",
    }
    # AddressSanitizer calls dlopen for NVRTC, so the loader ignores NVRTC's own rpath, by which
    # NVRTC finds its builtins.
    folders = [str(Path(path).parent) for path in (_nvrtc(), nvrtc_12()) if path]
    if given := os.environ.get("LD_LIBRARY_PATH"):
        folders.append(given)
    return {**os.environ, **changed, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


def _library(name: str) -> str:
    command = [os.environ.get("CXX", "g++"), f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _nvrtc() -> str | None:
    """The path of the installed NVRTC, or None."""
    try:
        from cuda import pathfinder

        return pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except (ImportError, RuntimeError):
        return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
