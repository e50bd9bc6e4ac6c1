"""Removes redundant views, and creates views directly from their base: each view in torch costs as
much host time as a launch.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import fx

from fuser import Unsupported
from fuser.adapters import aten
from fuser.adapters.nodes import from_front, hint, is_view, reads_of, tensor_of, writes
from fuser.adapters.torch_compat import OpOverload
from fuser.layout import compute_tensor_descriptor

# Ops that keep the row-major numbers of elements.
RESHAPES = {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}
_CLONE = torch.ops.aten.clone.default


def drop_views(graph: fx.Graph, places: Collection[int]) -> None:
    """Replaces views, or chains of views, by their source if the memory layout is equal: transposed
    twice, reshaped and back, detached. Merges two reshapes into one.

    Results of the graph stay unchanged, except at `places`. First, reductions drop kept dims that
    their only user removes.
    """
    output = next(n for n in graph.nodes if n.op == "output")
    for node in list(graph.nodes):
        _reduce_away(node)
    results = list(output.args[0])
    for node in list(graph.nodes):
        _shorten(node)
        source = _same(node)
        if source is None:
            continue
        node.replace_all_uses_with(source, delete_user_cb=lambda user: user is not output)
        for place in places:
            if results[place] is node:
                results[place] = source
    output.args = (type(output.args[0])(results),)
    for node in reversed(list(graph.nodes)):
        if is_view(node) and not node.users:
            graph.erase_node(node)


def merge_copies(graph: fx.Graph) -> None:
    """Merges equal copies of one tensor, e.g. of a mask that each layer copies, unless an op writes
    to a tensor. A result of the graph keeps memory of its own.
    """
    if any(writes(node) for node in graph.nodes):
        return
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.target is not _CLONE or any(user.op == "output" for _, user in reads_of(node)):
            continue
        key = (node.args[0], *sorted(node.kwargs.items()))
        if (first := seen.setdefault(key, node)) is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _shorten(node: fx.Node) -> None:
    """Merges two reshapes into one."""
    first = node.args[0] if node.args else None
    if not (isinstance(first, fx.Node) and {node.target, first.target} <= RESHAPES):
        return
    source = first.args[0]
    assert isinstance(source, fx.Node)
    if has_numbers(source) and tensor_of(source).is_contiguous():
        node.args = (source, *node.args[1:])


def _reduce_away(node: fx.Node) -> None:
    """Clears keepdim of a reduction if a reshape removes the kept dims, e.g. in the gradient of a
    bias.
    """
    user = next(iter(node.users), None)
    if user is None or len(node.users) > 1 or user.target not in RESHAPES:
        return
    if not aten.reduces(str(node.target)):
        return
    assert isinstance(node.target, OpOverload)
    names = [a.name for a in node.target._schema.arguments]
    args, value, wanted = list(node.args), tensor_of(node), tensor_of(user)
    places = [names.index(name) if name in names else len(args) for name in ("dim", "keepdim")]
    if max(places) >= len(args) or args[places[1]] is not True or value is None or wanted is None:
        return
    dims: Any = args[places[0]]
    gone = from_front(dims if isinstance(dims, list) else [dims], value.ndim)
    if not gone or list(wanted.shape) != [n for d, n in enumerate(value.shape) if d not in gone]:
        return
    args[places[1]] = False
    node.args = tuple(args)
    node.meta["val"] = wanted
    user.replace_all_uses_with(node)
    node.graph.erase_node(user)


def _same(node: fx.Node) -> fx.Node | None:
    """Nearest node in the chain of views with an equal memory layout."""
    wanted = _layout(node)
    while is_view(node) and wanted is not None:
        source = node.args[0]
        if not isinstance(source, fx.Node):
            return None
        if _layout(source) == wanted:
            return source
        node = source
    return None


def _layout(node: fx.Node) -> Any:
    """Dtype and memory layout of the tensor, if there is one; symbolic sizes as expressions."""
    value = tensor_of(node)
    if value is None:
        return None
    expressions = (n.node.expr if isinstance(n, torch.SymInt) else n for n in _numbers(value))
    return value.dtype, *expressions


def _numbers(value: torch.Tensor) -> tuple[int | torch.SymInt, ...]:
    """Sizes, strides and storage offset."""
    return *value.shape, *value.stride(), value.storage_offset()


def bases_of_views(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Maps views inside the graph to the base of their chain, if all sizes are numbers.

    Results are excluded, because they share the version counter of their source. Overwritten bases
    are excluded too: the view must show the overwritten memory.
    """
    written = {n for node in graph.nodes if writes(node) for n in node.all_input_nodes}
    results = {n for node in graph.nodes if node.op == "output" for n in node.all_input_nodes}
    bases: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        base = node
        while is_view(base) and (tensor_of(base) is None or _shares_memory(base, node)):
            source = base.args[0]
            assert isinstance(source, fx.Node)
            base = source
        if base is node or base in written or node in results or not _shares_memory(base, node):
            continue
        if has_numbers(node) and has_numbers(base) and not tensor_of(node).dtype.is_complex:
            bases[node] = base
    return bases


