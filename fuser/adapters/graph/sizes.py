"""Computes symbolic sizes in a graph from its inputs.

Torch reads sizes from tensors inside a graph. A tensor would then have to be computed before the
nodes that use its size, which would end a region. Instead, sizes are computed from the symbols,
which are inputs of the graph.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from fuser.adapters.nodes import computed, is_number, specialised, tensor_inputs, tensor_of
from fuser.adapters.torch_compat import PythonReferenceAnalysis, sympy_interp

_SPLIT, _UNBIND = torch.ops.aten.split.Tensor, torch.ops.aten.unbind.int


def settle_sizes(graph: fx.Graph) -> None:
    """Replaces sizes that are read from tensors by arithmetic on the graph's inputs. Splits of a
    symbolic dim become splits by sizes or selects, with the traced number of parts.
    """
    numbers = Numbers(graph)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if is_number(node) and tensor_inputs(node):
            numbers.replace(node)
        elif node.target is _SPLIT:
            numbers.split(node)
        elif node.target is _UNBIND:
            _unbind(graph, node)


class Numbers:
    """Nodes that compute sympy expressions. Rewrites of a graph must insert these nodes instead of
    symbols, which torch could not run.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.symbols: dict[Any, fx.Proxy] = {}
        tracer = fx.proxy.GraphAppendingTracer(graph)
        for node in graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and isinstance(value, torch.SymInt):
                self.symbols.setdefault(value.node.expr, fx.Proxy(node, tracer))

    def number(self, value: int | torch.SymInt, place: fx.Node) -> int | fx.Node | None:
        """Returns an int, or a node before `place`, if the graph's inputs determine the number."""
        value = specialised(value)
        if isinstance(value, int):
            return value
        expr = value.node.expr
        if not expr.free_symbols <= self.symbols.keys():
            return None
        before = place.prev
        with self.graph.inserting_before(place):
            found: fx.Node = sympy_interp(PythonReferenceAnalysis, self.symbols, expr).node
        while (before := before.next) is not place:
            before.meta["val"] = computed(before)
        return found

    def sizes(self, value: torch.Tensor, place: fx.Node) -> list[int | fx.Node] | None:
        """The sizes of a tensor, if all are known."""
        found = [self.number(n, place) for n in value.shape]
        return None if None in found else found  # type: ignore[return-value]

    def replace(self, node: fx.Node) -> None:
        """Makes all users of this size read the computed number."""
        value = node.meta["val"]
        if not isinstance(value, int | torch.SymInt) or isinstance(value, bool):
            return
        number = self.number(value, node)
        if number is None:
            return
        for user in list(node.users):
            user.args, user.kwargs = fx.node.map_arg(
                (user.args, user.kwargs), lambda n: number if n is node else n
            )
        self.graph.erase_node(node)

    def split(self, node: fx.Node) -> None:
        source, width, dim = (*node.args, node.kwargs.get("dim", 0))[:3]
        assert isinstance(source, fx.Node)
        if type(tensor_of(source).shape[dim]) is int and type(width) is int:
            return
        sizes = [self.number(part.shape[dim], node) for part in node.meta["val"]]
        if all(n is not None for n in sizes):
            node.target = torch.ops.aten.split_with_sizes.default
            node.args, node.kwargs = (source, sizes, dim), {}


def _unbind(graph: fx.Graph, node: fx.Node) -> None:
    source, dim = (*node.args, node.kwargs.get("dim", 0))[:2]
    assert isinstance(source, fx.Node)
    if type(tensor_of(source).shape[dim]) is int:
        return
    if any(user.target is not operator.getitem for user in node.users):
        return
    for part in list(node.users):
        part.target, part.args = torch.ops.aten.select.int, (source, dim, part.args[1])
    graph.erase_node(node)
