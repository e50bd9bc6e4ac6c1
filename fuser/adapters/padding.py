"""Large products of matrices with sizes that the GPU's libraries are slow with get padded ones.

What a region makes for such a product is written where zeros follow it, so that the product reads
it as the larger matrix that it begins; other matrices are copied. Of the result the beginning is
taken, a view. The graph's FakeTensors say afterwards how its tensors lie in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx

from fuser.adapters.layouts import followed, lay_out
from fuser.adapters.nodes import computed, is_view, reads_of, tensor_of
from fuser.adapters.products import (
    PRODUCTS,
    is_worth_padding,
    padded_sizes,
    rounded,
    with_zeros_behind,
)

# In a node's meta: sizes of the tensor, zero behind this one, at whose beginning it is written.
MEMORY = "memory"

_AS_STRIDED = torch.ops.aten.as_strided.default
_CLONE = torch.ops.aten.clone.default


def pad_products(
    graph: fx.Graph, makers: Collection[fx.Node], kept: Collection[fx.Node]
) -> list[fx.Node]:
    """Rewrites the graph's products where that pays. Gives the copies that this takes: each is to
    be a region, since torch copies rows of odd lengths element by element.

    makers  nodes of regions: the memory of what they give is ours to lay out
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
    """Nodes that torch will compute, not the region that they were in: what should have zeros
    behind it is copied there.
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
    """The strides that the graph's inputs will have, where they are not those it was traced with;
    views of such inputs that need a copy become reshapes.
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
    """Nothing is added, or the same to each row, which stays as long."""
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
    """The product of padded matrices, and of it the beginning; a copy of that, where somebody
    counts on the strides that were traced.
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
    """`by`, which reads `node`, for all others that do."""
    for user in [u for u in node.users if u is not by]:
        user.replace_input_with(node, by)


def _padded(
    graph: fx.Graph,
    matrix: fx.Node,
    makers: Collection[fx.Node],
    kept: Collection[fx.Node],
    copies: dict[fx.Node, fx.Node],
) -> fx.Node:
    """The larger matrix that `matrix` begins."""
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
    """A copy of `matrix` with zeros behind it. Where it is a view, perhaps the transpose, of rows
    that lie together, these are copied, once for all products that read them.
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
    """A matrix and what it is a view of, step by step, where the last of these is a copy with zeros
    behind it; None where there is no such view, or the last is neither the matrix nor dense.
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
    """How it lies in memory where zeros follow it."""
    whole = value.new_empty(padded_sizes(value.shape))
    return whole.as_strided(value.shape, whole.stride())


def _is_followed_by_zeros(
    matrix: fx.Node, makers: Collection[fx.Node], kept: Collection[fx.Node]
) -> bool:
    """Can what `matrix` is, or is a view of, be written into memory in which zeros follow each of
    its sides that are too short? Then it is from now on.
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
    """Size and stride of each side of a matrix that has to be longer."""
    sides = zip(value.shape[-2:], value.stride()[-2:], strict=True)
    return {(size, stride) for size, stride in sides if size != rounded(size)}


def _lay_out(node: fx.Node, value: torch.Tensor) -> None:
    node.meta["val"] = value
    for _, user in reads_of(node):
        if not is_view(user):
            continue
        try:
            user.meta["val"] = computed(user)
        except (RuntimeError, ValueError):  # there is no such view
            user.target = torch.ops.aten.reshape.default
