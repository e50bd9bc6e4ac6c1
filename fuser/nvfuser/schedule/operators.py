"""fd.sched and the module `schedule` of nvFuser: primitives by function instead of by method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fuser.errors import UserError
from fuser.fusion import Fusion
from fuser.nvfuser.schedule import propagate
from fuser.nvfuser.schedule.domains import Primitive
from fuser.nvfuser.schedule.graph import ScheduledFusion, recent, schedule_of, view_of
from fuser.nvfuser.schedule.heuristics import compatible, params_of, rejection, scheduler_named
from fuser.nvfuser.schedule.params import HeuristicParams, SchedulerHyperParameters
from fuser.nvfuser.schedule.tensor_view import TensorView
from fuser.nvfuser.schedule.types import SchedulerType
from fuser.plan import Plan


def _views(tensors: Iterable[Any]) -> list[TensorView]:
    return [view_of(tensor) for tensor in tensors]


# ---- functions of nvfuser_direct.schedule


def transform_like(reference_tv: Any, selected_tensors: Sequence[Any] = ()) -> None:
    """Repeats the transforms of a tensor on the other tensors of its definition, or on the selected
    ones. Raises UserError `by-hand-tensor` for something else than a tensor of a definition.
    """
    propagate.transform_like(view_of(reference_tv), _views(selected_tensors))


def bounded_transform_backward(
    from_tv: Any, pos: int, to_tvs: Sequence[Any], propagate_parallel_type: bool = False
) -> None:
    """Repeats the transforms behind the outer `pos` axes of a tensor (-1: all) on its producers, up
    to `to_tvs`; with `propagate_parallel_type` also the bindings. Raises UserError
    `by-hand-tensor`, `by-hand-inline` for a position out of range.
    """
    ends = _views(to_tvs)
    propagate.bounded_transform_backward(view_of(from_tv), pos, ends, propagate_parallel_type)


def parallelize_like(
    reference_tv: Any,
    pos: int = -1,
    selected_tensors: Sequence[Any] = (),
    selected_parallel_types: Sequence[Any] = (),
    propagate_padding: bool = True,
) -> None:
    """Binds axes of the other tensors as the equal axes among the outer `pos` axes of a tensor (-1:
    all) are bound. Inputs stay unbound. Raises UserError `by-hand-tensor`, `by-hand-inline` for a
    position out of range.
    """
    selected = _views(selected_tensors)
    propagate.parallelize_like(view_of(reference_tv), pos, selected, list(selected_parallel_types))


def inline_most(selected_tensors: Sequence[Any] = ()) -> None:
    """Inlines tensors, all or the selected ones, at the innermost loop that they can share with
    their consumers. Raises UserError `by-hand-tensor`.
    """
    selected = _views(selected_tensors)
    propagate.inline_most(selected[0].fusion if selected else recent(), selected)


def inline_at(
    reference_tv: Any,
    pos: int = -1,
    best_effort: bool = False,
    selected_tensors: Sequence[Any] = (),
) -> None:
    """Inlines tensors, all or the selected ones, at the loop at position `pos` of the reference.
    Raises UserError `by-hand-tensor`, `by-hand-inline` for a position that the reference cannot
    share, unless `best_effort` takes the nearest one.
    """
    selected = _views(selected_tensors)
    propagate.inline_at(view_of(reference_tv), pos, best_effort, selected)


def warp_specialize(
    tv: Any,
    number_of_stages: int,
    prefetch_distance: int,
    parallel_type: Any,
    num_registers: tuple[int, int] | None = None,
) -> None:
    """Records the request; the scheduler chooses the stages of copies to shared memory."""
    view = view_of(tv)
    given = (("number_of_stages", number_of_stages), ("prefetch_distance", prefetch_distance))
    view.fusion.log(Primitive("warp_specialize", view.name, given))


def can_schedule(fusion: Fusion, scheduler_type: Any, inputs: Sequence[Any]) -> tuple[bool, str]:
    """True and an empty text if a scheduler takes the definition, otherwise False and the reason.
    Raises UserError `by-hand-scheduler` for something else than a SchedulerType, and the errors of
    a run for unsuitable inputs.
    """
    return _can_schedule(_Run(fusion, inputs), scheduler_type)


def find_compatible_schedulers(fusion: Fusion, inputs: Sequence[Any]) -> list[Any]:
    """The schedulers that take the definition, by priority. Raises the errors of a run for
    unsuitable inputs.
    """
    return [SchedulerType[name] for name in _Run(fusion, inputs).accepted]


def compute_heuristics(fusion: Fusion, scheduler_type: Any, inputs: Sequence[Any]) -> Any:
    """The parameters of a scheduler for these inputs, to be changed and given to schedule() or
    fd.manual_execute(). Raises UserError `by-hand-scheduler` for a scheduler that does not take the
    definition.
    """
    return _parameters(_Run(fusion, inputs), scheduler_type, "compute_heuristics")


def schedule(fusion: Fusion, scheduler_type: Any, inputs: Any) -> Any:
    """Schedules a definition by a scheduler: for `inputs`, or by its parameters in their place.
    Returns the parameters. Raises UserError `by-hand-scheduler` for a scheduler that does not take
    the definition, `by-hand-twice` for a second call.
    """
    found = schedule_of(fusion.builder)
    name = scheduler_named(scheduler_type, "schedule")
    if isinstance(inputs, HeuristicParams):
        _note(found, name)
        found.params = inputs
        return inputs
    params = _parameters(_Run(fusion, inputs), scheduler_type, "schedule")
    _note(found, name)
    found.params = params
    return params


# ---- the run that a scheduler is asked about


class _Run:
    """A definition with inputs: its plans, and the schedulers of nvFuser that take it."""

    def __init__(self, fusion: Fusion, inputs: Sequence[Any], device: Any = None) -> None:
        executor = fusion._executors().executor
        self.fusion = schedule_of(fusion.builder)
        self.plans = [Plan(**fields) for fields in executor.plans(inputs, device)]
        self.accepted = compatible(self.fusion, self.plans, executor.explain(inputs, device)[0])


def _can_schedule(run: _Run, scheduler_type: Any) -> tuple[bool, str]:
    name = scheduler_named(scheduler_type, "can_schedule")
    reason = rejection(name, run.accepted, run.plans)
    return not reason, reason


def _parameters(run: _Run, scheduler_type: Any, method: str) -> Any:
    name = scheduler_named(scheduler_type, method)
    reason = rejection(name, run.accepted, run.plans)
    if reason:
        raise UserError(
            f"{method}(): {reason}\n  hint: find_compatible_schedulers() lists them",
            rule="by-hand-scheduler",
        )
    return params_of(name, run.plans[0]) if run.plans else HeuristicParams()


def _note(fusion: ScheduledFusion, name: str) -> None:
    """Notes the scheduler. Raises UserError `by-hand-twice` for a second one."""
    if fusion.scheduler is not None:
        raise UserError(
            f"schedule({name}): the definition is scheduled already, by {fusion.scheduler.name}; "
            "expected one call\n  hint: fuser.clone() makes a definition without schedule",
            rule="by-hand-twice",
        )
    fusion.scheduler = SchedulerType[name]
    fusion.log(Primitive("schedule", "schedule", (("scheduler_type", fusion.scheduler),)))


# ---- fd.sched


class SchedOperators:
    """fd.sched: the primitives as functions of a tensor, and schedulers for the inputs of the run.

    In schedule() of a subclass the schedulers use the inputs of the run. Elsewhere they take a
    Fusion and inputs, as the functions of the module `schedule` do. Errors are those of TensorView
    and of these functions.
    """

    def __init__(self, scheduled: ScheduledFusion, fusion: Callable[[], Fusion]) -> None:
        self._scheduled, self._fusion = scheduled, fusion

    def _view(self, tensor: Any) -> TensorView:
        return self._scheduled.view(tensor)

    # primitives

    def split(self, arg: Any, dim: int, factor: int, inner_split: bool = True) -> None:
        """TensorView.split()."""
        self._view(arg).split(dim, factor, inner_split)

    def merge(self, arg: Any, dim: int) -> None:
        """TensorView.merge() of an axis and its inner neighbour."""
        self._view(arg).merge(dim)

    def reorder(self, arg: Any, old2new: Any) -> None:
        """TensorView.reorder()."""
        self._view(arg).reorder(old2new)

    def parallelize(self, arg: Any, axis: int, parallel_type: Any) -> None:
        """TensorView.parallelize()."""
        self._view(arg).parallelize(axis, parallel_type)

    def _set_device_mesh(self, arg: Any, mesh: Any) -> None:
        """TensorView.set_device_mesh(), under the name of older definitions."""
        self._view(arg).set_device_mesh(mesh)

    def rfactor(self, arg: Any, dims: Sequence[int]) -> TensorView:
        """TensorView.rfactor()."""
        return self._view(arg).rfactor(dims)

    reduction_factor = rfactor

    def cache_after(self, arg: Any, op_type: Any = None, cache_op: Any = None) -> TensorView:
        """TensorView.cache_after()."""
        return self._view(arg).cache_after(op_type, cache_op)

    def cache_before(self, arg: Any, op_type: Any = None) -> TensorView:
        """TensorView.cache_before()."""
        return self._view(arg).cache_before(op_type)

    def cache_fork(self, arg: Any) -> TensorView:
        """TensorView.cache_fork()."""
        return self._view(arg).cache_fork()

    def set_memory_type(self, arg: Any, memory_type: Any) -> None:
        """TensorView.set_memory_type()."""
        self._view(arg).set_memory_type(memory_type)

    def set_allocation_as_loop(self, arg: Any) -> None:
        """Records that the elements of a tensor are in the order of its loops."""
        view = self._view(arg)
        view.set_allocation_domain(view.loop)

    # propagation

    transform_like = staticmethod(transform_like)
    bounded_transform_backward = staticmethod(bounded_transform_backward)
    parallelize_like = staticmethod(parallelize_like)
    inline_at = staticmethod(inline_at)
    warp_specialize = staticmethod(warp_specialize)

    def inline_most(self, selected_tensors: Sequence[Any] = ()) -> None:
        """See schedule.inline_most()."""
        selected = [self._view(tensor) for tensor in selected_tensors]
        propagate.inline_most(self._scheduled, selected)

    # looking

    def tensors(self) -> list[TensorView]:
        """The tensors of the definition and the added ones, operands before their users."""
        return list(self._scheduled.views)

    def is_reduction(self, arg: Any) -> bool:
        """True if an axis of the tensor is reduced."""
        return self._view(arg).has_reduction()

    def to_string(self, arg: Any) -> str:
        """The tensor with its loop axes, as nvFuser prints it."""
        return str(self._view(arg))

    def user_schedule_ir(self) -> str:
        """The definition under the schedule: each tensor with its op and its transforms."""
        return str(self._scheduled)

    def report(self, inputs: Sequence[Any]) -> str:
        """The plans that follow the schedule for `inputs`, field by field with the binding that it
        comes from, and the primitives that are not taken over.
        """
        from fuser.nvfuser.schedule.run import Target, prepare

        return str(prepare(Target(self._fusion()), self._scheduled, inputs))

    # schedulers

    def _run(self, given: Sequence[Any], method: str) -> tuple[_Run, list[Any]]:
        """The run that a scheduler is asked about, and the arguments without Fusion and inputs."""
        rest = list(given)
        fusion = rest.pop(0) if rest and isinstance(rest[0], Fusion) else self._fusion()
        inputs = rest.pop() if rest and isinstance(rest[-1], list | tuple) else None
        inputs = self._scheduled.inputs if inputs is None else inputs
        if inputs is None:
            raise UserError(
                f"fd.sched.{method}(): expected the inputs of a run\n"
                f"  hint: call it in schedule() of a subclass, or {method}(fd.fusion, ..., inputs)",
                rule="by-hand-inputs",
            )
        return _Run(fusion, inputs), rest

    def can_schedule(self, *arguments: Any) -> tuple[bool, str]:
        """can_schedule(scheduler_type), or the arguments of schedule.can_schedule(). Raises
        UserError `by-hand-inputs` outside of a run.
        """
        run, rest = self._run(arguments, "can_schedule")
        return _can_schedule(run, rest[0] if rest else None)

    def find_compatible_schedulers(self, *arguments: Any) -> list[Any]:
        """The schedulers that take the definition. Raises UserError `by-hand-inputs`."""
        run, _ = self._run(arguments, "find_compatible_schedulers")
        return [SchedulerType[name] for name in run.accepted]

    def compute_heuristics(self, *arguments: Any) -> Any:
        """compute_heuristics(scheduler_type), or the arguments of schedule.compute_heuristics().
        Raises UserError `by-hand-inputs`, `by-hand-scheduler`.
        """
        run, rest = self._run(arguments, "compute_heuristics")
        return _parameters(run, rest[0] if rest else None, "compute_heuristics")

    def _compute(self, kind: str, names: Sequence[str]) -> Any:
        """The parameters of the first of the schedulers that takes the definition. schedule() uses
        them with the changes that follow.
        """
        method = f"compute_{kind}_heuristics"
        run, _ = self._run((), method)
        name = next((name for name in names if name in run.accepted), names[0])
        self._scheduled.params = _parameters(run, SchedulerType[name], method)
        return self._scheduled.params

    def compute_pointwise_heuristics(self) -> Any:
        """Parameters that schedule() will use. Raises UserError as compute_heuristics()."""
        return self._compute("pointwise", ("pointwise", "transpose"))

    def compute_reduction_heuristics(self) -> Any:
        """Parameters that schedule() will use. Raises UserError as compute_heuristics()."""
        persistent = ("inner_persistent", "outer_persistent", "inner_outer_persistent")
        return self._compute("reduction", ("reduction", *persistent))

    def compute_matmul_heuristics(self) -> Any:
        """Raises UserError `by-hand-scheduler`: torch multiplies matrices."""
        return self._compute("matmul", ("matmul",))

    def schedule_hyperparameters(self) -> SchedulerHyperParameters:
        """Limits for the parameters that schedule() chooses."""
        return self._scheduled.limits

    def schedule(self, *arguments: Any) -> Any:
        """schedule() with the computed parameters, schedule(scheduler_type), or the arguments of
        schedule.schedule(). Raises UserError `by-hand-twice` for a second call, `by-hand-inputs`
        outside of a run, `by-hand-scheduler` for a scheduler that does not take the definition.
        """
        if len(arguments) == 3:
            return schedule(*arguments)
        if not arguments and self._scheduled.params is not None:
            params = self._scheduled.params
            _note(self._scheduled, params.scheduler_type.name)
            return params
        run, rest = self._run(arguments, "schedule")
        wanted = rest[0] if rest else (SchedulerType[run.accepted[0]] if run.accepted else None)
        params = _parameters(run, wanted, "schedule")
        _note(self._scheduled, scheduler_named(wanted, "schedule"))
        return params
