"""csrc/driver/cache/host_lock: processes of one host compile each kernel once."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

RANKS = 8
# Forks RANKS processes, which start at one moment. Each runs definitions with a kernel each, in an
# order of its own, and writes its counters.
PROGRAM = """
import json, os, sys
import torch, fuser

def run(n):
    with fuser.FusionDefinition() as fd:
        x = fd.define_tensor([-1], [True])
        for _ in range(n + 1):
            x = fd.ops.sin(x) if n % 2 else fd.ops.sum(x, [0], keepdim=True)
            x = fd.ops.add(x, fd.ops.exp(x))
        fd.add_output(x)
    return fd.execute([torch.arange(5, dtype=torch.float32)])[0]

folder, ranks, kernels = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ready, start = os.pipe()
for rank in range(ranks):
    if os.fork() == 0:
        os.close(start)
        os.read(ready, 1)  # returns when the parent closes its end
        order = list(range(kernels))[:: 1 - rank % 2 * 2]
        results = {n: run(n).sum().item() for n in order}
        info = fuser.cache_info()
        counts = [info.kernels_compiled, info.kernels_from_disk]
        with open(f"{folder}/{rank}.json", "w") as out:
            json.dump([counts, [results[n] for n in range(kernels)]], out)
        os._exit(0)
os.close(start)
states = [os.waitpid(-1, 0)[1] for _ in range(ranks)]
sys.exit(any(states))
"""


def start(folder: Path, ranks: int, kernels: int, **environment: str) -> subprocess.Popen[str]:
    """Starts the program with the cache `folder`/cache."""
    (folder / "out").mkdir(exist_ok=True)
    (folder / "program.py").write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, "program.py", "out", str(ranks), str(kernels)],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "FUSER_CACHE_DIR": str(folder / "cache")}
        | {"FUSER_HOST_ARCH": "0", "OMP_NUM_THREADS": "1"}
        | environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def counters(folder: Path, process: subprocess.Popen[str]) -> tuple[int, int]:
    """Kernels compiled and loaded by all processes. Their results must be equal."""
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    done = [json.loads(path.read_text()) for path in sorted((folder / "out").glob("*.json"))]
    assert all(results == done[0][1] for _, results in done)
    compiled, loaded = (sum(counts[i] for counts, _ in done) for i in range(2))
    return compiled, loaded


def test_one_compilation_per_host(tmp_path: Path) -> None:
    """Eight processes on an empty directory, then on a full one."""
    assert counters(tmp_path, start(tmp_path, RANKS, 4)) == (4, 4 * (RANKS - 1))
    assert counters(tmp_path, start(tmp_path, RANKS, 4)) == (0, 4 * RANKS)


def test_without_a_store_every_process_compiles(tmp_path: Path) -> None:
    """No process waits for a file that cannot appear: the directory takes no bytes."""
    process = start(tmp_path, 3, 2, FUSER_CACHE_MB="0")
    assert counters(tmp_path, process) == (6, 0)
    assert not (tmp_path / "cache").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes to every directory")
def test_read_only_directory(tmp_path: Path) -> None:
    """Kernels that were stored before are loaded, others are compiled by each process."""
    assert counters(tmp_path, start(tmp_path, 1, 2)) == (2, 0)
    (tmp_path / "cache").chmod(0o500)
    assert counters(tmp_path, start(tmp_path, 2, 3)) == (2, 4)


def test_killed_compilation_is_repeated(tmp_path: Path) -> None:
    """A process that ends while it compiles releases its locks: others compile its kernel."""
    waiting, compiler = tmp_path / "waiting", tmp_path / "compiler"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-shared*) mkdir {waiting} 2>/dev/null && exec sleep 600;; esac\n'
        'exec c++ "$@"\n'
    )
    compiler.chmod(0o755)
    first = start(tmp_path, 1, 1, FUSER_CXX=str(compiler))
    while not waiting.exists():
        assert first.poll() is None, first.stderr
        time.sleep(0.05)
    second = start(tmp_path, 1, 1, FUSER_CXX=str(compiler))
    os.killpg(first.pid, signal.SIGKILL)  # the process, and its compiler
    first.communicate()
    assert counters(tmp_path, second) == (1, 0)


def test_the_file_is_private() -> None:
    """Other users cannot lock it."""
    path = Path(f"/tmp/fuser-{os.geteuid()}.locks")
    if path.exists():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_size == 0
