"""Schedules by hand as changes of a Plan: bindings and parameters that a kernel can follow."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fuser.errors import UserError
from fuser.nvfuser.schedule.domains import Extent, IterDomain, Split, ancestors
from fuser.nvfuser.schedule.graph import ScheduledFusion
from fuser.nvfuser.schedule.heuristics import params_of
from fuser.nvfuser.schedule.params import (
    HeuristicParams,
    LaunchParams,
    PointwiseParams,
    ReductionParams,
    SchedulerHyperParameters,
    changed,
)
from fuser.nvfuser.schedule.types import MemoryType
from fuser.nvfuser.schedule.views import View
from fuser.plan import Plan

# Evaluates an extent on the inputs of a run; None if it depends on values.
Sizes = Callable[[Extent], int | None]

# Largest number of serial steps that a thread unrolls.
_MOST_UNROLLED = 64

# Bindings to the threads of a block.
_THREADS = ("block_x", "block_y", "block_z")

# Primitives whose effect every kernel has, and the reason.
_ALWAYS = {
    **dict.fromkeys(("inline_most", "inline_at"), "no intermediate value goes to memory"),
    **dict.fromkeys(("cache_after", "cache_before", "cache_fork"), "copies are in registers"),
}
# Primitives that a plan cannot express, and the reason.
_NEVER = {
    **dict.fromkeys(("swizzle", "swizzle1d"), "the scheduler places elements in shared memory"),
    "set_allocation_domain": "results have torch's layout",
    "rfactor": "the scheduler chooses the order of a reduction",
    "warp_specialize": "the scheduler chooses the stages of copies",
}
# Transforms, which reach a kernel by the axes that are bound.
_TRANSFORMS = ("split", "merge", "reorder", "transform_like", "bounded_transform_backward")


@dataclass
class Request:
    """A field of a plan that a schedule asks for, and the binding or parameter it comes from."""

    field: str
    value: int
    source: str


@dataclass
class Requests:
    """The requests for one kernel, and the bindings and primitives that it cannot follow."""

    fields: list[Request] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def add(self, plan: Plan, name: str, value: int | None, source: str) -> None:
        """Adds a request if the plan has the field, otherwise a note."""
        if value is None:
            self.kept.append(f"{source}: its extent depends on values")
        elif name not in plan:
            self.kept.append(f"{source}: {plan.scheduler} has no {name}")
        else:
            self.fields = [request for request in self.fields if request.field != name]
            self.fields.append(Request(name, value, source))


# ---- equal dims


class Dims:
    """Classes of equal dims of the tensors of a kernel."""

    def __init__(self, views: Sequence[View]) -> None:
        self._parents: dict[IterDomain, IterDomain] = {}
        for view in views:
            base = view.get_root_domain()
            for edge in view.operands:
                for p, c in edge.dims:
                    self._join(edge.producer.kept()[p], base[c])
            for transform in view.root_transforms:
                for axis in (*transform.sources[1:], *transform.results):
                    self._join(transform.sources[0], axis)
        self.reduced = {
            self.of(axis) for view in views for axis in view.logical if axis.is_reduction()
        }

    def of(self, axis: IterDomain) -> IterDomain:
        """The representative of a dim."""
        while axis in self._parents:
            axis = self._parents[axis]
        return axis

    def _join(self, a: IterDomain, b: IterDomain) -> None:
        a, b = self.of(a), self.of(b)
        if a is not b:
            self._parents[b] = a

    def behind(self, view: View, axis: IterDomain) -> set[IterDomain]:
        """The dims that a loop axis runs over, without broadcast ones."""
        found = ancestors(axis, view.transforms)
        return {self.of(dim) for dim in found if not dim.is_broadcast()}


def _is_cpu(plan: Plan) -> bool:
    return "lanes" in plan


def _vector_fields(plan: Plan) -> tuple[str, ...]:
    """The fields of the plan that have the elements of a vector."""
    if _is_cpu(plan):
        return ("lanes",)
    return ("vector",) if "vector" in plan else ("vector_x", "vector_y")


def _unroll_field(plan: Plan) -> str:
    return "block_rows" if _is_cpu(plan) else "unroll"


# ---- requests of bindings


@dataclass
class Binding:
    """Axes of a kernel that are bound to one parallel type."""

    view: View
    axis: IterDomain
    extent: int | None
    dims: set[IterDomain]

    @property
    def source(self) -> str:
        return f"{self.view.name}: {self.axis}"


def bindings_of(views: Sequence[View], dims: Dims, sizes: Sizes) -> dict[str, Binding]:
    """The largest axis of each parallel type, with the dims of all axes of this type."""
    found: dict[str, Binding] = {}
    for view in views:
        for axis in () if view.is_input else view.loop:
            if not axis.is_parallelized():
                continue
            name, extent = axis.parallel.name, sizes(axis.extent())
            behind = dims.behind(view, axis)
            last = found.get(name)
            if last is None or (extent or 0) >= (last.extent or 0):
                found[name] = Binding(view, axis, extent, behind | (last.dims if last else set()))
            else:
                last.dims |= behind
    return found


def requests_of_bindings(
    plan: Plan, views: Sequence[View], sizes: Sizes, requests: Requests
) -> None:
    """Adds the requests of the bindings of a kernel's tensors."""
    dims = Dims(views)
    found = bindings_of(views, dims, sizes)
    if _is_cpu(plan):
        _requests_of_tasks(plan, found, dims, views, sizes, requests)
        _memory(plan, views, requests)
        return
    threads = [found[name] for name in _THREADS if name in found]
    if threads:
        _threads(plan, threads, dims, views, requests)
    for name, binding in found.items():
        if name.startswith("grid_"):
            requests.kept.append(f"{binding.source}: the grid follows from the sizes")
        elif name == "cluster_x":
            requests.add(plan, "cluster_size", binding.extent, binding.source)
        elif name == "vectorize":
            for key in _vector_fields(plan):
                requests.add(plan, key, binding.extent, binding.source)
        elif name in ("unroll", "unswitch"):
            requests.add(plan, "unroll", binding.extent, binding.source)
        elif name not in _THREADS:
            requests.kept.append(f"{binding.source}: fuser has no {name} axes")
    if "unroll" in plan and "unroll" not in found and plan.scheduler in ("inner", "outer"):
        _serial_steps(plan, views, sizes, found, requests)
    _memory(plan, views, requests)


