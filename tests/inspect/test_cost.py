"""fuser/inspect/cost.py: predicted times of steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser import _core
from fuser.inspect.cost import machine_of

ROWS = {f"{group}.{name}": value for group, _, name, value, *_ in _core.tuned_rows()}
LAUNCH_US, CPU_LAUNCH_US = ROWS["model.launch_us"][1], ROWS["model.launch_us"][3]
COPY_SHARE = ROWS["model.copy_share"][1]


@pytest.fixture(autouse=True)
def emulation(set_option: Callable[[str, object], None]) -> None:
    """CPU tensors run kernels of an emulated GPU."""
    set_option("FUSER_HOST_ARCH", 80)


def test_a_kernel_takes_a_launch_and_its_bytes() -> None:
    machine = machine_of(-1)
    device = _core.known_device(80)
    assert (machine.name, machine.arch, machine.present) == (device.name, device.arch, False)
    assert machine.us("kernel", 0) == LAUNCH_US
    second = machine.us("kernel", int(device.bandwidth * COPY_SHARE))
    assert second == pytest.approx(1e6 + LAUNCH_US)


def test_or_its_instructions() -> None:
    machine = machine_of(-1)
    moved = int(machine.copy_bandwidth / 1e6)  # bytes per microsecond
    assert machine.us("kernel", moved, 0.5e-6 * machine.slots) == pytest.approx(LAUNCH_US + 1)
    assert machine.us("kernel", moved, 7e-6 * machine.slots) == pytest.approx(LAUNCH_US + 7)


def test_a_library_call_has_no_prediction() -> None:
    assert machine_of(-1).us("library", 1 << 20) is None


def test_kernels_of_a_cpu_are_predicted_for_this_cpu(
    set_option: Callable[[str, object], None],
) -> None:
    set_option("FUSER_HOST_ARCH", 0)
    machine, device = machine_of(-1), _core.native_device()
    assert device.name in machine.name
    assert device.isa in machine.name
    assert (machine.arch, machine.present) == (0, True)
    assert machine.us("kernel", 0) == CPU_LAUNCH_US
    model = machine.model
    held = [size for size, _ in model.caches]
    assert held == sorted({device.l2_bytes * device.cores, device.l3_bytes})
    assert model.bandwidth(held[0]) == model.caches[0][1]
    assert model.bandwidth(held[-1] + 1) == machine.copy_bandwidth
    set_option("FUSER_CPU_ISA", "generic")
    narrow = machine_of(-1)
    assert machine.slots / narrow.slots == pytest.approx(device.simd_bytes / 16)
