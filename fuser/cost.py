"""What a step should take: the one model behind predicted times, in `explain` and in `report`.

A kernel's time is that of its launch, and then of its bytes at the speed of a copy or of its
instructions at the speed at which the processors start them, whichever is longer. Instructions are
issue slots of its ops from the table (csrc/fusion/work.h): addresses, loops and what waits for each
other are not in them, so a kernel of many odd rows or of little work takes longer than predicted.
Counting the machine code instead predicts no better: bytes limit nearly every kernel, and where
instructions do, the table is within a tenth of the count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fuser import _core

# Of a data sheet's bandwidth, what a large copy reaches (H200: 4.29 of 4.8 TB/s).
COPY_SHARE = 0.895
# What any kernel takes beside that, microseconds: its launch, and its first and last blocks, which
# do not fill the memory. Nine of ten copies of 12 MB to 2 GB take this and their bytes within 2%.
LAUNCH_US = 3.5
# Issue slots that a processor has in a clock, and clocks a second, of every GPU since Volta to
# within a fifth; what of them kernels that are bound by instructions fill (H200: 0.71 to 0.77).
_LANES, _CLOCK_HZ, _ISSUE_SHARE = 128, 1.8e9, 0.75


class Parts(NamedTuple):
    """Microseconds that a step would take if one thing alone limited it."""

    launch: float
    bytes: float
    instructions: float

    @property
    def together(self) -> float:
        """Bytes move while instructions are issued; neither begins before the launch."""
        return self.launch + max(self.bytes, self.instructions)


@dataclass(frozen=True)
class Machine:
    """A GPU as the model sees it. For tensors on the CPU it is the GPU that the host executor is
    dressed as, so that a report without a GPU says what to expect with one.
    """

    name: str
    arch: int  # 90 for sm_90
    copy_bandwidth: float  # bytes a second, read and written together
    slots: float  # issue slots a second
    present: bool  # do measured times come from it?

    def us(self, kind: str, moved: int, slots: float = 0.0) -> float | None:
        """Microseconds of a step that moves so many bytes and takes so many issue slots; None for a
        library call, of which only its bytes are known.
        """
        return None if kind == "library" else self.parts(kind, moved, slots).together

    def parts(self, kind: str, moved: int, slots: float = 0.0) -> Parts:
        """What limits such a step. The instructions of a library call are not known: none."""
        known = 0.0 if kind == "library" else slots
        return Parts(LAUNCH_US, moved / self.copy_bandwidth * 1e6, known / self.slots * 1e6)


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
        slots=device.processors * _LANES * _CLOCK_HZ * _ISSUE_SHARE,
        present=present,
    )
