"""Memory layouts of region results that only certain readers see.

A convolution copies operands of another layout on every call, and rows that are not contiguous cost
normalizations a transpose. A region writes all layouts at equal speed, if it also reads them so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.views import RESHAPES, has_gaps, has_numbers, laid_out
from fuser.adapters.nodes import computed, is_view, reads_of, tensor_of
from fuser.adapters.torch_compat import suggest_memory_format

# Argument indices of the images, and of the weight.
CONVOLUTIONS: dict[object, tuple[tuple[int, ...], int]] = {
    torch.ops.aten.convolution.default: ((0,), 1),
    torch.ops.aten.convolution_backward.default: ((0, 1), 2),
}


_CAST = torch.ops.aten._to_copy.default
_CLONE = torch.ops.aten.clone.default

# Argument index of the tensor that is normalized along its last dims.
NORMS: dict[object, int] = {
    torch.ops.aten.native_layer_norm.default: 0,
    torch.ops.aten.native_layer_norm_backward.default: 1,
}


def lay_out_for_readers(
    graph: fx.Graph, makers: Collection[fx.Node], kept: Collection[fx.Node]
) -> None:
    """Gives images that regions compute for convolutions with channels-last weights that layout,
    and makes the rows of normalized tensors contiguous if only regions read them. Copies for matrix
    products keep their columns, and operands that are broadcast along rows have such rows.

    makers  nodes of regions, with results that may have any layout
    kept    results of the graph that only its own backward graph reads
    """
    for node in graph.nodes:
        if node.target in CONVOLUTIONS:
            places, weight = CONVOLUTIONS[node.target]
            if _is_channels_last(node.args[weight]):
                for place in places:
                    _lay_out(node.args[place], torch.channels_last, makers, kept, CONVOLUTIONS)
        elif node.target in PRODUCTS:
            _copy_columns(node, makers, kept)
        elif node.target in NORMS and node in makers:
            rows = node.args[NORMS[node.target]]
            while rows in makers and not is_view(rows):
                _lay_out(rows, torch.contiguous_format, makers, kept, ())
                rows = rows.args[0] if rows.target is _CAST else None
        elif node in makers and tensor_of(node) is not None:
            _lay_out_for_broadcast(node, makers, kept)


# Argument indices of the matrices of a product, which may be row-major or column-major.
PRODUCTS: dict[object, tuple[int, int]] = {
    torch.ops.aten.mm.default: (0, 1),
    torch.ops.aten.bmm.default: (0, 1),
    torch.ops.aten.addmm.default: (1, 2),
    torch.ops.aten.baddbmm.default: (1, 2),
}


def _copy_columns(product: fx.Node, makers: Collection[fx.Node], kept: Collection[fx.Node]) -> None:
    """Keeps copies of column-major matrices column-major, e.g. of keys with dims exchanged: the
    copy moves rows instead of a transposition.
    """
    for place in PRODUCTS[product.target]:
        operand = product.args[place]
        assert isinstance(operand, fx.Node)
        copy = operand
        while is_view(copy):
            copy = copy.all_input_nodes[0]
        if copy.target is not _CLONE or copy not in makers:
            continue
        value, source = tensor_of(copy), tensor_of(copy.all_input_nodes[0])
        if not has_numbers(copy) or not value.is_contiguous() or not _is_column_major(source):
            continue
        wanted = value.new_empty(value.mT.shape).mT
        views = followed(copy, wanted, makers, kept, PRODUCTS)
        if views is not None and _is_column_major(views[operand]):
            lay_out(views)


def _is_column_major(value: torch.Tensor) -> bool:
    """True if columns of the matrices are contiguous and rows are not; columns are aligned for
    tensor cores, unless rows are not either.
    """
    if value.ndim < 2 or 1 in value.shape[-2:] or value.stride(-2) != 1:
        return False
    rows, columns = (n * value.element_size() % 16 for n in value.shape[-2:])
    return rows == 0 or columns != 0


def _lay_out_for_broadcast(
    node: fx.Node, makers: Collection[fx.Node], kept: Collection[fx.Node]
) -> None:
    """Makes a region's result row-major if other ops read it several times each, along rows, e.g. a
    position bias of attention, whose layout is that of the gather from its table.
    """
    if not has_numbers(node) or tensor_of(node).is_contiguous() or _is_channels_last(node):
        return
    views = followed(node, tensor_of(node).new_empty(tensor_of(node).shape), makers, kept, ())
    if views is None:
        return
    reads = [(views[n], user) for n, user in reads_of(node) if user.op != "output"]
    values = [(read, tensor_of(user)) for read, user in reads if not is_view(user)]
    if values and all(
        wide is not None
        and wide.numel() > read.numel()
        and wide.is_contiguous()
        and wide.shape[-1:] == read.shape[-1:]
        and read.stride(-1) == 1
        for read, wide in values
        if read.numel() > 1
    ):
        lay_out(views)


def write_slices_apart(graph: fx.Graph, regions: Sequence[list[fx.Node]]) -> None:
    """Makes regions write slices of a value if only slices are read outside. The whole tensor would
    stay alive as long as any slice.
    """
    makers = {n: nodes for nodes in regions for n in nodes}
    for nodes in regions:
        inside = set(nodes)
        for node in list(nodes):
            outside = [user for user in node.users if user not in inside]
            if outside and not is_view(node) and all(_is_slice(user, node) for user in outside):
                elements = sum(tensor_of(user).numel() for user in outside)
                if elements < tensor_of(node).numel():
                    for view in outside:
                        _write_apart(graph, view, node, makers)


def _is_slice(view: fx.Node, node: fx.Node) -> bool:
    """True if `view` is a view of `node` only, and its layout has no symbols."""
    return is_view(view) and view.all_input_nodes == [node] and has_numbers(view)


def _write_apart(
    graph: fx.Graph, view: fx.Node, node: fx.Node, makers: Mapping[fx.Node, list[fx.Node]]
) -> None:
    dense = tensor_of(view).clone()
    views = followed(view, dense, makers, (), ())
    if views is None:
        return
    with graph.inserting_after(node):
        part = graph.node_copy(view)
    with graph.inserting_after(part):
        copy = graph.call_function(torch.ops.aten.clone.default, (part,))
    copy.meta["val"] = dense
    view.replace_all_uses_with(copy)
    graph.erase_node(view)
    if view in makers:  # in another region
        makers[view].remove(view)
    nodes = makers[node]
    place = nodes.index(node) + 1
    nodes[place:place] = [part, copy]
    lay_out({n: value for n, value in views.items() if n is not view})


def write_without_gaps(
    graph: fx.Graph, regions: Sequence[Sequence[fx.Node]], kept: Collection[fx.Node]
) -> None:
    """Makes region results dense. In torch, a value that is copied into a slice of a tensor has the
    slice's strides, with gaps, even if it is a separate tensor. Regions and the views that they
    read accept the dense tensor. Other readers of the traced strides get a copy with these strides.

    kept  results of the graph that only its own backward graph reads
    """
    makers = {n for nodes in regions for n in nodes}
    for node in [n for nodes in regions for n in nodes]:
        value = tensor_of(node)
        if value is None or is_view(node) or not has_gaps(value):
            continue
        reads = list(reads_of(node))
        puts = all(user.args[1] is n for n, user in reads if user.target in _PUTTING)
        # A reshape with symbolic sizes would add guards.
        views = None
        if has_numbers(node) or not any(user.target in RESHAPES for _, user in reads):
            dense = value.new_empty(value.shape)
            views = followed(node, dense, makers, kept, _PUTTING if puts else ())
        if views is not None:
            lay_out(views)
        elif has_numbers(node):
            _copy_for_others(graph, node, reads, makers)


def _copy_for_others(
    graph: fx.Graph,
    node: fx.Node,
    reads: Sequence[tuple[fx.Node, fx.Node]],
    makers: Collection[fx.Node],
) -> None:
    """Makes the region write `node` dense. Nodes outside regions read a copy with the traced
    strides, and views of the copy.
    """
    value = tensor_of(node)
    with graph.inserting_after(node):
        copy = graph.call_function(laid_out, (node, tuple(value.stride())))
    copy.meta["val"], node.meta["val"] = value, value.new_empty(value.shape)
    instead = {node: copy}
    for source, user in reads:
        if source not in instead:
            continue
        if user not in makers:
            user.replace_input_with(source, instead[source])
        elif is_view(user):
            with graph.inserting_after(user):
                instead[user] = graph.node_copy(user, lambda n: instead.get(n, n))


# Ops that put their second argument into a copy of the first.
_PUTTING = {
    *(torch.ops.aten.slice_scatter.default, torch.ops.aten.select_scatter.default),
    *(torch.ops.aten.diagonal_scatter.default, torch.ops.aten.as_strided_scatter.default),
}


def _lay_out(
    node: Any,
    layout: torch.memory_format,
    makers: Collection[fx.Node],
    kept: Collection[fx.Node],
    readers: Collection[object],
) -> None:
    """Gives a region's result this layout if `followed` allows it."""
    if node not in makers or not has_numbers(node) or _has(node, layout):
        return
    wanted = tensor_of(node).contiguous(memory_format=layout)
    views = followed(node, wanted, makers, kept, readers)
    if views is not None:
        lay_out(views)


