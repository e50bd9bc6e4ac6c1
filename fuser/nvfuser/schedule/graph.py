"""ScheduledFusion: the tensors of a definition with their domains, under a schedule by hand."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

from fuser._core import Builder, Tensor
from fuser.errors import UserError
from fuser.nvfuser.schedule.domains import (
    Extent,
    IterDomain,
    IterType,
    Merge,
    Primitive,
    Resize,
    Split,
    constant,
    size,
)
from fuser.nvfuser.schedule.params import HeuristicParams, MatmulParams, SchedulerHyperParameters
from fuser.nvfuser.schedule.tensor_view import TensorView
from fuser.nvfuser.schedule.types import MemoryType
from fuser.nvfuser.schedule.views import Edge, View, kind_of

# Tensor ops whose dims do not correspond to dims of their operands.
_UNRELATED = ("Library", "Input", "Iota", "Full")
# Matrix products, whose last axis is reduced.
_PRODUCTS = ("matmul", "linear")


class ScheduledFusion:
    """The tensors of a definition, the primitives that were called on them, and the parameters of a
    scheduler that the program asked for.

    views       tensors in an order in which operands precede their users
    primitives  calls in order
    params      parameters given to schedule() or compute_heuristics(), or None
    limits      limits for parameters, of schedule_hyperparameters()
    scheduler   SchedulerType given to schedule(), or None
    inputs      inputs of the run that calls schedule() of a subclass, or None
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = weakref.ref(builder)
        self._axes, self._numbers = itertools.count(), itertools.count()
        self._seen = (0, 0)
        self._of_tensors: dict[int, TensorView] = {}
        self.views: list[TensorView] = []
        self.primitives: list[Primitive] = []
        self.params: HeuristicParams | MatmulParams | None = None
        self.limits = SchedulerHyperParameters()
        self.scheduler: Any = None
        self.inputs: list[Any] | None = None
        self.sync()

    @property
    def builder(self) -> Builder:
        """The definition. Raises UserError `by-hand-tensor` if the program dropped it."""
        found = self._builder()
        if found is None:
            raise UserError(
                "schedule: the FusionDefinition of these tensors is gone\n"
                "  hint: keep a reference to it while its tensors are scheduled",
                rule="by-hand-tensor",
            )
        return found

    def next_axis(self) -> int:
        """The number of a new axis."""
        return next(self._axes)

    def log(self, primitive: Primitive) -> None:
        """Appends a call, and makes this definition the one that functions without a tensor use."""
        self.primitives.append(primitive)
        _recent.fusion = weakref.ref(self)

    def view(self, tensor: Any) -> TensorView:
        """The view of a tensor of the definition. Raises UserError `by-hand-tensor` for another
        value.
        """
        self.sync()
        if isinstance(tensor, TensorView) and tensor.fusion is self:
            return tensor
        if isinstance(tensor, Tensor) and tensor._builder is self.builder:
            return self._of_tensors[tensor.id]
        raise UserError(
            f"schedule: expected a tensor of this definition, got {tensor!r:.80}\n"
            "  hint: a subclass keeps its tensors as attributes: self.t0 = self.ops.relu(...)",
            rule="by-hand-tensor",
        )

    def consumers(self) -> dict[View, list[tuple[View, Edge]]]:
        """The tensors that read each tensor, with their edges."""
        found: dict[View, list[tuple[View, Edge]]] = {view: [] for view in self.views}
        for view in self.views:
            for edge in view.operands:
                found[edge.producer].append((view, edge))
        return found

    def new_view(self, like: View, op: str, before: bool) -> TensorView:
        """A tensor with the values of `like`, placed before or after it."""
        made = TensorView(self, next(self._numbers), like.tensor, like.dtype(), op)
        places = [i for i, view in enumerate(self.views) if view is like]
        self.views.insert(places[0] + (not before), made)
        return made

    def __str__(self) -> str:
        """The definition under the schedule: each tensor with its op and its transforms."""
        inputs = [f"  {view}" for view in self.views if view.is_input]
        outputs = [f"  {view}" for view in self.views if view.is_output]
        ops = [f"{view}\n   = {view.definition()};" for view in self.views if view.operands]
        transforms = [view.transforms_text() for view in self.views]
        lines = ["Inputs:", *inputs, "Outputs:", *outputs, "", "%kernel {", *ops, ""]
        return "\n".join([*lines, "TransformPrinter :", *transforms, "} // %kernel", ""])

    # ---- from the definition

    def sync(self) -> None:
        """Adds the tensors and outputs that were defined since the last call."""
        builder = self.builder
        seen = (len(builder.tensors()), len(builder.outputs()))
        if seen == self._seen:
            return
        records = builder.records()
        for record in records["tensors"][self._seen[0] :]:
            self._add(record, records["scalars"])
        for tensor, _ in records["outputs"][self._seen[1] :]:
            view = self._of_tensors[tensor]
            view.is_output, view.memory = True, MemoryType["global"]
        self._seen = seen

    def _add(self, record: dict[str, Any], scalars: list[Any]) -> None:
        kind = record["kind"]
        op = record.get("op") or kind.lower()
        view = TensorView(self, next(self._numbers), record["id"], record["dtype"], str(op))
        extents = [_extent(scalars, index) for index in record["shape"]]
        producers = [self._of_tensors[t] for t in dict.fromkeys(record["operands"])]
        ranks = [len(self._of_tensors[t].kept()) for t in record["operands"]]
        view.operands = [Edge(p, _related(record, p, i, ranks)) for i, p in enumerate(producers)]
        if kind == "Input":
            view.is_input, view.memory = True, MemoryType["global"]
        _domains(view, record, extents)
        view.loop = list(view.logical)
        self._of_tensors[record["id"]] = view
        self.views.append(view)


