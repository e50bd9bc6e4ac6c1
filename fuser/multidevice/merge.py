"""Reductions without a collective of their own: partial results are gathered and merged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fuser import _core
from fuser._core import DataType, Tensor
from fuser.multidevice.emit import Emit, Emitter, LocalOp
from fuser.multidevice.graph import Graph
from fuser.multidevice.shards import REPLICATE, Placements, is_shard
from torch.distributed.tensor import Shard


def merged(
    graph: Graph, sizes: Any, op: LocalOp, operand: int, dim: int, results: Sequence[int]
) -> list[int]:
    """Nodes of the results of a reduction whose reduced axis is divided by dim `dim` of the mesh.

    Each rank reduces its shard. The partial results of all ranks, stacked on a new first axis,
    are gathered and reduced: argmax and argmin by the value, of equal ones the first; welford by
    the mean of means and the spread between them, which is exact where sums of squares cancel.
    """
    stacked = _stacked(graph, op, operand, dim)
    tensor = results[0]
    kept, placed = op.sizes, op.placements
    if op.record["op"] == "welford":
        found = _welford(graph, op, stacked)
    else:
        found = _extreme(graph, op, stacked)
    dtypes = [graph.nodes[i].dtype for i in stacked]
    out = []
    for i, t in enumerate(results):
        emit, owner, operands = found[i]
        node = graph.add(
            *(tensor if t < 0 else t, operands, kept, placed, dtypes[i], emit),
            weight=1,
            owner=owner,
        )
        out.append(node)
    return out


def _stacked(graph: Graph, op: LocalOp, operand: int, dim: int) -> list[int]:
    """The results of this rank's shard, gathered from all ranks: [ranks, ...]."""
    record, place = op.record, op.place
    kept, placed = op.sizes, op.placements
    tensor, compute = record["id"], record["dtype"]
    axis = record["dims"][0]
    first = place.offset(op.operand_sizes[0], op.operand_placements[0], axis)
    dtypes = [compute] * 3 if record["op"] == "welford" else [compute, DataType.Int]
    raw = graph.add(tensor, [operand], kept, placed, compute, op, weight=1)
    up = [Shard(p.dim + 1) if is_shard(p) else p for p in placed]  # type: ignore[attr-defined]
    apart: Placements = (*up[:dim], Shard(0), *up[dim + 1 :])
    gathered: Placements = (*up[:dim], REPLICATE, *up[dim + 1 :])
    found = []
    for i, dtype in enumerate(dtypes):
        node = raw
        if i:
            node = graph.add(
                *(tensor, [raw], kept, placed, dtype, _result(i)), weight=1, owner=raw
            )
        shift = first if dtype == DataType.Int else 0
        node = graph.add(
            *(tensor, [node], (place.mesh[dim], *kept), apart, dtype, _unsqueezed(shift))
        )
        found.append(graph.moved(node, gathered, f"{record['op']} merges the ranks' results"))
    return found


def _result(index: int) -> Emit:
    return lambda to, tensors: _core.result(to.builder, tensors[0], index)


def _unsqueezed(shift: int) -> Emit:
    """A new first axis; positions of a shard become positions of the whole."""

    def emit(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        x = tensors[0]
        if x.dtype() == DataType.Int:
            x = to.pointwise("add", x, to.number(shift))
        return to.unsqueeze(x)

    return emit


Found = list[tuple[Emit, int | None, list[int]]]


def _extreme(graph: Graph, op: LocalOp, stacked: Sequence[int]) -> Found:
    values, positions = stacked
    name = op.record["op"]

    def value(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        return _core.reduce(to.builder, name, tensors[0], [0], False)

    def position(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        best = _core.reduce(to.builder, name, tensors[0], [0], False)
        rank = to.unsqueeze(_core.result(to.builder, best, 1))
        return to.squeeze(_core.take_along_axis(to.builder, tensors[1], rank, 0, True))

    return [(value, None, [values]), (position, None, [values, positions])]


def _welford(graph: Graph, op: LocalOp, stacked: Sequence[int]) -> Found:
    dtype = op.record["dtype"]
    total = math.prod(op.operand_sizes[0][d] for d in op.record["dims"])

    def summed(to: Emitter, x: Tensor) -> Tensor:
        return _core.reduce(to.builder, "sum", x, [0], False)

    def mean(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        weighted = summed(to, to.pointwise("mul", tensors[0], tensors[2]))
        count = _core.cast(to.builder, to.number(total), dtype)
        found: Tensor = to.pointwise("truediv", weighted, count)
        return found

    def spread(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        apart = to.pointwise("sub", tensors[0], to.unsqueeze(mean(to, tensors)))
        between = to.pointwise("mul", tensors[2], to.pointwise("mul", apart, apart))
        return summed(to, to.pointwise("add", tensors[1], between))

    def count(to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        return summed(to, tensors[2])

    return [(emit, None, list(stacked)) for emit in (mean, spread, count)]
