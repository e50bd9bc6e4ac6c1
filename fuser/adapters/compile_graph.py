"""A graph of torch's ops, as AOTAutograd hands it over, compiled: views, slices and layouts
settled, cut into regions, these as definitions, and a function that runs the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from fuser.adapters.autograd.aot_bypass import note_half
from fuser.adapters.autograd.aot_metadata import Facts, facts_now, strides_now
from fuser.adapters.graph.freezing import refreshing
from fuser.adapters.graph.pipeline import GRAPH_PASSES, GraphState, kept_for_backward, run
from fuser.adapters.graph.views import memory_of, owner_of
from fuser.adapters.host_memory import keep_freed_memory
from fuser.adapters.nodes import results_of, tensor_of
from fuser.adapters.partition import Partition
from fuser.adapters.region import build_together
from fuser.adapters.report import note_graph
from fuser.adapters.wrapper_codegen import program, strict_from_environment

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
    freezing    an inference graph (without gradients) keeps values that depend on parameters alone:
                casts, layouts, folded norms. A call compares the parameters' addresses and versions
                and computes the values again after a change, except one through `.data`
    """

    min_nodes: int = 2
    cudagraphs: bool = False
    autotune: bool = False
    freezing: bool = False


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
    keep_freed_memory(module.graph.nodes)
    with report.timed("definitions"):
        call, definitions = program(module, parts, strict_from_environment(), options.autotune)
    with report.timed("kernels"):
        build_together(definitions)
    if options.cudagraphs:
        from fuser.adapters.autograd.cudagraphs import captured  # imports half of Inductor

        return refreshing(captured(call, module, name, facts), module.graph)
    note_half(name, module.graph, call, facts, loaded)
    return call


def _regions(
    graph: fx.Graph, inputs: Sequence[Any], name: str, options: Options, facts: Facts
) -> Partition:
    """Partitions the graph into regions, and rewrites views, slices and layouts for them."""
    # replay of a CUDA graph needs the recorded arguments unchanged
    may_donate = not options.cudagraphs
    freezing = options.freezing and name == "inference"
    state = GraphState(graph, inputs, name, facts, options.min_nodes, may_donate, freezing)
    run(GRAPH_PASSES, state)
    return state.parts


def _kept_bytes(graph: fx.Graph, facts: Facts) -> int:
    """Bytes of saved activations, without arguments of the graph."""
    results, places = results_of(graph), kept_for_backward(graph, facts)
    seen = {owner_of(n) for n in results[: places.start] if isinstance(n, fx.Node)}
    kept = {owner_of(r) for i in places if isinstance(r := results[i], fx.Node)} - seen
    made = (n for n in kept if n.op == "call_function")
    sizes = [storage.nbytes() for n in made for storage in memory_of(n).values()]
    return sum(n for n in sizes if type(n) is int)


def result_strides(graph: fx.Graph, facts: Facts) -> list[tuple[int, ...] | None]:
    """Strides of the results of a compiled graph, in AOTAutograd's form."""
    return [_strides(n) for n in results_of(graph)[facts.tokens :]]


def _strides(result: Any) -> tuple[int, ...] | None:
    """Strides of a tensor, if all are numbers."""
    value = tensor_of(result) if isinstance(result, fx.Node) else None
    if value is None or not all(type(n) is int for n in value.stride()):
        return None
    return tuple(value.stride())
