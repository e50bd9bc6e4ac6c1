"""Reductions over groups of few channels of channels-last images, in two steps.

The elements of such a group lie apart in memory, in runs of few channels: a kernel that reduces a
group would read run by run. In two steps, one kernel reduces the pixels of each channel and reads
whole vectors of channels; a small one combines the channels of a group. A variance combines the
variances of its channels and the distances of their means (Chan et al., "Updating formulae and a
pairwise algorithm for computing sample variances", 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.views import has_numbers
from fuser.adapters.nodes import call_node, from_front, is_view, tensor_of

aten = torch.ops.aten
# Reductions that are rewritten.
SUMS = (aten.sum.dim_IntList, aten.mean.dim)
# Bytes of a run that a kernel reads at full speed: a sector of a GPU's cache line.
_SECTOR = 32


def reduce_in_two_steps(graph: fx.Graph) -> None:
    """Rewrites sums, means and variances of short groups, and gradients of their group norms."""
    for node in list(graph.nodes):
        if node.target is aten.native_group_norm_backward.default and _is_short_group_norm(node):
            _write_gradients(graph, node)
    totals = dict.fromkeys(n for n in graph.nodes if n.target in SUMS and outer_dims(n))
    pairs = ((node, _mean_of_squares(node)) for node in totals)
    means = {node: mean for node, mean in pairs if mean is not None and mean in totals}
    for node, mean in means.items():
        _combine_variances(graph, node, mean)
    for node in totals.keys() - means.keys() - set(means.values()):
        _sum_in_two_steps(graph, node)
    graph.eliminate_dead_code()


def outer_dims(node: fx.Node) -> list[int]:
    """Reduced dims outside of the run of adjacent elements that a sum or mean combines, if the run
    is shorter than a sector. Empty for other reductions.
    """
    source = node.args[0]
    if not isinstance(source, fx.Node) or not has_numbers(source) or len(node.args) < 2:
        return []
    value = tensor_of(source)
    dims: Any = node.args[1]
    if not isinstance(dims, list | tuple):
        return []
    return dims_behind_a_short_run(value, from_front(dims, value.ndim), _stored_bytes(source))


def _stored_bytes(node: fx.Node) -> int:
    """Bytes of an element of the tensor that a region reads for this node, before casts."""
    while is_view(node) or node.target is aten._to_copy.default:
        node = node.all_input_nodes[0]
    value = tensor_of(node)
    return 1 if value is None else int(value.element_size())


def dims_behind_a_short_run(value: torch.Tensor, reduced: Sequence[int], size: int) -> list[int]:
    """Reduced dims of a tensor but those of the innermost run, if the run is longer than an element
    and shorter than a sector, and other dims are between it and the rest.

    size  bytes of an element in memory
    """
    run, inner = 1, set()
    for d in sorted(range(value.ndim), key=value.stride):
        if value.shape[d] == 1:
            continue
        if value.stride(d) != run or d not in reduced:
            break
        run *= value.shape[d]
        inner.add(d)
    rest = [d for d in reduced if d not in inner and value.shape[d] > 1]
    short = run > 1 and run * size < _SECTOR
    return rest if short and prod(value.shape[d] for d in rest) >= _SECTOR else []


# ---- sums and variances


def _sum_in_two_steps(graph: fx.Graph, node: fx.Node) -> None:
    source: Any = node.args[0]
    dtype = tensor_of(node).dtype
    wide = torch.float32 if dtype.itemsize == 2 else dtype
    with graph.inserting_before(node):
        partial = call_node(graph, node.target, source, outer_dims(node), True, dtype=wide)
    node.args = (partial, *node.args[1:])
    node.kwargs = {"dtype": dtype}


def _mean_of_squares(node: fx.Node) -> fx.Node | None:
    """The mean, if the node is the sum of squares of the distances from it."""
    squares: Any = node.args[0]
    if node.target is not aten.sum.dim_IntList or not _is_square(squares):
        return None
    centered = squares.args[0]
    if centered.target is not aten.sub.Tensor or len(centered.args) > 2 or centered.kwargs:
        return None
    mean = centered.args[1]
    while isinstance(mean, fx.Node) and is_view(mean):
        mean = mean.all_input_nodes[0]
    if not isinstance(mean, fx.Node) or mean.target is not aten.mean.dim:
        return None
    dims: list[Any] = [mean.args[1], node.args[1]]
    equal = mean.args[0] is centered.args[0] and list(dims[0]) == list(dims[1])
    return mean if equal and not mean.kwargs and not node.kwargs else None


def _is_square(node: Any) -> bool:
    return node.target is aten.mul.Tensor and node.args[0] is node.args[1]


def _combine_variances(graph: fx.Graph, node: fx.Node, mean: fx.Node) -> None:
    """Rewrites a mean and the sum of squared distances from it."""
    source: Any = mean.args[0]
    dims, outer = mean.args[1], outer_dims(mean)
    sizes = tensor_of(source).shape
    with graph.inserting_before(mean):
        means = call_node(graph, aten.mean.dim, source, outer, True)
        centered = call_node(graph, aten.sub.Tensor, source, means)
        squares = call_node(graph, aten.mul.Tensor, centered, centered)
        sums = call_node(graph, aten.sum.dim_IntList, squares, outer, True)
        middle = call_node(graph, aten.mean.dim, means, dims, True)
        apart = call_node(graph, aten.sub.Tensor, means, middle)
        distances = call_node(graph, aten.mul.Tensor, apart, apart)
        count = prod(sizes[d] for d in outer)
        scaled = call_node(graph, aten.mul.Tensor, distances, float(count))
        both = call_node(graph, aten.add.Tensor, sums, scaled)
    mean.args = (means, *mean.args[1:])
    node.args = (both, *node.args[1:])


# ---- gradients of a group norm


def _is_short_group_norm(node: fx.Node) -> bool:
    arguments: list[Any] = list(node.args)
    gradient, image, _, _, weight, *_ = arguments
    groups = arguments[8]
    tensors = [n for n in (gradient, image, weight) if n is not None]
    if not all(isinstance(n, fx.Node) and has_numbers(n) for n in tensors):
        return False
    if type(groups) is not int or not isinstance(image, fx.Node):
        return False
    value = tensor_of(image)
    if value.ndim != 4 or value.dtype == torch.float64:
        return False
    n, c, h, w = value.shape
    strides = (value.stride(0), c // groups * value.stride(1), *value.stride()[1:])
    grouped = value.new_empty_strided((n, groups, c // groups, h, w), strides)
    return bool(dims_behind_a_short_run(grouped, [2, 3, 4], _stored_bytes(image)))


def _write_gradients(graph: fx.Graph, node: fx.Node) -> None:
    """Rewrites native_group_norm_backward by sums over the pixels of each channel."""
    arguments: list[Any] = list(node.args)
    gradient, image, mean, rstd, weight, *_ = arguments
    groups = arguments[8]
    value = tensor_of(image)
    n, c, h, w = value.shape
    sizes, channels = [n, groups, c // groups, h, w], [1, groups, c // groups, 1, 1]
    parameter = tensor_of(weight if weight is not None else image).dtype

    def call(op: Any, *args: Any) -> fx.Node:
        return call_node(graph, op, *args)

    def wide(t: Any, shape: Sequence[int]) -> fx.Node:
        if tensor_of(t).dtype != torch.float32:
            t = call_node(graph, aten._to_copy.default, t, dtype=torch.float32)
        return call(aten.view.default, t, list(shape))

    def narrow(t: fx.Node, dtype: torch.dtype, shape: Sequence[int]) -> fx.Node:
        t = call(aten.view.default, t, list(shape))
        return (
            t if dtype == torch.float32 else call_node(graph, aten._to_copy.default, t, dtype=dtype)
        )

    with graph.inserting_before(node):
        dy, x = wide(gradient, sizes), wide(image, sizes)
        middle, scale = (wide(t, [n, groups, 1, 1, 1]) for t in (mean, rstd))
        normal = call(aten.mul.Tensor, call(aten.sub.Tensor, x, middle), scale)
        shifts = call(aten.sum.dim_IntList, dy, [3, 4], True)
        slopes = call(aten.sum.dim_IntList, call(aten.mul.Tensor, dy, normal), [3, 4], True)
        factor = None if weight is None else wide(weight, channels)

        def weighted(t: fx.Node) -> fx.Node:
            return t if factor is None else call(aten.mul.Tensor, t, factor)

        shift, slope = (
            call(aten.mean.dim, call(aten.div.Scalar, weighted(t), float(h * w)), [2], True)
            for t in (shifts, slopes)
        )
        inner = call(aten.sub.Tensor, weighted(dy), shift)
        inner = call(aten.sub.Tensor, inner, call(aten.mul.Tensor, normal, slope))
        dx = call(aten.mul.Tensor, inner, scale)
        sums = [call(aten.sum.dim_IntList, t, [0], False) for t in (slopes, shifts)]
        results = [
            narrow(dx, value.dtype, value.shape),
            *(narrow(t, parameter, [c]) for t in sums),
        ]
    for result in list(node.users):
        place: Any = result.args[1]
        result.replace_all_uses_with(results[place])
        graph.erase_node(result)
    graph.erase_node(node)
