"""fuser/adapters/graph/partial_reductions.py: reductions of short groups in two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx

from fuser.adapters.aten.decompositions import decompositions
from fuser.adapters.graph.partial_reductions import dims_behind_a_short_run, reduce_in_two_steps
from fuser.adapters.partition import partition
from fuser.adapters.wrapper_codegen import program
from tests.adapters.graphs import names, traced

aten = torch.ops.aten
LAST = torch.channels_last


def image(rng: np.random.Generator, *sizes: int, shift: float = 0.0) -> Tensor:
    x = torch.from_numpy(rng.standard_normal(sizes)).float() + shift
    return x.to(memory_format=LAST)


def rewritten(function: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
    module = traced(function, *inputs)
    reduce_in_two_steps(module.graph)
    return module


def run(module: fx.GraphModule, *inputs: Tensor) -> Any:
    call, _ = program(module, partition(module.graph), strict=True)
    return call(list(inputs))


def reduced_dims(module: fx.GraphModule) -> list[list[int]]:
    """Dims of the reductions whose operand is an image."""
    sums = [n for n in module.graph.nodes if n.target in (aten.sum.dim_IntList, aten.mean.dim)]
    return [n.args[1] for n in sums if n.args[0].meta["val"].numel() >= 1024]


@pytest.mark.parametrize(
    ("sizes", "strides", "reduced", "expected"),
    [
        ((2, 8, 2, 9, 9), (1296, 2, 1, 144, 16), [2, 3, 4], [3, 4]),  # groups of two channels
        ((2, 1, 16, 9, 9), (1296, 16, 1, 144, 16), [2, 3, 4], []),  # a group of a sector
        ((2, 16, 1, 9, 9), (1296, 1, 1, 144, 16), [2, 3, 4], []),  # a channel is no run
        ((2, 8, 2, 9, 9), (1296, 162, 81, 9, 1), [2, 3, 4], []),  # row-major
        ((2, 8, 2, 2, 2), (64, 2, 1, 32, 16), [2, 3, 4], []),  # few pixels
        ((64, 4), (4, 1), [1], []),  # rows alone
    ],
)
def test_dims_behind_a_short_run(
    sizes: tuple[int, ...], strides: tuple[int, ...], reduced: list[int], expected: list[int]
) -> None:
    value = torch.empty_strided(sizes, strides, dtype=torch.bfloat16)
    assert dims_behind_a_short_run(value, reduced, 2) == expected


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("groups", [2, 8])
def test_group_norm(rng: np.random.Generator, groups: int, shift: float) -> None:
    """The variance combines those of the channels, so a large mean cancels no digits."""
    x, weight, bias = image(rng, 2, 16, 9, 9, shift=shift), torch.rand(16), torch.rand(16)
    norm = decompositions()[aten.native_group_norm.default]

    def f(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return norm(x, weight, bias, 2, 16, 81, groups, 1e-5)

    module = rewritten(f, x, weight, bias)
    assert reduced_dims(module) == ([[3, 4]] * 2 if groups == 8 else [[2, 3, 4]] * 2)
    expected = aten.native_group_norm(
        x.double(), weight.double(), bias.double(), 2, 16, 81, groups, 1e-5
    )
    for result, want in zip(run(module, x, weight, bias), expected, strict=True):
        torch.testing.assert_close(result.double(), want, rtol=1e-5, atol=1e-5 * (1 + shift))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weighted", [True, False], ids=["weight", "no weight"])
@pytest.mark.parametrize("groups", [2, 8])
def test_gradients_of_a_group_norm(
    rng: np.random.Generator, groups: int, weighted: bool, dtype: torch.dtype
) -> None:
    x, g = (image(rng, 2, 16, 9, 9).to(dtype) for _ in range(2))
    weight = torch.rand(16, dtype=dtype) if weighted else None
    sizes = 2, 16, 81, groups
    _, mean, rstd = aten.native_group_norm(x.float(), None, None, *sizes, 1e-5)

    def f(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, *rest: Tensor) -> Any:
        found = aten.native_group_norm_backward(
            g, x, mean, rstd, rest[0] if rest else None, *sizes, [True, weighted, weighted]
        )
        return [t for t in found if t is not None]

    inputs = [g, x, mean, rstd, *([] if weight is None else [weight])]
    module = rewritten(f, *inputs)
    is_kept = "native_group_norm_backward" in names(
        [n for n in module.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    )
    assert is_kept == (groups == 2 and dtype == torch.float32)
    assert is_kept or all(dims == [3, 4] for dims in reduced_dims(module))
    results = run(module, *inputs)
    expected = f(*(t.double() for t in inputs))
    eps = 4 * torch.finfo(dtype).eps
    for result, want in zip(results, expected, strict=True):
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), want, rtol=eps, atol=20 * eps)
    assert results[0].is_contiguous(memory_format=LAST)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sums_and_means(rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Partial sums of half types are float32."""
    x = image(rng, 2, 16, 9, 9).to(dtype)

    def f(x: Tensor) -> tuple[Tensor, ...]:
        grouped = x.view(2, 8, 2, 9, 9)
        return grouped.sum([2, 3, 4]), grouped.mean([-1, -2, -3], keepdim=True), x.sum([1, 2, 3])

    module = rewritten(f, x)
    assert sorted(map(sorted, reduced_dims(module)))[-2:] == [[3, 4], [3, 4]]
    expected = f(x.double())
    for result, want, eager in zip(run(module, x), expected, f(x), strict=True):
        assert (result.dtype, result.shape) == (dtype, eager.shape)
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(result.double(), want, rtol=eps, atol=100 * eps)


def test_other_reductions_stay(rng: np.random.Generator) -> None:
    x = image(rng, 2, 16, 9, 9)

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.view(2, 8, 2, 9, 9).amax([2, 3, 4]), x.sum([2, 3]), x.contiguous().sum([0, 2, 3])

    before = names(list(traced(f, x).graph.nodes)[1:-1])
    assert names(list(rewritten(f, x).graph.nodes)[1:-1]) == before
