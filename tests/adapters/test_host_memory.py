"""fuser/adapters/host_memory: calls of a compiled graph on CPU tensors reuse memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Counts page faults of a call whose temporaries take 12 MB, i.e. 3,072 pages.
PROGRAM = """
import resource, torch
torch.set_num_threads(1)

def f(x, w):
    for _ in range(3):
        x = torch.relu(x @ w) * 2 + 1
    return x.sum()

x, w = torch.randn(16384, 64), torch.randn(64, 64)
compiled = torch.compile(f, backend="fuser")
with torch.no_grad():
    torch.testing.assert_close(compiled(x, w), f(x, w), rtol=1e-4, atol=1e-2)
    for _ in range(5):
        compiled(x, w)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        compiled(x, w)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10)
"""


def faults(**environment: str) -> int:
    clean = {k: v for k, v in os.environ.items() if "MALLOC" not in k and k != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=clean | {"FUSER_HOST_ARCH": "0"} | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of glibc")
def test_calls_fault_no_pages() -> None:
    assert faults() < 100


@pytest.mark.skipif(sys.platform != "linux", reason="limits of glibc")
def test_limits_of_the_program_stay() -> None:
    assert faults(MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="65536") > 1000
