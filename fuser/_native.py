"""Loads the compiled modules and reports a build mismatch.

`_core` is the compiler and does not depend on torch. `_torch` is compiled against one torch
release: its inlined accessors depend on the memory layout of torch's objects, so importing it under
another release may crash the process. Therefore the version is compared before the import.
"""

import importlib
import importlib.util
import shlex
import sys
from pathlib import Path
from typing import Any

from fuser.errors import BuildMismatch

_PACKAGE = Path(__file__).resolve().parent


def rebuild_command() -> str:
    """The command that compiles fuser for this interpreter and its torch."""
    checkout, python = shlex.quote(str(_PACKAGE.parent)), shlex.quote(sys.executable)
    if (_PACKAGE.parent / "setup.py").exists():
        if importlib.util.find_spec("pybind11"):  # the build tools are installed
            return f"cd {checkout} && {python} setup.py build_ext --inplace"
        return f"{python} -m pip install --no-deps -e {checkout}"
    install = f"{python} -m pip install --force-reinstall --no-deps --no-cache-dir"
    return f"{install} <source folder of fuser>"


def check_torch(built: str, imported: str) -> None:
    """Raises BuildMismatch unless fuser was built for this torch. `built` is "" for a build without
    torch.

    The local part of a version (+cpu, +cu130) is ignored: it does not change the headers.
    """
    if built == imported.partition("+")[0]:
        return
    against = f"against torch {built}" if built else "without torch"
    raise BuildMismatch(
        f"fuser was built {against}, but torch {imported} is imported; "
        f"rebuild it: {rebuild_command()}"
    )


def load_core() -> Any:
    """Returns the module fuser._core."""
    try:
        return importlib.import_module("fuser._core")
    except ModuleNotFoundError as error:
        if error.name != "fuser._core":
            raise
        raise BuildMismatch(
            f"fuser is not built for {sys.implementation.cache_tag}; build it: {rebuild_command()}",
            rule="build-missing",
        ) from None


def load_torch() -> Any:
    """Returns the module fuser._torch; imports torch. Raises BuildMismatch if it was built for
    another torch.
    """
    import torch

    check_torch(load_core().torch_version, torch.__version__)
    if "fuser._torch" not in sys.modules:
        from fuser.runtime import toolchain

        toolchain.install()
    return importlib.import_module("fuser._torch")
