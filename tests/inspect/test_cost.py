"""fuser/inspect/cost.py: predicted times of steps."""

from __future__ import annotations

import pytest

from fuser import _core
from fuser.inspect.cost import COPY_SHARE, LAUNCH_US, machine_of


def test_a_kernel_takes_a_launch_and_its_bytes() -> None:
    machine = machine_of(-1)
    device = _core.nearest_known_device(int(_core.get_option("FUSER_HOST_ARCH")))
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
