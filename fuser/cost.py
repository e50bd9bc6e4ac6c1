"""What a step should take: the one model behind predicted times, in `explain` and in `report`.

A kernel of ours either waits for memory or is so small that its launch is all there is, so its time
is one launch and its bytes at the speed of a copy. Kernels that compute much for each byte take
longer; the roofline of the report shows which may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fuser import _core

# Of a data sheet's bandwidth, what a large copy reaches (H200: 4.29 of 4.8 TB/s).
COPY_SHARE = 0.895
# From the start of a kernel with next to nothing to do to its end, microseconds.
LAUNCH_US = 2.5
# Simple operations that a processor starts in a clock, and clocks a second, of every GPU since
# Volta to within a fifth: good for one line of a roofline, no more.
_LANES, _CLOCK_HZ = 128, 1.8e9


@dataclass(frozen=True)
class Machine:
    """A GPU as the model sees it. For tensors on the CPU it is the GPU that the host executor is
    dressed as, so that a report without a GPU says what to expect with one.
    """

    name: str
    arch: int  # 90 for sm_90
    copy_bandwidth: float  # bytes a second, read and written together
    operations: float  # simple ones a second
    present: bool  # do measured times come from it?

    def us(self, kind: str, moved: int) -> float | None:
        """Microseconds of a step that moves so many bytes; None for a library call, which may
        compute for longer than its bytes take.
        """
        if kind == "library":
            return None
        return LAUNCH_US + moved / self.copy_bandwidth * 1e6


def machine_of(device: int) -> Machine:
    """Of a CUDA ordinal, or of -1: the CPU."""
    if device >= 0:
        return _machine(_core.cuda_device(device), present=True)
    arch = int(_core.get_option("FUSER_HOST_ARCH"))
    return _machine(_core.nearest_known_device(arch), present=False)


def _machine(device: Any, present: bool) -> Machine:
    return Machine(
        name=device.name or f"sm_{device.arch}",
        arch=device.arch,
        copy_bandwidth=device.bandwidth * COPY_SHARE,
        operations=device.processors * _LANES * _CLOCK_HZ,
        present=present,
    )
