"""The option autotune: times the plans of a region on the arguments of its first run."""

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

# Errors of candidates. They do not affect the planned kernels, which then run.
_FAILURES = (Unsupported, UserError, CompileError, LaunchError, torch.OutOfMemoryError)

# Timed (signature, sizes) by executor; equal layers share an executor.
_TIMED: WeakKeyDictionary[FusionExecutorCache, set[tuple[Any, ...]]] = WeakKeyDictionary()


def tuned(
    fd: FusionDefinition, run: Callable[..., Any], inputs_of: Callable[..., Sequence[Any]]
) -> Callable[..., Any]:
    """Wraps `run` so that its first call times the plans of `fd`, on the inputs that `inputs_of`
    extracts from the arguments.
    """
    waiting = fd.fec.executor.is_awaited = True

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal waiting
        if waiting:
            waiting = False  # other threads meanwhile run the current plans
            waiting = not _time(fd, inputs_of(*arguments))
            fd.fec.executor.is_awaited = waiting
        return run(*arguments, **named)

    return call


def _time(fd: FusionDefinition, inputs: Sequence[Any]) -> bool:
    """Times the plans; returns False if this run is unsuitable."""
    if not is_worth_timing(inputs):
        return True
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return False  # a capture cannot wait for events
    timed = _TIMED.setdefault(fd.fec, set())
    key = fd.signature(inputs), *(tuple(getattr(t, "shape", ())) for t in inputs)
    if key not in timed:
        timed.add(key)
        with suppress(*_FAILURES):
            autotune(fd, inputs)
    return True


def is_worth_timing(inputs: Sequence[Any]) -> bool:
    """True for GPU tensors. On the host executor, each candidate costs a run of the C++ compiler
    and changes little.
    """
    return any(isinstance(t, torch.Tensor) and t.is_cuda for t in inputs)