def _extent(scalars: list[Any], index: int) -> Extent:
    kind, _, *rest = scalars[index]
    return constant(int(rest[0])) if kind == "constant" else size(index)


def _related(
    record: dict[str, Any], producer: View, place: int, ranks: list[int]
) -> tuple[Any, ...]:
    """Pairs of equal dims of an operand and of the root domain of the op. `ranks` are those of all
    operands.
    """
    kind, rank = record["kind"], len(producer.kept())
    dims = list(range(rank))
    if record.get("op") in _PRODUCTS:
        return _related_of_product(record, ranks, place)
    if kind in _UNRELATED:
        return ()
    if kind == "Broadcast":
        kept = [d for d, new in enumerate(record["is_broadcast_dim"]) if not new]
        return tuple(zip(dims, kept, strict=True))
    if kind == "Squeeze":
        return tuple((d, i) for i, d in enumerate(d for d in dims if d not in record["dims"]))
    if kind == "Unfold" or (kind == "TakeAlongAxis" and place == 0):
        dims.remove(record["dim"])
    elif kind == "Pointwise" and rank != len(record["shape"]):
        return ()
    return tuple((d, d) for d in dims)


def _related_of_product(
    record: dict[str, Any], ranks: list[int], place: int
) -> tuple[tuple[int, int], ...]:
    """Pairs of dims of a matrix product. Its reduced axis follows the dims of the result."""
    rank, reduced = ranks[place], len(record["shape"])
    if record["op"] == "linear":  # [..., k], [n, k], [n]
        if place == 0:
            return (*((d, d) for d in range(rank - 1)), (rank - 1, reduced))
        return ((0, reduced - 1), (1, reduced))[:rank]
    has_columns = ranks[-1] > 1
    batch = reduced - (ranks[0] > 1) - has_columns
    pairs = [(d, batch - (rank - 2) + d) for d in range(rank - 2)]
    if rank == 1:
        return ((0, reduced),)
    if place == 0:
        return (*pairs, (rank - 2, reduced - 1 - has_columns), (rank - 1, reduced))
    return (*pairs, (rank - 2, reduced), (rank - 1, reduced - 1))


