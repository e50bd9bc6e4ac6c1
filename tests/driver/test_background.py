"""csrc/driver/background: the thread that compiles concurrently with calls, at exit and after a
fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60  # timeout of a deadlock

COMMON = """
import atexit, os, threading, time, torch, fuser
from fuser import _core
def scaled(factor):
    fd = fuser.FusionDefinition()
    fd.add_output(fd.define_tensor([-1]) * factor)
    return fd
x = torch.ones(1000)
def often(fd, times=40):
    for _ in range(times):
        (y,) = fd.execute([x])
    return y
"""

# At exit, queued jobs are dropped and running jobs end, also for daemon threads, without a crash.
# An exit handler that runs before fuser's may still compile.
AT_EXIT = """
def work(start):
    try:
        while True:
            start += 1.0
            scaled(start).execute([x])
    except fuser.Unsupported:
        pass
often(scaled(2.0))
for n in range(3):
    threading.Thread(target=work, args=(1000.0 * n,), daemon=True).start()
time.sleep(0.3)
for n in range(4):
    often(scaled(0.25 + n))
atexit.register(lambda: scaled(0.125).execute([x]))
print("last line")
"""

# The child has the parent's definitions and kernels, compiles new ones, and has a background thread
# of its own; the parent's queue stays with the parent.
FORK = """
fd = scaled(2.0)
often(fd)
child = os.fork()
if child == 0:
    assert often(fd)[0] == 2.0
    assert often(scaled(3.0))[0] == 3.0
    _core.wait_for_background()
    assert fuser.cache_info().kernels_specialized >= 1
    os._exit(7)
_core.wait_for_background()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("last line")
"""


def check_ends_well(program: str, folder: Path) -> None:
    """Assert that the program prints its last line and exits successfully in time."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FUSER_CACHE_DIR": str(folder),
        "FUSER_SPECIALIZE_AFTER": "20",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        # Python 3.12 warns of a fork with threads, which this test needs.
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            COMMON + program,
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "last line\n", "")


def test_exit_while_something_is_compiled(tmp_path: Path) -> None:
    check_ends_well(AT_EXIT, tmp_path)


def test_fork(tmp_path: Path) -> None:
    check_ends_well(FORK, tmp_path)
