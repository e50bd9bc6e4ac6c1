"""Time measurement.

The time of a contender is GPU time between two events around one call, with cold L2. Before each
call a buffer of several times the size of L2 is written and then read. Afterwards the L2 holds
neither tensors of the case nor dirty lines. The buffer takes longer than the enqueueing of any
call, so the queue never runs empty and host time does not count. Contenders alternate (A B C, C B
A, ...), so that drifting clocks affect all alike. A copy of equally many bytes is timed under equal
conditions. For cases that mostly read, a read-only kernel is timed too (benchmarks.probe).

A contender that is SLOW times slower than the fastest after a few samples is not sampled again. If
a contender fails or is wrong, it is reported by name and the rest continue.

On the CPU the calls are timed by the wall clock: a functional check, not a benchmark.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import fuser
from benchmarks.case import Case, Data, as_list, case_bytes, error, error_of_norm
from benchmarks.probe import reads
from fuser._native import load_torch
from fuser.inspect.cost import LIMITS

Call = Callable[[], object]

# The last two are fuser: a definition, and torch.compile(backend="fuser").
CONTENDERS = ("eager", "compile", "autotune", "quack", "liger", "fuser", "fuser_compile")
OURS = ("fuser", "fuser_compile")
COMPILE: dict[str, dict[str, Any]] = {
    "compile": {},
    "autotune": {"mode": "max-autotune-no-cudagraphs"},
    "fuser_compile": {"backend": "fuser"},
}
SLOW_TO_COMPILE = ("autotune",)
YARDSTICKS = ("memcpy", "copy kernel", "read torch", "read loads", "read ring")
# Reasons why a contender was not tried.
NOT_INSTALLED, NOT_COMPILED = "not installed", "not compiled before the limit"
SLOW = 3.0
_WARM_UP = 3
_INEXACT = 2.0  # largest error of a contender's norm, in relative tolerances
_FIRST = 5  # samples after which a slow contender is dropped


@dataclass(frozen=True)
class Setting:
    """Device, contenders and number of samples.

    budget   seconds of sampling per case; beyond it a case gets fewer samples, but at least _FIRST
    missing  contenders that cannot be imported, with the reason
    compiled (contender, key of a case) pairs with compiled kernels: contenders of SLOW_TO_COMPILE
             skip all other cases; if None, they compile everything
    """

    device: torch.device
    samples: int = 60
    contenders: tuple[str, ...] = ("eager", "compile", "quack", "liger", "fuser")
    budget: float = float("inf")
    missing: Mapping[str, str] = field(default_factory=dict)
    compiled: Collection[tuple[str, str]] | None = None


class Flush:
    """Evicts L2, and keeps the GPU busy for more than 100 us."""

    def __init__(self, device: torch.device) -> None:
        l2 = torch.cuda.get_device_properties(device).L2_cache_size
        size = max(256 << 20, 3 * l2)
        self._buffer = torch.empty(size // 4, dtype=torch.int32, device=device)
        self._sum = torch.empty((), dtype=torch.int32, device=device)

    def __call__(self) -> None:
        self._buffer.zero_()
        torch.amax(self._buffer, 0, out=self._sum)


@functools.cache
def _flush(device: torch.device) -> Flush:
    return Flush(device)


def measure(calls: Mapping[str, Call], setting: Setting) -> dict[str, list[float]]:
    """Microseconds of each sample of each call."""
    for call in calls.values():
        for _ in range(_WARM_UP):
            call()
    sample = _sample_cuda if setting.device.type == "cuda" else _sample_cpu
    first = min(_FIRST, setting.samples)
    start = time.perf_counter()
    times = sample(calls, setting.device, first)
    seconds_a_round = (time.perf_counter() - start) / first
    worth = {name: calls[name] for name in calls if name not in _slow(times)}
    affordable = min(setting.budget / seconds_a_round, setting.samples)
    more = int(affordable) - first
    if more > 0:
        for name, values in sample(worth, setting.device, more).items():
            times[name] += values
    return times


def _slow(times: Mapping[str, Sequence[float]]) -> set[str]:
    """Contenders too slow for more samples; neither yardsticks nor fuser."""
    us = {name: statistics.median(v) for name, v in times.items() if name not in YARDSTICKS}
    return {name for name in us if name not in OURS and us[name] > SLOW * min(us.values())}


def _rounds(calls: Collection[str], samples: int) -> Iterator[str]:
    for number in range(samples):
        names = list(calls)
        yield from names if number % 2 == 0 else reversed(names)


def _sample_cuda(
    calls: Mapping[str, Call], device: torch.device, samples: int
) -> dict[str, list[float]]:
    flush = _flush(device)
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {n: [] for n in calls}
    torch.cuda.synchronize(device)
    for name in _rounds(calls, samples):
        start = torch.cuda.Event(enable_timing=True)
        stop = torch.cuda.Event(enable_timing=True)
        flush()
        start.record()
        calls[name]()
        stop.record()
        events[name].append((start, stop))
    torch.cuda.synchronize(device)
    return {n: [a.elapsed_time(b) * 1e3 for a, b in pairs] for n, pairs in events.items()}


def _sample_cpu(
    calls: Mapping[str, Call], device: torch.device, samples: int
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name in _rounds(calls, samples):
        start = time.perf_counter()
        calls[name]()
        times[name].append((time.perf_counter() - start) * 1e6)
    return times


def copies(total_bytes: int, device: torch.device) -> dict[str, Call]:
    """Two copies that move `total_bytes`, reads plus writes; the faster one is the yardstick.

    memcpy is the driver's: copy_ of equal layouts is cudaMemcpyAsync. The copy kernel is torch's
    vectorized elementwise kernel with one cheap op.
    """
    count = max(1, total_bytes // 8)  # int32 elements of the source
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
    """Time one copy as two contenders, and an empty call: the resolution of the method."""
    copy = copies(total_bytes, setting.device)["memcpy"]
    calls: dict[str, Call] = {"once": copy, "again": copy, "empty": lambda: None}
    us = {name: median(times) for name, times in measure(calls, setting).items()}
    return {
        "copy_us": us["once"],
        "copy_GBps": total_bytes / us["once"] / 1e3,
        "again_over_once": us["again"] / us["once"],
        "empty_us": us["empty"],
    }


@contextmanager
def watch_compilation() -> Iterator[dict[str, float]]:
    """Milliseconds of NVRTC by kernel text while the context is open. Kernels of a batch are
    compiled in parallel, which doubles the time of each: see time_alone()."""
    from fuser.runtime import toolkit

    times: dict[str, float] = {}
    compile_text = toolkit.compile

    def timed(name: str, text: str, arch: int, extra: Sequence[str] = ()) -> toolkit.Compiled:
        compiled = compile_text(name, text, arch, extra)
        times[text] = compiled.seconds * 1e3
        return compiled

    toolkit.compile = timed
    try:
        yield times
    finally:
        toolkit.compile = compile_text


_ALONE = 3  # recompile every third kernel only


def time_alone(times: dict[str, float], arch: int) -> None:
    """Compile every third of these texts again, one after the other, while watch_compilation() is
    open. Discard the other times: times of a batch measure how busy the cores were."""
    from fuser.runtime import toolkit

    texts = sorted(times)[::_ALONE]
    times.clear()
    for text in texts:
        toolkit.compile("alone", text, arch)


_BATCH_BYTES = 24 << 30  # total bytes of the inputs of one batch


def build(cases: Sequence[Case], setting: Setting) -> int:
    """Compile fuser's kernels of all cases in few batches, and return the number of compiled
    kernels. Cases that cannot be built are left to run_case, which reports them."""
    before = fuser.cache_info().kernels_compiled
    batch: list[tuple[Any, list[Tensor]]] = []
    size = 0
    for case in cases:
        try:
            inputs = case.make(Data(setting.device))
            batch.append((case.definition(inputs).fec.executor, inputs))
        except Exception:
            continue
        size += sum(t.nbytes for t in inputs)
        if size > _BATCH_BYTES:
            _build(batch)
            batch, size = [], 0
    _build(batch)
    return fuser.cache_info().kernels_compiled - before


def _build(batch: Sequence[tuple[Any, list[Tensor]]]) -> None:
    try:
        load_torch().compile_batch(batch)
    except Exception:
        # One executor of the batch fails: compile each separately, so that the rest are compiled.
        def alone(executor: Any, inputs: list[Tensor]) -> None:
            with suppress(Exception):
                executor.kernels(inputs)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda pair: alone(*pair), batch))


def run_case(
    case: Case, setting: Setting, compile_ms: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Compare every contender with float64, then time the contenders and a copy.

    `failed` of the record has by contender the reason for a missing time. fuser has no time if an
    element exceeds the tolerance. Other contenders are then `inexact` by that multiple of it, and
    `wrong` if the norm of their error is too large: eager rounds to half after each op. compile_ms:
    see watch_compilation().
    """
    inputs = case.make(Data(setting.device))
    record: dict[str, Any] = {
        "case": case.name,
        "dtype": str(case.dtype).removeprefix("torch."),
        "shape": list(case.shape),
        "goal": vars(case.goal),
        "errors": {},
        "us": {},
        "failed": {},
        "inexact": {},
        "wrong": {},
    }
    fd: list[fuser.FusionDefinition] = []
    ways = _correct_ways(case, setting, inputs, record, fd)
    if "fuser" in ways:
        record["kernels"] = [_kernel(k, compile_ms or {}) for k in fd[0].fec.executor.kernels()]
        record["bounds_us"] = _bounds(fd[0], inputs)

    calls = copies(record["bytes"], setting.device)
    if case.reads:
        calls |= reads(record["bytes"], setting.device)
    for name, way in ways.items():
        calls[name] = _bound(way, inputs)
    times = measure(calls, setting)
    us = record["us"] = {name: median(values) for name, values in times.items()}
    record["samples"] = {name: len(values) for name, values in times.items()}
    record["spread"] = {name: round(spread(values), 4) for name, values in times.items()}
    record["copy_us"] = min(us["memcpy"], us["copy kernel"])
    if case.reads:
        record["probe_us"] = min(value for name, value in us.items() if name.startswith("read "))
    return record


