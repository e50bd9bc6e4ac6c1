"""Kernel text to machine code of this processor, by the system's C++ compiler.

One call compiles many kernels: starting a compiler costs more than most kernels. The text of each
is pasted, as NVRTC gets it, into a struct of its own that brings the CUDA execution model
(csrc/device/host_cuda.h); the result is a shared object for `load_host_bytes`. Nothing here is
needed to run kernels that were compiled before.
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
from fuser.runtime import remembered

__all__ = ["Compiler", "HostSource", "build", "compiler", "fingerprint", "flags"]

_CANDIDATES = ("c++", "g++", "clang++")
_HEADERS = ("host_abi.h", "host_cuda.h")

# Below this many bytes of kernel text one compiler process is as fast as two.
_SPLIT_BYTES = 16 << 10


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command that starts it, and what it says of itself."""

    command: tuple[str, ...]
    version: str

    @property
    def is_gcc(self) -> bool:
        return "Free Software Foundation" in self.version


@dataclass(frozen=True)
class HostSource:
    """One kernel: the function `name` in `text`, device blocks included.

    `collectives` says whether its threads meet (barriers, shuffles, votes): then they run as
    fibers, else as a loop, which is much faster.
    """

    name: str
    text: str
    collectives: bool


def compiler(wanted: str = "") -> Compiler:
    """The compiler: `wanted`, else the option FUSER_CXX, else the first of c++, g++ and clang++.

    Raises CompileError "host-compiler" when there is none, or when it does not start.
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
    """A program, whose path may have spaces, or a command with arguments (`ccache g++`)."""
    if shutil.which(wanted):
        return (wanted,)
    try:
        return tuple(shlex.split(wanted))
    except ValueError as error:
        raise CompileError(
            f"FUSER_CXX is neither a C++ compiler nor a command: {error}: {wanted}",
            rule="host-compiler",
        ) from None


@functools.cache
def _probe(command: tuple[str, ...]) -> Compiler:
    name, path = shlex.join(command), os.path.realpath(shutil.which(command[0]) or command[0])
    # One that only calls another (a script, ccache) stays as it is when that one changes.
    is_compiler = bool(re.search(r"(g\+\+|clang)[^/]*$", path)) and Path(path).is_file()
    if is_compiler and (fields := remembered.load(name)) and fields["path"] == path:
        return Compiler(command, fields["version"])
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            errors="backslashreplace",  # it may name its own path
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompileError(
            f"the C++ compiler {name} does not start: {error}; set FUSER_CXX to another one",
            rule="host-compiler",
            command=shlex.join([*command, "--version"]),
        ) from None
    if is_compiler:
        remembered.store(name, {"path": path, "version": done.stdout})
    return Compiler(command, done.stdout)


def flags(debug: bool, for_compiler: Compiler | None = None) -> tuple[str, ...]:
    """How kernels are compiled.

    Arithmetic is that of the text: no contraction, no reassociation, and with -fno-builtin no
    formula in place of calls of the math library. -fno-math-errno lets the functions that are one
    instruction (host_cuda.h) become vector code, -fno-trapping-math selects; given alone, the
    former has GCC fold sin(atan(x)) and its like to what differs at infinities and NaN.
    """
    is_gcc = (for_compiler or compiler()).is_gcc
    chosen = [
        *("-std=c++17", "-march=native", "-fPIC", "-fvisibility=hidden"),
        *("-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing"),
        *("-fno-builtin", "-fno-math-errno", "-fno-trapping-math"),
        *_stack_flags(is_gcc),
    ]
    if debug:
        # A fault leaves a kernel as an exception; an array that was not written holds a pattern and
        # not a lucky zero.
        chosen += ["-Og", "-DFUSER_DEBUG", "-fasynchronous-unwind-tables"]
        return (*chosen, "-ftrivial-auto-var-init=pattern")
    chosen.append("-O2")
    if is_gcc:
        # The loops over the elements of a thread are vectorized as loops, selects included, only if
        # they are not unrolled before (cunrolli); afterwards they are, and their arrays become
        # registers if all loops cut them alike: 128 bits, the width of a GPU's access. 4 to 5 times
        # as fast as plain -O3.
        chosen += ["-ftree-vectorize", "-fvect-cost-model=dynamic", "-fdisable-tree-cunrolli"]
        if platform.machine() in {"x86_64", "AMD64"}:
            chosen.append("-mprefer-vector-width=128")
    return tuple(chosen)


def _stack_flags(is_gcc: bool) -> tuple[str, ...]:
    """A kernel whose arrays do not fit on the stack of a fiber does not compile; and however large
    a frame is, it touches each page, so that what comes past the guard page ends the process there
    and never writes into the next stack.
    """
    limit = f"frame-larger-than={_core.host_frame_bytes}"
    refuse = (f"-Werror={limit}",) if is_gcc else (f"-W{limit}", "-Werror=frame-larger-than")
    return ("-fstack-clash-protection", *refuse)


def _link_flags(is_gcc: bool) -> tuple[str, ...]:
    """Kernels call the C library and the compiler's own helpers. To have the C++ library looked
    through for nothing takes half as long as to compile a small kernel.
    """
    return ("-nostartfiles", "-nodefaultlibs", "-lm", "-lc", "-lgcc") if is_gcc else ()


def fingerprint(debug: bool = False) -> bytes:
    """32 bytes for the key of the disk cache.

    They change with everything beside the kernel text that machine code depends on: the compiler,
    the flags, host_cuda.h and this processor.
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
    """What -march=native depends on."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _headers() -> Path:
    """The folder of host_cuda.h: in the package, or in csrc of a checkout that was not built."""
    packaged = Path(str(importlib.resources.files("fuser") / "device"))
    if (packaged / _HEADERS[0]).exists():
        return packaged
    return Path(__file__).resolve().parents[2] / "csrc" / "device"


def build(sources: Sequence[HostSource], debug: bool = False) -> bytes:
    """Compiles kernels into one shared object and returns its bytes; kernel i is `find(i)` of it.

    Raises CompileError "host-compiler" (no compiler, or none that can work now) or "host-compile"
    (text refused: log, kept source, flags, command to repeat). Other threads run meanwhile.
    """
    chosen = compiler()
    try:
        with _folder() as directory:
            return _build_in(directory, sources, chosen, flags(debug, chosen))
    except OSError as error:  # it is gone, no folder for temporary files, a full disk
        raise CompileError(
            f"the C++ compiler {shlex.join(chosen.command)} cannot compile kernels: {error}\n"
            "  hint: TMPDIR names the folder for temporary files, FUSER_CXX the compiler",
            rule="host-compiler",
        ) from error


@contextmanager
def _folder() -> Iterator[Path]:
    """The files of one build. Where the compiler refuses a text they stay, to be looked at."""
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
    """The kernels in one list, or in lists of about equal text for compilers side by side."""
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
    """Runs the commands side by side; raises for the first that fails, when all have ended."""
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
            f"the C++ compiler refused generated text: {first}\n"
            f"  source: {source}\n  repeat: {shlex.join(command)}",
            rule="host-compile",
            log=log,
            source_path=str(source),
            flags=chosen_flags,
            command=shlex.join(command),
        )
