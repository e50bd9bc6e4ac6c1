"""Texts of compiler stages for a definition, without compiling a kernel."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuser import FusionDefinition, _core


def stage_texts(fd: FusionDefinition, inputs: Sequence[Any], stage: str) -> list[str]:
    """The texts of a stage of FUSER_DUMP, one per kernel. The definition must not have been planned
    before."""
    before = {name: _core.get_option(name) for name in ("FUSER_DUMP", "FUSER_DUMP_DIR")}
    with tempfile.TemporaryDirectory() as folder:
        try:
            _core.set_option("FUSER_DUMP", stage)
            _core.set_option("FUSER_DUMP_DIR", folder)
            fd.plan(inputs)
        finally:
            for name, value in before.items():
                _core.set_option(name, value)
        return [path.read_text() for path in sorted(Path(folder).iterdir())]


def stage_text(fd: FusionDefinition, inputs: Sequence[Any], stage: str) -> str:
    """The text of a stage for a definition that is one kernel."""
    (text,) = stage_texts(fd, inputs, stage)
    return text


def statements(kernel: str) -> str:
    """The lines of Kernel IR from the first statement on, without the kernel's indentation."""
    lines = kernel.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("  v0 ="))
    return "\n".join(line[2:] for line in lines[first:-1])
