"""oneDNN's own forms of products and convolutions of CPU tensors in inference graphs.

A weight that is a parameter is packed once for its product or convolution (freezing keeps it). An
activation that no region would take, because it stands between two library calls, becomes part of
the call.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.freezing import PACKING, frozen_nodes
from fuser.adapters.graph.gemm_padding import PRODUCTS
from fuser.adapters.graph.views import has_numbers
from fuser.adapters.nodes import call_node, is_view, reads_of, tensor_of
from fuser.adapters.partition import why_not
from fuser.adapters.torch_compat import (
    convolution_pointwise,
    linear_pointwise,
    reorder_convolution_weight,
    reorder_linear_weight,
    suggest_memory_format,
)

_aten = torch.ops.aten
_PLAIN: tuple[Any, ...] = ("none", [], "")
# oneDNN's names of activations.
_ACTIVATIONS: dict[Any, str] = {
    _aten.relu.default: "relu",
    _aten.sigmoid.default: "sigmoid",
    _aten.tanh.default: "tanh",
    _aten.hardswish.default: "hardswish",
    _aten.silu.default: "swish",
    _aten.gelu.default: "gelu",
}


def pack_weights(graph: fx.Graph, static: Collection[int]) -> None:
    """Packs weights that are parameters, and joins activations.

    static  indices of the inputs that are parameters or buffers
    """
    frozen = frozen_nodes(graph, static)
    for node in list(graph.nodes):
        packed = None
        if node.target is linear_pointwise and node.args[1] in frozen:
            packed = _linear(graph, node, node.args[0], node.args[1], node.args[2])
        elif node.target in PRODUCTS and _is_product_of_halves(node, frozen):
            packed = _product(graph, node)
        elif node.target is _aten.convolution.default and _is_packable(node, frozen):
            packed = _convolution(graph, node)
        if packed is not None:
            packed.meta = dict(node.meta)
            node.replace_all_uses_with(packed)
            graph.erase_node(node)
            _join_activation(graph, packed)


def _packs(value: Any) -> bool:
    """True for types that oneDNN computes at full speed here."""
    onednn: Any = torch.backends.mkldnn
    if value is None or value.device.type != "cpu" or not onednn.enabled:
        return False
    if value.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(value.dtype == torch.float32 and onednn.is_available())


def _is_product_of_halves(node: fx.Node, frozen: Collection[fx.Node]) -> bool:
    """True for a product of bfloat16 by a parameter. Products of float32 are oneDNN's already if
    that is faster (fuser.adapters.graph.cpu_products).
    """
    value = tensor_of(node)
    args: Sequence[Any] = node.args
    weight = args[PRODUCTS[node.target][1]]
    if weight not in frozen or node.kwargs or value.ndim != 2 or not has_numbers(node):
        return False
    bias = args[0] if node.target is _aten.addmm.default else None
    plain = bias is None or (bias in frozen and tensor_of(bias).ndim == 1)
    return plain and value.dtype == torch.bfloat16 and _packs(value)


def _product(graph: fx.Graph, node: fx.Node) -> fx.Node:
    at_a, at_b = PRODUCTS[node.target]
    bias = node.args[0] if at_a == 1 else None
    with graph.inserting_before(node):
        weight = call_node(graph, _aten.permute.default, node.args[at_b], [1, 0])
    return _linear(graph, node, node.args[at_a], weight, bias)


def _linear(graph: fx.Graph, node: fx.Node, x: Any, weight: Any, bias: Any) -> fx.Node:
    with graph.inserting_before(node):
        packed = _packed(graph, reorder_linear_weight, weight, tensor_of(x).shape[0])
        return graph.call_function(linear_pointwise, (x, packed, bias, *_PLAIN))


def _is_packable(node: fx.Node, frozen: Collection[fx.Node]) -> bool:
    """True for a convolution of channels-last images by a parameter."""
    args: Sequence[Any] = node.args
    image, weight, bias, is_transposed = (args[i] for i in (0, 1, 2, 6))
    if is_transposed or weight not in frozen or not has_numbers(node):
        return False
    value = tensor_of(image)
    last = value.ndim == 4 and suggest_memory_format(value) == torch.channels_last
    return last and _packs(value) and (bias is None or bias in frozen)


def _convolution(graph: fx.Graph, node: fx.Node) -> fx.Node:
    args: Sequence[Any] = node.args
    x, weight, bias, stride, padding, dilation, _, _, groups = args
    settings = (padding, stride, dilation, groups)
    with graph.inserting_before(node):
        packed = _packed(
            graph, reorder_convolution_weight, weight, *settings, list(tensor_of(x).shape)
        )
        return graph.call_function(convolution_pointwise, (x, packed, bias, *settings, *_PLAIN))


def _packed(graph: fx.Graph, packing: Any, weight: Any, *settings: Any) -> fx.Node:
    """The packed weight; its FakeTensor is the weight's, as a packed layout has none."""
    assert packing in PACKING
    node = graph.call_function(packing, (weight, *settings))
    node.meta["val"] = tensor_of(weight)
    return node


def _join_activation(graph: fx.Graph, node: fx.Node) -> None:
    """Makes the library call apply the activation after it if no region would take it."""
    if len(node.users) != 1:
        return
    (user,) = node.users
    name = _ACTIVATIONS.get(user.target)
    readers = [reader for _, reader in reads_of(user) if not is_view(reader)]
    if name is None or any(why_not(reader) is None for reader in readers):
        return
    algorithm = str(user.kwargs.get("approximate", "none")) if name == "gelu" else ""
    node.args = (*node.args[:-3], name, [], algorithm)
    user.replace_all_uses_with(node)
    graph.erase_node(user)
