"""argmax and argmin along a divided axis: partial results are gathered and merged."""

from __future__ import annotations

from collections.abc import Sequence

from torch.distributed.tensor import Shard

from fuser import _core
from fuser._core import DataType, Tensor
from fuser.multidevice.emit import Emit, Emitter, LocalOp
from fuser.multidevice.graph import Graph
from fuser.multidevice.shards import REPLICATE, Placements, axis_of, is_shard


def merged(graph: Graph, op: LocalOp, operand: int, dim: int, results: Sequence[int]) -> list[int]:
    """Nodes of the value and the position of an extreme along an axis that dim `dim` of the mesh
    divides. Each rank finds its own; those of all ranks are stacked on a new first axis, and the
    first extreme of them wins, as along a whole axis.
    """
    name, values_type = op.record["op"], op.record["dtype"]
    values, positions = _stacked(graph, op, operand, dim)

    def value(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        return _core.reduce(to.builder, name, tensors[0], [0], False)

    def position(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        rank = to.unsqueeze(_core.result(to.builder, value(to, tensors), 1))
        return to.squeeze(_core.take_along_axis(to.builder, tensors[1], rank, 0, True))

    kept, placed = op.sizes, op.placements
    first = graph.add(results[0], [values], kept, placed, values_type, value, weight=1)
    if len(results) == 1:
        return [first]
    both = [values, positions]
    return [first, graph.add(results[1], both, kept, placed, DataType.Int, position, weight=1)]


def _stacked(graph: Graph, op: LocalOp, operand: int, dim: int) -> list[int]:
    """Values and positions in the whole axis of all ranks: [ranks, ...]."""
    record, place, kept, placed = op.record, op.place, op.sizes, op.placements
    tensor, (axis,) = record["id"], record["dims"]
    first = place.offset(op.operand_sizes[0], op.operand_placements[0], axis)
    raw = graph.add(tensor, [operand], kept, placed, record["dtype"], op, weight=1)
    where = graph.add(*(tensor, [raw], kept, placed, DataType.Int, _second), weight=1, owner=raw)
    up = [Shard(axis_of(p) + 1) if is_shard(p) else p for p in placed]
    apart: Placements = (*up[:dim], Shard(0), *up[dim + 1 :])
    gathered: Placements = (*up[:dim], REPLICATE, *up[dim + 1 :])
    found = []
    for node, dtype, shift in ((raw, record["dtype"], None), (where, DataType.Int, first)):
        stacked = (place.mesh[dim], *kept)
        node = graph.add(tensor, [node], stacked, apart, dtype, _on_top(shift))
        found.append(graph.moved(node, gathered, f"{record['op']} merges those of all ranks"))
    return found


def _second(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    return _core.result(to.builder, tensors[0], 1)


def _on_top(shift: int | None) -> Emit:
    """A new first axis; positions in a shard become positions in the whole axis."""

    def emit(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        x = tensors[0]
        return to.unsqueeze(to.pointwise("add", x, to.number(shift)) if shift is not None else x)

    return emit
