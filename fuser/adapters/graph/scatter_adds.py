"""Scatter-adds by indices that are known at compile time, as gathers and sums.

Such a scatter is the gradient of a gather by constant indices, e.g. of F.interpolate or of a
padding by reflection. Torch would sort the indices. Here each element sums the positions that the
index maps to it, dim by dim, in a fixed order and in float32.

An interpolation scatters several products of one gradient and weights of single dims. Weights are
constant along the dims before their own, so they are applied after the sums over these dims. Then
the scatters have equal operands, and one tensor is summed for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from math import prod
from typing import Any

import torch
from torch import fx

from fuser.adapters.graph.index_vectors import Constants, Vector, repetitions
from fuser.adapters.graph.sizes import Numbers
from fuser.adapters.nodes import call_node, computed, hint, in_order, is_view, tensor_of
from fuser.adapters.torch_compat import pytree, unset_fake_temporarily

aten = torch.ops.aten
_PUTS = (aten._unsafe_index_put.default, aten.index_put.default)
# Maximum positions of an element that are summed one by one; more are a dim of a reduction.
_UNROLLED = 16
_LARGEST_WEIGHT = 1 << 16  # maximum elements of a weight that is read as a factor
# Maximum runs that are read in addition to the positions of an element, at the borders of a dim.
_BORDERS = 4
# Maximum positions read, with masked ones, per position of the scattered tensor in a reduction.
_MOST_MASKED = 4


@dataclass(frozen=True, eq=False)
class _Term:
    """A scatter-add to zeros.

    value    scattered tensor
    indices  index vector of each indexed dim, as its number in _Scatters.vectors
    """

    value: fx.Node
    indices: tuple[int, ...]


def gather_scatter_adds(graph: fx.Graph) -> None:
    """Rewrites these scatters. A result gets the memory layout of the summed tensor, and its users
    follow, even if torch traced row-major strides.
    """
    scatters = _Scatters(graph)
    moved = {scatters.rewrite(root, puts) for root, puts in scatters.sums().items()}
    if moved:
        graph.eliminate_dead_code()
        _lay_out(graph, moved)


class _Scatters:
    """Scatter-adds of one graph.

    dims     indexed dims of each scatter-add
    terms    operands of each scatter-add
    vectors  distinct index vectors with the size of their dim
    held     buffers by their values, and in `values` the reverse
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.numbers = Numbers(graph)
        self.dims: dict[fx.Node, list[int]] = {}
        self.terms: dict[fx.Node, _Term] = {}
        self.vectors: list[tuple[Vector, int]] = []
        self.held: dict[Any, fx.Node] = {}
        self.values: dict[fx.Node, torch.Tensor] = {}
        numbers: dict[Any, int] = {}
        self.constants = Constants()
        for node in graph.nodes:
            vectors = _constant_indices(node, self.constants)
            if vectors is None:
                continue
            sizes, indices = tensor_of(node).shape, []
            for dim, index in vectors.items():
                key = (index, sizes[dim])
                if key not in numbers:
                    numbers[key] = len(self.vectors)
                    self.vectors.append(key)
                indices.append(numbers[key])
            self.dims[node] = list(vectors)
            self.terms[node] = _Term(node.args[2], tuple(indices))

    def sums(self) -> dict[fx.Node, list[fx.Node]]:
        """The scatter-adds that each sum of nothing else adds, by the node of the sum."""
        found = {node: [node] for node in self.terms}
        for node in self.graph.nodes:
            if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
                continue
            a, b = node.args
            if a is b or not all(n in found and len(n.users) == 1 for n in (a, b)):
                continue
            if self._kind(found[a][0]) == self._kind(found[b][0]):
                found[node] = found.pop(a) + found.pop(b)
        return found

    def _kind(self, put: fx.Node) -> tuple[Any, ...]:
        value = tensor_of(put)
        return tuple(self.dims[put]), value.dtype, tuple(map(str, value.shape))

    def rewrite(self, root: fx.Node, puts: Sequence[fx.Node]) -> fx.Node:
        """Replaces a sum of scatter-adds; returns the node of the new sum."""
        dtype, dims = tensor_of(root).dtype, self.dims[puts[0]]
        is_half = dtype in (torch.float16, torch.bfloat16)
        terms = [self.terms[n] for n in puts]
        with self.graph.inserting_before(root):
            result = self._summed_at_once(dims, terms[0], root) if len(puts) == 1 else None
            if result is None:
                if is_half:
                    terms = [replace(t, value=self._cast(t.value, torch.float32)) for t in terms]
                for dim in dims:
                    terms = self._summed_along(dim, terms)
                result = self._added([t.value for t in terms])
                result = self._cast(result, dtype) if is_half else result
        root.replace_all_uses_with(result)
        return result

    def _summed_at_once(self, dims: Sequence[int], term: _Term, place: fx.Node) -> fx.Node | None:
        """One sum of a view, if each dim repeats its elements."""
        given = [self.vectors[n] for n in term.indices]
        times = {d: repetitions(*vector) for d, vector in zip(dims, given, strict=True)}
        if None in times.values():
            return None
        if all(t == 1 for t in times.values()):
            return self._call(aten.clone.default, term.value)
        split: list[Any] = []
        if (sizes := self.numbers.sizes(tensor_of(place), place)) is None:
            return None
        over = []
        for dim, size in enumerate(sizes):
            split.append(size)
            if times.get(dim, 1) != 1:
                over.append(len(split))
                split.append(times[dim])
        x = self._call(aten.view.default, term.value, split)
        return self._sum(x, over, term.value)

    def _sum(self, x: fx.Node, dims: list[int], like: fx.Node) -> fx.Node:
        """The sum over these dims, with the dim order of `like`."""
        result = self._call(aten.sum.dim_IntList, x, dims)
        result.meta["val"] = _ordered_like(tensor_of(result), tensor_of(like))
        return result

    def _summed_along(self, dim: int, terms: Sequence[_Term]) -> list[_Term]:
        """Terms without the first of their indices, summed along its dim."""
        like = terms[0].value
        linear = _Linear(lambda c: _is_constant_along(c, like, dim))
        groups: dict[tuple[Any, int], list[tuple[fx.Node, int]]] = {}
        for term in terms:
            first, *rest = term.indices
            leaf, form = linear.split(term.value)
            groups.setdefault((tuple(rest), form), []).append((leaf, first))
        made: dict[Any, fx.Node] = {}
        found = []
        for (rest, form), sources in groups.items():
            key = tuple(sources)
            if key not in made:
                made[key] = self._added([self._by_index(x, dim, n) for x, n in sources])
            found.append(_Term(linear.applied(form, made[key], self._call, self._folded), rest))
        return found

    def _by_index(self, x: fx.Node, dim: int, vector: int) -> fx.Node:
        """Sums positions of `x` along the dim by an index vector. A product with a weight is read
        as its factors, so that `x` need not be stored.
        """
        elements, size = self.vectors[vector]
        positions = _positions(elements, size)
        runs = _runs(elements, size, len(positions))
        linear = _Linear(lambda c: _elements(c) <= _LARGEST_WEIGHT)
        leaf, form = linear.split(x)
        narrow = leaf.args[0] if _is_widened(leaf) else leaf

        def read(how: Callable[..., fx.Node], which: Any) -> fx.Node:
            def weight(c: fx.Node) -> fx.Node:
                own = dim - tensor_of(x).ndim + tensor_of(c).ndim
                c = self._folded(c)
                return c if _is_constant_along(c, x, dim) else how(c, own, which)

            part = how(narrow, dim, which)
            if narrow is not leaf:
                part = self._cast(part, tensor_of(leaf).dtype)
            return linear.applied(form, part, self._call, weight)

        if runs is not None:
            return self._added([read(partial(self._spread, size=size), run) for run in runs])
        if len(positions) <= _UNROLLED:
            return self._added([read(self._gathered, row) for row in positions])
        rows = [list(row) for row in zip(*positions, strict=True)]
        return self._sum(self._gathered(x, dim, rows), [dim + 1], x)

    def _spread(self, x: fx.Node, dim: int, run: _Run, size: int) -> fx.Node:
        """The positions of a run along a dim of this size; 0 at all other elements."""
        first, last = sorted((run.position, run.position + run.step * (run.count - 1)))
        length = tensor_of(x).shape[dim]
        if (first, last + 1, run.step) != (0, length, 1):
            x = self._call(aten.slice.Tensor, x, dim, first, last + 1, abs(run.step))
        if run.step < 0 and run.count > 1:
            x = self._call(aten.flip.default, x, [dim])
        around = [run.element, size - run.element - run.count]
        if any(around):
            behind = [0, 0] * (tensor_of(x).ndim - 1 - dim)
            x = self._call(aten.constant_pad_nd.default, x, [*behind, *around], 0.0)
        return x

    def _gathered(self, x: fx.Node, dim: int, positions: list[Any]) -> fx.Node:
        """Elements at nested lists of positions along a dim; 0 if a position is None."""
        value = tensor_of(x)
        with unset_fake_temporarily():
            # -1 if there is no position
            index = torch.tensor(pytree.tree_map(lambda n: -1 if n is None else n, positions))
            exist = (index >= 0).view(*index.shape, *[1] * (value.ndim - 1 - dim))
            all_exist = bool(exist.all())
            index = index.clamp(min=0)
            if x in self.values:  # a weight: its factor is masked
                return self._held(_at(self.values[x], dim, index), x)
        place = self._held(index, x)
        part = self._call(aten._unsafe_index.Tensor, x, [*[None] * dim, place])
        if all_exist:
            return part
        zero = self._call(aten.full.default, [], 0, dtype=value.dtype, device=value.device)
        return self._call(aten.where.self, self._held(exist, x), part, zero)

    def _added(self, nodes: Sequence[fx.Node]) -> fx.Node:
        total = nodes[0]
        for node in nodes[1:]:
            total = self._call(aten.add.Tensor, total, node)
        return total

    def _cast(self, x: fx.Node, dtype: torch.dtype) -> fx.Node:
        return self._call(aten._to_copy.default, x, dtype=dtype)

    def _folded(self, x: fx.Node) -> fx.Node:
        """A buffer for a constant: weights must agree with the index vectors, also in rounding."""
        with unset_fake_temporarily():
            value = self.constants.value(x)
        return x if value is None else self._held(value, x)

    def _call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        return call_node(self.graph, target, *args, **kwargs)

    def _held(self, value: torch.Tensor, like: fx.Node) -> fx.Node:
        """Registers a tensor as buffer of the graph's module, on the device of `like`."""
        module, fake = self.graph.owning_module, tensor_of(like)
        assert module is not None
        with unset_fake_temporarily():
            key = (value.dtype, value.shape, tuple(value.flatten().tolist()), fake.device)
        if key not in self.held:
            name = f"_fuser_places_{len(list(module.buffers()))}"
            with unset_fake_temporarily():
                held = value.contiguous().to(fake.device)
            module.register_buffer(name, held, persistent=False)
            with self.graph.inserting_before(next(iter(self.graph.nodes))):
                self.held[key] = self.graph.get_attr(name)
            self.held[key].meta["val"] = fake.fake_mode.from_tensor(held, static_shapes=True)
            self.values[self.held[key]] = value
        return self.held[key]


