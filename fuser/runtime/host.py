"""Compiles kernel text to machine code of this CPU with the system's C++ compiler.

One call compiles many kernels, because starting a compiler costs more than compiling most kernels.
Each text, unchanged from NVRTC's, is pasted into its own struct, which provides the CUDA execution
model (csrc/device/host_cuda.h). The result is a shared object for `load_host_bytes`. Running
kernels that were compiled before needs nothing of this module.
"""

import functools
import hashlib
import importlib.resources
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fuser import _core
from fuser.errors import CompileError
from fuser.runtime import compiler_cache

__all__ = ["Compiler", "HostSource", "build", "compiler", "fingerprint", "flags"]

_CANDIDATES = ("c++", "g++", "clang++")
_HEADERS = ("host_abi.h", "host_cuda.h")

# Bytes of kernel text below which one compiler process is as fast as two.
_SPLIT_BYTES = 16 << 10


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command that starts it, and its version text."""

    command: tuple[str, ...]
    version: str

    @property
    def is_gcc(self) -> bool:
        return "Free Software Foundation" in self.version


@dataclass(frozen=True)
class HostSource:
    """One kernel: the function `name` in `text`, including device blocks.

    `collectives` is True if its threads synchronize (barriers, shuffles, votes). They then run as
    fibers, otherwise as a loop, which is much faster.
    """

    name: str
    text: str
    collectives: bool


def compiler(wanted: str = "") -> Compiler:
    """Returns the compiler `wanted`, else the option FUSER_CXX, else the first of c++, g++ and
    clang++.

    Raises CompileError "host-compiler" if there is no compiler, or if it does not start.
    """
    wanted = (wanted or _core.get_option("FUSER_CXX")).strip()
    if wanted:
        return _probe(_command(wanted))
    for name in _CANDIDATES:
        if path := shutil.which(name):
            return _probe((path,))
    raise CompileError(
        f"CPU tensors need a C++ compiler, and none of {', '.join(_CANDIDATES)} is on the PATH; "
        "install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; "
        "conda: conda install gxx) or set FUSER_CXX",
        rule="host-compiler",
    )


def _command(wanted: str) -> tuple[str, ...]:
    """Parses a program, whose path may have spaces, or a command with arguments (`ccache g++`)."""
    if shutil.which(wanted):
        return (wanted,)
    try:
        return tuple(shlex.split(wanted))
    except ValueError as error:
        raise CompileError(
            f"FUSER_CXX names no C++ compiler: {error}: {wanted}",
            rule="host-compiler",
        ) from None


@functools.cache
def _probe(command: tuple[str, ...]) -> Compiler:
    name, path = shlex.join(command), os.path.realpath(shutil.which(command[0]) or command[0])
    # A script or ccache that calls a compiler does not change when the compiler does.
    is_compiler = bool(re.search(r"(g\+\+|clang)[^/]*$", path)) and Path(path).is_file()
    if is_compiler and (fields := compiler_cache.load(name)) and fields["path"] == path:
        return Compiler(command, fields["version"])
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            errors="backslashreplace",  # its output may contain its path
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompileError(
            f"the C++ compiler {name} does not start: {error}; set FUSER_CXX to another one",
            rule="host-compiler",
            command=shlex.join([*command, "--version"]),
        ) from None
    if is_compiler:
        compiler_cache.store(name, {"path": path, "version": done.stdout})
    return Compiler(command, done.stdout)


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


def _link_flags(is_gcc: bool) -> tuple[str, ...]:
    """Kernels call only the C library and the compiler's helpers. Searching the C++ library would
    take a large part of the build time of a small kernel.
    """
    return ("-nostartfiles", "-nodefaultlibs", "-lm", "-lc", "-lgcc") if is_gcc else ()


def fingerprint(debug: bool = False) -> bytes:
    """32 bytes for the key of the disk cache.

    They depend on everything beside the kernel text that affects machine code: the compiler, the
    flags, host_cuda.h and this CPU.
    """
    chosen = compiler()
    return _fingerprint(chosen, (*flags(debug, chosen), *_link_flags(chosen.is_gcc)))


@functools.cache
def _fingerprint(chosen: Compiler, chosen_flags: tuple[str, ...]) -> bytes:
    digest = hashlib.sha256()
    texts = [chosen.version, *chosen_flags, _processor()]
    for part in [
        *(text.encode() for text in texts),
        *((_headers() / h).read_bytes() for h in _HEADERS),
    ]:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _processor() -> str:
    """CPU properties that -march=native depends on."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _headers() -> Path:
    """The folder of host_cuda.h: in the package, or in csrc of an unbuilt checkout."""
    packaged = Path(str(importlib.resources.files("fuser") / "device"))
    if (packaged / _HEADERS[0]).exists():
        return packaged
    return Path(__file__).resolve().parents[2] / "csrc" / "device"


