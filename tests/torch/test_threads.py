"""Many threads, and possible deadlocks of compilation with waiting threads: each program has a time
limit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch

import fuser
from fuser import DataType, FusionDefinition
from tests.support.definitions import gained
from tests.support.threads import turns_of_another_thread

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
THREADS, CALLS = 8, 1000


def normalized() -> FusionDefinition:
    """x minus its mean over the last dim, for rows of any length."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(x - fd.ops.mean(x, [1], True))
    return fd


def at_once(work: Callable[[int], None]) -> None:
    """Run work(n) in THREADS threads, which start simultaneously; return when all have ended."""
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        start.wait()
        work(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_of_mixed_shapes() -> None:
    """Threads get the results, kernels and counters of a single thread."""
    shapes = [(1 + n % 5, 1 + n % 13) for n in range(40)]
    inputs = [torch.randn(shape) for shape in shapes]
    alone = normalized()
    before = fuser.cache_info()
    expected = [alone.execute([x])[0] for x in inputs]
    wanted = gained(before)
    shared = normalized()
    before = fuser.cache_info()
    failures: list[tuple[int, int]] = []

    def work(number: int) -> None:
        for call in range(CALLS):
            place = (call * (2 * number + 1)) % len(inputs)
            (result,) = shared.execute([inputs[place]])
            if not result.equal(expected[place]):
                failures.append((number, call))

    at_once(work)
    assert failures == []
    gain = gained(before)
    assert gain.plans == wanted.plans
    assert gain.kernels_compiled == 0, "those of the other definition"
    assert gain.hits + gain.misses == THREADS * CALLS
    # A shape that several threads use first counts as a miss for each.
    assert wanted.misses <= gain.misses <= THREADS * wanted.misses


def test_a_hit_keeps_the_interpreter_lock() -> None:
    """A hit does not release the interpreter lock, because with waiting threads that is a system
    call."""
    fd, x = normalized(), torch.randn(4, 4)
    kept = [fd.execute([x])]  # torch releases the lock when it frees a tensor
    assert turns_of_another_thread(lambda: kept.append(fd.execute([x]))) == 0


def test_threads_that_use_a_definition_first() -> None:
    """Threads that use a definition first create one executor."""

    def executors() -> int:
        fd, met = normalized(), []

        def work(_: int) -> None:
            met.append(fd.fec)

        at_once(work)
        return len({id(fec) for fec in met})

    assert [executors() for _ in range(20)] == [1] * 20


def written(factor: float) -> FusionDefinition:
    """Returns a result, and updates x to x + 1 in place."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.relu(x * factor + y))
        fd.add_output(x + 1.0, alias_input=x)
    return fd


def test_threads_that_plan_compile_specialize_and_look(
    set_option: Callable[[str, object], None],
) -> None:
    """Threads plan, compile, specialize and inspect definitions simultaneously."""
    set_option("FUSER_SPECIALIZE_AFTER", 10)
    definitions = {factor: written(factor) for factor in (2.0, 4.0, 6.0)}
    failures: list[tuple[int, int]] = []

    def work(number: int) -> None:
        for call in range(60):
            factor = 2.0 * (1 + (call + number) % 3)
            fd, shape = definitions[factor], (1 + call * (number + 1) % 7, 3 + (call + number) % 5)
            inputs = [torch.ones(shape), torch.ones(shape)]
            if number == 0 and call % 3 == 0:
                fuser.cache_info()
                fd.plan(inputs)
            (result,) = fd.execute(inputs)
            fd.fec.is_compiled(inputs)
            if not (result.eq(factor + 1.0).all() and inputs[0].eq(2.0).all()):
                failures.append((number, call))

    at_once(work)
    assert failures == []


COMMON = """
import signal, threading, time
import torch, fuser
count = iter(range(10**6))
def compile_one(x):
    "A kernel that nobody has compiled."
    fd = fuser.FusionDefinition()
    fd.add_output(fd.define_tensor([-1]) * (2.0 + next(count)))
    return fd.execute([x])[0]
x = torch.ones(100)
"""

BACKWARD = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return compile_one(x)
    @staticmethod
    def backward(ctx, g):
        return compile_one(g)
def train():
    leaf = torch.ones(100, requires_grad=True)
    Scale.apply(leaf).sum().backward()
    assert leaf.grad.shape == (100,)
threads = [threading.Thread(target=train) for _ in range(3)]
for t in threads: t.start()
train()
for t in threads: t.join()
"""

JIT_FORK = """
@torch.jit.ignore
def compiled(x: torch.Tensor) -> torch.Tensor:
    return compile_one(x)
@torch.jit.script
def both(x: torch.Tensor):
    later = torch.jit.fork(compiled, x)
    now = compiled(x)
    return torch.jit.wait(later) + now
assert both(x).shape == (100,)
"""

SIGNAL = """
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGALRM, stop)
stopped = 0
for delay in (0.02, 0.05, 0.1):
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        compile_one(x)
        time.sleep(0.2)
    except Stop:
        stopped += 1
assert stopped
assert compile_one(x).shape == (100,)
"""


# A thread without the interpreter lock blocks while planning: it writes a dump into a pipe that the
# main thread reads only after a fork.
FORK = """
import os, signal, subprocess, sys, threading, time
from pathlib import Path
import torch, fuser
from fuser import _core

folder = Path(sys.argv[1])

@torch.jit.script
def f(x: torch.Tensor, y: torch.Tensor):
    return (x + y) * 2.0 - y

def reference(x, y):
    return (x + y) * 2.0 - y

x = torch.rand(4, 8)
first, second = (x[:, ::2].t(), x[:, :4]), (x[:, :4].t(), x[:, :4])
with fuser.torchscript_fuser(cpu=True), torch.no_grad():
    for _ in range(3):
        f(x, x)
    f(*second)  # as eager does it, which is asked how results lie
    _core.set_option("FUSER_DUMP", "fusion,schedule")
    _core.set_option("FUSER_DUMP_DIR", str(folder))
    f(*first)
    schedule = next(p for p in folder.iterdir() if p.name.startswith("00001."))
    held = folder / schedule.name.replace("00001", "00003")
    os.mkfifo(held)
    wait = f"until [ -e {folder}/forking ]; do sleep 0.05; done; sleep 0.5; touch {folder}/read"
    reader = subprocess.Popen(["sh", "-c", f"{wait}; cat {held} > {folder}/dump"])
    results = []
    thread = threading.Thread(target=lambda: results.append(f(*second)))
    thread.start()
    while not (folder / "00002.fusion.fusion.txt").exists():  # it plans
        time.sleep(0.01)
    (folder / "forking").touch()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        _core.set_option("FUSER_DUMP", "")
        right = torch.allclose(f(*second), reference(*second))
        fd = fuser.FusionDefinition()
        fd.add_output(fd.define_tensor([-1, -1]) * 3.0)
        os._exit(0 if right and fd.execute([x])[0].equal(x * 3.0) else 1)
    assert (folder / "read").exists(), "the fork did not wait until the plan was made"
    thread.join()
    assert torch.allclose(results[0], reference(*second))
    assert os.waitpid(child, 0)[1] == 0
    assert reader.wait() == 0
"""


def test_nothing_hangs(tmp_path: Path) -> None:
    """Compilation in a backward pass, in torch.jit.fork, and during a signal does not deadlock."""
    run_program(COMMON + BACKWARD + JIT_FORK + SIGNAL, tmp_path)


def test_a_fork_while_another_thread_plans(tmp_path: Path) -> None:
    """A fork waits for the plan of another thread; the child, which lacks that thread, plans and
    runs itself."""
    run_program(FORK, tmp_path)


def run_program(text: str, tmp_path: Path) -> None:
    """Run the program with an empty folder as its argument; fail if it exceeds the time limit."""
    file = tmp_path / "program.py"  # torch.jit.script reads source files
    file.write_text(text + 'print("last line")')
    (tmp_path / "folder").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FUSER_CACHE_DIR": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(file), str(tmp_path / "folder")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "last line\n"), done.stderr
