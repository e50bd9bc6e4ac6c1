"""Minimal ELF reader: the sections of a cubin, the build id of a library."""

import struct
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")

_SHT_NOBITS = 8
_PT_NOTE = 4
_NT_GNU_BUILD_ID = 3


@dataclass(frozen=True)
class Section:
    """One section; `data` is empty if the file stores no bytes (zero-filled memory)."""

    name: str
    size: int
    data: bytes


@dataclass(frozen=True)
class Elf:
    """A parsed file: ABI version, flags, sections in file order, and symbol names."""

    abi_version: int
    flags: int
    sections: tuple[Section, ...]
    symbols: tuple[str, ...]

    def section(self, name: str) -> Section | None:
        """Returns the section of that name, if any."""
        return next((section for section in self.sections if section.name == name), None)


def _text(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode()


def parse(image: bytes) -> Elf:
    """Parses a 64-bit little-endian ELF file. Raises ValueError for other or truncated files."""
    if not image.startswith(_MAGIC):
        raise ValueError("not a 64-bit little-endian ELF file")
    try:
        header = _HEADER.unpack_from(image)
        programs_at, sections_at, flags = header[4:7]
        program_count, count, names_index = header[9], header[11], header[12]
        if programs_at + program_count * _PROGRAM.size > len(image):
            raise ValueError("a truncated ELF file")
        rows = [_SECTION.unpack_from(image, sections_at + i * _SECTION.size) for i in range(count)]
        data = [
            b"" if kind == _SHT_NOBITS else image[offset : offset + size]
            for _, kind, _, _, offset, size, *_ in rows
        ]
        names = [_text(data[names_index], row[0]) for row in rows]
        sections = tuple(
            Section(name, row[5], content)
            for name, row, content in zip(names, rows, data, strict=True)
        )
        symbols: tuple[str, ...] = ()
        if ".symtab" in names:
            index = names.index(".symtab")
            strings = data[rows[index][6]]
            symbols = tuple(_text(strings, row[0]) for row in _SYMBOL.iter_unpack(data[index]))
    except (struct.error, IndexError) as error:
        raise ValueError(f"a damaged ELF file: {error}") from None
    return Elf(image[8], flags, sections, symbols)


def build_id(path: str | Path) -> str:
    """The build id of a library (the linker's fingerprint) in hexadecimal; "" if it cannot be read.

    Reads only headers and notes: a few hundred bytes of a file of up to 100 MB.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if not head.startswith(_MAGIC):
                return ""
            _, _, _, _, programs_at, _, _, _, _, count, *_ = _HEADER.unpack_from(head)
            file.seek(programs_at)
            programs = file.read(count * _PROGRAM.size)
            for kind, _, offset, _, _, size, *_ in _PROGRAM.iter_unpack(programs):
                if kind == _PT_NOTE:
                    file.seek(offset)
                    found = _build_id_note(file.read(size))
                    if found:
                        return found
    except (OSError, struct.error):
        pass
    return ""


def _build_id_note(notes: bytes) -> str:
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name_at = at + _NOTE.size
        data_at = name_at + (name_size + 3) // 4 * 4
        if kind == _NT_GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0":
            return notes[data_at : data_at + size].hex()
        at = data_at + (size + 3) // 4 * 4
    return ""
