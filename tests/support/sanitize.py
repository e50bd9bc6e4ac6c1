"""python -m tests.support.sanitize FOLDER: build the compiler core with AddressSanitizer and
UndefinedBehaviorSanitizer (FUSER_SANITIZE), and create FOLDER/tree, a checkout that uses it.

torch's modules are not built, so tests that run kernels on tensors fail there. `make sanitize` runs
the remaining tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
BINARIES = ("libfuser.so", f"_core{SUFFIX}", f"_core_testing{SUFFIX}")


def main(folder: Path) -> None:
    import pybind11

    build = folder / "cmake"
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
    targets = ("--target", "all", "_core_testing")
    subprocess.run(["cmake", "--build", str(build), *targets], check=True)
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    built = {path for path in (ROOT / "fuser").glob("*.so")}
    shutil.copytree(
        ROOT / "fuser",
        tree / "fuser",
        ignore=lambda at, names: [n for n in names if Path(at) / n in built or n == "__pycache__"],
    )
    for name in BINARIES:
        shutil.copy2(build / name, tree / "fuser" / name)
    for header in (ROOT / "csrc" / "device").glob("*.[ch]*"):
        (tree / "fuser" / "device").mkdir(exist_ok=True)
        shutil.copy2(header, tree / "fuser" / "device" / header.name)
    for name in ("benchmarks", "csrc", "tests", "pyproject.toml"):
        os.symlink(ROOT / name, tree / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
