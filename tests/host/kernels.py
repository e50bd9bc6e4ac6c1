"""Helpers for tests of the host executor: a prelude for kernel text, building, launching."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser import _core
from fuser.runtime import host

PRELUDE = """
#define DEVICE inline __attribute__((always_inline))
#define KERNEL(threads) inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 64")
typedef int i32; typedef unsigned u32; typedef long long i64; typedef float f32;
template <class T> DEVICE T get(const T* p) {
  debug_access(p, sizeof(T), sizeof(T), false);
  return *p;
}
template <class T> DEVICE void put(T* p, T x) {
  debug_access(p, sizeof(T), sizeof(T), true);
  *p = x;
}
"""


@dataclass
class Built:
    """The kernels of one build by name."""

    kernels: dict[str, Any] = field(default_factory=dict)

    def __call__(self, name: str, grid: Any, block: Any, *args: Any, **options: Any) -> None:
        """Launch a kernel: arrays become pointers, ints i32, floats f32.

        In debug builds a kernel may access these arrays only; read-only arrays are inputs.
        """
        arrays = [a for a in args if isinstance(a, np.ndarray)]
        ranges = [
            _core.HostRange(f"t{i}", a.ctypes.data, a.nbytes, writable=a.flags.writeable)
            for i, a in enumerate(arrays)
        ]
        ranges = options.pop("ranges", ranges)
        shared = options.pop("shared", 0)
        _core.host_launch(
            self.kernels[name],
            triple(grid),
            triple(block),
            shared,
            [value(a) for a in args],
            ranges,
            _core.HostOptions(**options),
        )


def build(*sources: tuple[str, str, bool], debug: bool = False) -> Built:
    """Compile (name, text, collectives) triples with the prelude in one build."""
    named = [host.HostSource(name, PRELUDE + text, meets) for name, text, meets in sources]
    module = _core.load_host_bytes(host.build(named, debug))
    return Built({source.name: module.find(i) for i, source in enumerate(named)})


def triple(extent: int | Sequence[int]) -> list[int]:
    """(x, y, z) of a launch."""
    given = [extent] if isinstance(extent, int) else list(extent)
    return given + [1] * (3 - len(given))


def value(arg: Any) -> bytes:
    """The bytes of a kernel argument."""
    if isinstance(arg, np.ndarray):
        return struct.pack("P", arg.ctypes.data)
    if isinstance(arg, np.generic):
        return arg.tobytes()
    return struct.pack("f" if isinstance(arg, float) else "i", arg)


def read_only(array: np.ndarray) -> np.ndarray:
    """Mark the array as read-only, i.e. as an input."""
    array.flags.writeable = False
    return array
