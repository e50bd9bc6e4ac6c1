"""Affine maps of channels after a convolution, folded into its weight and bias.

Batch norm with given statistics is such a map. The weight is a parameter, and so are scale and
shift: freezing computes the folded weight once. On a GPU the library would add the bias in a pass
of its own, so that there the shift stays an op after the convolution.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.freezing import frozen_nodes
from fuser.adapters.graph.views import has_numbers
from fuser.adapters.nodes import call_node, tensor_of

_aten = torch.ops.aten
_CAST = _aten._to_copy.default
_ADD, _SUB, _MUL = _aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor


def fold_affine_maps(graph: fx.Graph, static: Collection[int]) -> None:
    """Folds the ops after each convolution that map each channel by parameters.

    static  indices of the inputs that are parameters or buffers
    """
    frozen = frozen_nodes(graph, static)
    for node in list(graph.nodes):
        if node.target is _aten.convolution.default and _has_frozen_weight(node, frozen):
            chain = _chain(node, frozen)
            if any(n.target is not _CAST for n in chain):
                _fold(graph, node, chain)


def _has_frozen_weight(node: fx.Node, frozen: Collection[fx.Node]) -> bool:
    """True for a convolution, not transposed, with parameters and known sizes."""
    weight, bias, is_transposed = node.args[1], node.args[2], node.args[6]
    return (
        not is_transposed
        and has_numbers(node)
        and weight in frozen
        and (bias is None or bias in frozen)
    )


def _chain(node: fx.Node, frozen: Collection[fx.Node]) -> list[fx.Node]:
    """The ops after the convolution that can be folded; each is the only user of the previous."""
    chain: list[fx.Node] = []
    last = node
    while len(last.users) == 1:
        (user,) = last.users
        if not (_is_cast(user) or _maps_channels(user, last, frozen)):
            break
        chain.append(user)
        narrow, wide = tensor_of(user).dtype, tensor_of(last).dtype
        if torch.promote_types(narrow, wide) != narrow:
            break  # later ops see the rounded values
        last = user
    return chain


def _is_cast(node: fx.Node) -> bool:
    value = tensor_of(node)
    return node.target is _CAST and value.dtype.is_floating_point and set(node.kwargs) <= {"dtype"}


def _maps_channels(user: fx.Node, image: fx.Node, frozen: Collection[fx.Node]) -> bool:
    """True if the op adds, subtracts or multiplies one parameter per channel."""
    if user.target not in (_ADD, _SUB, _MUL) or user.kwargs or len(user.args) != 2:
        return False
    first, second = user.args
    if first is not image and (user.target is _SUB or second is not image):
        return False
    other = second if first is image else first
    if not isinstance(other, fx.Node) or other not in frozen or not has_numbers(other):
        return False
    sizes, wanted = tensor_of(other).shape, tensor_of(image).shape
    per_channel = [n for d, n in enumerate(reversed(sizes)) if n != 1 and d != len(wanted) - 2]
    return not per_channel and len(sizes) <= len(wanted) and tensor_of(user).shape == wanted


def _fold(graph: fx.Graph, node: fx.Node, chain: list[fx.Node]) -> None:
    image, weight, bias = node.args[:3]
    assert isinstance(weight, fx.Node)
    value, dims = tensor_of(node), tensor_of(node).ndim
    wide = torch.promote_types(value.dtype, torch.float32)
    channels = value.shape[1]

    def vector(operand: Any) -> fx.Node:
        """One number per channel, as wide as the folded map."""
        flat = call_node(graph, _aten.reshape.default, operand, [-1])
        flat = call_node(graph, _CAST, flat, dtype=wide)
        return call_node(graph, _aten.expand.default, flat, [channels])

    last = chain[-1]
    with graph.inserting_before(last):  # after all parameters of the chain
        scale: fx.Node | None = None
        shift = None if bias is None else vector(bias)
        for op in chain:
            if op.target is _CAST:
                continue
            before = {node, *chain}
            other = vector(next(n for n in op.args if n not in before))
            if op.target is _MUL:
                scale = other if scale is None else call_node(graph, _MUL, scale, other)
                shift = None if shift is None else call_node(graph, _MUL, shift, other)
            elif shift is None:
                shift = call_node(graph, _aten.neg.default, other) if op.target is _SUB else other
            else:
                shift = call_node(graph, op.target, shift, other)
        if scale is not None:
            column = call_node(graph, _aten.view.default, scale, [-1, *[1] * (dims - 1)])
            weight = call_node(graph, _MUL, weight, column)
            weight = call_node(graph, _CAST, weight, dtype=value.dtype)
        inside = value.device.type == "cpu"
        given = shift if inside and shift is not None else None
        if given is not None:
            given = call_node(graph, _CAST, given, dtype=value.dtype)
        result = call_node(graph, node.target, image, weight, given, *node.args[3:])
        if shift is not None and not inside:
            row = call_node(graph, _aten.view.default, shift, [-1, *[1] * (dims - 2)])
            result = call_node(graph, _ADD, result, row)
        if tensor_of(last).dtype != tensor_of(result).dtype:
            result = call_node(graph, _CAST, result, dtype=tensor_of(last).dtype)
    last.replace_all_uses_with(result)
    for old in (*reversed(chain), node):
        graph.erase_node(old)
