"""Views that a graph makes in vain: in torch each costs the host as much as a launch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from fuser.adapters.partition import is_view, tensor_of

_RESHAPES = {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}


def drop_views(graph: fx.Graph, places: Collection[int]) -> None:
    """A view that lies in memory as what it is a view of, perhaps over several views, is that:
    transposed twice, reshaped and back, detached. What is reshaped twice is reshaped once.

    Results of the graph stay the nodes that they are, but for those at `places`.
    """
    output = next(n for n in graph.nodes if n.op == "output")
    results = list(output.args[0])
    for node in list(graph.nodes):
        _shorten(node)
        source = _same(node)
        if source is None:
            continue
        node.replace_all_uses_with(source, delete_user_cb=lambda user: user is not output)
        for place in places:
            if results[place] is node:
                results[place] = source
    output.args = (type(output.args[0])(results),)
    for node in reversed(list(graph.nodes)):
        if is_view(node) and not node.users:
            graph.erase_node(node)


def _shorten(node: fx.Node) -> None:
    """A tensor reshaped twice is reshaped once."""
    first = node.args[0] if node.args else None
    if not (isinstance(first, fx.Node) and {node.target, first.target} <= _RESHAPES):
        return
    source = first.args[0]
    assert isinstance(source, fx.Node)
    value = tensor_of(source)
    numbers = () if value is None else (*value.shape, *value.stride())
    if numbers and all(type(n) is int for n in numbers) and value.is_contiguous():
        node.args = (source, *node.args[1:])


def _same(node: fx.Node) -> fx.Node | None:
    """The nearest node of which this is a view without a difference."""
    wanted = _layout(node)
    while is_view(node) and wanted is not None:
        source = node.args[0]
        if not isinstance(source, fx.Node):
            return None
        if _layout(source) == wanted:
            return source
        node = source
    return None


def _layout(node: fx.Node) -> Any:
    """How its tensor lies in memory, symbolic sizes by their expressions; None without one."""
    value = tensor_of(node)
    if value is None:
        return None
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return value.dtype, *(n.node.expr if isinstance(n, torch.SymInt) else n for n in numbers)
