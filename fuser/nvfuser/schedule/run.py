"""Runs of hand-written schedules: the plan of each kernel that follows, and its report.

A schedule never changes values. Each kernel runs by the plan of fuser's scheduler, changed where
the schedule has a counterpart; prepare() is the only place that knows how a schedule reaches a
kernel.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fuser._core import get_option
from fuser.errors import UserError
from fuser.nvfuser.schedule.check import check_kernel
from fuser.nvfuser.schedule.domains import Extent
from fuser.nvfuser.schedule.graph import ScheduledFusion, schedule_of, set_schedule
from fuser.nvfuser.schedule.heuristics import compatible, scheduler_named
from fuser.nvfuser.schedule.params import HeuristicParams, LaunchParams
from fuser.nvfuser.schedule.translate import (
    Requests,
    Sizes,
    is_refusal,
    nearest,
    notes_of_others,
    notes_of_primitives,
    requests_of_bindings,
    requests_of_launch,
    requests_of_limits,
    requests_of_params,
)
from fuser.nvfuser.schedule.views import View
from fuser.plan import Plan, Plans, plan_fields

if TYPE_CHECKING:
    import torch

    from fuser.cache import FusionExecutorCache
    from fuser.fusion import Fusion

_log = logging.getLogger("fuser.schedule")

# Alignment in bytes that plans distinguish at most.
_ALIGNMENT = 256

# Number of input layouts per definition whose translated schedules are kept.
_MOST_PREPARED = 64


@dataclass
class Prepared:
    """A schedule on the inputs of a run.

    plans     plans of the kernels
    taken     what each kernel follows: "threads=128 instead of 256 (T3: ithreadIdx.x7{128})"
    always    primitives that every kernel follows
    kept      bindings and primitives without an effect, with the reason
    """

    plans: tuple[Plan, ...]
    planned: tuple[Plan, ...]
    names: tuple[str, ...]
    taken: list[list[str]] = field(default_factory=list)
    always: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    _fields: tuple[tuple[Plan, ...], Any] | None = None  # plans, and their form for csrc/torch

    @property
    def fields(self) -> Any:
        """The plans in the form that csrc/torch accepts; None if nothing changes."""
        if self._fields is None or self._fields[0] is not self.plans:
            changed = self.plans != self.planned
            self._fields = (self.plans, plan_fields(self.plans) if changed else None)
        return self._fields[1]

    @property
    def as_plans(self) -> Plans | None:
        """The plans as fd.execute() takes them."""
        if self.plans == self.planned:
            return None
        return self.plans[0] if len(self.plans) == 1 else self.plans

    @property
    def plan_texts(self) -> list[str]:
        """The plans as explanations print them: "pointwise(threads=128, vector=4)"."""
        rows = [{k: v for k, v in plan.items() if k != "scheduler"} for plan in self.plans]
        shown = [", ".join(f"{name}={value}" for name, value in row.items()) for row in rows]
        return [f"{p.scheduler}({fields})" for p, fields in zip(self.plans, shown, strict=True)]

    def __str__(self) -> str:
        lines = []
        for i, (name, plan) in enumerate(zip(self.names, self.plans, strict=True)):
            lines.append(f"kernel {i}, {name}: {plan.scheduler}")
            lines += [f"  {line}" for line in self.taken[i] or ["as planned"]]
        lines += [f"in every kernel: {line}" for line in self.always]
        return "\n".join([*lines, *(f"not taken over: {line}" for line in self.kept)])

    def one_line(self) -> str:
        """The report as one line, for a log."""
        taken = [*(line for lines in self.taken for line in lines), *self.always]
        kept = "; ".join(self.kept) or "nothing"
        return f"schedule by hand: {'; '.join(taken) or 'nothing'}; not taken over: {kept}"


def prepare(
    target: Any,
    fusion: ScheduledFusion,
    inputs: Sequence[Any],
    device: Any = None,
    launch: LaunchParams | None = None,
) -> Prepared:
    """The plans that follow a schedule on these inputs. `target` has the attributes `fusion` and
    `fec` of a definition. Raises the errors of a run for unsuitable inputs, and of check_kernel().
    """
    executor = target.fec.executor
    planned = tuple(Plan(**fields) for fields in executor.plans(inputs, device))
    steps = executor.explain(inputs, device)[0]
    kernels = [step for step in steps if step[0] == "kernel"]
    if len(kernels) != len(planned):  # a kernel of several launches has one plan
        kernels = (kernels or steps)[:1] * len(planned)
    sizes = sizes_on(target, inputs)
    accepted = compatible(fusion, planned, steps)
    made = Prepared(planned, planned, tuple(step[1] for step in kernels))
    made.always, made.kept = notes_of_primitives(fusion)
    used: set[View] = set()
    for place, (plan, step) in enumerate(zip(planned, kernels, strict=True)):
        requests = Requests()
        views = list(_views_in(fusion, step, steps))
        used.update(views)
        check_kernel(views, sizes)
        requests_of_bindings(plan, views, sizes, requests)
        _requests_of_scheduler(fusion, plan, accepted, requests)
        if launch:
            requests_of_launch(plan, launch, requests)
        before, after = made.plans[:place], made.plans[place + 1 :]

        def refusal(candidate: Plan, before: Any = before, after: Any = after) -> str:
            return _refusal(executor, inputs, device, (*before, candidate, *after))

        changed, lines = nearest(plan, requests.fields, refusal)
        made.plans = (*before, changed, *after)
        made.taken.append(lines)
        made.kept += requests.kept
    others = [view for view in fusion.views if view not in used and not view.is_input]
    made.kept += notes_of_others(others)
    made.kept = list(dict.fromkeys(made.kept))
    return made


def _requests_of_scheduler(
    fusion: ScheduledFusion, plan: Plan, accepted: Sequence[str], requests: Requests
) -> None:
    """Adds the requests of the parameters that a program changed."""
    params = fusion.params
    if accepted and isinstance(params, HeuristicParams):
        asked = scheduler_named(params.scheduler_type, "schedule")
        name = asked if asked in accepted else accepted[0]
        requests_of_params(plan, name, params, requests)
    elif params is not None:
        requests.kept.append(f"{type(params).__name__}: no scheduler takes the definition")
    requests_of_limits(plan, fusion.limits, requests)


def _refusal(executor: Any, inputs: Sequence[Any], device: Any, plans: Sequence[Plan]) -> str:
    """Reason for which the schedulers refuse the plans; empty if they accept them."""
    try:
        executor.plans(inputs, device, [dict(plan) for plan in plans])
    except UserError as error:
        if not is_refusal(error):
            raise
        return str(error).splitlines()[0].removeprefix("plan: ")
    return ""


def _tell(made: Prepared) -> None:
    """One line to the log, and to stderr if FUSER_LOG asks for launches."""
    _log.info("%s", made.one_line())
    if get_option("FUSER_LOG") not in ("", "0"):
        print(f"fuser: {made.one_line()}", file=sys.stderr)


def sizes_on(target: Any, inputs: Sequence[Any]) -> Sizes:
    """Evaluates extents on the inputs of a run."""
    from fuser.debug.interpreter import tensor_sizes

    found: dict[int, int] = {}
    shapes = tensor_sizes(target, inputs)
    for record in target.fusion.records()["tensors"]:
        found |= dict(zip(record["shape"], shapes[record["id"]], strict=True))

    def evaluate(extent: Extent) -> int | None:
        return extent.evaluate(found.get)

    return evaluate


def _views_in(fusion: ScheduledFusion, step: Any, steps: Sequence[Any]) -> Iterator[View]:
    """The tensors that a kernel computes, the copies of inputs that it reads, and the tensors that
    its accesses move: results of movement ops are in no list of a step.
    """
    inputs = {view.tensor for view in fusion.views if view.is_input}
    tensors = _computed(step) | {tensor for tensor, _ in step[3] if tensor in inputs}
    elsewhere = set().union(*map(_computed, steps)) | inputs
    for view in reversed(fusion.views):
        if view.tensor in tensors:
            moved = (edge.producer.tensor for edge in view.operands)
            tensors.update(tensor for tensor in moved if tensor not in elsewhere)
    for view in fusion.views:
        if view.tensor in tensors:
            yield view


def _computed(step: Any) -> set[int]:
    _, _, _, _, writes, computes, _ = step
    return {*computes, *(tensor for tensor, _ in writes)}


def execute(target: Any, inputs: Sequence[Any], device: Any, made: Prepared) -> Any:
    """Runs the plans. If a kernel needs more registers or shared memory than a plan's check could
    know, then runs the planned ones and says so.
    """
    executor = target.fec.executor
    if made.fields is None:
        return executor.execute(inputs, device)
    try:
        return executor.execute(inputs, device, made.fields)
    except UserError as error:
        if not is_refusal(error):
            raise
        made.plans = made.planned
        made.taken = [[] for _ in made.taken]
        made.kept.append(f"every change of a plan: {str(error).splitlines()[0]}")
        _tell(made)
        return executor.execute(inputs, device)


# ---- schedule() of a subclass


def run_of(fd: Any) -> Callable[..., Any]:
    """The function execute(inputs, device, plan) of a definition with a schedule(). It calls
    schedule() once for each layout and size of the inputs; a given plan replaces the schedule.
    """

    def run(inputs: Sequence[Any], device: Any = None, plan: Any = None) -> Any:
        if plan is not None:
            return fd.fec.executor.execute(inputs, device, plan)
        return execute(fd, inputs, device, prepared(fd, inputs, device))

    return run


def prepared(fd: Any, inputs: Sequence[Any], device: Any) -> Prepared:
    """The schedule() of a definition on these inputs. Afterwards fd.sched shows it."""
    known = fd._prepared = fd._prepared or OrderedDict()
    key = _key(fd, inputs, device)
    if key in known:
        known.move_to_end(key)
    else:
        known[key] = _scheduled(fd, inputs, device)
        while len(known) > _MOST_PREPARED:
            known.popitem(last=False)
    fusion, made = known[key]
    set_schedule(fd._builder, fusion)
    assert isinstance(made, Prepared), "the cache holds what _scheduled() returns"
    return made


def _key(fd: Any, inputs: Sequence[Any], device: Any) -> Any:
    written = getattr(fd.schedule, "__func__", fd.schedule)
    return written, str(device), tuple(map(_layout, inputs))


def _layout(value: Any) -> Any:
    """The properties of an input that plans and extents depend on; integers may be sizes."""
    if not hasattr(value, "data_ptr"):
        return value if isinstance(value, int) else None
    try:
        aligned = value.data_ptr() % _ALIGNMENT
        return value.shape, value.stride(), value.dtype, value.device, aligned
    except RuntimeError:  # a tensor without strides, which the executor refuses
        return None


def _scheduled(fd: Any, inputs: Sequence[Any], device: Any) -> tuple[ScheduledFusion, Prepared]:
    fusion = ScheduledFusion(fd._builder)
    fd.fec.executor.plans(inputs, device)  # raises the errors of unsuitable inputs
    fusion.inputs = list(inputs)
    set_schedule(fd._builder, fusion)
    try:
        fd.schedule()
    finally:
        fusion.inputs = None
    made = prepare(fd, fusion, inputs, device)
    _tell(made)
    return fusion, made


# ---- nvFuser's executor of one kernel


class Target:
    """The attributes of a definition that a run needs, from its Fusion."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.fec: FusionExecutorCache = fusion._executors()


