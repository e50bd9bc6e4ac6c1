"""fuser/runtime/elf: read what the compiler and the linker wrote."""

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
