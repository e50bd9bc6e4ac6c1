"""Application of a pass to a kernel given as text."""

from __future__ import annotations

from textwrap import dedent

from fuser import _core, _core_testing


def after(name: str, declarations: str, body: str, index: int = 32) -> str:
    """The kernel after the pass without its first line: declarations and statements."""
    text = f"kernel k threads 256 min_blocks 0 index {index} {{\n{declarations}\n{body}\n}}\n"
    kernel = _core.parse_kernel(text)
    getattr(_core_testing.passes, name)(kernel)
    kernel.verify()
    return dedent(kernel.text().partition("\n")[2].rpartition("}")[0]).strip()


def text(block: str) -> str:
    """A text block of a test, formatted like the result of `after`."""
    return dedent(block).strip()
