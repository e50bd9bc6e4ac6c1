"""Propagation of a hand-written schedule from a reference tensor to the other tensors."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fuser.errors import UserError
from fuser.nvfuser.schedule.domains import (
    IterDomain,
    Merge,
    Primitive,
    Split,
    Transform,
    ancestors,
)
from fuser.nvfuser.schedule.types import ParallelType
from fuser.nvfuser.schedule.views import Edge, View

if TYPE_CHECKING:
    from fuser.nvfuser.schedule.graph import ScheduledFusion

Mapping = dict[IterDomain, IterDomain]


@dataclass
class Step:
    """One edge of the tree over which a schedule spreads. `pairs` maps axes of the source to equal
    axes of the target, before the transforms of both.
    """

    source: View
    target: View
    pairs: Mapping
    to_producer: bool

    @property
    def history(self) -> list[Transform]:
        """The transforms of the source that the target may repeat."""
        if self.to_producer:
            return [*self.source.root_transforms, *self.source.transforms]
        return self.source.transforms


Users = dict[View, list[tuple[View, Edge]]]


def steps_from(view: View, users: Users) -> Iterator[Step]:
    """The edges between a tensor and its producers and consumers that map an axis. `users` has the
    consumers of every tensor.
    """
    for edge in view.operands:
        base = view.get_root_domain()
        pairs = {base[c]: edge.producer.kept()[p] for p, c in edge.dims}
        if pairs:
            yield Step(view, edge.producer, pairs, True)
    for consumer, edge in users[view]:
        base = consumer.get_root_domain()
        pairs = {view.kept()[p]: base[c] for p, c in edge.dims}
        if pairs:
            yield Step(view, consumer, pairs, False)


def spanning_tree(reference: View, within: Iterable[View] | None = None) -> Iterator[Step]:
    """Reaches each tensor (of `within`) once, over the path that keeps most axes of `reference`."""
    allowed = None if within is None else {reference, *within}
    known: dict[View, set[IterDomain]] = {reference: set(reference.get_root_domain())}
    known[reference].update(reference.logical)
    order = itertools.count()  # edges of equal rank are taken in order
    waiting: list[tuple[int, int, Step, set[IterDomain]]] = []
    users = reference.fusion.consumers()

    def add_edges(view: View) -> None:
        for step in steps_from(view, users):
            kept = {t for s, t in step.pairs.items() if s in known[view]}
            transforms = step.target.root_transforms
            kept |= {a for a in step.target.logical if ancestors(a, transforms) & kept}
            heapq.heappush(waiting, (-len(kept), next(order), step, kept))

    add_edges(reference)
    while waiting:
        _, _, step, kept = heapq.heappop(waiting)
        if step.target in known or (allowed is not None and step.target not in allowed):
            continue
        known[step.target] = kept
        yield step
        add_edges(step.target)


def match(step: Step) -> Mapping:
    """Maps axes of the source to axes of the target that are derived by equal transforms. A merge
    with an axis that the target lacks changes nothing in the target.
    """
    return _follow(step, [*step.target.root_transforms, *step.target.transforms], step.history)[0]


def _follow(
    step: Step, existing: list[Transform], history: list[Transform], create: bool = False
) -> tuple[Mapping, list[Transform]]:
    """The mapping of axes, and the transforms of the target that it uses, made if necessary."""
    mapping, used = dict(step.pairs), []
    for transform in history:
        sources = tuple(mapping.get(axis) for axis in transform.sources)
        if isinstance(transform, Merge) and (sources[0] is None) != (sources[1] is None):
            mapping[transform.result] = sources[0] or sources[1]  # type: ignore[assignment]
        if None in sources:
            continue
        equal = (e for e in existing if e.sources == sources and e.same(transform))
        found = next(equal, None) or (_repeat(step.target, transform, sources) if create else None)
        if found is not None:
            used.append(found)
            mapping.update(zip(transform.results, found.results, strict=True))
    return mapping, used


def _repeat(target: View, transform: Transform, sources: Any) -> Transform | None:
    """Makes the transform on axes of another tensor; None for transforms by sizes of a tensor."""
    if isinstance(transform, Split) and transform.factor:
        return target.split_axis(sources[0], transform.factor, transform.inner_split)
    if isinstance(transform, Merge):
        reduced = {axis.is_reduction() for axis in sources}
        return target.merge_axes(*sources) if len(reduced) == 1 else None
    return None


def replay(step: Step, history: list[Transform] | None = None) -> Mapping:
    """Repeats the transforms of the source on the target, whose loop nest gets the same order. Axes
    that the source lacks follow as innermost loops, with their own transforms.
    """
    target = step.target
    history = step.history if history is None else history
    before, old_loop = target.transforms, target.loop
    target.transforms = list(before)  # grows by the transforms made
    mapping, used = _follow(step, [*target.root_transforms, *before], history, create=True)
    mapped = set(mapping.values())
    leaves = list(target.logical)
    transforms: list[Transform] = []
    for transform in [*used, *before]:
        if transform in transforms or not set(transform.sources) <= set(leaves):
            continue
        if transform not in used and mapped.intersection(transform.sources):
            continue
        transforms.append(transform)
        leaves = [axis for axis in leaves if axis not in transform.sources]
        leaves += transform.results
    target.transforms = transforms
    followed = [mapping[axis] for axis in step.source.loop if axis in mapping]
    wanted = dict.fromkeys(axis for axis in followed if axis in leaves)
    rest = [axis for axis in old_loop if axis in leaves and axis not in wanted]
    rest += [axis for axis in leaves if axis not in wanted and axis not in rest]
    target.loop = [*wanted, *rest]
    return mapping


def _log(name: str, reference: View, **arguments: Any) -> None:
    reference.fusion.log(Primitive(name, reference.name, tuple(arguments.items())))


def transform_like(reference: View, selected: Sequence[View] = ()) -> None:
    """Repeats the transforms of a tensor on the other tensors of its definition, or on the selected
    ones.
    """
    _log("transform_like", reference)
    for step in spanning_tree(reference, selected or None):
        replay(step)


def bounded_transform_backward(
    source: View, pos: int, ends: Sequence[View], propagate_parallel_type: bool = False
) -> None:
    """Repeats the transforms behind the outer `pos` axes of a tensor (-1: all) on its producers, up
    to the tensors `ends`; with `propagate_parallel_type` also the bindings.
    """
    outer = set(source.loop[: _outer(source, pos, "bounded_transform_backward")])
    _log("bounded_transform_backward", source, pos=pos, to=tuple(view.name for view in ends))
    within = _between(source, ends)
    from_source: dict[View, Mapping] = {source: {axis: axis for axis in outer}}
    for step in spanning_tree(source, within):
        wanted = {
            from_source[step.source][axis] for axis in outer & from_source[step.source].keys()
        }
        history: list[Transform] = []
        for transform in reversed(step.history):
            if wanted.intersection(transform.results):
                wanted.update(transform.sources)
                history.insert(0, transform)
        mapping = replay(step, history)
        from_source[step.target] = _composed(from_source[step.source], mapping)
        if propagate_parallel_type:
            for axis, found in from_source[step.target].items():
                if found in step.target.loop:
                    found.parallel = axis.parallel


def _between(source: View, ends: Sequence[View]) -> list[View]:
    """The producers of `source`, direct or not, that are in `ends` or depend on one."""
    reached: set[View] = set(ends)
    for view in source.fusion.views:
        if any(edge.producer in reached for edge in view.operands):
            reached.add(view)
    needed = {source}
    for view in reversed(source.fusion.views):
        if view in needed and view not in ends:
            needed.update(edge.producer for edge in view.operands)
    return [view for view in source.fusion.views if view in reached and view in needed]


def _outer(view: View, pos: int, method: str) -> int:
    """Number of outer axes: -1 stands for all. Raises UserError `by-hand-inline`."""
    rank = len(view.loop)
    count = pos + rank + 1 if isinstance(pos, int) and pos < 0 else pos
    if not isinstance(count, int) or not 0 <= count <= rank:
        raise UserError(
            f"{method}(): pos: expected a number of loops from {-rank - 1} to {rank} of {view}, "
            f"got {pos!r}",
            rule="by-hand-inline",
        )
    return count


def _composed(first: Mapping, second: Mapping) -> Mapping:
    return {a: second[b] for a, b in first.items() if b in second}


def mappings_from(
    reference: View, within: Iterable[View] | None = None
) -> Iterator[tuple[View, Mapping]]:
    """For each other tensor, the axes of it that equal axes of `reference`."""
    own = [*reference.logical, *reference.get_root_domain()]
    own += [axis for transform in reference.transforms for axis in transform.results]
    found: dict[View, Mapping] = {reference: {axis: axis for axis in own}}
    for step in spanning_tree(reference, within):
        found[step.target] = _composed(found[step.source], match(step))
        yield step.target, found[step.target]


def parallelize_like(
    reference: View,
    pos: int = -1,
    selected: Sequence[View] = (),
    selected_types: Sequence[Any] = (),
) -> None:
    """Binds axes of the other tensors, or of the selected ones, as the equal axes among the outer
    `pos` axes of a tensor (-1: all) are bound. Inputs stay unbound. Raises UserError
    `by-hand-inline` for a position out of range.
    """
    outer = reference.loop[: _outer(reference, pos, "parallelize_like")]
    _log("parallelize_like", reference, pos=pos)
    for view, mapping in mappings_from(reference):
        if view.is_input or (selected and view not in selected):
            continue
        for axis in outer:
            target = mapping.get(axis)
            types = selected_types or ParallelType
            if target in view.loop and axis.is_parallelized() and axis.parallel in types:
                for other in view.loop:  # the new binding replaces an older one
                    if other.parallel is axis.parallel and other is not target:
                        other.parallel = ParallelType.serial
                target.parallel = axis.parallel


# ---- inlining


def _own_limit(view: View) -> int:
    """Number of outer loops before the first one that other tensors cannot share."""
    if view.is_input:
        return 0
    for place, axis in enumerate(view.loop):
        if axis.is_reduction() or axis.parallel is ParallelType.vectorize:
            return place
    return len(view.loop)


def inline_limit(view: View, users: Users) -> int:
    """Largest number of outer loops that a tensor shares with all of its consumers."""
    limit = _own_limit(view)
    for step in steps_from(view, users):
        if step.to_producer:
            continue
        mapping = match(step)
        shared = 0
        for own, other in zip(view.loop[:limit], step.target.loop, strict=False):
            if mapping.get(own) is not other or other.parallel is ParallelType.vectorize:
                break
            shared += 1
        limit = shared
    return limit


def _set_inlined(fusion: ScheduledFusion, places: dict[View, int]) -> None:
    for view, place in places.items():
        view.inlined = max(view.inlined, place)
    for view in fusion.views:
        view.produced = max(
            (min(e.producer.inlined, len(view.loop)) for e in view.operands), default=0
        )


def inline_most(fusion: ScheduledFusion, selected: Sequence[View] = ()) -> None:
    """Inlines tensors, all or the selected ones, at the innermost loop that they can share with
    their consumers.
    """
    names = tuple(view.name for view in selected)
    fusion.log(Primitive("inline_most", "schedule", (("selected_tensors", names),)))
    users = fusion.consumers()
    _set_inlined(fusion, {view: inline_limit(view, users) for view in selected or fusion.views})


def inline_at(
    reference: View, pos: int = -1, best_effort: bool = False, selected: Sequence[View] = ()
) -> None:
    """Inlines tensors, all or the selected ones, at the loop that is at position `pos` of the
    reference. Raises UserError `by-hand-inline` for a position that the reference cannot share,
    unless `best_effort` takes the nearest one.
    """
    count = _outer(reference, pos, "inline_at")
    users = reference.fusion.consumers()
    limits = {view: inline_limit(view, users) for view in selected or reference.fusion.views}
    limit = limits.get(reference, count)
    if count > limit and not best_effort:
        raise UserError(
            f"inline_at(): pos: expected at most {limit} for {reference}, got {count}: a reduced "
            "or vectorized axis, or one that a consumer lacks, cannot be shared\n"
            "  hint: best_effort=True takes the nearest position",
            rule="by-hand-inline",
        )
    _log("inline_at", reference, pos=count)
    places = {reference: min(count, limit)} if reference in limits else {}
    for view, mapping in mappings_from(reference):
        if view in limits:
            outer = [mapping[a] for a in reference.loop[:count] if a in mapping]
            places[view] = min(sum(axis in view.loop for axis in outer), limits[view])
    _set_inlined(reference.fusion, places)
