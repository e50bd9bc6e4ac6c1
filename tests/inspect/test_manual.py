"""API.md equals the text generated from the docstrings."""

from __future__ import annotations

from pathlib import Path

import fuser
from fuser.inspect.manual import manual

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_up_to_date() -> None:
    assert (ROOT / "API.md").read_text() == manual(), "python -m fuser manual > API.md"


def test_it_has_everything_that_is_exported() -> None:
    text = manual()
    for name in fuser.__all__:
        assert f"fuser.{name}\n" in text
    assert "### fd.ops.layer_norm" in text
    assert " object at 0x" not in text
