"""python -m fuser precompile SCRIPT: fills a cache folder before a job starts, or checks that it is
full.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from fuser import _core
from fuser.errors import UserError

__all__ = ["run"]


def run(script: Path, arguments: Sequence[str], folder: str | None, check: bool) -> int:
    """Runs a script as `python SCRIPT ARGUMENTS` does, with kernels in `folder`, and prints the
    numbers of compiled and loaded kernels. Returns the exit status of the script; 1 if it succeeds
    and `check` is set and a kernel was compiled.

    Processes on all hosts that share the folder load the kernels that the script compiled, if their
    processors and compilers are those of this host. Raises UserError `precompile-1` if the disk
    cache is off.
    """
    if folder is not None:
        _core.set_option("FUSER_CACHE_DIR", os.path.abspath(folder))
    if _core.get_option("FUSER_CACHE") == "0" or _core.get_option("FUSER_CACHE_MB") == "0":
        raise UserError(
            "python -m fuser precompile: expected a disk cache, got FUSER_CACHE=0 or "
            "FUSER_CACHE_MB=0\n  hint: unset the variable",
            rule="precompile-1",
        )
    from fuser.cache import cache_info

    before = cache_info()
    status = _status_of(script, arguments)
    after = cache_info()
    compiled = after.kernels_compiled - before.kernels_compiled
    loaded = after.kernels_from_disk - before.kernels_from_disk
    place = _core.store_directory(_core.get_option("FUSER_CACHE_DIR"))
    print(f"fuser: {compiled} kernels compiled, {loaded} loaded, in {place}")
    return status or int(check and compiled > 0)


def _status_of(script: Path, arguments: Sequence[str]) -> int:
    """Runs a script as __main__. Returns its exit status; errors pass through."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path[0:1] = [str(script.resolve().parent)]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0
