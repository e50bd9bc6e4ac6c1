"""csrc/driver/cuda/kernels: each text is compiled once, across threads and processes; errors are
passed on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fuser
from fuser import CompileError, FusionDefinition
from fuser.runtime.toolchain import Toolchain
from fuser.testing import compile_batch
from tests.support.definitions import gained, scaled

ROOT = Path(__file__).resolve().parents[2]
X = torch.arange(100.0)


@pytest.fixture
def folder(tmp_path: Path, set_option: Callable[[str, object], None]) -> Path:
    """An empty cache folder, and empty caches in memory."""
    set_option("FUSER_CACHE_DIR", tmp_path)
    fuser.clear_caches()
    return tmp_path


def entries(folder: Path) -> list[Path]:
    """Cache files of kernels, without the file about the compiler's version."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return [p for p in files if b'"version"' not in p.read_bytes()]


def test_equal_texts_share_a_kernel(folder: Path) -> None:
    before = fuser.cache_info()
    first, second = scaled(4.5), scaled(4.5)
    assert first.execute([X])[0].equal(second.execute([X])[0])
    gain = gained(before)
    assert (gain.definitions, gain.plans, gain.kernels_compiled) == (2, 2, 1)
    assert len(entries(folder)) == 1


def test_the_same_text_from_another_definition(folder: Path) -> None:
    """An op without effect is removed, so the text equals that of a definition without it."""
    with FusionDefinition() as fd:
        x = fd.ops.permute(fd.define_tensor([-1]), [0])
        fd.add_output(x * 4.5)
    scaled(4.5).execute([X])
    assert fd.execute([X])[0].equal(X * 4.5)
    assert fuser.cache_info().kernels_compiled == 1


def test_a_batch_is_one_build_and_an_entry_each(folder: Path, monkeypatch: Any) -> None:
    builds = []
    build = Toolchain.build
    monkeypatch.setattr(Toolchain, "build", lambda *a: builds.append(len(a[2])) or build(*a))
    definitions = [scaled(n + 0.5) for n in range(5)]
    assert compile_batch([(fd, [X]) for fd in definitions]) == 5
    assert builds == [5]
    for n, fd in enumerate(definitions):
        assert fd.execute([X])[0].equal(X * (n + 0.5))
    assert builds == [5]
    assert fuser.cache_info().kernels_compiled == 5
    assert len(entries(folder)) == 5
    # A single kernel is loaded from the shared object of the batch.
    fuser.clear_caches()
    assert scaled(3.5).execute([X])[0].equal(X * 3.5)
    assert fuser.cache_info().kernels_from_disk == 1


def test_a_text_twice_in_one_batch(folder: Path) -> None:
    assert compile_batch([(scaled(2.5), [X]), (scaled(2.5), [X])]) == 2
    assert fuser.cache_info().kernels_compiled == 1


def in_threads(count: int, work: Callable[[], object]) -> list[object]:
    """Results or exceptions of `count` threads that start simultaneously."""
    start = threading.Barrier(count)
    results: list[object] = []

    def run() -> None:
        start.wait()
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_compile_once(folder: Path) -> None:
    fd = scaled(5.5)
    fd.fec  # noqa: B018  the executor itself is made by one thread
    results = in_threads(8, lambda: fd.execute([X])[0].equal(X * 5.5))
    assert results == [True] * 8
    info = fuser.cache_info()
    assert info.kernels_compiled + info.kernels_from_disk == 1
    assert info.plans == 1
    assert info.hits + info.misses == 8
    assert len(entries(folder)) == 1


def test_threads_that_open_a_definition_together(folder: Path) -> None:
    fd = scaled(5.25)
    results = in_threads(8, lambda: fd.execute([X])[0].equal(X * 5.25))
    assert results == [True] * 8
    assert fuser.cache_info().kernels_compiled == 1


def test_a_kernel_of_a_batch_is_handed_over_at_once(folder: Path, monkeypatch: Any) -> None:
    """A thread that needs one kernel of a batch does not wait for the rest of the batch."""
    build, go_on, began = Toolchain.build, threading.Event(), threading.Event()

    def slow(self: Toolchain, target: Any, texts: Any) -> Any:
        for outcome in build(self, target, texts):
            yield outcome
            if len(texts) > 1:
                began.set()
                assert go_on.wait(60)

    first, second = scaled(15.5), scaled(16.5)
    monkeypatch.setattr(Toolchain, "build", slow)
    thread = threading.Thread(target=compile_batch, args=([(first, [X]), (second, [X])],))
    thread.start()
    assert began.wait(60)
    assert first.execute([X])[0].equal(X * 15.5)
    assert thread.is_alive()
    go_on.set()
    thread.join()
    assert second.execute([X])[0].equal(X * 16.5)
    assert fuser.cache_info().kernels_compiled == 2


def test_a_refused_text_is_not_tried_again(folder: Path, monkeypatch: Any) -> None:
    calls = []

    def refuse(self: Toolchain, target: Any, texts: Any) -> Any:
        for i, text in enumerate(texts):
            calls.append(text.name)
            yield i, CompileError("refused", rule="nvrtc-compile", source_path="kernel.cu")

    fd = scaled(17.5)
    with monkeypatch.context() as patch:
        patch.setattr(Toolchain, "build", refuse)
        for _ in range(3):
            with pytest.raises(CompileError) as caught:
                fd.execute([X])
            assert caught.value.source_path == "kernel.cu"
            assert len(caught.traceback) < 10, "callers of earlier raises are not kept"
        with pytest.raises(CompileError):
            scaled(17.5).execute([X])
    assert len(calls) == 1
    with pytest.raises(CompileError):
        fd.execute([X])
    fuser.clear_caches()
    assert fd.execute([X])[0].equal(X * 17.5)


