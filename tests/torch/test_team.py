"""csrc/torch/team: launches on CPU tensors run on the OpenMP threads of torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from tests.support.definitions import scaled

X = torch.arange(1 << 20, dtype=torch.float32)

# Prints the threads that an op of torch starts, and those that launches start after it.
TOGETHER = """
import os, torch
from tests.support.definitions import scaled
threads = lambda: len(os.listdir("/proc/self/task"))
torch.set_num_threads(3)
fd, alone = scaled(2.0), threads()
x = torch.ones(1 << 20)
started = threads()
for _ in range(2):
    assert fd.execute([x])[0].equal(x * 2)
print(started - alone, threads() - started)
"""

FORK = """
import os, torch
from tests.support.definitions import scaled
from tests.torch.test_team import X
torch.set_num_threads(3)
fd = scaled(2.0)
expected = X.double().mul_(2).float()
assert fd.execute([X])[0].equal(expected)
child = os.fork()
if child == 0:
    got = fd.execute([X])[0]
    os._exit(0 if got.numpy().tobytes() == expected.numpy().tobytes() else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(autouse=True)
def cpu_kernels(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_ARCH", 0)


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"FUSER_HOST_ARCH": "0", "FUSER_HOST_THREADS": "0"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def test_launches_and_ops_share_threads() -> None:
    assert _run(TOGETHER) == "2 0\n"


def test_a_forked_child_runs_on_workers_of_its_own() -> None:
    _run(FORK)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_task_runs(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for n in (1, 1000, 4097, X.numel()):
            assert scaled(3.0).execute([X[:n]])[0].equal(X[:n] * 3)
    finally:
        torch.set_num_threads(before)
