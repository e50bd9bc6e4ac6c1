"""fuser/adapters/graph/sizes.py: sizes inside a graph are computed from its inputs' sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

from fuser.adapters.graph.sizes import settle_sizes
from fuser.adapters.nodes import is_number, tensor_inputs
from tests.adapters.graphs import traced


def asked(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that compute a number from a tensor."""
    return [n for n in graph.nodes if is_number(n) and tensor_inputs(n)]


def settled(function: Callable[..., Any], *sizes: tuple[int, ...]) -> tuple[int, fx.Graph]:
    """The number of size nodes in the graph of the function, and the graph after settle_sizes().
    The compiled function must equal the original one for each of these sizes."""
    found: list[tuple[int, fx.Graph]] = []

    def compiler(module: fx.GraphModule, _: Any) -> Any:
        before = len(asked(module.graph))
        settle_sizes(module.graph)
        module.graph.lint()
        module.recompile()
        found.append((before, module.graph))
        return module

    torch._dynamo.reset()
    run = torch.compile(function, backend=aot_autograd(fw_compiler=compiler), dynamic=True)
    for shape in sizes:
        x = torch.arange(torch.Size(shape).numel()).reshape(shape) / 8
        torch.testing.assert_close(run(x), function(x), rtol=0, atol=0)
    (one,) = found
    return one


def test_sizes_of_what_is_computed() -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        x = (x + 1).view(b, h // 2, 2, w // 2, 2, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)

    def turned(x: torch.Tensor) -> torch.Tensor:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a - b, a + b], -1).flatten(-2)

    for function in (windows, turned):
        before, graph = settled(function, (2, 6, 6, 8), (3, 10, 10, 4))
        assert before
        assert not asked(graph)
        assert all("val" in n.meta for n in graph.nodes if n.op != "output")


def test_splits_of_dims_with_symbols() -> None:
    sizes = ((6, 8), (5, 12))
    for function in (
        lambda x: [t * 2 for t in x.chunk(3, -1)],
        lambda x: [t * 2 for t in x.split(x.size(1) // 2, dim=1)],
        lambda x: [t * 2 for t in x.chunk(2)],
        lambda x: [t * 2 for t in x.view(x.size(0), -1, x.size(1) // 2).unbind(1)],
    ):
        _, graph = settled(function, *sizes)
        ops = {str(n.target) for n in graph.nodes}
        assert not ops & {"aten.split.Tensor", "aten.unbind.int"}
    # Static sizes are unchanged.
    graph = traced(lambda x: [*x.split(2), *x.unbind(1)], torch.ones(4, 3)).graph
    settle_sizes(graph)
    assert {"aten.split.Tensor", "aten.unbind.int"} <= {str(n.target) for n in graph.nodes}


def test_what_the_inputs_do_not_say_stays() -> None:
    """Size nodes whose symbols belong to no input remain: the graph was traced without numbers as
    inputs."""
    graph = traced(lambda x: (x.sin() * 2).sum(1) / x.size(1), torch.ones(4, 3), dynamic=True).graph
    before = asked(graph)
    settle_sizes(graph)
    assert before
    assert asked(graph) == before
