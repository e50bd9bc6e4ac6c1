"""Training steps under torch's kinds of parallelism on two processes: eager, Inductor, and fuser.

    python -m benchmarks.parallel                             two GPUs, with NCCL
    python -m benchmarks.parallel --device cpu --small        a functional check with gloo

BERT under DDP, Llama under FSDP2, Llama under tensor parallel (benchmarks.parallel_networks). Each
program runs in two processes of its own, one program after another. A contender has a copy of the
network with equal weights; its first step compiles with empty caches, which both ranks share. A
step is forward, backward and SGD, without a synchronization between the steps of a round.
Contenders alternate by rounds. Columns, each the larger number of the two ranks:

    ms        median over rounds of the wall-clock time of a step
    compute   time of a step in which a kernel other than a collective runs, by torch's profiler
    NCCL      time in which a collective runs, including the wait for the other rank
    overlap   time in which both run
    MB        peak memory of a step above the memory in use before it
    first s   the first step

"loss" is the loss of the first step, which dropout moves in the third digit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.parallel_networks import PROGRAMS, SMALL, batch
from benchmarks.report import table

CONTENDERS = ("eager", "inductor", "fuser")
WORLD = 2
_WARM_UP = 3  # steps after the first; DDP builds its buckets again in the second one
_COLUMNS = {
    "ms": ".2f",
    "compute": ".2f",
    "NCCL": ".2f",
    "overlap": ".2f",
    "MB": ".0f",
    "first s": ".1f",
    "loss": ".3f",
}

Step = Callable[[], torch.Tensor]
Spans = Sequence[tuple[float, float]]


# ---- one rank


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(step: Step, device: torch.device, steps: int = 1) -> float:
    """Wall-clock seconds of a step; the ranks begin together."""
    dist.barrier()
    _synchronize(device)
    start = time.perf_counter()
    for _ in range(steps):
        step()
    _synchronize(device)
    return (time.perf_counter() - start) / steps


def _make_step(name: str, contender: str, device: torch.device, small: bool) -> Step:
    """A training step of a program, with parameters of its own."""
    program = PROGRAMS[name]
    sizes = SMALL if small else program.sizes
    torch.manual_seed(0)
    forward, parameters = program.make(device, sizes, contender)
    words, labels = batch(program, sizes, device)
    optimizer = torch.optim.SGD(parameters, 1e-3)
    torch.manual_seed(1)  # dropout

    def step() -> torch.Tensor:
        loss = forward(words, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _peak(step: Step, device: torch.device) -> float:
    """Peak megabytes of a step above those in use before it."""
    if device.type != "cuda":
        return math.nan
    _synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    _synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 1e6


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Disjoint spans with the same union, in order."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def length(spans: Spans) -> float:
    return sum(end - start for start, end in spans)


def overlap(a: Spans, b: Spans) -> float:
    """Length of the intersection of two unions: |A| + |B| - |A or B|."""
    return length(merged(a)) + length(merged(b)) - length(merged([*a, *b]))


def _kernels(step: Step, device: torch.device, steps: int = 4) -> dict[str, float]:
    """Milliseconds of a step with compute kernels, with collectives, and with both."""
    if device.type != "cuda":
        return {"compute": math.nan, "NCCL": math.nan, "overlap": math.nan}
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    dist.barrier()
    _synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(steps):
            step()
        _synchronize(device)
    spans: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for event in profiled.events() or ():
        # Annotations of torch.distributed, e.g. "nccl:all_reduce", are spans around kernels.
        annotation = getattr(event, "is_user_annotation", False) or event.name.startswith("nccl:")
        if event.device_type == DeviceType.CUDA and not annotation:
            span = (event.time_range.start, event.time_range.end)  # microseconds
            spans["ncclDevKernel" in event.name].append(span)
    scale = 1e3 * steps
    return {
        "compute": length(merged(spans[False])) / scale,
        "NCCL": length(merged(spans[True])) / scale,
        "overlap": overlap(spans[False], spans[True]) / scale,
    }


def measure(name: str, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """This rank's numbers of a program, by contender and column."""
    steps: dict[str, Step] = {}
    found: dict[str, Any] = {"numbers": {}, "failed": {}}
    for contender in options.contenders:
        try:
            step = _make_step(name, contender, device, options.small)
            losses: list[torch.Tensor] = []
            first = _seconds(lambda step=step, losses=losses: losses.append(step()), device)
            _seconds(step, device, _WARM_UP)
        except Exception as error:
            traceback.print_exc()
            found["failed"][contender] = f"{type(error).__name__}: {error}".split("\n")[0]
            continue
        steps[contender] = step
        found["numbers"][contender] = {"first s": first, "loss": float(losses[0])}
    rounds: dict[str, list[float]] = {contender: [] for contender in steps}
    for _ in range(options.rounds):
        for contender, step in steps.items():
            rounds[contender].append(_seconds(step, device, options.steps) * 1e3)
    for contender, step in steps.items():
        numbers = found["numbers"][contender]
        numbers |= {"ms": statistics.median(rounds[contender]), "MB": _peak(step, device)}
        numbers |= _kernels(step, device)
    return found


