"""memory_efficient_fusion and compile: functions and modules, forward and backward."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._functorch.aot_autograd import aot_module_simplified

from fuser import UserError
from fuser._native import load_torch
from fuser.adapters.direct import PLAIN, direct
from fuser.adapters.dynamo import Options, autograd, backend, compilers, has_tangents

# Traces of one function; calls that none of them is for are Dynamo's, which finds dynamic sizes.
_MOST_TRACES = 8

# Arguments of functorch's that say what Dynamo finds by itself.
_FOUND = ("dynamic", "enable_log", "num_params_buffers", "static_argnums")
# And those that AOTAutograd takes.
_REPLACED = tuple(inspect.signature(aot_module_simplified).parameters)[2:]


def memory_efficient_fusion(fn: Callable[..., Any] | torch.nn.Module, **kwargs: Any) -> Any:
    """`fn`, a function or a module, compiled with its gradients; values that are cheap to compute
    again are not kept for the backward pass. As functorch.compile.memory_efficient_fusion, with
    this compiler.

    A function of tensors is traced once for each layout of its arguments and runs without guards:
    values that it reads from elsewhere are those of the trace, as in functorch. All else, modules,
    other arguments, captured and mutated tensors, is torch.compile(fn, backend="fuser"), which
    watches what it depends on. dynamic=True traces with symbolic sizes; static_argnums need not be
    named. Other keyword arguments replace what AOTAutograd is given: compilers, partition_fn,
    decompositions.

    Gradients have no gradients of their own: asking for these raises RuntimeError. Raises UserError
    `fusion-function` where fn cannot be called, `fusion-argument` for a keyword that is none.
    """
    if not callable(fn):
        raise UserError(
            f"memory_efficient_fusion: expected a function or a module, got {fn!r}",
            rule="fusion-function",
        )
    for name in kwargs:
        if name not in _FOUND and name not in _REPLACED:
            raise UserError(
                f"memory_efficient_fusion: no argument {name!r}; expected one of "
                f"{', '.join(sorted({*_FOUND, *_REPLACED}))}",
                rule="fusion-argument",
            )
    given = {name: value for name, value in kwargs.items() if name not in _FOUND}
    if "fw_compiler" in given:
        given.setdefault("inference_compiler", given["fw_compiler"])
    how = autograd(**given) if given else backend
    watched = torch.compile(fn, backend=how, dynamic=kwargs.get("dynamic"))
    if kwargs or isinstance(fn, torch.nn.Module):
        return watched
    ours = compilers(Options())
    traces: dict[Hashable, Callable[..., Any]] = {}
    known: Any = load_torch().DirectTraces()  # the same, where no more is asked than layouts
    call = known.call

    def trace(key: Hashable, args: Sequence[Any]) -> Callable[..., Any]:
        with compile_lock:
            if key not in traces:
                made = direct(fn, args, ours["fw_compiler"], ours["bw_compiler"])
                traces[key] = made or watched
                if made is not None:
                    known.add(tuple(args), made)
            return traces[key]

    @wraps(fn)
    def traced(*args: Any, **named: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return fn(*args, **named)
        if not named and (result := call(*args)) is not NotImplemented:
            return result
        if _is_transformed():
            return fn(*args, **named)
        key = None if named else _layouts(args)
        run = traces.get(key)
        if run is None:
            full = key is None or len(traces) >= _MOST_TRACES
            run = watched if full else trace(key, args)
        return run(*args, **named)

    return traced


def _is_transformed() -> bool:
    """Does a transformation of functorch, forward AD or a tracer see the ops that run?"""
    transforms: Any = torch._C._functorch.peek_interpreter_stack()
    tracers = torch._C._len_torch_dispatch_stack() > 0 or torch._C._is_tracing()
    return transforms is not None or tracers or has_tangents()


def _layouts(args: Sequence[Any]) -> Hashable | None:
    """What a trace on these arguments depends on; None where no trace is made of them."""
    if not torch.is_grad_enabled():
        return None
    key: list[Hashable] = []
    for t in args:
        if type(t) not in PLAIN or t.layout is not torch.strided:
            return None
        key += (t.shape, t.stride(), t.dtype, t.device, t.requires_grad)
    if torch._C._is_any_autocast_enabled():
        devices = {t.device.type for t in args}
        key += ((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices)
    return tuple(key)


def compile(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """torch.compile(fn, backend="fuser", **kwargs): as a function or a decorator."""
    if fn is None:
        return lambda f: compile(f, **kwargs)
    return torch.compile(fn, backend=backend, **kwargs)
