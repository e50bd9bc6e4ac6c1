"""Graphs of torch's ops as adapters receive them: traced, with FakeTensors in meta["val"]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fuser.adapters.partition import partition


def traced(function: Callable[..., Any], *inputs: Any, dynamic: bool = False) -> fx.GraphModule:
    """The function as a graph of aten ops; sizes are symbols with `dynamic`."""
    mode = "symbolic" if dynamic else "fake"
    return make_fx(function, tracing_mode=mode)(*inputs)


def names(nodes: list[fx.Node]) -> list[str]:
    """The ops of nodes, without namespace and overload."""
    return [str(n.target).split(".")[1] for n in nodes]


def regions(function: Callable[..., Any], *inputs: Any, **kwargs: Any) -> list[list[str]]:
    """The ops of each region of a function's graph."""
    return [names(nodes) for nodes in partition(traced(function, *inputs).graph, **kwargs).regions]


class Written:
    """A graph built node by node, for chains so deep that tracing takes minutes."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.fakes = FakeTensorMode()

    def input(self, *sizes: int) -> fx.Node:
        return self._with(self.graph.placeholder(f"p{len(self.graph.nodes)}"), sizes, torch.float32)

    def call(
        self, target: Any, *args: Any, sizes: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> fx.Node:
        """A node whose value is a dense tensor of these sizes."""
        return self._with(self.graph.call_function(target, args), sizes, dtype)

    def views(self, node: fx.Node, count: int) -> fx.Node:
        """A chain of `count` views of a matrix, alternately as a vector and as the matrix; returns
        the last node."""
        matrix = node.meta["val"]
        with self.fakes:
            vector = torch.empty(matrix.numel())
        for i in range(count):
            value = matrix if i % 2 else vector
            node = self.graph.call_function(torch.ops.aten.view.default, (node, [*value.shape]))
            node.meta["val"] = value
        return node

    def finished(self, *results: fx.Node) -> fx.Graph:
        self.graph.output(results)
        return self.graph

    def _with(self, node: fx.Node, sizes: Sequence[int], dtype: torch.dtype) -> fx.Node:
        with self.fakes:
            node.meta["val"] = torch.empty(sizes, dtype=dtype)
        return node
