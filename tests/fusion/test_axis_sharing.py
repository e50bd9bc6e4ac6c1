"""The kernel that an output joins: outputs reduced over all axes of one row, in every order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fuser
from fuser import FusionDefinition, evaluate
from fuser.ops import as_dtype
from tests.support.groups import Grouped, check

Outputs = Callable[..., list[Any]]
Order = Sequence[int]


def data(*shape: int) -> Tensor:
    """Numbers determined by the shape."""
    return torch.sin(torch.arange(1.0, prod(shape) + 1)).reshape(shape)


def defined(
    make: Outputs, inputs: Sequence[Tensor], order: Order = (), known: bool = False
) -> FusionDefinition:
    """A definition of the outputs of `make` in this order, with static sizes (`known`) or symbolic
    ones."""
    fd = FusionDefinition()
    given = []
    for x in inputs:
        shape = list(x.shape) if known else [-1] * x.dim()
        given.append(fd.define_tensor(shape, dtype=as_dtype(x.dtype)))
    outputs = make(fd.ops, *given)
    for i in order or range(len(outputs)):
        fd.add_output(outputs[i])
    return fd


def executed(fd: FusionDefinition, inputs: Sequence[Tensor], tolerance: float = 2e-5) -> None:
    """Assert that a run on the host executor agrees with the definition in float64."""
    got = fd.execute(list(inputs))
    for mine, exact in zip(got, evaluate(fd, list(inputs)), strict=True):
        torch.testing.assert_close(
            mine.double(), exact.double(), rtol=tolerance, atol=tolerance, equal_nan=True
        )


def kernels(
    make: Outputs, inputs: Sequence[Tensor], count: int, known: bool = False
) -> list[list[int]]:
    """The outputs of each kernel, by their index in `make`. Asserts that they are equal for every
    order of these `count` outputs, and compares values; the first and the last order run on the
    host executor."""
    found: list[list[int]] = []
    orders = list(permutations(range(count)))
    for order in orders:
        fd = defined(make, inputs, order, known)
        grouped = check(fd, inputs, tolerance=1e-5)
        stored = sorted(sorted(order[o] for o in outputs) for outputs in grouped.stored())
        found = found or stored
        assert stored == found, order
        if order in (orders[0], orders[-1]):
            executed(fd, inputs)
    return found


def layer_norm(o: Any, x: Any, w: Any) -> list[Any]:
    return list(o.layer_norm(x, [w.size(0)], w))


def softmax(o: Any, x: Any, w: Any) -> list[Any]:
    return [o.softmax(x * w, -1), o.logsumexp(x * w, -1), o.max(x * w, [-1], True)]


def clip(o: Any, x: Any, w: Any) -> list[Any]:
    norm = o.sqrt(o.sum(x * x, [-1], True))
    return [x / o.maximum(norm, 1.0), norm, x * w]


def statistics(o: Any, x: Any, w: Any) -> list[Any]:
    """The first output depends on no reduction; the operand of the last reduction has no other
    reader."""
    return [x * 2.0, o.sum(x, [-1]), o.sum(x * w, [-1], True)]


@pytest.mark.parametrize("make", [layer_norm, softmax, clip, statistics])
def test_one_row_is_one_kernel_as_two_rows_are(make: Outputs) -> None:
    for rows in (1, 2):
        assert kernels(make, [data(rows, 40), data(40)], 3) == [[0, 1, 2]]


def everything(o: Any, x: Any) -> list[Any]:
    """Over all dims of x: x minus its mean, the mean, the maximum, and another sum."""
    mean = o.mean(x, list(range(x.ndim)), True)
    return [x - mean, mean, o.max(x), o.sum(o.abs(x))]


@pytest.mark.parametrize("shape", [(37,), (1, 37), (1, 1, 37), (1, 3, 4, 5), (3, 1, 5), (1,)])
def test_reductions_over_all_dims(shape: tuple[int, ...]) -> None:
    assert kernels(everything, [data(*shape)], 4) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("of", [[1, -1], [1, 24], [-1, 24]], ids=str)
def test_a_row_of_which_the_definition_knows_a_size(of: list[int]) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor(of)
    mean = fd.ops.mean(x, [1], True)
    fd.add_output(mean)
    fd.add_output(x - mean)
    fd.add_output(fd.ops.exp(mean))
    for rows in (1, 3) if of[0] < 0 else (1,):
        assert check(fd, [data(rows, 24)]).stored() == [[0, 1, 2]]
        executed(fd, [data(rows, 24)])


def test_tensors_of_halves() -> None:
    x, w = data(1, 4096).bfloat16(), data(4096).bfloat16()
    fd = defined(lambda o, x, w: [o.cast(t, torch.bfloat16) for t in layer_norm(o, x, w)], [x, w])
    assert Grouped(fd, [x, w]).stored() == [[0, 1, 2]]
    executed(fd, [x, w], tolerance=1e-2)


def test_results_of_two_sizes_stay_apart() -> None:
    """A scalar sum joins the kernel that stores the elements of its operand."""

    def make(o: Any, x: Any, y: Any, scale: Any) -> list[Any]:
        return [x * scale, y * scale, o.sum(x), o.sum(y)]

    assert kernels(make, [data(40), data(56), data(1)], 4) == [[0, 2], [1, 3]]


def test_many_results_of_different_sizes() -> None:
    """Each scalar sum is in the kernel of its operand, in spite of kernels of other sizes."""

    def make(o: Any, scale: Any, *given: Any) -> list[Any]:
        return [t for x in given for t in (x * scale, o.sum(x))]

    inputs = [data(1), *(data(30 + i) for i in range(7))]
    fd = defined(make, inputs)
    assert sorted(check(fd, inputs).stored()) == [[2 * i, 2 * i + 1] for i in range(7)]
    executed(fd, inputs)


def test_statistics_of_rows_beside_sums_of_all() -> None:
    """Row statistics reduce fewer axes than sums over all dims, so there are two kernels."""

    def make(o: Any, x: Any) -> list[Any]:
        mean = o.mean(x, [1], True)
        return [x - mean, mean, o.sum(x), o.max(x)]

    assert kernels(make, [data(6, 9)], 4) == [[0, 1], [2, 3]]
    assert kernels(make, [data(1, 9)], 4) == [[0, 1, 2, 3]]


def test_a_tensor_that_only_a_reduction_reads() -> None:
    """The dot product has one operand in common with each of the other outputs."""

    def make(o: Any, x: Any, y: Any) -> list[Any]:
        return [o.exp(x), o.sum(x * y), y - 1.0]

    assert kernels(make, [data(50), data(50)], 3) == [[0, 1, 2]]


def test_an_elementwise_result_finds_a_store_of_equal_shape() -> None:
    """The output has no large operand in common with others; the first of these has another
    shape."""

    def make(o: Any, r: Any, x: Any, y: Any) -> list[Any]:
        return [o.sum(x, [1]) * r, x + 1.0, y * o.broadcast(r, [False, True])]

    for rows in (1, 2):
        inputs = [data(rows), data(rows, 8), data(rows, 8)]
        fd = defined(make, inputs, known=True)
        assert check(fd, inputs).stored() == [[0, 1, 2]]
        executed(fd, inputs)


def test_axes_that_no_tensor_tells_alone() -> None:
    """An outer product and its maximum: each factor determines one of the axes."""

    def make(o: Any, a: Any, b: Any) -> list[Any]:
        outer = o.broadcast(a, [False, True]) * b
        return [outer, o.max(outer)]

    assert kernels(make, [data(7), data(9)], 2) == [[0, 1]]


@pytest.mark.parametrize("shape", [(0,), (1, 0), (0, 5)])
def test_tensors_without_elements(shape: tuple[int, ...]) -> None:
    def make(o: Any, x: Any) -> list[Any]:
        total = o.sum(x, list(range(x.ndim)), True)
        return [x - total, total, o.prod(x)]

    x = torch.empty(shape)
    for order in ([0, 1, 2], [2, 1, 0]):
        fd = defined(make, [x], order)
        got = dict(zip(order, fd.execute([x]), strict=True))
        assert got[0].shape == shape
        assert got[1].item() == 0.0
        assert got[2].item() == 1.0
        assert len(Grouped(fd, [x]).groups) == 1


def test_what_no_reduction_leads_to_has_no_place_beside_one() -> None:
    """An output without reductions must vary over all axes of a kernel to be stored by it."""

    def make(o: Any, x: Any, scale: Any) -> list[Any]:
        return [x * scale, o.exp(scale), o.sum(x)]

    assert kernels(make, [data(30), data(1)], 3) == [[0, 2], [1]]


@pytest.mark.parametrize("length", [1 << 16, (1 << 16) + 8, 2_000_000])
def test_long_rows_are_cut_into_a_reduction_and_what_reads_it(length: int) -> None:
    """Adding the row's statistics as outputs adds only their stores, and no loads."""

    def make(o: Any, x: Any) -> list[Any]:
        mean = o.mean(x, [1], True)
        return [x - mean, mean]

    x = torch.empty(1, length)
    both = fuser.explain(defined(make, [x]), x)
    alone = fuser.explain(defined(lambda o, x: make(o, x)[:1], [x]), x)
    assert len(both.steps) == len(alone.steps) == (1 if length == 1 << 16 else 2)
    assert [s.plan.split("(")[0] for s in both.steps] == ["inner", "pointwise"][: len(both.steps)]
    assert both.bytes - alone.bytes <= 8


