"""Which NVRTC there is and what it compiles for: all that a process needs which finds its kernels
on disk, and little, because each line of Python counts in the first call.
"""

import sys
from typing import NamedTuple

from fuser.errors import CompileError
from fuser.runtime import remembered

# No contraction of a * b + c: where an fma is wanted it is spelled. Functions need no __device__.
_FLAGS = ("--std=c++17", "--fmad=false", "--device-as-default-execution-space")
# Flags that older versions do not know: without the runtime's texture classes the front end is 4 ms
# faster; NVRTC's own disk cache would keep each kernel a second time, beside our store.
_FLAGS_SINCE = (("--minimal", (12, 4)), ("--no-cache", (12, 9)))


class Toolkit(NamedTuple):
    """The NVRTC of this process; cuda-python holds one at most."""

    version: tuple[int, int]
    build: str  # tells apart two builds of one version: the library's build id, or its size
    path: str  # of the library
    archs: tuple[int, ...]  # in ascending order: 90 for sm_90

    def target(self, arch: int) -> str:
        """What to compile for on a GPU of `arch`: "sm_90", or "compute_90" for PTX.

        Machine code where this NVRTC knows the GPU, else PTX for the newest architecture before it,
        which the driver finishes. Raises CompileError "nvrtc-arch" for a GPU that it has dropped.
        """
        if arch in self.archs:
            return f"sm_{arch}"
        older = [known for known in self.archs if known < arch]
        if older:
            return f"compute_{older[-1]}"
        raise CompileError(
            f"NVRTC {dotted(self.version)} ({self.path}) cannot compile for sm_{arch}; "
            f"it knows {', '.join(map(str, self.archs))}\n"
            '  hint: pip install "cuda-python==12.9.*" "nvidia-cuda-nvrtc-cu12==12.9.*" brings '
            "NVRTC 12.9, which knows sm_50 and later",
            rule="nvrtc-arch",
        )

    def flags(self, target: str) -> tuple[str, ...]:
        """The flags of a compilation for a target; part of the key of a kernel on disk."""
        since = tuple(flag for flag, version in _FLAGS_SINCE if self.version >= version)
        return (f"--gpu-architecture={target}", *_FLAGS, *since)


def known() -> Toolkit:
    """The NVRTC of this process, or as an earlier process found it, which spares this one to load
    it: a process that has its kernels on disk compiles nothing.
    """
    compiler = sys.modules.get("fuser.runtime.toolkit")
    loaded = compiler is not None and compiler.nvrtc.cache_info().currsize
    if not loaded and (fields := remembered.load("nvrtc")):
        version, archs = tuple(fields["version"]), tuple(fields["archs"])
        return Toolkit((version[0], version[1]), fields["build"], fields["path"], archs)
    from fuser.runtime import toolkit

    return toolkit.nvrtc()


def dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