def _at(value: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    flat = value.index_select(dim, index.flatten())
    return flat.view([*value.shape[:dim], *index.shape, *value.shape[dim + 1 :]])


def _constant_indices(node: fx.Node, constants: Constants) -> dict[int, Vector] | None:
    """Index vectors by dim of a scatter-add to zeros that is worth its gathers."""
    if node.target not in _PUTS or len(node.args) != 4 or not node.args[3]:
        return None
    zeros, indices, value = _arguments(node)[:3]
    sizes = tensor_of(node).shape
    if not _is_zero(zeros) or not tensor_of(node).is_floating_point():
        return None
    if tensor_of(value).dtype != tensor_of(node).dtype:
        return None
    if (vectors := constants.index_vectors(sizes, indices)) is None:
        return None
    wanted = [len(vectors[d]) if d in vectors else n for d, n in enumerate(sizes)]
    fits = tensor_of(value).ndim == len(wanted) and list(tensor_of(value).shape) == wanted
    return vectors if fits and all(_is_worth_it(v, sizes[d]) for d, v in vectors.items()) else None


def _is_worth_it(vector: Vector, size: int) -> bool:
    most = max(Counter(vector).values())
    return most <= _UNROLLED or most * size <= _MOST_MASKED * len(vector)


def _arguments(node: fx.Node) -> Any:
    return node.args


def _is_zero(node: Any) -> bool:
    zeros = (aten.new_zeros.default, aten.zeros.default, aten.zeros_like.default)
    full = (aten.full.default, aten.new_full.default)
    return node.target in zeros or (node.target in full and node.args[-1] == 0)


def _positions(vector: Vector, size: int) -> list[list[int | None]]:
    """The first, second, ... position of each element in the vector; None if there is none."""
    found: list[list[int]] = [[] for _ in range(size)]
    for position, element in enumerate(vector):
        found[element].append(position)
    return [list(row) for row in zip_longest(*found)]


@dataclass(frozen=True)
class _Run:
    """Adjacent elements whose positions have a constant step.

    element   first element
    count     number of elements
    position  position of the first element
    step      difference between positions of adjacent elements
    """

    element: int
    count: int
    position: int
    step: int


def _runs(vector: Vector, size: int, most: int) -> list[_Run] | None:
    """Runs that contain each position once, longest first, if they are few.

    most  maximum positions of an element, and so a lower bound of the runs
    """
    step = max(1, round(len(vector) / size))
    left = {position: element for position, element in enumerate(vector)}
    found: list[_Run] = []
    while left:
        best = max((_longest(left, s) for s in (step, -step)), key=lambda run: run.count)
        found.append(best)
        if len(found) > min(_UNROLLED, most + _BORDERS):
            return None
        for n in range(best.count):
            del left[best.position + n * best.step]
    return found


def _longest(left: Mapping[int, int], step: int) -> _Run:
    """The longest run with this step of these positions and their elements."""
    lengths: dict[int, int] = {}  # of the run that ends at a position
    for position in sorted(left, reverse=step < 0):
        before = position - step
        follows = before in lengths and left[before] + 1 == left[position]
        lengths[position] = lengths[before] + 1 if follows else 1
    last = max(lengths, key=lambda n: lengths[n])
    count = lengths[last]
    return _Run(left[last] - count + 1, count, last - step * (count - 1), step)


class _Linear:
    """Tensors as linear functions of others, with weights as factors.

    forms      distinct functions: an op and its arguments, which are functions or weights
    is_weight  True for nodes that may be a weight
    """

    def __init__(self, is_weight: Callable[[fx.Node], bool]) -> None:
        self.is_weight = is_weight
        self.forms: list[tuple[Any, ...]] = [()]  # the first is the identity
        self.numbers: dict[Any, int] = {(): 0}
        self.known: dict[fx.Node, tuple[fx.Node, int]] = {}

    def split(self, node: fx.Node) -> tuple[fx.Node, int]:
        """(x, f) with f(x) the node. It is (node, 0) if the node is no such function."""
        for n in in_order(
            node, lambda n: [_arguments(n)[i] for i in self._operands(n)], self.known
        ):
            self.known[n] = self._split(n)
        return self.known[node]

    def applied(
        self,
        form: int,
        x: fx.Node,
        call: Callable[..., fx.Node],
        weight: Callable[[fx.Node], fx.Node] = lambda c: c,
    ) -> fx.Node:
        """The function of x; `weight` replaces the weights."""
        made = {0: x}
        for n in in_order(form, self._parts, made):
            target, *args = self.forms[n]
            made[n] = call(target, *(made[a] if type(a) is int else weight(a) for a in args))
        return made[form]

    def _parts(self, form: int) -> list[int]:
        return [a for a in self.forms[form][1:] if type(a) is int]

    def _operands(self, node: fx.Node) -> list[int]:
        """Indices of arguments of which the node is a linear function."""
        args: tuple[Any, ...] = node.args
        if node.kwargs:
            return []
        if node.target is aten.neg.default:
            found = [0]
        elif node.target in (aten.add.Tensor, aten.sub.Tensor) and len(args) == 2:
            found = [0, 1]
        elif node.target is aten.mul.Tensor:
            found = [n for n in (0, 1) if self._is_weight(args[1 - n])][:1]
        else:
            return []
        return found if all(_is_alike(args[n], node) for n in found) else []

    def _is_weight(self, x: Any) -> bool:
        return isinstance(x, fx.Node) and tensor_of(x) is not None and self.is_weight(x)

    def _split(self, node: fx.Node) -> tuple[fx.Node, int]:
        operands = self._operands(node)
        parts = {n: self.known[node.args[n]] for n in operands}  # type: ignore[index]
        leaves = {leaf for leaf, _ in parts.values()}
        if len(leaves) != 1:
            return node, 0
        args = (parts[n][1] if n in parts else a for n, a in enumerate(node.args))
        form = (node.target, *args)
        if form not in self.numbers:
            self.numbers[form] = len(self.forms)
            self.forms.append(form)
        return leaves.pop(), self.numbers[form]


def _is_widened(node: fx.Node) -> bool:
    """True for a wider copy, on the same device, of a tensor of floats."""
    if node.target is not aten._to_copy.default or "memory_format" in node.kwargs:
        return False
    before, after = tensor_of(node.all_input_nodes[0]), tensor_of(node)
    is_exact = torch.promote_types(before.dtype, after.dtype) == after.dtype
    wider = before.is_floating_point() and before.dtype.itemsize < after.dtype.itemsize
    return bool(is_exact and wider and before.device == after.device)


def _elements(x: fx.Node) -> int:
    return prod(map(hint, tensor_of(x).shape))


def _is_constant_along(x: fx.Node, like: fx.Node, dim: int) -> bool:
    """True if a tensor that is broadcast to the shape of `like` has one element along the dim."""
    value = tensor_of(x)
    own = value.ndim - tensor_of(like).ndim + dim
    return own < 0 or bool(value.shape[own] == 1)


def _is_alike(x: Any, node: fx.Node) -> bool:
    value = tensor_of(x) if isinstance(x, fx.Node) else None
    other = tensor_of(node)
    return value is not None and value.dtype == other.dtype and value.shape == other.shape


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


def _ordered_like(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A dense FakeTensor with the dim order of `other`."""
    order = sorted(range(other.ndim), key=lambda d: -other.stride()[d])
    inverse = [order.index(d) for d in range(other.ndim)]
    return value.new_empty([value.shape[d] for d in order]).permute(inverse)
