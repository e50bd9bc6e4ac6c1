"""Pads large matrix products with sizes for which the GPU's libraries are slow.

A region writes an operand of the product with zeros after it, so that the product can read it as a
larger matrix; other operands are copied. The product's result is a view of the larger result. The
FakeTensors of the graph are updated to the new memory layouts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.gemm_padding import (
    PRODUCTS,
    is_worth_padding,
    padded_sizes,
    rounded,
    with_zeros_behind,
)
from fuser.adapters.graph.layouts import followed, lay_out
from fuser.adapters.nodes import computed, is_view, reads_of, tensor_of

# Key in a node's meta: sizes of the larger zero-padded tensor whose beginning is this one.
MEMORY = "memory"

_AS_STRIDED = torch.ops.aten.as_strided.default
_CLONE = torch.ops.aten.clone.default


def pad_products(
    graph: fx.Graph, makers: Collection[fx.Node], kept: Collection[fx.Node]
) -> list[fx.Node]:
    """Rewrites matrix products if padding pays. Returns the copies that this adds: each becomes a
    region, because torch copies rows of odd lengths element by element.

    makers  nodes of regions, with results that may have any layout
    kept    results of the graph that only its own backward graph reads
    """
    copies: dict[fx.Node, fx.Node] = {}
    dense: list[fx.Node | None] = []
    for node in list(graph.nodes):
        if node.target not in PRODUCTS:
            continue
        a, b = _matrices(node)
        if is_worth_padding(tensor_of(a), tensor_of(b)) and _bias_fits(node):
            dense.append(_pad(graph, node, makers, kept, copies))
    return [*copies.values(), *(copy for copy in dense if copy is not None)]


def write_by_copies(graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
    """Copies results that should be followed by zeros into padded memory, for nodes of a region
    that falls back to torch.
    """
    for node in nodes:
        full = node.meta.pop(MEMORY, None)
        if full is None:
            continue
        with graph.inserting_after(node):
            copy = graph.call_function(with_zeros_behind, (node, full))
        copy.meta["val"] = node.meta["val"]
        _replace(node, copy)


def take_strides(graph: fx.Graph, inputs: Sequence[Any]) -> None:
    """Gives the placeholders the strides of the actual inputs if they differ from the traced ones.
    Views that no longer exist for these strides become reshapes.
    """
    nodes = [n for n in graph.nodes if n.op == "placeholder"]
    for node, given in zip(nodes, inputs, strict=True):
        value = tensor_of(node)
        if value is None or not isinstance(given, torch.Tensor):
            continue
        if all(type(n) is int for n in given.stride()) and value.stride() != given.stride():
            _lay_out(node, given)


def _matrices(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    a, b = (node.args[place] for place in PRODUCTS[node.target])
    assert isinstance(a, fx.Node)
    assert isinstance(b, fx.Node)
    return a, b


def _bias_fits(node: fx.Node) -> bool:
    """True if no bias is added, or a row vector whose length needs no padding."""
    if node.target is not torch.ops.aten.addmm.default:
        return True
    bias, length = node.args[0], tensor_of(node).shape[-1]
    assert isinstance(bias, fx.Node)
    return bool(tensor_of(bias).ndim == 1 and length == rounded(length))


def _pad(
    graph: fx.Graph,
    node: fx.Node,
    makers: Collection[fx.Node],
    kept: Collection[fx.Node],
    copies: dict[fx.Node, fx.Node],
) -> fx.Node | None:
    """Replaces a product by the product of padded matrices and a view of its result. Returns a copy
    of the view if a reader depends on the traced strides.
    """
    traced = tensor_of(node)
    for matrix in _matrices(node):
        with graph.inserting_before(node):
            node.replace_input_with(matrix, _padded(graph, matrix, makers, kept, copies))
    whole = node.meta["val"] = computed(node)
    strides = whole.stride()
    with graph.inserting_after(node):
        part = graph.call_function(_AS_STRIDED, (node, list(traced.shape), list(strides)))
    part.meta["val"] = whole.as_strided(traced.shape, strides)
    _replace(node, part)
    kept = {*kept, part} if node in kept else kept
    if strides == traced.stride():
        return None
    if (views := followed(part, part.meta["val"], makers, kept, PRODUCTS)) is not None:
        lay_out(views)
        return None
    with graph.inserting_after(part):
        copy = graph.call_function(_CLONE, (part,), {"memory_format": torch.contiguous_format})
    copy.meta["val"] = traced
    _replace(part, copy)
    return copy


def _replace(node: fx.Node, by: fx.Node) -> None:
    """Replaces `node` by `by` for all users of `node` except `by`."""
    for user in [u for u in node.users if u is not by]:
        user.replace_input_with(node, by)


def _padded(
    graph: fx.Graph,
    matrix: fx.Node,
    makers: Collection[fx.Node],
    kept: Collection[fx.Node],
    copies: dict[fx.Node, fx.Node],
) -> fx.Node:
    """The larger, padded matrix that starts with `matrix`."""
    value = tensor_of(matrix)
    full = padded_sizes(value.shape)
    if full == tuple(value.shape):
        return matrix
    if not _is_followed_by_zeros(matrix, makers, kept):
        matrix = _copied(graph, matrix, copies)
    strides = tensor_of(matrix).stride()
    result = graph.call_function(_AS_STRIDED, (matrix, list(full), list(strides)))
    result.meta["val"] = value.new_empty_strided(full, strides)
    return result


def _copied(graph: fx.Graph, matrix: fx.Node, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    """Copies `matrix` into memory followed by zeros. If it is a view of contiguous rows, e.g. their
    transpose, copies the rows once for all products that read them.
    """
    chain = [matrix]
    while is_view(chain[-1]):
        chain.append(chain[-1].all_input_nodes[0])
    while (found := _viewed(chain)) is None:
        chain.pop()
    source = chain.pop()
    if source not in copies:
        copies[source] = graph.call_function(_CLONE, (source,))
        full = padded_sizes(tensor_of(source).shape)
        copies[source].meta |= {"val": found[source], MEMORY: full}
    known = {source: copies[source]}
    for view in reversed(chain):
        known[view] = graph.node_copy(view, lambda n: known.get(n, n))
        known[view].meta["val"] = found[view]
    return known[matrix]


def _viewed(chain: Sequence[fx.Node]) -> dict[fx.Node, torch.Tensor] | None:
    """FakeTensors of a matrix and its chain of views if the last source is copied into padded
    memory. Returns nothing if the view would not exist, or the source is neither the matrix nor
    contiguous.
    """
    matrix, source = chain[0], chain[-1]
    value = tensor_of(source)
    if value is None or value.ndim < 2 or not (matrix is source or value.is_contiguous()):
        return None
    found = {source: _with_zeros(value)}
    try:
        for view in reversed(chain[:-1]):
            found[view] = computed(view, found)
    except (RuntimeError, ValueError):
        return None
    return found if _short_sides(found[matrix]) <= _short_sides(found[source]) else None


def _with_zeros(value: torch.Tensor) -> torch.Tensor:
    """FakeTensor of `value` with the strides of padded memory."""
    whole = value.new_empty(padded_sizes(value.shape))
    return whole.as_strided(value.shape, whole.stride())


def _is_followed_by_zeros(
    matrix: fx.Node, makers: Collection[fx.Node], kept: Collection[fx.Node]
) -> bool:
    """True if `matrix`, or the tensor that it shows, can be written into memory that is padded
    along each side that is too short. If so, marks it to be written there.
    """
    source = matrix
    while is_view(source):
        (source,) = source.all_input_nodes[:1]
    if source not in makers or tensor_of(source) is None or tensor_of(source).ndim < 2:
        return False
    value = tensor_of(source)
    if MEMORY in source.meta:
        views = {node: tensor_of(node) for node in (source, matrix)}
    elif value.is_contiguous():
        views = followed(source, _with_zeros(value), makers, kept, PRODUCTS) or {}
    else:
        views = {}
    if matrix not in views:
        return False
    short = _short_sides(views[matrix])
    if not short <= _short_sides(views[source]):
        return False
    source.meta[MEMORY] = padded_sizes(value.shape)
    lay_out(views)
    return True


def _short_sides(value: torch.Tensor) -> set[tuple[int, int]]:
    """Size and stride of each side of a matrix that needs padding."""
    sides = zip(value.shape[-2:], value.stride()[-2:], strict=True)
    return {(size, stride) for size, stride in sides if size != rounded(size)}


def _lay_out(node: fx.Node, value: torch.Tensor) -> None:
    node.meta["val"] = value
    for _, user in reads_of(node):
        if not is_view(user):
            continue
        try:
            user.meta["val"] = computed(user)
        except (RuntimeError, ValueError):  # the view does not exist for these strides
            user.target = torch.ops.aten.reshape.default
