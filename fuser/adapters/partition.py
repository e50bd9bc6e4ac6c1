"""Which nodes of a graph of torch's ops become one definition: regions.

A node joins the regions that it reads from, so a region is one connected piece of work; two regions
that read the same tensor become one. No region may wait for itself: a path may not leave a region
and come back, neither through values nor through the order of effects (fuser.adapters.effects). An
op that other processes may wait for is not held back. Everything is decided in one walk in the
graph's order, with one bit set for each region that says for which regions it waits.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from fuser.adapters import aten
from fuser.adapters.borders import without_borders
from fuser.adapters.effects import Effects, reaches_outside
from fuser.adapters.nodes import (
    device_of,
    hint,
    is_number,
    is_write,
    kind_of,
    reads_of,
    tensor_inputs,
    tensor_of,
    writes,
)

# Siblings that a region is tried to be joined with, the nearest in the graph.
_TRIED = 4
# A region of more nodes gains nothing: it becomes several kernels anyway.
LARGEST = 256
# What joins updates of inputs side by side: the kernels are those of the parts.
LARGEST_UPDATE = 4096
# Elements that a GPU computes in the time of a launch.
SMALL = 1 << 22
# Elements that may lie in memory for longer than they are needed: a bias, not a matrix.
_TINY = 1 << 14


@dataclass(frozen=True)
class Write:
    """A copy of a value into an input, at the end of a graph.

    readers  nodes that read the old value, or a view of it
    joins    may the region that computes the value write it?
    """

    readers: list[fx.Node]
    joins: bool


@dataclass(eq=False)
class Region:
    """Nodes of one definition, in the graph's order, and what it waits for."""

    bits: int  # its own, and those of the regions that became part of it
    epoch: int
    nodes: list[fx.Node] = field(default_factory=list)
    waits: int = 0  # bits of the regions that must run before, by any path
    # Not read: they read what it overwrites, or have their effects before it.
    after: list[fx.Node] = field(default_factory=list)
    latest: int = 0  # the place in the graph of the last op of torch that must run before


@dataclass
class Partition:
    """Regions in the order of their first nodes, and for nodes left to torch the reason. final: the
    copies into inputs, which run behind all that reads these.
    """

    regions: list[list[fx.Node]]
    left: dict[fx.Node, str]
    final: Mapping[fx.Node, Write] = field(default_factory=dict)


def is_made_anywhere(node: fx.Node) -> bool:
    """Is it made from nothing, and can each region that reads it make it again?"""
    return kind_of(node) == "create" and why_not(node) is None


def why_not(node: fx.Node) -> str | None:
    """Why torch computes this node; None where a definition can."""
    if node.op != "call_function":
        return node.op
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return why_not(source)
    if not isinstance(node.target, torch._ops.OpOverload):
        return "not an op of torch"
    name = str(node.target)
    found = aten.row(name)
    if found is None:
        # Torch counts operations of what libraries compute: products, convolutions, attention.
        return "a library call" if node.target.overloadpacket in flop_registry else aten.NO_ROW
    if found.kind == "library":
        return "a library call"
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    reason = _foreign(values) or _of_complex(node, found.kind, values)
    if reason:
        return reason
    args, kwargs = aten.bind(name, *_values(node.args, node.kwargs))
    return aten.refusal(name, args, kwargs)


def _values(args: Any, kwargs: Any) -> Any:
    """Arguments with what the nodes give."""
    return fx.node.map_arg((args, kwargs), lambda n: n.meta.get("val"))


def _foreign(values: Iterable[Any]) -> str | None:
    for value in values:
        for t in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(t, torch.Tensor):
                continue
            if t.layout != torch.strided or t.is_quantized:
                return "not a plain tensor"
            if t.device.type not in ("cpu", "cuda"):
                return f"a tensor on {t.device.type}"
            if any(isinstance(n, int) and n == 0 for n in t.shape):
                return "a tensor without elements"
    return None


# Arithmetic of rotary embeddings, forward and backward.
_ON_COMPLEX = {
    *(torch.ops.aten.complex.default, torch.ops.aten._conj.default, torch.ops.aten.polar.default),
    *(torch.ops.aten.view_as_complex.default, torch.ops.aten.view_as_real.default),
    *(torch.ops.aten.mul.Tensor, torch.ops.aten.neg.default),
}


def _of_complex(node: fx.Node, kind: str, values: Iterable[Any]) -> str | None:
    complexes = [t for t in values if isinstance(t, torch.Tensor) and t.dtype.is_complex]
    if not complexes:
        return None
    if node.target not in _ON_COMPLEX and kind != "view":
        return "complex numbers"
    # Memory of a lazy conjugate is not what it says; results of ours have no such mark.
    reads = [n.meta.get("val") for n in node.all_input_nodes if why_not(n) is not None]
    lazy = any(isinstance(t, torch.Tensor) and t.is_conj() for t in reads)
    shown = node.target is torch.ops.aten._conj.default and _stays(node)
    return "complex numbers" if lazy or shown else None


