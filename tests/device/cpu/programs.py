"""Functions with vectors written by hand, compiled for several instruction sets and called: in this
process through ctypes, or on another architecture through an emulator.

AArch64 is an instruction set of x86 machines that have a cross compiler and QEMU (Debian, Ubuntu:
apt install g++-aarch64-linux-gnu qemu-user-static).
"""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fuser import _core
from fuser.runtime import host
from tests.device.programs import COMPUTE, result_dtype, text_of

X86 = platform.machine() in {"x86_64", "AMD64"}

CROSS = shutil.which("aarch64-linux-gnu-g++")
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")

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
if X86 and CROSS:
    ISAS["aarch64"] = ((), {"asimd"})


def features() -> set[str]:
    """The features of this processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return {word for line in lines if line.startswith("flags") for word in line.split()}


def runnable() -> list[str]:
    """The instruction sets that this processor has or an emulator provides, the widest first."""
    provided = features() | ({"asimd"} if EMULATOR else set())
    return [name for name, (_, needed) in ISAS.items() if needed <= provided]


def flags(isa: str) -> list[str]:
    """The flags of kernels for an instruction set."""
    arithmetic = ("-ffp-contract", "-fwrapv", "-fno")
    kept = [flag for flag in host.flags(debug=False) if flag.startswith(arithmetic)]
    return [*kept, "-std=c++17", "-O2", "-fPIC", "-Wno-psabi", *ISAS[isa][0]]


def build(functions: str, isa: str) -> Functions:
    """The functions, after the blocks that they need, ready to be called if `isa` is runnable."""
    text = _core.cpu_text(functions) + functions
    with tempfile.TemporaryDirectory() as folder:
        if isa == "aarch64":
            assert CROSS is not None
            names = re.findall(r'extern "C" void (\w+)\(', functions)
            text += _SERVER.replace("@TABLE@", "".join(f'{{"{n}", (F){n}}},' for n in names))
            command, made = [CROSS, *flags(isa), "-static"], Path(folder) / "functions"
        else:
            command = [*host.compiler().command, *flags(isa), "-shared"]
            made = Path(folder) / "functions.so"
        source = Path(folder) / "functions.cpp"
        source.write_text(text)
        done = subprocess.run(
            [*command, str(source), "-o", str(made), "-lm"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[:4000]
        if isa != "aarch64":
            return Loaded(ctypes.CDLL(str(made)))
        return _Emulated(made) if EMULATOR else _Compiled()


class Functions(Protocol):
    """Functions (n, a, b, c, out) by name."""

    def call(self, name: str, n: int, inputs: Sequence[Tensor], output: Tensor) -> None: ...


@dataclass(frozen=True)
class Loaded:
    """A library in this process."""

    library: ctypes.CDLL

    def call(self, name: str, n: int, inputs: Sequence[Tensor], output: Tensor) -> None:
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in inputs]
        pointers += [ctypes.c_void_p()] * (3 - len(pointers))
        getattr(self.library, name)(
            ctypes.c_int64(n), *pointers, ctypes.c_void_p(output.data_ptr())
        )


class _Compiled:
    """Functions that nothing here can run."""

    def call(self, name: str, n: int, inputs: Sequence[Tensor], output: Tensor) -> None:
        raise AssertionError("there is no emulator")


class _Emulated:
    """A process of an emulator that answers calls: operands and result travel through pipes."""

    def __init__(self, program: Path) -> None:
        assert EMULATOR is not None
        self.process = subprocess.Popen(
            [EMULATOR, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        weakref.finalize(self, self.process.kill)
        # The program file may go once the emulator has read it.
        self.call("-", 0, [], torch.empty(0))

    def call(self, name: str, n: int, inputs: Sequence[Tensor], output: Tensor) -> None:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        held = [_memory_of(t) for t in (*inputs, output)]
        held += [np.zeros(0, np.uint8)] * (3 - len(inputs))
        held[-1], held[len(inputs)] = held[len(inputs)], held[-1]  # the result is the last
        sizes = " ".join(f"{len(m)} {m.ctypes.data % 64}" for m in held)
        stdin.write(f"{name} {n} {sizes}\n".encode() + b"".join(m.tobytes() for m in held))
        stdin.flush()
        total = sum(len(m) for m in held)
        found = np.frombuffer(stdout.read(total + 1)[1:], np.uint8)
        assert len(found) == total, f"{name}: the emulated program ended"
        for memory in held:
            memory[:], found = found[: len(memory)], found[len(memory) :]


def _memory_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The bytes from the first element of a tensor to the end of its memory: functions may access
    elements behind the tensor's last."""
    storage = tensor.untyped_storage()
    size = storage.nbytes() - tensor.storage_offset() * tensor.itemsize
    if size == 0:
        return np.zeros(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(tensor.data_ptr()))


# The main program of emulated functions. Its buffers have the alignment of the caller's, up to 64.
_SERVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void (*F)(long long, const void*, const void*, const void*, void*);
static const struct { const char* name; F f; } table[] = {@TABLE@};
int main() {
  char name[128];
  long long n, size[4], offset[4];
  while (scanf("%127s %lld", name, &n) == 2) {
    char* made[4];
    for (int i = 0; i < 4; ++i) {
      if (scanf("%lld %lld", size + i, offset + i) != 2) return 1;
      made[i] = (char*)aligned_alloc(64, (size[i] + 191) / 64 * 64);
    }
    getchar();
    for (int i = 0; i < 4; ++i)
      if (fread(made[i] + offset[i], 1, size[i], stdin) != (size_t)size[i]) return 1;
    for (const auto& row : table)
      if (!strcmp(row.name, name))
        row.f(n, made[0] + offset[0], made[1] + offset[1], made[2] + offset[2],
              made[3] + offset[3]);
    putchar('=');
    for (int i = 0; i < 4; ++i) fwrite(made[i] + offset[i], 1, size[i], stdout);
    fflush(stdout);
    for (char* p : made) free(p);
  }
}
"""


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


def run(functions: Functions, name: str, inputs: Sequence[Tensor], output: Tensor) -> Tensor:
    """The output of a function (n, a, b, c, out)."""
    functions.call(name, len(output), [t.contiguous() for t in inputs], output)
    return output
