"""Training steps and inference of networks: times, memory and the first step of torch.compile's
backends.

    python -m benchmarks.models                                 all networks
    python -m benchmarks.models bert4 unet --contenders eager fuser --json FILE
    python -m benchmarks.models --json FILE --limit 480         as many as fit into 480 seconds
    python -m benchmarks.models --json FILE --part 1/4          every fourth network
    python -m benchmarks.models --json FILE --report            tables of a file, nothing measured

A step is forward, backward and SGD, or one call without gradients. FILE keeps each result, so the
same command continues. Networks of packages that are missing are named at the end.

Each network has its own process, which measures one contender after another. All processes compile
and warm up together (--jobs); once all wait, each is timed alone. Tables:

- GPU ms: time of the kernels of a step, from torch's profiler
- wall ms: median over rounds of steps
- MB: most bytes allocated during a step beyond those before the network was made. Memory inside of
  a CUDA graph is not allocated in a replay, so "MB reserved" counts the memory of torch's allocator
- first s: the first step, compiled with empty caches; later contenders of the same compiler find
  some kernels of earlier ones

Ratios compare the best of Inductor's modes with the best of fuser's.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import math
import multiprocessing
import os
import statistics
import tempfile
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

# Arguments of torch.compile; None: eager mode.
CONTENDERS: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "inductor": {"backend": "inductor"},
    "reduce-overhead": {"backend": "inductor", "mode": "reduce-overhead"},
    "max-autotune": {"backend": "inductor", "mode": "max-autotune"},
    "fuser": {"backend": "fuser"},
    "fuser-graphs": {"backend": "fuser", "options": {"cudagraphs": True}},
    "inductor-freezing": {
        "backend": "inductor",
        "options": {"freezing": True, "triton.cudagraphs": True},
    },
    "fuser-freezing": {"backend": "fuser", "options": {"freezing": True, "cudagraphs": True}},
}
DEFAULT = ("eager", "inductor", "reduce-overhead", "fuser", "fuser-graphs")
_WARM_UP = 4  # CUDA graphs are recorded in the third run
_ROUND_S = 0.1  # length of a round of steps
_MOST_STEPS = 140  # of all rounds; the caches of decoding networks hold so many words

# Tables: title, field of a record, format.
_TABLES = (
    ("GPU ms", "gpu_ms", ".3f"),
    ("wall ms", "ms", ".2f"),
    ("host ms", "host_ms", ".2f"),
    ("kernels", "launches", ".0f"),
    ("MB", "mb", ".0f"),
    ("MB reserved", "reserved_mb", ".0f"),
    ("first s", "first_s", ".1f"),
)
# Tables with a ratio; a smaller number is better in each.
_COMPARED = ("gpu_ms", "ms", "mb", "reserved_mb", "first_s")

Record = dict[str, Any]


def compiled(module: torch.nn.Module, contender: str) -> Callable[..., Any]:
    """The module compiled by a contender."""
    arguments = CONTENDERS[contender]
    return module if arguments is None else torch.compile(module, **arguments)


def step_of(network: Network, run: Callable[..., Any]) -> Callable[[], Any]:
    """One step of SGD, which returns the loss; for inference one call."""
    if not network.trains:

        def call() -> Any:
            with torch.no_grad():
                return run(*network.inputs)

        return call
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
    times = []
    for _ in range(steps):
        _synchronize(device)
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    _synchronize(device)
    return statistics.median(times)


def _kernels(
    step: Callable[[], Any], device: torch.device, steps: int = 3
) -> tuple[dict[str, float], float]:
    """Milliseconds of each kernel per step, the longest first, and the number of launches per
    step."""
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


class _Warnings(logging.Handler):
    """Different warnings of fuser while a network is made and warmed up: graphs that cannot be
    captured, regions that run as torch's ops."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage().split("\n")[0]
        if line not in self.lines:
            self.lines.append(line)

    def __enter__(self) -> _Warnings:
        logging.getLogger("fuser").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("fuser").removeHandler(self)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def measure(
    name: str,
    contender: str,
    options: argparse.Namespace,
    alone: Callable[[], None] = lambda: None,
) -> Record:
    """The record of one network and contender; `alone` returns when nothing else runs."""
    device = torch.device(options.device)
    record: Record = {"network": name, "contender": contender, "device": _device_name(device)}
    torch.manual_seed(0)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    try:
        network = NETWORKS[name](device, options.small)
    except ImportError as error:
        return record | {"missing": error.name or str(error)}
    record["source"] = network.source
    if not network.trains:
        record["kind"] = "inference"
    elif contender.endswith("freezing"):
        return record | {"failed": "freezing is for inference"}
    else:
        record["kind"] = "training"
    step = step_of(network, compiled(network.module, contender))
    compilation_time_metrics.clear()
    with report.recording() as seen, _Warnings() as warnings:
        record["first_s"] = _seconds(step, device)
        if CONTENDERS[contender] is not None:
            record["parts_s"] = parts_of_first(record["first_s"], seen)
        _seconds(step, device, 1 if options.small else _WARM_UP)
    record["kept_mb"] = sum(graph.kept for graph in seen.graphs) / 1e6
    left: Counter[str] = Counter()
    for graph in seen.graphs:
        for (op, _), count in graph.left.items():
            left[op] += count
    record["left"] = dict(left)
    record["warnings"] = warnings.lines
    if device.type == "cuda":
        record |= _memory(step, device, before)
    alone()
    return record | _times(step, device, options)


