"""Random definitions that also move, slice and concatenate elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fuser import DataType
from tests.support.graph_inputs import Pick
from tests.support.graphs import ELEMENTS, EXACT, Graph, Node, Reducer, kind


class Mover(Reducer):
    """Also generates slices, flips, windows, pads, cats and reshapes."""

    def resize(self) -> None:
        a = self.one_of(self.nodes)
        rank = len(a.sizes)
        if not rank:
            return
        pick = self.pick
        dim = pick(rank)
        n = a.sizes[dim]
        how = pick(12)
        if how == 0:
            cuts = [self.cut(m if d == dim or pick(3) == 0 else 0) for d, m in enumerate(a.sizes)]
            sizes = [len(range(m)[cut]) for m, cut in zip(a.sizes, cuts, strict=True)]
            starts, ends = [0 if c.start is None else c.start for c in cuts], [c.stop for c in cuts]
            for bounds in (starts, ends):
                if bounds[dim] is not None and pick(4) == 0:
                    bounds[dim], _ = self.number([bounds[dim]])
            steps = [1 if c.step is None else c.step for c in cuts]
            self.keep_resized(lambda: self.fd.ops.slice(a.tensor, starts, ends, steps), a, sizes)
        elif how == 1:
            result = self.fd.ops.flip(a.tensor, self.dims(rank))
            self.keep(result, a.sizes, a.bound, a.static_one)
        elif how == 2:
            before, after = pick(5) - 2, pick(5) - 2
            sizes = [*a.sizes[:dim], n + before + after, *a.sizes[dim + 1 :]]
            if min(sizes[dim], n + min(before, 0) + min(after, 0)) >= 0 and a.bound <= EXACT:
                widths = [0, 0] * (rank - 1 - dim) + [before, after]
                value = self.one_of([0, 1])
                self.keep_resized(lambda: self.fd.ops.pad(a.tensor, widths, value), a, sizes)
        elif how == 3:
            fits = [
                b
                for b in self.nodes
                if len(b.sizes) == rank
                and b.tensor.dtype() == a.tensor.dtype()
                and all(d == dim or b.sizes[d] == a.sizes[d] for d in range(rank))
                and all(d == dim or b.static_one[d] == a.static_one[d] for d in range(rank))
            ]
            parts = [a, *(self.one_of(fits) for _ in range(pick(3)))]
            sizes = [*a.sizes[:dim], sum(b.sizes[dim] for b in parts), *a.sizes[dim + 1 :]]
            bound = max(b.bound for b in parts)
            tensors = [b.tensor for b in parts]
            self.keep_resized(lambda: self.fd.ops.cat(tensors, dim), a, sizes, bound)
        elif how == 4 and n:
            result = self.fd.ops.roll(a.tensor, pick(2 * n) - n, dim)
            self.keep(result, a.sizes, a.bound, [False] * rank)
        elif how == 5:
            self.reshape(a)
        elif how == 6 and n:
            # A run-time index is valid for all sizes.
            index = pick(2 * n) - n if pick(2) else self.number([0, -1])[0]
            result = self.fd.ops.select(a.tensor, index, dim)
            ones = a.static_one[:dim] + a.static_one[dim + 1 :]
            self.keep(result, a.sizes[:dim] + a.sizes[dim + 1 :], a.bound, ones)
        elif how == 7 and rank < 6:
            fits = [
                b
                for b in self.nodes
                if b.sizes == a.sizes
                and b.static_one == a.static_one
                and b.tensor.dtype() == a.tensor.dtype()
            ]
            parts = [a, *(self.one_of(fits) for _ in range(pick(3)))]
            sizes = [*a.sizes[:dim], len(parts), *a.sizes[dim:]]
            if math.prod(sizes) <= 2 * ELEMENTS:
                result = self.fd.ops.stack([b.tensor for b in parts], dim)
                ones = (*a.static_one[:dim], len(parts) == 1, *a.static_one[dim:])
                self.keep(result, tuple(sizes), max(b.bound for b in parts), ones)
        elif how == 8 and rank > 1:
            diagonal, _ = self.number([pick(7) - 3])
            method = getattr(self.fd.ops, self.one_of(["triu", "tril"]))
            self.keep(method(a.tensor, diagonal), a.sizes, a.bound, a.static_one)
        elif how == 9:
            chunks = self.fd.ops.chunk(a.tensor, 1 + pick(3), dim)
            place = pick(len(chunks))
            each = -(-n // len(chunks))
            size = min(each, max(n - each * place, 0))
            sizes = [*a.sizes[:dim], size, *a.sizes[dim + 1 :]]
            self.keep_resized(lambda: chunks[place], a, sizes)
        elif how == 10 and n:
            indices = [b for b in self.nodes if len(b.sizes) == 1 and kind(b) == "Int"]
            if indices:
                b = self.one_of(indices)
                index = self.fd.ops.cast(b.tensor, DataType.Int)
                index = self.fd.ops.remainder(index, self.fd.ops.size(a.tensor, dim))
                sizes = [*a.sizes[:dim], b.sizes[0], *a.sizes[dim + 1 :]]
                take = self.fd.ops.index_select
                self.keep_resized(lambda: take(a.tensor, index, dim), a, sizes)

        elif how == 11 and rank < 6:
            size = pick(min(n, 4) + 1)
            step = 1 + pick(4)
            sizes = [*a.sizes[:dim], (n - size) // step + 1, *a.sizes[dim + 1 :], size]
            if math.prod(sizes) <= 2 * ELEMENTS:
                self.fixed |= set(range(len(self.sizes)))  # other sizes may be below a window
                result = self.fd.ops.unfold(a.tensor, dim, size, step)
                ones = [*a.static_one, size == 1]
                ones[dim] = ones[dim] and size == 1
                self.keep(result, tuple(sizes), a.bound, ones)

    def cut(self, n: int) -> slice:
        """A slice of a dim of size n; the complete dim if n is 0."""
        if not n:
            return slice(None)
        start, end = (self.one_of([None, self.pick(2 * n + 3) - n - 1]) for _ in range(2))
        return slice(start, end, self.one_of([1, 1, 2, 3, 4]))

    def reshape(self, a: Node) -> None:
        """Reshape to two or three dims; sizes are constants or scalar inputs."""
        total = math.prod(a.sizes)
        outer = self.one_of([k for k in (1, 2, 3, 4, 6, 8) if total % k == 0])
        if not total:
            return
        sizes = [outer, total // outer]
        if self.pick(3) == 0:
            inner = self.one_of([k for k in (1, 2, 3, 4, 8) if sizes[1] % k == 0])
            sizes[1:] = [sizes[1] // inner, inner]
        given: list[Any] = list(sizes)
        ones = [n == 1 for n in sizes]
        if self.pick(2):
            for d, n in enumerate(sizes):
                if self.pick(2):
                    given[d], _ = self.number([n])
                    ones[d] = False
        if self.pick(2):
            last = self.pick(len(sizes))
            given[last], ones[last] = -1, False
        else:
            self.fixed |= set(range(len(self.sizes)))  # the reshape is invalid for other sizes
        result = self.fd.ops.reshape(a.tensor, given)
        self.keep(result, tuple(sizes), a.bound, [False] * len(sizes) if 1 in sizes else ones)

    def keep_resized(
        self, make: Callable[[], Any], a: Node, sizes: list[int], bound: float | None = None
    ) -> None:
        if math.prod(sizes) > 2 * ELEMENTS:
            return
        both = zip(a.static_one, a.sizes, sizes, strict=True)
        ones = [one and before == after == 1 for one, before, after in both]
        self.keep(make(), tuple(sizes), a.bound if bound is None else bound, ones)

    def steps(self) -> list[Callable[[], None]]:
        return [*super().steps(), *[self.resize] * 6]


def random_moving_graph(pick: Pick) -> Graph:
    """A random graph with slices, pads, cats and reshapes."""
    return Mover(pick).make()
