"""Compiles CPU kernels: C++ with explicit vectors, for one instruction set.

One call compiles many kernels, because starting a compiler costs more than compiling most kernels.
The result is a shared object for `load_host_bytes`. It runs on every CPU with the instruction set,
so a disk cache may serve several machines.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from fuser.runtime import cxx
from fuser.runtime.cxx import Compiler, compiler

__all__ = ["CpuSource", "assembly", "build", "fingerprint", "flags"]

_HEADERS = ("host_abi.h", "indices.h", "cpu_entry.h")

# Flags by instruction set (csrc/base/processor.h): names that GCC 9 and clang 10 know.
_ISA_FLAGS = {
    "generic": (),
    "neon": (),
    "avx2": ("-march=haswell", "-mprefer-vector-width=256"),
    "avx512": ("-march=skylake-avx512", "-mprefer-vector-width=512"),
}

# Bytes of kernel text below which one compiler process is as fast as two.
_SPLIT_BYTES = 32 << 10


@dataclass(frozen=True)
class CpuSource:
    """One kernel: the function `name` in `text`, including device blocks."""

    name: str
    text: str


def flags(isa: str) -> tuple[str, ...]:
    """The flags for kernels of an instruction set.

    Arithmetic follows the text, as in fuser.runtime.host.flags(). Texts state their vectors, so the
    compiler looks for no others.
    """
    return (
        *("-std=c++17", *_ISA_FLAGS[isa], "-fPIC", "-fvisibility=hidden", "-Wno-psabi"),
        *("-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing"),
        *("-fno-builtin", "-fno-math-errno", "-fno-trapping-math"),
        *("-O2", "-fno-tree-vectorize", "-fno-exceptions", "-fno-asynchronous-unwind-tables"),
    )


def fingerprint(isa: str) -> bytes:
    """32 bytes for the key of the disk cache: everything beside the text that affects machine code,
    i.e. compiler, flags and headers.
    """
    chosen = compiler()
    return _fingerprint(chosen, (*flags(isa), *cxx.link_flags(chosen)))


@functools.cache
def _fingerprint(chosen: Compiler, chosen_flags: tuple[str, ...]) -> bytes:
    return cxx.digest_of([chosen.version, *chosen_flags], _HEADERS)


def build(sources: Sequence[CpuSource], isa: str) -> bytes:
    """Compiles kernels into one shared object and returns its bytes; kernel i is its `find(i)`.

    Raises CompileError as cxx.shared_object() does.
    """
    units = cxx.split([len(source.text) for source in sources], _SPLIT_BYTES)
    texts = [_unit([(i, sources[i]) for i in unit]) for unit in units]
    return cxx.shared_object(compiler(), flags(isa), texts)


def assembly(source: CpuSource, isa: str) -> str:
    """The assembly of one kernel."""
    return cxx.assembly(compiler(), flags(isa), _unit([(0, source)]))


def _unit(numbered: Sequence[tuple[int, CpuSource]]) -> str:
    """The translation unit of these kernels."""
    texts = ['#include "cpu_entry.h"\n']
    texts += [
        f'namespace k{index} {{\n#line 1 "{source.name}.cpp"\n{source.text}\n}}\n'
        f"FUSER_CPU_ENTRY({index}, {source.name})\n"
        for index, source in numbered
    ]
    return "".join(texts)
