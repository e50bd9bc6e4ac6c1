"""memory_efficient_fusion and compile: functions of tensors, forward and backward, without Dynamo's
guards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from functorch.compile import aot_function, aot_module

from fuser.adapters import aten
from fuser.adapters.direct import direct
from fuser.adapters.dynamo import Options, compilers, cut


def memory_efficient_fusion(fn: Callable[..., Any] | torch.nn.Module, **kwargs: Any) -> Any:
    """`fn`, a function of tensors or a module, traced at its first call and compiled, with its
    gradients; values that are cheap to compute again are not kept for the backward pass. As
    functorch.compile.memory_efficient_fusion, with this compiler.

    Keyword arguments go to functorch.compile.aot_function (aot_module): dynamic=True traces with
    symbolic sizes. As there, the first trace is used for all calls, whatever else changes.
    """
    ours = compilers(Options())
    config: dict[str, Any] = {
        **ours,
        "partition_fn": cut,
        "decompositions": aten.decompositions(),
    }
    config.update(kwargs)
    if isinstance(fn, torch.nn.Module):
        return aot_module(fn, **config)
    if kwargs:
        return aot_function(fn, **config)
    run: Callable[..., Any] | None = None

    @wraps(fn)
    def traced(*args: Any, **named: Any) -> Any:
        nonlocal run
        if run is None:
            plain = None if named else direct(fn, args, ours["fw_compiler"], ours["bw_compiler"])
            run = plain or aot_function(fn, **config)
        return run(*args, **named)

    return traced


def compile(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """torch.compile(fn, backend="fuser", **kwargs): as a function or a decorator."""
    if fn is None:
        return lambda f: compile(f, **kwargs)
    return torch.compile(fn, backend=_backend(), **kwargs)


def _backend() -> Callable[..., Any]:
    from fuser.adapters.dynamo import backend

    return backend