def _domains(view: View, record: dict[str, Any], extents: list[Extent]) -> None:
    """Sets root and logical domain of a new tensor."""

    def axis(extent: Extent, kind: IterType, rfactor: bool = False) -> IterDomain:
        return IterDomain(view, extent, kind, rfactor)

    operand = view.operands[0].producer.kept() if view.operands else []
    match record["kind"]:
        case "Reduction":
            kept = iter(extents)
            for d, source in enumerate(operand):
                if d in record["dims"]:
                    view.logical.append(axis(source.extent(), IterType.reduction))
                else:
                    view.logical.append(axis(next(kept), source.kind))
        case "Permute":
            view.root = [axis(source.extent(), source.kind) for source in operand]
            view.logical = [view.root[d] for d in record["dims"]]
        case "SplitDim" | "MergeDims" | "Slice" | "Pad" | "Cat":
            view.root = [axis(source.extent(), source.kind) for source in operand]
            view.logical = list(view.root)
            _reshape(view, record, extents, axis)
        case _:
            for d, extent in enumerate(extents):
                related = [
                    edge.producer.kept()[p]
                    for edge in view.operands
                    for p, c in edge.dims
                    if c == d
                ]
                view.logical.append(axis(extent, kind_of(extent, related)))
            if record.get("op") in _PRODUCTS:
                view.logical.append(axis(operand[-1].extent(), IterType.reduction))


def _reshape(view: View, record: dict[str, Any], extents: list[Extent], axis: Any) -> None:
    """Transforms between root and logical domain of ops that change extents."""
    d = record.get("dim", 0)
    if record["kind"] == "SplitDim":
        outer, inner = (axis(extent, kind_of(extent, ()), True) for extent in extents[d : d + 2])
        # 0 stands for a factor that is known at a run only
        factor = inner.extent().value or 0
        view.root_transforms.append(Split(view.logical[d], outer, inner, factor, True))
        view.logical[d : d + 1] = [outer, inner]
    elif record["kind"] == "MergeDims":
        merged = axis(extents[d], kind_of(extents[d], ()), True)
        view.root_transforms.append(Merge(view.logical[d], view.logical[d + 1], merged))
        view.logical[d : d + 2] = [merged]
    else:
        for place, (source, extent) in enumerate(zip(view.logical, extents, strict=True)):
            if source.extent() != extent:
                resized = axis(extent, kind_of(extent, ()), True)
                view.root_transforms.append(Resize(source, resized))
                view.logical[place] = resized


# ---- the schedules of definitions

_schedules: weakref.WeakKeyDictionary[Builder, ScheduledFusion] = weakref.WeakKeyDictionary()


class _Recent(threading.local):
    """The definition of the last primitive of a thread."""

    fusion: weakref.ref[ScheduledFusion] | None = None


_recent = _Recent()


def schedule_of(builder: Builder) -> ScheduledFusion:
    """The schedule of a definition; empty at first."""
    found = _schedules.get(builder)
    if found is None:
        found = _schedules[builder] = ScheduledFusion(builder)
    found.sync()
    return found


def text_by_hand(builder: Builder) -> str | None:
    """The definition under its schedule as text; None without a schedule."""
    found = _schedules.get(builder)
    return str(found) if found is not None and found.primitives else None


def set_schedule(builder: Builder, fusion: ScheduledFusion) -> None:
    """Replaces the schedule of a definition."""
    _schedules[builder] = fusion


def view_of(tensor: Any) -> TensorView:
    """The view of a tensor. Raises UserError `by-hand-tensor` for another value."""
    if isinstance(tensor, TensorView):
        return tensor
    if isinstance(tensor, Tensor):
        return schedule_of(tensor._builder).view(tensor)
    raise UserError(
        f"schedule: expected a tensor of a definition, got {tensor!r:.80}", rule="by-hand-tensor"
    )


def recent() -> ScheduledFusion:
    """The definition whose tensor was scheduled last by this thread. Raises UserError
    `by-hand-tensor` before the first primitive.
    """
    found = _recent.fusion() if _recent.fusion else None
    if found is None:
        raise UserError(
            "schedule: expected a primitive on a tensor before, got none\n"
            "  hint: tensor.split(0, 128), then schedule.transform_like(tensor)",
            rule="by-hand-tensor",
        )
    return found
