"""Partitions a graph of torch ops into regions; each region becomes one definition.

A node joins the regions of its operands, so a region is connected; two regions that read one tensor
are merged. The regions must stay acyclic: no path may leave a region and return, neither through
values nor through the order of side effects (fuser.adapters.graph.effects). Ops that other
processes may wait for are not delayed. One traversal in graph order decides everything, with a bit
set per region of the regions that must run before it.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from fuser.adapters import aten
from fuser.adapters.graph.borders import without_borders
from fuser.adapters.graph.effects import Effects, reaches_outside
from fuser.adapters.lone_ops import at_the_edges, is_tiny, lifetimes, lone_op, pays, stays
from fuser.adapters.nodes import (
    device_of,
    hint,
    is_number,
    is_write,
    kind_of,
    tensor_inputs,
    tensor_of,
    writes,
)
from fuser.adapters.torch_compat import OpOverload
from fuser.adapters.triton_kernels import is_memory_of_launch

# Maximum sibling regions tried for a merge, the nearest in the graph.
_TRIED = 4
# Maximum nodes of a region; larger regions would only be split into several kernels.
LARGEST = 256
# Maximum nodes of merged updates of inputs, which keep separate kernels in horizontal launches.
LARGEST_UPDATE = 4096


@dataclass(frozen=True)
class Write:
    """A copy of a value into an input, at the end of a graph.

    readers  nodes that read the old value, or a view of it
    joins    True if the region that computes the value may store it
    """

    readers: list[fx.Node]
    joins: bool


@dataclass(eq=False)
class Region:
    """Nodes of one definition, in graph order, and its dependencies."""

    bits: int  # its own bit, and the bits of regions merged into it
    epoch: int
    nodes: list[fx.Node] = field(default_factory=list)
    waits: int = 0  # bits of the regions that must run before it, directly or indirectly
    # Nodes that must run before without being operands: they read overwritten inputs, or have
    # earlier side effects.
    after: list[fx.Node] = field(default_factory=list)
    latest: int = 0  # graph index of the last torch op that must run before


@dataclass
class Partition:
    """Regions in the order of their first nodes, and the reason for each node left to torch. final:
    the copies into inputs, which run after all readers of these inputs.
    """

    regions: list[list[fx.Node]]
    left: dict[fx.Node, str]
    final: Mapping[fx.Node, Write] = field(default_factory=dict)


def is_made_anywhere(node: fx.Node) -> bool:
    """True if each region that reads the node can recompute it without operands."""
    return kind_of(node) == "create" and why_not(node) is None


def why_not(node: fx.Node) -> str | None:
    """The reason why torch computes this node, if a definition cannot."""
    if node.op != "call_function":
        return node.op
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return why_not(source)
    if not isinstance(node.target, OpOverload):
        return "not an op of torch"
    name = str(node.target)
    found = aten.row(name)
    if found is None:
        # Ops with a FLOP count are library calls: products, convolutions, attention.
        library = node.target.overloadpacket in flop_registry or node.target.namespace == "mkldnn"
        return "a library call" if library else aten.NO_ROW
    if found.kind == "library":
        return "a library call"
    if is_memory_of_launch(node):
        return "memory that a Triton kernel writes"
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    reason = _foreign(values) or _of_complex(node, found.kind, values)
    if reason:
        return reason
    args, kwargs = aten.bind(name, *_values(node.args, node.kwargs))
    return aten.refusal(name, args, kwargs)


def _values(args: Any, kwargs: Any) -> Any:
    """Replaces nodes in the arguments by their values."""
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
    # The memory of a lazy conjugate holds the unconjugated value; results of regions have no
    # conjugate bit.
    reads = [n.meta.get("val") for n in node.all_input_nodes if why_not(n) is not None]
    lazy = any(isinstance(t, torch.Tensor) and t.is_conj() for t in reads)
    shown = node.target is torch.ops.aten._conj.default and stays(node)
    return "complex numbers" if lazy or shown else None


class _Walk:
    """State of the traversal of one graph."""

    def __init__(self, graph: fx.Graph, final: Mapping[fx.Node, Write]) -> None:
        self.final = final
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.effects = Effects(graph.nodes)
        self.outward: list[fx.Node] = []  # ops that other processes may wait for
        self.epoch = 0  # incremented by every op that writes to a tensor; no region spans epochs
        self.owners: list[Region] = []  # region by bit number
        self.regions: dict[Region, None] = {}
        self.home: dict[fx.Node, Region] = {}
        self.waits: dict[fx.Node, int] = {}  # bits of dependencies, for nodes outside regions
        self.awaited = 0  # bits of all regions that are a dependency
        self.left: dict[fx.Node, str] = {}

    # ---- dependencies

    def behind(self, node: fx.Node) -> int:
        """Bits of all regions that must have run before this node's value is available."""
        home = self.home.get(node)
        if home is not None:
            return home.waits | home.bits
        return self.closed(self.waits.get(node, 0))

    def closed(self, bits: int) -> int:
        """Transitive closure of dependencies. The youngest region depends on most of the older
        ones, so few are visited.
        """
        result = bits
        while bits:
            region = self.owners[bits.bit_length() - 1]
            result |= region.bits | region.waits
            bits &= ~(region.bits | region.waits)
        return result

    def grow(self, region: Region, bits: int) -> None:
        """Adds dependencies to `region` and to all regions that depend on it."""
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
        """True if one of these nodes, computed outside the regions `within`, depends on
        `region`.
        """
        if not region.bits & self.awaited:
            return False
        for node in nodes:
            home = self.home.get(node)
            if home is not None and home in within:
                continue
            if self.behind(node) & region.bits:
                return True
        return False

    # ---- effects outside the process

    def due(self, region: Region) -> float:
        """Graph index of the first op with an outside effect that depends on `region`. The op must
        start no later than in the graph, because it may overlap with later ops. Each op with an
        outside effect depends on all dependencies of the previous one.
        """
        if not region.bits & self.awaited:
            return inf
        first = bisect_left(
            self.outward, True, key=lambda node: bool(self.behind(node) & region.bits)
        )
        return self.order[self.outward[first]] if first < len(self.outward) else inf

    def latest(self, node: fx.Node) -> int:
        """Graph index of the last torch op that must run before this node's value is available."""
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
            reason = "internal to an op that torch computes" if home is None else None
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
            # Each region that reads it recomputes it; torch computes it for other readers.
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
        """Adds a final copy to the region that computes the copied value, if the region can run
        after all readers of the old value.
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
        self.left[node] = "not computed by a region"
        self.outside(node, [*node.all_input_nodes, *write.readers])

    def outside(self, node: fx.Node, inputs: Iterable[fx.Node]) -> None:
        """Records the dependencies of a node outside regions."""
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
        """True if the merged regions would depend on another operand of `node` that depends on
        them.
        """
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
        # A path from one to the other through a third region ends in an operand of the latter.
        if b.waits & a.bits and self.returns_to(a, _sources(b), both):
            return False
        return not (a.waits & b.bits and self.returns_to(b, _sources(a), both))

    def merge(self, a: Region, b: Region) -> Region:
        """Merges region b into a."""
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
        """Merges regions that read one tensor if its bytes count: the tensor is read once, and
        common subexpressions are computed once.
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
        """Merges regions that overwrite graph inputs and have no dependents, e.g. the steps of an
        optimizer, whose kernels become few launches. They only read inputs or tiny tensors, so no
        memory stays alive longer.
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

    def join_lone_ops(self, graph: fx.Graph, apart: Collection[fx.Node]) -> None:
        """Merges regions of one small op each, e.g. copies of queries, keys and values to another
        layout: kernels of one op are mostly equal, so that they become one launch. The operands of
        all must exist when the first one runs, and only few bytes may be held longer. Ops in
        `apart` stay alone.
        """
        ops = ((op, r) for r in self.regions if (op := lone_op(r.nodes)) and op not in apart)
        lives = lifetimes(graph)
        groups: dict[Any, tuple[Region, int, int]] = {}  # by op: region, first index, spare bytes
        for op, region in sorted(ops, key=lambda found: self.order[found[0]]):
            first, start, spare = groups.get(op.target, (region, 0, 0))
            held = lives.held(op, self.order[op])
            if region.latest < start and held <= spare and self.mergeable(first, region):
                self.merge(first, region)
                groups[op.target] = first, start, spare - held
            else:
                groups[op.target] = region, self.order[op], lives.spare

    def parts(self) -> Iterator[list[fx.Node]]:
        """Nodes of each region in graph order, without views at its borders."""
        for region in self.regions:
            yield without_borders(sorted(region.nodes, key=self.order.__getitem__))


def _updates(region: Region, smallest: int) -> bool:
    inside = set(region.nodes)
    if not any(is_write(node) for node in region.nodes) or not pays(region.nodes, smallest):
        return False
    if any(u.op != "output" and u not in inside for node in region.nodes for u in node.users):
        return False
    return all(
        n in inside or n.op in ("placeholder", "get_attr") or is_tiny(n)
        for node in region.nodes
        for n in tensor_inputs(node)
    )


def _sources(region: Region) -> list[fx.Node]:
    return [*region.after, *(n for node in region.nodes for n in node.all_input_nodes)]


def _walks_no_more_than(region: Region, value: torch.Tensor) -> bool:
    """True if no tensor of the region has more elements than `value`, i.e. `value` is no parameter
    or statistic of a row. Symbolic sizes count with their hints.
    """
    elements = prod(map(hint, value.shape))
    given = (t for n in region.nodes if (t := tensor_of(n)) is not None)
    return all(prod(map(hint, t.shape)) <= elements for t in given)


def partition(
    graph: fx.Graph, smallest: int = 2, final: Mapping[fx.Node, Write] | None = None
) -> Partition:
    """Partitions a graph of nodes with FakeTensors in meta["val"]. final: its final copies into
    inputs (fuser.adapters.graph.mutation).

    A region has at least `smallest` computing nodes, or one reduction. Views at its borders are
    left to torch, which creates them without touching data, except views that read one memory
    twice. Symbolic sizes are never compared, so no guard is added.
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
    edges: list[list[fx.Node]] = []
    if walk.epoch == 0:
        alone = (n for nodes in walk.parts() if not pays(nodes, smallest) for n in nodes)
        edges = at_the_edges(sorted(alone, key=order.__getitem__), smallest, LARGEST)
    inside = {n for nodes in edges for n in nodes}
    walk.join_lone_ops(graph, inside)
    kept = list(edges)
    for nodes in walk.parts():
        if pays(nodes, smallest):
            kept.append(nodes)
        else:
            walk.left.update((n, "alone") for n in nodes if n not in inside)
    kept.sort(key=lambda nodes: order[nodes[0]])
    return Partition(kept, walk.left, walk.final)
