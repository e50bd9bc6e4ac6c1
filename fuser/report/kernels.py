"""What a kernel's text became: resources and instructions, read from its machine code."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fuser.errors import CompileError

# PTX by what it keeps busy; the first that fits counts.
_CLASSES = (
    ("loads", re.compile(r"ld\.global|ld\.param|ld\.volatile|ldu")),
    ("stores", re.compile(r"st\.global|red\.|atom\.")),
    ("shared memory", re.compile(r"(ld|st)\.shared|mapa|cp\.async")),
    ("shuffles and barriers", re.compile(r"shfl|bar\.|barrier|vote|fence|membar|mbarrier")),
    ("transcendental", re.compile(r"ex2|lg2|rcp|sqrt|rsqrt|sin|cos|tanh")),
    ("floating point", re.compile(r"\w+(\.\w+)*\.(f16|f16x2|bf16|bf16x2|f32|f64)\b")),
    ("control", re.compile(r"bra|ret|call|setp|selp")),
    ("integer and moves", re.compile(r".")),
)


@dataclass(frozen=True)
class MachineCode:
    """Of one kernel. Where there is no compiler, `missing` says why, and the rest is 0."""

    arch: int
    registers: int = 0  # per thread
    local_bytes: int = 0  # per thread: spills
    shared_bytes: int = 0  # per block, static
    code_bytes: int = 0
    instructions: dict[str, int] = field(default_factory=dict)  # of the PTX, by what they use
    ptx: str = ""
    sass: str = ""  # empty without nvdisasm or cuobjdump
    missing: str = ""


def machine_code(kernel: Any, arch: int) -> MachineCode:
    """`kernel`: of executor.kernels(). Compiled for `arch` whether or not such a GPU is here."""
    from fuser.runtime import cubin, toolkit

    try:
        compiled = toolkit.compile(kernel.name, kernel.text, arch)
        ptx = toolkit.ptx(kernel.text, arch)
        if compiled.target.startswith("compute_"):
            return MachineCode(arch, ptx=ptx, instructions=_counted(ptx))
        used = cubin.cubin_info(compiled.cubin)[kernel.name]
    except CompileError as error:
        return MachineCode(arch, missing=str(error).splitlines()[0])
    return MachineCode(
        arch,
        registers=used.registers,
        local_bytes=used.local_bytes,
        shared_bytes=used.shared_bytes,
        code_bytes=used.code_bytes,
        instructions=_counted(ptx),
        ptx=ptx,
        sass=toolkit.disassemble(compiled.cubin) or "",
    )


def _counted(ptx: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for line in ptx.splitlines():
        match = re.match(r"\s+(?:@!?%\w+\s+)?([a-z][\w.:]*)\s*[^:]*;", line)
        if match and not line.lstrip().startswith("."):
            name = next(name for name, pattern in _CLASSES if pattern.match(match.group(1)))
            counts[name] += 1
    return dict(counts.most_common())
