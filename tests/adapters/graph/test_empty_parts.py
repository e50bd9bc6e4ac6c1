"""fuser/adapters/graph/empty_parts.py: removal of tensors without elements from a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

import fuser
from fuser.adapters.graph.empty_parts import drop_empty_parts
from tests.adapters.graphs import traced


def empties(graph: fx.GraphModule) -> list[str]:
    values = {n.name: n.meta.get("val") for n in graph.graph.nodes if n.op == "call_function"}
    return [name for name, t in values.items() if isinstance(t, Tensor) and t.numel() == 0]


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "cat behind": lambda x: torch.cat([x * 2, x[..., 6:]], -1),
    "cat before": lambda x: torch.cat([x[..., :0], x, x], -1),
    "cat of old form": lambda x: torch.cat([x.new_empty(0), x * 2]),
    "cat of one row": lambda x: torch.cat([x[:0], x + 1, x[4:]], 0),
    "split": lambda x: torch.cat([part * 2 for part in x.split([2, 0, 4], -1)], -1),
    "split, first": lambda x: x.split([0, 6], 1)[1] + 1,
    "padded": lambda x: F.pad(x[:, :0], (1, 2), value=3.0) + x[:, :3],
    "scattered": lambda x: torch.slice_scatter(x, x[:, :0] * 2, 1, 3, 3) * 2,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_without_empty_tensors_gives_the_same(
    program: Callable[[Tensor], Any], dynamic: bool, rng: Any
) -> None:
    x = torch.from_numpy(rng.standard_normal((4, 6)))
    graph = traced(program, x, dynamic=dynamic)
    expected = program(x)
    drop_empty_parts(graph.graph)
    graph.graph.lint()
    graph.recompile()
    got = graph(x)
    assert torch.equal(got, expected)
    assert got.stride() == expected.stride()
    if not dynamic:
        assert not empties(graph)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_nothing_is_left_to_torch_for_an_empty_part(
    program: Callable[[Tensor], Any], rng: Any
) -> None:
    x = torch.from_numpy(rng.standard_normal((4, 6))).requires_grad_()

    def twice(x: Tensor) -> Tensor:
        return program(x.sin()).cos()

    report = fuser.explain(twice, x)
    assert not any("without elements" in why for g in report.graphs for why in g.left)
    torch._dynamo.reset()
    y = x.detach().clone().requires_grad_()
    torch.compile(twice, backend="fuser")(y).sum().backward()
    twice(x).sum().backward()
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-12, atol=1e-12)


def test_a_cat_keeps_the_type_that_an_empty_part_asks_for() -> None:
    x = torch.ones(2, 3)
    graph = traced(lambda x: torch.cat([x, x[:, :0].double()], 1), x)
    drop_empty_parts(graph.graph)
    graph.recompile()
    assert graph(x).dtype == torch.float64


def test_empty_results_stay() -> None:
    x = torch.ones(2, 3)
    graph = traced(lambda x: (x[:, :0] * 2, torch.cat([x[:, :0], x[:, 3:]], 1)), x)
    drop_empty_parts(graph.graph)
    graph.recompile()
    assert [t.shape for t in graph(x)] == [(2, 0), (2, 0)]