Way = Callable[..., Any]  # computes a case from its inputs, as one contender


def _correct_ways(
    case: Case,
    setting: Setting,
    inputs: list[Tensor],
    record: dict[str, Any],
    fd: list[fuser.FusionDefinition],
) -> dict[str, Way]:
    """Run each contender once, compare it with float64, and return the ones to time. Findings go
    into the record, fuser's definition into `fd`."""
    expected = case.reference(inputs)
    record["bytes"] = case_bytes(case, inputs, expected)
    ways: dict[str, Way] = {}
    torch._dynamo.reset()  # or it would count the cases as recompilations of one function
    for name in setting.contenders:
        if name in setting.missing and name in case.peers:
            record["failed"][name] = NOT_INSTALLED
            continue
        if name in SLOW_TO_COMPILE and not _compiled(name, case, setting):
            record["failed"][name] = NOT_COMPILED
            continue
        _poison(expected, case)
        start = time.perf_counter()
        try:
            way = way_of(name, case, inputs, fd)
            if way is None:
                continue
            results = case.results(way, inputs)
            found = error(results, expected, case.bounds)
        except Exception as failure:
            record["failed"][name] = f"{type(failure).__name__}: {str(failure).strip()[:300]}"
            continue
        record.setdefault("first_call_ms", {})[name] = (time.perf_counter() - start) * 1e3
        if _is_fit(name, results, expected, found, record):
            ways[name] = way
        del results  # frees their memory, which _poison() fills for the next contender
    return ways


