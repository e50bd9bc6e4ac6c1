"""torch.compile(model, backend="fuser").

Dynamo and AOTAutograd produce forward and backward graphs of torch ops, without mutation except
final copies into inputs. Each graph is partitioned into regions. Regions become definitions; other
nodes are left to torch. Compilation only sees FakeTensors and adds no guards. All kernels of a
graph are compiled at once, for the traced sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.source import GlobalStateSource
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.utils.checkpoint import CheckpointPolicy

from fuser import UserError
from fuser.adapters import aten
from fuser.adapters.attention import drop_constant_masks
from fuser.adapters.dense_views import replace_dense_strided_views
from fuser.adapters.donation import take_memory
from fuser.adapters.eager_strides import correct_strides
from fuser.adapters.effects import draws
from fuser.adapters.empty_parts import drop_empty_parts
from fuser.adapters.facts import Facts, facts_now, strides_now
from fuser.adapters.layouts import (
    lay_out_for_readers,
    write_slices_apart,
    write_without_gaps,
)
from fuser.adapters.mutation import final_writes
from fuser.adapters.nodes import is_view, kind_of, tensor_of
from fuser.adapters.one_hot import sum_one_place
from fuser.adapters.padding import pad_products, take_strides
from fuser.adapters.partition import Partition, partition
from fuser.adapters.phases import Cut, keeping_what_eager_keeps, mutation_aware
from fuser.adapters.program import program, strict_from_environment
from fuser.adapters.region import build_together
from fuser.adapters.report import note_graph
from fuser.adapters.sizes import settle_sizes
from fuser.adapters.unwrapped import note_half, unwrapping
from fuser.adapters.upsampling import repeat_by_views
from fuser.adapters.views import drop_views, memory_of, owner_of

# Compilers of AOTAutograd, by the prefix of the argument name.
COMPILERS = {"fw": "forward", "bw": "backward", "inference": "inference"}


@dataclass(frozen=True)
class Options:
    """Options of torch.compile(..., options={...}).

    min_nodes   minimum ops of a region, unless one is a reduction
    cudagraphs  record each graph in its third run and replay it as a CUDA graph; not if it writes
                to an input other than a parameter, buffer or optimizer state, and not on the CPU
    autotune    the first run of each region on a GPU times some plans of its kernels on its own
                arguments, as fuser.autotune does, and stores the fastest, on disk too; the CPU
                runs the default plans
    """

    min_nodes: int = 2
    cudagraphs: bool = False
    autotune: bool = False


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


def compile_graph(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    name: str = "graph",
    options: Options,
    facts: Facts | None = None,
    loaded: bool = False,
) -> Callable[[list[Any]], Any]:
    """Compiles a graph of nodes with FakeTensors to a boxed function; called by AOTAutograd. facts:
    metadata, if known. loaded: True if the graph comes from the AOT cache.
    """
    facts = facts_now(name) if facts is None else facts
    report = note_graph(name)
    with report.timed("regions"):
        parts = _regions(module.graph, inputs, name, options, facts)
        if not loaded and facts.kept is not None and (strides := strides_now()) is not None:
            strides += result_strides(module.graph, facts)
    if name == "forward":
        report.kept = _kept_bytes(module.graph, facts)
    report.note_parts(parts.regions, parts.left)
    with report.timed("definitions"):
        call, definitions = program(module, parts, strict_from_environment(), options.autotune)
    with report.timed("kernels"):
        build_together(definitions)
    if options.cudagraphs:
        from fuser.adapters.cudagraphs import captured  # imports half of Inductor

        return captured(call, module, name, facts)
    note_half(name, module.graph, call, facts, loaded)
    return call


def _regions(
    graph: fx.Graph, inputs: Sequence[Any], name: str, options: Options, facts: Facts
) -> Partition:
    """Partitions the graph into regions, and rewrites views, slices and layouts for them."""
    donated = _donated(graph, facts)
    settle_sizes(graph)
    if name == "inference":
        repeat_by_views(graph)
    take_strides(graph, inputs)
    correct_strides(graph)
    drop_empty_parts(graph)
    replace_dense_strided_views(graph)
    places = _kept_for_backward(graph, facts)
    drop_views(graph, places)
    parts = partition(graph, options.min_nodes, final_writes(graph))
    write_slices_apart(graph, parts.regions)
    results = _results(graph)
    kept = {results[i] for i in places} - {results[i] for i in range(places.start)}
    write_without_gaps(graph, parts.regions, kept)
    makers = {n for nodes in parts.regions for n in nodes}
    lay_out_for_readers(graph, makers, kept)
    parts.regions += [[copy] for copy in pad_products(graph, makers, kept)]
    if not options.cudagraphs:  # replay needs the recorded arguments unchanged
        take_memory(graph, parts.regions, donated)
    return parts


def _donated(graph: fx.Graph, facts: Facts) -> set[fx.Node]:
    """Saved activations that are dead after the backward graph (donated buffers)."""
    nodes = [n for n in graph.nodes if n.op == "placeholder"]
    sharing = Counter(memory for n in nodes for memory in memory_of(n))
    given = ((nodes[i], memory_of(nodes[i])) for i in facts.donated)
    return {n for n, memory in given if memory and all(sharing[m] == 1 for m in memory)}


def _kept_for_backward(graph: fx.Graph, facts: Facts) -> range:
    """Indices of results that only the backward graph reads."""
    count = len(_results(graph))
    return range(count if facts.kept is None else facts.kept, count)


def _kept_bytes(graph: fx.Graph, facts: Facts) -> int:
    """Bytes of saved activations, without arguments of the graph."""
    results, places = _results(graph), _kept_for_backward(graph, facts)
    seen = {owner_of(n) for n in results[: places.start] if isinstance(n, fx.Node)}
    kept = {owner_of(r) for i in places if isinstance(r := results[i], fx.Node)} - seen
    made = (n for n in kept if n.op == "call_function")
    sizes = [storage.nbytes() for n in made for storage in memory_of(n).values()]
    return sum(n for n in sizes if type(n) is int)


def result_strides(graph: fx.Graph, facts: Facts) -> list[tuple[int, ...] | None]:
    """Strides of the results of a compiled graph, in AOTAutograd's form."""
    return [_strides(n) for n in _results(graph)[facts.tokens :]]


