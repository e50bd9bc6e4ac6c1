"""Measured times: steps of a definition from torch's profiler, by name, and complete runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from fuser.definition import FusionDefinition

# names of profiler ranges; _STEP equals the prefix in csrc/torch/profile
_CALL, _STEP = "fuser.inspect.measure call", "fuser: "


@dataclass(frozen=True)
class Span:
    """A range of a timeline, in microseconds from the start of its call."""

    name: str
    lane: str  # "CPU" or "GPU"
    start: float
    stop: float


@dataclass(frozen=True)
class Measured:
    """Times of several calls of a definition."""

    # median time of each step, on the GPU if it runs there, otherwise on the CPU
    step_us: tuple[float, ...]
    call_us: float  # median time from the call until its results are ready
    timeline: tuple[Span, ...]  # timeline of the call with the median time

    @property
    def kernel_time_ms(self) -> float:
        """Time of all steps in milliseconds, under nvFuser's name."""
        return sum(self.step_us) / 1000

    @property
    def host_time_ms(self) -> float:
        """Time of the complete call in milliseconds, under nvFuser's name."""
        return self.call_us / 1000


def measure(
    fd: FusionDefinition, inputs: Sequence[Any], device: Any = None, calls: int = 9
) -> Measured:
    """Runs fd `calls` times and returns the times; on a GPU, L2 is flushed before each call. Runs
    in-place inputs on copies and restores the random generator.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    cuda = [t for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda]
    inputs = _own(fd, inputs)
    flush = _flush(cuda[0].device) if cuda else (lambda: None)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with torch.random.fork_rng(devices=[t.device for t in cuda[:1]]):
        for _ in range(2):
            fd.execute(inputs, device=device)
        with profile(activities=activities, acc_events=True) as found:
            for _ in range(calls):
                flush()
                with record_function(_CALL):
                    fd.execute(inputs, device=device)
                    if cuda:
                        torch.cuda.synchronize(cuda[0].device)
    return _read(list(found.events() or []), on_gpu=bool(cuda))


def profiled(
    run: Callable[..., Any], inputs: Sequence[Any], device: Any, plans: Any
) -> tuple[Any, Measured]:
    """Returns the results and times of one run."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    cuda = [t for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda]
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as found, record_function(_CALL):
        results = run(inputs, device, plans)
        if cuda:
            torch.cuda.synchronize(cuda[0].device)
    return results, _read(list(found.events() or []), on_gpu=bool(cuda))


def timer(
    fd: FusionDefinition, inputs: Sequence[Any], device: Any = None, calls: int = 9
) -> Callable[[Any], float]:
    """Returns a function that maps plans, in the executor's form, to the median seconds of `calls`
    runs: GPU time with flushed L2, or CPU time. Treats inputs and generator as measure() does.
    """
    import torch

    cuda = [t.device for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda][:1]
    inputs = _own(fd, inputs)
    flush = _flush(cuda[0]) if cuda else (lambda: None)
    run, event = fd.fec.executor.execute, cast(Any, torch.cuda.Event)

    def once(plans: Any) -> float:
        if not cuda:
            start = time.perf_counter()
            run(inputs, device, plans)
            return time.perf_counter() - start
        begin, end = event(enable_timing=True), event(enable_timing=True)
        flush()
        begin.record()
        run(inputs, device, plans)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    def median(plans: Any) -> float:
        with torch.random.fork_rng(devices=cuda), torch.cuda.device(cuda[0] if cuda else -1):
            run(inputs, device, plans)
            return _median(once(plans) for _ in range(calls))

    return median


def processor_of(inputs: Sequence[Any]) -> str:
    """The name of the GPU of the inputs, or "cpu"."""
    import torch

    cuda = [t.device for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda]
    return torch.cuda.get_device_name(cuda[0]) if cuda else "cpu"


def _own(fd: FusionDefinition, inputs: Sequence[Any]) -> list[Any]:
    """The inputs, with copies of the in-place ones."""
    from fuser.debug.interpreter import one_by_one

    records = fd.fusion.records()
    written = {alias for _, alias in records["outputs"] if alias >= 0}
    given = one_by_one(records, inputs)
    return [
        value.clone() if is_tensor and index in written else value
        for value, (is_tensor, index, _) in zip(given, records["arguments"], strict=True)
    ]


def _flush(device: Any) -> Callable[[], Any]:
    import torch

    l2 = torch.cuda.get_device_properties(device).L2_cache_size
    return torch.empty(max(256 << 20, 3 * l2), dtype=torch.uint8, device=device).zero_


def _read(events: list[Any], on_gpu: bool) -> Measured:
    from fuser.adapters.torch_compat import DeviceType

    # A range also appears as a GPU event, from its first kernel to its last.
    steps = sorted((e for e in events if e.name.startswith(_STEP)), key=_start)
    calls = []
    for call in (e for e in events if e.name == _CALL and e.device_type == DeviceType.CPU):
        inside = [e for e in steps if _within(e, call)]
        here = [e for e in inside if e.device_type == DeviceType.CPU]
        calls.append((call, here, [e for e in inside if e.device_type == DeviceType.CUDA]))
    us = [
        [e.time_range.elapsed_us() for e in (there if on_gpu else here)] for _, here, there in calls
    ]
    calls.sort(key=lambda c: c[0].time_range.elapsed_us())
    call, here, there = calls[len(calls) // 2]
    spans = [_span(e, "CPU", call) for e in here] + [_span(e, "GPU", call) for e in there]
    return Measured(
        step_us=tuple(_median(times) for times in zip(*us, strict=True)),
        call_us=_median(c[0].time_range.elapsed_us() for c in calls),
        timeline=tuple(spans),
    )


def _start(event: Any) -> float:
    return float(event.time_range.start)


def _within(event: Any, call: Any) -> bool:
    return bool(call.time_range.start <= event.time_range.start <= call.time_range.end)


def _span(event: Any, lane: str, call: Any) -> Span:
    start, stop = event.time_range.start, event.time_range.end
    begin = call.time_range.start
    return Span(event.name.removeprefix(_STEP), lane, start - begin, stop - begin)


def _median(times: Iterable[float]) -> float:
    # imports fractions and decimal, a tenth of the time of `import fuser`
    from statistics import median

    return median(times)