def build(sources: Sequence[HostSource], debug: bool = False) -> bytes:
    """Compiles kernels into one shared object and returns its bytes; kernel i is its `find(i)`.

    Raises CompileError "host-compiler" (no working compiler) or "host-compile" (text rejected: log,
    source path, flags, command to repeat). Releases the interpreter lock meanwhile.
    """
    chosen = compiler()
    try:
        with _folder() as directory:
            return _build_in(directory, sources, chosen, flags(debug, chosen))
    except OSError as error:  # missing compiler, no folder for temporary files, full disk
        raise CompileError(
            f"the C++ compiler {shlex.join(chosen.command)} cannot compile kernels: {error}\n"
            "  hint: TMPDIR names the folder for temporary files, FUSER_CXX the compiler",
            rule="host-compiler",
        ) from error


@contextmanager
def _folder() -> Iterator[Path]:
    """Temporary folder of one build. If the compiler rejects a text, the folder is kept for
    inspection.
    """
    directory = Path(tempfile.mkdtemp(prefix="fuser-host-"))
    refused = False
    try:
        yield directory
    except CompileError:
        refused = True
        raise
    finally:
        if not refused:
            shutil.rmtree(directory, ignore_errors=True)


def _build_in(
    directory: Path, sources: Sequence[HostSource], chosen: Compiler, chosen_flags: tuple[str, ...]
) -> bytes:
    output = directory / "kernels.so"
    base = [*chosen.command, *chosen_flags, f"-I{_headers()}"]
    parts = _split(sources)
    if len(parts) == 1:
        source = _write(directory / "kernels.cpp", parts[0])
        link = ["-shared", str(source), "-o", str(output), *_link_flags(chosen.is_gcc)]
        _run([([*base, *link], source)], chosen_flags)
        return output.read_bytes()
    jobs, objects = [], []
    for number, part in enumerate(parts):
        source = _write(directory / f"kernels_{number}.cpp", part)
        objects.append(str(source.with_suffix(".o")))
        jobs.append(([*base, "-c", str(source), "-o", objects[-1]], source))
    _run(jobs, chosen_flags)
    link = ["-shared", *objects, "-o", str(output), *_link_flags(chosen.is_gcc)]
    _run([([*chosen.command, *link], directory)], chosen_flags)
    return output.read_bytes()


Numbered = list[tuple[int, HostSource]]


def _split(sources: Sequence[HostSource]) -> list[Numbered]:
    """Splits kernels into lists of about equal text size, one per parallel compiler process."""
    numbered = list(enumerate(sources))
    total = sum(len(source.text) for source in sources)
    count = min(len(os.sched_getaffinity(0)), len(numbered), 1 + total // _SPLIT_BYTES)
    if count <= 1:
        return [numbered]
    parts: list[Numbered] = [[] for _ in range(count)]
    bytes_of = [0] * count
    for index, source in numbered:
        smallest = bytes_of.index(min(bytes_of))
        parts[smallest].append((index, source))
        bytes_of[smallest] += len(source.text)
    return parts


def _write(path: Path, part: Numbered) -> Path:
    pieces = ['#include "host_cuda.h"\n']
    for index, source in part:
        base, entry = (
            ("HostFiber", "FUSER_HOST_FIBERS")
            if source.collectives
            else ("HostThread", "FUSER_HOST_PLAIN")
        )
        pieces.append(
            f"namespace {{\nstruct K{index} : fuser::{base} {{\n"
            f'#line 1 "{source.name}.cu"\n{source.text}\n'
            f"}};\n}}\n{entry}({index}, K{index}, {source.name})\n"
        )
    path.write_text("".join(pieces), encoding="utf-8")
    return path


def _run(jobs: list[tuple[list[str], Path]], chosen_flags: tuple[str, ...]) -> None:
    """Runs commands in parallel, waits for all, and raises for the first failed one."""
    running = [
        (
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ),
            command,
            source,
        )
        for command, source in jobs
    ]
    logs = [process.communicate()[0] for process, _, _ in running]
    for (process, command, source), log in zip(running, logs, strict=True):
        if process.returncode == 0:
            continue
        lines = log.splitlines()
        first = next(
            (line for line in lines if "error" in line), lines[0] if lines else "no message"
        )
        raise CompileError(
            f"the C++ compiler rejected generated code: {first}\n"
            f"  source: {source}\n  repeat: {shlex.join(command)}",
            rule="host-compile",
            log=log,
            source_path=str(source),
            flags=chosen_flags,
            command=shlex.join(command),
        )