class KernelExecutor:
    """Runs a definition by the schedule that its tensors have: compile(fd.fusion, inputs), then
    run(inputs). The arguments of the constructor number kernels in nvFuser and are ignored.

    report   the plans that the last compile() made of the schedule, and what they leave out
    """

    def __init__(
        self, fusion_id: int = 0, concrete_id: int = 0, runtime_id: int = 0, group_id: int = 0
    ) -> None:
        self._target: Any = None
        self._launch: LaunchParams | None = None
        self._known: OrderedDict[Any, Prepared] = OrderedDict()
        self.report: Prepared | None = None

    def compile(
        self,
        fusion: Any,
        args: Sequence[Any] = (),
        launch_constraints: LaunchParams | None = None,
        compile_params: Any = None,
        scheduler_type: Any = None,
    ) -> None:
        """Translates the schedule for the inputs `args`. Raises the errors of prepare()."""
        self._target = fusion if hasattr(fusion, "fec") else Target(fusion)
        self._launch = launch_constraints
        self._known.clear()
        self.prepare(args)

    def prepare(self, args: Sequence[Any]) -> Prepared:
        """The translated schedule for inputs, from an earlier call if nothing changed since."""
        fusion = schedule_of(self._target.fusion.builder)
        changing = repr((fusion.params, fusion.limits, self._launch))
        key = (tuple(map(_layout, args)), len(fusion.primitives), changing)
        self.report = self._known.get(key)
        if self.report is None:
            self.report = prepare(self._target, fusion, args, None, self._launch)
            self._known[key] = self.report
            if len(self._known) > _MOST_PREPARED:
                self._known.popitem(last=False)
            _tell(self.report)
        return self.report

    def run(
        self,
        args: Sequence[Any],
        launch_constraints: LaunchParams | None = None,
        compile_params: Any = None,
    ) -> list[torch.Tensor]:
        """Runs the kernel and returns the results. Raises UserError `by-hand-executor` before
        compile(). Other inputs than those of compile() are planned again.
        """
        if self.report is None:
            raise UserError(
                "KernelExecutor.run(): expected a compiled kernel, got none\n"
                "  hint: call compile(fd.fusion, inputs) first, or fd.manual_execute(inputs)",
                rule="by-hand-executor",
            )
        self._launch = launch_constraints or self._launch
        found: list[torch.Tensor] = execute(self._target, args, None, self.prepare(args))
        return found

    def is_compiled(self) -> bool:
        """True after compile()."""
        return self.report is not None

    def is_programmatic_dependent_launch_enabled(self) -> bool:
        """False: fuser's kernels wait for the kernel before."""
        return False


def prepare_by_hand(fd: Any, inputs: Sequence[Any], params: Any) -> Prepared:
    """Prepares fd.manual_execute(inputs, params), whose executor is fd.ke."""
    if params is not None:
        schedule_of(fd.fusion.builder).params = params
    if fd._ke is None:
        executor = KernelExecutor()
        executor.compile(fd, inputs)
        fd._ke = executor
    return fd.ke.prepare(inputs)