def _memory(step: Callable[[], Any], device: torch.device, before: int) -> Record:
    """Peak memory of a step, and of torch's allocator, in megabytes."""
    _synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    step()
    _synchronize(device)
    return {
        "mb": (torch.cuda.max_memory_allocated(device) - before) / 1e6,
        "reserved_mb": torch.cuda.max_memory_reserved(device) / 1e6,
    }


def _times(step: Callable[[], Any], device: torch.device, options: argparse.Namespace) -> Record:
    one = _seconds(step, device)
    steps = max(1, min(_MOST_STEPS // options.rounds, int(_ROUND_S / one)))
    rounds = [_seconds(step, device, steps) * 1e3 for _ in range(options.rounds)]
    record: Record = {"ms": statistics.median(rounds)}
    if device.type == "cuda":
        record["host_ms"] = _host_ms(step, device)
        kernels, record["launches"] = _kernels(step, device)
        record["gpu_ms"] = sum(kernels.values())
        record["kernels"] = dict(list(kernels.items())[: options.kernels])
    return record


def _forget(device: torch.device) -> None:
    """Free everything that a contender holds."""
    torch._dynamo.reset()
    if device.type == "cuda":
        from torch._inductor.cudagraph_trees import reset_cudagraph_trees

        reset_cudagraph_trees()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _worker(
    name: str, contenders: Sequence[str], options: argparse.Namespace, pipe: Connection
) -> None:
    """Measure contenders in turn. Messages: "ready" asks to be alone, a record ends that; the
    answers "go" and "next" to them are waited for."""
    import fuser.adapters.dynamo  # noqa: F401  (registers the backend)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"

        def alone() -> None:
            pipe.send("ready")
            pipe.recv()

        for contender in contenders:
            try:
                record = measure(name, contender, options, alone)
            except Exception as error:
                traceback.print_exc()
                why = f"{type(error).__name__}: {error}".split("\n")[0]
                record = {"network": name, "contender": contender, "failed": why}
                record["device"] = _device_name(torch.device(options.device))
            pipe.send(record)
            pipe.recv()
            if "missing" in record:
                return
            _forget(torch.device(options.device))


class _Running:
    """A process that measures the contenders of one network."""

    def __init__(self, name: str, contenders: Sequence[str], options: argparse.Namespace) -> None:
        context = multiprocessing.get_context("spawn")
        self.name, self.left = name, list(contenders)
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_worker, args=(name, contenders, options, theirs))
        self.process.start()
        theirs.close()
        self.started = time.monotonic()
        self.message: Any = None

    def receive(self, patience: float) -> None:
        """Take the next message; a record that says so if the process ended or is late."""
        try:
            if self.pipe.poll(patience):
                self.message = self.pipe.recv()
            else:
                self.stop(f"no answer in {patience:.0f} s")
        except EOFError:
            self.message = self._record("its process ended")

    def stop(self, why: str) -> None:
        self.message = self._record(why)
        self.process.kill()

    def _record(self, why: str) -> Record:
        return {"network": self.name, "contender": self.left[0], "failed": why}

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def _results(
    todo: dict[str, list[str]], options: argparse.Namespace, until: float
) -> Iterator[Record]:
    """Records of all networks and contenders in `todo`, in the order in which they are ready.
    Starts no network that would probably end after the time `until`."""
    running: list[_Running] = []
    longest = 0.0
    try:
        while True:
            while todo and len(running) < options.jobs and time.monotonic() + longest < until:
                name = next(iter(todo))
                running.append(_Running(name, todo.pop(name), options))
            if not running:
                return
            _all_wait(running, options.patience, until)
            if time.monotonic() > until:
                return
            for process in running:
                if process.message == "ready":
                    process.pipe.send("go")
                    process.receive(options.patience)
                yield process.message
            for process in list(running):
                process.left.pop(0)
                if "missing" in process.message:
                    process.left.clear()
                process.message = None
                if process.left and process.process.is_alive():
                    process.pipe.send("next")
                    continue
                longest = max(longest, time.monotonic() - process.started)
                running.remove(process)
                process.end()
                if process.left:
                    todo[process.name] = process.left
    finally:
        for process in running:
            process.end()


def _all_wait(running: Sequence[_Running], patience: float, until: float) -> None:
    """Return once each process has sent a message or has been stopped, or at the time `until`."""
    end = time.monotonic() + patience
    while late := [process for process in running if process.message is None]:
        found = wait([p.pipe for p in late], max(0.0, min(end, until) - time.monotonic()))
        if not found and until < end:
            return
        for process in late:
            if process.pipe in found:
                process.receive(patience)
            elif not found:
                process.stop(f"not ready in {patience:.0f} s")


def todo_of(
    names: Sequence[str], contenders: Sequence[str], records: Sequence[Record], device: str
) -> dict[str, list[str]]:
    """The contenders of each network that have no record. Contenders of one network are compared on
    one device, so an unfinished network of another device starts again."""
    left: dict[str, list[str]] = {}
    for name in names:
        own = [record for record in records if record["network"] == name]
        if any("missing" in record for record in own):
            continue
        done = {record["contender"] for record in own}
        missing = [contender for contender in contenders if contender not in done]
        if missing and any(record.get("device", device) != device for record in own):
            missing = list(contenders)
        if missing:
            left[name] = missing
    return left


def _value(records: dict[str, Record], contender: str, field: str) -> float | None:
    value = records.get(contender, {}).get(field)
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def ratio(records: dict[str, Record], field: str) -> float | None:
    """Inductor's best mode relative to fuser's, of one network."""
    best = []
    for ours in (False, True):
        found = [
            value
            for contender, arguments in CONTENDERS.items()
            if arguments is not None and (arguments["backend"] == "fuser") == ours
            if (value := _value(records, contender, field)) is not None
        ]
        best.append(min(found, default=0.0))
    return best[0] / best[1] if all(best) else None


def tables(records: Sequence[Record], contenders: Sequence[str]) -> str:
    """A table of each quantity, with the ratio of the best modes and its geometric mean."""
    networks: dict[str, dict[str, Record]] = {}
    for record in records:
        if "missing" not in record:
            networks.setdefault(record["network"], {})[record["contender"]] = record
    text = ""
    for title, field, form in _TABLES:
        rows, ratios = [], []
        for name, own in networks.items():
            values = [_value(own, contender, field) for contender in contenders]
            if all(value is None for value in values):
                continue
            cells = ["-" if value is None else format(value, form) for value in values]
            of_both = ratio(own, field) if field in _COMPARED else None
            ratios += [of_both] if of_both else []
            rows.append([name, *cells, f"{of_both:.2f}" if of_both else "-"])
        if rows:
            header = [title, *contenders, "Inductor / fuser"]
            text += f"\n{table(header, rows)}\n"
        if ratios:
            text += (
                f"{title}: Inductor's best / fuser's best over {len(ratios)} networks: geometric "
                f"mean {statistics.geometric_mean(ratios):.3f}, lowest {min(ratios):.3f}\n"
            )
    return text + _remarks(records)


def _remarks(records: Sequence[Record]) -> str:
    """Lines on phases of first steps, ops left to torch, failures and missing packages."""
    lines = []
    missing: dict[str, list[str]] = {}
    left: Counter[str] = Counter()
    for record in records:
        title = f"{record['network']}, {record['contender']}"
        if "missing" in record:
            missing.setdefault(record["missing"], []).append(record["network"])
        if "failed" in record:
            lines.append(f"{title}: failed: {record['failed'][:160]}")
        lines += [f"{title}: {warning[:200]}" for warning in record.get("warnings", ())]
        if "parts_s" in record:
            phases = (f"{part} {seconds:.2f}" for part, seconds in record["parts_s"].items())
            lines.append(f"{title}: first step, s: {', '.join(phases)}")
        if record["contender"] == "fuser":
            left.update(record.get("left", {}))
        for kernel, ms in record.get("kernels", {}).items():
            lines.append(f"{title}: {ms:8.3f} ms {kernel[:100]}")
    if left:
        counts = ", ".join(f"{count} {op}" for op, count in left.most_common(40))
        lines.append(f"ops left to torch in all graphs: {counts}")
    lines += [
        f"not run without {package}: {', '.join(dict.fromkeys(names))}"
        for package, names in missing.items()
    ]
    return "\n".join(["", *lines])


def _part(text: str) -> tuple[int, int]:
    index, count = (int(number) for number in text.split("/"))
    if not 1 <= index <= count:
        raise ValueError(text)
    return index, count


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--contenders", nargs="+", default=list(DEFAULT), choices=CONTENDERS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="few layers, few inputs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=5, help="networks that compile at once")
    parser.add_argument("--patience", type=float, default=400, help="seconds to compile in")
    parser.add_argument("--kernels", type=int, default=0, help="print so many kernels of each")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="I/N")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds; then stop")
    parser.add_argument("--report", action="store_true", help="only print the tables of --json")
    parser.add_argument("--list", action="store_true", help="print the names of the networks")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.networks) - set(NETWORKS)):
        parser.error(f"no network {', '.join(unknown)}; expected some of {', '.join(NETWORKS)}")
    index, count = options.part
    options.networks = options.networks[index - 1 :: count]
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = options_of(arguments)
    if options.list:
        print(*options.networks, sep="\n")
        return
    records: list[Record] = []
    if options.json and options.json.exists():
        records = json.loads(options.json.read_text())
    if not options.report:
        until = time.monotonic() + options.limit
        device = _device_name(torch.device(options.device))
        todo = todo_of(options.networks, options.contenders, records, device)
        for record in _results(todo, options, until):
            _keep(record, records)
            print(_line(record), flush=True)
            if options.json:
                options.json.write_text(json.dumps(records, indent=1))
    print(tables(records, options.contenders))


def _keep(record: Record, records: list[Record]) -> None:
    """Add a record; it replaces an earlier one of its network and contender."""
    key = record["network"], record["contender"]
    records[:] = [r for r in records if (r["network"], r["contender"]) != key]
    records.append(record)


def _line(record: Record) -> str:
    found = [
        f"{title} {record[field]:{form}}"
        for title, field, form in _TABLES
        if _value({"": record}, "", field) is not None
    ]
    found += [f"{key}: {record[key]}" for key in ("missing", "failed") if key in record]
    return f"{record['network']}, {record['contender']}: {', '.join(found)}"


if __name__ == "__main__":
    main()
