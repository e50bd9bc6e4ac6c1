"""Thin driver: runs CMake + ninja and copies the binaries into the package.

    python setup.py build_ext --inplace     build into fuser/ of this checkout, as `make build` does
    pip install .  or  pip install -e .     the same through PEP 517

Build folders persist under build/, one per Python and torch, so that environments do not conflict
and a second build compiles only changed files. Variables: CXX (the C++20 compiler),
CMAKE_BUILD_PARALLEL_LEVEL (jobs).
"""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent

# Prints folder and version of torch without importing it, which takes seconds. Under pip's build
# isolation, this interpreter with -I is the interpreter of the target environment: -I ignores the
# isolation's PYTHONPATH, so it finds the torch that is used at run time.
FIND_TORCH = """
import importlib.util, pathlib, re
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin:
    folder = pathlib.Path(spec.origin).parent
    text = (folder / "version.py").read_text()
    print(folder, re.search(r"__version__ = '([^'+]+)", text).group(1), sep="\\n")
"""


def find_torch() -> tuple[str, str]:
    """Folder and version of the torch to build against; ("", "") without one."""
    for flags in (["-I"], []):
        command = [sys.executable, *flags, "-c", FIND_TORCH]
        found = subprocess.run(command, check=True, capture_output=True, text=True)
        lines = found.stdout.split("\n")
        if len(lines) >= 2:
            return lines[0], lines[1]
    return "", ""


def find_tool(name: str) -> str:
    """A build tool: installed next to this interpreter, or else on the PATH."""
    scripts = sysconfig.get_path("scripts")
    found = shutil.which(name, path=os.pathsep.join([scripts, os.environ.get("PATH", "")]))
    if found is None:
        sys.exit(f"fuser: the build needs {name}, found none; `pip install {name}` brings it")
    return found


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(command: list[str], what: str) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"fuser: {what} failed; its first error stands above")


def place(source: Path, target: Path) -> None:
    """Copies by rename, and only if the content differs: a process that has mapped the old binary
    keeps it.
    """
    data = source.read_bytes()
    if target.exists() and target.read_bytes() == data:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.chmod(source.stat().st_mode)
    temporary.replace(target)


class CMakeBuild(build_ext):
    """build_ext without a compiler: CMake and ninja do the work."""

    def run(self) -> None:
        in_place = bool(self.inplace) or self.editable_mode
        package = (ROOT if in_place else Path(self.build_lib).resolve()) / "fuser"
        # Tests run in a checkout, so wheels have no bindings for them.
        tests = ["_core_testing"] if in_place else []
        folder = self.compile(["all", *tests])
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        place(folder / "libfuser.so", package / "libfuser.so")
        for name in ("_core", *tests):
            place(folder / f"{name}{suffix}", package / f"{name}{suffix}")
        for name in (f"_torch{suffix}", f"_torchscript{suffix}"):
            if (folder / name).exists():
                place(folder / name, package / name)
            else:
                (package / name).unlink(missing_ok=True)  # built for another environment
        if in_place:
            # Write it next to the package, so that torch finds the entry point of a checkout on the
            # path.
            self.run_command("egg_info")
        # The compiler of the host executor reads these when it builds a kernel.
        for header in sorted((ROOT / "csrc" / "device").glob("*.[ch]*")):
            if header.suffix in (".h", ".cuh"):
                place(header, package / "device" / header.name)

    def compile(self, targets: list[str]) -> Path:
        """Configures if the environment changed, builds, and returns the folder of the binaries."""
        if importlib.util.find_spec("pybind11") is None:
            sys.exit(
                f"fuser: the build needs pybind11, which {sys.executable} does not find\n"
                "  hint: `pip install pybind11 cmake ninja`, or `pip install .`, which brings them"
            )
        import pybind11

        torch_folder, torch_version = find_torch()
        if not torch_version:
            print(
                f"fuser: {sys.executable} has no torch: what is built runs nothing on tensors\n"
                "  hint: install torch, 2.11 or newer, and build again",
                file=sys.stderr,
            )
        key = f"{sys.implementation.cache_tag}-torch{torch_version or 'none'}"
        if not Path(pybind11.__file__).is_relative_to(sys.prefix):
            # a temporary environment of pip has other header paths, so use another build folder
            key += "-isolated"
        folder = ROOT / "build" / key.replace("cpython-", "cp")
        ninja = find_tool("ninja")
        configure = [
            find_tool("cmake"),
            *("-S", str(ROOT), "-B", str(folder), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DFUSER_TORCH_DIR={torch_folder}",
            f"-DFUSER_TORCH_VERSION={torch_version}",
        ]
        wanted = "\n".join([*configure, os.environ.get("CXX", "")])
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(cores())
        folder.mkdir(parents=True, exist_ok=True)
        # Lock, because concurrent builds in one folder would overwrite each other.
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stamp = folder / "configured.txt"
            if not stamp.exists() or stamp.read_text() != wanted:
                stamp.unlink(missing_ok=True)
                # from another compiler or CMake
                (folder / "CMakeCache.txt").unlink(missing_ok=True)
                run(configure, "the configuration")
                stamp.write_text(wanted)
            run([ninja, "-C", str(folder), "-j", jobs, *targets], "the build")
        return folder

    # Answers for setuptools, which expects a compiler; CMake provides no such lists.
    def get_outputs(self) -> list[str]:
        return []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


setup(
    ext_modules=[Extension("fuser._core", sources=[])],  # makes the wheel a platform wheel
    cmdclass={"build_ext": CMakeBuild},
)
