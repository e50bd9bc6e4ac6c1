"""Carries placements through a definition: chooses a signature for each op, with least traffic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch.distributed.tensor.placement_types import Placement

from fuser._core import DataType
from fuser.multidevice import merge
from fuser.multidevice.emit import LocalOp, Place
from fuser.multidevice.graph import HEAVY, Graph
from fuser.multidevice.rules import Op, Signature, signatures
from fuser.multidevice.shards import (
    REPLICATE,
    Placements,
    axis_of,
    chunk,
    describe,
    is_shard,
)

# Cost of starting a collective, in bytes that move in that time.
_START = 1 << 16
# Operations of a matrix product in the time in which one byte moves between devices.
_FLOPS_PER_BYTE = 2000


class Sizes:
    """Sizes of the definition's tensors and values of its scalars for one call."""

    def __init__(self, records: dict[str, Any], shapes: Mapping[int, Sequence[int]], number: Any):
        self.records, self.number = records, number
        self.shapes = {tensor: tuple(n) for tensor, n in shapes.items()}
        self.results: dict[int, dict[int, int]] = {}  # further results: index to tensor
        for record in records["tensors"]:
            if record["kind"] == "Result":
                self.results.setdefault(record["operands"][0], {})[record["index"]] = record["id"]

    def size_of(self, tensor: int, dim: int) -> int:
        """Size of a dim."""
        return self.shapes[tensor][dim]


def operands_of(record: dict[str, Any]) -> list[int]:
    """Tensors that an op reads, once for each of its arguments."""
    if record["kind"] == "Pointwise":
        return [at for is_tensor, at in record["args"] if is_tensor]
    return list(record["operands"])


def joined_reshapes(
    records: Sequence[dict[str, Any]], kept: Collection[int]
) -> list[dict[str, Any]]:
    """The records with splits and merges of dims as kind "Reshape". A chain of them is one: it may
    merge an axis on its way that it keeps in the end. Tensors in `kept` end a chain.
    """
    users = Counter(t for record in records for t in set(record["operands"]))
    sources: dict[int, int] = {}  # operand of the chain that ends at a tensor
    found = []
    for record in records:
        if record["kind"] in ("SplitDim", "MergeDims"):
            arg = record["arg"]
            inside = arg in sources and users[arg] == 1 and arg not in kept
            sources[record["id"]] = sources[arg] if inside else arg
            operands = [sources[record["id"]]]
            record = record | {"kind": "Reshape", "arg": operands[0], "operands": operands}
        found.append(record)
    return found


def propagate(
    sizes: Sizes,
    place: Place,
    given: Mapping[int, Placements],
    wanted: Sequence[Placements | None],
    annotated: Mapping[int, Placements],
) -> Graph:
    """The graph of one rank. `given` are placements of input tensors, `wanted` of the outputs; None
    completes partial sums and leaves the rest. `annotated` are placements of other tensors.
    """
    return _Propagation(sizes, place, given, annotated).run(wanted)


