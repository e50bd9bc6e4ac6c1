"""Cost model: predicted time of a step, used by `explain` and `report`.

The time of a kernel is the launch overhead plus the larger of two terms: bytes at copy bandwidth,
and instructions at the issue rate of the SMs or cores. Instructions are the issue slots of its ops
(csrc/fusion/segment/cost.h). They exclude addresses, loops and synchronization, so kernels of many
irregular rows or of little work take longer than predicted. Counting machine code instead would not
predict better, because nearly all kernels are limited by bytes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

from fuser import _core

# Fraction of the data sheet bandwidth that a large copy reaches.
COPY_SHARE = 0.895
# Overhead of a kernel beside its bytes, in microseconds: the launch, and the first and last blocks,
# which do not saturate memory.
LAUNCH_US = 3.5
# Issue slots per clock of an SM, clocks per second (similar on all GPUs since Volta), and the
# fraction of slots that kernels limited by instructions use.
_LANES, _CLOCK_HZ, _ISSUE_SHARE = 128, 1.8e9, 0.75
# The same for a core of a CPU: clocks per second of common servers, and vector instructions per
# clock. Overhead of a launch on it, in microseconds, with workers that spin.
_CPU_CLOCK_HZ, _CPU_ISSUE, CPU_LAUNCH_US = 3e9, 1.5, 1.0
# Largest copy that is timed, in bytes.
_LARGEST_COPY = 128 << 20


class Parts(NamedTuple):
    """Times in microseconds if launch, bytes or instructions alone limited a step."""

    launch: float
    bytes: float
    instructions: float

    @property
    def together(self) -> float:
        """Predicted time in microseconds: bytes and instructions overlap, and follow the launch."""
        return self.launch + max(self.bytes, self.instructions)


@dataclass(frozen=True)
class Machine:
    """A GPU or CPU as the model sees it. For CPU tensors it is this CPU, or the GPU that the host
    executor emulates, so that a report without a GPU predicts times on one.
    """

    name: str
    arch: int  # 90 for sm_90; 0 for a CPU
    copy_bandwidth: float  # bytes per second, reads plus writes
    slots: float  # issue slots per second
    present: bool  # True if measured times come from this machine
    launch_us: float = LAUNCH_US
    # copy bandwidth of a CPU's caches: (bytes that they hold, bytes per second), smallest first
    caches: tuple[tuple[int, float], ...] = ()

    def bandwidth(self, moved: int) -> float:
        """Copy bandwidth of the smallest memory that holds these bytes."""
        return next((rate for held, rate in self.caches if moved <= held), self.copy_bandwidth)

    def us(self, kind: str, moved: int, slots: float = 0.0) -> float | None:
        """Predicted microseconds of a step that moves `moved` bytes and takes `slots` issue slots.
        Library calls have no prediction, because only their bytes are known.
        """
        return None if kind == "library" else self.parts(kind, moved, slots).together

    def parts(self, kind: str, moved: int, slots: float = 0.0) -> Parts:
        """Times of a step by limiting factor. Instructions of a library call are unknown and count
        as 0.
        """
        known = 0.0 if kind == "library" else slots
        return Parts(self.launch_us, moved / self.bandwidth(moved) * 1e6, known / self.slots * 1e6)


def machine_of(device: int) -> Machine:
    """The machine of a CUDA ordinal, or of the CPU (-1)."""
    if device >= 0:
        return _machine(_core.cuda_device(device), present=True)
    arch = int(_core.get_option("FUSER_HOST_ARCH"))
    if arch == 0:
        return _cpu(_core.get_option("FUSER_CPU_ISA"))
    return _machine(_core.nearest_known_device(arch), present=False)


@functools.cache
def _cpu(isa: str) -> Machine:
    """This CPU with measured bandwidths. The first call copies for about a tenth of a second."""
    device = _core.native_device(isa)
    held = sorted({device.l2_bytes * device.cores, device.l3_bytes})
    return Machine(
        name=f"{device.name} ({device.isa}, {device.cores} cores)",
        arch=0,
        copy_bandwidth=_core.copy_bandwidth(min(2 * device.l3_bytes, _LARGEST_COPY)),
        slots=device.cores * device.simd_bytes / 4 * _CPU_CLOCK_HZ * _CPU_ISSUE * _ISSUE_SHARE,
        present=True,
        launch_us=CPU_LAUNCH_US,
        caches=tuple((size, _core.copy_bandwidth(size // 4)) for size in held),
    )


def _machine(device: Any, present: bool) -> Machine:
    return Machine(
        name=device.name or f"sm_{device.arch}",
        arch=device.arch,
        copy_bandwidth=device.bandwidth * COPY_SHARE,
        slots=device.sms * _LANES * _CLOCK_HZ * _ISSUE_SHARE,
        present=present,
    )
