"""Removes tensors without elements from a graph, e.g. in rotary embeddings that rotate all dims, or
empty parts of a list. An op that reads an empty tensor would be left to torch and break the region.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fuser.adapters.nodes import specialised, tensor_of

_ATEN = torch.ops.aten


def drop_empty_parts(graph: fx.Graph) -> None:
    """Rewrites ops with an empty operand and a nonempty result. A cat drops empty parts. The
    gradient of an empty slice and a padded empty tensor become full. A scatter of an empty slice
    returns its base. A split with an empty part becomes slices.
    """
    for node in list(graph.nodes):
        rewrite = _REWRITES.get(node.target)
        if rewrite is not None:
            rewrite(node)
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and _is_empty(node):
            graph.erase_node(node)


def _is_empty(node: Any) -> bool:
    value = tensor_of(node) if isinstance(node, fx.Node) else None
    return value is not None and any(
        type(n) is int and n == 0 for n in map(specialised, value.shape)
    )


def _cat(node: fx.Node) -> None:
    given: Any = node.args[0]
    parts = [n for n in given if not _is_empty(n)]
    if len(parts) == len(given) or not parts:
        return
    dtypes = [tensor_of(n).dtype for n in parts]
    joint = dtypes[0]
    for dtype in dtypes[1:]:
        joint = torch.promote_types(joint, dtype)
    if joint == tensor_of(node).dtype:
        node.args = (parts, *node.args[1:])


def _filled(node: fx.Node) -> None:
    if not _is_empty(node.args[0]) or _is_empty(node):
        return
    value, given = tensor_of(node), list[Any](node.args)
    number: Any = 0
    with node.graph.inserting_before(node):
        if node.target is _ATEN.slice_backward.default:
            sizes = list(given[1])
        else:
            number = given[2] if len(given) > 2 else 0
            sizes = [_padded_size(node, d) for d in range(value.ndim)]
        if None in sizes:
            return
        full = node.graph.call_function(
            _ATEN.full.default, (sizes, number), {"dtype": value.dtype, "device": value.device}
        )
    full.meta = dict(node.meta)
    node.replace_all_uses_with(full)
    node.graph.erase_node(node)


def _padded_size(node: fx.Node, dim: int) -> Any:
    """Size of a padded dim, if known: a number, or a node that reads it from the operand."""
    n = specialised(tensor_of(node).shape[dim])
    if isinstance(n, int):
        return n
    source: Any = node.args[0]
    same = specialised(tensor_of(source).shape[dim])
    if isinstance(same, int) or same.node.expr != n.node.expr:
        return None
    size = node.graph.call_function(_ATEN.sym_size.int, (source, dim))
    size.meta["val"] = n
    return size


def _scattered(node: fx.Node) -> None:
    if not _is_empty(node.args[1]) or _is_empty(node):
        return
    source = node.args[0]
    assert isinstance(source, fx.Node)
    node.target = _ATEN.clone.default
    node.args, node.kwargs = (source,), {}


def _split(node: fx.Node) -> None:
    parts = [u for u in node.users if u.target is not None]
    if not any(_is_empty(part) for part in parts) or len(node.args) < 2:
        return
    given = list[Any](node.args)
    source, sizes = given[:2]
    dim = given[2] if len(given) > 2 else node.kwargs.get("dim", 0)
    assert isinstance(sizes, list | tuple)
    if not all(isinstance(n, int) for n in sizes):
        return
    for part in parts:
        place: Any = part.args[1]
        start = sum(sizes[:place])
        with node.graph.inserting_before(part):
            cut = node.graph.call_function(
                _ATEN.slice.Tensor, (source, dim, start, start + sizes[place])
            )
        cut.meta = dict(part.meta)
        part.replace_all_uses_with(cut)
        node.graph.erase_node(part)
    node.graph.erase_node(node)


_REWRITES = {
    _ATEN.cat.default: _cat,
    _ATEN.slice_backward.default: _filled,
    _ATEN.constant_pad_nd.default: _filled,
    _ATEN.slice_scatter.default: _scattered,
    _ATEN.split_with_sizes.default: _split,
}
