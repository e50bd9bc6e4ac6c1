"""Convolution networks with row-major images, turned to channels-last.

The fast kernels of convolution libraries take channels-last images. For row-major programs, the
library copies images and weights into that layout and results back, in each call. This pass turns
the images of all convolutions of a graph. Ops between them follow by torch's rules. Copies are left
at the borders: results that the program sees keep their strides.

The pass compares the bytes of both kinds of copies. A region reads and writes any layout, so it
needs no copy. A 1x1 weight has equal memory in both layouts and becomes a view.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fuser.adapters import aten
from fuser.adapters.graph.layouts import CONVOLUTIONS
from fuser.adapters.graph.partial_reductions import SUMS
from fuser.adapters.graph.views import has_numbers, laid_out
from fuser.adapters.nodes import (
    computed,
    from_front,
    is_write,
    kind_of,
    results_of,
    tensor_of,
    writes,
)
from fuser.adapters.partition import why_not
from fuser.adapters.torch_compat import OpOverload, suggest_memory_format

_CLONE = torch.ops.aten.clone.default
_AS_STRIDED = torch.ops.aten.as_strided.default
_CAST = torch.ops.aten._to_copy.default
# Ops that address memory by given strides.
_BY_STRIDES = {
    *(
        _AS_STRIDED,
        torch.ops.aten.as_strided_scatter.default,
        torch.ops.aten.as_strided_copy.default,
    ),
    *(torch.ops.aten.set_.source_Storage_storage_offset, torch.ops.aten.new_empty_strided.default),
}
_LAST = torch.channels_last
# Cost of a reduction over part of the channels, e.g. of a group norm, in bytes per byte of its
# operand: if fewer elements than a vector are adjacent, then its kernel reads one by one. A sum or
# mean reads its operand once more instead, in two steps.
_SHORT_RUNS = 12
_TWO_STEPS = 1


def turn_channels_last(graph: fx.Graph, kept: Collection[fx.Node]) -> None:
    """Turns the convolutions of the graph if that saves bytes of copies between layouts.

    kept  results of the graph that only its own backward graph reads
    """
    if not any(_may_turn(node) for node in graph.nodes):
        return
    if _forward_is_row_major(graph):
        return
    plan = _Plan(graph, kept)
    plan.follow()
    if plan.saved > plan.added:
        plan.commit()


def _may_turn(node: fx.Node) -> bool:
    """True if the library's kernels for this convolution are channels-last, and some operand is
    not.
    """
    if node.target not in CONVOLUTIONS:
        return False
    operands = _operands(node)
    if not all(has_numbers(n) and tensor_of(n).ndim == 4 for n in operands):
        return False
    return _prefers_last(tensor_of(operands[0])) and not all(
        map(_is_last, map(tensor_of, operands))
    )


def _forward_is_row_major(graph: fx.Graph) -> bool:
    """True for the backward graph of a forward graph that was not turned: most of the images that
    it saved are row-major, so its pointwise ops and norms are too.
    """
    saved = {False: 0, True: 0}
    for node in graph.nodes:
        if node.target is torch.ops.aten.convolution_backward.default:
            image = node.args[1]
            if image.op == "placeholder" and has_numbers(image):
                saved[_is_last(tensor_of(image))] += _bytes(tensor_of(image))
    return saved[False] > saved[True]


def _operands(node: fx.Node) -> list[fx.Node]:
    """Images and weight of a convolution."""
    images, weight = CONVOLUTIONS[node.target]
    return [n for i in (*images, weight) if isinstance(n := node.args[i], fx.Node)]


def _prefers_last(image: torch.Tensor) -> bool:
    """True if the library copies row-major images for its fastest kernels: oneDNN always, cuDNN for
    its tensor cores.
    """
    if image.device.type == "cpu":
        return image.dtype in (torch.float32, torch.bfloat16)
    half = image.dtype in (torch.float16, torch.bfloat16)
    return half or (image.dtype == torch.float32 and torch.backends.cudnn.allow_tf32)


def _is_last(value: torch.Tensor) -> bool:
    """True if a convolution treats the tensor as channels-last."""
    return value.ndim == 4 and suggest_memory_format(value) == _LAST


def _bytes(value: torch.Tensor) -> int:
    return value.numel() * value.element_size()


@dataclass
class _Plan:
    """New layouts of a graph before the graph is changed.

    values    FakeTensors that differ from the traced ones
    turned    inputs that are channels-last, traced row-major if the forward graph turned them
    last      readers of each copy into channels-last
    restored  readers of each copy into the traced layout
    saved     bytes that libraries copy in the graph as traced
    added     bytes of the copies of this plan that no region absorbs
    """

    graph: fx.Graph
    kept: Collection[fx.Node]
    values: dict[fx.Node, Any] = field(default_factory=dict)
    turned: set[fx.Node] = field(default_factory=set)
    last: dict[fx.Node, list[fx.Node]] = field(default_factory=dict)
    restored: dict[fx.Node, list[fx.Node]] = field(default_factory=dict)
    saved: int = 0
    added: int = 0

    def follow(self) -> None:
        """Computes the layouts of all nodes, in graph order."""
        for node in self.graph.nodes:
            if _may_turn(node):
                self.turn(node)
            elif node.op == "placeholder":
                if has_numbers(node) and _is_last(tensor_of(node)):
                    self.turned.add(node)
            elif node.op == "output":
                shown = [n for n in results_of(self.graph) if isinstance(n, fx.Node)]
                self.restore(node, [n for n in shown if n not in self.kept])
            else:
                changed = [n for n in node.all_input_nodes if n in self.values or n in self.turned]
                if changed and not self.follows(node):
                    self.restore(node, changed)

    def now(self, node: fx.Node) -> Any:
        return self.values[node] if node in self.values else node.meta["val"]

    def turn(self, node: fx.Node) -> None:
        operands = _operands(node)
        given = dict(self.values)
        for n in operands:
            value = self.now(n)
            if not _is_last(tensor_of(n)):
                self.saved += 2 * _bytes(value)
            if not _is_last(value):
                self.copy(self.last, n, node, free=_is_equal_memory(value))
                given[n] = _as_last(value)
        if not any(_is_last(tensor_of(n)) for n in operands):
            made = node.meta["val"]
            made = [made] if isinstance(made, torch.Tensor) else made
            self.saved += sum(2 * _bytes(t) for t in made if isinstance(t, torch.Tensor))
        self.values[node] = computed(node, given)

    def follows(self, node: fx.Node) -> bool:
        """Returns True if the node exists for the new layouts of its operands."""
        if not isinstance(node.target, OpOverload) or node.target in _BY_STRIDES:
            if kind_of(node) != "part":
                return False
        elif writes(node):
            return is_write(node)
        try:
            value = computed(node, self.values)
        except (RuntimeError, ValueError, TypeError):  # a view that does not exist
            return False
        if not _same_strides(value, node.meta["val"]):
            self.values[node] = value
        if isinstance(node.target, OpOverload) and aten.reduces(str(node.target)):
            self.added += self.slower(node)
        return True

    def slower(self, node: fx.Node) -> int:
        """Cost of a reduction whose operand has shorter runs than traced."""
        source, *rest = node.args
        if not isinstance(source, fx.Node) or not rest or not isinstance(rest[0], list | tuple):
            return 0
        before, now = tensor_of(source), self.now(source)
        dims: Sequence[Any] = rest[0]
        reduced = from_front(dims, now.ndim)
        vector = 16 if now.device.type == "cpu" else 16 // now.element_size()
        short = _run(now, reduced, vector) < min(vector, _run(before, reduced, vector))
        if not short:
            return 0
        twice = node.target in SUMS
        return (_TWO_STEPS if twice else _SHORT_RUNS) * _bytes(now)

    def restore(self, node: fx.Node, operands: Collection[fx.Node]) -> None:
        for n in operands:
            if n in self.values and isinstance(self.values[n], torch.Tensor):
                self.copy(self.restored, n, node, free=False)

    def copy(
        self, copies: dict[fx.Node, list[fx.Node]], node: fx.Node, reader: fx.Node, free: bool
    ) -> None:
        readers = copies.setdefault(node, [])
        if not readers and not free and not _is_written_by_region(node):
            self.added += 2 * _bytes(self.now(node))
        if reader not in readers:
            readers.append(reader)

    def commit(self) -> None:
        traced = {n: n.meta["val"] for n in self.values}
        for node, value in self.values.items():
            node.meta["val"] = value
        for node, readers in self.restored.items():
            _read_instead(readers, node, _restored(self.graph, node, traced[node]))
        for node, readers in self.last.items():
            if not self.cast_last(node, readers):
                _read_instead(readers, node, _turned(self.graph, node, readers[0]))

    def cast_last(self, node: fx.Node, readers: Collection[fx.Node]) -> bool:
        """Makes a cast write channels-last if all its readers may read that; returns True if so."""
        others = {u for u in node.users if u not in readers}
        allowed = {u for u in others if u.op == "output"} if node in self.kept else set()
        if node.target is not _CAST or others - allowed:
            return False
        node.kwargs = {**node.kwargs, "memory_format": _LAST}
        node.meta["val"] = _as_last(node.meta["val"])
        return True


def _read_instead(readers: Collection[fx.Node], node: fx.Node, copy: fx.Node) -> None:
    for reader in readers:
        reader.replace_input_with(node, copy)


def _same_strides(a: Any, b: Any) -> bool:
    """True if two values of a node have equal layouts."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.stride() == b.stride()
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return all(map(_same_strides, a, b))
    return True


