"""Replaces as_strided of complete tensors by views that fuse. Torch emits as_strided for pooling of
channels-last images, forward and backward; a permute and a view are equivalent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fuser.adapters.nodes import computed, tensor_of

_ATEN = torch.ops.aten
_ROW_MAJOR: dict[str, Any] = {"memory_format": torch.contiguous_format}


def replace_dense_strided_views(graph: fx.Graph) -> None:
    """Replaces an as_strided that shows each element of a tensor once by permutes and a view.
    Replaces an as_strided_scatter that overwrites a complete tensor by its source. Results of the
    graph stay unchanged: their strides are promised, also for dims of size 1.
    """
    results = set(next(n for n in graph.nodes if n.op == "output").all_input_nodes)
    for node in list(graph.nodes):
        if node.target is _ATEN.as_strided.default and node not in results:
            _replace(node, node.args[0], *_layout(node.args))
        elif node.target is _ATEN.as_strided_scatter.default and node not in results:
            _overwrite(node)


def _layout(args: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Sizes, strides and offset of an as_strided."""
    return args[1], args[2], args[3] if len(args) > 3 else None


def _numbers(given: Any) -> list[Any] | None:
    """Sizes or strides as numbers or symbols."""
    if not isinstance(given, list | tuple):
        return None
    return [n.meta.get("val") if isinstance(n, fx.Node) else n for n in given]


def _replace(node: fx.Node, source: Any, sizes: Any, strides: Any, offset: Any) -> None:
    value = tensor_of(source)
    shown, steps = _numbers(sizes), _numbers(strides)
    if value is None or shown is None or steps is None or not _whole(source, offset):
        return
    before = _memory_order(value.shape, value.stride())
    after = _memory_order(shown, steps)
    if before is None or after is None or not _equal(value.numel(), _product(shown)):
        return
    _put(node, source, before, list(sizes), after)


def _overwrite(node: fx.Node) -> None:
    """Replaces as_strided_scatter(base, part, ...) by `part` if it covers the base."""
    given = list[Any](node.args)
    base, part = given[:2]
    _, strides, offset = _layout(given[1:])
    value, written = tensor_of(base), tensor_of(part)
    steps = _numbers(strides)
    if value is None or written is None or steps is None or not _whole(base, offset):
        return
    after = _memory_order(value.shape, value.stride())
    order = _memory_order(written.shape, steps)
    if order is None or after is None or not _equal(value.numel(), written.numel()):
        return
    if written.dtype == value.dtype:
        _put(node, part, order, list(value.shape), after)


def _whole(source: Any, offset: Any) -> bool:
    """True if the offset, counted from the start of the storage, is the tensor's first element."""
    if offset is None:
        return True
    known = isinstance(source, fx.Node) and source.op == "call_function"
    return known and _equal(offset, tensor_of(source).storage_offset())


def _memory_order(sizes: Sequence[Any], strides: Sequence[Any]) -> list[int] | None:
    """Dims from the outermost in memory to the innermost, after dims of size 1, if there are no
    gaps.
    """
    ones = [d for d, n in enumerate(sizes) if _equal(n, 1)]
    left = [d for d in range(len(sizes)) if d not in ones]
    order: list[int] = []
    expected: Any = 1
    while left:
        following = next((d for d in left if _equal(strides[d], expected)), None)
        if following is None:
            return None
        left.remove(following)
        order.append(following)
        expected = expected * sizes[following]
    return ones + order[::-1]


def _equal(a: Any, b: Any) -> bool:
    return bool(statically_known_true(a == b))


def _product(sizes: Sequence[Any]) -> Any:
    product: Any = 1
    for n in sizes:
        product = product * n
    return product


def _put(node: fx.Node, source: Any, before: list[int], sizes: list[Any], after: list[int]) -> None:
    """Replaces the node: permutes the source to memory order, reshapes it, and permutes the dims to
    their positions.
    """
    graph = node.graph
    with graph.inserting_before(node):

        def step(op: Any, *args: Any) -> fx.Node:
            named = _ROW_MAJOR if op is _ATEN.clone.default else {}
            made = graph.call_function(op, args, named)
            made.meta = {**node.meta, "val": computed(made)}
            return made

        result = source
        if before != sorted(before):
            result = step(_ATEN.permute.default, result, before)
        in_memory = [sizes[d] for d in after]
        if list(tensor_of(result).shape) != in_memory:
            if not tensor_of(result).is_contiguous():
                result = step(_ATEN.clone.default, result)
            result = step(_ATEN.view.default, result, in_memory)
        if after != sorted(after):
            result = step(
                _ATEN.permute.default, result, [after.index(d) for d in range(len(after))]
            )
    node.replace_all_uses_with(result)
    graph.erase_node(node)
