"""Donated buffers: large results that are stored into dead operands.

The gradient of a loss over a vocabulary is as large as its scores, which are dead afterwards.
Separate memory for the gradient would determine the peak memory of a training step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from torch import fx

from fuser.adapters import aten
from fuser.adapters.graph.padding import MEMORY
from fuser.adapters.graph.views import RESHAPES, has_numbers, owner_of
from fuser.adapters.lone_ops import SMALL
from fuser.adapters.nodes import is_view, kind_of, tensor_of, writes
from fuser.adapters.torch_compat import OpOverload

# Key in a node's meta: the operand of its region that donates its memory.
DONOR = "donor"


def take_memory(
    graph: fx.Graph, regions: Sequence[Sequence[fx.Node]], given: Collection[fx.Node]
) -> None:
    """Marks results of regions that are stored into an operand. The operand must have the layout of
    the result and no other reader. The result must depend on it elementwise, so that a thread reads
    each element before it overwrites it. Results of the graph keep separate memory.

    given  placeholders that the graph may overwrite, unless the caller still needs them
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
    """Large operands of a region, without duplicates."""
    inside = set(nodes)
    for node in dict.fromkeys(n for m in nodes for n in m.all_input_nodes if n not in inside):
        if has_numbers(node) and tensor_of(node).numel() >= SMALL:
            yield node


def _is_fresh(node: fx.Node) -> bool:
    """True if an op computes the node into new memory."""
    if kind_of(node) == "part":
        (node,) = node.all_input_nodes
    return node.op == "call_function" and isinstance(node.target, OpOverload)


def _result(donor: fx.Node, inside: Collection[fx.Node]) -> fx.Node | None:
    """Returns the only result of the region that depends on `donor`, if it can be stored into
    `donor`.
    """
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
    """True if each element depends only on the element of `source` with equal row-major number."""
    value = tensor_of(node)
    if value is None:
        return False
    same = aten.by_element(str(node.target)) and value.shape == tensor_of(source).shape
    return bool(same) or node.target in RESHAPES


def _alike(a: fx.Node, b: fx.Node) -> bool:
    x, y = tensor_of(a), tensor_of(b)
    alike = x.dtype == y.dtype and x.shape == y.shape and x.stride() == y.stride()
    return bool(alike) and not is_view(a)
