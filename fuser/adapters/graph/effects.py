"""Order of ops with side effects: they keep the order of the graph, on every rank.

Collectives, sends and receives are matched between processes by order alone. Ops of other libraries
may communicate or have other state. Random ops share a generator that each draw advances. A graph
does not express these dependencies: no value connects the ops.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from functools import cache

import torch
from torch import fx

from fuser.adapters.torch_compat import (
    HigherOrderOperator,
    OpOverload,
    effectful_functions,
    triton_kernel_wrapper_functional,
)

# Namespaces whose ops have only the effects of their schemas and tags. Writes to tensors are
# handled elsewhere: no region spans an op that writes.
_KNOWN = {"aten", "prims", "quantized", "quantized_decomposed", "mkldnn", "mkl"}
# State that an op advances: torch's generators, or something outside the process.
_RANDOM, _OUTSIDE = "random", "outside"


class Effects:
    """For each op of a graph with side effects, the ops that must run immediately before it."""

    def __init__(self, nodes: Iterable[fx.Node]) -> None:
        self.previous: dict[fx.Node, tuple[fx.Node, ...]] = {}
        last: dict[str, fx.Node] = {}
        for node in nodes:
            if node.op != "call_function" or is_wait(node) or not (moved := _moved(node.target)):
                continue
            self.previous[node] = tuple(dict.fromkeys(last[m] for m in moved if m in last))
            last |= dict.fromkeys(moved, node)

    def sources(self, node: fx.Node) -> list[fx.Node]:
        """Nodes that must run before `node`: its operands, and ops with an earlier effect."""
        return [*node.all_input_nodes, *self.previous.get(node, ())]


def draws(node: fx.Node) -> bool:
    """True if the op draws random numbers from torch's generator."""
    return isinstance(node.target, OpOverload) and _RANDOM in _moved(node.target)


def reaches_outside(node: fx.Node) -> bool:
    """True if other processes may wait for this op."""
    return node.op == "call_function" and not is_wait(node) and _OUTSIDE in _moved(node.target)


def is_start(node: fx.Node) -> bool:
    """True if the op starts a collective, whose result is complete after a wait."""
    return _is_collective(node) and node.target is not _wait()


def is_wait(node: fx.Node) -> bool:
    """True if the op waits for a collective that the graph starts. It is local to the process, so
    that its position does not matter to the others.
    """
    if not _is_collective(node) or node.target is not _wait():
        return False
    source = node.args[0]
    if isinstance(source, fx.Node) and source.target is operator.getitem:
        source = source.args[0]
    return isinstance(source, fx.Node) and is_start(source)


def waits_of(node: fx.Node) -> list[fx.Node]:
    """The waits for a collective, until which it reads its operand; [] for other nodes."""
    if not is_start(node):
        return []
    parts = [node, *(u for u in node.users if u.target is operator.getitem)]
    return [user for part in parts for user in part.users if is_wait(user)]


def _is_collective(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, OpOverload) and target.namespace == "_c10d_functional"


def _wait() -> object:
    return torch.ops._c10d_functional.wait_tensor.default


def effects_before(graph: fx.Graph, steps: Iterable[Collection[fx.Node]]) -> list[set[int]]:
    """For each step (nodes that run together), the steps that must run before it because of the
    order of effects.
    """
    listed = list(steps)
    of = {node: i for i, step in enumerate(listed) for node in step}
    before: list[set[int]] = [set() for _ in listed]
    for node, previous in Effects(n for n in graph.nodes if n in of).previous.items():
        before[of[node]] |= {of[n] for n in previous} - {of[node]}
    return before


@cache
def _moved(target: Callable[..., object]) -> tuple[str, ...]:
    if target is triton_kernel_wrapper_functional:
        return ()
    if isinstance(target, HigherOrderOperator):
        return _RANDOM, _OUTSIDE  # the effects of its subgraphs are unknown
    if not isinstance(target, OpOverload):
        return (_OUTSIDE,) if target in effectful_functions else ()
    moved = []
    if torch.Tag.nondeterministic_seeded in target.tags:
        moved.append(_RANDOM)
    if target.namespace not in _KNOWN or target in effectful_functions:
        moved.append(_OUTSIDE)
    return tuple(moved)
