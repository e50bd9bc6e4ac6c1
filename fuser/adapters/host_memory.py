"""Memory of CPU tensors between the calls of a compiled graph.

glibc returns freed memory at the end of its heap to the system, and gives large blocks pages of
their own. A graph frees its temporaries in each call, so each call would fault their pages in again
and the system would clear them. glibc raises both limits by itself, but only as far as the largest
block that it has freed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from functools import cache

from torch import fx

from fuser.adapters.nodes import device_of

# Parameters of mallopt(), from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Bytes of the largest limit that glibc chooses by itself, and of the freed memory it keeps then.
_LARGEST_BLOCK, _KEPT = 32 << 20, 64 << 20


def keep_freed_memory(nodes: Iterable[fx.Node]) -> None:
    """Makes glibc keep freed memory, if a node is a CPU tensor."""
    if any(getattr(device_of(node), "type", "") == "cpu" for node in nodes):
        _raise_limits()


@cache
def _raise_limits() -> bool:
    """Sets the limits that glibc has after a block of 32 MB was freed. Returns False if the program
    chose its own, or has another C library.
    """
    chosen = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if chosen or any(f"MALLOC_{name}_THRESHOLD_" in os.environ for name in ("TRIM", "MMAP")):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    limits = ((_MMAP_THRESHOLD, _LARGEST_BLOCK), (_TRIM_THRESHOLD, _KEPT))
    return all(mallopt(parameter, limit) == 1 for parameter, limit in limits)
