"""Training steps of networks: time, peak memory and the first step, in eager mode, compiled by
Inductor, and compiled by fuser.

    python -m benchmarks.models                               all networks
    python -m benchmarks.models bert4 unet --contenders eager fuser --json FILE

Each network runs in its own process, which warms up all contenders. Once the processes of a batch
(--jobs) are ready, they are timed one after another. A step is forward, backward and SGD. The first
step is split into Dynamo, AOTAutograd (trace and partition), and the rest: the compiler itself by
phases, and the step. The compiler's time is the first step minus the first two. Contenders
alternate; the time is the median over rounds of steps by the wall clock, so it includes host time.
"GPU ms" is the kernel time of a step, from torch's profiler in further steps, which also counts the
kernels. "host ms" is the time until a step returns on an idle GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import compilation_time_metrics

from benchmarks.networks import NETWORKS, Network
from benchmarks.report import table
from fuser.adapters import report

CONTENDERS = ("eager", "inductor", "fuser")
_WARM_UP = 3

# Columns of the table: field of a record, and its format.
_FIELDS = {
    "ms": ("ms", ".2f"),
    "GPU ms": ("gpu_ms", ".2f"),
    "host ms": ("host_ms", ".2f"),
    "kernels": ("launches", ".0f"),
    "MB": ("mb", ".0f"),
    "first s": ("first_s", ".1f"),
}


def compiled(module: torch.nn.Module, contender: str) -> Callable[..., Any]:
    """The module compiled by a contender."""
    if contender == "eager":
        return module
    if contender == "fuser":
        from fuser.adapters.dynamo import backend

        return torch.compile(module, backend=backend)
    return torch.compile(module, backend=contender)


def training_step(network: Network, run: Callable[..., Any]) -> Callable[[], torch.Tensor]:
    """One step of SGD, which returns the loss."""
    device = network.inputs[0].device
    optimizer = torch.optim.SGD(network.module.parameters(), 1e-3)

    def step() -> torch.Tensor:
        with torch.autocast(device.type, network.autocast, network.autocast is not None):
            loss: torch.Tensor = run(*network.inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(step: Callable[[], Any], device: torch.device, steps: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step()
    _synchronize(device)
    return (time.perf_counter() - start) / steps


def _host_ms(step: Callable[[], Any], device: torch.device, steps: int = 5) -> float:
    """Median milliseconds until a step returns; each starts on an idle device."""
    if device.type != "cuda":
        return math.nan
    times = []
    for _ in range(steps):
        _synchronize(device)
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    _synchronize(device)
    return statistics.median(times)


def _peak(step: Callable[[], Any], device: torch.device) -> float:
    """Peak memory of a step in megabytes."""
    if device.type != "cuda":
        return math.nan
    torch.cuda.reset_peak_memory_stats(device)
    step()
    _synchronize(device)
    return torch.cuda.max_memory_allocated(device) / 1e6


def _kernels(
    step: Callable[[], Any], device: torch.device, steps: int = 3
) -> tuple[dict[str, float], float]:
    """Milliseconds of each kernel per step, the longest first, and the number of launches per
    step."""
    if device.type != "cuda":
        return {}, 0
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(steps):
            step()
        _synchronize(device)
    times: Counter[str] = Counter()
    launches = 0
    for event in profiled.key_averages():
        if event.self_device_time_total > 0:
            times[event.key] += event.self_device_time_total / 1e3 / steps
            launches += event.count
    return dict(times.most_common()), launches / steps


def parts_of_first(total: float, seen: report.ModelReport) -> dict[str, float]:
    """Seconds of a first step by phase, from torch's clocks and the graphs in `seen`. Phases:
    Dynamo, AOTAutograd, the compiler, its phases if it has clocks for them. The rest is the step
    itself and, for Inductor, the kernels that it tunes."""
    clocks = {name: sum(seconds) for name, seconds in compilation_time_metrics.items()}
    forward = clocks.get("compile_fx.<locals>.fw_compiler_base", 0.0)
    backward = clocks.get("compile_fx.<locals>.bw_compiler", 0.0)
    phases = Counter({"graphs": forward + backward} if forward else {})
    for graph in seen.graphs:
        phases.update(graph.seconds)
        spent = sum(graph.seconds.values())
        if graph.name == "backward":
            backward += spent
        else:
            forward += spent
    called = clocks.get("OutputGraph.call_user_compiler", 0.0)
    # torch may compile a backward graph lazily, in the first backward pass.
    late = clocks.get("backward._backward_impl", 0.0) > 0
    front = {
        "dynamo": clocks.get("_compile.compile_inner", 0.0) - called,
        "aotautograd": called - forward - (0.0 if late else backward),
    }
    own = total - sum(front.values())
    return front | {"own": own, **phases, "rest": own - sum(phases.values())}


def measure(
    name: str, options: argparse.Namespace, ready: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The record of one network; `ready` is called between warm-up and timing."""
    device = torch.device(options.device)
    torch.manual_seed(0)
    network = NETWORKS[name](device, options.small)
    steps: dict[str, Callable[[], torch.Tensor]] = {}
    record: dict[str, Any] = {"network": name, "source": network.source, "failed": {}}
    for field in ("first_s", "parts_s", "ms", "gpu_ms", "host_ms", "launches", "mb", "kernels"):
        record[field] = {}
    for contender in options.contenders:
        try:
            step = training_step(network, compiled(network.module, contender))
            compilation_time_metrics.clear()
            with report.recording() as seen:
                first = record["first_s"][contender] = _seconds(step, device)
                if contender != "eager":
                    record["parts_s"][contender] = parts_of_first(first, seen)
            if contender == "fuser":
                record["kept_mb"] = sum(graph.kept for graph in seen.graphs) / 1e6
                _seconds(step, device, _WARM_UP)
        except Exception as error:
            traceback.print_exc()
            record["failed"][contender] = f"{type(error).__name__}: {error}".split("\n")[0]
            continue
        for graph in seen.graphs:
            for ops, why in graph.fallbacks:
                record["failed"][f"a region of {len(ops)} ops"] = why
        steps[contender] = step
    ready()
    rounds: dict[str, list[float]] = {contender: [] for contender in steps}
    for _ in range(options.rounds):
        for contender, step in steps.items():
            rounds[contender].append(_seconds(step, device, options.steps) * 1e3)
    for contender, step in steps.items():
        record["ms"][contender] = statistics.median(rounds[contender])
        record["mb"][contender] = _peak(step, device)
        record["host_ms"][contender] = _host_ms(step, device)
    for contender, step in steps.items():
        kernels, record["launches"][contender] = _kernels(step, device)
        record["gpu_ms"][contender] = sum(kernels.values())
        record["kernels"][contender] = dict(list(kernels.items())[: options.kernels])
    return record


