"""NVRTC through cuda-python: the only module that imports it.

Imports happen at the first use, because most processes find their kernels on disk. This module
needs no GPU or driver. NVRTC compiles without the interpreter's lock, so threads compile in
parallel.

`python -m fuser.runtime.toolkit kernel.cu --arch 90` compiles a dumped kernel by hand.
"""

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuser import _core
from fuser.errors import CompileError
from fuser.runtime import compiler_cache, elf
from fuser.runtime.nvrtc_info import Toolkit, dotted

_EXCERPTS = 3  # maximum number of errors shown with their lines
_LINES_AROUND = 2


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel text in the form that the driver loads."""

    cubin: bytes  # machine code; if target is "compute_..", PTX with a trailing zero byte
    target: str
    log: str  # warnings
    seconds: float


@functools.cache
def nvrtc() -> Toolkit:
    """The NVRTC of this process: a loaded one, or else from pip, conda, the system, CUDA_HOME.

    Raises CompileError "nvrtc-missing" with the searched locations.
    """
    try:
        from cuda import pathfinder
        from cuda.bindings import nvrtc as api

        path = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path or ""
        # Before CUDA 12.8 the libraries have no build id.
        build = elf.build_id(path) or str(os.path.getsize(path))
        major, minor = _succeed(api.nvrtcVersion())
        (archs,) = _succeed(api.nvrtcGetSupportedArchs())
    except (ImportError, OSError, RuntimeError) as error:
        raise CompileError(
            "NVRTC, the compiler of CUDA kernels, was not found\n"
            '  hint: pip install "cuda-bindings" "nvidia-cuda-nvrtc" (for GPUs before sm_75: '
            '"cuda-bindings==12.9.*" "nvidia-cuda-nvrtc-cu12"), or set CUDA_HOME to an installed '
            "CUDA toolkit; CPU tensors need neither\n"
            f"  searched by {sys.executable}: {type(error).__name__}: {error}",
            rule="nvrtc-missing",
        ) from error
    found = Toolkit((major, minor), build, path, tuple(sorted(archs)))
    compiler_cache.store("nvrtc", found._asdict())
    return found


def compile(name: str, text: str, arch: int, extra: Sequence[str] = ()) -> Compiled:
    """Compiles kernel text for a GPU of architecture `arch` (90 for sm_90).

    name: appears in messages as `name.cu`. extra: flags appended to the default flags.

    Raises CompileError: "nvrtc-missing", "nvrtc-arch", or "nvrtc-compile" with log, flags, the
    faulty lines, the path of the dumped source and a command that repeats the compilation.
    """
    return _compile(name, text, nvrtc().target(arch), extra)


def ptx(text: str, arch: int, extra: Sequence[str] = ()) -> str:
    """The PTX of kernel text for architecture `arch`, for reading. Raises as compile() does."""
    return _compile("ptx", text, f"compute_{arch}", extra).cubin.rstrip(b"\0").decode()


def disassemble(cubin: bytes) -> str | None:
    """The machine code as text (SASS), if nvdisasm or cuobjdump is installed.

    They come with a CUDA toolkit, with Triton, or by `pip install nvidia-cuda-nvdisasm`.
    """
    for tool, options in (("nvdisasm", ["--print-code"]), ("cuobjdump", ["--dump-sass"])):
        path = _find_tool(tool)
        if path is None:
            continue
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            command = [path, *options, file.name]
            run = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False
            )
        # An older tool rejects newer code: try the next one.
        if run.returncode == 0:
            return run.stdout
    return None


def _succeed(answer: tuple[Any, ...]) -> list[Any]:
    """Returns the values after the status of a call; raises CompileError unless it is success."""
    from cuda.bindings import nvrtc as api

    status, *values = answer
    if status != api.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC failed: {status.name}", rule="nvrtc-call")
    return values


def _compile(name: str, text: str, target: str, extra: Sequence[str]) -> Compiled:
    toolkit = nvrtc()
    from cuda.bindings import nvrtc as api

    flags = (*toolkit.flags(target), *extra)
    file_name = f"{name}.cu".encode()
    start = time.perf_counter()
    (program,) = _succeed(api.nvrtcCreateProgram(text.encode(), file_name, 0, [], []))
    try:
        (status,) = api.nvrtcCompileProgram(program, len(flags), [*map(os.fsencode, flags)])
        raw_log = _read(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, program)
        log = raw_log.rstrip(b"\0").decode(errors="replace").strip()
        if status != api.nvrtcResult.NVRTC_SUCCESS:
            raise _refusal(name, text, target, flags, status.name, log)
        if target.startswith("sm_"):
            image = _read(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, program)
        else:
            image = _read(api.nvrtcGetPTXSize, api.nvrtcGetPTX, program)
    finally:
        api.nvrtcDestroyProgram(program)
    return Compiled(image, target, log, time.perf_counter() - start)


def _read(get_size: Any, get: Any, program: Any) -> bytes:
    (size,) = _succeed(get_size(program))
    buffer = bytearray(size)
    _succeed(get(program, buffer))
    return bytes(buffer)


def _refusal(
    name: str, text: str, target: str, flags: tuple[str, ...], status: str, log: str
) -> CompileError:
    """The error for text that NVRTC rejected; dumps the text to a file."""
    arch = target.partition("_")[2]
    try:
        path = _dump(name, text)
        words = [sys.executable, "-m", "fuser.runtime.toolkit", path, "--arch", arch]
        command = shlex.join(words)
        kept = [f"  source: {path}", f"  repeat: {command}"]
    except OSError as error:  # must not hide the compiler's error
        path, command, kept = "", "", [f"  source: not kept: {error}"]
    parts = [
        f"NVRTC {dotted(nvrtc().version)} refused kernel {name} for {target} ({status}); "
        "this is a bug of fuser, please report it",
        *("  " + line for line in log.splitlines()),
        *_excerpts(name, text, log),
        f"  flags: {' '.join(flags)}",
        *kept,
    ]
    return CompileError(
        "\n".join(parts),
        rule="nvrtc-compile",
        log=log,
        source_path=path,
        flags=flags,
        command=command,
    )


def _dump(name: str, text: str) -> str:
    folder = _core.get_option("FUSER_DUMP_DIR") or None
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"fuser-{name}-", suffix=".cu", dir=folder, delete=False
    ) as file:
        file.write(text)
    return file.name


def _excerpts(name: str, text: str, log: str) -> list[str]:
    """The numbered lines around the first errors of a log."""
    lines = text.splitlines()
    pattern = rf"^{re.escape(name)}\.cu\((\d+)\): (?:catastrophic )?error"
    at_fault = dict.fromkeys(int(line) for line in re.findall(pattern, log, re.MULTILINE))
    excerpts = []
    for fault in list(at_fault)[:_EXCERPTS]:
        first, last = max(1, fault - _LINES_AROUND), min(len(lines), fault + _LINES_AROUND)
        for number in range(first, last + 1):
            mark = ">" if number == fault else " "
            excerpts.append(f"  {mark} {number:4} | {lines[number - 1]}")
        excerpts.append("")
    return excerpts


def _find_tool(name: str) -> str | None:
    """A tool of the CUDA toolkit: from pip, conda, CUDA_HOME, PATH, or Triton's package."""
    try:
        from cuda import pathfinder

        found: str | None = pathfinder.find_nvidia_binary_utility(name)
    except ImportError:
        found = None
    found = found or shutil.which(name)
    triton = None if found else importlib.util.find_spec("triton")
    for folder in (triton.submodule_search_locations if triton else None) or []:
        inside = Path(folder) / "backends" / "nvidia" / "bin" / name
        if os.access(inside, os.X_OK):
            found = str(inside)
    return found


def _main() -> None:
    import argparse

    from fuser.runtime.cubin import cubin_info

    parser = argparse.ArgumentParser(
        prog="python -m fuser.runtime.toolkit", description="Compile a kernel by hand."
    )
    parser.add_argument("source", type=Path)
    parser.add_argument(
        "--arch", type=int, default=90, help="target architecture, e.g. 90 for sm_90"
    )
    parser.add_argument("--output", type=Path, help="output file for the cubin")
    parser.add_argument("extra", nargs="*", help="additional NVRTC flags, after --")
    options = parser.parse_args()
    text = options.source.read_text(encoding="utf-8")
    try:
        compiled = compile(options.source.stem, text, options.arch, options.extra)
    except CompileError as error:
        sys.exit(str(error))
    if compiled.log:
        print(compiled.log)
    print(f"{compiled.target}: {len(compiled.cubin)} bytes, {compiled.seconds * 1e3:.1f} ms")
    if compiled.target.startswith("sm_"):
        for name, resources in cubin_info(compiled.cubin).items():
            print(f"{name}: {resources}")
    if options.output is not None:
        options.output.write_bytes(compiled.cubin)


if __name__ == "__main__":
    _main()
