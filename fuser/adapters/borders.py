"""Views at the borders of a region: torch makes them without touching data, so they stay outside,
but for those that show one memory several times or take it apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import fx

from fuser.adapters.components import components
from fuser.adapters.nodes import hint, is_view, is_write, kind_of, tensor_inputs, tensor_of

# Parts of one tensor that one kernel walks: of more, each thread would take narrower vectors.
_MOST_PARTS = 8


def without_borders(nodes: list[fx.Node]) -> list[fx.Node]:
    """Without views that read from outside only, or that only the outside reads. What is made from
    nothing is inside wherever it is read; so are views of what the region overwrites, for as an
    argument of their own they would be other memory that happens to overlap.
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
    """Views at the beginning that give the others (`inside`) elements of a tensor more than once,
    as the halves of what is read as a whole too; or that give parts of it to nodes with nothing
    else in common, as the thirds of queries, keys and values; or that take every other element.
    Inside, they are one operand at several places: its bytes count once, and one kernel walks it.
    As operands of their own they would count as so many tensors, with a kernel each, and elements
    with gaps between would be read one by one.
    """
    border = {n: n.all_input_nodes[0] for n in nodes if n not in inside}
    read = {n: None for node in nodes if node in inside for n in tensor_inputs(node)}
    of: dict[fx.Node, list[fx.Node]] = {}  # what is read of a tensor, by what it is a view of
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
        # What others read of them is torch's to make.
        if all(user in inside or user in views for n in views for user in n.users):
            found |= views
    return found


def _takes_steps(node: fx.Node) -> bool:
    """Is it every other element, or fewer, of a tensor?"""
    return node.target is torch.ops.aten.slice.Tensor and node.args[4:] not in ((), (1,))


def _read_again(whole: fx.Node, parts: Sequence[fx.Node]) -> bool:
    """Do these views have more elements than what they are views of? Sizes with symbols are as they
    were traced.
    """
    values = [tensor_of(n) for n in (whole, *parts)]
    if any(v is None for v in values):
        return False
    elements, *read = (prod(map(hint, v.shape)) for v in values)
    return sum(read) > elements
