"""fuser/adapters/graph/one_hot.py: sums over one-hot rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

import fuser
from fuser.adapters.graph.one_hot import sum_one_place
from tests.adapters.graphs import names, traced

CLASSES = 7
PLACES = torch.tensor([0, 6, -1, 7, 3, -100])


def ops(graph: fx.GraphModule) -> list[str]:
    return names([n for n in graph.graph.nodes if n.op == "call_function"])


def spread(place: Tensor, share: Tensor) -> Tensor:
    return torch.where(place[:, None] == torch.arange(CLASSES), share, 0.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda p, s: spread(p, s[:, None]).sum(1),
        lambda p, s: spread(p, s[:, None]).sum(-1, keepdim=True),
        lambda p, s: spread(p, s.sum()).sum(1),
        lambda p, s: torch.where(torch.arange(CLASSES)[:, None] == p, s, 0.0).sum(0),
        lambda p, s: torch.where(torch.arange(CLASSES) == p.view(2, 3, 1), s.view(2, 3, 1), 0.0)
        .sum(2),
    ],
)  # fmt: skip
def test_sums_of_one_place_are_not_added_up(function: Callable[..., Tensor], rng: Any) -> None:
    share = torch.from_numpy(rng.standard_normal(6))
    graph = traced(function, PLACES, share)
    expected = graph(PLACES, share)
    sums = ops(graph).count("sum")
    sum_one_place(graph.graph)
    graph.recompile()
    assert ops(graph).count("sum") == sums - 1
    assert torch.equal(graph(PLACES, share), expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda p, s: spread(p, s[:, None]).sum(0),  # over the rows, not along them
        lambda p, s: spread(p, s[:, None]).sum((0, 1)),
        lambda p, s: spread(p, s[:, None] + torch.ones(CLASSES)).sum(1),  # varies along the row
        lambda p, s: torch.where(p[:, None] == torch.arange(CLASSES), s[:, None], 1.0).sum(1),
        lambda p, s: torch.where(p[:, None] == 2 * torch.arange(CLASSES), s[:, None], 0.0).sum(1),
        lambda p, s: torch.where(s[:, None] == torch.arange(CLASSES), s[:, None], 0.0).sum(1),
    ],
)
def test_other_sums_stay(function: Callable[..., Tensor], rng: Any) -> None:
    graph = traced(function, PLACES, torch.from_numpy(rng.standard_normal(6)))
    before = ops(graph)
    sum_one_place(graph.graph)
    assert ops(graph) == before


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(50,), (7, 50), (3, 50, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_cross_entropy(
    reduction: str, shape: tuple[int, ...], weighted: bool, rng: Any
) -> None:
    torch._dynamo.reset()
    x = torch.from_numpy(rng.standard_normal(shape))
    places = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
    target = torch.from_numpy(rng.integers(0, 50, size=places))
    if places:
        target.view(-1)[0] = -100
    weight = torch.from_numpy(rng.uniform(0.5, 2.0, size=50)) if weighted else None

    def loss(x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(x, target, weight, reduction=reduction)

    gradients = []
    for function in (loss, torch.compile(loss, backend="fuser")):
        given = x.clone().requires_grad_()
        result = function(given, target)
        gradients.append(torch.autograd.grad(result, given, torch.full_like(result, 1.5))[0])
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-13)


def test_the_gradient_of_cross_entropy_is_one_kernel() -> None:
    x, target = torch.randn(8, 320, requires_grad=True), torch.arange(8)
    report = fuser.explain(lambda x, t: F.cross_entropy(x, t), x, target)
    *_, backward = report.runs
    assert len(backward.fd.fec.executor.kernels(list(backward.inputs))) == 1
