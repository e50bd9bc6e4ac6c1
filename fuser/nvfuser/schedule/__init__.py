"""Schedules written by hand, as in nvFuser: this package is its module `schedule`.

A schedule is data: the tensors of a definition with their domains (`graph`, `views`), changed by
primitives. `run` translates it to changes of the plan of each kernel; values stay as they are.
"""

from fuser.nvfuser.schedule.operators import (
    bounded_transform_backward,
    can_schedule,
    compute_heuristics,
    find_compatible_schedulers,
    inline_at,
    inline_most,
    parallelize_like,
    schedule,
    transform_like,
    warp_specialize,
)

__all__ = [
    "bounded_transform_backward",
    "can_schedule",
    "compute_heuristics",
    "find_compatible_schedulers",
    "inline_at",
    "inline_most",
    "parallelize_like",
    "schedule",
    "transform_like",
    "warp_specialize",
]