class Maker:
    """Random definitions of rows that are reduced completely or partially, and of values common to
    all rows."""

    def __init__(self, seed: int, rows: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.rows = rows
        self.fd = FusionDefinition()
        self.inputs: list[Tensor] = []
        self.nodes: list[tuple[Any, tuple[int, ...], bool]] = []  # True if it has rows
        self.sizes = tuple(int(n) for n in self.rng.integers(3, 6, self.rng.integers(1, 4)))

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def add_input(self, sizes: Sequence[int], of_rows: bool = True) -> None:
        shape = (self.rows if of_rows else 1, *sizes)
        known = [1 if n == 1 and d else -1 for d, n in enumerate(shape)]
        self.nodes.append((self.fd.define_tensor(known), shape, of_rows))
        self.inputs.append(data(*shape) + 0.1 * len(self.inputs))  # draws do not depend on rows

    def reduction(self, t: Any, shape: tuple[int, ...]) -> None:
        o, dims = self.fd.ops, list(range(1, len(shape)))
        if self.rng.random() < 0.2:
            dims = [d for d in dims if self.rng.random() < 0.6] or [0]
        t = self.pick([o.sum, o.max, o.mean])(t, dims, True)
        kept = tuple(1 if d in dims else n for d, n in enumerate(shape))
        self.nodes.append((o.tanh(t) if self.rng.random() < 0.4 else t, kept, True))

    def norm(self, t: Any, shape: tuple[int, ...]) -> None:
        o, dims = self.fd.ops, list(range(1, len(shape)))
        mean = o.mean(t, dims, True)
        var = o.mean((t - mean) * (t - mean), dims, True)
        for result in (mean, var):
            if self.rng.random() < 0.5:
                self.nodes.append((result, (shape[0], *(1 for _ in dims)), True))
        self.nodes.append(((t - mean) * o.rsqrt(var + 1.0), shape, True))

    def arithmetic(self, t: Any, shape: tuple[int, ...]) -> None:
        other, shape_of_other, _ = self.pick(self.nodes)
        try:
            met = tuple(torch.broadcast_shapes(shape, shape_of_other))
        except RuntimeError:
            return
        o = self.fd.ops
        self.nodes.append((o.tanh(self.pick([o.add, o.mul, o.sub])(t, other)), met, True))

    def make(self) -> None:
        for _ in range(self.pick([1, 1, 2, 3])):
            self.add_input(self.sizes)
        if self.rng.random() < 0.5:
            self.add_input([1] * len(self.sizes))
        if self.rng.random() < 0.5:
            self.add_input(self.sizes, of_rows=False)
        if self.rng.random() < 0.25:
            self.add_input([n + 2 for n in self.sizes])
        given = len(self.nodes)
        steps = [self.arithmetic] * 4 + [self.reduction] * 4 + [self.norm]
        for _ in range(self.pick(range(2, 12))):
            recent = self.nodes[-6:] if self.rng.random() < 0.7 else self.nodes
            t, shape, _ = self.pick([n for n in recent if n[2]] or self.nodes[:1])
            self.pick(steps)(t, shape)
        made = self.nodes[given:] or self.nodes
        for i in self.rng.permutation(len(made))[: self.pick([1, 2, 3, 4, 5])]:
            self.fd.add_output(made[int(i)][0])


def test_one_row_takes_no_more_kernels_than_two(rng: np.random.Generator) -> None:
    for seed in rng.integers(1 << 32, size=400):
        one, two = (Maker(int(seed), rows) for rows in (1, 2))
        one.make()
        two.make()
        try:
            got = Grouped(one.fd, one.inputs)
            if seed % 4 == 0:
                check(one.fd, one.inputs, tolerance=1e-5)
            assert len(got.groups) <= len(Grouped(two.fd, two.inputs).groups)
        except BaseException:
            print(f"seed {seed}", one.fd)
            raise


def test_random_rows_run_on_the_host(rng: np.random.Generator) -> None:
    for seed in rng.integers(1 << 32, size=12):
        maker = Maker(int(seed), 1)
        maker.make()
        try:
            executed(maker.fd, maker.inputs)
        except BaseException:
            print(f"seed {seed}", maker.fd)
            raise
