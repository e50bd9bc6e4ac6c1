"""memory_efficient_fusion and compile: functions and modules, forward and backward."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import fx

from fuser import UserError
from fuser._native import load_torch
from fuser.adapters.autograd.autograd_function import direct
from fuser.adapters.compile_graph import Options
from fuser.adapters.dynamo import (
    autograd,
    backend,
    compilers,
    cut_as_eager,
    has_tangents,
    memory_efficient_backend,
    options_of,
)
from fuser.adapters.torch_compat import aot_function, compile_lock

# Maximum traces per function. Further layouts go to Dynamo, which detects dynamic sizes.
_MOST_TRACES = 8

# Arguments of functorch that Dynamo determines itself
_FOUND = ("dynamic", "enable_log", "num_params_buffers", "static_argnums")
# Arguments of the backend
_OURS = ("mode", "options")
# Arguments of AOTAutograd
_REPLACED = tuple(
    name
    for name in inspect.signature(aot_function).parameters
    if name != "fn" and name not in _FOUND and not name.startswith("_")
)


def memory_efficient_fusion(fn: Callable[..., Any] | torch.nn.Module, **kwargs: Any) -> Any:
    """Compiles `fn`, a function or a module, with its gradients; values that are cheap to
    rematerialize are not saved for the backward pass. As functorch.compile.memory_efficient_fusion,
    with this compiler.

    A function of tensors is traced once per layout of its arguments and runs without guards:
    captured values are constants of the trace, as in functorch. Modules, other arguments, captured
    and mutated tensors use torch.compile(fn, backend="fuser"), which guards its assumptions.
    dynamic=True traces with symbolic sizes; static_argnums is not needed. fw_compiler, bw_compiler,
    partition_fn, decompositions and the other arguments of functorch's aot_function replace the
    arguments of AOTAutograd. mode and options belong to the backend, e.g. "reduce-overhead" and
    {"cudagraphs": True}; options override the mode.

    Inputs and results may change in place before the backward pass wherever eager mode allows it.

    Gradients of gradients raise RuntimeError. Raises UserError `fusion-function` if fn is not
    callable, `fusion-argument` for an unknown keyword.
    """
    _check_callable("memory_efficient_fusion", fn)
    for name in kwargs:
        if name not in (*_FOUND, *_REPLACED, *_OURS):
            raise UserError(
                f"memory_efficient_fusion: no argument {name!r}; expected one of "
                f"{', '.join(sorted({*_FOUND, *_REPLACED, *_OURS}))}",
                rule="fusion-argument",
            )
    options = options_of(kwargs.get("options"), kwargs.get("mode"), "memory_efficient_fusion")
    watched = torch.compile(fn, dynamic=kwargs.get("dynamic"), **_compiler(kwargs, options))
    if kwargs or isinstance(fn, torch.nn.Module):
        return watched
    return _traced(fn, watched, compilers(options))


def _compiler(kwargs: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """The compiler arguments of torch.compile: the backend, or AOTAutograd with replaced
    arguments.
    """
    given = {name: value for name, value in kwargs.items() if name in _REPLACED}
    if not given:
        return {"backend": memory_efficient_backend, "options": asdict(options)}
    if "fw_compiler" in given:
        given.setdefault("inference_compiler", given["fw_compiler"])
    for name in given:
        if name.endswith("compiler") and given[name] is not None:
            given[name] = _of_modules(given[name])
    given.setdefault("partition_fn", cut_as_eager)
    compiler = autograd(options, **given)
    compiler.__name__ = "memory_efficient_fusion"  # used in messages
    return {"backend": compiler}


def _traced(
    fn: Callable[..., Any], watched: Callable[..., Any], ours: Mapping[str, Any]
) -> Callable[..., Any]:
    """Runs `fn` by traces, one per layout of its arguments; falls back to `watched` if it cannot be
    traced.
    """
    traces: Any = load_torch().DirectTraces()
    call = traces.call

    def trace(args: Sequence[Any]) -> None:
        with compile_lock:
            if traces.lacks(args):
                traces.add(args, direct(fn, args, ours["fw_compiler"], ours["bw_compiler"]))

    @functools.wraps(fn)
    def traced(*args: Any, **named: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return fn(*args, **named)
        if not named:
            if (result := call(*args)) is not NotImplemented:
                return result
            if len(traces) < _MOST_TRACES and traces.lacks(args) and not has_tangents():
                trace(args)
                if (result := call(*args)) is not NotImplemented:
                    return result
        if load_torch().is_transformed() or has_tangents():
            return fn(*args, **named)
        return watched(*args, **named)

    return traced


def _of_modules(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Passes modules to a compiler in functorch's form: torch.jit.script, called by ts_compile,
    rejects Dynamo's modules, which generate their code lazily.
    """

    @functools.wraps(compiler)
    def compile_one(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return compiler(fx.GraphModule(module, module.graph), inputs)

    return compile_one


def _check_callable(name: str, fn: Any) -> None:
    if not callable(fn):
        raise UserError(
            f"{name}: expected a function or a module, got {fn!r}", rule="fusion-function"
        )


def compile(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """torch.compile(fn, backend="fuser", **kwargs), as a function or a decorator. Raises UserError
    `fusion-function` if fn is not callable.
    """
    if fn is None:
        return lambda f: compile(f, **kwargs)
    _check_callable("compile", fn)
    return torch.compile(fn, backend=backend, **kwargs)
