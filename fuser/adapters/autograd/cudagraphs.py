"""Compiled graphs as CUDA graphs, by Inductor's CUDA graph trees: these share a memory pool, track
its live memory, copy inputs with changed addresses, and record again for other sizes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx

from fuser.adapters import aten
from fuser.adapters.autograd.aot_metadata import Facts
from fuser.adapters.nodes import kind_of
from fuser.adapters.torch_compat import (
    cudagraph_trees,
    cudagraph_utils,
    dynamo_cudagraphs,
    inductor_utils,
)

_log = logging.getLogger(__name__)

Boxed = Callable[[list[Any]], Any]


def captured(call: Boxed, module: fx.GraphModule, name: str, facts: Facts) -> Boxed:
    """Returns a function that runs `call` for this graph: recorded in its third run, replayed
    afterwards. If the graph cannot be captured, returns `call` and logs one line.

    The first run is an ordinary run, because its results may outlive it, e.g. the state of an
    optimizer; the graph pool reclaims the results of one run in the next. Also, before Dynamo
    traces an optimizer, it asks the trees for the graph that ran last.
    """
    still = _places_that_stay(module, name, facts)
    reason = _why_not(module, still)
    if reason is not None:
        _log.warning("the %s graph runs without CUDA graphs: %s", name, reason)
        return _in_backward(call) if name == "backward" else call
    device = dynamo_cudagraphs.get_device_index(module)
    replayed: Boxed | None = None

    def run(arguments: list[Any]) -> Any:
        nonlocal replayed
        if replayed is not None:
            return replayed(arguments)
        replayed = cudagraph_trees.cudagraphify_impl(
            call,
            list(arguments),  # determines which arguments are sizes
            sorted(still),
            device_index=device,
            is_backward=name == "backward",
            is_inference=name == "inference",
            stack_traces=dynamo_cudagraphs.get_stack_traces(module),
            placeholders=cudagraph_utils.get_placeholder_info(module.graph),
            mutated_input_idxs=dynamo_cudagraphs.find_input_mutations(module.graph),
        )
        return call(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _places_that_stay(module: fx.GraphModule, name: str, facts: Facts) -> set[int]:
    """Indices of arguments with fixed addresses: parameters and buffers; for the backward graph all
    saved activations.
    """
    if name == "backward":
        return set(range(inductor_utils.count_tangents(module)))
    return set(facts.static)


def _why_not(module: fx.GraphModule, still: Collection[int]) -> str | None:
    if dynamo_cudagraphs.find_input_mutations(module.graph) - set(still):
        return "it writes into an argument"
    constants = _constants(module.graph)
    places: dict[torch.device, fx.Node] = {}
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and node not in constants:
            places.setdefault(value.device, node)
    if (found := cudagraph_utils.check_multiple_devices_or_any_cpu_nodes(places)) is not None:
        return str(found)
    node = inductor_utils.get_first_incompatible_cudagraph_node(module)
    return None if node is None else f"{node.name} cannot be captured"


def _constants(graph: fx.Graph) -> set[fx.Node]:
    """CPU tensors without dims that are computed from constants alone and read as numbers, e.g.
    torch.tensor(2.0) as an operand. A replay repeats the launches that have these numbers.
    """
    found: dict[fx.Node, None] = {}  # in the graph's order
    for node in graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.ndim or value.device.type != "cpu":
            continue
        if node.op == "get_attr" or (
            node.op == "call_function"
            and kind_of(node) != "random"
            and all(n in found for n in node.all_input_nodes)
        ):
            found[node] = None
    for node in reversed(list(found)):
        if not all(user in found or _reads_numbers(user) for user in node.users):
            del found[node]
    return set(found)


def _reads_numbers(node: fx.Node) -> bool:
    """True if the op takes CPU tensors without dims as numbers and copies none to its device."""
    name = str(node.target)
    return aten.by_element(name) or name == "aten.fill.Tensor"


def _in_backward(call: Boxed) -> Boxed:
    """Wraps a backward graph that is not captured. If its forward graph is captured, tells the
    trees that the backward pass runs, because the results of the forward graph are in use until
    then.
    """

    def run(arguments: list[Any]) -> Any:
        device = torch.cuda.current_device() if torch.cuda.is_available() else 0
        manager = cudagraph_trees.get_manager(device, create_if_none_exists=False)
        if manager is not None:
            manager.set_to_running_backward()
        return call(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
