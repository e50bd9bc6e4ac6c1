"""Statements of a local definition: ops of the global one, at the sizes of this rank's shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.multidevice.shards import Placements, is_shard, shard
from fuser.ops import Ops
from fuser.ops.op_table import NUMBERS


@dataclass(frozen=True)
class Argument:
    """A scalar argument of a local definition: the global definition's scalar input `of`, or a
    number that the plan knows.
    """

    dtype: DataType
    of: int | None = None
    value: Any = None


@dataclass(frozen=True)
class Place:
    """This rank's place: sizes of the mesh, and a coordinate in it."""

    mesh: tuple[int, ...]
    coordinate: tuple[int, ...]

    def sizes(self, sizes: Sequence[int], placements: Placements) -> tuple[int, ...]:
        """Sizes of this rank's shard."""
        return shard(sizes, placements, self.mesh, self.coordinate)[0]

    def offset(self, sizes: Sequence[int], placements: Placements, axis: int) -> int:
        """First element of this rank's shard along an axis."""
        return shard(sizes, placements, self.mesh, self.coordinate)[1][axis]


class Emitter:
    """A local definition under construction.

    scalars    records of the global definition's scalars
    size_of    global size of a dim of a tensor
    arguments  scalar arguments so far, in order
    """

    def __init__(
        self, scalars: Sequence[tuple[Any, ...]], size_of: Callable[[int, int], int]
    ) -> None:
        self.builder = _core.Builder()
        self.arguments: list[Argument] = []
        self._records, self._size_of = scalars, size_of
        self._scalars: dict[int, Any] = {}
        self._values: dict[Argument, Scalar] = {}

    def argument(self, argument: Argument) -> Scalar:
        """The scalar input for an argument."""
        if argument not in self._values:
            self.arguments.append(argument)
            self._values[argument] = _core.define_scalar(self.builder, argument.dtype)
        return self._values[argument]

    def number(self, value: int) -> Scalar:
        """An integer as an argument, so that ranks and sizes share the text of kernels."""
        return self.argument(Argument(DataType.Int, value=value))

    def scalar(self, place: int) -> Any:
        """A scalar of the global definition."""
        for needed in self._missing(place):
            self._scalars[needed] = self._define(*self._records[needed])
        return self._scalars[place]

    def _missing(self, place: int) -> list[int]:
        """Scalars to define before `place`, operands first, and `place` itself."""
        found, open_ = set(), [place]
        while open_:
            at = open_.pop()
            if at not in self._scalars and at not in found:
                found.add(at)
                kind, _, *rest = self._records[at]
                open_ += rest[-1] if kind == "apply" else [rest[0]] if kind == "cast" else []
        return sorted(found)

    def _define(self, kind: str, dtype: DataType, *rest: Any) -> Any:
        if kind == "constant":
            return _core.constant(self.builder, rest[0], dtype)
        if kind == "input":
            return self.argument(Argument(dtype, of=rest[0]))
        if kind == "size":
            return self.argument(Argument(dtype, value=self._size_of(*rest)))
        if kind == "cast":
            return _core.cast(self.builder, self._scalars[rest[0]], dtype)
        op, _, places = rest
        return self.pointwise(op, *(self._scalars[p] for p in places))

    def pointwise(self, op: str, *args: Any) -> Any:
        """A row of the op table."""
        return _core.pointwise(self.builder, NUMBERS[op], *args)

    def constant(self, value: int, dtype: DataType) -> Scalar:
        """A small number of a type."""
        return _core.constant(self.builder, value, dtype)

    def slice(self, x: Tensor, axis: int, start: int, size: int) -> Tensor:
        """`size` elements of an axis."""
        starts: list[Any] = [0] * x.ndim
        ends: list[Any] = [x.size(d) for d in range(x.ndim)]
        starts[axis], ends[axis] = self.number(start), self.number(start + size)
        return _core.movement(self.builder, "slice", x, starts, ends, [1] * x.ndim)

    def unsqueeze(self, x: Tensor) -> Tensor:
        """A new first axis of size 1."""
        return _core.movement(self.builder, "broadcast", x, [True] + [False] * x.ndim)

    def squeeze(self, x: Tensor) -> Tensor:
        """The tensor without its first axis, of size 1."""
        return _core.movement(self.builder, "squeeze", x, [0], True)