class _Walk:
    """State of the walk over one graph."""

    def __init__(self, graph: fx.Graph, final: Mapping[fx.Node, Write]) -> None:
        self.final = final
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.effects = Effects(graph.nodes)
        self.outward: list[fx.Node] = []  # ops that other processes may wait for
        self.epoch = 0  # grows with every op that writes into a tensor: no region spans it
        self.owners: list[Region] = []  # by the number of a bit
        self.regions: dict[Region, None] = {}
        self.home: dict[fx.Node, Region] = {}
        self.waits: dict[fx.Node, int] = {}  # of nodes outside regions
        self.awaited = 0  # bits of all regions that anything waits for
        self.left: dict[fx.Node, str] = {}

    # ---- what waits for what

    def behind(self, node: fx.Node) -> int:
        """Bits of all regions that must have run before this node's value is there."""
        home = self.home.get(node)
        if home is not None:
            return home.waits | home.bits
        return self.closed(self.waits.get(node, 0))

    def closed(self, bits: int) -> int:
        """These regions and all that they wait for. The youngest waits for most of the others, so
        that few are asked.
        """
        result = bits
        while bits:
            region = self.owners[bits.bit_length() - 1]
            result |= region.bits | region.waits
            bits &= ~(region.bits | region.waits)
        return result

    def grow(self, region: Region, bits: int) -> None:
        """`region` waits for these too, and so does all that waits for it."""
        bits &= ~region.bits
        if not bits & ~region.waits:
            return
        region.waits |= bits
        self.awaited |= bits
        if region.bits & self.awaited:
            for other in self.regions:
                if other.waits & region.bits:
                    other.waits |= bits

    def returns_to(
        self, region: Region, nodes: Iterable[fx.Node], within: Collection[Region]
    ) -> bool:
        """Does one of these nodes, computed outside the regions `within`, wait for `region`?"""
        if not region.bits & self.awaited:
            return False
        for node in nodes:
            home = self.home.get(node)
            if home is not None and home in within:
                continue
            if self.behind(node) & region.bits:
                return True
        return False

    # ---- what other processes wait for

    def due(self, region: Region) -> float:
        """The place in the graph of the first op with an effect outside that waits for `region`:
        such an op starts no later than in the graph, where it may run beside what follows. Each
        waits for all that the one before it waits for.
        """
        if not region.bits & self.awaited:
            return inf
        first = bisect_left(
            self.outward, True, key=lambda node: bool(self.behind(node) & region.bits)
        )
        return self.order[self.outward[first]] if first < len(self.outward) else inf

    def latest(self, node: fx.Node) -> int:
        """The place of the last op of torch that must run before this node's value is there."""
        home = self.home.get(node)
        if home is not None:
            return home.latest
        return 0 if kind_of(node) == "create" else self.order[node]

    # ---- joining

    def visit(self, node: fx.Node) -> None:
        inputs = node.all_input_nodes
        reason = why_not(node)
        if reason is None and kind_of(node) == "part":
            home = self.home.get(inputs[0])
            reason = "a part of what torch computes" if home is None else None
            if home is not None:
                self.add(home, node)
                return
        if reason is not None:
            if node.op == "call_function" and not is_number(node) and kind_of(node) != "part":
                self.left[node] = reason
                self.epoch += writes(node)
            self.outside(node, self.effects.sources(node))
            if reaches_outside(node):
                self.outward.append(node)
            return
        if kind_of(node) == "create":
            # Made again in every region that reads it; torch makes it for others.
            self.outside(node, inputs)
            return
        joined: Region | None = None
        for source in inputs:
            region = self.home.get(source)
            if region is None or region is joined:
                continue
            if joined is None:
                if self.fits(region, node):
                    joined = region
            elif self.mergeable(joined, region) and not self.blocked(joined, region, node):
                joined = self.merge(joined, region)
        self.add(joined or self.new(), node)

    def overwrite(self, node: fx.Node) -> None:
        """A copy at the graph's end joins the region that computes what it copies, if that can run
        behind all that reads the old value.
        """
        write, value = self.final[node], node.args[1]
        assert isinstance(value, fx.Node)
        region = self.home.get(value) if write.joins else None
        if write.joins and kind_of(value) == "create":
            region = self.new()
        if region is not None and region.epoch == self.epoch:
            others = [n for n in write.readers if self.home.get(n) is not region]
            if not self.returns_to(region, others, {region}):
                region.nodes.append(node)
                region.after += others
                self.home[node] = region
                self.grow(region, self.before(others))
                return
        self.left[node] = "not the result of a region"
        self.outside(node, [*node.all_input_nodes, *write.readers])

    def outside(self, node: fx.Node, inputs: Iterable[fx.Node]) -> None:
        """`node` is in no region; it waits for what these wait for."""
        if bits := self.before(inputs):
            self.waits[node] = bits
            self.awaited |= bits

    def before(self, inputs: Iterable[fx.Node]) -> int:
        bits = 0
        for source in inputs:
            bits |= self.behind(source)
        return bits

    def new(self) -> Region:
        region = Region(1 << len(self.owners), self.epoch)
        self.owners.append(region)
        self.regions[region] = None
        return region

    def add(self, region: Region, node: fx.Node) -> None:
        region.nodes.append(node)
        region.after += self.effects.previous.get(node, ())
        self.home[node] = region
        others = [n for n in self.effects.sources(node) if self.home.get(n) is not region]
        region.latest = max([region.latest, *map(self.latest, others)])
        self.grow(region, self.before(others))

    def fits(self, region: Region, node: fx.Node) -> bool:
        if len(region.nodes) >= LARGEST or region.epoch != self.epoch:
            return False
        if device_of(region.nodes[0]) != device_of(node):
            return False
        sources = self.effects.sources(node)
        if self.outward and max(map(self.latest, sources), default=0) > self.due(region):
            return False
        return not self.returns_to(region, sources, {region})

    def blocked(self, a: Region, b: Region, node: fx.Node) -> bool:
        """Would the two, as one, wait for another input of `node`, which waits for them?"""
        both = {a, b}
        sources = self.effects.sources(node)
        return self.returns_to(a, sources, both) or self.returns_to(b, sources, both)

    def mergeable(self, a: Region, b: Region, largest: int = LARGEST) -> bool:
        if len(a.nodes) + len(b.nodes) > largest or a.epoch != b.epoch:
            return False
        if device_of(a.nodes[0]) != device_of(b.nodes[0]):
            return False
        if self.outward and (a.latest > self.due(b) or b.latest > self.due(a)):
            return False
        both = {a, b}
        # A path from one to the other through a third is an input of the latter.
        if b.waits & a.bits and self.returns_to(a, _sources(b), both):
            return False
        return not (a.waits & b.bits and self.returns_to(b, _sources(a), both))

    def merge(self, a: Region, b: Region) -> Region:
        """b becomes part of a."""
        for node in b.nodes:
            self.home[node] = a
        a.nodes += b.nodes
        a.after += b.after
        a.latest = max(a.latest, b.latest)
        del self.regions[b]
        bits = b.bits
        while bits:
            number = bits.bit_length() - 1
            self.owners[number] = a
            bits ^= 1 << number
        a.bits |= b.bits
        a.waits = (a.waits | b.waits) & ~a.bits
        if a.bits & self.awaited:
            for other in self.regions:
                if other.waits & a.bits:
                    other.waits |= a.bits | a.waits
        return a

    # ---- siblings

    def join_siblings(self, nodes: Iterable[fx.Node]) -> None:
        """Regions that read one tensor become one where its bytes count: they are read once, and
        what is computed from them in both is computed once.
        """
        for node in nodes:
            value = tensor_of(node)
            if value is None or value.ndim == 0 or len(node.users) < 2:
                continue
            known: list[Region] = []
            for user in node.users:
                region = self.home.get(user)
                if region is None or region is self.home.get(node) or region in known[-_TRIED:]:
                    continue
                if value.ndim == 1 and not _walks_no_more_than(region, value):
                    continue
                for first in known[: -_TRIED - 1 : -1]:
                    if self.mergeable(first, region):
                        self.merge(first, region)
                        break
                else:
                    known.append(region)

    def join_updates(self, smallest: int) -> None:
        """Regions that overwrite inputs of the graph, and that nobody waits for, become one: the
        steps of an optimizer, whose kernels are few launches. They read what lies in memory anyway,
        or is tiny, so that no memory is held for longer.
        """
        first: dict[Any, Region] = {}
        for region in list(self.regions):
            if not _updates(region, smallest):
                continue
            known = first.setdefault(device_of(region.nodes[0]), region)
            if known is region:
                continue
            if self.mergeable(known, region, LARGEST_UPDATE):
                self.merge(known, region)
            else:
                first[device_of(region.nodes[0])] = region


