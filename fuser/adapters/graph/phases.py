"""Mutated tensors in joint graphs: the values that the forward and the backward graph read, if the
graph itself, or the program between both runs, writes to them.

In eager mode this is decided when an op runs: autograd saves certain tensors with version checks,
and an autograd.Function saves any tensor on its ctx. Partitioners assume that a value is equal
wherever it is read or rematerialized. Therefore the two graphs get separate nodes before a joint
graph is partitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import wraps
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fuser.adapters.graph.mutation import fits
from fuser.adapters.graph.views import has_numbers
from fuser.adapters.nodes import is_number, is_view, is_write, reads_of, tensor_of
from fuser.adapters.torch_compat import pytree

Cut = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]

# Keys of node meta: a copy of an input, a copy of a result, AOTAutograd's mark for tensors saved on
# a ctx without version check (not by save_for_backward), and AOTAutograd's phase.
_OLD = "fuser_old_value"
_SHOWN = "fuser_shown"
_UNCHECKED = "saved_tensor_with_no_vc_check"
_PHASE = "partitioner_tag"


def mutation_aware(cut: Cut) -> Cut:
    """Wraps a partition_fn of AOTAutograd for joint graphs that write to their inputs: the backward
    graph reads the values of eager mode.

    A tensor saved on the ctx of an autograd.Function shows the backward pass its current memory:
    perhaps after another forward pass, or an earlier backward pass, of the graph. Torch's
    partitioners would save its old value, or move writes of the backward pass into the forward
    graph. For values read before a write, the backward graph gets a copy.
    """

    @wraps(cut)
    def cut_one(
        joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        changed = _tell_times_apart(joint.graph, num_fwd_outputs)
        forward, backward = cut(joint, inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
        if changed:
            _drop_copies(forward.graph, num_fwd_outputs)
            _write_last(backward.graph)
            forward.recompile()
            backward.recompile()
        return forward, backward

    return cut_one


def keeping_what_eager_keeps(cut: Cut) -> Cut:
    """Wraps a partition_fn for functions whose inputs and results a program may change between
    forward and backward pass: if eager mode allows the change, the gradient is unaffected.

    Eager mode raises an error only if autograd saved the changed tensor. The backward graph does
    not read the memory of other inputs and results: it gets values computed from them, or a copy,
    whichever the partitioner finds smaller.
    """

    @wraps(cut)
    def cut_one(
        joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        _show_copies(joint.graph, num_fwd_outputs)
        forward, backward = cut(joint, inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
        _drop_copies(forward.graph, num_fwd_outputs)
        forward.recompile()
        return forward, backward

    return cut_one


def _show_copies(graph: fx.Graph, outputs: int) -> None:
    """Inserts copies into a joint graph: inputs that autograd does not save are read through a
    copy, and results that it does not save are returned as a copy.
    """
    of_backward = _of_backward_pass(graph, outputs)

    def is_kept(node: fx.Node) -> bool:
        """True if the backward graph reads this node or a view of it; then autograd saved it."""
        return any(user in of_backward and not is_number(user) for _, user in reads_of(node))

    for node in [n for n in graph.nodes if n.op == "placeholder" and tensor_of(n) is not None]:
        written = any(is_write(user) for user in node.users)
        if not str(node.target).startswith("tangents") and not written and not is_kept(node):
            _read_a_copy(node)
    output = next(n for n in graph.nodes if n.op == "output")
    results = list(output.args[0])
    for node in dict.fromkeys(n for n in results[:outputs] if isinstance(n, fx.Node)):
        owner = _owner(node)
        if owner.op != "call_function" or is_kept(owner) or not _is_copied_alike(node):
            continue
        with graph.inserting_after(node):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta.update({"val": tensor_of(node).clone(), _SHOWN: True, _PHASE: "is_forward"})
        results[:outputs] = [copy if n is node else n for n in results[:outputs]]
    output.args = (type(output.args[0])(results),)


def _owner(node: fx.Node) -> fx.Node:
    """The tensor that a view shows, or the node itself."""
    while is_view(node):
        node = node.all_input_nodes[0]
    return node


def _is_copied_alike(node: fx.Node) -> bool:
    """True if a copy would have the strides of this result."""
    value = tensor_of(node)
    if value is None or not is_view(node):
        return value is not None
    return has_numbers(node) and bool(value.clone().stride() == value.stride())


def _tell_times_apart(graph: fx.Graph, outputs: int) -> bool:
    """Makes the forward graph read mutated inputs through a copy, and the backward graph in place.
    Returns True if there are mutated inputs.
    """
    copies = [node for node in graph.nodes if is_write(node)]
    if not copies:
        return False
    of_backward = _of_backward_pass(graph, outputs)
    latest = {n.args[0]: n.args[1] for n in copies if n not in of_backward}
    written_again = {n.args[0] for n in copies if n in of_backward}
    for place in dict.fromkeys(n.args[0] for n in copies):
        assert isinstance(place, fx.Node)
        value = latest.get(place, place)
        assert isinstance(value, fx.Node)
        shown = (n for version in _versions(value) for n in (version, *_views_of(version)))
        unchecked = any(n.meta.get(_UNCHECKED) for n in shown)
        if unchecked or place in written_again:
            _read_in_place(place, value, of_backward)
            if unchecked:
                place.meta[_UNCHECKED] = True
        _read_a_copy(place)
    return True


def _of_backward_pass(graph: fx.Graph, outputs: int) -> set[fx.Node]:
    """Nodes traced after the forward pass that no result of the forward pass depends on."""
    results = next(n for n in graph.nodes if n.op == "output").args[0]
    leaves: Any = pytree.tree_leaves(results)
    copied = (n for n in graph.nodes if n.meta.get(_PHASE) == "must_be_in_forward")
    waiting = [n for n in (*leaves[:outputs], *copied) if isinstance(n, fx.Node)]
    of_forward: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in of_forward:
            of_forward.add(node)
            waiting += node.all_input_nodes
    called = (n for n in graph.nodes if n.op == "call_function")
    return {n for n in called if n.meta.get(_PHASE) != "is_forward"} - of_forward


def _versions(value: fx.Node) -> Iterator[fx.Node]:
    """Yields the value that in-place ops give an input, and its earlier versions: the first operand
    of each op, or the kept operand of a partial write.
    """
    node: Any = value
    while isinstance(node, fx.Node):
        yield node
        kept = 2 if node.target is torch.ops.aten.where.self else 0
        before = node.args[kept] if len(node.args) > kept else None
        alike = isinstance(before, fx.Node) and fits(tensor_of(before), tensor_of(value))
        node = before if alike else None


def _views_of(node: fx.Node) -> list[fx.Node]:
    return [user for _, user in reads_of(node) if is_view(user)]


def _read_in_place(place: fx.Node, value: fx.Node, of_backward: Collection[fx.Node]) -> None:
    """Makes nodes of the backward graph that read `value`, or views of it, read `place` instead,
    which holds `value` after the forward pass. They then cannot move into the forward graph.
    """
    first = next((n for n in place.graph.nodes if n in of_backward), None)
    if first is None:
        return
    shown: dict[fx.Node, fx.Node] = {}

    def show(node: fx.Node) -> fx.Node:
        """Returns `node`, the value or a view of it, as a view of the input."""
        if node in shown:
            return shown[node]
        with place.graph.inserting_before(first):
            if node is value:
                shown[node] = place.graph.call_function(torch.ops.aten.alias.default, (place,))
                shown[node].meta["val"] = tensor_of(place)
            else:
                source = show(node.all_input_nodes[0])
                shown[node] = place.graph.node_copy(
                    node, lambda n: source if n is node.all_input_nodes[0] else n
                )
        shown[node].meta[_PHASE] = "must_be_in_backward"
        shown[node].meta.pop(_UNCHECKED, None)
        return shown[node]

    for node in (value, *(n for n in _views_of(value) if n not in of_backward)):
        for user in list(node.users):
            if user in of_backward and not is_number(user) and not is_write(user):
                user.replace_input_with(node, show(node))


def _read_a_copy(place: fx.Node) -> None:
    """Makes other readers of this input read a copy, which is saved and not rematerialized."""
    readers = [
        user
        for user in place.users
        if not is_number(user)
        and not is_write(user)
        and user.op != "output"
        and user.meta.get(_PHASE) != "must_be_in_backward"
    ]
    if not readers:
        return
    graph = place.graph
    with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
        copy = graph.call_function(torch.ops.aten.clone.default, (place,))
    copy.meta.update({"val": tensor_of(place).clone(), _OLD: True, _PHASE: "is_forward"})
    copy.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    for user in readers:
        user.replace_input_with(place, copy)


def _drop_copies(forward: fx.Graph, outputs: int) -> None:
    """Removes unneeded copies from a forward graph. All its readers run before any write, so only
    saved copies of inputs, and copies of results whose original is saved too, are kept.
    """
    output = next(n for n in forward.nodes if n.op == "output")
    results = list(output.args[0])
    shown = [n for n in forward.nodes if n.op == "call_function" and _SHOWN in n.meta]
    for copy in shown:
        source = copy.args[0]
        assert isinstance(source, fx.Node)
        owner = _owner(source)
        if {owner, *_views_of(owner)}.isdisjoint(n for n in results[outputs:] if n is not None):
            results = [source if n is copy else n for n in results]
            output.args = (type(output.args[0])(results),)
            forward.erase_node(copy)
    for old in [n for n in forward.nodes if n.op == "call_function" and _OLD in n.meta]:
        if any(n is old for n in results[outputs:]):
            # forward readers keep the copy, so that one region computes it and them
            continue
        for node in _views_of(old):
            if any(n is node for n in results[outputs:]):
                with forward.inserting_after(node):
                    copy = forward.call_function(torch.ops.aten.clone.default, (node,))
                copy.meta["val"] = tensor_of(node).clone()
                results[outputs:] = [copy if n is node else n for n in results[outputs:]]
        output.args = (type(output.args[0])(results),)
        old.replace_all_uses_with(old.args[0])
        results = list(output.args[0])
        forward.erase_node(old)


def _write_last(backward: fx.Graph) -> None:
    """Moves writes to the end of a backward graph, because torch's partitioner may place readers of
    the old value after them.
    """
    output = next(n for n in backward.nodes if n.op == "output")
    for node in [n for n in backward.nodes if is_write(n)]:
        output.prepend(node)
