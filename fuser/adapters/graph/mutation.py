"""Writes to graph inputs: AOTAutograd appends these copies to a functional graph.

    add = aten.add.Tensor(x, y)
    copy_ = aten.copy_.default(x, add)

A region that computes the copied value stores it in place (fuser.adapters.partition), without a
second tensor and a second kernel. This is equivalent if all readers of the old value run before;
within a region the core ensures it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.effects import waits_of
from fuser.adapters.graph.views import memory_of
from fuser.adapters.nodes import is_write, tensor_of, writes
from fuser.adapters.partition import Write


def final_writes(graph: fx.Graph) -> dict[fx.Node, Write]:
    """Returns the copies into inputs that have no later readers of the input, in graph order."""
    written = [node for node in graph.nodes if is_write(node) and not node.users]
    if not written:
        return {}
    order = {node: i for i, node in enumerate(graph.nodes)}
    inputs = {m for node in graph.nodes if node.op == "placeholder" for m in memory_of(node)}
    copied = {m for node in written for m in memory_of(node.args[1])}
    times = Counter(node.args[0] for node in written)
    result: dict[fx.Node, Write] = {}
    for node, readers in _readers(graph, written).items():
        target, value = node.args[:2]
        if any(order[reader] > order[node] for reader in readers):
            continue
        joins = (
            times[target] == 1
            # The copied value must not share memory with an input, and no other copy may read this
            # input.
            and inputs.isdisjoint(memory_of(value))
            and copied.isdisjoint(memory_of(target))
            and fits(_tensor(value), _tensor(target))
        )
        result[node] = Write(readers, joins)
    return result


def readers_before(
    graph: fx.Graph, final: Iterable[fx.Node], steps: Iterable[Collection[fx.Node]]
) -> list[set[int]]:
    """For each step (nodes that run together), the steps that must run before it because they read
    inputs that it overwrites.
    """
    listed = [set(step) for step in steps]
    of = {node: i for i, step in enumerate(listed) for node in step}
    before: list[set[int]] = [set() for _ in listed]
    for node, readers in _readers(graph, [node for node in final if node in of]).items():
        before[of[node]] |= {of[r] for r in readers if r in of} - {of[node]}
    return before


def _readers(graph: fx.Graph, written: Sequence[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For each of these copies, the nodes that read the overwritten input or a view of it. A
    collective reads until its wait.
    """
    if not written:
        return {}
    others = set(written)
    sharing: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        if not writes(node):
            for memory in memory_of(node):
                sharing.setdefault(memory, []).append(node)
    found: dict[fx.Node, list[fx.Node]] = {}
    for node in written:
        direct = [u for m in memory_of(node.args[0]) for n in sharing[m] for u in n.users]
        users = [*direct, *(w for u in direct for w in waits_of(u))]
        readers = (u for u in users if u.op != "output" and u not in others)
        found[node] = list(dict.fromkeys(readers))
    return found


def _tensor(value: Any) -> Any:
    return tensor_of(value) if isinstance(value, fx.Node) else None


def fits(value: Any, target: Any) -> bool:
    """True if shapes, dtypes and devices are equal and no element of the target is written
    twice.
    """
    if value is None or value.dtype != target.dtype or value.device != target.device:
        return False
    if [_expression(n) for n in value.shape] != [_expression(n) for n in target.shape]:
        return False
    return not any(type(n) is int and n == 0 for n in target.stride())


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size