def owner_of(node: fx.Node) -> fx.Node:
    """The node whose memory the tensor uses, according to op schemas."""
    while is_view(node) or _may_alias(node):
        node = node.all_input_nodes[0]
    return node


def memory_of(node: Any) -> dict[int, torch.UntypedStorage]:
    """Storages of the strided tensors of a node, by their identity."""
    given = node.meta.get("val") if isinstance(node, fx.Node) else None
    tensors = given if isinstance(given, list | tuple) else [given]
    plain = (t for t in tensors if isinstance(t, torch.Tensor) and t.layout == torch.strided)
    storages = (t.untyped_storage() for t in plain)
    return {storage._cdata: storage for storage in storages}


def _may_alias(node: fx.Node) -> bool:
    """True if torch's schema says that the result may be an argument or a view of it."""
    schema = getattr(node.target, "_schema", None)
    aliases = schema is not None and any(r.alias_info is not None for r in schema.returns)
    return aliases and bool(node.all_input_nodes)


def has_numbers(node: fx.Node) -> bool:
    """True if the node gives a tensor with a layout without symbols."""
    value = tensor_of(node)
    return value is not None and all(type(n) is int for n in _numbers(value))


def _shares_memory(a: fx.Node, b: fx.Node) -> bool:
    """True if both tensors have one dtype and share memory."""
    x, y = tensor_of(a), tensor_of(b)
    if x is None or y is None or x.dtype != y.dtype:
        return False
    return not memory_of(a).keys().isdisjoint(memory_of(b))


def stride_order(value: torch.Tensor) -> list[int]:
    """The order of the dims of a dense tensor in memory, 0 the innermost. Uses hints of symbolic
    sizes, so no guard is added. Raises Unsupported if memory has gaps or overlaps. If possible, the
    order also reproduces the strides of dims of size 1.
    """
    sizes, strides = ([hint(n) for n in numbers] for numbers in (value.shape, value.stride()))
    innermost_first = sorted(range(len(sizes)), key=lambda d: (strides[d], sizes[d] != 1))
    products = accumulate((sizes[d] for d in innermost_first), operator.mul, initial=1)
    if all(strides[d] == n for d, n in zip(innermost_first, products, strict=False)):
        return [innermost_first.index(d) for d in range(len(sizes))]
    contiguity, order = compute_tensor_descriptor(sizes, strides)
    spread = any(n > 1 and s == 0 for n, s in zip(sizes, strides, strict=True))
    if spread or any(c is False for c in contiguity):
        raise Unsupported(f"unsupported strides {strides} of a result of sizes {sizes}")
    # Prefer row-major if only dims of size 1, whose strides are meaningless, differ.
    real = [d for d in range(len(sizes)) if sizes[d] != 1]
    if all(strides[a] >= strides[b] for a, b in pairwise(real)):
        return list(range(len(sizes) - 1, -1, -1))
    return order


def has_gaps(value: torch.Tensor) -> bool:
    """True if no result of a definition can have the tensor's layout."""
    try:
        stride_order(value)
    except Unsupported:
        return True
    return False


def laid_out(given: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy with these strides."""
    memory = torch.empty_strided(given.shape, strides, dtype=given.dtype, device=given.device)
    return memory.copy_(given)
