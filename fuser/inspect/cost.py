"""Predicted times of steps, used by `explain` and `report`: the cost model of csrc/cost.

The time of a kernel is the launch overhead plus the larger of two terms: bytes at copy bandwidth,
and instructions at the issue rate of the SMs or cores. Instructions are the issue slots of its ops
(csrc/fusion/segment/issue_slots.h). They exclude addresses, loops and synchronization, so kernels
of many irregular rows or of little work take longer than predicted. Counting machine code instead
would not predict better, because nearly all kernels are limited by bytes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from fuser import _core

# Limiting factors of a step, the names of the times of Machine.parts().
LIMITS = ("launch", "bytes", "instructions")


@dataclass(frozen=True)
class Machine:
    """A GPU or CPU as the model sees it. For CPU tensors it is this CPU, or the GPU that the host
    executor emulates, so that a report without a GPU predicts times on one.
    """

    name: str
    arch: int  # 90 for sm_90; 0 for a CPU
    present: bool  # True if measured times come from this machine
    model: Any  # _core.CostMachine

    @property
    def copy_bandwidth(self) -> float:
        """Bytes per second of a large copy, reads plus writes."""
        return float(self.model.copy_bandwidth)

    @property
    def slots(self) -> float:
        """Issue slots per second."""
        return float(self.model.slots)

    def us(self, kind: str, moved: int, slots: float = 0.0) -> float | None:
        """Predicted microseconds of a step that moves `moved` bytes and takes `slots` issue slots.
        Library calls have no prediction, because only their bytes are known.
        """
        return None if kind == "library" else float(self.parts(kind, moved, slots).together)

    def parts(self, kind: str, moved: int, slots: float = 0.0) -> Any:
        """Times of a step by limiting factor (_core.CostParts). Instructions of a library call are
        unknown and count as 0.
        """
        return self.model.predict(moved, 0.0 if kind == "library" else slots)


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
    name = f"{device.name} ({device.isa}, {device.cores} cores)"
    return Machine(name, arch=0, present=True, model=_core.cost_machine(device))


def _machine(device: Any, present: bool) -> Machine:
    name = device.name or f"sm_{device.arch}"
    return Machine(name, device.arch, present, _model(device))


@functools.cache
def _model(device: Any) -> Any:
    """One model for equal devices, so that their machines are equal."""
    return _core.cost_machine(device)
