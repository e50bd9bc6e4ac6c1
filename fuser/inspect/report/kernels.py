"""Compiled kernels: resources and instructions, read from the machine code."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fuser.errors import CompileError

# PTX instructions by the unit that they use; the first match counts.
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
    """Machine code of one kernel. If there is no compiler, `missing` gives the reason, and numbers
    are 0.
    """

    arch: int
    isa: str = ""  # instruction set of a CPU kernel
    registers: int = 0  # registers per thread
    local_bytes: int = 0  # spilled bytes per thread
    shared_bytes: int = 0  # static bytes per block
    code_bytes: int = 0
    instructions: dict[str, int] = field(default_factory=dict)  # PTX instruction counts by class
    ptx: str = ""
    sass: str = ""  # assembly of a CPU kernel; empty without nvdisasm or cuobjdump
    missing: str = ""

    @property
    def target(self) -> str:
        """Name of the machine that the code is for."""
        return self.isa or f"sm_{self.arch}"


def machine_code(kernel: Any, arch: int) -> MachineCode:
    """Compiles `kernel`, from executor.kernels(), for `arch`; needs no GPU of that architecture."""
    if kernel.isa:
        return _cpu_code(kernel)
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


def _cpu_code(kernel: Any) -> MachineCode:
    from fuser.runtime import cpu

    try:
        code = cpu.assembly(cpu.CpuSource(kernel.name, kernel.text), kernel.isa)
    except CompileError as error:
        return MachineCode(0, kernel.isa, missing=str(error).splitlines()[0])
    return MachineCode(0, kernel.isa, instructions=_counted_lines(code), sass=code)


# x86-64 and AArch64 instructions by the registers and units that they use; the first match counts.
_CPU_CLASSES = (
    ("calls", re.compile(r"\tcall|\tbl\t")),
    ("control", re.compile(r"\tj\w+\t|\tb(\.\w+)?\t|\tret|\tcbn?z|\ttbn?z")),
    ("vectors of 512 bits", re.compile(r".*%zmm")),
    ("vectors of 256 bits", re.compile(r".*%ymm")),
    ("vectors of 128 bits", re.compile(r".*%xmm|.*\bv\d+\.|.*\bq\d+\b")),
    ("integer and moves", re.compile(r".")),
)


def _counted_lines(assembly: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for line in assembly.splitlines():
        if re.match(r"\t[a-z]", line):
            counts[next(name for name, kind in _CPU_CLASSES if kind.match(line))] += 1
    return dict(counts.most_common())


def _counted(ptx: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for line in ptx.splitlines():
        match = re.match(r"\s+(?:@!?%\w+\s+)?([a-z][\w.:]*)\s*[^:]*;", line)
        if match and not line.lstrip().startswith("."):
            name = next(name for name, pattern in _CLASSES if pattern.match(match.group(1)))
            counts[name] += 1
    return dict(counts.most_common())
