"""The graph of one rank: local ops and collectives on shards of the definition's tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.distributed.tensor import Partial

from fuser._core import DataType, Tensor
from fuser.multidevice.emit import Emit, Emitter, Place
from fuser.multidevice.shards import Placements, Transition, axis_of, shard, transitions

# Kinds of ops that are computed once, in one piece. Others are cheap enough to repeat.
HEAVY = ("Reduction", "Library")


@dataclass(frozen=True)
class Node:
    """A tensor of the graph.

    tensor     number of the definition's tensor that it has values of, for messages
    sizes      sizes of the whole tensor
    emit       statement of a local definition; None for an input and for a collective
    weight     2 for a library op, 1 for another op that is computed once, 0 for one that may be
               repeated
    owner      node of the op whose further result this is, which must be in the same piece
    step       the collective
    """

    index: int
    tensor: int
    operands: tuple[int, ...]
    sizes: tuple[int, ...]
    placements: Placements
    dtype: DataType
    emit: Emit | None = None
    weight: int = 0
    owner: int | None = None
    step: Transition | None = None


@dataclass
class Graph:
    """Nodes in an order in which operands precede their users.

    inputs   nodes of the definition's tensor inputs, by number of the tensor
    outputs  nodes of its outputs, in order
    why      reason of each collective, by node
    """

    place: Place
    nodes: list[Node] = field(default_factory=list)
    inputs: dict[int, int] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    why: dict[int, str] = field(default_factory=dict)
    _moved: dict[tuple[int, Placements], int] = field(default_factory=dict)

    def add(
        self,
        tensor: int,
        operands: Sequence[int],
        sizes: Sequence[int],
        placements: Placements,
        dtype: DataType,
        emit: Emit | None = None,
        **more: Any,
    ) -> int:
        """Appends a node and returns its index."""
        index = len(self.nodes)
        place = (index, tensor, tuple(operands), tuple(sizes), placements, dtype, emit)
        self.nodes.append(Node(*place, **more))
        return index

    def local(self, index: int) -> tuple[int, ...]:
        """Sizes of this rank's shard of a node."""
        node = self.nodes[index]
        return self.place.sizes(node.sizes, node.placements)

    def bytes(self, index: int) -> int:
        """Bytes of the largest shard of a node, which all ranks agree on."""
        node, mesh = self.nodes[index], self.place.mesh
        largest, _ = shard(node.sizes, node.placements, mesh, [0] * len(mesh))
        return math.prod(largest) * node.dtype.bytes

    def moved(self, index: int, target: Placements, why: str) -> int:
        """The node with other placements; equal moves share their collectives."""
        for step in transitions(self.nodes[index].placements, target):
            node = self.nodes[index]
            placed = list(node.placements)
            placed[step.dim] = step.target
            key = (index, tuple(placed))
            if key not in self._moved:
                local = {"slice": self._slice, "mask": self._mask}.get(step.kind)
                made = self.add(
                    *(node.tensor, [index], node.sizes, tuple(placed), node.dtype),
                    emit=local(index, step) if local else None,
                    step=None if local else step,
                )
                self._moved[key] = made
                if not local:
                    self.why[made] = why
            index = self._moved[key]
        return index

    def _slice(self, index: int, step: Transition) -> Emit:
        """This rank's part of a tensor that all ranks of the dim have."""
        node = self.nodes[index]
        axis = axis_of(step.target)
        placed = list(node.placements)
        placed[step.dim] = step.target
        offset = self.place.offset(node.sizes, tuple(placed), axis)
        start = offset - self.place.offset(node.sizes, node.placements, axis)
        size = self.place.sizes(node.sizes, tuple(placed))[axis]
        return lambda to, tensors: to.slice(tensors[0], axis, start, size)

    def _mask(self, index: int, step: Transition) -> Emit:
        """A partial result: the tensor on all ranks of the dim, of a sum or product on the first,
        with zeros or ones on the others.
        """
        if step.target not in (Partial("sum"), Partial("product")):
            return lambda to, tensors: tensors[0]
        neutral = int(step.target == Partial("product"))
        mine = self.place.coordinate[step.dim] == 0
        dtype = self.nodes[index].dtype

        def emit(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
            kept = to.pointwise("ne", to.number(int(mine)), 0)
            found: Tensor = to.pointwise("where", kept, tensors[0], to.constant(neutral, dtype))
            return found

        return emit