def _total(bindings: Iterable[Binding]) -> int | None:
    """Product of the extents; None if one depends on values."""
    extents = [binding.extent for binding in bindings]
    return None if None in extents else math.prod(n for n in extents if n is not None)


def _sources(bindings: Iterable[Binding]) -> str:
    return " and ".join(binding.source for binding in bindings)


def _along(plan: Plan, dims: Dims, views: Sequence[View]) -> set[IterDomain]:
    """The dims that the threads of a row run along, or the lanes of a CPU kernel."""
    kind = plan.scheduler.removeprefix("cpu_")
    if kind in ("inner", "inner_outer"):
        return dims.reduced
    if kind == "outer":
        return {dims.of(axis) for view in views for axis in view.logical} - dims.reduced
    widest = max(views, key=lambda view: len(view.logical))
    return {dims.of(widest.logical[-1])} if widest.logical else set()


def _threads(
    plan: Plan, threads: list[Binding], dims: Dims, views: Sequence[View], requests: Requests
) -> None:
    """Requests for the threads of a block: along the row for threads_x, and across it."""

    if "threads" in plan:
        requests.add(plan, "threads", _total(threads), _sources(threads))
        return
    along = _along(plan, dims, views)
    on_x = [binding for binding in threads if binding.dims & along]
    others = [binding for binding in threads if binding not in on_x]
    for name, group in (("threads_x", on_x), ("threads_y", others[:1]), ("threads_z", others[1:])):
        if group:
            requests.add(plan, name, _total(group), _sources(group))
        elif name in plan and name != "threads_x" and on_x:
            requests.add(plan, name, 1, f"{_sources(on_x)} alone")


