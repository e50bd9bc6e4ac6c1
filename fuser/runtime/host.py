"""Compiles kernels of the host executor: the text of a GPU kernel as machine code of this CPU.

One call compiles many kernels, because starting a compiler costs more than compiling most kernels.
Each text, unchanged from NVRTC's, is pasted into its own struct, which provides the CUDA execution
model (csrc/device/host_cuda.h). The result is a shared object for `load_host_bytes`. Running
kernels that were compiled before needs nothing of this module.
"""

import functools
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fuser import _core
from fuser.runtime import cxx
from fuser.runtime.cxx import Compiler, compiler

__all__ = ["HostSource", "build", "fingerprint", "flags"]

_HEADERS = ("host_abi.h", "indices.h", "host_cuda.h")

# Bytes of kernel text below which one compiler process is as fast as two.
_SPLIT_BYTES = 16 << 10


@dataclass(frozen=True)
class HostSource:
    """One kernel: the function `name` in `text`, including device blocks.

    `collectives` is True if its threads synchronize (barriers, shuffles, votes). They then run as
    fibers, otherwise as a loop, which is much faster.
    """

    name: str
    text: str
    collectives: bool


def flags(debug: bool, for_compiler: Compiler | None = None) -> tuple[str, ...]:
    """The flags for kernels.

    Arithmetic follows the text: no contraction, no reassociation, and -fno-builtin keeps calls of
    the math library. -fno-math-errno vectorizes functions that are one instruction (host_cuda.h),
    -fno-trapping-math vectorizes selects. The former alone would let GCC fold e.g. sin(atan(x)) to
    a formula that differs at infinities and NaN.
    """
    is_gcc = (for_compiler or compiler()).is_gcc
    chosen = [
        *("-std=c++17", "-march=native", "-fPIC", "-fvisibility=hidden"),
        *("-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing"),
        *("-fno-builtin", "-fno-math-errno", "-fno-trapping-math"),
        *_stack_flags(is_gcc),
    ]
    if debug:
        # Faults unwind through kernels as exceptions; uninitialized arrays hold a pattern instead
        # of zeros.
        chosen += ["-Og", "-DFUSER_DEBUG", "-fasynchronous-unwind-tables"]
        return (*chosen, "-ftrivial-auto-var-init=pattern")
    chosen.append("-O2")
    if is_gcc:
        # GCC vectorizes the loops over a thread's elements, including selects, only if they are not
        # unrolled first (cunrolli). It unrolls them afterwards. Their arrays become registers only
        # if all loops use equal vectors: 128 bits, the width of a GPU's access.
        chosen += ["-ftree-vectorize", "-fvect-cost-model=dynamic", "-fdisable-tree-cunrolli"]
        if platform.machine() in {"x86_64", "AMD64"}:
            chosen.append("-mprefer-vector-width=128")
    return tuple(chosen)


def _stack_flags(is_gcc: bool) -> tuple[str, ...]:
    """Rejects kernels with arrays that exceed the stack of a fiber. Stack-clash protection touches
    every page of a large frame, so an overflow hits the guard page and never the next stack.
    """
    limit = f"frame-larger-than={_core.host_frame_bytes}"
    refuse = (f"-Werror={limit}",) if is_gcc else (f"-W{limit}", "-Werror=frame-larger-than")
    return ("-fstack-clash-protection", *refuse)


def fingerprint(debug: bool = False) -> bytes:
    """32 bytes for the key of the disk cache.

    They depend on everything beside the kernel text that affects machine code: the compiler, the
    flags, host_cuda.h and this CPU.
    """
    chosen = compiler()
    return _fingerprint(chosen, (*flags(debug, chosen), *cxx.link_flags(chosen)))


@functools.cache
def _fingerprint(chosen: Compiler, chosen_flags: tuple[str, ...]) -> bytes:
    return cxx.digest_of([chosen.version, *chosen_flags, _processor()], _HEADERS)


def _processor() -> str:
    """CPU properties that -march=native depends on."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def build(sources: Sequence[HostSource], debug: bool = False) -> bytes:
    """Compiles kernels into one shared object and returns its bytes; kernel i is its `find(i)`.

    Raises CompileError as cxx.shared_object() does.
    """
    chosen = compiler()
    units = cxx.split([len(source.text) for source in sources], _SPLIT_BYTES)
    texts = [_unit([(i, sources[i]) for i in unit]) for unit in units]
    return cxx.shared_object(chosen, flags(debug, chosen), texts)


def _unit(numbered: Sequence[tuple[int, HostSource]]) -> str:
    """The translation unit of these kernels."""
    texts = ['#include "host_cuda.h"\n']
    for index, source in numbered:
        base, entry = (
            ("HostFiber", "FUSER_HOST_FIBERS")
            if source.collectives
            else ("HostThread", "FUSER_HOST_PLAIN")
        )
        texts.append(
            f"namespace {{\nstruct K{index} : fuser::{base} {{\n"
            f'#line 1 "{source.name}.cu"\n{source.text}\n'
            f"}};\n}}\n{entry}({index}, K{index}, {source.name})\n"
        )
    return "".join(texts)
