"""NVRTC version and architectures, for processes that find their kernels on disk. Kept small,
because the first call pays for each imported line.
"""

from typing import NamedTuple

from fuser.errors import CompileError

# No contraction of a * b + c: an fma is generated explicitly. Functions need no __device__.
_FLAGS = ("--std=c++17", "--fmad=false", "--device-as-default-execution-space")
# Flags by the first version that supports them. --minimal omits the runtime's texture classes,
# which speeds up the front end. --no-cache disables NVRTC's own disk cache, which would duplicate
# the kernel store.
_FLAGS_SINCE = (("--minimal", (12, 4)), ("--no-cache", (12, 9)))


class Toolkit(NamedTuple):
    """The NVRTC of this process; cuda-python loads at most one."""

    version: tuple[int, int]
    build: str  # build id of the library, or its size; distinguishes builds of one version
    path: str  # path of the library
    archs: tuple[int, ...]  # architectures in ascending order: 90 for sm_90

    def target(self, arch: int) -> str:
        """The compilation target for a GPU of `arch`: "sm_90", or "compute_90" for PTX.

        Machine code if this NVRTC supports the GPU; otherwise PTX for the newest older
        architecture, which the driver compiles. Raises CompileError "nvrtc-arch" for a GPU that
        this NVRTC no longer supports.
        """
        if arch in self.archs:
            return f"sm_{arch}"
        older = [known for known in self.archs if known < arch]
        if older:
            return f"compute_{older[-1]}"
        raise CompileError(
            f"NVRTC {dotted(self.version)} ({self.path}) cannot compile for sm_{arch}; "
            f"supported: {', '.join(map(str, self.archs))}\n"
            '  hint: pip install "cuda-python==12.9.*" "nvidia-cuda-nvrtc-cu12==12.9.*" brings '
            "NVRTC 12.9, which knows sm_50 and later",
            rule="nvrtc-arch",
        )

    def flags(self, target: str) -> tuple[str, ...]:
        """The flags of a compilation for a target; part of the disk cache key of a kernel."""
        since = tuple(flag for flag, version in _FLAGS_SINCE if self.version >= version)
        return (f"--gpu-architecture={target}", *_FLAGS, *since)


def dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
