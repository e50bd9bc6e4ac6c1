"""Resources of a kernel, read from its machine code without a GPU and without NVIDIA's tools."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fuser.runtime import elf

# Attributes of .nv.info (EIATTR_*), named as in cuobjdump -elf.
_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12
_REGISTER_COUNT = 0x2F
# Format of attributes (EIFMT_*) with a value after the 4-byte head; other formats hold it inside.
_SIZED = 4

# Bytes reserved by the system in the shared memory section of a kernel, from sm_90 on.
_SYSTEM_SHARED_BYTES = 1024


@dataclass(frozen=True)
class KernelResources:
    """Resources of one kernel of a cubin."""

    registers: int  # 32-bit registers per thread
    local_bytes: int  # bytes per thread: spills, arrays outside registers, call frames
    shared_bytes: int  # static bytes per block
    code_bytes: int


def cubin_info(cubin: bytes) -> dict[str, KernelResources]:
    """The resources of every kernel of a cubin, by name (mangled unless extern "C").

    The numbers equal `cuobjdump -res-usage`, except shared memory, which excludes bytes reserved by
    the system, as reported by the driver. Raises ValueError if the bytes are not a complete cubin
    (PTX, a truncated file).
    """
    file = elf.parse(cubin)
    info = file.section(".nv.info")
    if info is None:
        raise ValueError("an ELF file without .nv.info: not a cubin")
    registers: dict[str, int] = {}
    local: dict[str, int] = {}
    for attribute, value in _attributes(info.data):
        if attribute not in (_REGISTER_COUNT, _FRAME_SIZE, _MIN_STACK_SIZE):
            continue
        symbol, count = struct.unpack_from("<II", value)
        name = file.symbols[symbol]
        if attribute == _REGISTER_COUNT:
            registers[name] = count
        else:
            # The stack includes frames of called functions.
            local[name] = max(local.get(name, 0), count)

    reserved = _SYSTEM_SHARED_BYTES if _architecture(file) >= 90 else 0
    kernels = {}
    for section in file.sections:
        # A kernel has parameters in constant bank 0; functions that it calls and sections without
        # code do not.
        name = section.name.removeprefix(".text.")
        if file.section(f".nv.constant0.{name}") is None:
            continue
        shared = file.section(f".nv.shared.{name}")
        kernels[name] = KernelResources(
            registers=registers[name],
            local_bytes=local.get(name, 0),
            shared_bytes=max(0, shared.size - reserved) if shared else 0,
            code_bytes=section.size,
        )
    return kernels


def architecture(cubin: bytes) -> int:
    """The architecture of a cubin: 90 for sm_90."""
    return _architecture(elf.parse(cubin))


def _architecture(file: elf.Elf) -> int:
    # ABI 7 (CUDA 12) stores it in the lowest byte, ABI 8 (CUDA 13) in the next.
    return file.flags >> (8 if file.abi_version >= 8 else 0) & 0xFF


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            yield attribute, data[at : at + size]
            at += size
