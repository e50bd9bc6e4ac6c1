"""Time of a launch of a CPU kernel beside the work of its tasks: `python -m benchmarks.threads`.

Each row has a number of tasks of equal work, one or several threads, and a pause before the launch:
none, one within which workers spin, or one within which they fall asleep. `mm` puts a product of
torch before each launch, whose OpenMP threads wait for more work on the same cores.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import time
from collections.abc import Iterator
from typing import Any

import torch

from fuser import _core
from fuser.runtime import cpu

# Each task is a chain of dependent multiplications.
_TEXT = """
static void chain(float* out, int steps, long long begin, long long end) {
  for (long long t = begin; t < end; ++t) {
    float x = 1.0f;
    for (int i = 0; i < steps; ++i) x = x * 0.999f;
    out[16 * t] = x;
  }
}"""
_LAUNCHES = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    cores = _core.native_device().cores
    parser.add_argument("--threads", type=int, default=cores, help="default: all cores")
    threads = parser.parse_args().threads
    source = cpu.CpuSource("chain", _TEXT)
    kernel = _core.load_host_bytes(cpu.build([source], _core.native_device().isa)).find(0)
    steps = _steps_per_us(kernel)
    print(f"{threads} threads, {cores} cores; median and 90th percentile in us")
    print("| tasks | us each | pause us | mm | 1 thread | all threads | 90% | ideal |")
    print("|---|---|---|---|---|---|---|---|")
    for tasks, each, pause, product in _rows():
        one = _times(kernel, tasks, round(each * steps), 1, pause, product)
        all_ = _times(kernel, tasks, round(each * steps), threads, pause, product)
        high = statistics.quantiles(all_, n=10)[-1]
        ideal = tasks * each / min(threads, tasks)
        print(
            f"| {tasks} | {each:g} | {pause:g} | {'yes' if product else ''} "
            f"| {statistics.median(one):.1f} | {statistics.median(all_):.1f} | {high:.1f} "
            f"| {ideal:.1f} |"
        )


def _rows() -> Iterator[tuple[int, float, float, bool]]:
    for tasks, each in ((1, 0.0), (2, 0.0), (2, 10.0), (8, 10.0), (40, 10.0)):
        for pause in (0.0, 20.0, 1000.0):
            for product in (False, True):
                yield tasks, each, pause, product


def _steps_per_us(kernel: Any) -> float:
    steps = 1_000_000
    return steps / min(_times(kernel, 1, steps, 1, 0.0, False)[:20])


def _times(
    kernel: Any, tasks: int, steps: int, threads: int, pause: float, product: bool
) -> list[float]:
    """Microseconds of each launch."""
    out = torch.zeros(16 * tasks)
    values = [struct.pack("P", out.data_ptr()), struct.pack("i", steps)]
    a = torch.randn(256, 256)
    launches = 20 if tasks * steps > 10**5 else _LAUNCHES
    found = []
    for _ in range(launches):
        if product:
            torch.mm(a, a)
        until = time.perf_counter() + pause * 1e-6
        while time.perf_counter() < until:
            pass
        start = time.perf_counter()
        _core.host_run_tasks(kernel, tasks, values, threads=threads)
        found.append((time.perf_counter() - start) * 1e6)
    return found


if __name__ == "__main__":
    main()
