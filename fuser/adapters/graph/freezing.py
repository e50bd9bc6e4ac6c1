"""Freezing: an inference graph computes values of parameters and constants once.

Casts, layouts, packed forms and products of parameters are kept between calls. Each call compares
the address and the version of every parameter. After a change, e.g. load_state_dict(), the kept
values are computed again, in the same memory if possible, because CUDA graphs read it. Torch counts
no version for writes through `.data` or NumPy, so these are not seen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.effects import draws
from fuser.adapters.graph.views import has_numbers, laid_out, owner_of
from fuser.adapters.nodes import is_number, kind_of, results_of, tensor_of, writes
from fuser.adapters.torch_compat import (
    OpOverload,
    reorder_convolution_weight,
    reorder_linear_weight,
)

# Ops with results in a layout of oneDNN's own, which has no strides.
PACKING = {reorder_linear_weight, reorder_convolution_weight}
# Bytes of a kept value, relative to the parameters that it depends on, and in any case. Larger
# values, e.g. a parameter expanded to a batch, are computed in each call.
_GROWTH = 2
_ALWAYS = 16 << 20
# Cap of the bytes of parameters, which count once per use.
_MOST = 1 << 60


class Frozen:
    """A function of parameters that keeps its results between calls."""

    __name__ = "frozen"

    def __init__(self, module: fx.GraphModule, strides: Sequence[tuple[int, ...] | None]) -> None:
        self.module, self.strides = module, strides
        self.seen: list[tuple[int, int]] = []
        self.results: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return "values of parameters, kept between calls"

    def __call__(self, *parameters: torch.Tensor) -> tuple[Any, ...]:
        now = [(p.data_ptr(), -1 if p.is_inference() else p._version) for p in parameters]
        if now != self.seen:
            self.refresh(parameters)
            self.seen = now
        return self.results

    def refresh(self, parameters: Sequence[torch.Tensor]) -> None:
        """Computes the results again, into the memory of the previous ones."""
        with torch.inference_mode(False), torch.no_grad():
            made = self.module(*(p.detach() for p in parameters))
            results = [
                t if strides is None or t.stride() == strides else laid_out(t, strides)
                for t, strides in zip(made, self.strides, strict=True)
            ]
            given = {p.untyped_storage().data_ptr() for p in parameters}
            for i, (old, new) in enumerate(zip(self.results, results, strict=False)):
                if new.layout == torch.strided and new.untyped_storage().data_ptr() not in given:
                    results[i] = old.copy_(new)
        self.results = tuple(results)


def freeze(graph: fx.Graph, static: Collection[int]) -> None:
    """Moves the nodes that depend on parameters alone into one Frozen function.

    static  indices of the inputs that are parameters or buffers
    """
    frozen = frozen_nodes(graph, static)
    inside = _kept(graph, frozen)
    leaving = [n for n in graph.nodes if n in inside and frozen[n] and _leaves(n, inside)]
    if not leaving:
        return
    needed = _needed(leaving, inside)
    ordered = [n for n in graph.nodes if n in needed]
    parameters = list(
        dict.fromkeys(a for n in ordered for a in n.all_input_nodes if a not in needed)
    )
    function = _function(parameters, ordered, leaving)
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    with graph.inserting_after(inputs[-1]):
        call = graph.call_function(function, tuple(parameters))
    call.meta["val"] = tuple(n.meta["val"] for n in leaving)
    for i, node in reversed(list(enumerate(leaving))):
        with graph.inserting_after(call):
            part = graph.call_function(operator.getitem, (call, i))
        part.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(part, delete_user_cb=lambda user: user not in needed)
    for node in reversed(ordered):
        if not node.users:
            graph.erase_node(node)


def refreshing(call: Callable[[list[Any]], Any], graph: fx.Graph) -> Callable[[list[Any]], Any]:
    """Returns `call`, a replayed graph, with the check for changed parameters before it."""
    found = [n for n in graph.nodes if isinstance(n.target, Frozen)]
    if not found:
        return call
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    (node,) = found
    places = [inputs.index(n) for n in node.args]
    function: Any = node.target

    def run(arguments: list[Any]) -> Any:
        function(*(arguments[i] for i in places))
        return call(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def frozen_nodes(graph: fx.Graph, static: Collection[int]) -> dict[fx.Node, int]:
    """Nodes that depend on parameters and constants alone, with the bytes of these parameters. A
    tensor that the graph writes is no parameter.
    """
    written = {a for n in graph.nodes if writes(n) for a in n.all_input_nodes}
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    found = {
        n: _bytes(n)
        for i in static
        if i < len(inputs) and has_numbers(n := inputs[i]) and n not in written
    }
    for node in graph.nodes:
        if node.op != "call_function" or node in written or not _is_pure(node):
            continue
        if all(n in found for n in node.all_input_nodes):
            found[node] = min(sum(found[n] for n in node.all_input_nodes), _MOST)
    return found


def _bytes(node: fx.Node) -> int:
    value = tensor_of(node)
    return int(value.numel() * value.element_size())


def _is_pure(node: fx.Node) -> bool:
    if kind_of(node) == "part":
        return True
    plain = isinstance(node.target, OpOverload) and node.target.namespace in ("aten", "prims")
    plain |= node.target in PACKING
    return plain and not (writes(node) or draws(node) or is_number(node) or node.is_impure())


def _kept(graph: fx.Graph, frozen: dict[fx.Node, int]) -> set[fx.Node]:
    """The frozen nodes that the function may compute, from parameters and from each other."""
    shown = {owner_of(n) for n in results_of(graph) if isinstance(n, fx.Node)}
    inside = {n for n in frozen if n.op == "call_function"}
    while True:
        before = len(inside)
        for node in reversed(graph.nodes):
            leaves = node in inside and frozen[node] and _leaves(node, inside)
            if leaves and (not _may_leave(node, frozen[node]) or owner_of(node) in shown):
                inside.discard(node)
        for node in graph.nodes:
            needs = (n for n in node.all_input_nodes if n.op == "call_function")
            if node in inside and not all(n in inside for n in needs):
                inside.discard(node)
        if len(inside) == before:
            return inside


def _leaves(node: fx.Node, inside: Collection[fx.Node]) -> bool:
    return any(user not in inside for user in node.users)


def _may_leave(node: fx.Node, parameters: int) -> bool:
    """True for a tensor of known layout that is not too large beside its parameters."""
    return has_numbers(node) and 0 < _bytes(node) <= max(_GROWTH * parameters, _ALWAYS)


def _needed(leaving: Sequence[fx.Node], inside: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes inside that the leaving ones depend on."""
    needed: set[fx.Node] = set()
    waiting = list(leaving)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [n for n in node.all_input_nodes if n in inside]
    return needed


def _function(
    parameters: Sequence[fx.Node],
    nodes: Sequence[fx.Node],
    leaving: Sequence[fx.Node],
) -> Frozen:
    own = fx.Graph()
    copies = {n: own.placeholder(f"p{i}") for i, n in enumerate(parameters)}
    for node in nodes:
        copies[node] = own.node_copy(node, lambda n: copies[n])
    own.output([copies[n] for n in leaving])
    strides = [None if n.target in PACKING else tuple(tensor_of(n).stride()) for n in leaving]
    return Frozen(fx.GraphModule({}, own), strides)
