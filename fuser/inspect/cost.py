"""Cost model: predicted time of a step, used by `explain` and `report`.

The time of a kernel is the launch overhead plus the larger of two terms: bytes at copy bandwidth,
and instructions at the issue rate of the SMs. Instructions are the issue slots of its ops
(csrc/fusion/segment/cost.h). They exclude addresses, loops and synchronization, so kernels of many
irregular rows or of little work take longer than predicted. Counting machine code instead would not
predict better, because nearly all kernels are limited by bytes.
"""

from __future__ import annotations

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
    """A GPU as the model sees it. For CPU tensors it is the GPU that the host executor emulates, so
    that a report without a GPU predicts times on one.
    """

    name: str
    arch: int  # 90 for sm_90
    copy_bandwidth: float  # bytes per second, reads plus writes
    slots: float  # issue slots per second
    present: bool  # True if measured times come from this GPU

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
        return Parts(LAUNCH_US, moved / self.copy_bandwidth * 1e6, known / self.slots * 1e6)


def machine_of(device: int) -> Machine:
    """The machine of a CUDA ordinal, or of the CPU (-1)."""
    if device >= 0:
        return _machine(_core.cuda_device(device), present=True)
    arch = int(_core.get_option("FUSER_HOST_ARCH"))
    return _machine(_core.nearest_known_device(arch), present=False)


def _machine(device: Any, present: bool) -> Machine:
    return Machine(
        name=device.name or f"sm_{device.arch}",
        arch=device.arch,
        copy_bandwidth=device.bandwidth * COPY_SHARE,
        slots=device.sms * _LANES * _CLOCK_HZ * _ISSUE_SHARE,
        present=present,
    )
