"""Placements that each op of a definition can compute with: one rule per class of op.

A rule sees one dim of the mesh. It lists signatures: placements of the operands, and the placements
of the results that follow from them. Each op can also compute with replicated operands, which no
rule lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.distributed.tensor import Partial, Shard
from torch.distributed.tensor.placement_types import Placement

from fuser.multidevice.shards import REPLICATE, axis_of

SUM = Partial("sum")


@dataclass(frozen=True)
class Signature:
    """Placements of operands and results on one dim of the mesh.

    masked   operands that one rank adds to a partial sum, the others add zeros
    merged   True if the op is replaced by partial results, which are gathered and merged
    """

    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    masked: frozenset[int] = frozenset()
    merged: bool = False


@dataclass(frozen=True)
class Op:
    """One op at global sizes.

    record    its record in Fusion.records()
    operands  sizes of its operands
    results   sizes of its results
    number    evaluates a scalar of the definition
    even      even(operand, axis, size) is True if as many shards as the operand has along the axis,
              divided by this dim of the mesh too, divide `size`
    nonempty  nonempty(operand, axis) is True if no shard along the axis is empty
    """

    record: dict[str, Any]
    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    number: Callable[[int], Any]
    even: Callable[[int, int, int], bool]
    nonempty: Callable[[int, int], bool]

    @property
    def kind(self) -> str:
        return str(self.record["kind"])

    @property
    def name(self) -> str:
        """Name in messages."""
        return str(self.record["composite"] or self.record.get("op") or self.kind.lower())


def signatures(op: Op) -> list[Signature]:
    """The signatures of an op, without the replicated one, in order of preference."""
    return list(_RULES.get(op.kind, _unknown)(op))


def _unknown(op: Op) -> Iterator[Signature]:
    yield from ()


# ---- elementwise

# Ops that are linear in the operands at these positions together, the others being replicated.
_LINEAR: dict[str, tuple[tuple[int, ...], ...]] = {
    "set": ((0,),),
    "neg": ((0,),),
    "real": ((0,),),
    "imag": ((0,),),
    "add": ((0, 1),),
    "sub": ((0, 1),),
    "mul": ((0,), (1,)),
    "truediv": ((0,),),
    "fma": ((0, 2), (1, 2)),
    "where": ((1, 2),),
}


def _pointwise(op: Op) -> Iterator[Signature]:
    yield from _aligned(op)
    args, dtype = op.record["args"], op.record["dtype"]
    linear = _LINEAR.get(op.record["op"], ()) if dtype.kind != "Bool" else ()
    for places in linear:
        if all(args[i][0] or _is_zero(op, args[i][1]) for i in places) and any(
            args[i][0] for i in places
        ):
            tensors = [i for i, (is_tensor, _) in enumerate(args) if is_tensor]
            yield Signature(tuple(SUM if i in places else REPLICATE for i in tensors), (SUM,))


def _is_zero(op: Op, scalar: int) -> bool:
    return bool(op.number(scalar) == 0)


def _aligned(op: Op) -> Iterator[Signature]:
    """Operands that share the axes of the result, or have size 1."""
    for d, size in enumerate(op.results[0]):
        yield Signature(tuple(_at(o, d, op.results[0], size) for o in op.operands), (Shard(d),))


def _at(operand: Sequence[int], axis: int, result: Sequence[int], size: int) -> Placement:
    """Placement of an operand that is broadcast to a result with Shard(axis)."""
    mine = axis - (len(result) - len(operand))
    return Shard(mine) if mine >= 0 and operand[mine] == size else REPLICATE


def _cast(op: Op) -> Iterator[Signature]:
    # A sum of rounded terms differs from the rounded sum, so a cast completes partial sums.
    yield from _aligned(op)


# ---- movement


def _mapped(op: Op, axes: Sequence[tuple[int, int]], linear: bool = True) -> Iterator[Signature]:
    """Axes (operand's, result's) that stay whole, for ops that move one tensor or several alike."""
    count = len(op.operands)
    for a, b in axes:
        yield Signature((Shard(a),) * count, (Shard(b),))
    if linear:
        yield Signature((SUM,) * count, (SUM,))


def _broadcast(op: Op) -> Iterator[Signature]:
    kept = [d for d, new in enumerate(op.record["is_broadcast_dim"]) if not new]
    yield from _mapped(op, list(enumerate(kept)))


def _squeeze(op: Op) -> Iterator[Signature]:
    kept = [d for d in range(len(op.operands[0])) if d not in op.record["dims"]]
    yield from _mapped(op, [(a, b) for b, a in enumerate(kept)])


def _permute(op: Op) -> Iterator[Signature]:
    yield from _mapped(op, [(a, b) for b, a in enumerate(op.record["dims"])])


def _stay(op: Op) -> Iterator[Signature]:
    """Ops along some axes; other axes stay as they are."""
    record = op.record
    along = record["dims"] if "dims" in record else [record["dim"]] if "dim" in record else []
    axes = [(d, d) for d in range(len(op.operands[0])) if d not in along]
    yield from _mapped(op, axes)


def _resize(op: Op) -> Iterator[Signature]:
    """Slices and pads keep axes of equal size; a pad by another value than 0 is not linear."""
    whole = [
        (d, d)
        for d, (a, b) in enumerate(zip(op.operands[0], op.results[0], strict=True))
        if a == b and _is_untouched(op, d)
    ]
    zero = op.kind != "Pad" or _is_zero(op, op.record["value"])
    yield from _mapped(op, whole, linear=zero)


def _is_untouched(op: Op, axis: int) -> bool:
    record = op.record
    if op.kind == "Pad":
        return op.number(record["before"][axis]) == 0 == op.number(record["after"][axis])
    return True  # a slice of the full size


def _expand(op: Op) -> Iterator[Signature]:
    yield from _aligned(op)
    yield Signature((SUM,), (SUM,))


def _reshape(op: Op) -> Iterator[Signature]:
    """Axes between which sizes factor alike; of several that become several, the outer ones, if
    their shards are equal.
    """
    axes = []
    for before, after in _factors(op.operands[0], op.results[0]):
        a = next((d for d in before if op.operands[0][d] > 1), None)
        b = next((d for d in after if op.results[0][d] > 1), None)
        if a is None or b is None:
            continue
        whole = op.operands[0][a] == op.results[0][b]
        if whole or (op.even(0, a, op.operands[0][a]) and op.even(0, a, op.results[0][b])):
            axes.append((a, b))
    yield from _mapped(op, axes)


def _factors(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The shortest runs of axes of two shapes with equal products."""
    i = j = 0
    while i < len(a) and j < len(b):
        left, right = [i], [j]
        m, n = a[i], b[j]
        while m != n and (i + 1 < len(a) if m < n else j + 1 < len(b)):
            if m < n:
                i += 1
                left.append(i)
                m *= a[i]
            else:
                j += 1
                right.append(j)
                n *= b[j]
        if m == n:
            yield left, right
        i, j = i + 1, j + 1


