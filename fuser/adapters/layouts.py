"""How the results of regions lie in memory, where only their readers have a say in it.

What a convolution reads in a layout that is not its own, it copies first, on every call; a region
writes any layout as fast as another.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx
from torch._prims_common import suggest_memory_format

from fuser.adapters.partition import computed, is_view, tensor_of
from fuser.adapters.views import has_numbers

# The places of the images, and of the weight, among the arguments.
CONVOLUTIONS: dict[object, tuple[tuple[int, ...], int]] = {
    torch.ops.aten.convolution.default: ((0,), 1),
    torch.ops.aten.convolution_backward.default: ((0, 1), 2),
}


def lay_out_for_convolutions(
    graph: fx.Graph, makers: Collection[fx.Node], kept: Collection[fx.Node]
) -> None:
    """Images that regions make for convolutions with weights in channels-last get that layout.

    makers  nodes of regions: the memory of what they give is ours to lay out
    kept    results of the graph that only its own backward graph reads
    """
    for node in graph.nodes:
        if node.target not in CONVOLUTIONS:
            continue
        places, weight = CONVOLUTIONS[node.target]
        if not _is_channels_last(node.args[weight]):
            continue
        for image in (node.args[place] for place in places):
            if image not in makers or not has_numbers(image) or _is_channels_last(image):
                continue
            wanted = tensor_of(image).contiguous(memory_format=torch.channels_last)
            views = followed(image, wanted, makers, kept, CONVOLUTIONS)
            if views is not None:
                lay_out(views)


def _is_channels_last(node: Any) -> bool:
    """Would a convolution take these for channels-last? By strides: of 1 x 1 pixels, both fit."""
    value = tensor_of(node)
    if value is None or value.ndim != 4 or not has_numbers(node):
        return False
    return suggest_memory_format(value) == torch.channels_last


def lay_out(views: dict[fx.Node, torch.Tensor]) -> None:
    """These nodes give such tensors."""
    for node, value in views.items():
        node.meta["val"] = value


def followed(
    node: fx.Node,
    value: torch.Tensor,
    makers: Collection[fx.Node],
    kept: Collection[fx.Node],
    readers: Collection[object],
) -> dict[fx.Node, torch.Tensor] | None:
    """`node` as `value`, which lies elsewhere in memory, and all views of it; None where something
    reads it that counts on the strides that were traced: not a region, nor one of the ops
    `readers`.
    """
    found = {node: value}
    for user in node.users:
        if user.op == "output":
            if node not in kept:
                return None
        elif is_view(user):
            try:
                viewed = computed(user, {node: value})
            except (RuntimeError, ValueError):  # there is no such view
                return None
            views = followed(user, viewed, makers, kept, readers)
            if views is None:
                return None
            found |= views
        elif user not in makers and user.target not in readers:
            return None
    return found
