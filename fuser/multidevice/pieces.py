"""Cuts the graph of a rank into pieces between collectives, and orders them so that independent
work runs while a collective is under way.

The order follows from the graph alone, so that all ranks meet in the same collectives.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fuser.multidevice.graph import Graph

# A value that depends on more stored tensors than this is stored rather than computed again.
_MOST_LEAVES = 8


@dataclass
class Piece:
    """Part of the graph that runs as one local definition.

    nodes    ops in order
    inputs   nodes that it reads
    outputs  nodes that it stores
    issued   collectives that begin after it
    """

    roots: list[int]
    nodes: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    issued: list[int] = field(default_factory=list)


def cut(graph: Graph) -> list[Piece]:
    """The pieces in order. A piece without nodes only issues collectives. Before a piece runs, or
    issues a collective of a collective, the collectives that it reads must be complete.
    """
    return _Cut(graph).pieces


class _Cut:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.live = _live(graph)
        self.levels = _levels(graph)
        self.leaves = _leaves(graph)
        self.home: dict[int, int] = {}  # piece of each op that is computed once, or stored
        self.computed: dict[int, int] = {}  # first piece that computes a node
        self.pieces: list[Piece] = []
        for level in range(max(self.levels, default=0) + 1):
            self.level(level)
        for index, piece in enumerate(self.pieces):
            self.fill(index, piece)
        for n in sorted(self.needed()):
            piece = self.pieces[self.home[n]]
            piece.outputs.append(n)
            if n not in piece.nodes:  # a further result, which the op's own piece does not read
                piece.nodes = sorted([*piece.nodes, n])

    def needed(self) -> set[int]:
        """Computed nodes that other pieces, collectives and the caller read."""
        nodes = self.graph.nodes
        found = {n for piece in self.pieces for n in piece.inputs}
        found.update(nodes[c].operands[0] for piece in self.pieces for c in piece.issued)
        found.update(self.graph.outputs)
        return {n for n in found if nodes[n].emit}

    def level(self, level: int) -> None:
        """Pieces of the ops that follow `level` collectives: first those that the next collectives
        need, a piece for each with a library op of its own, then the rest.
        """
        nodes = self.graph.nodes
        started = [
            n.index
            for n in nodes
            if n.step and n.index in self.live and self.levels[n.operands[0]] == level
        ]
        ready = [c for c in started if not nodes[nodes[c].operands[0]].emit]
        if ready:
            self.pieces.append(Piece([], issued=ready))
        open_: Piece | None = None
        for collective in (c for c in started if c not in ready):
            root = nodes[collective].operands[0]
            fresh = self.unassigned([root])
            if open_ is None or any(nodes[n].weight == 2 for n in fresh):
                open_ = Piece([])
                self.pieces.append(open_)
            self.assign(fresh)
            if root in fresh or root not in self.home:
                open_.roots.append(root)
                self.home[root] = len(self.pieces) - 1
            open_.issued.append(collective)
        rest = [
            n.index
            for n in nodes
            if self.levels[n.index] == level
            and n.index in self.live
            and n.emit
            and n.index not in self.home
            and (n.weight or n.index in self.graph.outputs)
        ]
        if rest:
            self.pieces.append(Piece(rest))
            self.assign(rest)

    def unassigned(self, roots: Iterable[int]) -> list[int]:
        """The ops below `roots` that are computed once and have no piece yet, and their owners."""
        found, open_ = set(), list(roots)
        seen = set(open_)
        while open_:
            node = self.graph.nodes[open_.pop()]
            if not node.emit or node.index in self.home:
                continue
            if node.weight:
                found.add(node.index)
            more = [*node.operands] + ([node.owner] if node.owner is not None else [])
            open_ += [n for n in more if n not in seen]
            seen.update(more)
        return sorted(found)

    def assign(self, nodes: Iterable[int]) -> None:
        for n in nodes:
            self.home[n] = len(self.pieces) - 1
        # Further results of an op are computed with it.
        for node in self.graph.nodes:
            if node.owner is not None and node.owner in self.home:
                self.home[node.index] = self.home[node.owner]

    def fill(self, index: int, piece: Piece) -> None:
        """The nodes and inputs of a piece: all that its roots need and that is not stored."""
        nodes = self.graph.nodes
        queue = [-root for root in piece.roots]
        heapq.heapify(queue)
        inputs: set[int] = set()
        inside: set[int] = set()
        while queue:
            at = -heapq.heappop(queue)
            if at in inside or at in inputs:
                continue
            if not nodes[at].emit or self.is_read(at, index, inputs):
                inputs.add(at)
                continue
            inside.add(at)
            self.computed.setdefault(at, index)
            self.home.setdefault(at, index)
            for operand in nodes[at].operands:
                heapq.heappush(queue, -operand)
        piece.nodes, piece.inputs = sorted(inside), sorted(inputs)

    def is_read(self, at: int, index: int, inputs: set[int]) -> bool:
        """True if piece `index` reads a node from memory instead of computing it."""
        home = self.home.get(at, index)
        if self.graph.nodes[at].weight or home >= index:
            return home < index
        leaves = self.leaves[at]
        if leaves is None:
            return True
        again = sum(self.graph.bytes(leaf) for leaf in leaves - inputs)
        stored = at in self.pieces[home].roots
        return again > self.graph.bytes(at) * (1 if stored else 2)


def _live(graph: Graph) -> set[int]:
    found = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.index in found:
            found.update(node.operands)
    return found


def _levels(graph: Graph) -> list[int]:
    """Number of collectives before each node, in the longest chain."""
    levels: list[int] = []
    for node in graph.nodes:
        below = max((levels[n] for n in node.operands), default=0)
        levels.append(below + (node.step is not None))
    return levels


def _leaves(graph: Graph) -> list[frozenset[int] | None]:
    """The stored nodes from which cheap ops compute a node; None for too many."""
    found: list[frozenset[int] | None] = []
    for node in graph.nodes:
        if not node.emit or node.weight:
            found.append(frozenset([node.index]))
            continue
        parts: Sequence[frozenset[int] | None] = [found[n] for n in node.operands]
        whole = [part for part in parts if part is not None]
        merged = frozenset().union(*whole)
        found.append(merged if len(whole) == len(parts) and len(merged) <= _MOST_LEAVES else None)
    return found
