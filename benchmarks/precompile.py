"""Fills the disk caches of contenders with many processes, before any measurement.

torch.compile takes seconds per case and max-autotune up to a minute, nearly all of it on one core;
timing a case takes less than a second. So `--warm N` runs each contender of each case once, in N
processes per GPU. A later run with the same caches loads the kernels:

    TORCHINDUCTOR_CACHE_DIR  graphs, kernels and the configurations that autotuning chose
    TRITON_CACHE_DIR         Triton's kernels, including Liger's
    QUACK_CACHE_DIR          QuACK's kernels

Concurrent processes must not affect autotuning. Each of its measurements, and the creation of each
case's inputs, holds a lock on the GPU.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.case import Case, Data
from benchmarks.families import TABLES
from benchmarks.harness import COMPILE, way_of

# In ascending compile time: an interrupted run lacks only autotuning.
ORDER = ("compile", "liger", "quack", "autotune")


class Task(NamedTuple):
    """A contender of a case; `tiny` selects the small shape."""

    contender: str
    family: str
    key: str
    tiny: bool


class Done(NamedTuple):
    """Result of a task: its seconds, the seconds in which it held the GPU, and the reason of its
    failure; `failed` is None if it succeeded."""

    task: Task
    seconds: float
    alone: float
    failed: str | None


def tasks(cases: Sequence[tuple[str, Case]], contenders: Sequence[str], tiny: bool) -> list[Task]:
    """One task for each contender of each case that has a disk cache."""
    return [
        Task(name, family, case.key, tiny)
        for name in ORDER
        if name in contenders
        for family, case in cases
        if name in COMPILE or name in case.peers
    ]


def fill(todo: Sequence[Task], device: torch.device, processes: int, limit: float) -> list[Done]:
    """Run the tasks, `processes` of them at a time on each GPU, for at most `limit` seconds."""
    gpus = _gpus() if device.type == "cuda" else [""]
    context = multiprocessing.get_context("spawn")
    places: SimpleQueue[str] = context.SimpleQueue()
    count = min(processes * len(gpus), len(todo))
    for number in range(count):
        places.put(gpus[number % len(gpus)])
    # Cases run in parallel, so each compiles with one thread; Inductor reads this at import.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    done: list[Done] = []
    if not todo:
        return done
    end = time.monotonic() + limit
    with tempfile.TemporaryDirectory() as locks:
        pool = context.Pool(count, _start, (places, locks, str(device.type)))
        results = pool.imap_unordered(_run, todo)
        try:
            while len(done) < len(todo):
                done.append(results.next(max(0.0, end - time.monotonic())))
                print(_line(done[-1]), file=sys.stderr, flush=True)
        except multiprocessing.TimeoutError:
            pass
        pool.terminate()
        pool.join()
    return done


def keep(done: Sequence[Done], path: Path) -> None:
    """Add the completed tasks to the file."""
    names = {tuple(name) for name in compiled(path)} if path.exists() else set()
    names |= {(d.task.contender, d.task.key) for d in done}
    path.write_text(json.dumps(sorted(names)))


def compiled(path: Path) -> set[tuple[str, str]]:
    """(contender, key of the case) pairs stored by keep()."""
    return {(contender, key) for contender, key in json.loads(path.read_text())}


def summary(todo: Sequence[Task], done: Sequence[Done]) -> str:
    """One line per contender: number of its cases, and seconds."""
    lines = []
    for name in dict.fromkeys(task.contender for task in todo):
        asked = sum(task.contender == name for task in todo)
        seconds = sorted(d.seconds for d in done if d.task.contender == name)
        failed = sum(d.failed is not None for d in done if d.task.contender == name)
        line = f"{name}: {len(seconds)} of {asked} cases compiled, {failed} failed"
        if seconds:
            middle = seconds[len(seconds) // 2]
            line += f"; {sum(seconds):.0f} s, median {middle:.1f}, longest {seconds[-1]:.1f}"
            alone = sum(d.alone for d in done if d.task.contender == name)
            line += f", {alone:.0f} s of them alone on a GPU"
        lines.append(line)
    return "\n".join(lines)


def _line(done: Done) -> str:
    text = f"{done.task.contender} {done.task.key}: {done.seconds:.1f} s"
    return f"{text}, {done.failed}" if done.failed else text


def _gpus() -> list[str]:
    """GPUs visible to this process, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]


# ---- in the worker processes

_lock_path: Path | None = None
_device = torch.device("cpu")
_alone_seconds = 0.0


def _start(places: SimpleQueue[str], locks: str, device: str) -> None:
    global _lock_path, _device
    gpu = places.get()
    if device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
        _lock_path = Path(locks) / f"gpu{gpu}"
        _alone_when_measuring()
    _device = torch.device(device)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock on the GPU; the system releases it when the process ends."""
    global _alone_seconds
    if _lock_path is None:
        yield
        return
    with _lock_path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        start = time.perf_counter()
        yield
        torch.cuda.synchronize()
        _alone_seconds += time.perf_counter() - start


def _alone_when_measuring() -> None:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    bench = CachingAutotuner.bench

    def alone(self: CachingAutotuner, *arguments: Any, **options: Any) -> float:
        with _alone():
            return bench(self, *arguments, **options)

    CachingAutotuner.bench = alone  # type: ignore[method-assign]


def _run(task: Task) -> Done:
    start, alone = time.perf_counter(), _alone_seconds
    failed = None
    try:
        _compile(task)
    except Exception as failure:
        failed = f"{type(failure).__name__}: {str(failure).strip()[:200]}"
    torch._dynamo.reset()
    if _device.type == "cuda":
        torch.cuda.empty_cache()
    return Done(task, time.perf_counter() - start, _alone_seconds - alone, failed)


def _compile(task: Task) -> None:
    case = _case(task)
    with _alone():
        inputs = case.make(Data(_device))
    way = way_of(task.contender, case, inputs, [])
    assert way is not None, "tasks() gives those that the case has"
    case.results(way, inputs)
    if _device.type == "cuda":
        torch.cuda.synchronize()


def _case(task: Task) -> Case:
    for row in TABLES[task.family]:
        case = row.small() if task.tiny else row.case()
        if case.key == task.key:
            return case
    raise KeyError(task.key)
