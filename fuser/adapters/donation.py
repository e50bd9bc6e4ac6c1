"""Large results that are written into memory that nobody reads any more.

The gradient of a loss over a vocabulary is as large as the scores that it is computed from, and
these are not read again: beside them, it would be what a training step needs the most memory for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import torch
from torch import fx

from fuser.adapters import aten
from fuser.adapters.nodes import is_view, kind_of, tensor_of, writes
from fuser.adapters.padding import MEMORY
from fuser.adapters.partition import SMALL
from fuser.adapters.views import RESHAPES, has_numbers, owner_of

# In a node's meta: the operand of its region whose memory it takes.
DONOR = "donor"


def take_memory(
    graph: fx.Graph, regions: Sequence[Sequence[fx.Node]], given: Collection[fx.Node]
) -> None:
    """Marks results of regions that are written into an operand: one that lies in memory as they
    do, is read by no other step, and goes into the result element by element, so that each is read
    by who overwrites it. What comes out of the graph has memory of its own.

    given  placeholders whose memory is the graph's, if the caller does not keep it
    """
    if any(writes(node) for node in graph.nodes):
        return
    sharing: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        sharing.setdefault(owner_of(node), []).append(node)
    for nodes in regions:
        inside = set(nodes)
        taken: set[fx.Node] = set()
        for donor in _operands(nodes):
            owner = owner_of(donor)
            if owner in taken or not (owner in given or _is_fresh(owner)):
                continue
            readers = {user for n in sharing[owner] for user in n.users}.difference(sharing[owner])
            result = _result(donor, inside) if readers <= inside else None
            if result is None or _leaves(sharing[result]):
                continue
            result.meta[DONOR] = donor
            taken.add(owner)


def _leaves(nodes: Iterable[fx.Node]) -> bool:
    return any(user.op == "output" for node in nodes for user in node.users)


def _operands(nodes: Sequence[fx.Node]) -> Iterator[fx.Node]:
    """What a region reads, each once, where it is large."""
    inside = set(nodes)
    for node in dict.fromkeys(n for m in nodes for n in m.all_input_nodes if n not in inside):
        if has_numbers(node) and tensor_of(node).numel() >= SMALL:
            yield node


def _is_fresh(node: fx.Node) -> bool:
    """Does an op make it, in memory of its own?"""
    if kind_of(node) == "part":
        (node,) = node.all_input_nodes
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)


def _result(donor: fx.Node, inside: Collection[fx.Node]) -> fx.Node | None:
    """The only result of the region that reads `donor`, if that can be written into it."""
    reached, results = {donor}, []
    waiting = [donor]
    while waiting:
        source = waiting.pop()
        for node in source.users:
            if node not in inside:
                continue
            if not _is_by_element(node, source):
                return None
            if node in reached:
                continue
            reached.add(node)
            waiting.append(node)
            if any(user not in inside for user in node.users):
                results.append(node)
    if len(results) != 1:
        return None
    (result,) = results
    return result if MEMORY not in result.meta and _alike(result, donor) else None


def _is_by_element(node: fx.Node, source: fx.Node) -> bool:
    """Is each of its elements made of that of `source` with the same row-major number?"""
    value = tensor_of(node)
    if value is None:
        return False
    same = aten.by_element(str(node.target)) and value.shape == tensor_of(source).shape
    return bool(same) or node.target in RESHAPES


def _alike(a: fx.Node, b: fx.Node) -> bool:
    x, y = tensor_of(a), tensor_of(b)
    alike = x.dtype == y.dtype and x.shape == y.shape and x.stride() == y.stride()
    return bool(alike) and not is_view(a)
