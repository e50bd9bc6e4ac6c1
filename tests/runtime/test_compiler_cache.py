"""fuser/runtime/compiler_cache: the cache of the detected compiler, across processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fuser.runtime import compiler_cache

FIELDS = {"version": [13, 0], "build": "abc", "archs": [75, 90]}


@pytest.fixture
def fields(tmp_path: Path, set_option: Callable[[str, object], None]) -> dict[str, object]:
    """Cache fields for a library in a file, with the test's own cache folder."""
    set_option("FUSER_CACHE_DIR", tmp_path / "cache")
    library = tmp_path / "libnvrtc.so"
    library.write_bytes(b"code")
    return {**FIELDS, "path": str(library)}


def test_round_trip(fields: dict[str, object]) -> None:
    assert compiler_cache.load("it") is None
    compiler_cache.store("it", fields)
    assert compiler_cache.load("it") == fields


def test_another_file(fields: dict[str, object]) -> None:
    compiler_cache.store("it", fields)
    library = Path(str(fields["path"]))
    library.write_bytes(b"other code")
    assert compiler_cache.load("it") is None
    compiler_cache.store("it", fields)
    assert compiler_cache.load("it") == fields
    library.unlink()
    assert compiler_cache.load("it") is None


def test_another_search_path(fields: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_cache.store("it", fields)
    monkeypatch.setenv("CUDA_HOME", "/elsewhere")
    compiler_cache._key.cache_clear()
    assert compiler_cache.load("it") is None
    monkeypatch.undo()
    compiler_cache._key.cache_clear()
    assert compiler_cache.load("it") == fields


def test_switched_off(fields: dict[str, object], set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_CACHE", 0)
    compiler_cache.store("it", fields)
    set_option("FUSER_CACHE", 1)
    assert compiler_cache.load("it") is None
