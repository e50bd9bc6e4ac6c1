"""nvFuser's schedulers in terms of fuser's: which one takes a definition, with which parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.errors import UserError
from fuser.nvfuser.schedule.graph import ScheduledFusion
from fuser.nvfuser.schedule.params import (
    HeuristicParams,
    LaunchParams,
    MatmulParams,
    PointwiseParams,
    ReductionParams,
)
from fuser.nvfuser.schedule.types import SchedulerType
from fuser.plan import Plan

# Schedulers of nvFuser by priority, for each scheduler of fuser; `_` stands for reductions, whose
# scheduler also depends on the definition.
_POINTWISE = {
    "pointwise": ("pointwise",),
    "broadcast": ("pointwise",),
    "rows": ("pointwise",),
    "transpose": ("transpose", "pointwise"),
    "cpu_pointwise": ("pointwise",),
}
_PERSISTENT = {
    f"{target}{name}": f"{name}_persistent"
    for target in ("", "cpu_")
    for name in ("inner", "outer", "inner_outer")
}
_REDUCTIONS = ("reduction", *_PERSISTENT.values())


def is_normalization(fusion: ScheduledFusion) -> bool:
    """True if a reduced tensor is broadcast again, so that its row is read twice."""
    reduced = set()
    for view in fusion.views:
        operands = [edge.producer for edge in view.operands]
        if view.has_reduction() or any(operand in reduced for operand in operands):
            reduced.add(view)
            if view.op == "broadcast":
                return True
    return False


def compatible(fusion: ScheduledFusion, plans: Sequence[Plan], steps: Sequence[Any]) -> list[str]:
    """Names of nvFuser's schedulers that take the definition as one kernel, by priority. `plans`
    and `steps` are those of the run.
    """
    kinds = [kind for kind, *_ in steps]
    if "library" in kinds:
        return ["expr_eval"] if len(kinds) == 1 else []
    if not plans:
        return ["no_op"]
    if len(plans) > 1:
        return []
    scheduler = plans[0].scheduler
    if scheduler in _POINTWISE:
        return list(_POINTWISE[scheduler])
    if scheduler not in _PERSISTENT:
        return []
    persistent = scheduler.endswith("inner_outer") or is_normalization(fusion)
    return [_PERSISTENT[scheduler] if persistent else "reduction"]


def rejection(name: str, accepted: Sequence[str], plans: Sequence[Plan]) -> str:
    """Reason for which a scheduler of nvFuser does not take the definition; empty if it does."""
    if name in accepted:
        return ""
    if len(plans) != 1:
        return f"the definition runs as {len(plans)} kernels; {name} schedules one"
    return f"{name} does not take this definition; expected {', '.join(accepted) or 'none'}"


def scheduler_named(scheduler_type: Any, method: str) -> str:
    """The name of a SchedulerType. Raises UserError `by-hand-scheduler` for another value."""
    if not isinstance(scheduler_type, SchedulerType):
        raise UserError(
            f"{method}(): scheduler_type: expected a SchedulerType, got {scheduler_type!r:.80}",
            rule="by-hand-scheduler",
        )
    return scheduler_type.name


def params_of(name: str, plan: Plan) -> HeuristicParams | MatmulParams:
    """The parameters of a scheduler of nvFuser that stand for a plan."""
    if name == "matmul":
        return MatmulParams()
    # The lanes of a CPU kernel are vectors of one thread.
    vector = int(plan.get("lanes", plan.get("vector", plan.get("vector_x", 1))))
    unroll = int(plan.get("unroll", max(1, plan.get("block_rows", 1))))
    threads = {
        f"bdim{dim}": int(plan[key]) for dim in "xyz" if (key := f"threads_{dim}") in plan
    } or {"bdimx": int(plan.get("threads", 1))}
    launch = LaunchParams(**threads)
    if name not in _REDUCTIONS:
        found = PointwiseParams(vectorization_factor=vector, unroll_factor_inner=unroll)
        found.lparams, found.scheduler_type = launch, SchedulerType[name]
        return found
    inner = plan.scheduler not in ("outer", "cpu_outer")
    return ReductionParams(
        lparams=launch,
        scheduler_type=SchedulerType[name],
        fastest_dim=inner,
        persistent_kernel=plan.get("persistent_in", 1) in (1, 2),
        shared_mem_persistent_buffer=plan.get("persistent_in") == 2,
        vectorize_inner_reduction=inner and vector > 1,
        vectorize_iter_dom=not inner and vector > 1,
        unroll_factor_inner_reduction=vector if inner else unroll,
        unroll_factor_iter_dom=1 if inner else vector,
        unroll_factor_top_of_vectorization=unroll if inner else 1,
        multiple_reds_per_blk=int(plan.get("threads_y", 1)) > 1,
    )
