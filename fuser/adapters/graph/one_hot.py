"""Sums over one-hot rows.

The gradient of a classification loss is `where(place == arange(classes), share, 0)`, and the
gradient of log_softmax sums it over the classes. The sum is `share` if `place` is a valid class, so
no kernel needs to loop over the classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fuser.adapters.nodes import computed, is_view, tensor_of

aten = torch.ops.aten


def sum_one_place(graph: fx.Graph) -> None:
    """Replaces sums along one dim over one-hot rows by the selected element."""
    for node in list(graph.nodes):
        if node.target is not aten.sum.dim_IntList or node.kwargs:
            continue
        rows, dims, keepdim = (*node.args, False)[:3]
        found = _one_place(rows, dims)
        if found is None:
            continue
        place, share, zero, classes = found
        (dim,) = dims
        with graph.inserting_before(node):
            inside = _added(graph, aten.ge.Scalar, place, 0)
            below = _added(graph, aten.lt.Scalar, place, classes)
            inside = _added(graph, aten.logical_and.default, inside, below)
            total = _added(graph, aten.where.self, inside, share, zero)
            if not keepdim:
                total = _added(graph, aten.squeeze.dim, total, dim)
        before, after = tensor_of(node), tensor_of(total)
        if before.shape == after.shape and before.dtype == after.dtype:
            node.replace_all_uses_with(total)
    graph.eliminate_dead_code()


def _added(graph: fx.Graph, op: Any, *args: Any) -> fx.Node:
    node = graph.call_function(op, args)
    node.meta["val"] = computed(node)
    return node


def _one_place(rows: Any, dims: Any) -> tuple[Any, Any, Any, int] | None:
    """Returns the selected class, its value, the zero, and the number of classes."""
    if rows.target is not aten.where.self or len(dims) != 1:
        return None
    hot: Any
    hot, share, zero = rows.args
    if not isinstance(hot, fx.Node) or hot.target is not aten.eq.Tensor or not _is_zero(zero):
        return None
    value = tensor_of(rows)
    if value.ndim == 0:
        return None
    classes = value.shape[dims[0]]
    from_end = dims[0] % value.ndim - value.ndim
    if type(classes) is not int or not _is_single(share, from_end):
        return None
    sides: tuple[Any, ...] = hot.args
    for place, counted in (sides, sides[::-1]):
        if (
            _counts(counted, classes, from_end)
            and _is_single(place, from_end)
            and not tensor_of(place).dtype.is_floating_point
        ):
            return place, share, zero, classes
    return None


def _is_zero(node: Any) -> bool:
    targets = (aten.scalar_tensor.default, aten.full.default)
    if not isinstance(node, fx.Node) or node.target not in targets:
        return False
    number = node.args[-1]
    return isinstance(number, int | float) and number == 0 and tensor_of(node).ndim == 0


def _is_single(node: Any, from_end: int) -> bool:
    """True if the tensor has one element, or no dim, at this position."""
    value = tensor_of(node)
    return value.ndim < -from_end or value.shape[from_end] == 1


def _counts(node: Any, classes: int, from_end: int) -> bool:
    """True if the tensor is 0, 1, 2 ... along that dim, and constant along all other dims."""
    value = tensor_of(node)
    if value.ndim < -from_end or value.shape[from_end] != classes or value.numel() != classes:
        return False
    while is_view(node):
        node = node.all_input_nodes[0]
        if tensor_of(node).numel() != classes:
            return False
    return node.target is aten.arange.default