Emit = Callable[[Emitter, Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class LocalOp:
    """An op at the sizes of this rank: sizes and placements of its operands and of result 0."""

    record: dict[str, Any]
    place: Place
    operand_sizes: tuple[tuple[int, ...], ...]
    operand_placements: tuple[Placements, ...]
    sizes: tuple[int, ...]
    placements: Placements

    def __call__(self, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
        return _EMIT.get(self.record["kind"], _movement)(self, to, tensors)

    def is_divided(self, axis: int, operand: int | None = None) -> bool:
        """True if an axis of the result, or of an operand, is sharded."""
        placed = self.placements if operand is None else self.operand_placements[operand]
        return any(is_shard(p, axis) for p in placed)

    def local_sizes(self, to: Emitter, places: Sequence[int]) -> list[Any]:
        """Sizes of the result, given as scalars of the definition."""
        local = self.place.sizes(self.sizes, self.placements)
        return [
            to.number(local[d]) if self.is_divided(d) else to.scalar(place)
            for d, place in enumerate(places)
        ]


def _pointwise(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    given = iter(tensors)
    args = [next(given) if is_tensor else to.scalar(at) for is_tensor, at in op.record["args"]]
    found: Tensor = to.pointwise(op.record["op"], *args)
    return found


def _cast(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    found: Tensor = _core.cast(to.builder, tensors[0], op.record["dtype"])
    return found


def _full(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    sizes = op.local_sizes(to, op.record["shape"])
    return _core.full(to.builder, sizes, to.scalar(op.record["value"]), op.record["dtype"])


def _iota(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    return _core.iota(to.builder, to.scalar(op.record["shape"][0]))


def _reduction(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    record = op.record
    # A shard may be empty where the whole tensor is not.
    divided = any(op.is_divided(d, 0) for d in record["dims"])
    whole = all(op.operand_sizes[0][d] for d in record["dims"])
    identity = record["identity"] or (record["op"] in ("max", "min") and divided and whole)
    return _core.reduce(to.builder, record["op"], tensors[0], list(record["dims"]), identity)


def _result(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    return _core.result(to.builder, tensors[0], op.record["index"])


def _take_along_axis(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    source, index = tensors
    dim, same = op.record["dim"], op.record["same_sizes"]
    if not op.is_divided(dim, 0):
        return _core.take_along_axis(to.builder, source, index, dim, same)
    # Elements of other shards count as 0 in a partial sum.
    size = op.operand_sizes[0][dim]
    first = op.place.offset(op.operand_sizes[0], op.operand_placements[0], dim)
    count = op.place.sizes(op.operand_sizes[0], op.operand_placements[0])[dim]
    counted = to.pointwise("add", index, to.number(size))
    index = to.pointwise("where", to.pointwise("lt", index, 0), counted, index)
    index = to.pointwise("clamp", index, 0, to.number(size - 1))
    index = to.pointwise("sub", index, to.number(first))
    inside = to.pointwise(
        "bitwise_and", to.pointwise("ge", index, 0), to.pointwise("lt", index, to.number(count))
    )
    index = to.pointwise("where", inside, index, 0)
    taken = _core.take_along_axis(to.builder, source, index, dim, same)
    found: Tensor = to.pointwise("where", inside, taken, to.constant(0, op.record["dtype"]))
    return found


def _pad(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    record = op.record
    before, after = ([to.scalar(p) for p in record[name]] for name in ("before", "after"))
    return _core.pad(to.builder, tensors[0], before, after, to.scalar(record["value"]))


def _cat(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    return _core.cat(to.builder, list(tensors), op.record["dim"])


def _library(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    record = op.record
    attributes = record["attributes"] | {n: to.scalar(p) for n, p in record["given"].items()}
    ordered = [attributes[name] for name in _core.library_attributes(record["op"])]
    return _core.library(to.builder, record["op"], list(tensors), ordered)


def _movement(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    record = op.record
    given = [record[name] for name in record["fields"]]
    match record["kind"]:
        case "Expand":
            given = [op.local_sizes(to, record["shape"])]
        case "Slice":
            given[:2] = ([to.scalar(place) for place in places] for places in given[:2])
            for d in filter(op.is_divided, range(tensors[0].ndim)):  # a whole axis
                given[0][d], given[1][d] = 0, tensors[0].size(d)
    return _core.movement(to.builder, record["op"], tensors[0], *given)


def _reshape(op: LocalOp, to: Emitter, tensors: Sequence[Tensor]) -> Tensor:
    return Ops(to.builder).reshape(tensors[0], op.local_sizes(to, op.record["shape"]))


_EMIT: dict[str, Callable[[LocalOp, Emitter, Sequence[Tensor]], Tensor]] = {
    "Pointwise": _pointwise,
    "Cast": _cast,
    "Full": _full,
    "Iota": _iota,
    "Reduction": _reduction,
    "Result": _result,
    "TakeAlongAxis": _take_along_axis,
    "Pad": _pad,
    "Cat": _cat,
    "Library": _library,
    "Reshape": _reshape,
}
