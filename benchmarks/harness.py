"""How things are timed.

The time of a contender is time on the GPU between two events around one call, with cold L2: before
each call a buffer several times the size of L2 is written and then read, so that its lines are
neither ours nor dirty. That takes longer than any call takes to enqueue, so the queue never runs
dry and host time does not count. Contenders take turns (A B C, C B A, ...), so that drift of clocks
meets all alike. Beside them runs a copy of the same number of bytes, under the same conditions.

On the CPU the same calls are timed by the wall clock: a check that everything works, not a result.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.case import Case, Data, error, moved_bytes

Call = Callable[[], object]

CONTENDERS = ("eager", "compile", "fuser")
_WARM_UP = 3


@dataclass(frozen=True)
class Setting:
    """Where and how often to measure."""

    device: torch.device
    samples: int = 60
    contenders: tuple[str, ...] = CONTENDERS


class Flush:
    """Empties L2, and keeps the GPU busy for more than 100 us."""

    def __init__(self, device: torch.device) -> None:
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        size = max(256 << 20, 3 * l2)
        self._buffer = torch.empty(size // 4, dtype=torch.int32, device=device)
        self._sum = torch.empty((), dtype=torch.int32, device=device)

    def __call__(self) -> None:
        self._buffer.zero_()
        torch.amax(self._buffer, 0, out=self._sum)


def measure(calls: dict[str, Call], setting: Setting) -> dict[str, list[float]]:
    """Microseconds of each sample of each call."""
    for call in calls.values():
        for _ in range(_WARM_UP):
            call()
    return (_measure_cuda if setting.device.type == "cuda" else _measure_cpu)(calls, setting)


def _rounds(calls: dict[str, Call], samples: int) -> Any:
    for number in range(samples):
        names = list(calls)
        yield from names if number % 2 == 0 else reversed(names)


def _measure_cuda(calls: dict[str, Call], setting: Setting) -> dict[str, list[float]]:
    flush = Flush(setting.device)
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {n: [] for n in calls}
    torch.cuda.synchronize(setting.device)
    for name in _rounds(calls, setting.samples):
        start = torch.cuda.Event(enable_timing=True)
        stop = torch.cuda.Event(enable_timing=True)
        flush()
        start.record()
        calls[name]()
        stop.record()
        events[name].append((start, stop))
    torch.cuda.synchronize(setting.device)
    return {n: [a.elapsed_time(b) * 1e3 for a, b in pairs] for n, pairs in events.items()}


def _measure_cpu(calls: dict[str, Call], setting: Setting) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name in _rounds(calls, setting.samples):
        start = time.perf_counter()
        calls[name]()
        times[name].append((time.perf_counter() - start) * 1e6)
    return times


def copies(total_bytes: int, device: torch.device) -> dict[str, Call]:
    """Two copies that read and write `total_bytes` together; the faster one is the yardstick.

    memcpy is the driver's: copy_ of equal layouts is cudaMemcpyAsync. The copy kernel is torch's
    vectorized elementwise kernel, doing next to nothing.
    """
    count = max(1, total_bytes // 8)  # int32 elements of one side
    source = torch.randint(-(2**31), 2**31 - 1, (count,), dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    return {
        "memcpy": lambda: target.copy_(source),
        "copy kernel": lambda: torch.bitwise_not(source, out=target),
    }


def median(times: list[float]) -> float:
    return statistics.median(times)


def spread(times: list[float]) -> float:
    """Distance between the quartiles over the median."""
    if len(times) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / middle if middle else 0.0


def method_check(setting: Setting, total_bytes: int = 512 << 20) -> dict[str, float]:
    """A copy measured against itself, and against nothing: what the method cannot tell apart."""
    copy = copies(total_bytes, setting.device)["memcpy"]
    calls: dict[str, Call] = {"once": copy, "again": copy, "empty": lambda: None}
    us = {name: median(times) for name, times in measure(calls, setting).items()}
    return {
        "copy_us": us["once"],
        "copy_GBps": total_bytes / us["once"] / 1e3,
        "again_over_once": us["again"] / us["once"],
        "empty_us": us["empty"],
    }


def run_case(case: Case, setting: Setting) -> dict[str, Any]:
    """Checks every contender against float64, then times them beside a copy."""
    inputs = case.make(Data(setting.device))
    fd = case.definition(inputs)
    ways: dict[str, Callable[..., Any]] = {}
    if "eager" in setting.contenders:
        ways["eager"] = case.eager
    if "compile" in setting.contenders:
        torch._dynamo.reset()
        ways["compile"] = torch.compile(case.eager, dynamic=False)
    if "fuser" in setting.contenders:
        ways["fuser"] = lambda *tensors: fd.execute(tensors)

    record: dict[str, Any] = {
        "case": case.name,
        "dtype": str(case.dtype).removeprefix("torch."),
        "shape": list(case.shape),
        "errors": {},
        "us": {},
    }
    expected = case.reference(inputs)
    for name, way in list(ways.items()):
        _poison(expected, case)
        start = time.perf_counter()
        try:
            results = case.results(way, inputs)
        except Exception as failure:
            if name == "fuser":
                raise
            record["errors"][name] = f"{type(failure).__name__}: {str(failure)[:200]}"
            del ways[name]
            continue
        record.setdefault("first_call_ms", {})[name] = (time.perf_counter() - start) * 1e3
        largest, share = error(results, expected)
        record["errors"][name] = {"largest": largest, "of_tolerance": share}
        if name == "fuser" and not share <= 1.0:
            raise AssertionError(
                f"{case.key}: fuser is off by {largest:g}, {share:g} of the tolerance"
            )
        record["bytes"] = moved_bytes(inputs, results)
        del results
    del expected
    if "fuser" in ways:
        record["kernels"] = [
            {"plan": k.plan, "registers": k.registers, "local_bytes": k.local_bytes, "grid": k.grid}
            for k in fd.fec.executor.kernels()
        ]

    calls = copies(record["bytes"], setting.device)
    for name, way in ways.items():
        calls[name] = _bound(way, inputs)
    times = measure(calls, setting)
    record["us"] = {name: median(values) for name, values in times.items()}
    record["spread"] = {name: round(spread(values), 4) for name, values in times.items()}
    record["copy_us"] = min(record["us"]["memcpy"], record["us"]["copy kernel"])
    return record


def _bound(way: Callable[..., Any], inputs: list[Tensor]) -> Call:
    return lambda: way(*inputs)


def _poison(expected: list[Tensor], case: Case) -> None:
    """Fills the memory that the allocator will hand out next with NaN, so that a result that was
    never written cannot look right.
    """
    for reference, dtype in zip(expected, case.outputs, strict=True):
        size = reference.numel() * dtype.itemsize
        torch.full((size,), 255, dtype=torch.uint8, device=reference.device)
