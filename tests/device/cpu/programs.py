"""Functions with vectors written by hand, compiled for several instruction sets and called through
ctypes."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fuser import _core
from fuser.runtime import host
from tests.device.programs import COMPUTE, result_dtype, text_of

X86 = platform.machine() in {"x86_64", "AMD64"}

# Flags that select an instruction set, and the features of /proc/cpuinfo that running it needs.
ISAS: dict[str, tuple[tuple[str, ...], set[str]]] = (
    {
        "avx512": (
            ("-march=x86-64-v4", "-mprefer-vector-width=512"),
            {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
        ),
        "avx2": (("-march=haswell",), {"avx2", "fma", "f16c"}),
        "generic": ((), set()),
    }
    if X86
    else {"generic": ((), set())}
)


def features() -> set[str]:
    """The features of this processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return {word for line in lines if line.startswith("flags") for word in line.split()}


def runnable() -> list[str]:
    """The instruction sets that this processor has."""
    return [name for name, (_, needed) in ISAS.items() if needed <= features()]


def flags(isa: str) -> list[str]:
    """The flags of kernels for an instruction set."""
    arithmetic = ("-ffp-contract", "-fwrapv", "-fno")
    kept = [flag for flag in host.flags(debug=False) if flag.startswith(arithmetic)]
    return [*kept, "-std=c++17", "-O2", "-fPIC", "-Wno-psabi", *ISAS[isa][0]]


def build(functions: str, isa: str) -> ctypes.CDLL:
    """The functions, after the blocks that they need, as a loaded library."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "functions.cpp", Path(folder) / "functions.so"
        source.write_text(_core.cpu_text(functions) + functions)
        command = [*host.compiler().command, *flags(isa), "-shared", str(source)]
        done = subprocess.run(
            [*command, "-o", str(library), "-lm"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[:4000]
        return ctypes.CDLL(str(library))


@dataclass(frozen=True)
class OpProgram:
    """Functions of rows of the op table in one compute dtype, of vectors of `lanes` lanes."""

    dtype: torch.dtype
    lanes: int
    rows: list[Any]
    text: str


def op_program(
    dtype: torch.dtype, lanes: int, wanted: Callable[[Any], bool] = lambda _: True
) -> OpProgram:
    """A function for each row that `wanted` accepts: result i is the op of operands i."""
    device = COMPUTE[dtype]
    rows = [row for row in _core.op_rows() if text_of(row, dtype) is not None and wanted(row)]
    functions = []
    for row in rows:
        text = text_of(row, dtype)
        assert text is not None
        result = COMPUTE[result_dtype(row, dtype)]
        operands = ""
        for place, pointer in enumerate("abc"[: row.arity]):
            text = text.replace(f"${place}", f"x{place}")
            element = "bool" if row.rule == "Condition" and place == 0 else device
            operands += (
                f"    const Vec<{element}, {lanes}> x{place} = "
                f"load<{element}, {lanes}>((const {element}*){pointer} + i, n - i);\n"
            )
        functions.append(
            f'extern "C" void {row.name}_{device}(i64 n, const void* a, const void* b, '
            "const void* c, void* out) {\n"
            f"  for (i64 i = 0; i < n; i += {lanes}) {{\n{operands}"
            f"    const Vec<{result}, {lanes}> r = {text};\n"
            f"    store(({result}*)out + i, r, n - i);\n"
            "  }\n}\n"
        )
    return OpProgram(dtype, lanes, rows, "\n".join(functions))


def run(library: ctypes.CDLL, name: str, inputs: Sequence[Tensor], output: Tensor) -> Tensor:
    """The output of a function (n, a, b, c, out)."""
    held = [t.contiguous() for t in inputs]
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in held]
    pointers += [ctypes.c_void_p()] * (3 - len(pointers))
    function = getattr(library, name)
    function(ctypes.c_int64(len(output)), *pointers, ctypes.c_void_p(output.data_ptr()))
    return output