def _updates(region: Region, smallest: int) -> bool:
    inside = set(region.nodes)
    if not any(is_write(node) for node in region.nodes) or not _pays(region.nodes, smallest):
        return False
    if any(u.op != "output" and u not in inside for node in region.nodes for u in node.users):
        return False
    return all(
        n in inside or n.op in ("placeholder", "get_attr") or _is_tiny(n)
        for node in region.nodes
        for n in tensor_inputs(node)
    )


def _sources(region: Region) -> list[fx.Node]:
    return [*region.after, *(n for node in region.nodes for n in node.all_input_nodes)]


def _walks_no_more_than(region: Region, value: torch.Tensor) -> bool:
    """Has no tensor of the region more elements? `value` is no parameter of a row, no statistic.
    Sizes with symbols are as they were traced.
    """
    elements = prod(map(hint, value.shape))
    given = (t for n in region.nodes if (t := tensor_of(n)) is not None)
    return all(prod(map(hint, t.shape)) <= elements for t in given)


def partition(
    graph: fx.Graph, smallest: int = 2, final: Mapping[fx.Node, Write] | None = None
) -> Partition:
    """The regions of a graph whose nodes carry FakeTensors in meta["val"]. final: the copies into
    inputs that stand at its end (fuser.adapters.mutation).

    A region has at least `smallest` nodes that compute, or one that reduces. Views at its borders
    are not part of it, since torch makes them without touching data, but for those that read one
    memory twice. Nothing is compared whose size is symbolic, so no guard is added.
    """
    walk = _Walk(graph, final or {})
    order = walk.order
    for node in graph.nodes:
        if node not in walk.final:
            walk.visit(node)
    for node in walk.final:
        walk.overwrite(node)
    walk.join_siblings(graph.nodes)
    walk.join_updates(smallest)
    kept: list[list[fx.Node]] = []
    alone: list[fx.Node] = []
    for region in walk.regions:
        nodes = without_borders(sorted(region.nodes, key=order.__getitem__))
        if _pays(nodes, smallest):
            kept.append(nodes)
        else:
            alone += nodes
    if walk.epoch == 0:
        kept += _at_the_edges(sorted(alone, key=order.__getitem__), smallest)
    inside = {n for nodes in kept for n in nodes}
    walk.left.update((n, "alone") for n in alone if n not in inside)
    kept.sort(key=lambda nodes: order[nodes[0]])
    return Partition(kept, walk.left, walk.final)