# ---- reductions

_PARTIAL = {"sum": "sum", "prod": "product", "max": "max", "min": "min", "any": "max", "all": "min"}


def _reduction(op: Op) -> Iterator[Signature]:
    name, dims = op.record["op"], op.record["dims"]
    count = len(op.results)
    kept = [d for d in range(len(op.operands[0])) if d not in dims]
    for place, d in enumerate(kept):
        yield Signature((Shard(d),), (Shard(place),) * count)
    if name in _PARTIAL:
        partial = Partial(_PARTIAL[name])
        for d in dims:
            yield Signature((Shard(d),), (partial,))
        if name in ("sum", "max", "min"):
            yield Signature((partial,), (partial,))
    elif name in ("argmax", "argmin") and len(dims) == 1 and op.nonempty(0, dims[0]):
        yield Signature((Shard(dims[0]),), (REPLICATE,) * count, merged=True)


# ---- indices


def _take_along_axis(op: Op) -> Iterator[Signature]:
    source, index = op.operands
    dim = op.record["dim"]
    for d, size in enumerate(op.results[0]):
        if d == dim:
            yield Signature((REPLICATE, Shard(d)), (Shard(d),))
        elif op.record["same_sizes"]:
            if source[d] == index[d]:
                yield Signature((Shard(d), Shard(d)), (Shard(d),))
        else:
            yield Signature(
                tuple(Shard(d) if n[d] == size else REPLICATE for n in (source, index)),
                (Shard(d),),
            )
    if op.nonempty(0, dim) and op.record["dtype"].kind != "Bool":
        yield Signature((Shard(dim), REPLICATE), (SUM,))


