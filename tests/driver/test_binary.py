"""csrc/driver/cuda/binary: the checksummed form of a cache entry, tested through the files of a
store."""

from pathlib import Path

import pytest

from fuser import _core

KEY = bytes(range(32))
BINARY = _core.Binary(
    kind=_core.BinaryKind.HostObject,
    registers=40,
    local_bytes=16,
    shared_bytes=2048,
    name="gelu_0123abcd",
    payload=b"\x00\xffcode" * 50,
)


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """The file of one entry."""
    _core.Store(str(tmp_path / "cache")).put(KEY, BINARY)
    (file,) = (tmp_path / "cache").iterdir()
    return file


def get(entry: Path) -> object:
    return _core.Store(str(entry.parent)).get(KEY)


def test_layout(entry: Path) -> None:
    data = entry.read_bytes()
    assert data.startswith(b"fuserbin\x03\x00\x00\x00")
    assert len(data) == 72 + len(BINARY.name) + len(BINARY.payload)
    assert data.endswith(BINARY.payload)


def test_round_trip_keeps_every_field(entry: Path) -> None:
    assert get(entry) == BINARY
    for field in ("kind", "registers", "local_bytes", "shared_bytes", "payload"):
        assert getattr(get(entry), field) == getattr(BINARY, field)


def test_every_altered_byte_is_found(entry: Path) -> None:
    data = entry.read_bytes()
    for at in range(len(data)):
        entry.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        assert get(entry) is None, f"byte {at}"


def test_every_length_but_the_right_one_is_found(entry: Path) -> None:
    data = entry.read_bytes()
    for size in [*range(0, len(data), 7), len(data) - 1]:
        entry.write_bytes(data[:size])
        assert get(entry) is None, f"{size} of {len(data)} bytes"
    entry.write_bytes(data + b"\0")
    assert get(entry) is None


def test_entry_of_another_key_is_found(entry: Path) -> None:
    other = bytes(32)
    entry.rename(entry.with_name(other.hex() + ".bin"))
    assert _core.Store(str(entry.parent)).get(other) is None


def test_empty_payload(tmp_path: Path) -> None:
    store = _core.Store(str(tmp_path / "cache"))
    store.put(KEY, _core.Binary(payload=b""))
    assert store.get(KEY) == _core.Binary(payload=b"")
