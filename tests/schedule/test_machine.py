"""csrc/schedule/machine: the machine of the cost model that a GPU is. CPUs: tests/inspect."""

from __future__ import annotations

import pytest

from fuser import _core

TUNED = {f"{group}.{name}": value for group, _, name, value, *_ in _core.tuned_rows()}


@pytest.mark.parametrize("arch", [70, 75, 80, 86, 90, 100, 120])
def test_a_gpu_is_its_properties_times_the_constants_of_its_architecture(arch: int) -> None:
    device = _core.known_device(arch)
    column = 0 if arch < 80 else 1 if arch < 90 else 2
    of = {name: value[column] for name, value in TUNED.items() if isinstance(value, tuple)}
    machine = _core.cost_machine(device)
    assert machine.copy_bandwidth == device.bandwidth * of["model.copy_share"]
    issued = device.sms * of["model.issued_per_clock"] * of["model.clock_hz"]
    assert machine.slots == issued * of["model.issue_share"]
    assert machine.launch_us == of["model.launch_us"]
    assert machine.caches == []
