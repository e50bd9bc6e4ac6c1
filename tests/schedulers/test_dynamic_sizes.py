"""Number of kernels of programs with dynamic sizes, and of normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fuser import FusionDefinition
from tests.support.reducing import PROGRAMS, kernels_for, plans_for

F32, BF16 = torch.float32, torch.bfloat16
SEED = 20260


def lengths() -> list[int]:
    """100 log-uniform and 100 uniform lengths in 1 .. 300,000."""
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    spread = np.exp(rng.uniform(0, np.log(300_000), 100)).astype(int)
    return [int(n) for n in [*spread, *rng.integers(1, 300_001, 100)]]


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("softmax", BF16),
        ("layer_norm", BF16),
        ("softmax", F32),
        ("layer_norm", F32),
    ],
    ids=str,
)
def test_200_lengths_share_32_kernels(name: str, dtype: torch.dtype, arch: int) -> None:
    program = PROGRAMS[name]
    fd = program.definition(dtype)
    for most in (4096, 64):  # with few rows the longest are split over the grid
        plans: dict[str, Any] = {}
        for length in lengths():
            rows = min(most, max(1, 2_000_000 // length)) if most < 4096 else most
            for kernel in kernels_for(fd, program.shapes(rows, length), arch):
                plans.setdefault(str(kernel["plan"]), (length, kernel["plan"]))
        print(*plans.values(), sep="\n")
        assert len(plans) <= 32


def test_a_kernel_for_each_plan() -> None:
    """Lengths with equal plans have equal kernel text."""
    program = PROGRAMS["layer_norm"]
    fd = program.definition(BF16)
    texts: dict[str, set[str]] = {}
    for length in lengths()[::7]:
        for kernel in kernels_for(fd, program.shapes(4096, length), text=True):
            texts.setdefault(str(kernel["plan"]), set()).add(kernel["cuda"].name)
    assert all(len(names) == 1 for names in texts.values())
    assert len(set.union(*texts.values())) == len(texts)


def test_rows_of_any_number_share_kernels() -> None:
    """Batches of 64 to a million rows of one length use one kernel."""
    program = PROGRAMS["layer_norm"]
    fd = program.definition(BF16)
    names = {
        kernel["cuda"].name
        for rows in (64, 100, 1000, 4095, 4096, 5000, 100_000, 1_000_000)
        for kernel in kernels_for(fd, program.shapes(rows, 1024), text=True)
    }
    assert len(names) == 1


@pytest.mark.parametrize("arch", [70, 80, 90, 100])
@pytest.mark.parametrize("length", [64, 1000, 1023, 4096, 16_384, 65_536])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm"])
def test_forward_normalizations_are_one_kernel(name: str, length: int, arch: int) -> None:
    assert len(plans_for(name, (2048, length), BF16, arch)) == 1


@pytest.mark.parametrize("arch", [70, 80, 90, 100])
@pytest.mark.parametrize("length", [64, 1000, 1023, 4096, 16_384])
def test_layer_norm_backward_is_one_kernel(length: int, arch: int) -> None:
    """Including the gradients of weight and bias. Without prefetching (sm_70) the longest row is
    too long."""
    plans = plans_for("norm_backward", (2048, length), BF16, arch)
    if (length, arch) == (16_384, 70):
        assert len(plans) == 3
        return
    (plan,) = plans
    assert plan["scheduler"] == "inner_outer"


@pytest.mark.parametrize("arch", [70, 80, 90, 100])
@pytest.mark.parametrize("shape", [(256, 16, 128, 128), (64, 64, 56, 56), (32, 3, 224, 224)])
def test_batch_norm_in_training_is_two_kernels(shape: tuple[int, ...], arch: int) -> None:
    """Batch norm takes at most two kernels; on GPUs with clusters one, if a cluster holds a
    channel."""
    plans = plans_for("batch_norm", shape, F32, arch)
    assert len(plans) <= 2
    if len(plans) == 2:
        assert plans[1]["scheduler"] == "pointwise"
        assert plans[0]["grid_blocks"] > 0
    else:
        assert plans[0]["cluster_size"] > 1


@pytest.mark.parametrize("shape", [(256, 16, 128, 128), (64, 64, 56, 56)])
def test_batch_norm_with_running_statistics(shape: tuple[int, ...]) -> None:
    """Running and saved statistics are stored by the same two kernels."""
    fd = FusionDefinition()
    x, *channels = fd.define_tensor([-1] * 4), *(fd.define_tensor([-1]) for _ in range(4))
    for result in fd.ops.batch_norm(x, *channels, 0.1, 1e-5, True):
        fd.add_output(result)
    for arch in (80, 90):
        assert len(kernels_for(fd, PROGRAMS["batch_norm"].shapes(*shape), arch)) <= 2
