"""Plans of sharded definitions: for one mesh, placements and sizes, the pieces with their local
definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuser import _core
from fuser._core import Tensor
from fuser.cache import FusionExecutorCache
from fuser.fusion import Fusion
from fuser.multidevice.emit import Argument, Emitter, Place
from fuser.multidevice.graph import Graph
from fuser.multidevice.pieces import Piece, cut
from fuser.multidevice.propagate import Sizes, propagate
from fuser.multidevice.shards import REPLICATE, Placements, axis_of, is_shard


@dataclass(frozen=True)
class LocalDefinition:
    """A piece as an ordinary definition at local sizes.

    fusion     its graph, for printing
    execute    runs it
    arguments  its scalar arguments, after the tensors
    """

    fusion: Fusion
    execute: Callable[..., list[Any]]
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Plan:
    """Pieces in order; `local` has None for a piece that only issues collectives.

    dead  nodes that no step after this one reads, by step
    """

    graph: Graph
    pieces: list[Piece]
    local: list[LocalDefinition | None]
    dead: list[list[int]]

    def without(self, node: int) -> tuple[int, ...]:
        """Sizes of a collective's result if the dim of its step divided no axis."""
        found = self.graph.nodes[node]
        assert found.step
        placed = list(found.placements)
        placed[found.step.dim] = REPLICATE
        return self.graph.place.sizes(found.sizes, tuple(placed))


def make_plan(
    sizes: Sizes,
    place: Place,
    given: Mapping[int, Placements],
    wanted: Sequence[Placements | None],
    annotated: Mapping[int, Placements],
) -> Plan:
    """See propagate() and cut()."""
    graph = propagate(sizes, place, given, wanted, annotated)
    pieces = cut(graph)
    local = [_local(sizes, graph, piece) if piece.nodes else None for piece in pieces]
    return Plan(graph, pieces, local, _dead(graph, pieces))


def _local(sizes: Sizes, graph: Graph, piece: Piece) -> LocalDefinition:
    to = Emitter(sizes.records["scalars"], sizes.size_of)
    tensors: dict[int, Tensor] = {n: _input(to, graph, n) for n in piece.inputs}
    for n in piece.nodes:
        node = graph.nodes[n]
        assert node.emit
        tensors[n] = node.emit(to, [tensors[i] for i in node.operands])
    for n in piece.outputs:
        _core.add_output(to.builder, tensors[n], None)
    executors = FusionExecutorCache(Fusion(to.builder, lambda: executors))
    run = executors.executor.execute
    return LocalDefinition(executors.fusion(), run, tuple(to.arguments))


def _input(to: Emitter, graph: Graph, n: int) -> Tensor:
    """An input at local sizes; only axes that have size 1 on all ranks are fixed."""
    node = graph.nodes[n]
    divided = {axis_of(p) for p in node.placements if is_shard(p)}
    shape = [1 if size == 1 and d not in divided else -1 for d, size in enumerate(node.sizes)]
    contiguity = [None if size == 1 else False for size in shape]
    return _core.define_tensor(to.builder, shape, contiguity, node.dtype, False, [])


def _dead(graph: Graph, pieces: Sequence[Piece]) -> list[list[int]]:
    last: dict[int, int] = {}
    for step, piece in enumerate(pieces):
        sources = [graph.nodes[c].operands[0] for c in piece.issued]
        for n in (*piece.inputs, *piece.outputs, *sources):
            last[n] = step
    kept = set(graph.outputs)
    dead: list[list[int]] = [[] for _ in pieces]
    for n, step in last.items():
        if n not in kept:
            dead[step].append(n)
    return dead
