"""The system's C++ compiler: search, version, and builds of shared objects from texts."""

import functools
import hashlib
import importlib.resources
import os
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

__all__ = [
    "Compiler",
    "assembly",
    "compiler",
    "digest_of",
    "headers",
    "link_flags",
    "shared_object",
    "split",
]

_CANDIDATES = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command that starts it, and its version text."""

    command: tuple[str, ...]
    version: str

    @property
    def is_gcc(self) -> bool:
        return "Free Software Foundation" in self.version


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


def digest_of(texts: Sequence[str], files: Sequence[str]) -> bytes:
    """32 bytes that depend on the texts and on the contents of these files of headers()."""
    digest = hashlib.sha256()
    contents = [(headers() / file).read_bytes() for file in files]
    for part in [*(text.encode() for text in texts), *contents]:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def headers() -> Path:
    """The folder of the headers of kernels: in the package, or in csrc of an unbuilt checkout."""
    packaged = Path(str(importlib.resources.files("fuser") / "device"))
    if (packaged / "host_abi.h").exists():
        return packaged
    return Path(__file__).resolve().parents[2] / "csrc" / "device"


def link_flags(chosen: Compiler) -> tuple[str, ...]:
    """Kernels call only the C library and the compiler's helpers. The process has loaded the former
    (csrc/host/module.cpp). Searching libraries would take a third of the build time of a small
    kernel.
    """
    return ("-nostartfiles", "-nodefaultlibs", "-lgcc") if chosen.is_gcc else ()


def split(sizes: Sequence[int], least: int) -> list[list[int]]:
    """Distributes texts of these sizes over translation units of about equal size, at most one per
    processor. Returns the indices of each unit. Below `least` bytes, one unit compiles as fast as
    two.
    """
    count = min(len(os.sched_getaffinity(0)), len(sizes), 1 + sum(sizes) // least)
    units: list[list[int]] = [[] for _ in range(max(1, count))]
    bytes_of = [0] * len(units)
    for index, size in enumerate(sizes):
        smallest = bytes_of.index(min(bytes_of))
        units[smallest].append(index)
        bytes_of[smallest] += size
    return units


def shared_object(chosen: Compiler, flags: Sequence[str], units: Sequence[str]) -> bytes:
    """Compiles translation units in parallel, links them, and returns the shared object's bytes.

    Raises CompileError "host-compiler" (no working compiler) or "host-compile" (text rejected: log,
    source path, flags, command to repeat). Releases the interpreter lock meanwhile.
    """
    try:
        with _folder() as directory:
            return _build_in(directory, chosen, tuple(flags), units)
    except OSError as error:  # missing compiler, no folder for temporary files, full disk
        raise CompileError(
            f"the C++ compiler {shlex.join(chosen.command)} cannot compile kernels: {error}\n"
            "  hint: TMPDIR names the folder for temporary files, FUSER_CXX the compiler",
            rule="host-compiler",
        ) from error


def assembly(chosen: Compiler, flags: Sequence[str], unit: str) -> str:
    """The assembly of a translation unit. Raises CompileError "host-compile"."""
    with _folder() as directory:
        source, output = directory / "kernels.cpp", directory / "kernels.s"
        source.write_text(unit, encoding="utf-8")
        command = [*chosen.command, *flags, f"-I{headers()}", "-S", str(source), "-o", str(output)]
        _run([(command, source)], tuple(flags))
        return output.read_text(encoding="utf-8")


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
    directory: Path, chosen: Compiler, flags: tuple[str, ...], units: Sequence[str]
) -> bytes:
    output = directory / "kernels.so"
    base = [*chosen.command, *flags, "-pipe", f"-I{headers()}"]
    sources = [directory / f"kernels_{i}.cpp" for i in range(len(units))]
    for source, text in zip(sources, units, strict=True):
        source.write_text(text, encoding="utf-8")
    if len(units) == 1:
        link = ["-shared", str(sources[0]), "-o", str(output), *link_flags(chosen)]
        _run([([*base, *link], sources[0])], flags)
        return output.read_bytes()
    objects = [str(source.with_suffix(".o")) for source in sources]
    jobs = zip(sources, objects, strict=True)
    _run([([*base, "-c", str(s), "-o", o], s) for s, o in jobs], flags)
    link = ["-shared", *objects, "-o", str(output), *link_flags(chosen)]
    _run([([*chosen.command, *link], directory)], flags)
    return output.read_bytes()


def _run(jobs: list[tuple[list[str], Path]], flags: tuple[str, ...]) -> None:
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
            flags=flags,
            command=shlex.join(command),
        )
