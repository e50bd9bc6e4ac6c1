"""python -m benchmarks.sanitize: memcheck and racecheck over the kernels of every family.

Each kind of kernel runs once, on few rows of a suitable length, because a sanitizer slows a kernel
down by orders of magnitude. Inputs are made and results are compared on the CPU, and torch launches
no kernels. A first run without a sanitizer compiles; later runs load the kernels from disk.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time

import torch

from benchmarks.case import Case, Data, Row, error
from benchmarks.families import (
    channels,
    data_movement,
    elementwise_chains,
    losses,
    norms,
    pointwise,
    softmax,
    sums,
    transposes,
)

bf16, f32, i8 = torch.bfloat16, torch.float32, torch.int8

TOOLS = ("memcheck", "racecheck")
_FOUND = 9  # exit status of a tool with findings

# By family: one case for each kind of kernel.
ROWS: dict[str, tuple[Row, ...]] = {
    "pointwise": (
        Row(pointwise.add, (33, 1000), f32),
        Row(pointwise.bias_add, (17, 1001), bf16),
        Row(pointwise.column_scale, (40, 128), bf16),
        Row(pointwise.slice_scale, (16, 256), bf16),
    ),
    "chains": (Row(elementwise_chains.chain(8), (33, 1000), f32),),
    "moves": (
        Row(data_movement.rope_halves, (2, 17, 4, 64), bf16),
        Row(data_movement.split_heads, (2, 17, 192), bf16),
    ),
    "sums": (
        Row(sums.sum_inner, (37, 256), bf16),
        Row(sums.sum_inner, (3, 20000), bf16),
        Row(sums.sum_outer, (3000, 64), bf16),
        Row(sums.sum_outer, (300, 65), f32),
        Row(sums.sum_full, (50000,), f32),
    ),
    "softmax": (
        Row(softmax.softmax, (9, 256), bf16),
        Row(softmax.softmax, (5, 4097), bf16),
        Row(softmax.softmax, (2, 65536), bf16),
        Row(softmax.softmax, (2, 200000), bf16),
    ),
    "softmax_backward": (Row(softmax.softmax_backward, (5, 4096), bf16),),
    "cross_entropy": (
        Row(losses.cross_entropy, (5, 4096), bf16),
        Row(losses.cross_entropy, (3, 4097), bf16),
        Row(losses.cross_entropy_backward, (3, 4096), bf16),
    ),
    "layer_norm": (
        Row(norms.layer_norm, (9, 1024), bf16),
        Row(norms.layer_norm, (3, 16384), bf16),
        Row(norms.layer_norm, (3, 16385), bf16),
        Row(norms.layer_norm, (3, 50256), bf16),
        Row(norms.layer_norm, (2, 200000), bf16),
        Row(norms.add_layer_norm, (3, 40960), bf16),
        Row(norms.layer_norm_across(stored=False), (8, 196, 768), bf16),
        Row(norms.layer_norm_across(stored=True), (64, 97, 192), f32),
        Row(norms.layer_norm_backward_across, (8, 196, 768), bf16),
    ),
    "rms_norm": (
        Row(norms.rms_norm, (5, 4096), f32),
        Row(norms.add_rms_norm, (5, 1024), bf16),
    ),
    "norm_backward": (
        Row(norms.layer_norm_backward, (300, 1024), bf16),
        Row(norms.rms_norm_backward, (300, 4096), bf16),
    ),
    "channels": (
        Row(channels.batch_norm_relu, (4, 16, 16, 64), bf16),
        Row(channels.group_norm_silu, (2, 64, 16, 16), bf16),
    ),
    "transposes": (
        Row(transposes.transposed, (130, 264), bf16),
        Row(transposes.transposed, (129, 67), bf16),
        Row(transposes.antisymmetric, (192, 192), f32),
        Row(transposes.transposed, (128, 272), i8),
    ),
}


def run_case(case: Case) -> None:
    """Run fuser, on a GPU if there is one; raise if a result exceeds the tolerance."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    inputs = case.make(Data(torch.device("cpu")))
    expected = case.reference(inputs)
    definition = case.definition(inputs)
    on_device = [t.to(device) for t in inputs]
    results = case.results(lambda *tensors: definition.execute(tensors), on_device)
    largest, share = error([t.cpu() for t in results], expected, case.bounds)
    assert share <= 1.0, f"{case.key}: off by {largest:g}, {share:g} of the tolerance"


def run(families: list[str]) -> None:
    for family in families:
        for row in ROWS[family]:
            run_case(row.case())


def main(arguments: list[str] | None = None) -> int:
    """Return the number of tools with findings or failures to run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sanitize", description=__doc__)
    parser.add_argument("--families", default=",".join(ROWS), help="default: %(default)s")
    parser.add_argument("--tools", default=",".join(TOOLS), help="default: %(default)s")
    parser.add_argument("--run", action="store_true", help="the kernels alone, without a tool")
    options = parser.parse_args(arguments)
    if options.run:
        run(options.families.split(","))
        return 0
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    kernels = [sys.executable, "-m", "benchmarks.sanitize", "--run", "--families", options.families]
    failed = 0
    for tool in ("", *options.tools.split(",")):
        before = [sanitizer, "--tool", tool, "--error-exitcode", str(_FOUND)] if tool else []
        start = time.perf_counter()
        ran = subprocess.run([*before, *kernels], capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        said = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", ran.stdout)
        print(f"{tool or 'no tool'}: {said[-1] if said else 'ran'}, {seconds:.0f} s", flush=True)
        if ran.returncode:
            failed += 1
            print(ran.stdout[-3000:], ran.stderr[-2000:], sep="\n", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