# ---- library ops


def _labelled(op: Op, operands: Sequence[str], results: Sequence[str]) -> Iterator[Signature]:
    """Signatures of a product or of attention. A letter names an axis; an operand of size 1 is
    broadcast. Only axes that occur in every result are divided here.
    """
    for letter in dict.fromkeys("".join(operands)):
        sizes = [
            size[labels.index(letter)]
            for labels, size in zip(operands, op.operands, strict=True)
            if letter in labels
        ]
        whole = max(sizes)
        placed = tuple(
            Shard(labels.index(letter))
            if letter in labels and size[labels.index(letter)] == whole
            else REPLICATE
            for labels, size in zip(operands, op.operands, strict=True)
        )
        out = tuple(Shard(r.index(letter)) if letter in r else REPLICATE for r in results)
        if letter in results[0]:
            yield Signature(placed, out)


def product_labels(op: Op) -> tuple[list[str], str]:
    """Letters of the axes of a product's operands and of its result; "k" is summed over."""
    name, ranks = op.record["op"], [len(n) for n in op.operands]
    batch = "abcdefgh"
    if name == "linear":
        rows = batch[: ranks[0] - 1]
        return [rows + "k", "nk", "n"][: len(ranks)], rows + "n"
    if name == "baddbmm":
        return ["amn", "amk", "akn"], "amn"
    left = "k" if ranks[0] == 1 else "mk"
    right = "k" if ranks[1] == 1 else "kn"
    deepest = max(ranks[0], ranks[1], 2) - 2
    before = [batch[deepest - max(rank - 2, 0) : deepest] for rank in ranks]
    result = batch[:deepest] + left.replace("k", "") + right.replace("k", "")
    return [before[0] + left, before[1] + right], result


def flops_of(op: Op) -> int:
    """Multiplications and additions of a matrix product; 0 of another op."""
    if _LIBRARY.get(op.record.get("op", "")) is not _product:
        return 0
    operands, _ = product_labels(op)
    return 2 * math.prod(op.results[0]) * op.operands[1][operands[1].index("k")]


def _product(op: Op) -> Iterator[Signature]:
    operands, result = product_labels(op)
    yield from _labelled(op, operands, [result])
    added = {"linear": 2, "baddbmm": 0}.get(op.record["op"], -1)
    terms = [i for i in range(len(operands)) if i != added]
    masked = frozenset([added] if 0 <= added < len(operands) else [])
    placed: list[Placement] = [SUM] * len(operands)
    for i in terms:
        placed[i] = Shard(operands[i].index("k"))
    yield Signature(tuple(placed), (SUM,), masked)
    for i in terms:
        placed = [SUM if j == i or j in masked else REPLICATE for j in range(len(operands))]
        yield Signature(tuple(placed), (SUM,), masked)