def _has(node: fx.Node, layout: torch.memory_format) -> bool:
    if layout == torch.channels_last:
        return _is_channels_last(node)
    return bool(tensor_of(node).is_contiguous())


def _is_channels_last(node: Any) -> bool:
    """True if a convolution would treat the tensor as channels-last. Decided by strides, because
    1x1 images match both formats.
    """
    value = tensor_of(node)
    if value is None or value.ndim != 4 or not has_numbers(node):
        return False
    return suggest_memory_format(value) == torch.channels_last


def lay_out(views: dict[fx.Node, torch.Tensor]) -> None:
    """Stores these FakeTensors in the nodes."""
    for node, value in views.items():
        node.meta["val"] = value


def followed(
    node: fx.Node,
    value: torch.Tensor,
    makers: Collection[fx.Node],
    kept: Collection[fx.Node],
    readers: Collection[object],
) -> dict[fx.Node, torch.Tensor] | None:
    """Returns FakeTensors for `node` with the layout of `value`, and for all its views. Returns
    None if a reader depends on the traced strides, i.e. it is neither in a region nor one of the
    ops `readers`.
    """
    found = {node: value}
    for source, user in reads_of(node):
        if user.op == "output":
            if source not in kept:
                return None
        elif is_view(user):
            try:
                found[user] = computed(user, found)
            except (RuntimeError, ValueError):  # the view does not exist for this layout
                return None
        elif user not in makers and user.target not in readers:
            return None
    return found
