"""The compilers as the driver calls them: NVRTC, and the system's C++ compiler for the host."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fuser import _core
from fuser.progress import Progress
from fuser.runtime import host

__all__ = ["Toolchain", "install"]

# What a kernel became: payload, registers per thread, local bytes per thread, static shared bytes.
Built = tuple[bytes, int, int, int]


class Toolchain:
    """What `_core.set_toolchain` takes: targets are `_core.Target`, texts `_core.KernelText`."""

    def fingerprint(self, target: Any) -> bytes:
        """What machine code depends on beside the text: the compiler, its flags, its target."""
        if target.host:
            return host.fingerprint(target.debug)
        from fuser.runtime import toolkit

        found = toolkit.nvrtc()
        parts = [*map(str, found.version), found.build, *found.flags(found.target(target.arch))]
        return "\0".join(parts).encode()

    def build(self, target: Any, texts: Sequence[Any]) -> list[Built]:
        """One result per text. Host kernels are compiled in one batch and share their payload."""
        with Progress(len(texts)) as progress:
            if target.host:
                sources = [host.HostSource(t.name, t.text, t.collectives) for t in texts]
                payload = host.build(sources, debug=target.debug)
                return [(payload, 0, 0, 0)] * len(sources)

            def compiled(text: Any) -> Built:
                built = self._cubin(target.arch, text)
                progress.done()
                return built

            # NVRTC releases the interpreter lock and really compiles in parallel.
            with ThreadPoolExecutor(min(len(texts), os.cpu_count() or 1)) as pool:
                return list(pool.map(compiled, texts))

    def _cubin(self, arch: int, text: Any) -> Built:
        from fuser.runtime import cubin, toolkit

        compiled = toolkit.compile(text.name, text.text, arch)
        if compiled.target.startswith("compute_"):
            return compiled.cubin, 0, 0, 0  # PTX: the driver counts when it has finished it
        used = cubin.cubin_info(compiled.cubin)[text.name]
        return compiled.cubin, used.registers, used.local_bytes, used.shared_bytes


def install() -> None:
    """Gives the driver its compilers; none of them is imported or looked for before a miss."""
    _core.set_toolchain(Toolchain())
