"""Gathers that repeat elements, as torch traces nearest-neighbour F.interpolate.

If an index that is known at compile time repeats each element of a dim n times in a row, then the
gather becomes an expanded view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.index_vectors import Constants, repetitions
from fuser.adapters.graph.sizes import Numbers
from fuser.adapters.nodes import call_node, tensor_of

aten = torch.ops.aten
_Size = Any  # int, or a node that gives it; always int for dims that repeat


def repeat_by_views(graph: fx.Graph) -> None:
    """Rewrites these gathers."""
    found = [node for node in graph.nodes if node.target is aten._unsafe_index.Tensor]
    constants, numbers = Constants(), Numbers(graph)
    for node in found:
        source, indices = node.args
        value = tensor_of(source)
        vectors = constants.index_vectors(value.shape, indices) or {}
        times = {d: repetitions(vector, value.shape[d]) for d, vector in vectors.items()}
        if not times or None in times.values():
            continue
        if (sizes := numbers.sizes(value, node)) is None:
            continue
        with graph.inserting_before(node):
            result = _repeated(graph, source, sizes, [times.get(d) or 1 for d in range(value.ndim)])
        result.meta["val"] = tensor_of(node)
        node.replace_all_uses_with(result)
        graph.erase_node(node)
    if found:
        graph.eliminate_dead_code()


def _split(sizes: Sequence[_Size], times: Sequence[int]) -> list[_Size]:
    """Sizes with a dim of `times` after each dim that repeats."""
    pairs = zip(sizes, times, strict=True)
    return [n for size, t in pairs for n in ([size, t] if t > 1 else [size])]


def _repeated(
    graph: fx.Graph, source: fx.Node, sizes: Sequence[_Size], times: Sequence[int]
) -> fx.Node:
    x = source
    for dim in reversed([d for d, t in enumerate(times) if t > 1]):
        x = call_node(graph, aten.unsqueeze.default, x, dim + 1)
    x = call_node(graph, aten.expand.default, x, _split(sizes, times))
    x = call_node(graph, aten.clone.default, x, memory_format=torch.contiguous_format)
    pairs = zip(sizes, times, strict=True)
    return call_node(graph, aten.view.default, x, [n if t == 1 else n * t for n, t in pairs])
