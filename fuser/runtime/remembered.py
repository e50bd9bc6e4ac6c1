"""Which compilers a process like this one found, kept between processes beside the kernels.

To load NVRTC only to learn its version costs a process 0.1 s, to start a C++ compiler for the same
25 ms, when all of its kernels are on disk.
What is kept holds for the same interpreter, packages and search paths, while the library's file is
the same. It may still be wrong, where a library appeared elsewhere: whoever compiles asks the real
one, and stores nothing under the name of another.
"""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from fuser import _core

# What decides where libraries are found.
_VARIABLES = ("CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


def load(compiler: str) -> dict[str, Any] | None:
    """The fields that store() was given last for a compiler of this name; None where nothing is
    kept or it holds no more.
    """
    store = disk_store()
    entry = store.get(_key(compiler)) if store else None
    if entry is None:
        return None
    fields: dict[str, Any] = json.loads(entry.payload)
    return fields if fields.pop("file") == _stamp(fields["path"]) else None


def store(compiler: str, fields: Mapping[str, Any]) -> None:
    """Keeps the fields, of which "path" is the compiler's file."""
    kept = {**fields, "file": _stamp(fields["path"])}
    if place := disk_store():
        place.put(_key(compiler), _core.Binary(payload=json.dumps(kept)))


def disk_store() -> Any:
    """The folder of the present options; None where it is switched off."""
    if _core.get_option("FUSER_CACHE") != "1":
        return None
    folder, megabytes = map(_core.get_option, ("FUSER_CACHE_DIR", "FUSER_CACHE_MB"))
    return _core.Store(_core.store_directory(folder), int(megabytes) << 20)


def _stamp(path: str) -> list[int]:
    """Another one as soon as the file is another one; empty without a file."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


@functools.cache
def _key(compiler: str) -> bytes:
    # The time of a folder of packages changes with each that is installed.
    packages = [path for path in sys.path if path.endswith("-packages")]
    parts = [sys.version, sys.prefix, *(f"{path} {_stamp(path)}" for path in packages)]
    parts += [f"{name}={os.environ.get(name, '')}" for name in _VARIABLES]
    return hashlib.sha256(os.fsencode("\0".join(["compiler 2", compiler, *parts]))).digest()
