"""csrc/host/bandwidth: a measurement, so only its order of magnitude is known."""

import pytest

from fuser import _core


@pytest.mark.parametrize("size", [1, 100_000, 8 << 20])
def test_copies_are_timed(size: int) -> None:
    # One byte a microsecond is slower than any copy of one task, 100 TB/s faster than any CPU.
    assert 1e5 < _core.copy_bandwidth(size) < 1e14
