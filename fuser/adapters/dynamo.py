"""torch.compile(model, backend="fuser").

Dynamo and AOTAutograd produce forward and backward graphs of torch ops, without mutation except
final copies into inputs. Each graph is partitioned into regions. Regions become definitions; other
nodes are left to torch. Compilation only sees FakeTensors and adds no guards. All kernels of a
graph are compiled at once, for the traced sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from torch import fx

from fuser import UserError
from fuser.adapters import aten
from fuser.adapters.autograd.aot_bypass import unwrapping
from fuser.adapters.compile_graph import COMPILERS, Options, compile_graph
from fuser.adapters.graph.phases import Cut, keeping_what_eager_keeps, mutation_aware
from fuser.adapters.graph.pipeline import CUT_PASSES, JOINT_PASSES, PROGRAM_PASSES, run
from fuser.adapters.torch_compat import (
    GlobalStateSource,
    GuardBuilder,
    TracingContext,
    aot_autograd,
    forward_ad_level,
    min_cut_rematerialization_partition,
)

# Options of each torch.compile(..., mode=...).
MODES: dict[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"autotune": True, "cudagraphs": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}


def options_of(
    given: Mapping[str, Any] | None, mode: str | None = None, caller: str = "backend='fuser'"
) -> Options:
    """Returns the options of a mode, overridden by the given ones.

    Raises UserError `compile-mode` for an unknown mode, `compile-option` for an unknown option,
    `compile-option-type` for a value of another type, `compile-option-value` for an invalid value;
    messages name the `caller`.
    """
    if mode is not None and mode not in MODES:
        raise UserError(
            f"{caller}: no mode {mode!r}; expected one of {', '.join(MODES)}\n"
            '  hint: CUDA graphs alone are mode="reduce-overhead" or options={"cudagraphs": True}',
            rule="compile-mode",
        )
    names = [f.name for f in fields(Options)]
    for name in given or {}:
        if name not in names:
            raise UserError(
                f"{caller}: no option {name!r}; expected one of {', '.join(names)}",
                rule="compile-option",
            )
    for f in fields(Options):
        if type((given or {}).get(f.name, f.default)) is not type(f.default):
            raise UserError(
                f"{caller}: option {f.name}: expected {type(f.default).__name__}, got "
                f"{(given or {})[f.name]!r}",
                rule="compile-option-type",
            )
    options = Options(**{**MODES[mode or "default"], **(given or {})})
    if options.min_nodes < 1:
        raise UserError(
            f"{caller}: option min_nodes: expected 1 or more, got {options.min_nodes}",
            rule="compile-option-value",
        )
    return options


def cut(joint: fx.GraphModule, inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Partitions a joint graph into a forward and a backward graph; a partition_fn of AOTAutograd.
    Values that are cheap to rematerialize are not saved.
    """
    run(JOINT_PASSES, joint.graph)
    joint.recompile()
    forward, backward = min_cut_rematerialization_partition(joint, inputs, **kwargs)
    for half in (forward, backward):
        run(CUT_PASSES, half.graph)
        half.recompile()
    return forward, backward


# The partition_fn of memory_efficient_fusion.
cut_as_eager = keeping_what_eager_keeps(cut)


def compilers(options: Options) -> dict[str, Callable[..., Any]]:
    """The compiler arguments of AOTAutograd."""

    def compiler(name: str) -> Callable[..., Any]:
        def compile_one(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            return compile_graph(module, inputs, name=name, options=options)

        return compile_one

    return {f"{short}_compiler": compiler(name) for short, name in COMPILERS.items()}


def autograd(options: Options | None = None, **instead: Any) -> Callable[..., Any]:
    """A Dynamo backend from AOTAutograd with these compilers; `instead` overrides its arguments."""
    arguments: dict[str, Any] = {
        **compilers(options or Options()),
        "partition_fn": cut,
        "decompositions": aten.decompositions(),
        "keep_inference_input_mutations": True,
        **instead,
    }
    arguments["partition_fn"] = mutation_aware(arguments["partition_fn"])
    return aot_autograd(**arguments)


def _saved(module: fx.GraphModule, inputs: Sequence[Any]) -> Any | None:
    """Returns the module fuser.adapters.autograd.aot_cache if torch supports it and would cache the
    graph.
    """
    try:
        from fuser.adapters.autograd import aot_cache
    except ImportError:
        return None
    return aot_cache if aot_cache.is_on() and aot_cache.is_known(module, inputs) else None


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend that torch.compile finds under the name "fuser".

    mode is "default"; "reduce-overhead": CUDA graphs; "max-autotune": timed plans and CUDA graphs;
    or "max-autotune-no-cudagraphs": timed plans. Kernels are compiled with the graph. Plans are
    timed in the first run of each region, CUDA graphs are recorded in the third run of each graph;
    the CPU does neither. A timed plan may sum in another order, which only changes the last bits of
    reductions. `options` are the fields of Options; torch.compile takes either options or a mode.
    """
    return _compiled(module, inputs, options_of(options, mode), cut)


def memory_efficient_backend(
    module: fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """backend() as memory_efficient_fusion passes it to torch.compile."""
    chosen = options_of(options, caller="memory_efficient_fusion")
    return _compiled(module, inputs, chosen, cut_as_eager)


# Names that torch puts in front of error messages.
backend.__name__ = "fuser"
memory_efficient_backend.__name__ = "memory_efficient_fusion"


def _compiled(
    module: fx.GraphModule, inputs: Sequence[Any], chosen: Options, partition_fn: Cut
) -> Callable[..., Any]:
    _guard_forward_ad()
    if has_tangents():
        return module
    run(PROGRAM_PASSES, module)
    saved = _saved(module, inputs)
    with unwrapping(inputs) as made:
        if saved is None:
            compiled: Callable[..., Any] = autograd(chosen, partition_fn=partition_fn)(
                module, inputs
            )
        else:
            with saved.saving(chosen, partition_fn is cut_as_eager) as ours:
                compiled = autograd(chosen, partition_fn=partition_fn, **ours)(module, inputs)
    return made.function(compiled)


def has_tangents() -> bool:
    """True if tensors may carry tangents of torch.autograd.forward_ad. Kernels would drop them, so
    torch's ops run instead.
    """
    return forward_ad_level() >= 0


def _guard_forward_ad() -> None:
    """Makes Dynamo recompile if has_tangents() changes."""
    if (context := TracingContext.try_get()) is not None:
        guard = GlobalStateSource().make_guard(GuardBuilder.DUAL_LEVEL)
        context.guards_context.dynamo_guards.add(guard)
