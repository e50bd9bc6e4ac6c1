"""Preferences of the min-cut partitioner: values of a joint graph that the backward graph computes
again instead of saving them, and random ops that the partitioner must not merge.
"""

from __future__ import annotations

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fuser.adapters import aten
from fuser.adapters.graph.effects import draws
from fuser.adapters.nodes import is_view, kind_of, tensor_of

# Attribute that distinguishes equal random ops, because torch's partitioner merges two randn_like.
_DRAW = "_fuser_draw"


def keep_what_is_widened(graph: fx.Graph) -> None:
    """Prefers to save a half-precision value instead of its float32 copy. Torch's partitioner would
    save the copy if an op that it does not fuse, e.g. a norm, reads it.
    """
    of_backward: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            starts = str(node.target).startswith("tangents")
        else:
            starts = not of_backward.isdisjoint(node.all_input_nodes)
        if starts:
            of_backward.add(node)
    for node in graph.nodes:
        if node in of_backward or of_backward.isdisjoint(node.users) or not _widens(node):
            continue
        node.meta.setdefault("recompute", CheckpointPolicy.PREFER_RECOMPUTE)


def reduce_again_what_is_compared(graph: fx.Graph) -> None:
    """Rematerializes a maximum that is compared with its operand, e.g. in the gradient of amax, so
    that one kernel computes both for the backward graph. A saved maximum has been rounded and might
    differ from all rematerialized values; the gradient would then be lost.
    """
    for node in graph.nodes:
        if node.target not in _EQUALITIES:
            continue
        sources = [_behind_views(n) for n in node.all_input_nodes]
        reduced = [n for n in sources if aten.reduces(str(n.target))]
        if any(kind_of(n) == "compute" for n in set(sources).difference(reduced)):
            for n in reduced:
                n.meta.setdefault("recompute", CheckpointPolicy.PREFER_RECOMPUTE)


_EQUALITIES = {torch.ops.aten.eq.Tensor, torch.ops.aten.ne.Tensor}


def number_draws(graph: fx.Graph) -> None:
    """Gives each random op its number as an attribute, so that no two are equal."""
    for number, node in enumerate(filter(draws, graph.nodes)):
        node.kwargs = {**node.kwargs, _DRAW: number}


def drop_draw_numbers(graph: fx.Graph) -> None:
    """Removes the attribute of number_draws() from a forward or backward graph."""
    # a node that repeats a generator state has the attribute of the original op
    for node in graph.nodes:
        node.kwargs = {k: v for k, v in node.kwargs.items() if k != _DRAW}


def _behind_views(node: fx.Node) -> fx.Node:
    while is_view(node):
        node = node.all_input_nodes[0]
    return node


def _widens(node: fx.Node) -> bool:
    if node.target is not torch.ops.aten._to_copy.default:
        return False
    source = node.args[0]
    assert isinstance(source, fx.Node)
    before, after = tensor_of(source), tensor_of(node)
    if before is None or not before.is_floating_point() or before.device != after.device:
        return False
    return bool(before.dtype.itemsize == 2 and after.dtype == torch.float32)