def _results(graph: fx.Graph) -> list[Any]:
    return list(next(n for n in graph.nodes if n.op == "output").args[0])


def _strides(result: Any) -> tuple[int, ...] | None:
    """Strides of a tensor, if all are numbers."""
    value = tensor_of(result) if isinstance(result, fx.Node) else None
    if value is None or not all(type(n) is int for n in value.stride()):
        return None
    return tuple(value.stride())


def cut(joint: fx.GraphModule, inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Partitions a joint graph into a forward and a backward graph; a partition_fn of AOTAutograd.
    Values that are cheap to rematerialize are not saved.
    """
    repeat_by_views(joint.graph)
    sum_one_place(joint.graph)
    _keep_what_is_widened(joint.graph)
    _reduce_again_what_is_compared(joint.graph)
    for number, node in enumerate(filter(draws, joint.graph.nodes)):
        node.kwargs = {**node.kwargs, _DRAW: number}
    joint.recompile()
    forward, backward = min_cut_rematerialization_partition(joint, inputs, **kwargs)
    for half in (forward, backward):
        # a node that repeats a generator state has the attribute of the original op
        for node in half.graph.nodes:
            node.kwargs = {k: v for k, v in node.kwargs.items() if k != _DRAW}
        half.recompile()
    return forward, backward


# Attribute that distinguishes equal random ops, because torch's partitioner merges two randn_like.
_DRAW = "_fuser_draw"


# The partition_fn of memory_efficient_fusion.
cut_as_eager = keeping_what_eager_keeps(cut)


def _keep_what_is_widened(graph: fx.Graph) -> None:
    """Prefers to save a half-precision value instead of its float32 copy. Torch's partitioner would
    save the copy if an op that it does not fuse, e.g. a norm, reads it.
    """
    of_backward: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            starts = str(node.target).startswith("tangents")
        else:
            starts = not of_backward.isdisjoint(node.all_input_nodes)
        if starts:
            of_backward.add(node)
    for node in graph.nodes:
        if node in of_backward or of_backward.isdisjoint(node.users) or not _widens(node):
            continue
        node.meta.setdefault("recompute", CheckpointPolicy.PREFER_RECOMPUTE)


def _reduce_again_what_is_compared(graph: fx.Graph) -> None:
    """Rematerializes a maximum that is compared with its operand, e.g. in the gradient of amax, so
    that one kernel computes both for the backward graph. A saved maximum has been rounded and might
    differ from all rematerialized values; the gradient would then be lost.
    """
    for node in graph.nodes:
        if node.target not in _EQUALITIES:
            continue
        sources = [_behind_views(n) for n in node.all_input_nodes]
        reduced = [n for n in sources if aten.reduces(str(n.target))]
        if any(kind_of(n) == "compute" for n in set(sources).difference(reduced)):
            for n in reduced:
                n.meta.setdefault("recompute", CheckpointPolicy.PREFER_RECOMPUTE)


_EQUALITIES = {torch.ops.aten.eq.Tensor, torch.ops.aten.ne.Tensor}


def _behind_views(node: fx.Node) -> fx.Node:
    while is_view(node):
        node = node.all_input_nodes[0]
    return node


def _widens(node: fx.Node) -> bool:
    if node.target is not torch.ops.aten._to_copy.default:
        return False
    source = node.args[0]
    assert isinstance(source, fx.Node)
    before, after = tensor_of(source), tensor_of(node)
    if before is None or not before.is_floating_point() or before.device != after.device:
        return False
    return bool(before.dtype.itemsize == 2 and after.dtype == torch.float32)


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
    """Returns the module fuser.adapters.saved if torch supports it and would cache the graph."""
    try:
        from fuser.adapters import saved
    except ImportError:
        return None
    return saved if saved.is_on() and saved.is_known(module, inputs) else None


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
    drop_constant_masks(module)
    saved = _saved(module, inputs)
    with unwrapping(inputs) as made:
        if saved is None:
            compiled: Callable[..., Any] = autograd(chosen, partition_fn=partition_fn)(
                module, inputs
            )
        else:
            with saved.saving(chosen, partition_fn) as ours:
                compiled = autograd(chosen, partition_fn=partition_fn, **ours)(module, inputs)
    return made.function(compiled)


def has_tangents() -> bool:
    """True if tensors may carry tangents of torch.autograd.forward_ad. Kernels would drop them, so
    torch's ops run instead.
    """
    return torch.autograd.forward_ad._current_level >= 0


def _guard_forward_ad() -> None:
    """Makes Dynamo recompile if has_tangents() changes."""
    if (context := TracingContext.try_get()) is not None:
        guard = GlobalStateSource().make_guard(GuardBuilder.DUAL_LEVEL)
        context.guards_context.dynamo_guards.add(guard)