def _at_the_edges(alone: Iterable[fx.Node], smallest: int) -> list[list[fx.Node]]:
    """Regions of small ops that stand alone, such as the casts of weights and of gradients: their
    kernels, mostly of one text, are one launch. They run at the beginning of the graph, where they
    read its inputs only, or at its end, where nothing else reads them; and their results live until
    its end anyway, or are tiny, so that no memory is held for longer than the small operands.
    """
    found: dict[Any, list[fx.Node]] = {}
    for node in alone:
        if kind_of(node) != "compute" or not _is_small(node):
            continue
        first = all(n.op == "placeholder" for n in node.all_input_nodes)
        first &= _stays(node) or _is_tiny(node)
        if first or all(user.op == "output" for user in node.users):
            found.setdefault((device_of(node), first), []).append(node)
    regions = [
        nodes[i : i + LARGEST] for nodes in found.values() for i in range(0, len(nodes), LARGEST)
    ]
    return [nodes for nodes in regions if len(nodes) >= smallest]


def _is_tiny(node: fx.Node) -> bool:
    value = tensor_of(node)
    return value is None or (_has_numbers(value) and value.numel() <= _TINY)


def _is_small(node: fx.Node) -> bool:
    """Does its kernel take no longer than a launch?"""
    value = tensor_of(node)
    return value is not None and all(type(n) is int for n in value.shape) and value.numel() <= SMALL


def _stays(node: fx.Node) -> bool:
    """Is it, or a view of it, a result of the graph?"""
    return any(user.op == "output" for _, user in reads_of(node))


def _pays(nodes: list[fx.Node], smallest: int) -> bool:
    """More than torch's own kernels would do one by one."""
    computing = [n for n in nodes if kind_of(n) in ("compute", "random") or is_write(n)]
    return len(computing) >= smallest or any(
        aten.reduces(str(n.target)) or _is_walked_by_elements(n) for n in computing
    )


def _is_walked_by_elements(node: fx.Node) -> bool:
    """Would torch compute a large result without vectors? It does where an operand has another
    dtype, or lies in another way.
    """
    result = tensor_of(node)
    if result is None or _is_small(node):
        return False
    given = [t for n in node.all_input_nodes if (t := tensor_of(n)) is not None and t.ndim]
    return any(
        t.dtype != result.dtype or t.shape != result.shape or t.stride() != result.stride()
        for t in given
        if _has_numbers(t) and _has_numbers(result)
    )


def _has_numbers(value: torch.Tensor) -> bool:
    return all(type(n) is int for n in (*value.shape, *value.stride()))
