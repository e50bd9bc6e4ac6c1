"""Views at the borders of a region. Torch creates them without touching data, so they stay outside,
unless several of them show one memory or split it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import fx

from fuser.adapters.nodes import hint, is_view, is_write, kind_of, tensor_inputs, tensor_of
from fuser.adapters.union_find import components

# Maximum slices of one tensor in one kernel: more slices would force narrower vectors.
_MOST_PARTS = 8


def without_borders(nodes: list[fx.Node]) -> list[fx.Node]:
    """Drops views with operands or users only outside the region. Factory ops belong to every
    region that reads them. Views of overwritten inputs stay inside: as separate arguments they
    would be unrelated memory that happens to overlap.
    """
    inside = set(nodes)
    known = inside | {n.args[0] for n in nodes if is_write(n)}
    for node in nodes:
        sources = tensor_inputs(node)
        if is_view(node) and not any(n in known or kind_of(n) == "create" for n in sources):
            inside.discard(node)
            known.discard(node)
    inside |= _of_one_memory(nodes, inside)
    for node in reversed(nodes):
        if node in inside and is_view(node) and not any(user in inside for user in node.users):
            inside.discard(node)
    return [n for n in nodes if n in inside]


def _of_one_memory(nodes: list[fx.Node], inside: set[fx.Node]) -> set[fx.Node]:
    """Returns views at the beginning of a region that should be inside (`inside`: the current
    nodes). They read elements of a tensor several times, e.g. halves of a tensor that is also read
    completely. Or they split a tensor for otherwise unrelated nodes, e.g. queries, keys and values.
    Or they are strided slices. Inside, they are one operand with several index maps: its bytes
    count once, and one kernel reads it. As separate arguments they would be several tensors in
    separate kernels, and strided slices would be read element by element.
    """
    border = {n: n.all_input_nodes[0] for n in nodes if n not in inside}
    read = {n: None for node in nodes if node in inside for n in tensor_inputs(node)}
    of: dict[fx.Node, list[fx.Node]] = {}  # views read by the region, by the tensor that they show
    for node in read:
        if node in inside:
            continue
        whole = node
        while whole in border:
            whole = border[whole]
        of.setdefault(whole, []).append(node)
    several = {
        whole: parts
        for whole, parts in of.items()
        if len(parts) > 1 or any(_takes_steps(n) for n in parts)
    }
    groups = components((n, s) for n in inside for s in tensor_inputs(n)) if several else {}
    found: set[fx.Node] = set()
    for whole, parts in several.items():
        readers = {groups[user] for node in parts for user in node.users if user in inside}
        apart = len(readers) > 1 and len(parts) <= _MOST_PARTS
        steps = any(_takes_steps(node) for node in parts)
        if not apart and not steps and not _read_again(whole, parts):
            continue
        views: set[fx.Node] = set()
        for node in parts:
            while node in border and node not in views:
                views.add(node)
                node = border[node]
        # Views with users outside are left to torch.
        if all(user in inside or user in views for n in views for user in n.users):
            found |= views
    return found


def _takes_steps(node: fx.Node) -> bool:
    """True if the node is a slice with a step."""
    return node.target is torch.ops.aten.slice.Tensor and node.args[4:] not in ((), (1,))


def _read_again(whole: fx.Node, parts: Sequence[fx.Node]) -> bool:
    """True if these views together have more elements than their source. Symbolic sizes count with
    their hints.
    """
    values = [tensor_of(n) for n in (whole, *parts)]
    if any(v is None for v in values):
        return False
    elements, *read = (prod(map(hint, v.shape)) for v in values)
    return sum(read) > elements
