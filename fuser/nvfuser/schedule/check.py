"""Rules that a hand-written schedule of one kernel meets at a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuser.errors import UserError
from fuser.nvfuser.schedule.translate import Sizes
from fuser.nvfuser.schedule.types import ParallelType
from fuser.nvfuser.schedule.views import View

# Limits of CUDA: threads of a block, bytes of a vector access.
_MOST_THREADS = 1024
_MOST_BYTES = 16


def check_kernel(views: Sequence[View], sizes: Sizes) -> None:
    """Raises UserError `by-hand-threads` if the tensors of a kernel bind more than 1024 threads,
    and the errors of check_vectors().
    """
    most: dict[str, tuple[int, View]] = {}
    for view in views:
        for axis in () if view.is_input else view.loop:
            name = axis.parallel.name
            extent = sizes(axis.extent())
            largest = most.get(name, (0, view))[0]
            if name.startswith("block_") and extent is not None and extent > largest:
                most[name] = (extent, view)
    total = math.prod(extent for extent, _ in most.values())
    if total > _MOST_THREADS:
        shown = ", ".join(f"{name} {extent} by {view}" for name, (extent, view) in most.items())
        raise UserError(
            f"schedule: expected at most {_MOST_THREADS} threads in a block, got {total}: {shown}\n"
            "  hint: split the axis and bind the inner one",
            rule="by-hand-threads",
        )
    for view in views:
        check_vectors(view)


def check_vectors(view: View) -> None:
    """Raises UserError `by-hand-vectorize` unless a vectorized axis is the innermost loop of a copy
    and moves 1 to 16 bytes, a power of two.
    """
    for place, axis in enumerate(view.loop):
        if axis.parallel is not ParallelType.vectorize:
            continue
        extent = axis.extent().value
        moved = (extent or 0) * view.dtype().bytes
        if view.op != "set" and not view.is_input:
            expected = f"a copy, got {view.definition()}"
            hint = "cache_after() of an input and cache_before() of an output make copies"
        elif place != len(view.loop) - 1:
            expected, hint = "the innermost axis", "reorder() moves it to the end"
        elif extent is None or moved > _MOST_BYTES or extent & (extent - 1):
            expected = f"a power of two of at most {_MOST_BYTES} bytes, got {axis.extent()}"
            expected += f" elements of {view.dtype().bytes} bytes"
            hint = "split() by the length of a vector"
        else:
            continue
        raise UserError(
            f"{view.name}: vectorized axis {axis} of {view}: expected {expected}\n  hint: {hint}",
            rule="by-hand-vectorize",
        )
