"""Axes of a hand-written schedule and the transforms between them, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from fuser.nvfuser.schedule.types import PRINTED, ParallelType

if TYPE_CHECKING:
    from fuser.nvfuser.schedule.views import View


@dataclass(frozen=True)
class Extent:
    """Number of elements of an axis: a constant, a size of the definition, or arithmetic of them.

    op is "constant", "size" (args: its index in Fusion.records()["scalars"]), "ceilDiv" or "*".
    """

    op: str
    args: tuple[Any, ...]

    @property
    def value(self) -> int | None:
        """The constant, or None for an extent that depends on sizes."""
        return self.args[0] if self.op == "constant" else None

    def evaluate(self, size: Callable[[int], int | None]) -> int | None:
        """The number for known sizes; None if a size is unknown."""
        if self.op == "constant":
            return int(self.args[0])
        if self.op == "size":
            return size(self.args[0])
        a, b = (arg.evaluate(size) for arg in self.args)
        if a is None or b is None:
            return None
        return -(-a // b) if self.op == "ceilDiv" else a * b

    def __int__(self) -> int:
        if self.value is None:
            raise ValueError(f"the extent {self} is known at a run only")
        return self.value

    def __str__(self) -> str:
        if self.op == "constant":
            return str(self.args[0])
        if self.op == "size":
            return f"i{self.args[0]}"
        a, b = self.args
        return f"( ceilDiv({a}, {b}) )" if self.op == "ceilDiv" else f"( {a} * {b} )"


def constant(value: int) -> Extent:
    """The extent of a fixed number of elements."""
    return Extent("constant", (value,))


def size(index: int) -> Extent:
    """The extent that is a scalar of the definition."""
    return Extent("size", (index,))


def ceil_div(a: Extent, b: int) -> Extent:
    """a / b, rounded up."""
    if a.value is not None:
        return constant(-(-a.value // b))
    return Extent("ceilDiv", (a, constant(b)))


def product(a: Extent, b: Extent) -> Extent:
    """a * b."""
    if a.value is not None and b.value is not None:
        return constant(a.value * b.value)
    if a.value == 1:
        return b
    return a if b.value == 1 else Extent("*", (a, b))


class IterType(Enum):
    """Kind of an axis, by the letter that nvFuser prints."""

    iteration = "i"
    reduction = "r"
    broadcast = "b"


class IterDomain:
    """One axis of a tensor, printed as in nvFuser: iS3{i0}, rthreadIdx.x7{128}, bS4{1}.

    number   number of the axis among the axes of its definition
    rfactor  True for an axis between root and logical domain, i.e. of a reshape or an rfactor
    view     tensor of the axis
    """

    def __init__(self, view: View, extent: Extent, kind: IterType, rfactor: bool = False) -> None:
        self.view, self._extent, self.kind, self.rfactor = view, extent, kind, rfactor
        self.number = view.fusion.next_axis()
        self.parallel: Any = ParallelType.serial

    def extent(self) -> Extent:
        """Number of elements."""
        return self._extent

    def is_reduction(self) -> bool:
        """True for a reduced axis."""
        return self.kind is IterType.reduction

    def is_broadcast(self) -> bool:
        """True for a broadcast axis."""
        return self.kind is IterType.broadcast

    def is_parallelized(self) -> bool:
        """True for an axis that is bound to something else than a serial loop."""
        return self.parallel is not ParallelType.serial

    def parallelize(self, parallel_type: Any) -> None:
        """Binds the axis; raises the errors of View.parallelize."""
        self.view.bind(self, parallel_type)

    def __repr__(self) -> str:
        name = f"{self.kind.value}{PRINTED[self.parallel.name]}{self.number}"
        return f"{name}{{{self._extent}}}{'rf' if self.rfactor else ''}"


@dataclass(frozen=True)
class Split:
    """source -> outer, inner. The factor is the extent of `inner`, or of `outer` for an outer
    split.
    """

    source: IterDomain
    outer: IterDomain
    inner: IterDomain
    factor: int
    inner_split: bool

    @property
    def sources(self) -> tuple[IterDomain, ...]:
        return (self.source,)

    @property
    def results(self) -> tuple[IterDomain, ...]:
        return (self.outer, self.inner)

    def same(self, other: Transform) -> bool:
        """True for an equal transform of another tensor."""
        return isinstance(other, Split) and (self.factor, self.inner_split) == (
            other.factor,
            other.inner_split,
        )

    def __str__(self) -> str:
        name = "Split" if self.inner_split else "Outer split"
        return f"{name}: {self.source} by factor {self.factor} -> {self.outer}, {self.inner}"


@dataclass(frozen=True)
class Merge:
    """outer, inner -> result."""

    outer: IterDomain
    inner: IterDomain
    result: IterDomain

    @property
    def sources(self) -> tuple[IterDomain, ...]:
        return (self.outer, self.inner)

    @property
    def results(self) -> tuple[IterDomain, ...]:
        return (self.result,)

    def same(self, other: Transform) -> bool:
        """True for an equal transform of another tensor."""
        return isinstance(other, Merge)

    def __str__(self) -> str:
        return f"Merge: {self.outer} and {self.inner} -> {self.result}"


@dataclass(frozen=True)
class Swizzle:
    """x, y -> x, y with y permuted by x."""

    x: IterDomain
    y: IterDomain
    out_x: IterDomain
    out_y: IterDomain

    @property
    def sources(self) -> tuple[IterDomain, ...]:
        return (self.x, self.y)

    @property
    def results(self) -> tuple[IterDomain, ...]:
        return (self.out_x, self.out_y)

    def same(self, other: Transform) -> bool:
        """True for an equal transform of another tensor."""
        return isinstance(other, Swizzle)

    def __str__(self) -> str:
        return f"Swizzle: {self.x} , {self.y} -> {self.out_x} , {self.out_y}"


@dataclass(frozen=True)
class Resize:
    """source -> result with another extent: slice, pad, cat. No other tensor can repeat it."""

    source: IterDomain
    result: IterDomain

    @property
    def sources(self) -> tuple[IterDomain, ...]:
        return (self.source,)

    @property
    def results(self) -> tuple[IterDomain, ...]:
        return (self.result,)

    def same(self, other: Transform) -> bool:
        """False: extents of other tensors are their own."""
        return False

    def __str__(self) -> str:
        return f"Resize: {self.source} -> {self.result}"


Transform = Split | Merge | Swizzle | Resize


@dataclass(frozen=True)
class Primitive:
    """One call of the scheduling API, as data: its name, its tensor and the other arguments."""

    name: str
    tensor: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        given = ", ".join(f"{key}={_plain(value)}" for key, value in self.arguments)
        return f"{self.tensor}.{self.name}({given})"


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, Enum) else repr(value)


class TensorDomain:
    """The loop axes of a tensor; str() gives "[iS3{2}, iS4{4}]"."""

    def __init__(self, axes: list[IterDomain]) -> None:
        self.axes = axes

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.axes))}]"


def ancestors(axis: IterDomain, transforms: list[Transform]) -> set[IterDomain]:
    """The axes before the first of `transforms` from which `axis` is derived."""
    found = {axis}
    for transform in reversed(transforms):
        if found.intersection(transform.results):
            found.difference_update(transform.results)
            found.update(transform.sources)
    return found
