"""Random definitions with all kinds of ops, including extern ops and random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tests.support.graph_inputs import Pick
from tests.support.graphs import ELEMENTS, EXACT, WHOLE, Graph, Node, kind
from tests.support.moving_graphs import Mover

STEPS = 40


class Caller(Mover):
    """Also generates extern ops, masks and dropout. Sums stay exact; ties keep their order."""

    def library_operand(self, *kinds: str) -> Node | None:
        """A tensor of at least one dim and one element that an extern op accepts."""
        fits = [
            n
            for n in self.nodes
            if kind(n) in kinds
            and math.prod(n.sizes)
            and n.sizes
            and "float8" not in n.tensor.dtype().torch_name
        ]
        return self.one_of(fits) if fits else None

    def exact(self, node: Node, bound: float) -> bool:
        """Return True if sums of its type up to `bound` are exact. Integers wrap, which is exact
        too."""
        if kind(node) == "Int":
            return True
        return bound <= WHOLE.get(getattr(torch, node.tensor.dtype().torch_name), EXACT)

    def product(self) -> None:
        a = self.library_operand("Float", "Complex")
        if a is None or len(a.sizes) < 2:
            return
        bound = a.bound * a.bound * a.sizes[-1] * 2
        size = math.prod(a.sizes[:-1]) * a.sizes[-2]
        self.counts = True
        if size > 2 * ELEMENTS or not self.exact(a, bound):
            return
        rank = len(a.sizes)
        turned = self.fd.ops.permute(a.tensor, [*range(rank - 2), rank - 1, rank - 2])
        ones = [*a.static_one[:-1], a.static_one[-2]]
        self.keep(self.fd.ops.matmul(a.tensor, turned), (*a.sizes[:-1], a.sizes[-2]), bound, ones)

    def scan(self) -> None:
        a = self.library_operand("Int", "Float")
        if a is None:
            return
        dim = self.pick(len(a.sizes))
        self.counts = True
        name = self.one_of(["cumsum", "cummax", "cummin"])
        bound = a.bound * a.sizes[dim] if name == "cumsum" else a.bound
        if not self.exact(a, bound):
            return
        result = getattr(self.fd.ops, name)(a.tensor, dim)
        self.keep(result, a.sizes, self.limited(result, bound), a.static_one)

    def order(self) -> None:
        a = self.library_operand("Int", "Float")
        if a is None:
            return
        self.counts = True
        dim, largest = self.pick(len(a.sizes)), bool(self.pick(2))
        how = self.pick(3)
        if how == 0:
            result, _ = self.fd.ops.sort(a.tensor, dim, largest, stable=True)
            self.keep(result, a.sizes, a.bound, a.static_one)
        elif how == 1:
            result = self.fd.ops.argsort(a.tensor, dim, largest, stable=True)
            self.keep(result, a.sizes, float(a.sizes[dim]), a.static_one)
        else:
            k = 1 + self.pick(a.sizes[dim])
            result, _ = self.fd.ops.topk(a.tensor, k, dim, largest, sorted=True)
            sizes = tuple(k if d == dim else n for d, n in enumerate(a.sizes))
            ones = [k == 1 if d == dim else one for d, one in enumerate(a.static_one)]
            self.keep(result, sizes, a.bound, ones)

    def write(self) -> None:
        a = self.library_operand("Int", "Float")
        if a is None:
            return
        self.counts = True
        bound = a.bound * (a.sizes[0] + 1)
        if self.pick(2):
            # A permutation, so that each element is written once.
            dim = self.pick(len(a.sizes))
            index = self.fd.ops.argsort(a.tensor, dim, stable=True)
            result = self.fd.ops.scatter(a.tensor, index, self.fd.ops.flip(a.tensor, [dim]), dim)
            self.keep(result, a.sizes, a.bound, a.static_one)
        elif self.exact(a, bound):
            size = self.fd.ops.size(a.tensor, 0)
            half = self.fd.ops.floor_divide(self.fd.ops.iota(size), 2)
            result = self.fd.ops.index_put_accumulate(a.tensor, half, a.tensor)
            self.keep(result, a.sizes, self.limited(result, bound), a.static_one)

    def draw(self) -> None:
        a = self.one_of(self.nodes)
        shape = self.fd.ops.shape(a.tensor)
        state: dict[str, Any] = {"rng_seed": self.pick(1 << 16), "rng_offset": self.pick(9)}
        if self.pick(2):
            noise = self.fd.ops.uniform(0, 1, shape, **state)
            self.keep(self.fd.ops.lt(noise, 0.5), a.sizes, 1.0, a.static_one)
        elif kind(a) == "Float" and a.bound * 2 <= EXACT:
            kept = self.fd.ops.lt(self.fd.ops.uniform(0, 1, shape, **state), 0.5)
            result = self.fd.ops.where(kept, self.fd.ops.mul(a.tensor, 2.0), 0.0)
            self.keep(result, a.sizes, a.bound * 2, a.static_one)

    def steps(self) -> list[Callable[[], None]]:
        calls = [self.product, self.scan, self.order, self.write, self.draw, self.draw]
        return [*super().steps(), *calls]

    def count(self) -> int:
        return 1 + self.pick(STEPS)


def random_calling_graph(pick: Pick) -> Graph:
    """A graph of up to 40 ops of every kind."""
    return Caller(pick).make()
