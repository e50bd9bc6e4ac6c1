"""Compilers as the driver calls them: NVRTC, and the system's C++ compiler for the host.

A process that finds its kernels on disk imports no compiler module.
"""

import atexit
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fuser import _core
from fuser.errors import CompileError
from fuser.runtime import compiler_cache
from fuser.runtime.nvrtc_info import Toolkit

__all__ = ["Toolchain", "install", "machine_code"]

# Head of a kernel: threads per block, and minimum resident blocks per SM; absent if the text leaves
# these to the compiler.
_BOUNDS = r"\nKERNEL2?\((\d+)(?:, (\d+))?\)"
# registers per SM; register allocation granularity per thread
_REGISTERS, _REGISTER_STEP = 1 << 16, 8
# Compiled kernel: payload, registers per thread, local bytes per thread, static shared bytes.
Built = tuple[bytes, int, int, int]


class Toolchain:
    """Argument of `_core.set_toolchain`: targets are `_core.Target`, texts `_core.KernelText`."""

    def fingerprint(self, target: Any) -> bytes:
        """Inputs of compilation beside the text: compiler, flags, and target."""
        if target.isa:
            from fuser.runtime import cpu

            return cpu.fingerprint(target.isa)
        if target.host:
            from fuser.runtime import host

            return host.fingerprint(target.debug)
        found = known()
        parts = [*map(str, found.version), found.build, *found.flags(found.target(target.arch))]
        return "\0".join(parts).encode()

    def build(self, target: Any, texts: Sequence[Any]) -> Iterator[tuple[int, Built | Exception]]:
        """Yields (index of the text, compiled kernel) in order of completion.

        A CompileError is yielded if the compiler rejects the text, which is permanent; errors that
        are not about one text are raised. Host kernels are compiled in one batch and share their
        payload.
        """
        if target.host:
            results = self._host_objects(target, texts)
        else:
            results = in_parallel(
                lambda t: machine_code(t.name, t.text, target.arch, resident=t.cooperative), texts
            )
        from fuser.progress import Progress

        with Progress(len(texts)) as progress:
            for result in results:
                progress.done()
                yield result

    def _host_objects(
        self, target: Any, texts: Sequence[Any]
    ) -> Iterator[tuple[int, Built | Exception]]:
        from fuser.runtime import cpu, host

        try:
            if target.isa:
                payload = cpu.build([cpu.CpuSource(t.name, t.text) for t in texts], target.isa)
            else:
                sources = [host.HostSource(t.name, t.text, t.collectives) for t in texts]
                payload = host.build(sources, debug=target.debug)
        except CompileError as error:
            if len(texts) > 1 or not refused(error):
                raise
            yield 0, error
        else:
            yield from ((i, (payload, 0, 0, 0)) for i in range(len(texts)))


def machine_code(name: str, text: str, arch: int, *, resident: bool = False) -> Built:
    """Compiles a kernel's text for a GPU of architecture `arch` (90 for sm_90). Raises
    CompileError.

    If the code spills because of its minimum of resident blocks, recompiles with fewer, unless the
    launch needs the stated number (`resident`).
    """
    from fuser.runtime import cubin, toolkit

    compiled = toolkit.compile(name, text, arch)
    if compiled.target.startswith("compute_"):
        return compiled.cubin, 0, 0, 0  # PTX: the driver knows its resources after it compiled it
    used = cubin.cubin_info(compiled.cubin)[name]
    for blocks in fewer_blocks(text, used.registers, used.local_bytes, resident):
        again = toolkit.compile(name, text, arch, [f"-DFUSER_BLOCKS={blocks}"])
        mended = cubin.cubin_info(again.cubin)[name]
        if mended.local_bytes < used.local_bytes:
            compiled, used = again, mended
        if not used.local_bytes:
            break
    return compiled.cubin, used.registers, used.local_bytes, used.shared_bytes


def fewer_blocks(text: str, registers: int, local_bytes: int, resident: bool) -> list[int]:
    """Numbers of resident blocks to try for code with these registers and local bytes per thread,
    in descending order: the number that leaves registers for the spilled bytes, then 1.
    """
    bounds = re.search(_BOUNDS, text) if local_bytes else None
    if not bounds:
        return []
    threads, blocks = int(bounds[1]), int(bounds[2] or 0)
    if not blocks:
        return [1]  # the compiler itself spilled to fit one more block
    if resident or blocks == 1:
        return []
    needed = -(-(registers + local_bytes // 4) // _REGISTER_STEP) * _REGISTER_STEP
    return sorted({max(1, min(blocks - 1, _REGISTERS // (threads * needed))), 1}, reverse=True)


def in_parallel(
    work: Callable[[Any], Built], texts: Sequence[Any]
) -> Iterator[tuple[int, Built | Exception]]:
    """Yields work(text) of each text, by threads: NVRTC releases the interpreter lock and compiles
    in parallel.
    """
    if len(texts) == 1:
        yield 0, outcome(work, texts[0])
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    with ThreadPoolExecutor(min(len(texts), os.cpu_count() or 1)) as pool:
        numbers = {pool.submit(outcome, work, text): i for i, text in enumerate(texts)}
        for done in as_completed(numbers):
            yield numbers[done], done.result()


def outcome(work: Callable[[Any], Built], text: Any) -> Built | Exception:
    """Returns work(text), or the error if the compiler rejects the text."""
    try:
        return work(text)
    except CompileError as error:
        if not refused(error):
            raise
        return error


def refused(error: CompileError) -> bool:
    """True if the compiler rejected the text, which is permanent, rather than being missing or
    failing.
    """
    return error.rule in ("nvrtc-compile", "host-compile")


def known() -> Toolkit:
    """The NVRTC of this process, or the fields that an earlier process stored. The latter avoids
    loading NVRTC if all kernels are on disk.
    """
    compiler = sys.modules.get("fuser.runtime.toolkit")
    loaded = compiler is not None and compiler.nvrtc.cache_info().currsize
    if not loaded and (fields := compiler_cache.load("nvrtc")):
        version, archs = tuple(fields["version"]), tuple(fields["archs"])
        return Toolkit((version[0], version[1]), fields["build"], fields["path"], archs)
    from fuser.runtime import toolkit

    return toolkit.nvrtc()


def install() -> None:
    """Registers the compilers with the driver; they are imported and searched at the first cache
    miss.
    """
    _core.set_toolchain(Toolchain())
    # A thread inside a compiler at interpreter exit would crash the process.
    atexit.register(_core.stop_compiling)
