"""csrc/schedule/device: properties of a GPU or a CPU that plans may depend on."""

import pytest

from fuser import _core
from fuser.errors import Unsupported

PLAN_FIELDS = [
    "arch",
    "sms",
    "threads_per_sm",
    "blocks_per_sm",
    "registers_per_sm",
    "shared_per_sm",
    "shared_per_block",
    "l2_bytes",
    "bandwidth",
    "simd_bytes",
    "l1_bytes",
    "l3_bytes",
]
FLAGS = ["clusters", "cooperative"]


@pytest.mark.parametrize("arch", _core.known_archs())
def test_known_devices_are_plausible(arch: int) -> None:
    device = _core.known_device(arch)
    assert device.arch == arch
    assert 48 * 1024 <= device.shared_per_block <= device.shared_per_sm <= 256 * 1024
    assert device.threads_per_sm in (1024, 1536, 2048)
    assert device.registers_per_sm == 65536
    # An SM with the maximum number of threads has at least 32 registers per thread.
    assert device.registers_per_sm // device.threads_per_sm >= 32
    assert 4 * 2**20 <= device.l2_bytes < 256 * 2**20
    assert 3e11 < device.bandwidth < 1e13
    assert device.clusters == (arch >= 90)
    assert device.cooperative
    assert not device.emulated
    assert not device.cpu
    assert f"sm_{arch}" in repr(device)


def test_required_archs_are_known() -> None:
    assert _core.known_archs() == [70, 75, 80, 86, 89, 90, 100, 120]


def test_unknown_arch() -> None:
    with pytest.raises(Unsupported, match=r"sm_61.*expected one of 70, 75") as error:
        _core.known_device(61)
    assert error.value.rule == "device-arch"


@pytest.mark.parametrize(
    ("arch", "nearest"), [(60, 70), (70, 70), (72, 70), (87, 86), (103, 100), (121, 120)]
)
def test_nearest_known_device(arch: int, nearest: int) -> None:
    assert _core.nearest_known_device(arch) == _core.known_device(nearest)


@pytest.mark.parametrize("arch", [70, 80, 90])
def test_host_device(arch: int) -> None:
    device = _core.host_device(arch)
    assert device.emulated
    assert device.arch == arch
    assert device.sms == 2
    assert device.shared_per_block <= 48 * 1024
    assert device.clusters == (arch == 90)


def test_host_device_of_another_arch() -> None:
    with pytest.raises(Unsupported, match="sm_75") as error:
        _core.host_device(75)
    assert error.value.rule == "host-arch"


@pytest.mark.parametrize("field", PLAN_FIELDS + FLAGS)
def test_every_plan_field_counts(field: str) -> None:
    device, other = _core.known_device(90), _core.known_device(90)
    assert device == other
    assert hash(device) == hash(other)
    value = getattr(other, field)
    setattr(other, field, not value if field in FLAGS else value + 1)
    assert device != other
    assert hash(device) != hash(other)


def test_resident_clusters() -> None:
    """Resident clusters do not exceed the number of SMs, and plans depend on them."""
    for arch in _core.known_archs():
        device = _core.known_device(arch)
        held = device.resident_clusters
        assert any(held) == device.clusters
        for i, clusters in enumerate(held):
            assert clusters * (2 << i) <= device.sms
        other = _core.known_device(arch)
        other.resident_clusters = [*held[:3], held[3] + 1]
        assert device != other
        assert hash(device) != hash(other)
    assert _core.host_device(90).resident_clusters == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("isa", "simd_bytes"), [("generic", 16), ("neon", 16), ("avx2", 32), ("avx512", 64)]
)
def test_cpu_of_an_instruction_set(isa: str, simd_bytes: int) -> None:
    device = _core.native_device(isa)
    assert device.cpu
    assert not device.emulated
    assert (device.isa, device.simd_bytes, device.arch) == (isa, simd_bytes, 0)
    assert isa in repr(device)
    assert "sm_" not in repr(device)
    assert device == _core.native_device(isa)


def test_instruction_sets_and_emulation_differ() -> None:
    devices = [_core.native_device(isa) for isa in ("generic", "neon", "avx2", "avx512")]
    devices += [_core.host_device(80), _core.known_device(80)]
    assert len(set(devices)) == len(devices)


def test_name_ordinal_and_cores_do_not_count() -> None:
    device, other = _core.known_device(90), _core.known_device(90)
    other.ordinal = 3
    other.cores = 64
    other.name = "another board"
    assert device == other
    assert hash(device) == hash(other)


def test_compares_with_anything() -> None:
    assert _core.known_device(90) != "H200"
