"""Launches of CPU kernels: every task runs once, for any number of threads and callers."""

import ctypes
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import _core
from fuser.runtime import cpu
from tests.host.kernels import value

COUNT = """
static void count(int* runs, long long begin, long long end) {
  for (long long t = begin; t < end; ++t) __atomic_fetch_add(runs + t, 1, __ATOMIC_RELAXED);
}"""
# Sums of blocks of 1000 numbers; the last task to arrive adds them in the order of their index.
SUM = """
static void sum(const float* x, float* partial, unsigned* arrived, float* out, int tasks,
                long long begin, long long end) {
  for (long long t = begin; t < end; ++t) {
    float s = 0;
    for (int i = 0; i < 1000; ++i) s += x[1000 * t + i];
    partial[t] = s;
    if (__atomic_add_fetch(arrived, 1u, __ATOMIC_ACQ_REL) != (unsigned)tasks) continue;
    float all = 0;
    for (int i = 0; i < tasks; ++i) all += partial[i];
    *out = all;
    *arrived = 0;
  }
}"""
CALL = """
static void call(void (*f)(long long), long long begin, long long end) {
  for (long long t = begin; t < end; ++t) f(t);
}"""


@pytest.fixture(scope="module")
def kernels() -> Callable[[str], Any]:
    isa = str(_core.native_device().isa)
    texts = {"count": COUNT, "sum": SUM, "call": CALL}
    module = _core.load_host_bytes(cpu.build([cpu.CpuSource(*t) for t in texts.items()], isa))
    return lambda name: module.find(list(texts).index(name))


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 64, 200])
@pytest.mark.parametrize("tasks", [0, 1, 2, 5, 63, 64, 1000, 100_003])
def test_every_task_runs_once(kernels: Callable[[str], Any], tasks: int, threads: int) -> None:
    runs = np.zeros(tasks + 1, np.int32)
    for _ in range(3):
        _core.host_run_tasks(kernels("count"), tasks, [value(runs)], threads=threads)
    assert (runs[:tasks] == 3).all()
    assert runs[tasks] == 0


def test_the_number_of_threads_changes_no_bit(
    kernels: Callable[[str], Any], rng: np.random.Generator
) -> None:
    tasks = 97
    x = rng.normal(size=1000 * tasks).astype(np.float32)
    results = set()
    for threads in (1, 2, 3, 8):
        for _ in range(20):
            partial, out = np.zeros(tasks, np.float32), np.zeros(1, np.float32)
            arrived = np.zeros(1, np.uint32)
            args = [value(a) for a in (x, partial, arrived, out, np.int32(tasks))]
            _core.host_run_tasks(kernels("sum"), tasks, args, threads=threads)
            results.add(out.tobytes())
            assert arrived[0] == 0
    assert len(results) == 1
    exact = float(x.astype(np.float64).sum())
    terms = float(np.abs(x.astype(np.float64)).sum())
    (got,) = struct.unpack("f", results.pop())
    assert abs(got - exact) <= (1000 + tasks) * 2**-24 * terms


def test_concurrent_callers(kernels: Callable[[str], Any]) -> None:
    """Threads that call at once share the workers, and each gets its own tasks done."""
    counts = [np.zeros(5000 + i, np.int32) for i in range(6)]

    def call(runs: np.ndarray) -> None:
        for _ in range(50):
            _core.host_run_tasks(kernels("count"), len(runs), [value(runs)], threads=3)

    callers = [threading.Thread(target=call, args=(runs,)) for runs in counts]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for runs in counts:
        assert (runs == 50).all()


def test_tasks_that_launch_tasks(kernels: Callable[[str], Any]) -> None:
    """A nested launch ends even if all workers are busy with the outer one."""
    runs = np.zeros((8, 300), np.int32)

    def inner(task: int) -> None:
        _core.host_run_tasks(kernels("count"), 300, [value(runs[task])], threads=4)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)(inner)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    _core.host_run_tasks(kernels("call"), 8, [struct.pack("P", address)], threads=4)
    assert (runs == 1).all()


def test_the_caller_is_one_of_the_threads(kernels: Callable[[str], Any]) -> None:
    """At most as many threads run tasks as the launch may use, and one is enough."""
    seen: list[int] = []
    note = ctypes.CFUNCTYPE(None, ctypes.c_int64)(lambda _: seen.append(threading.get_ident()))
    address = ctypes.cast(note, ctypes.c_void_p).value
    for threads in (1, 2, 3):
        seen.clear()
        _core.host_run_tasks(kernels("call"), 40, [struct.pack("P", address)], threads=threads)
        assert len(seen) == 40
        assert 1 <= len(set(seen)) <= threads
        if threads == 1:
            assert set(seen) == {threading.get_ident()}


FORK = """
import os, sys, numpy as np
from fuser import _core
from fuser.runtime import cpu
from tests.host.kernels import value
from tests.host.test_tasks import COUNT
isa = _core.native_device().isa
kernel = _core.load_host_bytes(cpu.build([cpu.CpuSource("count", COUNT)], isa)).find(0)
def run():
    runs = np.zeros(4000, np.int32)
    for _ in range(200):
        _core.host_run_tasks(kernel, 4000, [value(runs)], threads=4)
    assert (runs == 200).all()
run()
for _ in range(5):
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    run()
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""


def test_forked_children_have_workers_of_their_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n", done.stderr
