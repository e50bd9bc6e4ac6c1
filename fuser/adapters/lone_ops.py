"""Single ops that no region computes: whether they form regions by themselves, or with others.

A kernel of ours for one op saves nothing if torch's kernel moves whole vectors. It does if torch
would compute addresses element by element, and if several ops become one launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx

from fuser.adapters import aten
from fuser.adapters.nodes import (
    device_of,
    hint,
    is_view,
    is_write,
    kind_of,
    reads_of,
    tensor_inputs,
    tensor_of,
)

# Elements that a GPU computes in the time of a launch.
SMALL = 1 << 22
# Elements that torch's kernels for operands of different layouts compute in the time of a launch:
# 0.2 per picosecond on an H100, because each thread computes the address of each element.
SMALL_STRIDED = 1 << 18
# Maximum elements of a tensor that may stay alive longer than needed: a bias, not a matrix.
_TINY = 1 << 14
# Fraction of the graph's largest tensor that results may take earlier than needed.
_SPARE = 16


def pays(nodes: Sequence[fx.Node], smallest: int) -> bool:
    """True if a region does more than torch's kernels would do one by one."""
    computing = _computing(nodes)
    return len(computing) >= smallest or any(
        aten.reduces(str(n.target)) or is_walked_by_elements(n) for n in computing
    )


def _computing(nodes: Iterable[fx.Node]) -> list[fx.Node]:
    return [n for n in nodes if kind_of(n) in ("compute", "random") or is_write(n)]


def is_walked_by_elements(node: fx.Node) -> bool:
    """True if torch would compute a large result without vectorized accesses: an operand has
    another dtype or layout.
    """
    result = tensor_of(node)
    if result is None or not has_numbers(result):
        return False
    given = [t for n in node.all_input_nodes if (t := tensor_of(n)) is not None and t.ndim]
    given = [t for t in given if has_numbers(t)]
    strided = any(t.shape != result.shape or t.stride() != result.stride() for t in given)
    casts = any(t.dtype != result.dtype for t in given)
    elements = result.numel()
    return (strided and elements > SMALL_STRIDED) or (casts and elements > SMALL)


def at_the_edges(alone: Iterable[fx.Node], smallest: int, largest: int) -> list[list[fx.Node]]:
    """Merges small ops outside regions, e.g. the casts of weights and gradients, into regions:
    their kernels, mostly identical, become one launch. They run at the beginning of the graph if
    they read only its inputs, or at its end if they have no other users. Their results stay alive
    until the end anyway, or are tiny, so memory grows by the small operands at most.

    largest  maximum nodes of a region
    """
    found: dict[Any, list[fx.Node]] = {}
    for node in alone:
        if kind_of(node) != "compute" or not is_small(node):
            continue
        first = all(n.op == "placeholder" for n in node.all_input_nodes)
        first &= stays(node) or is_tiny(node)
        if first or all(user.op == "output" for user in node.users):
            found.setdefault((device_of(node), first), []).append(node)
    regions = [
        nodes[i : i + largest] for nodes in found.values() for i in range(0, len(nodes), largest)
    ]
    return [nodes for nodes in regions if len(nodes) >= smallest]


def lone_op(nodes: Sequence[fx.Node]) -> fx.Node | None:
    """The only computing node of a region, if it is small and elementwise."""
    computing = _computing(nodes)
    if len(computing) != 1 or kind_of(computing[0]) != "compute" or not is_small(computing[0]):
        return None
    return None if aten.reduces(str(computing[0].target)) else computing[0]


@dataclass(frozen=True)
class Lifetimes:
    """Memory of a graph's values.

    owner  node whose memory a node shows
    last   graph index of the last reader of an owner's memory
    spare  bytes that results may take earlier than needed
    """

    owner: Mapping[fx.Node, fx.Node]
    last: Mapping[fx.Node, int]
    spare: int

    def held(self, node: fx.Node, index: int) -> int:
        """Bytes that stay alive longer if this node, at `index`, runs as soon as its operands
        exist: its result, less operands that it reads last.
        """
        owners = {self.owner[n] for n in tensor_inputs(node)}
        freed = (_bytes(n) for n in owners if n.op == "call_function" and self.last[n] <= index)
        return max(0, _bytes(node) - sum(freed))


def lifetimes(graph: fx.Graph) -> Lifetimes:
    """Owners and last readers of all memory of a graph."""
    owner: dict[fx.Node, fx.Node] = {}
    last: dict[fx.Node, int] = {}
    largest = 0
    for index, node in enumerate(graph.nodes):
        inputs = node.all_input_nodes
        shows = is_view(node) and inputs
        owner[node] = owner[inputs[0]] if shows else node
        for source in inputs if not shows else ():
            last[owner[source]] = index
        if node.op == "call_function" and not shows:
            largest = max(largest, _bytes(node))
    return Lifetimes(owner, last, largest // _SPARE)


def _bytes(node: fx.Node) -> int:
    value = tensor_of(node)
    return 0 if value is None else prod(map(hint, value.shape)) * value.element_size()


def is_tiny(node: fx.Node) -> bool:
    """True if the node's tensor may stay alive longer than needed."""
    value = tensor_of(node)
    return value is None or (has_numbers(value) and value.numel() <= _TINY)


def is_small(node: fx.Node) -> bool:
    """True if a kernel of this node takes no longer than a launch."""
    value = tensor_of(node)
    return value is not None and all(type(n) is int for n in value.shape) and value.numel() <= SMALL


def stays(node: fx.Node) -> bool:
    """True if the node, or a view of it, is a result of the graph."""
    return any(user.op == "output" for _, user in reads_of(node))


def has_numbers(value: torch.Tensor) -> bool:
    """True if the tensor's layout has no symbols."""
    return all(type(n) is int for n in (*value.shape, *value.stride()))
