"""Primitives that add a tensor to a hand-written schedule: caches and rfactor. Values stay."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from fuser.errors import UserError
from fuser.nvfuser.schedule.domains import IterDomain, IterType, Primitive, Transform
from fuser.nvfuser.schedule.propagate import Step, replay
from fuser.nvfuser.schedule.types import MemoryType
from fuser.nvfuser.schedule.views import Edge, View

if TYPE_CHECKING:
    from fuser.nvfuser.schedule.tensor_view import TensorView


def _copy_axis(view: View, axis: IterDomain, kind: IterType | None = None) -> IterDomain:
    return IterDomain(view, axis.extent(), kind or axis.kind, axis.rfactor)


def _copy_transform(transform: Transform, copies: dict[IterDomain, IterDomain]) -> Transform:
    """The transform on copies of its axes."""
    axes = {name: copies[axis] for name, axis in vars(transform).items() if axis in copies}
    made: Transform = replace(cast(Any, transform), **axes)
    return made


def _move_domain(source: View, target: View) -> dict[IterDomain, IterDomain]:
    """Gives the target copies of all domains of the source."""
    copies: dict[IterDomain, IterDomain] = {}

    def copied(axis: IterDomain) -> IterDomain:
        if axis not in copies:
            copies[axis] = _copy_axis(target, axis)
            copies[axis].parallel = axis.parallel
        return copies[axis]

    base = [copied(axis) for axis in source.get_root_domain()]
    target.root = None if source.root is None else base
    for name in ("root_transforms", "transforms"):
        for transform in getattr(source, name):
            for axis in (*transform.sources, *transform.results):
                copied(axis)
            getattr(target, name).append(_copy_transform(transform, copies))
    target.logical = [copied(axis) for axis in source.logical]
    target.loop = [copied(axis) for axis in source.loop]
    return copies


def _copy_of(view: View, source: View) -> None:
    """Makes `view` a copy of `source`: its dims, and the loop nest over them."""
    view.operands = [Edge(source, tuple((d, d) for d in range(len(source.kept()))))]
    view.op, view.root = "set", None
    view.root_transforms, view.transforms = [], []
    view.logical = [_copy_axis(view, axis) for axis in source.kept()]
    for axis in view.logical:
        axis.rfactor = False
    view.loop = list(view.logical)
    replay(Step(source, view, dict(zip(source.kept(), view.logical, strict=True)), False))


def _refuse_inlined(view: View, method: str, rule_is_rfactor: bool = False) -> None:
    if not (view.inlined or view.produced):
        return
    text = (
        f"{view.name}.{method}(): expected a tensor without inlined axes, got {view}\n"
        "  hint: call it before inline_most() and inline_at()"
    )
    if rule_is_rfactor:
        raise UserError(text, rule="by-hand-rfactor")
    raise UserError(text, rule="by-hand-cache")


def cache_before(view: View) -> TensorView:
    """Returns a new tensor that computes the values of `view`, which becomes a copy of it. Raises
    UserError `by-hand-cache` for an input, and for a tensor that is inlined already.
    """
    if view.is_input:
        raise UserError(
            f"{view.name}.cache_before(): expected a computed tensor, got the input {view}\n"
            "  hint: cache_after() copies an input",
            rule="by-hand-cache",
        )
    _refuse_inlined(view, "cache_before")
    view.fusion.log(Primitive("cache_before", view.name))
    made = view.fusion.new_view(view, view.op, before=True)
    made.operands = view.operands
    _move_domain(view, made)
    _copy_of(view, made)
    return made


def cache_after(view: View, uses: Sequence[View] = ()) -> TensorView:
    """Returns a copy of `view` that its consumers (or those of `uses`) read. Raises
    UserError `by-hand-cache` for a tensor without consumers, e.g. a result, and for one that is
    inlined already.
    """
    consumers = view.fusion.consumers()[view]
    consumers = [pair for pair in consumers if not uses or pair[0] in uses]
    if not consumers:
        raise UserError(
            f"{view.name}.cache_after(): expected a tensor with consumers, got {view}\n"
            "  hint: cache_before() makes a result a copy",
            rule="by-hand-cache",
        )
    _refuse_inlined(view, "cache_after")
    view.fusion.log(Primitive("cache_after", view.name))
    made = view.fusion.new_view(view, "set", before=False)
    _copy_of(made, view)
    for _, edge in consumers:
        edge.producer = made
    return made


def cache_fork(view: View) -> TensorView:
    """Returns a copy of `view` that is the output in its place, for an output that other tensors
    read. Raises UserError `by-hand-cache` for another tensor.
    """
    if not view.is_output or not view.fusion.consumers()[view]:
        raise UserError(
            f"{view.name}.cache_fork(): expected an output that other tensors read, got {view}\n"
            "  hint: cache_before() serves other outputs, cache_after() other tensors",
            rule="by-hand-cache",
        )
    _refuse_inlined(view, "cache_fork")
    view.fusion.log(Primitive("cache_fork", view.name))
    made = view.fusion.new_view(view, "set", before=False)
    _copy_of(made, view)
    made.is_output, view.is_output = True, False
    made.memory, view.memory = MemoryType["global"], MemoryType.local
    return made


def rfactor(view: View, axes: Sequence[int]) -> TensorView:
    """Returns a new tensor that reduces these axes of `view` and keeps its other reduced axes,
    which `view` reduces afterwards.

    Raises UserError `by-hand-rfactor` unless `axes` are some, but not all, of the reduced axes of
    the loop nest, each once; and for a tensor that is inlined already. `by-hand-axis` for an axis
    out of range.
    """
    places = [view.position(axis, "rfactor") for axis in axes]
    chosen = [view.loop[place] for place in places]
    reduced = [axis for axis in view.loop if axis.is_reduction()]
    fits = all(axis.is_reduction() for axis in chosen) and 0 < len(set(chosen)) == len(chosen)
    if not fits or len(chosen) == len(reduced):
        shown = ", ".join(map(str, reduced)) or "none"
        raise UserError(
            f"{view.name}.rfactor(axes={[operator.index(a) for a in axes]}): expected some of the "
            f"reduced axes, but not all, each once; the reduced axes of {view} are: {shown}\n"
            "  hint: split a reduced axis first",
            rule="by-hand-rfactor",
        )
    _refuse_inlined(view, "rfactor", rule_is_rfactor=True)
    view.fusion.log(Primitive("rfactor", view.name, (("axes", tuple(places)),)))
    made = view.fusion.new_view(view, view.op, before=True)
    made.operands = view.operands
    copies = _move_domain(view, made)
    rest = _factor(made, {copies[axis] for axis in chosen})
    parallel = {copies[axis]: axis.parallel for axis in view.loop}
    _reduce_rest(view, made, rest, parallel)
    return made


def _factor(made: View, chosen: set[IterDomain]) -> set[IterDomain]:
    """Moves the transforms of reduced axes between root and logical domain, and keeps the reduced
    axes that are not chosen. Returns the latter.
    """
    rest = set()
    if made.root is None:
        made.root = list(made.logical)
    of_reduced = [t for t in made.transforms if t.sources[0].is_reduction()]
    made.root_transforms += of_reduced
    made.transforms = [t for t in made.transforms if t not in of_reduced]
    for transform in of_reduced:
        place = made.logical.index(transform.sources[0])
        made.logical = [axis for axis in made.logical if axis not in transform.sources]
        made.logical[place:place] = transform.results
    for axis in made.logical:
        if axis.is_reduction():
            axis.rfactor = True
            if axis not in chosen:
                axis.kind = IterType.iteration
                rest.add(axis)
    return rest


def _reduce_rest(
    view: View, made: View, rest: set[IterDomain], parallel: dict[IterDomain, object]
) -> None:
    """Makes `view` the reduction of the axes `rest` of `made`."""
    kept = made.kept()
    view.operands = [Edge(made, tuple((d, d) for d in range(len(kept))))]
    view.root, view.root_transforms, view.transforms = None, [], []
    view.logical = []
    for axis in kept:
        kind = IterType.reduction if axis in rest else axis.kind
        view.logical.append(IterDomain(view, axis.extent(), kind))
    view.loop = list(view.logical)
    mapping = replay(Step(made, view, dict(zip(kept, view.logical, strict=True)), False))
    for axis, binding in parallel.items():
        if axis in mapping:
            mapping[axis].parallel = binding