def _attention(op: Op) -> Iterator[Signature]:
    """Batches and heads are independent, also rows of the query unless a row knows its position.
    Dropout draws its numbers for the whole tensor.
    """
    attributes, given = op.record["attributes"], op.record["given"]
    if attributes["dropout_p"] != 0 or "dropout_p" in given:
        return
    query, key = op.operands[0], op.operands[1]
    if any(len(size) != 4 for size in op.operands):
        return
    rows = "r" if not attributes["is_causal"] and "is_causal" not in given else ""
    grouped = query[1] != key[1]
    operands = ["abrx", "absx", "abst", "abrs"][: len(op.operands)]
    for signature in _labelled(op, operands, ["abrt", "abr", "", ""]):
        axis = axis_of(signature.results[0])
        if axis == 0 or (axis == 1 and not grouped) or (axis == 2 and rows):
            yield signature


def _attention_backward(op: Op) -> Iterator[Signature]:
    attributes, given = op.record["attributes"], op.record["given"]
    if attributes["dropout_p"] != 0 or "dropout_p" in given:
        return
    heads = {size[1] for size in op.operands[:6]}
    for axis in (0, 1) if len(heads) == 1 else (0,):
        placed = (Shard(axis),) * 6 + (REPLICATE,) * (len(op.operands) - 6)
        yield Signature(placed, (Shard(axis),) * 3)
    if not attributes["is_causal"] and "is_causal" not in given:
        # Each row of the query adds its share to the gradients of all keys and values.
        rows, rest = (Shard(2),), (REPLICATE,) * (len(op.operands) - 6)
        placed = (*rows * 2, REPLICATE, REPLICATE, *rows * 2, *rest)
        yield Signature(placed, (Shard(2), SUM, SUM))


def _along(op: Op) -> Iterator[Signature]:
    """Sorts and scans along one axis."""
    dim = op.record["attributes"]["dim"]
    if "dim" in op.record["given"]:
        return
    for d in range(len(op.operands[0])):
        if d != dim % len(op.operands[0]):
            yield Signature((Shard(d),), (Shard(d),) * len(op.results))


def _scatter(op: Op) -> Iterator[Signature]:
    if "dim" in op.record["given"]:
        return
    for d in range(len(op.operands[0])):
        same = len({size[d] for size in op.operands}) == 1
        if same and d != op.record["attributes"]["dim"] % len(op.operands[0]):
            yield Signature((Shard(d),) * 3, (Shard(d),))


def _index_put(op: Op) -> Iterator[Signature]:
    into, index, value = (len(n) for n in op.operands)
    for d in range(1, into):
        if index - 1 + d < value:
            yield Signature((Shard(d), REPLICATE, Shard(index - 1 + d)), (Shard(d),))
    for d in range(index):
        yield Signature((SUM, Shard(d), Shard(d)), (SUM,), frozenset([0]))


_LIBRARY: dict[str, Callable[[Op], Iterator[Signature]]] = {
    **dict.fromkeys(("matmul", "linear", "baddbmm"), _product),
    "sdpfa_fwd": _attention,
    "sdpfa_bwd": _attention_backward,
    **dict.fromkeys(("topk", "sort", "argsort", "cumsum", "cumprod", "cummax", "cummin"), _along),
    "scatter": _scatter,
    "index_put_accumulate": _index_put,
}


def _library(op: Op) -> Iterator[Signature]:
    yield from _LIBRARY.get(op.record["op"], _unknown)(op)


_RULES: dict[str, Callable[[Op], Iterator[Signature]]] = {
    "Pointwise": _pointwise,
    "Cast": _cast,
    "Broadcast": _broadcast,
    "Squeeze": _squeeze,
    "Permute": _permute,
    **dict.fromkeys(("StrideOrder", "Flip", "Unfold", "Cat"), _stay),
    **dict.fromkeys(("Slice", "Pad"), _resize),
    "Expand": _expand,
    "Reshape": _reshape,
    "Reduction": _reduction,
    "TakeAlongAxis": _take_along_axis,
    "Library": _library,
}