def _worker(name: str, options: argparse.Namespace, pipe: Connection) -> None:
    def ready() -> None:
        pipe.send("ready")
        pipe.recv()

    try:
        pipe.send(measure(name, options, ready))
    except Exception as error:
        traceback.print_exc()
        pipe.send({"network": name, "failed": {"all": f"{type(error).__name__}: {error}"}})


def _together(names: Sequence[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Warm up the networks in parallel; yield each record when it is complete."""
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    processes = []
    for name in names:
        pipes[name], theirs = context.Pipe()
        processes.append(context.Process(target=_worker, args=(name, options, theirs)))
        processes[-1].start()
        theirs.close()
    waiting = dict(pipes)
    end = time.monotonic() + options.patience
    ready = []
    while waiting and (left := end - time.monotonic()) > 0:
        for name in [n for n, p in waiting.items() if p in wait(list(waiting.values()), left)]:
            del waiting[name]
            message = _received(name, pipes[name])
            if message == "ready":
                ready.append(name)
            else:
                yield message
    for name in waiting:
        yield {"network": name, "failed": {"all": f"not ready in {options.patience} s"}}
    for name in ready:
        pipes[name].send("go")
        yield _received(name, pipes[name])
    for process in processes:
        process.kill()
        process.join()


def _received(name: str, pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return {"network": name, "failed": {"all": "its process ended"}}


def rows(records: Sequence[dict[str, Any]], contenders: Sequence[str]) -> list[list[str]]:
    """Table rows: the columns of `_FIELDS` for each contender, and fuser's speedup."""
    lines = []
    for record in records:
        cells = [record["network"], record.get("source", "-")]
        for field, form in _FIELDS.values():
            values = record.get(field, {})
            cells += [format(values[c], form) if c in values else "-" for c in contenders]
        ms = record.get("ms", {})
        for other in ("eager", "inductor"):
            both = other in ms and "fuser" in ms
            cells.append(f"{ms[other] / ms['fuser']:.2f}" if both else "-")
        cells.append("; ".join(f"{k}: {v}"[:80] for k, v in record.get("failed", {}).items()))
        lines.append(cells)
    return lines


def _report(records: Sequence[dict[str, Any]], options: argparse.Namespace) -> str:
    contenders = options.contenders
    header = ["network", "of"]
    for unit in _FIELDS:
        header += [f"{c} {unit}" for c in contenders]
    text = table([*header, "x eager", "x inductor", "failed"], rows(records, contenders))
    for other in ("eager", "inductor"):
        ratios = [
            r["ms"][other] / r["ms"]["fuser"]
            for r in records
            if other in r.get("ms", {}) and "fuser" in r.get("ms", {})
        ]
        if ratios:
            text += f"\n{statistics.geometric_mean(ratios):.3f} x {other}, geometric mean"
    for record in records:
        for contender, parts in record.get("parts_s", {}).items():
            text += f"\n{record['network']}, {contender}: first step, s: "
            text += ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items())
        if "kept_mb" in record:
            text += f"\n{record['network']}, fuser: {record['kept_mb']:.1f} MB kept for backward"
    for record in records if options.kernels else ():
        for contender, kernels in record.get("kernels", {}).items():
            text += f"\n{record['network']}, {contender}: ms of kernels in a step"
            text += "".join(f"\n{ms:8.3f} {name[:100]}" for name, ms in kernels.items())
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="two layers, few inputs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="steps of a round")
    parser.add_argument("--jobs", type=int, default=4, help="networks that warm up at once")
    parser.add_argument("--patience", type=float, default=900, help="seconds to warm up in")
    parser.add_argument("--kernels", type=int, default=0, help="print so many kernels of each")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if unknown := sorted(set(options.networks) - set(NETWORKS)):
        parser.error(f"no network {', '.join(unknown)}; expected some of {', '.join(NETWORKS)}")
    records: list[dict[str, Any]] = []
    for start in range(0, len(options.networks), options.jobs):
        for record in _together(options.networks[start : start + options.jobs], options):
            records.append(record)
            if options.json:
                options.json.write_text(json.dumps(records, indent=1))
    print(_report(records, options))


if __name__ == "__main__":
    main()
