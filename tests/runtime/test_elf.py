"""fuser/runtime/elf: reading files written by the compiler and the linker."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from fuser import _core
from fuser.runtime import elf


def test_sections_and_symbols_of_a_library() -> None:
    file = elf.parse(Path(_core.__file__).read_bytes())
    names = [section.name for section in file.sections]
    assert {".text", ".bss", ".dynamic"} <= set(names)
    text, bss = file.section(".text"), file.section(".bss")
    assert text is not None
    assert bss is not None
    assert len(text.data) == text.size > 0
    assert bss.size > 0
    assert bss.data == b""
    assert file.section(".none") is None


@pytest.mark.parametrize("size", [0, 3, 63, 64, 1000, -1])
def test_cut_file(size: int) -> None:
    data = Path(_core.__file__).read_bytes()
    with pytest.raises(ValueError, match="ELF file"):
        elf.parse(data[:size])


def test_a_file_may_end_with_its_table_of_programs() -> None:
    """An image with a header, sections, and a program header at the end, as in debug files."""
    names = b"\0.names\0".ljust(64, b"\0")
    section = elf._SECTION.pack(1, 3, 0, 0, 64, len(names), 0, 0, 0, 0)
    end = 128 + len(section)
    header = struct.pack(
        "<6s2x8xHHIQQQIHHHHHH", b"\x7fELF\x02\x01", *[0] * 4, end, 128, *[0] * 3, 1, 0, 1, 0
    )
    image = header + names + section + elf._PROGRAM.pack(*[0] * 8)
    assert elf.parse(image).section(".names") is not None
    with pytest.raises(ValueError, match="a truncated ELF file"):
        elf.parse(image[:-1])


def test_of_several_notes_the_build_id_is_read() -> None:
    """The build id is found among notes of equal name, e.g. after the ABI tag."""

    def note(kind: int, name: bytes, text: bytes) -> bytes:
        return elf._NOTE.pack(len(name), len(text), kind) + name + text

    abi, version = note(1, b"GNU\0", b"\0" * 16), note(3, b"Go\0\0", b"go-1")
    assert elf._build_id_note(abi + version + note(3, b"GNU\0", b"\x01\x23")) == "0123"
    assert elf._build_id_note(abi + version) == ""


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
        elf.parse(b".version 8.0\n.target sm_90\n" * 10)
    (tmp_path / "text").write_text("text")
    assert elf.build_id(tmp_path / "text") == ""
    assert elf.build_id(tmp_path / "none") == ""


def test_build_id(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("int a() { return 1; }")
    compiler = ["c++", "-shared", "-fPIC", str(tmp_path / "a.cpp"), "-o"]
    wanted = "0123456789abcdef0123456789abcdef01234567"
    for flag, expected in ((f"0x{wanted}", wanted), ("none", "")):
        library = tmp_path / f"lib{flag}.so"
        subprocess.run([*compiler, str(library), f"-Wl,--build-id={flag}"], check=True)
        assert elf.build_id(library) == expected


def test_build_id_of_a_cut_file(tmp_path: Path) -> None:
    (tmp_path / "cut.so").write_bytes(Path(_core.__file__).read_bytes()[:70])
    assert elf.build_id(tmp_path / "cut.so") == ""
    assert isinstance(elf.build_id(sys.executable), str)
