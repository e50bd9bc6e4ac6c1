"""csrc/driver/cache/store: the disk cache never fails a launch and never returns wrong bytes."""

import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fuser import _core
from fuser.errors import UserError

DAY = 24 * 3600
NOBODY = 65534


def key(number: int) -> bytes:
    return _core.sha256(number.to_bytes(8, "little"))


def binary(number: int, size: int = 928) -> object:
    """A kernel of 1000 bytes on disk."""
    return _core.Binary(registers=number, payload=number.to_bytes(8, "little") * (size // 8))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cache"


def entry(cache: Path, number: int) -> Path:
    return cache / f"{key(number).hex()}.bin"


def lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return capfd.readouterr().err.splitlines()


def test_round_trip(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = _core.Store(str(cache))
    assert store.get(key(1)) is None
    assert not cache.exists()
    store.put(key(1), binary(1))
    assert store.get(key(1)) == binary(1)
    assert store.get(key(2)) is None
    assert _core.Store(str(cache)).get(key(1)) == binary(1)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(cache, 1).stat().st_mode) == 0o600
    counters = store.counters()
    assert (counters.hits, counters.misses, counters.puts) == (1, 2, 1)
    assert lines(capfd) == []


def test_put_replaces(cache: Path) -> None:
    store = _core.Store(str(cache))
    store.put(key(1), binary(1))
    store.put(key(1), binary(2))
    assert store.get(key(1)) == binary(2)


def test_key_of_another_length_is_an_error(cache: Path) -> None:
    with pytest.raises(UserError, match="key: expected 32 bytes, got 3") as error:
        _core.Store(str(cache)).get(b"abc")
    assert error.value.rule == "store-key"


@pytest.mark.parametrize("how", ["truncated", "altered", "link", "folder"])
def test_bad_entry_is_a_miss_one_line_and_removed(
    how: str, cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = _core.Store(str(cache))
    store.put(key(1), binary(1))
    file = entry(cache, 1)
    data = file.read_bytes()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(data)
    if how == "truncated":
        file.write_bytes(data[:100])
    elif how == "altered":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        file.unlink()
        if how == "link":
            file.symlink_to(elsewhere)
        else:
            file.mkdir()
    assert store.get(key(1)) is None
    assert len(lines(capfd)) == 1
    assert store.counters().bad == 1
    assert elsewhere.read_bytes() == data
    if how != "folder":
        assert not os.path.lexists(file)
        store.put(key(1), binary(1))
        assert store.get(key(1)) == binary(1)


def assert_distrusted(cache: Path, capfd: pytest.CaptureFixture[str], reason: str) -> None:
    assert _core.Store(str(cache)).get(key(1)) is None
    told = lines(capfd)
    assert len(told) == 1, told
    assert reason in told[0]
    assert not entry(cache, 1).exists()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_entry_that_others_may_write(
    mode: int, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An entry is not trusted although its digest is correct if other users may write it: the
    directory may have been writable for a while."""
    _core.Store(str(cache)).put(key(1), binary(1))
    entry(cache, 1).chmod(mode)
    assert_distrusted(cache, capfd, "other users can write to it")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_entry_of_another_user(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _core.Store(str(cache)).put(key(1), binary(1))
    os.chown(entry(cache, 1), NOBODY, NOBODY)
    assert_distrusted(cache, capfd, "it belongs to user")


def test_entry_that_is_a_pipe_does_not_hang(cache: Path) -> None:
    store = _core.Store(str(cache))
    store.put(key(1), binary(1))
    entry(cache, 1).unlink()
    os.mkfifo(entry(cache, 1))
    assert store.get(key(1)) is None


def assert_unused(store: Any, capfd: pytest.CaptureFixture[str], reason: str) -> None:
    for number in range(3):
        store.put(key(number), binary(number))
        assert store.get(key(number)) is None
    told = lines(capfd)
    assert len(told) == 1, told
    assert reason in told[0]


def test_a_directory_is_warned_of_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One warning per directory, although kernels and compiler information use different stores."""
    for name in ("a", "b"):
        (tmp_path / name).write_text("in the way")
        for _ in range(3):
            _core.Store(str(tmp_path / name)).put(key(0), binary(0))
    told = lines(capfd)
    assert len(told) == 2, told
    assert all(f"{name} is not used" in line for name, line in zip("ab", told, strict=True))


def test_a_directory_that_cannot_be_made(capfd: pytest.CaptureFixture[str]) -> None:
    """The warning for a directory that cannot be created, as in a read-only home, has the
    reason."""
    assert_unused(_core.Store("/proc/fuser/cache"), capfd, "is not used: it cannot be created: ")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_directory_that_others_may_write(
    mode: int, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _core.Store(str(cache)).put(key(0), binary(0))
    cache.chmod(mode)
    assert_unused(_core.Store(str(cache)), capfd, "other users can write to it")


def test_directory_of_another_user(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cache.mkdir(parents=True, mode=0o700)
    if os.geteuid() == 0:
        os.chown(cache, NOBODY, NOBODY)
    else:
        cache = Path("/usr")
    assert_unused(_core.Store(str(cache)), capfd, "it belongs to user")


@pytest.mark.parametrize("slash", ["", "/", "///"])
def test_directory_that_is_a_link(
    slash: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert_unused(_core.Store(str(tmp_path / "link") + slash), capfd, "symbolic link")
    # A symbolic link in a parent directory is the user's choice.
    store = _core.Store(str(tmp_path / "link" / "cache"))
    store.put(key(1), binary(1))
    assert store.get(key(1)) == binary(1)


def test_directory_that_is_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cache").write_text("")
    assert_unused(_core.Store(str(tmp_path / "cache")), capfd, "not a directory")
    assert_unused(_core.Store(str(tmp_path / "cache" / "below")), capfd, "not a directory")


def in_fork(action: Callable[[], None]) -> int:
    """The exit status of an action in a forked child, which may modify the child freely.

    The test process has threads, and a child may inherit a lock that one of them held. Then an
    alarm ends the child, and another one is forked.
    """
    for _ in range(3):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                action()
            except BaseException:
                traceback.print_exc(file=sys.stdout)
                sys.stdout.flush()
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != -signal.SIGALRM:
            break
    return status


def test_directory_that_cannot_be_written(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    as_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        if as_root:
            # To root every directory is writable, so the child changes its user; folders above
            # pytest's own are not accessible to other users.
            cache = Path(folder) / "cache"
        store = _core.Store(str(cache))
        store.put(key(1), binary(1))
        if as_root:
            for path in (Path(folder), cache, entry(cache, 1)):
                os.chown(path, NOBODY, NOBODY)
        cache.chmod(0o500)

        def use() -> None:
            if as_root:
                os.setegid(NOBODY)
                os.seteuid(NOBODY)
            assert store.get(key(1)) == binary(1)
            for number in (2, 3):
                store.put(key(number), binary(number))
                assert store.get(key(number)) is None

        assert in_fork(use) == 0
        cache.chmod(0o700)
    told = lines(capfd)
    assert len(told) == 1, told
    assert "cannot be written: Permission denied" in told[0]


def test_full_disk(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = _core.Store(str(cache))
    store.put(key(1), binary(1))

    def use() -> None:
        # A limit on the size of files interrupts a write, like a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        for number in (2, 3):
            store.put(key(number), binary(number))
            assert store.get(key(number)) is None
        assert store.get(key(1)) == binary(1)

    assert in_fork(use) == 0
    told = lines(capfd)
    assert len(told) == 1, told
    assert "cannot be written" in told[0]
    assert [file.name for file in cache.iterdir()] == [entry(cache, 1).name]


def age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_hit_renews_the_time_of_last_use_once_a_day(cache: Path) -> None:
    store = _core.Store(str(cache))
    store.put(key(1), binary(1))
    age(entry(cache, 1), 2 * DAY)
    store.get(key(1))
    assert time.time() - entry(cache, 1).stat().st_mtime < DAY
    age(entry(cache, 1), DAY / 2)
    store.get(key(1))
    assert time.time() - entry(cache, 1).stat().st_mtime > DAY / 3


def test_eviction_in_order_of_last_use(cache: Path) -> None:
    store = _core.Store(str(cache), 8000)
    for number in range(8):
        store.put(key(number), binary(number))
        age(entry(cache, number), (20 - number) * DAY)
    assert store.counters().evicted == 0
    store.get(key(0))
    # 9000 bytes; two entries are evicted, so that an eighth is free.
    store.put(key(8), binary(8))
    left = [number for number in range(9) if entry(cache, number).exists()]
    assert left == [0, 3, 4, 5, 6, 7, 8]
    assert store.counters().evicted == 2


def test_cap_counts_what_other_processes_wrote(cache: Path) -> None:
    first, second = _core.Store(str(cache), 8000), _core.Store(str(cache), 8000)
    for number in range(40):
        (first if number % 2 else second).put(key(number), binary(number))
    assert sum(file.stat().st_size for file in cache.iterdir()) <= 8000
    assert first.get(key(39)) == binary(39)


def test_entry_larger_than_the_cap(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = _core.Store(str(cache), 8000)
    for number in (1, 2):
        store.put(key(number), binary(number, 8000))
    assert len(lines(capfd)) == 1
    assert store.get(key(1)) is None


def test_entry_as_large_as_the_cap(cache: Path) -> None:
    store = _core.Store(str(cache), 1000)
    store.put(key(1), binary(1))
    assert entry(cache, 1).stat().st_size == 1000
    assert store.get(key(1)) == binary(1)


def test_capacity_zero_switches_off(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = _core.Store(str(cache), 0)
    store.put(key(1), binary(1))
    assert store.get(key(1)) is None
    assert not cache.exists()
    assert lines(capfd) == []


def test_clear_removes_entries_and_nothing_else(cache: Path) -> None:
    store = _core.Store(str(cache))
    for number in range(3):
        store.put(key(number), binary(number))
    (cache / "notes.txt").write_text("mine")
    store.clear()
    assert [file.name for file in cache.iterdir()] == ["notes.txt"]
    assert store.get(key(1)) is None
    _core.Store(str(cache / "none")).clear()


def test_abandoned_temporary_files_go(cache: Path) -> None:
    _core.Store(str(cache)).put(key(1), binary(1))
    young, old = (cache / f"{key(n).hex()}.77.0.1.tmp" for n in (2, 3))
    for file in (young, old):
        file.write_bytes(b"half")
    age(old, 2 * 3600)
    _core.Store(str(cache)).put(key(4), binary(4))
    assert young.exists()
    assert not old.exists()


def test_directory_removed_while_in_use(cache: Path) -> None:
    store = _core.Store(str(cache))
    store.put(key(1), binary(1))
    entry(cache, 1).unlink()
    cache.rmdir()
    assert store.get(key(1)) is None
    store.put(key(1), binary(1))
    assert store.get(key(1)) == binary(1)


def test_threads(cache: Path) -> None:
    store = _core.Store(str(cache), 20000)

    def work(start: int) -> None:
        for step in range(100):
            number = (start + step * 7) % 40
            store.put(key(number), binary(number))
            assert store.get(key(number)) in (None, binary(number))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, start) for start in range(4)]:
            done.result()
    assert store.counters().bad == 0
    assert store.counters().puts == 400


PROCESS = """
import sys
from fuser import _core
store = _core.Store(sys.argv[1], 30000)
for step in range(150):
    number = (int(sys.argv[2]) + step * 7) % 40
    key = _core.sha256(number.to_bytes(8, "little"))
    made = _core.Binary(registers=number, payload=number.to_bytes(8, "little") * 116)
    store.put(key, made)
    found = store.get(key)
    assert found is None or found == made, number
assert store.counters().bad == 0
"""


def test_processes(cache: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(cache)]
    running = [
        subprocess.Popen([*command, str(start)], stderr=subprocess.PIPE, text=True)
        for start in range(4)
    ]
    for process in running:
        errors = process.communicate()[1]
        assert (process.returncode, errors) == (0, "")
    assert not list(cache.glob("*.tmp"))
    # A process notices the writes of other processes late, by up to a sixteenth of the cap each.
    assert sum(file.stat().st_size for file in cache.iterdir()) <= 30000 * (1 + 4 / 16)


def test_store_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/somewhere")
    assert _core.store_directory("/given") == "/given"
    assert _core.store_directory("") == "/var/somewhere/fuser"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert _core.store_directory("") == "/home/somebody/.cache/fuser"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _core.store_directory("") == "/home/somebody/.cache/fuser"
    monkeypatch.delenv("HOME")
    assert _core.store_directory("").endswith("/.cache/fuser")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that does not exist")
def test_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fallback directory, whose owner is checked, is directly in the world-writable /tmp."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    stranger = 1_234_567  # not in any passwd file

    def ask() -> None:
        os.seteuid(stranger)
        assert _core.store_directory("") == f"/tmp/fuser-{stranger}"

    assert in_fork(ask) == 0
