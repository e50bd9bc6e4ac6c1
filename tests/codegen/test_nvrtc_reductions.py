"""Kernels with reductions: one of each family, planned for each GPU, compiles for it with NVRTC
without spills. Run with -s to print registers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from fuser import _core
from fuser.runtime.toolchain import machine_code
from tests.norms.cases import BACKWARD, normal
from tests.ops.test_reductions_exhaustive import FAMILIES as REDUCTIONS
from tests.support.nvrtc12 import needs_nvrtc_12, run_under_nvrtc_12
from tests.support.reducing import PROGRAMS, kernels_for

F32, BF16 = torch.float32, torch.bfloat16


@dataclass(frozen=True)
class Family:
    program: str
    shape: tuple[int, ...]
    dtype: torch.dtype = BF16
    holds: tuple[str, ...] = ()  # functions called by the text for sm_90


FAMILIES = {
    "short_rows": Family("softmax", (4096, 256), holds=("reduce_lanes", "load_raw")),
    "odd_rows": Family("softmax", (4096, 1023), F32, ("load_raw",)),
    # Weights are loaded for two vectors before either is computed.
    "shared_rows": Family(
        "layer_norm", (4096, 20_000), holds=("copy_async", "collect_warps", "unpack(r_in1, q_in1")
    ),
    "odd_shared_rows": Family("softmax", (4096, 20_001), holds=("copy_async",)),
    "clusters": Family("layer_norm", (4096, 200_000), holds=("collect_cluster",)),
    "long_rows": Family("rms_norm", (4096, 3_000_000), F32),
    "one_walk": Family("softmax", (4096, 3_000_001), holds=("OnlineState",)),
    "few_rows": Family("sum_rows", (4, 1 << 20), holds=("last_block",)),
    "argmax": Family("argmax_rows", (4096, 5000), holds=("ArgState",)),
    "columns": Family("sum_columns", (1 << 20, 64), holds=("last_block", "reduce_rows")),
    "odd_columns": Family("sum_columns", (1 << 20, 65), holds=("load_shifted",)),
    "deviations": Family("var_columns", (1 << 20, 64), holds=("accumulate_each", "load_partials")),
    "short_columns": Family("softmax_columns", (64, 8192), F32, ("reduce_rows",)),
    "backward": Family("norm_backward", (4096, 4096), holds=("grid_barrier", "copy_async")),
    "long_backward": Family(
        "norm_backward", (4096, 65_536), holds=("grid_barrier", "copy_async", "collect_cluster")
    ),
    "shared_backward": Family("norm_backward", (4096, 20_000), holds=("collect_cluster<Sum, 40>",)),
    "short_backward": Family("norm_backward", (4096, 768), holds=("grid_barrier",)),
    "odd_backward": Family("norm_backward", (4096, 999), holds=("grid_barrier",)),
    "batch_norm": Family("batch_norm", (256, 16, 128, 128), F32, ("last_block",)),
}
# Families whose texts differ between GPUs by more than constants.
DIFFERENT = [
    *("odd_rows", "shared_rows", "odd_shared_rows", "one_walk"),
    *("few_rows", "columns", "odd_columns", "deviations", "backward", "batch_norm"),
]


def texts(name: str, arch: int) -> list[Any]:
    """The kernels of a family as CUDA C, for a GPU of this generation."""
    family = FAMILIES[name]
    program = PROGRAMS[family.program]
    shapes = program.shapes(*family.shape)
    fd = program.definition(family.dtype)
    return [k["cuda"] for k in kernels_for(fd, shapes, arch, text=True)]


@pytest.mark.parametrize(
    ("arch", "name"),
    [*((90, name) for name in FAMILIES), *((arch, n) for arch in (80, 100) for n in DIFFERENT)],
)
def test_compiles_and_spills_nothing(name: str, arch: int) -> None:
    kernels = texts(name, arch)
    if arch == 90:
        whole = "".join(kernel.text for kernel in kernels)
        for word in FAMILIES[name].holds:
            assert word in whole, f"{name} is not the family that it is called after"
    for kernel in kernels:
        _, registers, local_bytes, _ = machine_code(kernel.name, kernel.text, arch)
        print(f"sm_{arch} {name}: {registers} registers, {kernel.threads} threads")
        assert local_bytes == 0, f"{name}: {local_bytes} bytes, {registers} registers"
        assert 0 < registers <= 255
        assert registers * kernel.threads <= 65536


# Cases with high register pressure: states of 16 bytes and more; many elements per thread; short
# columns of several tensors; columns of long rows that are not multiples of a vector, or that a
# cluster reduces; odd rows with a vectorized path.
SHORT_OF_REGISTERS = (
    ("float64-inner-logsumexp", (2, 300_001)),
    ("float64-outer-logsumexp", (1025, 300)),
    ("complex128-outer-mean", (300_001, 2)),
    ("float8_e4m3fn-inner-mean", (2, 300_001)),
    ("batch_norm in NHWC", (2, 32, 4, 4)),
    ("batch_norm", (1, 4, 1023, 1025)),
    ("rms_norm", (8, 50_257)),
    ("rms_norm", (8, 12_288)),
    ("rms_norm", (8, 128_256)),
    ("layer_norm", (8, 9_999)),
    ("layer_norm", (8, 65_536)),
)


@pytest.mark.parametrize(("name", "shape"), SHORT_OF_REGISTERS)
def test_spills_nothing_where_registers_are_short(name: str, shape: tuple[int, ...]) -> None:
    family = next((f for f in REDUCTIONS if f.key == name), None)
    if family:
        fd = family.define()
        inputs = [torch.empty(family.arranged(*shape), dtype=family.dtype, device="meta")]
    else:
        norm = next(n for n in BACKWARD if n.name == name)
        inputs = norm.make(shape, normal(name, F32, 0))
        fd = norm.definition(inputs)
    strides = [t.stride() for t in inputs]
    for kernel in kernels_for(fd, [t.shape for t in inputs], text=True, strides=strides):
        text = kernel["cuda"]
        _, registers, local_bytes, _ = machine_code(text.name, text.text, 90)
        assert local_bytes == 0, f"{name}: {local_bytes} bytes, {registers} registers"


@pytest.mark.parametrize("static", [False, True], ids=["run-time", "constant"])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "softmax"])
def test_rows_of_which_two_fit_on_a_processor_leave_registers_for_two(
    name: str, static: bool
) -> None:
    """Two long rows fit on an SM in shared memory, so registers must suffice for two blocks too,
    also if the length is a compile-time constant."""
    device = _core.known_device(90)
    program = PROGRAMS[name]
    shapes = program.shapes(4096, 50_257)
    fd = program.definition(BF16, shapes if static else None)
    (kernel,) = kernels_for(fd, shapes, text=True)
    text = kernel["cuda"]
    _, registers, local_bytes, _ = machine_code(text.name, text.text, 90)
    assert local_bytes == 0
    assert 2 * registers * text.threads <= 65536
    behind = 0 if static else 2 * 50_257  # bytes of dynamic shared memory, added at launch
    assert 2 * (text.shared_bytes + behind) <= device.shared_per_sm


@needs_nvrtc_12
def test_volta(tmp_path: Path) -> None:
    made = [(k.name, k.text) for name in DIFFERENT for k in texts(name, 70)]
    file = tmp_path / "kernels.json"
    file.write_text(json.dumps(made))
    code = f"""
import json
from fuser.runtime.toolchain import machine_code
for name, text in json.load(open({str(file)!r})):
    print(name, machine_code(name, text, 70)[2])
"""
    lines = [line.split() for line in run_under_nvrtc_12(code).splitlines()]
    assert len(lines) == len(made)
    assert [name for name, spilled in lines if spilled != "0"] == []
