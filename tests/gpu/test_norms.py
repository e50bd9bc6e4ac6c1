"""Normalizations, softmax, cross entropy and their backward passes on the GPU at full size:
correct, deterministic, without spills, and with few kernels for many sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import FusionDefinition, testing
from tests.norms.cases import BACKWARD, FORWARD, Norm, Shape, normal
from tests.norms.runs import bits
from tests.norms.samples import Sample

pytestmark = pytest.mark.gpu

CASES = [
    pytest.param(norm, dtype, id=f"{kind}-{norm.name}-{str(dtype).removeprefix('torch.')}")
    for kind, table in (("forward", FORWARD), ("backward", BACKWARD))
    for norm in table
    for dtype in (torch.bfloat16, torch.float32)
]


def run(fd: FusionDefinition, sample: Sample) -> list[torch.Tensor]:
    """The results, followed by the in-place outputs, which are copies of inputs."""
    given = [t.clone(memory_format=torch.preserve_format) for t in sample.inputs]
    return [*fd.execute(given), *(given[place] for place in sample.norm.written)]


@pytest.mark.parametrize(("norm", "dtype"), CASES)
def test_at_full_size(
    norm: Norm, dtype: torch.dtype, device: torch.device, request: pytest.FixtureRequest
) -> None:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    draw = normal(norm.name, dtype, seed, str(device))
    fd: FusionDefinition | None = None
    shapes: tuple[Shape, ...] = (*norm.small, *norm.full)
    for shape in shapes:
        sample = Sample(norm, shape, norm.make(shape, draw))
        fd = fd or norm.definition(sample.inputs)
        results = run(fd, sample)
        for kernel in fd.fec.executor.kernels():
            assert kernel.local_bytes == 0, f"{shape}: {kernel.name} spills"
        for one, other in zip(results, run(fd, sample), strict=True):
            assert torch.equal(bits(one), bits(other)), f"{shape}: two runs differ"
        sample.check(results)
        del sample, results
        torch.cuda.empty_cache()


def softmax(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True, torch.bfloat16)
    fd.add_output(fd.ops.cast(fd.ops.softmax(x, 1), torch.bfloat16))


def layer_norm(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True, torch.bfloat16)
    weight, bias = (fd.define_tensor([-1], True, torch.bfloat16) for _ in range(2))
    y, _, _ = fd.ops.layer_norm(x, [-1], weight, bias)
    fd.add_output(fd.ops.cast(y, torch.bfloat16))


@pytest.mark.parametrize("define", [softmax, layer_norm])
def test_two_hundred_row_lengths_need_few_kernels(
    define: Callable[[FusionDefinition], None], device: torch.device, rng: Any
) -> None:
    """100 lengths from 1 to 300,000 drawn log-uniformly and 100 drawn uniformly need at most 32
    kernels. Results are correct, also near powers of two."""
    lengths = [int(300_000.0**share) for share in rng.uniform(0, 1, 100)]
    lengths += rng.integers(1, 300_001, 100).tolist()
    edges = [2**k + d for k in range(1, 19) for d in (-1, 0, 1)]
    fd = FusionDefinition()
    define(fd)
    inputs = []
    for length in lengths + edges:
        rows = max(1, min(64, 2_000_000 // length))
        tensors = [torch.randn(rows, length, device=device).bfloat16()]
        if define is layer_norm:
            tensors += [torch.randn(length, device=device).bfloat16() for _ in range(2)]
        inputs.append(tensors)
    testing.compile_batch((fd, tensors) for tensors in inputs)
    names = set()
    for place, tensors in enumerate(inputs):
        fd.validate(tensors)
        if place < len(lengths):
            names |= {kernel.name for kernel in fd.fec.executor.kernels()}
    assert len(names) <= 32, f"{len(names)} kernels: {sorted(names)}"
