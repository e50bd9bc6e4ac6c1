"""Searches schedules that beat the default ones, through the public API.

    python examples/schedule_to_win.py

fd.schedules(inputs) prints the schedule of a kernel as text. The search changes a few numbers of
the text, times each changed schedule, checks the fastest against float64, and times it again
beside the default. A schedule that could compute wrong values on some size of its plan is refused.
"""

import itertools
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from fuser import DataType, FusionDefinition, Plan, UserError

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Factors by which the search changes the numbers of a schedule.
FACTORS = {
    "cuda": {"ThreadX": (1, 1 / 4, 1 / 2, 2), "ThreadY": (1, 1 / 2, 2), "Unroll": (1, 1 / 2, 2)},
    "cpu": {"ThreadX": (1, 1 / 2, 2), "elements": (1, 1 / 4)},
}[DEVICE]
FINALISTS = 4  # schedules that are timed again beside the default
Inputs = list[torch.Tensor]


def rms_norm(fd: FusionDefinition, x: Any, weight: Any) -> Any:
    wide = fd.ops.cast(x, DataType.Float)
    scale = fd.ops.rsqrt(fd.ops.mean(wide * wide, [1], True) + 1e-6)
    return fd.ops.cast(wide * scale * fd.ops.cast(weight, DataType.Float), DataType.BFloat16)


def column_sums(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.sum(x, [0])


def row_sums(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.sum(x, [1])


def cases() -> Iterator[tuple[Callable[..., Any], torch.dtype, list[tuple[int, ...]]]]:
    """Definitions with the dtype and the shapes of their inputs."""
    on_gpu = DEVICE == "cuda"
    rows = 12345 if on_gpu else 1234
    yield rms_norm, torch.bfloat16, [(rows, 777), (777,)]
    yield column_sums, torch.float32, [(1000, 10000 if on_gpu else 1000)]
    yield row_sums, torch.float32, [(1 << 20 if on_gpu else 1 << 16, 16)]


def variants(text: str) -> Iterator[str]:
    """Changed texts of a schedule, the unchanged one first."""
    found = {name: re.search(rf"\b{name}[ (](\d+)", text) for name in FACTORS}
    numbers = {name: int(at[1]) for name, at in found.items() if at}
    for factors in itertools.product(*(FACTORS[name] for name in numbers)):
        changed = text
        sizes = {n: int(numbers[n] * f) for n, f in zip(numbers, factors, strict=True)}
        for name, size in sizes.items():
            changed = re.sub(rf"\b({name}[ (])\d+", rf"\g<1>{size}", changed)
        threads = sizes.get("ThreadX", 0) * sizes.get("ThreadY", 1)
        if threads:
            changed = re.sub(r"threads\(\d+\)", f"threads({threads})", changed)
        yield changed
        if DEVICE == "cuda":
            yield re.sub(r"(access 0 .*)", r"\1 streaming", changed)
            if threads and "min_blocks" not in changed:
                blocks = max(1, 1536 // threads)  # fewer registers per thread, more threads per SM
                yield changed.replace(
                    f"threads({threads})", f"threads({threads}) min_blocks_per_sm({blocks})"
                )


def is_legal(fd: FusionDefinition, inputs: Inputs, text: str) -> bool:
    try:
        fd.schedules(inputs, Plan(schedule=text))  # compiles nothing
    except UserError:
        return False
    return True


def runner(fd: FusionDefinition, sets: Sequence[Inputs], text: str | None) -> Callable[[], object]:
    """Returns a function that runs a schedule, by default fuser's, once on each set of inputs."""
    schedules = None if text is None else [text]

    def run() -> None:
        for inputs in sets:
            fd.execute(inputs, schedules=schedules)

    run()
    if DEVICE == "cpu":
        return run
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()  # without the time of the calls in Python
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def seconds(run: Callable[[], object]) -> float:
    if DEVICE == "cpu":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def compare(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Returns the median time of each function. A round runs all of them in turn."""
    times: dict[str, list[float]] = {text: [] for text in runs}
    for _ in range(rounds):
        for text, run in runs.items():
            times[text].append(seconds(run))
    return {text: statistics.median(taken) for text, taken in times.items()}


def search(
    write: Callable[..., Any], dtype: torch.dtype, shapes: Sequence[tuple[int, ...]]
) -> None:
    bytes_ = sum(torch.Size(shape).numel() for shape in shapes) * dtype.itemsize
    count = max(2, min(16, int(4e8 / bytes_))) if DEVICE == "cuda" else 2  # exceeds the caches
    sets = [[torch.randn(s, device=DEVICE).to(dtype) for s in shapes] for _ in range(count)]
    with FusionDefinition() as fd:
        fd.add_output(write(fd, *(fd.from_pytorch(x) for x in sets[0])))
    (default,) = fd.schedules(sets[0])

    every = list(dict.fromkeys(variants(default)))
    legal = [text for text in every if is_legal(fd, sets[0], text)]
    with ThreadPoolExecutor() as pool:  # kernels are compiled in parallel
        list(pool.map(lambda text: fd.execute(sets[0], schedules=[text]), legal))
    taken = compare({text: runner(fd, sets, text) for text in legal}, rounds=3)
    finalists = sorted(legal, key=taken.__getitem__)[:FINALISTS]
    for text in finalists:
        fd.validate(sets[0], schedules=[text])  # against the definition in float64
    runs = {text: runner(fd, sets, text) for text in finalists}
    runs[default] = runner(fd, sets, None)
    taken = compare(runs, rounds=20)

    best = min(taken, key=taken.__getitem__)
    us = {text: 1e6 * s / count for text, s in taken.items()}
    print(f"{write.__name__} of {shapes[0]}: {len(legal)} legal schedules of {len(every)}")
    print(f"  default {us[default]:.1f} us, best {us[best]:.1f} us")
    for line in best.splitlines() if best != default else ():
        if line not in default.splitlines():
            print(f"    {line}")


def main() -> None:
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "the CPU"
    print(f"Schedules by hand on {name}; the lines that differ from the default\n")
    for write, dtype, shapes in cases():
        search(write, dtype, shapes)


if __name__ == "__main__":
    main()