def _run(value: torch.Tensor, reduced: Collection[int], vector: int) -> int:
    """Number of adjacent elements that a reduction combines; `vector` if it keeps neighbours."""
    run = 1
    for d in sorted(range(value.ndim), key=value.stride):
        if value.shape[d] == 1:
            continue
        if value.stride(d) != run or d not in reduced:
            return run if run > 1 else vector
        run *= value.shape[d]
    return run


def _is_written_by_region(node: fx.Node) -> bool:
    """True if a region may write the node in any layout."""
    return node.op == "call_function" and kind_of(node) != "view" and why_not(node) is None


def _is_equal_memory(value: torch.Tensor) -> bool:
    """True if both layouts have equal memory: images of one pixel or one channel."""
    sizes = value.shape
    return bool(value.is_contiguous() and (sizes[1] == 1 or (sizes[2] == 1 and sizes[3] == 1)))


def _as_last(value: torch.Tensor) -> torch.Tensor:
    """FakeTensor with the strides of channels-last, also for one pixel or channel."""
    n, c, h, w = value.shape
    return value.new_empty_strided((n, c, h, w), _last_strides(value))


def _last_strides(value: torch.Tensor) -> tuple[int, ...]:
    _, c, h, w = value.shape
    return (c * h * w, 1, w * c, c)


def _turned(graph: fx.Graph, node: fx.Node, first: fx.Node) -> fx.Node:
    """A channels-last copy or view of `node` before its first reader."""
    value = tensor_of(node)
    with graph.inserting_before(first):
        if _is_equal_memory(value) and not _is_written_by_region(node):
            copy = graph.call_function(
                _AS_STRIDED, (node, list(value.shape), list(_last_strides(value)))
            )
        else:
            copy = graph.call_function(_CLONE, (node,), {"memory_format": _LAST})
    copy.meta["val"] = _as_last(value)
    return copy


def _restored(graph: fx.Graph, node: fx.Node, traced: torch.Tensor) -> fx.Node:
    """A copy of `node` in its traced layout."""
    with graph.inserting_after(node):
        if traced.is_contiguous():
            named: dict[str, Any] = {"memory_format": torch.contiguous_format}
            copy = graph.call_function(_CLONE, (node,), named)
        else:
            copy = graph.call_function(laid_out, (node, tuple(traced.stride())))
    copy.meta["val"] = traced
    return copy