class _Propagation:
    def __init__(
        self,
        sizes: Sizes,
        place: Place,
        given: Mapping[int, Placements],
        annotated: Mapping[int, Placements],
    ) -> None:
        self.sizes, self.place, self.given, self.annotated = sizes, place, given, annotated
        self.graph = Graph(place)
        self.versions: dict[int, dict[Placements, int]] = {}  # nodes of a tensor, the first natural
        outputs = [tensor for tensor, _ in sizes.records["outputs"]]
        self.records = joined_reshapes(sizes.records["tensors"], {*outputs, *annotated})
        self.users = Counter(outputs)
        self.live = set(outputs)
        for record in reversed(self.records):
            if record["id"] in self.live:
                self.live.update(record["operands"])
                self.users.update(set(record["operands"]))

    def run(self, wanted: Sequence[Placements | None]) -> Graph:
        for record in self.records:
            tensor = record["id"]
            if record["kind"] == "Input":
                self.input(record)
            elif record["kind"] == "Result":
                continue  # with its op
            elif tensor in self.live:
                self.op(record)
        for (tensor, alias), asked in zip(self.sizes.records["outputs"], wanted, strict=True):
            self.output(tensor, self.given[alias] if alias >= 0 else asked)
        return self.graph

    # ---- tensors

    def input(self, record: dict[str, Any]) -> None:
        tensor = record["id"]
        node = self.graph.add(
            tensor, [], self.sizes.shapes[tensor], self.given[tensor], record["dtype"]
        )
        self.graph.inputs[tensor] = node
        self.placed(tensor, node, self.given[tensor], "an axis of size 1 broadcasts")

    def output(self, tensor: int, asked: Placements | None) -> None:
        if asked is None:
            natural = next(iter(self.versions[tensor]))
            asked = tuple(REPLICATE if p.is_partial() else p for p in natural)
        self.graph.outputs.append(self.fetch(tensor, asked, "the output's placement"))

    def fetch(self, tensor: int, target: Placements, why: str) -> int:
        """The tensor's node with these placements; moves its nearest version."""
        versions = self.versions[tensor]
        if target not in versions:
            bytes_ = self.bytes_of(tensor)
            nearest = min(
                versions,
                key=lambda v: sum(
                    self.cost(v[j], target[j], bytes_, j) for j in range(len(target))
                ),
            )
            versions[target] = self.graph.moved(versions[nearest], target, why)
        return versions[target]

    def computed(self, tensor: int, node: int) -> None:
        """Records the node of a tensor, moved if the definition says where the tensor is."""
        wanted = self.annotated.get(tensor, self.graph.nodes[node].placements)
        self.placed(tensor, node, wanted, "placed by the definition")

    def placed(self, tensor: int, node: int, wanted: Placements, why: str) -> None:
        """Moves a tensor to its natural placements, which divide no axis of size 1."""
        sizes = self.sizes.shapes[tensor]
        target = tuple(REPLICATE if is_shard(p) and sizes[axis_of(p)] <= 1 else p for p in wanted)
        self.versions[tensor] = {target: self.graph.moved(node, target, why)}

    def bytes_of(self, tensor: int) -> int:
        dtype: DataType = self.records[tensor]["dtype"]
        return math.prod(self.sizes.shapes[tensor]) * dtype.bytes

    # ---- ops

    def op(self, record: dict[str, Any]) -> None:
        operands = operands_of(record)
        results = [record["id"]]
        further = self.sizes.results.get(record["id"], {})
        results += [further.get(i, -1) for i in range(1, max(further, default=0) + 1)]
        chosen: list[Signature] = []
        reasons: list[str] = []
        for j in range(len(self.place.mesh)):
            signature, reason = self.choose(record, operands, results, chosen, j)
            chosen.append(signature)
            reasons.append(reason)
        nodes, placed = [], []
        for i, tensor in enumerate(operands):
            target = tuple(signature.operands[i] for signature in chosen)
            natural = next(iter(self.versions[tensor]))
            why = "; ".join(
                reasons[j] for j in range(len(chosen)) if natural[j] != target[j] and reasons[j]
            )
            nodes.append(self.fetch(tensor, target, why))
            placed.append(target)
        shapes = tuple(self.sizes.shapes[t] for t in operands)
        merged = [j for j, signature in enumerate(chosen) if signature.merged]
        out = [
            tuple(self.result_of(signature, i) for signature in chosen) for i in range(len(results))
        ]
        place = self.place
        local = LocalOp(record, place, shapes, tuple(placed), self.sizes.shapes[results[0]], out[0])
        if merged:
            found = merge.merged(self.graph, local, nodes[0], merged[0], results)
        else:
            found = self.emitted(local, nodes, results, out)
        for tensor, node in zip(results, found, strict=True):
            if tensor >= 0:
                self.computed(tensor, node)

    @staticmethod
    def result_of(signature: Signature, i: int) -> Placement:
        return signature.results[min(i, len(signature.results) - 1)]

    def emitted(
        self, local: LocalOp, nodes: Sequence[int], results: Sequence[int], out: Sequence[Any]
    ) -> list[int]:
        record, shapes = local.record, self.sizes.shapes
        weight = 2 if record["kind"] == "Library" else int(record["kind"] in HEAVY)
        first = self.graph.add(
            *(results[0], nodes, shapes[results[0]], out[0], record["dtype"], local),
            weight=weight,
        )
        found = [first]
        for i, tensor in enumerate(results[1:], 1):
            if tensor < 0:
                found.append(-1)
                continue
            again = self.records[tensor]
            emit = LocalOp(again, self.place, (), (), shapes[tensor], out[i])
            found.append(
                self.graph.add(
                    *(tensor, [first], shapes[tensor], out[i], again["dtype"], emit),
                    weight=weight,
                    owner=first,
                )
            )
        return found

    # ---- the choice

    def choose(
        self,
        record: dict[str, Any],
        operands: Sequence[int],
        results: Sequence[int],
        chosen: Sequence[Signature],
        j: int,
    ) -> tuple[Signature, str]:
        """The signature on dim j of the mesh, and the reason of collectives before the op."""
        now = [next(iter(self.versions[t]))[j] for t in operands]
        whole = Signature((REPLICATE,) * len(operands), (REPLICATE,) * len(results))
        if all(p == REPLICATE for p in now):
            return whole, ""
        op = self.op_on(record, operands, results, chosen, j)
        found = [s for s in signatures(op) if self.is_allowed(op, s, operands, chosen, j)]
        costs = [self.cost_of(op, s, operands, results, j) for s in [whole, *found]]
        best = [whole, *found][costs.index(min(costs))]
        if all(a in (b, REPLICATE) for a, b in zip(now, best.operands, strict=True)):
            return best, ""
        fits = any(
            all(a in (b, REPLICATE) for a, b in zip(now, s.operands, strict=True)) for s in found
        )
        given = [(t, a) for t, a in zip(operands, now, strict=True) if a != REPLICATE]
        divided = " with ".join(f"T{t} {describe(a)}" for t, a in dict.fromkeys(given))
        why = "moves fewest bytes so" if fits else f"has no rule for {divided}"
        return best, f"{op.name} {why}"

    def op_on(
        self,
        record: dict[str, Any],
        operands: Sequence[int],
        results: Sequence[int],
        chosen: Sequence[Signature],
        j: int,
    ) -> Op:
        """The op as dim j of the mesh sees it."""

        def shards(i: int, axis: int) -> list[int]:
            """Parts into which dims of the mesh divide an axis of an operand, in order."""
            natural = next(iter(self.versions[operands[i]]))
            placed = [s.operands[i] for s in chosen]
            placed += natural[len(placed) :]
            return [
                parts
                for k, parts in enumerate(self.place.mesh)
                if k == j or is_shard(placed[k], axis)
            ]

        def even(i: int, axis: int, size: int) -> bool:
            return size % math.prod(shards(i, axis)) == 0

        def nonempty(i: int, axis: int) -> bool:
            size = self.sizes.shapes[operands[i]][axis]
            for parts in shards(i, axis):
                size = chunk(size, parts, parts - 1)[0]
            return size > 0

        shapes = self.sizes.shapes
        return Op(
            record,
            tuple(shapes[t] for t in operands),
            tuple(shapes.get(t, ()) for t in results),
            self.sizes.number,
            even,
            nonempty,
        )

    def is_allowed(
        self,
        op: Op,
        signature: Signature,
        operands: Sequence[int],
        chosen: Sequence[Signature],
        j: int,
    ) -> bool:
        if signature.merged and any(s.merged for s in chosen):
            return False
        for i, (tensor, wanted) in enumerate(zip(operands, signature.operands, strict=True)):
            now = {version[j] for version in self.versions[tensor]}
            if is_shard(wanted) and self.sizes.shapes[tensor][axis_of(wanted)] <= 1:
                return False
            # A sum with several users is completed once, before them.
            is_ready = wanted in now and self.users[tensor] == 1
            if wanted.is_partial() and i not in signature.masked and not is_ready:
                return False
        for size, made in zip(op.results, signature.results, strict=False):
            if is_shard(made) and size[axis_of(made)] <= 1:
                return False
        return True

    def cost_of(
        self,
        op: Op,
        signature: Signature,
        operands: Sequence[int],
        results: Sequence[int],
        j: int,
    ) -> tuple[float, int]:
        """Bytes that move before the op, half of those of a partial result later; then the number
        of operands that change.
        """
        total, changes = 0.0, 0
        for i, (tensor, wanted) in enumerate(zip(operands, signature.operands, strict=True)):
            versions = self.versions[tensor]
            count = self.bytes_of(tensor) // self.others(next(iter(versions)), j)
            if not (wanted.is_partial() and i in signature.masked):
                total += min(self.cost(v[j], wanted, count, j) for v in versions)
            changes += next(iter(versions))[j] != wanted
        parts = self.place.mesh[j]
        for tensor, placement in zip(results, signature.results, strict=False):
            if tensor >= 0 and placement.is_partial():
                total += self.bytes_of(tensor) * (parts - 1) / parts + _START
            elif tensor >= 0 and signature.merged:
                total += self.bytes_of(tensor) * parts + _START
        if op.record.get("op") in ("matmul", "linear", "baddbmm"):
            summed = op.operands[1][
                -1 if op.record["op"] == "linear" else max(-2, -len(op.operands[1]))
            ]
            divided = any(p != REPLICATE for p in signature.operands)
            flops = 2 * math.prod(op.results[0]) * summed / (parts if divided else 1)
            total += flops / _FLOPS_PER_BYTE
        return total, changes

    def others(self, placements: Placements, j: int) -> int:
        """Parts into which the other dims of the mesh divide a tensor."""
        count = 1
        for k, parts in enumerate(self.place.mesh):
            count *= parts if k != j and is_shard(placements[k]) else 1
        return count

    def cost(self, source: Placement, target: Placement, count: float, j: int) -> float:
        """Bytes of one rank between two placements on dim j of the mesh."""
        if source == target:
            return 0.0
        parts = self.place.mesh[j]
        share = count * (parts - 1) / parts
        if target.is_partial():
            return math.inf
        if source == REPLICATE:
            return 0.0
        if source.is_partial():  # a shard is not cheaper, because it may be gathered later
            return _START + 2 * share
        return _START + (share if target == REPLICATE else share / parts)
