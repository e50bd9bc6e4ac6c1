"""The option autotune: the plans of a region are timed on the arguments of its first run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import torch

from fuser import (
    CompileError,
    FusionDefinition,
    FusionExecutorCache,
    LaunchError,
    Unsupported,
    UserError,
)
from fuser.autotune import autotune

# Failures of a candidate, which say nothing of the planned kernels: these run then.
_FAILURES = (Unsupported, UserError, CompileError, LaunchError, torch.OutOfMemoryError)

# Signatures and sizes that have been timed, by executor: equal layers share one.
_TIMED: WeakKeyDictionary[FusionExecutorCache, set[tuple[Any, ...]]] = WeakKeyDictionary()


def tuned(
    fd: FusionDefinition, run: Callable[..., Any], inputs_of: Callable[..., Sequence[Any]]
) -> Callable[..., Any]:
    """`run`, whose first call times the plans of `fd` before, on the inputs that `inputs_of` finds
    in its arguments.
    """
    waiting = fd.fec.executor.is_awaited = True

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal waiting
        if waiting:
            waiting = False  # other threads run meanwhile, by the plans that there are
            waiting = not _time(fd, inputs_of(*arguments))
            fd.fec.executor.is_awaited = waiting
        return run(*arguments, **named)

    return call


def _time(fd: FusionDefinition, inputs: Sequence[Any]) -> bool:
    """Times the plans; false where this run is no time for it."""
    if not is_worth_timing(inputs):
        return True
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return False  # events cannot be waited for in a capture
    timed = _TIMED.setdefault(fd.fec, set())
    key = fd.signature(inputs), *(tuple(getattr(t, "shape", ())) for t in inputs)
    if key not in timed:
        timed.add(key)
        with suppress(*_FAILURES):
            autotune(fd, inputs)
    return True


def is_worth_timing(inputs: Sequence[Any]) -> bool:
    """On the GPU. A candidate for the host executor costs a run of the C++ compiler, and the plan
    changes little there.
    """
    return any(isinstance(t, torch.Tensor) and t.is_cuda for t in inputs)