def test_a_failure_reaches_all_who_wait_and_is_forgotten(folder: Path, monkeypatch: Any) -> None:
    calls = []

    def fail(*_: object) -> Any:
        calls.append(1)
        time.sleep(0.2)  # so that the other threads wait for this one
        raise CompileError("no luck", rule="host-compile", log="the log")

    fd = scaled(8.5)
    fd.fec  # noqa: B018
    with monkeypatch.context() as patch:
        patch.setattr(Toolchain, "build", fail)
        results = in_threads(8, lambda: fd.execute([X]))
    assert len(results) == 8
    for error in results:
        assert type(error) is CompileError
        assert (str(error), error.rule, error.log) == ("no luck", "host-compile", "the log")
    assert 1 <= len(calls) <= 8
    assert not fd.fec.is_compiled([X])
    assert entries(folder) == []
    assert fd.execute([X])[0].equal(X * 8.5)
    info = fuser.cache_info()
    assert (info.kernels_compiled, info.misses, info.hits) == (1, 9, 0)


@pytest.mark.parametrize(
    "built",
    [[], [(0, (b"not an object", 0, 0, 0))], [(1, (b"", 0, 0, 0))]],
    ids=["none", "no object", "of another text"],
)
def test_a_toolchain_that_builds_nonsense(built: object, folder: Path, monkeypatch: Any) -> None:
    fd = scaled(9.5)
    with monkeypatch.context() as patch:
        patch.setattr(Toolchain, "build", lambda *_: built)
        with pytest.raises((fuser.InternalError, fuser.LaunchError)):
            fd.execute([X])
    assert entries(folder) == []
    assert fd.execute([X])[0].equal(X * 9.5)


def test_no_compiler(folder: Path, set_option: Callable[[str, object], None]) -> None:
    fd = scaled(10.5)
    before = fuser.cache_info()
    set_option("FUSER_CXX", "/nonexistent/c++")
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            fd.execute([X])
        assert caught.value.rule == "host-compiler"
        assert str(caught.value).startswith("the C++ compiler /nonexistent/c++ does not start: ")
        assert str(caught.value).endswith("; set FUSER_CXX to another one")
    set_option("FUSER_CXX", "")
    assert fd.execute([X])[0].equal(X * 10.5)
    gain = gained(before)
    assert (gain.kernels_compiled, gain.misses) == (1, 3)


# ---- on disk


def test_switched_off(folder: Path, set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_CACHE", 0)
    for _ in range(2):
        fuser.clear_caches()
        assert scaled(2.75).execute([X])[0].equal(X * 2.75)
        assert fuser.cache_info().kernels_compiled == 1
    assert entries(folder) == []


def test_another_size_of_the_cache_holds_at_once(
    folder: Path, set_option: Callable[[str, object], None]
) -> None:
    scaled(2.125).execute([X])
    set_option("FUSER_CACHE_MB", 0)
    scaled(2.375).execute([X])
    assert len(entries(folder)) == 1


def test_damaged_entries_are_rebuilt(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    factors = (1.5, 2.5, 3.5)

    def run() -> tuple[int, int]:
        fuser.clear_caches()
        for factor in factors:
            assert scaled(factor).execute([X])[0].equal(X * factor)
        info = fuser.cache_info()
        return info.kernels_compiled, info.kernels_from_disk

    assert run() == (3, 0)
    assert run() == (0, 3)
    assert capfd.readouterr().err == ""
    cut, altered, _ = entries(folder)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    data = bytearray(altered.read_bytes())
    data[-100] ^= 1
    altered.write_bytes(data)
    assert run() == (2, 1)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2, lines
    for path in (cut, altered):
        (line,) = [line for line in lines if path.name in line]
        assert line.startswith(f"fuser: cache entry {path} was removed and is rebuilt: ")
    assert run() == (0, 3)
    assert capfd.readouterr().err == ""


def test_an_entry_that_does_not_load_is_rebuilt(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A valid entry that does not load, as after a change of the system's C library, is compiled
    again."""
    from fuser import _core

    assert scaled(1.75).execute([X])[0].equal(X * 1.75)
    (path,) = entries(folder)
    store = _core.Store(str(folder))
    key = bytes.fromhex(path.name.split(".")[0])
    store.put(key, _core.Binary(kind=_core.BinaryKind.HostObject, payload=b"no shared object"))
    fuser.clear_caches()
    assert scaled(1.75).execute([X])[0].equal(X * 1.75)
    assert fuser.cache_info().kernels_compiled == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert "on disk does not load (" in line
    assert line.endswith("); building it again")


PROGRAM = """
import json, torch, fuser
from tests.support.definitions import bias_gelu, scaled
x = torch.arange(1024.0)
for factor in (1.5, 2.5):
    assert scaled(factor).execute([x])[0].equal(x * factor)
    assert scaled(factor).execute([x[:1001]])[0].equal(x[:1001] * factor)
fd = bias_gelu()
fd.execute([x.bfloat16().view(4, 256), x[:256].bfloat16()])
print(json.dumps(fuser.cache_info()._asdict()))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"FUSER_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    infos = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        infos.append(json.loads(done.stdout))
    first, second = infos
    assert (first["kernels_compiled"], first["kernels_from_disk"]) == (5, 0)
    assert (second["kernels_compiled"], second["kernels_from_disk"]) == (0, 5)
    assert second["compile_seconds"] == 0
    assert len(entries(tmp_path)) == 5
