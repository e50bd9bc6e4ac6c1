"""Compiler properties found by an earlier process, stored next to the kernels.

A process that has all its kernels on disk then needs neither to load NVRTC nor to start a C++
compiler just to learn its version. The stored properties apply to one interpreter, set of packages
and search paths, while the library file is unchanged. They may still be wrong if a library appeared
elsewhere; therefore compilations query the real compiler and store nothing under the name of
another.
"""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from fuser import _core

# Environment variables that affect the library search.
_VARIABLES = ("CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


def load(compiler: str) -> dict[str, Any] | None:
    """The fields last stored for a compiler of this name, if they are still valid."""
    store = disk_store()
    entry = store.get(_key(compiler)) if store else None
    if entry is None:
        return None
    fields: dict[str, Any] = json.loads(entry.payload)
    return fields if fields.pop("file") == _stamp(fields["path"]) else None


def store(compiler: str, fields: Mapping[str, Any]) -> None:
    """Stores the fields; "path" is the compiler's file."""
    kept = {**fields, "file": _stamp(fields["path"])}
    if place := disk_store():
        place.put(_key(compiler), _core.Binary(payload=json.dumps(kept)))


def disk_store() -> Any:
    """The store of the current options, if the cache is on."""
    if _core.get_option("FUSER_CACHE") != "1":
        return None
    folder, megabytes = map(_core.get_option, ("FUSER_CACHE_DIR", "FUSER_CACHE_MB"))
    return _core.Store(_core.store_directory(folder), int(megabytes) << 20)


def _stamp(path: str) -> list[int]:
    """Size and modification time of a file; empty without a file."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


@functools.cache
def _key(compiler: str) -> bytes:
    # The time of a package folder changes with each installation.
    packages = [path for path in sys.path if path.endswith("-packages")]
    parts = [sys.version, sys.prefix, *(f"{path} {_stamp(path)}" for path in packages)]
    parts += [f"{name}={os.environ.get(name, '')}" for name in _VARIABLES]
    return hashlib.sha256(os.fsencode("\0".join(["compiler 2", compiler, *parts]))).digest()
