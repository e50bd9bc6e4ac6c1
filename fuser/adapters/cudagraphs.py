"""Compiled graphs as CUDA graphs, by the trees of graphs that torch has for Inductor: they share a
pool of memory, know what of it is still in use, copy inputs that lie elsewhere each time, and are
recorded again for other sizes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends import cudagraphs as of_torch
from torch._inductor import cudagraph_trees
from torch._inductor.cudagraph_utils import (
    check_multiple_devices_or_any_cpu_nodes,
    get_placeholder_info,
)
from torch._inductor.utils import count_tangents, get_first_incompatible_cudagraph_node

from fuser.adapters.facts import Facts

_log = logging.getLogger(__name__)

Boxed = Callable[[list[Any]], Any]


def captured(call: Boxed, module: fx.GraphModule, name: str, facts: Facts) -> Boxed:
    """`call`, which runs this graph, recorded in its third run and replayed from then on. Where it
    cannot be, `call`, with one line of log.

    The first run is as if there were no graphs. What it makes may stay, as the state of an
    optimizer does; the graphs' pool takes the results of one run back in the next. And Dynamo,
    before it traces an optimizer, asks the trees of graphs for the one that ran last.
    """
    still = _places_that_stay(module, name, facts)
    reason = _why_not(module, still)
    if reason is not None:
        _log.warning("no CUDA graph of a %s graph: %s", name, reason)
        return _in_backward(call) if name == "backward" else call
    device = of_torch.get_device_index(module)
    replayed: Boxed | None = None

    def run(arguments: list[Any]) -> Any:
        nonlocal replayed
        if replayed is not None:
            return replayed(arguments)
        replayed = cudagraph_trees.cudagraphify_impl(
            call,
            list(arguments),  # which of them are sizes is known from now on
            sorted(still),
            device_index=device,
            is_backward=name == "backward",
            is_inference=name == "inference",
            stack_traces=of_torch.get_stack_traces(module),
            placeholders=get_placeholder_info(module.graph),
            mutated_input_idxs=of_torch.find_input_mutations(module.graph),
        )
        return call(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _places_that_stay(module: fx.GraphModule, name: str, facts: Facts) -> set[int]:
    """The arguments that lie where they lay: parameters and buffers, and for the backward graph all
    that the forward graph keeps.
    """
    if name == "backward":
        return set(range(count_tangents(module)))
    return set(facts.static)


def _why_not(module: fx.GraphModule, still: Collection[int]) -> str | None:
    if of_torch.find_input_mutations(module.graph) - set(still):
        return "it writes into an argument"
    places = of_torch.get_device_node_mapping(module)
    if (found := check_multiple_devices_or_any_cpu_nodes(places)) is not None:
        return str(found)
    node = get_first_incompatible_cudagraph_node(module)
    return None if node is None else f"{node.name} cannot be captured"


def _in_backward(call: Boxed) -> Boxed:
    """A backward graph that runs as it is, perhaps behind a captured forward graph, whose results
    are in use until then.
    """

    def run(arguments: list[Any]) -> Any:
        device = torch.cuda.current_device() if torch.cuda.is_available() else 0
        manager = cudagraph_trees.get_manager(device, create_if_none_exists=False)
        if manager is not None:
            manager.set_to_running_backward()
        return call(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
