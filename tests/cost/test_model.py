"""csrc/cost/model: times of work by limiting factor."""

from __future__ import annotations

import pytest

from fuser import _core


def test_the_longer_of_bytes_and_instructions_follows_the_launch() -> None:
    machine = _core.cost_machine(_core.known_device(90))
    for bytes_us, slots_us in ((7.0, 2.0), (2.0, 7.0)):
        parts = machine.predict(
            bytes_us * 1e-6 * machine.copy_bandwidth, slots_us * 1e-6 * machine.slots
        )
        assert parts.launch == machine.launch_us
        assert parts.bytes == pytest.approx(bytes_us, rel=1e-12)
        assert parts.instructions == pytest.approx(slots_us, rel=1e-12)
        assert parts.together == parts.launch + max(parts.bytes, parts.instructions)
