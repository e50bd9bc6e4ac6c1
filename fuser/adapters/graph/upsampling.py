"""Gathers that repeat elements, as torch traces nearest-neighbour F.interpolate.

Indices that depend on no input are evaluated at compile time. If each element of a dim is repeated
n times in a row, the gather becomes an expanded view and its gradient a sum. If few outputs read
each element, as in other interpolations, the gradient becomes a gather of the output gradients.
Torch's gradient would sort the indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.sizes import Numbers
from fuser.adapters.nodes import call_node, computed, in_order, is_view, tensor_of
from fuser.adapters.torch_compat import OpOverload, pytree, unset_fake_temporarily

aten = torch.ops.aten
_LONGEST = 1 << 16  # maximum elements of an index
# Output positions that read each element of a dim, and a mask of existing readers unless all exist.
_Reader = tuple[torch.Tensor, torch.Tensor | None]
_Size = Any  # int, or a node that gives it; always int for dims that repeat
_MOST_READERS = 9  # per element; torch sorts the indices if more are summed


def repeat_by_views(graph: fx.Graph) -> None:
    """Rewrites these gathers and their gradients. A gradient gets the memory layout of the summed
    tensor, and its users follow, even if torch traced row-major strides.
    """
    gathers = (aten._unsafe_index.Tensor, aten._unsafe_index_put.default)
    found = [node for node in graph.nodes if node.target in gathers]
    moved: set[fx.Node] = set()
    known: dict[fx.Node, torch.Tensor | None] = {}
    numbers = Numbers(graph)
    for node in found:
        source, indices = node.args[0], node.args[1]
        sizes = tensor_of(source).shape
        with unset_fake_temporarily():
            given = [i and _constant(i, known) for i in indices]
            is_known = all(i is None or t is not None for i, t in zip(indices, given, strict=True))
            times = _repetitions(sizes, given) if is_known else None
            readers = _readers(sizes, given) if is_known and times is None else None
        if readers is not None and _adds_to_zero(node):
            with graph.inserting_before(node):
                result = _added_up(graph, node.args[2], readers)
            moved.add(result)
            node.replace_all_uses_with(result)
            graph.erase_node(node)
            continue
        if times is None or (wanted := numbers.sizes(tensor_of(source), node)) is None:
            continue
        with graph.inserting_before(node):
            if node.target is aten._unsafe_index.Tensor:
                result = _repeated(graph, source, wanted, times)
            elif _adds_to_zero(node):
                result = _summed(graph, node.args[2], wanted, times)
                moved.add(result)
            else:
                continue
        if result not in moved:
            result.meta["val"] = tensor_of(node)
        node.replace_all_uses_with(result)
        graph.erase_node(node)
    if found:
        graph.eliminate_dead_code()
        _lay_out(graph, moved)


def _lay_out(graph: fx.Graph, moved: set[fx.Node]) -> None:
    """Recomputes the FakeTensors of users of these nodes with their new strides."""
    for node in graph.nodes:
        if node.op != "call_function" or moved.isdisjoint(node.all_input_nodes):
            continue
        try:
            value = computed(node)
        except (RuntimeError, ValueError):
            if not is_view(node):
                raise
            node.target = aten.reshape.default
            value = computed(node)
        before = [
            t.stride() for t in pytree.tree_leaves(node.meta["val"]) if isinstance(t, torch.Tensor)
        ]
        if before != [t.stride() for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]:
            moved.add(node)
        node.meta["val"] = value


def _constant(node: fx.Node, known: dict[fx.Node, torch.Tensor | None]) -> torch.Tensor | None:
    """Value of the node on the CPU if it depends on no input."""
    for n in in_order(node, lambda n: n.all_input_nodes, known):
        known[n] = _computed_here(n, known) if _is_constant(n, known) else None
    return known[node]


def _is_constant(node: fx.Node, known: Mapping[fx.Node, torch.Tensor | None]) -> bool:
    value = tensor_of(node)
    return (
        isinstance(node.target, OpOverload)
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and value is not None
        and all(type(n) is int for n in value.shape)
        and value.numel() <= _LONGEST
        and all(known[n] is not None for n in node.all_input_nodes)
    )


def _computed_here(node: fx.Node, known: Mapping[fx.Node, torch.Tensor | None]) -> torch.Tensor:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: known[n])
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    result: torch.Tensor = node.target(*args, **kwargs)  # type: ignore[operator]
    return result


def _repetitions(sizes: Sequence[Any], indices: Sequence[torch.Tensor | None]) -> list[int] | None:
    """Repetitions of the elements of each dim, if the gather only repeats elements."""
    own = _of_own_dims(sizes, indices)
    if own is None:
        return None
    times = [1] * len(sizes)
    for dim, index in own.items():
        count, size = index.numel(), sizes[dim]
        if count % size or not torch.equal(index, torch.arange(count) // (count // size)):
            return None
        times[dim] = count // size
    return times


def _readers(
    sizes: Sequence[Any], indices: Sequence[torch.Tensor | None]
) -> dict[int, list[_Reader]] | None:
    """First, second, ... reader of each element, by indexed dim, if no element has too many
    readers.
    """
    own = _of_own_dims(sizes, indices)
    if own is None:
        return None
    found = {}
    for dim, index in own.items():
        size = sizes[dim]
        order = torch.argsort(index, stable=True)
        counts = torch.bincount(index, minlength=size)
        starts = counts.cumsum(0) - counts
        found[dim] = [
            (
                order[(starts + n).clamp(max=index.numel() - 1)],
                None if (counts > n).all() else counts > n,
            )
            for n in range(int(counts.max()))
        ]
    return found if prod(map(len, found.values())) <= _MOST_READERS else None


def _of_own_dims(
    sizes: Sequence[Any], indices: Sequence[torch.Tensor | None]
) -> dict[int, torch.Tensor] | None:
    """Index vectors by dim, if the gather indexes the last dims, each by a tensor along its own
    dim.
    """
    first = next((d for d, i in enumerate(indices) if i is not None), len(indices))
    given = [i for i in indices[first:] if i is not None]
    if len(indices) != len(sizes) or len(given) != len(sizes) - first or not given:
        return None
    found = {}
    for dim, index in enumerate(given, first):
        size, flat = sizes[dim], index.flatten()
        wanted = [flat.numel(), *[1] * (len(sizes) - 1 - dim)]
        if type(size) is not int or not flat.numel() or list(index.shape) != wanted:
            return None
        if index.dtype != torch.int64 or not ((flat >= -size) & (flat < size)).all():
            return None
        found[dim] = torch.where(flat < 0, flat + size, flat)
    return found


def _adds_to_zero(node: fx.Node) -> bool:
    is_put = node.target is aten._unsafe_index_put.default and len(node.args) == 4
    return is_put and bool(node.args[3]) and _is_zero(node.args[0])


def _is_zero(node: Any) -> bool:
    zeros = (aten.new_zeros.default, aten.zeros.default, aten.zeros_like.default)
    full = (aten.full.default, aten.new_full.default)
    return node.target in zeros or (node.target in full and node.args[-1] == 0)


def _split(sizes: Sequence[_Size], times: Sequence[int]) -> list[_Size]:
    """Sizes with a dim of `times` after each dim that repeats."""
    pairs = zip(sizes, times, strict=True)
    return [n for size, t in pairs for n in ([size, t] if t > 1 else [size])]


def _repeated(
    graph: fx.Graph, source: fx.Node, sizes: Sequence[_Size], times: Sequence[int]
) -> fx.Node:
    x = source
    for dim in reversed([d for d, t in enumerate(times) if t > 1]):
        x = call_node(graph, aten.unsqueeze.default, x, dim + 1)
    x = call_node(graph, aten.expand.default, x, _split(sizes, times))
    x = call_node(graph, aten.clone.default, x, memory_format=torch.contiguous_format)
    pairs = zip(sizes, times, strict=True)
    return call_node(graph, aten.view.default, x, [n if t == 1 else n * t for n, t in pairs])


def _summed(graph: fx.Graph, g: fx.Node, sizes: Sequence[_Size], times: Sequence[int]) -> fx.Node:
    repeats = [d for d, t in enumerate(times) if t > 1]
    if not repeats:  # a sum over no dims would mean a sum over all dims
        return call_node(graph, aten.clone.default, g)
    x = call_node(graph, aten.view.default, g, _split(sizes, times))
    result = call_node(graph, aten.sum.dim_IntList, x, [d + i + 1 for i, d in enumerate(repeats)])
    result.meta["val"] = _ordered_like(tensor_of(result), tensor_of(g))
    return result


def _added_up(graph: fx.Graph, g: fx.Node, readers: Mapping[int, list[_Reader]]) -> fx.Node:
    """Sums the elements of g over the readers of each element, dim by dim."""
    x = g
    for dim in reversed(list(readers)):
        behind = tensor_of(g).ndim - 1 - dim
        total: fx.Node | None = None
        for places, exist in readers[dim]:
            indices = [*[None] * dim, _held(graph, places, g)]
            part = call_node(graph, aten._unsafe_index.Tensor, x, indices)
            if exist is not None:
                mask = _held(graph, exist, g)
                mask = call_node(graph, aten.view.default, mask, [-1, *[1] * behind])
                kind = {"dtype": tensor_of(g).dtype, "device": tensor_of(g).device}
                zero = call_node(graph, aten.full.default, [], 0, **kind)
                part = call_node(graph, aten.where.self, mask, part, zero)
            total = part if total is None else call_node(graph, aten.add.Tensor, total, part)
        assert total is not None
        x = total
    return x


def _held(graph: fx.Graph, value: torch.Tensor, like: fx.Node) -> fx.Node:
    """Registers a tensor as buffer of the graph's module, on the device of `like`."""
    module, fake = graph.owning_module, tensor_of(like)
    assert module is not None
    name = f"_fuser_places_{len(list(module.buffers()))}"
    with unset_fake_temporarily():
        held = value.to(fake.device)
    module.register_buffer(name, held, persistent=False)
    node = graph.get_attr(name)
    node.meta["val"] = fake.fake_mode.from_tensor(held, static_shapes=True)
    return node


def _ordered_like(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A dense FakeTensor with the dim order of `other`."""
    order = sorted(range(other.ndim), key=lambda d: -other.stride()[d])
    inverse = [order.index(d) for d in range(other.ndim)]
    return value.new_empty([value.shape[d] for d in order]).permute(inverse)