def _requests_of_tasks(
    plan: Plan,
    found: dict[str, Binding],
    dims: Dims,
    views: Sequence[View],
    sizes: Sizes,
    requests: Requests,
) -> None:
    """Requests for a CPU kernel: threads along a row and vectors are its lanes, blocks its tasks,
    unrolled axes the rows of a block.
    """
    along = _along(plan, dims, views)
    bound = [found[name] for name in (*_THREADS, "vectorize") if name in found]
    lanes = [binding for binding in bound if binding.dims & along]
    if lanes:
        requests.add(plan, "lanes", _total(lanes), _sources(lanes))
    requests.kept += [
        f"{binding.source}: a task computes these elements in turn"
        for binding in bound
        if binding not in lanes
    ]
    grids = [name for name in found if name.startswith("grid_")]
    if grids:
        requests.add(plan, "task", _elements_of_block(views, sizes), _sources([found[grids[0]]]))
    for name, binding in found.items():
        if name in ("unroll", "unswitch"):
            requests.add(plan, _unroll_field(plan), binding.extent, binding.source)
        elif name not in (*_THREADS, "vectorize", *grids):
            requests.kept.append(f"{binding.source}: a CPU kernel has no {name} axes")


def _elements_of_block(views: Sequence[View], sizes: Sizes) -> int | None:
    """The elements of a tensor that a block computes, at most; None if they depend on values."""
    most = 0
    for view in views:
        names = [axis.parallel.name for axis in view.loop]
        if view.is_input or not any(name.startswith("grid_") for name in names):
            continue
        extents = [
            sizes(axis.extent())
            for axis, name in zip(view.loop, names, strict=True)
            if not name.startswith("grid_")
        ]
        if None in extents:
            return None
        most = max(most, math.prod(n for n in extents if n is not None))
    return most