def _rank(rank: int, name: str, options: argparse.Namespace, folder: str, pipe: Connection) -> None:
    os.environ |= {
        "FUSER_CACHE_DIR": f"{folder}/fuser",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
    }
    device = torch.device(options.device, rank if options.device == "cuda" else None)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=options.limit),
    )
    pipe.send(measure(name, options, device))
    dist.destroy_process_group()


# ---- all ranks


def run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The record of a program. Ends its processes after options.limit seconds."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(WORLD):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (rank, name, options, folder, theirs)
            processes.append(context.Process(target=_rank, args=arguments))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        answers = _answers(pipes, options.limit)
        for process in processes:
            process.join(timeout=5 if len(answers) == WORLD else 0)
            if process.is_alive():
                process.kill()
                process.join()
    record: dict[str, Any] = {"program": name, "failed": {}, "numbers": {}}
    if len(answers) < WORLD:
        record["failed"]["all"] = f"{len(answers)} of {WORLD} ranks answered in {options.limit} s"
        return record
    for answer in answers:
        record["failed"] |= answer["failed"]
    for contender in options.contenders:
        ranks = [a["numbers"][contender] for a in answers if contender in a["numbers"]]
        if len(ranks) == WORLD:
            record["numbers"][contender] = {c: max(r[c] for r in ranks) for c in ranks[0]}
    return record


def _answers(pipes: Sequence[Connection], limit: float) -> list[dict[str, Any]]:
    """Answers of the ranks; stops at the limit, or when a rank ends without an answer."""
    found, waiting, end = [], list(pipes), time.monotonic() + limit
    while waiting and (ready := wait(waiting, max(0.0, end - time.monotonic()))):
        for pipe in ready:
            waiting.remove(pipe)
            with contextlib.suppress(EOFError):
                found.append(pipe.recv())
                continue
            return found
    return found


def rows(records: Sequence[dict[str, Any]], contenders: Sequence[str]) -> list[list[str]]:
    """Table rows: one for each contender of a program, with fuser's speedup beside the others."""
    lines = []
    for record in records:
        numbers = record["numbers"]
        for contender in contenders:
            mine = numbers.get(contender, {})
            cells = [record["program"], contender]
            cells += [format(mine[c], form) if c in mine else "-" for c, form in _COLUMNS.items()]
            both = "ms" in mine and "ms" in numbers.get("fuser", {})
            cells.append(f"{mine['ms'] / numbers['fuser']['ms']:.3f}" if both else "-")
            failed = record["failed"].get(contender, record["failed"].get("all", ""))
            lines.append([*cells, failed[:100]])
    return lines


def report(records: Sequence[dict[str, Any]], contenders: Sequence[str]) -> str:
    header = ["program", "contender", *_COLUMNS, "ms / fuser's ms", "failed"]
    return table(header, rows(records, contenders))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("programs", nargs="*", default=list(PROGRAMS), metavar="PROGRAM")
    made.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument("--small", action="store_true", help="two layers, few words")
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--steps", type=int, default=5, help="steps of a round")
    made.add_argument("--limit", type=float, default=100, help="seconds for one program")
    made.add_argument("--json", type=Path)
    return made


def main() -> None:
    options = parser().parse_args()
    if unknown := sorted(set(options.programs) - set(PROGRAMS)):
        parser().error(f"no program {', '.join(unknown)}; expected some of {', '.join(PROGRAMS)}")
    if options.device == "cuda" and torch.cuda.device_count() < WORLD:
        parser().error(f"expected {WORLD} GPUs, found {torch.cuda.device_count()}")
    records = []
    for name in options.programs:
        records.append(run(name, options))
        print(report(records[-1:], options.contenders), flush=True)
        if options.json:
            options.json.write_text(json.dumps(records, indent=1))
    print(report(records, options.contenders))


if __name__ == "__main__":
    main()
