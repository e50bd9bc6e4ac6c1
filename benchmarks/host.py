"""Host time: what a call costs the CPU, on tensors so small that the GPU never makes it wait."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import fuser
from benchmarks.case import Case, Data
from benchmarks.harness import Call, Setting
from benchmarks.pointwise import TABLE
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


def _wall(call: Call, calls: int, setting: Setting, drain: bool) -> float:
    """Microseconds a call; with `drain` the clock stops only when the GPU is done."""
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
    """Microseconds a call that finds everything ready.

    saturated  `calls` calls without waiting, until the GPU is done
    batch      100 calls into an empty queue, until the last one is enqueued
    """
    records = []
    for count in (1, 2, 8):
        case = _sum_relu(count)
        inputs = case.make(Data(setting.device))
        fd = case.definition(inputs)
        ways: dict[str, Call] = {}
        if "eager" in setting.contenders:
            ways["eager"] = lambda case=case, inputs=inputs: case.eager(*inputs)  # type: ignore[misc]
        if "compile" in setting.contenders:
            torch._dynamo.reset()
            compiled = torch.compile(case.eager, dynamic=False)
            ways["compile"] = lambda compiled=compiled, inputs=inputs: compiled(*inputs)  # type: ignore[misc]
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


def new_shape_times(setting: Setting, shapes: int = 200) -> dict[str, float]:
    """Microseconds of the first call on a shape whose kernel is compiled already."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], True, DataType.Float)
    b = fd.define_tensor([-1], True, DataType.Float)
    fd.add_output(fd.ops.relu(x * 2.0 + b))

    def inputs(rows: int, columns: int) -> list[Tensor]:
        data = Data(setting.device)
        return [
            data.normal((rows, columns), torch.float32),
            data.normal((columns,), torch.float32),
        ]

    for rows in (17, 300, 2000):
        fd.execute(inputs(rows, 64))
    compiled = fuser.cache_info().kernels_compiled
    times = []
    for n in range(shapes):
        arguments = inputs(18 + n, 128)
        _synchronize(setting)
        start = time.perf_counter()
        fd.execute(arguments)
        times.append((time.perf_counter() - start) * 1e6)
    _synchronize(setting)
    return {
        "median_us": statistics.median(times),
        "largest_us": max(times),
        "kernels_compiled_on_the_way": float(fuser.cache_info().kernels_compiled - compiled),
    }


def compile_times(setting: Setting, quick: bool = False) -> dict[str, Any]:
    """Milliseconds that a kernel takes to compile with no cache anywhere, over the pointwise table.

    kernel      in the compiler alone (fuser.cache_info().compile_seconds)
    first call  of execute(), until its result is there
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
