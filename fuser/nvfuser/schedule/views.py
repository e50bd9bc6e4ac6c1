"""View: a tensor of a definition with its domains, and the primitives that transform them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

from fuser._core import DataType, Scalar, Tensor
from fuser.errors import UserError
from fuser.multidevice import ON_MESHES
from fuser.nvfuser.schedule.domains import (
    Extent,
    IterDomain,
    IterType,
    Merge,
    Primitive,
    Split,
    Swizzle,
    TensorDomain,
    Transform,
    ceil_div,
    constant,
    product,
)
from fuser.nvfuser.schedule.types import BINDINGS, DEVICES, MEMORY_LETTERS, MemoryType, ParallelType

if TYPE_CHECKING:
    from fuser.nvfuser.schedule.graph import ScheduledFusion

# C++ names of dtypes, as nvFuser prints them in the name of a tensor.
_PRINTED_TYPES = {
    "Half": "__half",
    "BFloat16": "__bfloat",
    "Int": "int64_t",
    "Int32": "int",
    "ComplexFloat": "std::complex<float>",
    "ComplexDouble": "std::complex<double>",
}


@dataclass
class Edge:
    """An operand of a tensor. `dims` are pairs: position among the axes of the producer's logical
    domain that are not reduced, and position in the consumer's root domain.
    """

    producer: View
    dims: tuple[tuple[int, int], ...]


class View:
    """A tensor with its domains, printed as in nvFuser: T2_l_float[iS4{i0}, rS5{i1}].

    The root domain has one axis per dim of the operands, the logical domain one per dim of the
    tensor and per reduced dim. The loop domain is the loop nest that the primitives made of it.
    Axes count from 0, or from -1 backwards. Primitives return the view.

    number    number in the name, T2
    tensor    number of the tensor of the definition that has the same values
    op        name of the op that computes the tensor; "set" for copies
    root      root domain if it differs from the logical one, otherwise None
    inlined   number of outer loops that the tensor shares with its consumers, ca_pos( n )
    produced  number of outer loops that it shares with its producers, produce_pos( n )
    mesh      mesh of devices that share the tensor, or None
    placements  placements on the mesh if no axes give them
    """

    def __init__(
        self, fusion: ScheduledFusion, number: int, tensor: int, dtype: DataType, op: str
    ) -> None:
        self.fusion, self.number, self.tensor = fusion, number, tensor
        self._dtype, self.op = dtype, op
        self.operands: list[Edge] = []
        self.root: list[IterDomain] | None = None
        self.logical: list[IterDomain] = []
        self.loop: list[IterDomain] = []
        self.root_transforms: list[Transform] = []
        self.transforms: list[Transform] = []
        self.allocation: list[IterDomain] | None = None
        self.memory: Any = MemoryType.local
        self.is_input = self.is_output = False
        self.inlined = self.produced = 0
        self.mesh: Any = None
        self.placements: Any = None

    # ---- looking

    @property
    def name(self) -> str:
        """The name in messages, T2."""
        return f"T{self.number}"

    @property
    def ndim(self) -> int:
        """Number of loop axes."""
        return len(self.loop)

    def dtype(self) -> DataType:
        """Element type."""
        return self._dtype

    def source(self) -> Tensor:
        """The tensor of the definition that has the same values."""
        return self.fusion.builder.tensors()[self.tensor]

    def size(self, dim: int) -> Scalar:
        """Size of a dim, as a scalar of the definition."""
        return self.source().size(dim)

    def shape(self) -> list[Scalar]:
        """The sizes, as scalars of the definition."""
        return list(self.source().shape)

    def domain(self) -> TensorDomain:
        """The loop axes, for printing."""
        return TensorDomain(list(self.loop))

    def axis(self, axis: int) -> IterDomain:
        """A loop axis. Raises UserError `by-hand-axis` for an axis out of range."""
        return self.loop[self.position(axis, "axis")]

    def has_root(self) -> bool:
        """True if the root domain differs from the logical domain."""
        return self.root is not None

    def has_reduction(self) -> bool:
        """True if an axis of the tensor is reduced."""
        return any(axis.is_reduction() for axis in self.logical)

    def get_root_domain(self) -> list[IterDomain]:
        """The axes of the operands; the logical domain if these are equal."""
        return list(self.logical if self.root is None else self.root)

    def get_logical_domain(self) -> list[IterDomain]:
        """The dims of the tensor and its reduced dims."""
        return list(self.logical)

    def get_loop_domain(self) -> list[IterDomain]:
        """The axes of the loop nest, outermost first."""
        return list(self.loop)

    def kept(self) -> list[IterDomain]:
        """The axes of the logical domain that are dims of the tensor."""
        return [axis for axis in self.logical if not axis.is_reduction()]

    def definition(self) -> str:
        """Name of the op that computes the tensor, with its operands."""
        return f"{self.op}({', '.join(edge.producer.name for edge in self.operands)})"

    def position(self, axis: Any, method: str) -> int:
        rank = len(self.loop)
        try:
            place = operator.index(axis)
        except TypeError:
            place = rank
        if not -rank <= place < rank:
            raise UserError(
                f"{self.name}.{method}(): axis: expected an integer from {-rank} to {rank - 1}, "
                f"got {axis!r}\n  {self}",
                rule="by-hand-axis",
            )
        return place % rank

    def _log(self, name: str, **arguments: Any) -> None:
        self.fusion.log(Primitive(name, self.name, tuple(arguments.items())))

    # ---- transforms of the loop domain

    def split(self, axis: int, factor: int, inner_split: bool = True) -> Self:
        """Splits an axis into two. The inner one has `factor` elements, or the outer one if
        inner_split is False; the other one has the rest, rounded up.

        Raises UserError `by-hand-axis` for an axis out of range, `by-hand-factor` for a factor
        below 1. An axis that is parallelized already raises `by-hand-bound`, an axis that the
        tensor shares with other tensors `by-hand-inlined`.
        """
        place = self._free(axis, "split")
        if not isinstance(factor, int) or isinstance(factor, bool) or factor < 1:
            raise UserError(
                f"{self.name}.split(): factor: expected an integer above 0, got {factor!r}",
                rule="by-hand-factor",
            )
        self._log("split", axis=place, factor=factor, inner_split=bool(inner_split))
        made = self.split_axis(self.loop[place], factor, bool(inner_split))
        self.loop[place : place + 1] = made.results
        return self

    def inner_split(self, axis: int, factor: int) -> Self:
        """split() with `factor` elements in the inner axis."""
        return self.split(axis, factor)

    def outer_split(self, axis: int, factor: int) -> Self:
        """split() with `factor` elements in the outer axis."""
        return self.split(axis, factor, inner_split=False)

    def merge(self, axis_o: int, axis_i: int | None = None) -> Self:
        """Merges two axes, by default neighbours, into one at the position of the outer one.

        Raises UserError `by-hand-axis` for an axis out of range, `by-hand-merge` for one axis twice
        or for a reduced axis with one that is not, `by-hand-bound`, `by-hand-inlined` as split().
        """
        outer = self._free(axis_o, "merge")
        if axis_i is None and outer + 1 == len(self.loop):
            raise UserError(
                f"{self.name}.merge(): axis {axis_o} is the innermost axis and has no inner "
                f"neighbour\n  {self}",
                rule="by-hand-merge",
            )
        inner = outer + 1 if axis_i is None else self._free(axis_i, "merge")
        inner = self._free(inner, "merge")
        a, b = self.loop[outer], self.loop[inner]
        if a is b or a.is_reduction() != b.is_reduction():
            wrong = f"{a} twice" if a is b else f"{a} and {b}"
            raise UserError(
                f"{self.name}.merge(): expected two axes, both reduced or both not, got {wrong}"
                f"\n  {self}",
                rule="by-hand-merge",
            )
        self._log("merge", axis_o=outer, axis_i=inner)
        self.loop[outer] = self.merge_axes(a, b).result
        del self.loop[inner]
        return self

    def reorder(self, old2new: Mapping[int, int] | Sequence[int]) -> Self:
        """Moves axes: a dict from old to new positions, or the new position of every axis. The
        other axes keep their order. Raises UserError `by-hand-axis` for a position out of range,
        `by-hand-reorder` for a position that is given twice, `by-hand-inlined` as split().
        """
        pairs = old2new.items() if isinstance(old2new, Mapping) else enumerate(old2new)
        moved: dict[int, int] = {}
        for old, new in [*pairs]:
            place = self.position(old, "reorder")
            to = self.position(new, "reorder")
            if place in moved or to in moved.values():
                raise UserError(
                    f"{self.name}.reorder(): expected each old and each new position once, got "
                    f"{old2new!r}",
                    rule="by-hand-reorder",
                )
            if place != to:
                self._refuse_inlined(min(place, to), "reorder")
            moved[place] = to
        self._log("reorder", old2new=dict(moved))
        rest = iter([axis for i, axis in enumerate(self.loop) if i not in moved])
        at = {new: self.loop[old] for old, new in moved.items()}
        self.loop = [at[i] if i in at else next(rest) for i in range(len(self.loop))]
        return self

    def swizzle(self, *arguments: Any) -> Self:
        """Permutes the elements of the second of two axes by the first one: swizzle(x, y), or
        swizzle(type, x, y). Raises UserError `by-hand-axis`, `by-hand-bound`, `by-hand-inlined` as
        split().
        """
        x, y = (self._free(axis, "swizzle") for axis in arguments[-2:])
        self._log("swizzle", x=x, y=y)
        a, b = self.loop[x], self.loop[y]
        made = Swizzle(a, b, self._axis_like(a, a.extent()), self._axis_like(b, b.extent()))
        self.transforms.append(made)
        self.loop[x], self.loop[y] = made.results
        return self

    def swizzle1d(self, axis: int, parallel_type: Any) -> Self:
        """Permutes an axis by an index of the machine. Raises UserError `by-hand-axis`."""
        self._log("swizzle1d", axis=self.position(axis, "swizzle1d"), parallel_type=parallel_type)
        return self

    def _free(self, axis: Any, method: str) -> int:
        """The position of an axis that a transform may take."""
        place = self.position(axis, method)
        found = self.loop[place]
        if found.is_parallelized():
            raise UserError(
                f"{self.name}.{method}(): axis {found} is bound to {found.parallel.name}; expected "
                f"a serial axis\n  hint: transform the axes before parallelize()",
                rule="by-hand-bound",
            )
        self._refuse_inlined(place, method)
        return place

    def _refuse_inlined(self, place: int, method: str) -> None:
        shared = max(self.inlined, self.produced)
        if place < shared:
            raise UserError(
                f"{self.name}.{method}(): axis {place}: the outer {shared} axes are inlined; "
                f"expected an axis from {shared} on\n"
                "  hint: transform the axes before inline_most() and inline_at()",
                rule="by-hand-inlined",
            )

    def _axis_like(self, axis: IterDomain, extent: Extent) -> IterDomain:
        return IterDomain(self, extent, axis.kind)

    def split_axis(self, axis: IterDomain, factor: int, inner_split: bool) -> Split:
        """Records the split of any axis of the tensor; the loop domain is the caller's."""
        extents = [ceil_div(axis.extent(), factor), constant(factor)]
        outer, inner = extents if inner_split else reversed(extents)
        made = Split(
            *(axis, self._axis_like(axis, outer), self._axis_like(axis, inner)),
            *(factor, inner_split),
        )
        self.transforms.append(made)
        return made

    def merge_axes(self, outer: IterDomain, inner: IterDomain) -> Merge:
        """Records the merge of any two axes; the loop domain is the caller's."""
        of = inner if outer.is_broadcast() else outer
        made = Merge(outer, inner, self._axis_like(of, product(outer.extent(), inner.extent())))
        self.transforms.append(made)
        return made

    # ---- bindings and memory

    def parallelize(self, axis: int, parallel_type: Any) -> Self:
        """Binds an axis to blocks, threads or lanes; axis(i).parallelize() does the same.

        Raises UserError `by-hand-axis` for an axis out of range, `by-hand-binding` for something
        else than a ParallelType. Two axes of a tensor on one dim of the grid or block raise
        `by-hand-binding` too, a dim of a mesh `by-hand-mesh` before set_device_mesh().
        """
        self.bind(self.loop[self.position(axis, "parallelize")], parallel_type)
        return self

    def bind(self, axis: IterDomain, parallel_type: Any) -> None:
        """See parallelize()."""
        if not isinstance(parallel_type, ParallelType) or axis not in self.loop:
            raise UserError(
                f"{self.name}.parallelize(): expected a loop axis of {self} and a ParallelType, "
                f"got {axis} and {parallel_type!r}",
                rule="by-hand-binding",
            )
        if parallel_type.name in DEVICES and self.mesh is None:
            raise UserError(
                f"{self.name}.parallelize(): {parallel_type.name}: expected a tensor on a mesh of "
                "devices\n  hint: call set_device_mesh(mesh) before",
                rule="by-hand-mesh",
            )
        for other in self.loop if parallel_type.name in BINDINGS | DEVICES else ():
            if other is not axis and other.parallel is parallel_type:
                raise UserError(
                    f"{self.name}.parallelize(): {axis} to {parallel_type.name}: {other} is bound "
                    "to it already; expected one axis of a tensor\n  hint: merge the two axes",
                    rule="by-hand-binding",
                )
        self._log("parallelize", axis=self.loop.index(axis), parallel_type=parallel_type)
        axis.parallel = parallel_type

    def set_device_mesh(self, mesh: Any) -> Self:
        """Places the tensor on a mesh of devices; axes bound to mesh_x, mesh_y, mesh_z are divided
        among the last dim of the mesh, the one before, and so on. Raises UserError `sharded-mesh-1`
        for something else than a mesh.
        """
        from fuser.multidevice.mesh import as_mesh

        self._log("set_device_mesh", mesh=mesh)
        self.mesh = as_mesh(mesh)
        ON_MESHES.add(self.fusion.builder)
        return self

    def set_memory_type(self, memory_type: Any) -> Self:
        """Chooses the memory of the tensor. Raises UserError `by-hand-memory` for something else
        than a MemoryType, and for an input or output that is not in global memory.
        """
        in_memory = self.is_input or self.is_output
        if not isinstance(memory_type, MemoryType) or (
            in_memory and memory_type is not MemoryType["global"]
        ):
            whose = "an input or output" if in_memory else "an intermediate tensor"
            expected = "MemoryType.global" if in_memory else "a MemoryType"
            raise UserError(
                f"{self.name}.set_memory_type(): {whose}: expected {expected}, got {memory_type}\n"
                "  hint: cache_after() of an input and cache_before() of an output make "
                "intermediate tensors",
                rule="by-hand-memory",
            )
        self._log("set_memory_type", memory_type=memory_type)
        self.memory = memory_type
        return self

    def set_allocation_domain(
        self, allocation_domain: Iterable[IterDomain], new_contiguity: Any = True
    ) -> Self:
        """Records the order of the elements in memory. Raises UserError `by-hand-axis` for axes of
        another tensor.
        """
        found = list(allocation_domain)
        for axis in found:
            if getattr(axis, "view", None) is not self:
                raise UserError(
                    f"{self.name}.set_allocation_domain(): expected axes of {self}, got {axis!r}",
                    rule="by-hand-axis",
                )
        self._log("set_allocation_domain", domain=tuple(map(str, found)))
        self.allocation = found
        return self

    def __iter__(self) -> NoReturn:
        """Raises UserError `by-hand-tensor`: split() of torch returns a tuple, this one a view."""
        raise UserError(
            f"{self.name}: a tensor under a schedule by hand has no elements: "
            "x.split(axis, factor) splits a loop\n"
            "  hint: torch.split(x, size, dim) splits the tensor",
            rule="by-hand-tensor",
        )

    # ---- as text

    def __str__(self) -> str:
        """One line, as nvFuser prints a TensorView."""
        type_name = _PRINTED_TYPES.get(self._dtype.name, self._dtype.name.lower())
        text = f"{self.name}_{MEMORY_LETTERS[self.memory.name]}_{type_name}{self.domain()}"
        text += f" ca_pos( {self.inlined} )" if self.inlined else ""
        return text + (f" produce_pos( {self.produced} )" if self.produced else "")

    __repr__ = __str__

    def transforms_text(self) -> str:
        """The tensor with its domains and transforms, one per line."""
        lines = [str(self)]
        if self.root is not None:
            lines.append(f" root domain : ({', '.join(map(str, self.root))})")
            lines += [f"  {transform}" for transform in self.root_transforms]
        lines.append(f" logical domain : ({', '.join(map(str, self.logical))})")
        if self.allocation is not None:
            lines.append(f" allocation domain : ({', '.join(map(str, self.allocation))})")
        lines += [f"  {transform}" for transform in self.transforms]
        lines.append(f" loop domain : ({', '.join(map(str, self.loop))})")
        return "\n".join(lines)


def kind_of(extent: Extent, operands: Iterable[IterDomain]) -> IterType:
    """Kind of an axis that an op computes from axes of its operands."""
    given = list(operands)
    if extent.value == 1 or (given and all(axis.is_broadcast() for axis in given)):
        return IterType.broadcast
    return IterType.iteration
