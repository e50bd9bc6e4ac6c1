"""Host time: CPU time per call, on tensors so small that the GPU is never the bottleneck."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fuser
from benchmarks.case import Case, Data
from benchmarks.families.pointwise import TABLE
from benchmarks.harness import COMPILE, Call, Setting
from fuser import DataType, FusionDefinition

_SHAPE = (64, 64)


def _sum_relu(count: int) -> Case:
    """relu(2 (x1 + ... + xn) + 1): a few ops, n inputs."""

    def compute(tensors: tuple[Any, ...], relu: Callable[[Any], Any]) -> Any:
        total = tensors[0]
        for t in tensors[1:]:
            total = total + t
        return relu(total * 2.0 + 1.0)

    return Case(
        name=f"{count} input{'s' if count > 1 else ''}",
        shape=_SHAPE,
        dtype=torch.float32,
        make=lambda data: [data.normal(_SHAPE, torch.float32) for _ in range(count)],
        eager=lambda *t: compute(t, torch.relu),
        define=lambda ops, *t: compute(t, ops.relu),
        outputs=(torch.float32,),
    )


def _layer_norm() -> Case:
    columns = _SHAPE[-1]

    def define(ops: Any, x: Any, weight: Any, bias: Any) -> Any:
        variance, mean = ops.var_mean(x, [1], 0, True)
        return (x - mean) * ops.rsqrt(variance + 1e-5) * weight + bias

    return Case(
        name="layer norm",
        shape=_SHAPE,
        dtype=torch.float32,
        make=lambda data: [
            data.normal(shape, torch.float32) for shape in (_SHAPE, (columns,), (columns,))
        ],
        eager=lambda x, w, b: torch.nn.functional.layer_norm(x, (columns,), w, b),
        define=define,
        outputs=(torch.float32,),
    )


def _twelve_steps() -> Case:
    """Twelve kernels in one definition, on unrelated tensors."""
    shapes = [(8 + n, 64) for n in range(12)]
    return Case(
        name="twelve kernels",
        shape=_SHAPE,
        dtype=torch.float32,
        make=lambda data: [data.normal(shape, torch.float32) for shape in shapes],
        eager=lambda *tensors: [torch.relu(t * 2.0 + 1.0) for t in tensors],
        define=lambda ops, *tensors: [ops.relu(t * 2.0 + 1.0) for t in tensors],
        outputs=(torch.float32,) * 12,
    )


def _wall(call: Call, calls: int, setting: Setting, drain: bool) -> float:
    """Microseconds per call; with `drain` the clock stops after the GPU has finished."""
    _synchronize(setting)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    if drain:
        _synchronize(setting)
    seconds = time.perf_counter() - start
    _synchronize(setting)
    return seconds / calls * 1e6


def _synchronize(setting: Setting) -> None:
    if setting.device.type == "cuda":
        torch.cuda.synchronize(setting.device)


def call_times(setting: Setting, repeats: int = 15, calls: int = 2000) -> list[dict[str, Any]]:
    """Microseconds of a call with all caches warm.

    saturated  `calls` calls without waiting, until the GPU has finished
    batch      100 calls into an empty queue, until the last one is enqueued
    """
    records = []
    for case in (_sum_relu(1), _sum_relu(2), _sum_relu(8), _layer_norm(), _twelve_steps()):
        inputs = case.make(Data(setting.device))
        fd = case.definition(inputs)
        ways: dict[str, Call] = {}
        if "eager" in setting.contenders:
            ways["eager"] = lambda case=case, inputs=inputs: case.eager(*inputs)  # type: ignore[misc]
        torch._dynamo.reset()
        for name in ("compile", "fuser_compile"):
            if name in setting.contenders:
                compiled = torch.compile(case.eager, dynamic=False, **COMPILE[name])
                ways[name] = lambda compiled=compiled, inputs=inputs: compiled(*inputs)  # type: ignore[misc]
        if "fuser" in setting.contenders:
            ways["fuser"] = lambda fd=fd, inputs=inputs: fd.execute(inputs)  # type: ignore[misc]
        record: dict[str, Any] = {"case": case.name, "saturated_us": {}, "batch_us": {}}
        for way in ways.values():
            for _ in range(10):
                way()
        for kind, number, drain in (("saturated_us", calls, True), ("batch_us", 100, False)):
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(repeats):
                for name, way in ways.items():
                    times[name].append(_wall(way, number, setting, drain))
            record[kind] = {name: statistics.median(values) for name, values in times.items()}
        records.append(record)
    return records


def new_shape_times(setting: Setting, shapes: int = 200) -> dict[str, Any]:
    """Microseconds of single calls, each with new inputs and an empty queue.

    new shape  first call with a shape, whose kernel is compiled already
    hit        the second call with it
    eager      its ops one by one; compile: torch.compile(dynamic=True) on other shapes
    """

    def eager(x: Tensor, b: Tensor) -> Tensor:
        return torch.relu(x * 2.0 + b)

    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], True, DataType.Float)
    b = fd.define_tensor([-1], True, DataType.Float)
    fd.add_output(fd.ops.relu(x * 2.0 + b))
    ways: dict[str, Callable[[list[Tensor]], object]] = {"new shape": fd.execute, "hit": fd.execute}
    if "eager" in setting.contenders:
        ways["eager"] = lambda inputs: eager(*inputs)
    if "compile" in setting.contenders:
        torch._dynamo.reset()
        compiled = torch.compile(eager, dynamic=True)
        ways["compile"] = lambda inputs: compiled(*inputs)

    def inputs(rows: int) -> list[Tensor]:
        data = Data(setting.device)
        return [data.normal((rows, 128), torch.float32), data.normal((128,), torch.float32)]

    for rows in (17, 300, 2000):
        for way in ways.values():
            way(inputs(rows))
    before = fuser.cache_info().kernels_compiled
    times: dict[str, list[float]] = {name: [] for name in ways}
    for n in range(shapes):
        for name, way in ways.items():
            arguments = inputs(18 + n)
            _synchronize(setting)
            start = time.perf_counter()
            way(arguments)
            times[name].append((time.perf_counter() - start) * 1e6)
    _synchronize(setting)
    return {
        "median_us": {name: statistics.median(values) for name, values in times.items()},
        "largest_us": {name: max(values) for name, values in times.items()},
        "kernels_compiled_on_the_way": fuser.cache_info().kernels_compiled - before,
    }


# Program of one process: time the imports, and the first call of a definition of one kernel.
_FIRST_CALL = """
import json, sys, time
times = [time.perf_counter()]
import torch
times.append(time.perf_counter())
import fuser
times.append(time.perf_counter())
x = torch.ones(64, 64, device=sys.argv[1]) + 1  # torch's own first calls
if x.is_cuda: torch.cuda.synchronize()
fd = fuser.FusionDefinition()
t = fd.define_tensor([-1, -1], True, fuser.DataType.Float)
fd.add_output(fd.ops.relu(t * 2.0 + 1.0))
times.append(time.perf_counter())
fd.execute([x])
if x.is_cuda: torch.cuda.synchronize()
times.append(time.perf_counter())
info = fuser.cache_info()
print(json.dumps([(b - a) * 1e3 for a, b in zip(times, times[1:])] + [info.kernels_compiled]))
"""


def first_call_times(setting: Setting, repeats: int = 3) -> dict[str, float]:
    """Median milliseconds in new processes: `import fuser` after `import torch`, and the first call
    of a definition of one kernel. Cold: with an empty cache folder. Warm: with the kernel in the
    cache."""

    def process(folder: str) -> list[float]:
        root = str(Path(fuser.__file__).resolve().parents[1])
        environment = {**os.environ, "PYTHONPATH": root, "FUSER_CACHE_DIR": folder}
        command = [sys.executable, "-c", _FIRST_CALL, str(setting.device)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    cold, warm = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(process(folder))
            warm.append(process(folder))
    return {
        "import_ms": statistics.median(times[1] for times in cold + warm),
        "cold_ms": statistics.median(times[3] for times in cold),
        "warm_ms": statistics.median(times[3] for times in warm),
        "warm_compiled": max(times[4] for times in warm),
    }


def tensor_times(setting: Setting, parameters: int = 100, repeats: int = 9) -> dict[str, float]:
    """Microseconds until an Adam step over one small parameter, and over many, is enqueued. Each
    parameter is 4 tensors that are read; 3 of them are written in place."""

    def step(count: int) -> float:
        fd, inputs = FusionDefinition(), []
        for _ in range(count):
            p, g, m, v = (fd.define_tensor([-1], True, DataType.Float) for _ in range(4))
            mean, square = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
            fd.add_output(p - mean / (fd.ops.sqrt(square) + 1e-8) * 1e-3, alias_input=p)
            fd.add_output(mean, alias_input=m)
            fd.add_output(square, alias_input=v)
            inputs += [torch.ones(64, device=setting.device) for _ in range(4)]
        fd.execute(inputs)
        times = [_wall(lambda: fd.execute(inputs), 20, setting, False) for _ in range(repeats)]
        return statistics.median(times)

    return {"tensors": 7 * parameters, "one_us": step(1), "many_us": step(parameters)}


def thread_times(setting: Setting, threads: int = 8, calls: int = 1000) -> dict[str, Any]:
    """Calls per second on known shapes: `threads` threads of `calls` calls each, and one thread
    with as many calls in total.

    A call holds CPython's lock throughout, so no two calls overlap; the loss with threads is the
    cost of passing the lock on. torch releases the lock whenever the last reference to a tensor is
    dropped, which is a system call each time if other threads wait. The rows:

    fuser           the result of each call is dropped at once
    results kept    the results are dropped after the clock has stopped
    python          a call of similar duration without fuser or torch
    tensor dropped  python, plus dropping the last reference to a tensor: torch's cost in `fuser`
    """
    case = _sum_relu(2)
    shapes = [(2 + n % 7, 16 + n % 9) for n in range(60)]
    data = Data(setting.device)
    inputs = [[data.normal(shape, torch.float32) for _ in range(2)] for shape in shapes]
    fd = case.definition(inputs[0])
    numbers = range(400)
    kept: list[object] = []
    some = data.normal((1,), torch.float32)

    def keep(tensors: list[Tensor]) -> None:
        kept.append(fd.execute(tensors))

    def drop(tensors: list[Tensor]) -> None:
        sum(numbers)
        kept.pop()

    ways: dict[str, Callable[[list[Tensor]], object]] = {
        "fuser": fd.execute,
        "fuser, results kept": keep,
        "python": lambda tensors: sum(numbers),
        "python, tensor dropped": drop,
    }
    if "eager" in setting.contenders:
        ways["eager"] = lambda tensors: case.eager(*tensors)

    def rate(way: Callable[[list[Tensor]], object], count: int) -> float:
        kept[:] = [some.detach() for _ in range(threads * calls + count * len(inputs))]
        start = threading.Barrier(count)
        spans: list[tuple[float, float]] = []

        def work() -> None:
            for tensors in inputs:  # the first CUDA call of the thread, and cold caches
                way(tensors)
            start.wait()
            began = time.perf_counter()
            for call in range(threads * calls // count):
                way(inputs[call % len(inputs)])
            spans.append((began, time.perf_counter()))

        workers = [threading.Thread(target=work) for _ in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        _synchronize(setting)
        return threads * calls / (max(end for _, end in spans) - min(begin for begin, _ in spans))

    for way in ways.values():
        rate(way, 1)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(5):
        for name, way in ways.items():
            rates[name].append((rate(way, 1), rate(way, threads)))
    return {
        "threads": threads,
        "alone": {name: statistics.median(a for a, _ in pairs) for name, pairs in rates.items()},
        "together": {name: statistics.median(t for _, t in pairs) for name, pairs in rates.items()},
    }


def compile_times(setting: Setting, quick: bool = False) -> dict[str, Any]:
    """Milliseconds to compile a kernel without any cache, over the pointwise table.

    kernel      in the compiler alone (fuser.cache_info().compile_seconds)
    first call  of execute(), until its result exists
    """
    before = fuser._core.get_option("FUSER_CACHE")
    fuser._core.set_option("FUSER_CACHE", "0")
    rows: list[dict[str, Any]] = []
    try:
        warm = _sum_relu(3)
        warm.definition(inputs := warm.make(Data(setting.device))).execute(inputs)
        for row in TABLE:
            if quick and not row.main:
                continue
            case = row.small()
            inputs = case.make(Data(setting.device))
            fuser.clear_caches()
            fd = case.definition(inputs)
            start = time.perf_counter()
            fd.execute(inputs)
            _synchronize(setting)
            first = (time.perf_counter() - start) * 1e3
            info = fuser.cache_info()
            rows.append(
                {
                    "case": f"{case.name} {str(case.dtype).removeprefix('torch.')}",
                    "kernels": info.kernels_compiled,
                    "kernel_ms": info.compile_seconds * 1e3 / max(1, info.kernels_compiled),
                    "first_call_ms": first,
                }
            )
    finally:
        fuser._core.set_option("FUSER_CACHE", before)
    return {
        "median_kernel_ms": statistics.median(r["kernel_ms"] for r in rows),
        "largest_kernel_ms": max(r["kernel_ms"] for r in rows),
        "median_first_call_ms": statistics.median(r["first_call_ms"] for r in rows),
        "rows": rows,
    }