def _serial_steps(
    plan: Plan, views: Sequence[View], sizes: Sizes, found: dict[str, Binding], requests: Requests
) -> None:
    """The steps of a thread along a row that it holds, as a request for `unroll`."""
    reductions = [view for view in views if view.has_reduction()]
    if plan.get("looped") or "block_x" not in found or not reductions:
        return
    first = reductions[0]  # the tensor that an rfactor made, if there is one
    extents = [
        sizes(axis.extent())
        for axis in first.loop
        if not axis.is_parallelized() and (axis.is_reduction() or axis.rfactor)
    ]
    steps = None if None in extents else math.prod(n for n in extents if n is not None)
    vector = found["vectorize"].extent if "vectorize" in found else int(plan["vector"])
    if steps and vector and steps % vector == 0 and steps // vector <= _MOST_UNROLLED:
        requests.add(plan, "unroll", steps // vector, f"{first.name}: serial reduced axes")


def _memory(plan: Plan, views: Sequence[View], requests: Requests) -> None:
    """Requests of tensors in shared memory: a persistent row, or the tile of a transpose."""
    for view in views:
        if view.memory.name in ("tensor", "symmetric"):
            requests.kept.append(f"{view.name}: fuser has no {view.memory.name} memory")
    shared = [view for view in views if view.memory is MemoryType.shared]
    if not shared:
        return
    names = ", ".join(view.name for view in shared)
    if plan.scheduler != "transpose":
        requests.add(plan, "persistent_in", 2, f"{names} in shared memory")
        return
    factors = [
        transform.factor
        for transform in shared[0].transforms
        if isinstance(transform, Split) and transform.source in shared[0].logical
    ]
    for name, factor in zip(("tile_y", "tile_x"), factors, strict=False):
        requests.add(plan, name, factor, f"{names} in shared memory")


def notes_of_others(views: Sequence[View]) -> list[str]:
    """Lines about bindings of tensors that no kernel computes."""
    return [
        f"{view.name}: {axis}: no kernel computes this tensor"
        for view in views
        for axis in view.loop
        if axis.is_parallelized()
    ]


def notes_of_primitives(fusion: ScheduledFusion) -> tuple[list[str], list[str]]:
    """Lines about primitives that every kernel follows, and about primitives that none does."""
    always: dict[str, list[str]] = {}
    never = []
    for primitive in fusion.primitives:
        if primitive.name in _NEVER:
            never.append(f"{primitive}: {_NEVER[primitive.name]}")
        elif primitive.name in _ALWAYS:
            names = always.setdefault(_ALWAYS[primitive.name], [])
            names += [primitive.name] if primitive.name not in names else []
    bound = any(axis.is_parallelized() for view in fusion.views for axis in view.loop)
    moved = [name for name in _TRANSFORMS if any(p.name == name for p in fusion.primitives)]
    if moved and not bound:
        never.append(f"{', '.join(moved)}: no axis is bound")
    return [f"{', '.join(names)}: {why}" for why, names in always.items()], never


# ---- requests of parameters

_Names = tuple[str, ...]


def requests_of_launch(plan: Plan, launch: LaunchParams, requests: Requests) -> None:
    """Adds the numbers of threads of LaunchParams."""
    given = launch.threads()
    shown = ", ".join(f"bdim{dim}={count}" for dim, count in given.items())
    total = "threads" if "threads" in plan else "lanes"
    if total in plan:
        if given:
            requests.add(plan, total, math.prod(given.values()), shown)
        return
    for dim, count in given.items():
        if count > 1 or f"threads_{dim}" in plan:
            requests.add(plan, f"threads_{dim}", count, f"bdim{dim}={count}")


def requests_of_params(plan: Plan, name: str, params: HeuristicParams, requests: Requests) -> None:
    """Adds the requests of parameters of a scheduler of nvFuser that differ from the plan's."""
    base = params_of(name, plan)
    if type(params) is not type(base) or not isinstance(base, HeuristicParams):
        requests.kept.append(f"{type(params).__name__}: expected {type(base).__name__} for {name}")
        return
    differing = changed(params, base)
    if any(key.startswith("bdim") for key in differing):
        requests_of_launch(plan, params.lparams, requests)
    vector, unroll, used = _factors(params)
    for keys, fields_, value in (
        (used[0], _vector_fields(plan), vector),
        (used[1], (_unroll_field(plan),), unroll),
    ):
        given = [f"{key}={differing[key]}" for key in keys if key in differing]
        for name_ in fields_ if given else ():
            requests.add(plan, name_, value, ", ".join(given))
    if differing.get("shared_mem_persistent_buffer"):
        requests.add(plan, "persistent_in", 2, "shared_mem_persistent_buffer=True")
    known = {*used[0], *used[1], "shared_mem_persistent_buffer"}
    for key, value in differing.items():
        if key not in known and not key.startswith("bdim"):
            requests.kept.append(f"{key}={value}: fuser has no counterpart")


def _factors(params: HeuristicParams) -> tuple[int, int, tuple[_Names, _Names]]:
    """Vector width, unrolled steps, and the names of the fields that they come from."""
    vectors: _Names
    unrolled: _Names
    if isinstance(params, PointwiseParams):
        unroll = params.unroll_factor_inner * params.unroll_factor_outer
        vectors, unrolled = (
            ("vectorization_factor",),
            ("unroll_factor_inner", "unroll_factor_outer"),
        )
        return params.vectorization_factor, unroll, (vectors, unrolled)
    assert isinstance(params, ReductionParams), "schedulers have one of two kinds of parameters"
    unrolled = ("unroll_factor_top_of_vectorization",)
    if params.vectorize_inner_reduction:
        vectors = ("vectorize_inner_reduction", "unroll_factor_inner_reduction")
        top = params.unroll_factor_top_of_vectorization
        return params.unroll_factor_inner_reduction, top, (vectors, unrolled)
    vectors = ("vectorize_iter_dom", "unroll_factor_iter_dom", "vectorize_inner_reduction")
    vector = params.unroll_factor_iter_dom if params.vectorize_iter_dom else 1
    unroll = params.unroll_factor_inner_reduction * params.unroll_factor_top_of_vectorization
    return vector, unroll, (vectors, (*unrolled, "unroll_factor_inner_reduction"))


def requests_of_limits(plan: Plan, limits: SchedulerHyperParameters, requests: Requests) -> None:
    """Adds the requests of schedule_hyperparameters()."""
    for key in _vector_fields(plan) if limits.vectorize_factor else ():
        if key in plan:
            source = f"vectorize_factor={limits.vectorize_factor}"
            requests.add(plan, key, limits.vectorize_factor, source)
    if limits.unroll_factor:
        source = f"unroll_factor={limits.unroll_factor}"
        requests.add(plan, _unroll_field(plan), limits.unroll_factor, source)
    low, high = limits.threads_per_block_min, limits.threads_per_block_max
    if not (low or high):
        return
    source = f"threads_per_block_min={low}, threads_per_block_max={high}"
    if _is_cpu(plan):
        requests.kept.append(f"{source}: a task is one thread")
        return
    now = math.prod(int(plan[key]) for key in plan if key.startswith("threads"))
    wanted = max(low, min(now, high or now))
    if "threads" in plan:
        requests.add(plan, "threads", wanted, source)
    elif wanted != now:
        moving = "threads_x" if plan.scheduler in ("inner", "inner_outer") else "threads_y"
        other = now // int(plan[moving])
        requests.add(plan, moving, max(1, wanted // other), source)


# ---- the nearest allowed plan


# Plans that a search tries at most; a try plans the kernels once, without compiling.
_MOST_TRIES = 400

# Returns the reason for which a scheduler refuses a plan, or an empty text.
Refusal = Callable[[Plan], str]


def nearest(planned: Plan, requests: Sequence[Request], refusal: Refusal) -> tuple[Plan, list[str]]:
    """The allowed plan that is nearest to the requests, and a line for each of them."""
    plan = planned.replace(**{request.field: request.value for request in requests})
    reason = refusal(plan)
    if reason:
        plan = _search(planned, requests, refusal)
    lines = []
    for request in requests:
        got, was = plan[request.field], planned[request.field]
        line = f"{request.field}={got}"
        if got != request.value:
            alone = refusal(planned.replace(**{request.field: request.value})) or reason
            line += f" instead of {request.value}: {alone}"
        elif got != was:
            line += f" instead of {was}"
        lines.append(f"{line} ({request.source})")
    return plan, lines


def _search(planned: Plan, requests: Sequence[Request], refusal: Refusal) -> Plan:
    """The first allowed plan by distance from the requests; `planned` if none is found. Distance is
    the sum of the logarithms of ratios. Fields that cannot change alone keep their planned values.
    """
    choices: list[tuple[str, list[tuple[float, int]]]] = []
    for request in requests:
        values = _candidates(request.value, int(planned[request.field]))
        changed = [n for _, n in values if n != planned[request.field]]
        if not all(refusal(planned.replace(**{request.field: n})) for n in changed):
            choices.append((request.field, values))
    start = (0,) * len(choices)
    waiting, seen = [(sum(values[0][0] for _, values in choices), start)], {start}
    for _ in range(_MOST_TRIES):
        if not waiting:
            break
        _, places = heapq.heappop(waiting)
        taken = {
            name: values[place][1] for (name, values), place in zip(choices, places, strict=True)
        }
        plan = planned.replace(**taken)
        if plan == planned or not refusal(plan):
            return plan
        for i, (_, values) in enumerate(choices):
            after = (*places[:i], places[i] + 1, *places[i + 1 :])
            if after[i] < len(values) and after not in seen:
                seen.add(after)
                distance = sum(c[1][p][0] for c, p in zip(choices, after, strict=True))
                heapq.heappush(waiting, (distance, after))
    return planned


def _candidates(wanted: int, planned: int) -> list[tuple[float, int]]:
    """Distances and values, nearest first: the wanted value, the planned one, powers of two."""
    values = {wanted, planned, *(2**i for i in range(11))}
    distances = [(abs(math.log2(max(n, 0.5) / max(wanted, 0.5))), -n) for n in values]
    return [(distance, -n) for distance, n in sorted(distances)]


def is_refusal(error: UserError) -> bool:
    """True for an error about a changed plan."""
    return error.rule.startswith("plan-")
