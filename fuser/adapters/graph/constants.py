"""Constants of CPU graphs that ops of torch read: made once instead of in each call.

Regions compute such tensors themselves. For an op that torch computes, e.g. an embedding bag that
reads the offsets of its bags, each call made them again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from fuser.adapters.nodes import device_of, kind_of, tensor_of
from fuser.adapters.torch_compat import OpOverload, disable_current_modes

# Maximum bytes of a constant, which stays in memory as long as the graph.
_LARGEST = 1 << 20


def keep_constants(graph: fx.Graph, makers: Collection[fx.Node]) -> None:
    """Replaces factories with equal arguments by one attribute of the graph's module.

    makers  nodes of regions, which compute factories themselves
    """
    known: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        readers = [user for user in node.users if user not in makers]
        if node in makers or not readers or not _is_constant(node):
            continue
        if not all(map(_only_reads, readers)):
            continue
        key = (node.target, repr(node.args), repr(sorted(node.kwargs.items())))
        if key not in known:
            known[key] = _attribute(graph, node)
        for reader in readers:
            reader.replace_input_with(node, known[key])


def _is_constant(node: fx.Node) -> bool:
    value = tensor_of(node)
    if value is None or kind_of(node) != "create" or node.all_input_nodes:
        return False
    if device_of(node).type != "cpu" or any(type(n) is not int for n in value.shape):
        return False
    return bool(value.numel() * value.element_size() <= _LARGEST)


def _only_reads(node: fx.Node) -> bool:
    """True if the op neither writes its operands nor gives a view of them."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    return all(a.alias_info is None for a in node.target._schema.arguments)


def _attribute(graph: fx.Graph, node: fx.Node) -> fx.Node:
    target: Any = node.target
    with disable_current_modes(), torch.no_grad():
        made = target(*node.args, **node.kwargs)
    module: Any = graph.owning_module
    name = f"_constant_{node.name}"
    module.register_buffer(name, made)
    with graph.inserting_before(next(iter(graph.nodes))):
        constant = graph.get_attr(name)
    constant.meta["val"] = node.meta["val"]
    return constant