def _is_fit(
    name: str,
    results: list[Tensor | None],
    expected: list[Tensor],
    found: tuple[float, float],
    record: dict[str, Any],
) -> bool:
    """Return True if the contender is timed: always, except for wrong results of fuser. `found`:
    result of error()."""
    largest, share = found
    record["errors"][name] = {"largest": largest, "of_tolerance": share}
    lacking = sum(result is None for result in results)
    if lacking:
        record.setdefault("lacking", {})[name] = lacking
    if share <= 1.0:
        return True
    if name == "fuser":
        record["failed"][name] = f"off by {largest:g}, {share:g} of the tolerance"
        return False
    as_a_whole = error_of_norm(results, expected)
    record["inexact" if as_a_whole <= _INEXACT else "wrong"][name] = share
    return True


def _compiled(name: str, case: Case, setting: Setting) -> bool:
    return setting.compiled is None or (name, case.key) in setting.compiled


def way_of(
    name: str, case: Case, inputs: list[Tensor], fd: list[fuser.FusionDefinition]
) -> Way | None:
    """The contender's function for the case, or None if it has no kernel for it. fuser's definition
    goes into `fd`."""
    if name == "eager":
        return case.eager
    if name in COMPILE:
        return torch.compile(case.compiled or case.eager, dynamic=False, **COMPILE[name])
    if name == "fuser":
        fd.append(case.definition(inputs))
        return lambda *tensors: fd[0].execute(tensors)
    if name not in case.peers:
        return None
    call = case.peers[name](*inputs)
    return lambda *_: as_list(call())


def _bounds(fd: fuser.FusionDefinition, inputs: list[Tensor]) -> dict[str, float]:
    """Predicted times of the cost model (fuser.inspect.cost): in all, and by limiting factor.
    `passes`: bytes moved over bytes that must move.
    """
    found = fuser.explain(fd, inputs)
    steps = [(step.kind, step.bytes, step.slots) for step in found.steps]
    parts = [found.machine.parts(*step) for step in steps]
    return {
        "predicted": found.predicted_us,
        **{name: sum(getattr(part, name) for part in parts) for name in LIMITS},
        "passes": found.bytes / max(1, found.ideal_bytes),
    }


def _kernel(kernel: Any, compile_ms: Mapping[str, float]) -> dict[str, Any]:
    built = compile_ms.get(kernel.text, kernel.build_seconds * 1e3)
    return {
        "name": kernel.name,
        "plan": kernel.plan,
        "registers": kernel.registers,
        "local_bytes": kernel.local_bytes,
        "grid": kernel.grid,
        "threads": kernel.threads,
        "compile_ms": round(built, 1) or None,  # null if loaded from disk
    }


def _bound(way: Callable[..., Any], inputs: list[Tensor]) -> Call:
    return lambda: way(*inputs)


def _poison(expected: list[Tensor], case: Case) -> None:
    """Fill the memory that the allocator will return next with NaN, so that an unwritten result
    cannot be correct by chance."""
    for reference, dtype in zip(expected, case.outputs, strict=False):
        size = reference.numel() * dtype.itemsize
        torch.full((size,), 255, dtype=torch.uint8, device=reference.device)
