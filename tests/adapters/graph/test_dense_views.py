"""fuser/adapters/graph/dense_views.py: as_strided of dense tensors as permutations and views."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fuser
from fuser.adapters.graph.dense_views import replace_dense_strided_views
from tests.adapters.graphs import names, traced


def replaced(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[list[str], Tensor]:
    """The remaining ops, and the result."""
    graph = traced(function, *inputs)
    replace_dense_strided_views(graph.graph)
    graph.graph.lint()
    graph.recompile()
    return names([n for n in graph.graph.nodes if n.op == "call_function"]), graph(*inputs)


def test_every_order_of_dims_of_every_order_of_a_tensor(rng: Any) -> None:
    """36 pairs of orders of (2, 3, 4), including a dim of size 1."""
    x = torch.from_numpy(rng.standard_normal((2, 3, 4)))
    count = 0
    for given, wanted in itertools.product(itertools.permutations(range(3)), repeat=2):

        def show(x: Tensor, given: Any = given, wanted: Any = wanted) -> Tensor:
            laid = torch.empty_permuted((2, 3, 4), given, dtype=x.dtype)
            strides = torch.empty_permuted((4, 1, 6), wanted).stride()
            return (laid.zero_() + x).as_strided((4, 1, 6), strides) * 2

        ops, got = replaced(functools.partial(show), x)
        assert "as_strided" not in ops
        assert torch.equal(got, show(x))
        count += 1
    assert count == 36


def test_a_tensor_that_is_overwritten_whole_is_what_is_written(rng: Any) -> None:
    x = torch.from_numpy(rng.standard_normal((2, 3)))

    def written(x: Tensor) -> Tensor:
        return torch.as_strided_scatter(x.new_zeros(6), x, (2, 3), (1, 2), 0) + 1

    ops, got = replaced(written, x)
    assert "as_strided_scatter" not in ops
    assert torch.equal(got, written(x))


@pytest.mark.parametrize(
    "show",
    [
        lambda x: (x * 2).as_strided((3, 2), (1, 2)) + 1,  # reads an element twice
        lambda x: (x * 2).as_strided((2,), (2,)) + 1,  # skips elements
        lambda x: (x * 2)[1:].as_strided((3,), (1,), 0) + 1,  # different storage offset
        lambda x: x.as_strided((6,), (1,), 0) + 1,  # from the start of an argument's storage
        lambda x: (x * 2).as_strided((6,), (1,)),  # a graph output
    ],
)
def test_other_strided_views_stay(show: Callable[[Tensor], Tensor], rng: Any) -> None:
    x = torch.from_numpy(rng.standard_normal((2, 3)))
    ops, got = replaced(show, x)
    assert "as_strided" in ops
    assert torch.equal(got, show(x))


@pytest.mark.parametrize("pool", [nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((1, 1))])
@pytest.mark.parametrize("size", [(2, 16, 8, 8), (1, 16, 3, 5), (3, 1, 4, 4), (2, 5, 1, 1)])
def test_global_pooling_of_channels_last_images_is_fused(
    pool: nn.Module, size: tuple[int, ...], rng: Any
) -> None:
    model = nn.Sequential(nn.ReLU(), pool, nn.Flatten(), nn.ReLU()).double()
    x = torch.from_numpy(rng.standard_normal(size)).to(memory_format=torch.channels_last)
    report = fuser.explain(model, x.requires_grad_())
    assert not any("strided" in op for g in report.graphs for op in map(str, g.left.values()))
    torch._dynamo.reset()
    y = x.detach().clone().requires_grad_()
    got = torch.compile(model, backend="fuser")(y)
    expected = model(x)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    got.square().sum().backward()
    expected.square().sum().backward()
    assert y.grad is not None
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-12, atol=1e-12)
    wide = [d for d, n in enumerate(size) if n > 1]
    assert [y.grad.stride(d) for d in wide] == [x.grad.stride(d) for d in wide]
