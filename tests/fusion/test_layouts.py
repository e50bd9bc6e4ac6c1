"""fusion/index/layouts.h: strides of results equal torch's, op by op and for any layout of
inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from fuser import FusionDefinition, testing
from fuser import Tensor as Symbolic

Tensor = torch.Tensor

SIZES = (4, 5, 6, 7)
# All 24 orders of dims would take long: channels-last and every third one.
ORDERS = [*itertools.permutations(range(4))]
ORDERS = [(0, 2, 3, 1), *ORDERS[::3]]


def laid_out(order: tuple[int, ...], sizes: tuple[int, ...] = SIZES) -> Tensor:
    """A tensor of these sizes with this order of dims in memory, the first outermost."""
    values = torch.randn([sizes[d] for d in order])
    return values.permute([order.index(d) for d in range(len(order))])


def index_of(x: Tensor) -> Tensor:
    return torch.zeros(x.shape, dtype=torch.int64)


Case = tuple[Callable[..., Symbolic], Callable[..., Tensor]]

# fd.ops first, then torch, of x and a row-major y of equal sizes.
CASES: dict[str, Case] = {
    "relu": (lambda o, x, y: o.relu(x), lambda x, y: x.relu()),
    "cast": (lambda o, x, y: o.cast(x, torch.float64), lambda x, y: x.double()),
    "x + y": (lambda o, x, y: o.add(x, y), lambda x, y: x + y),
    "y + x": (lambda o, x, y: o.add(y, x), lambda x, y: y + x),
    "where": (lambda o, x, y: o.where(o.gt(x, 0), x, y), lambda x, y: torch.where(x > 0, x, y)),
    "column": (
        lambda o, x, y: o.mul(o.slice(x, [0] * 4, [4, 1, 6, 7]), x),
        lambda x, y: x[:, :1] * x,
    ),
    "column of another": (
        lambda o, x, y: o.mul(o.slice(x, [0] * 4, [4, 1, 6, 7]), y),
        lambda x, y: x[:, :1] * y,
    ),
    "expanded": (
        lambda o, x, y: o.relu(o.expand(o.slice(x, [0] * 4, [4, 1, 6, 7]), list(SIZES))),
        lambda x, y: x[:, :1].expand(SIZES).relu(),
    ),
    "slice": (
        lambda o, x, y: o.relu(o.slice(x, [0, 1, 0, 2], [4, 5, 6, 7], [1, 2, 1, 2])),
        lambda x, y: x[:, 1::2, :, 2::2].relu(),
    ),
    "select": (lambda o, x, y: o.relu(o.select(x, 2, 1)), lambda x, y: x[:, 2].relu()),
    "permute": (
        lambda o, x, y: o.relu(o.permute(x, [2, 0, 3, 1])),
        lambda x, y: x.permute(2, 0, 3, 1).relu(),
    ),
    "unsqueeze": (lambda o, x, y: o.relu(o.unsqueeze(x, 2)), lambda x, y: x.unsqueeze(2).relu()),
    "flip": (lambda o, x, y: o.flip(x, [1]), lambda x, y: x.flip(1)),
    "roll": (lambda o, x, y: o.roll(x, 2, 1), lambda x, y: x.roll(2, 1)),
    "unfold": (
        lambda o, x, y: o.relu(o.unfold(x, 1, 2, 2)),
        lambda x, y: x.unfold(1, 2, 2).relu(),
    ),
    "unfold, overlapping": (
        lambda o, x, y: o.relu(o.unfold(x, 3, 3, 1)),
        lambda x, y: x.unfold(3, 3, 1).relu(),
    ),
    "pad": (
        lambda o, x, y: o.pad(x, [1, 1, 2, 0]),
        lambda x, y: torch.nn.functional.pad(x, (1, 1, 2, 0)),
    ),
    "cat": (lambda o, x, y: o.cat([x, x], 1), lambda x, y: torch.cat([x, x], 1)),
    "cat of two layouts": (lambda o, x, y: o.cat([x, y], 3), lambda x, y: torch.cat([x, y], 3)),
    **{
        f"stack {dim}": (
            lambda o, x, y, dim=dim: o.stack([x, o.relu(x)], dim),
            lambda x, y, dim=dim: torch.stack([x, x.relu()], dim),
        )
        for dim in range(5)
    },
    "stack of two layouts": (
        lambda o, x, y: o.stack([x, y], 1),
        lambda x, y: torch.stack([x, y], 1),
    ),
    "merge": (
        lambda o, x, y: o.relu(o.reshape(x, [20, 6, 7])),
        lambda x, y: x.reshape(20, 6, 7).relu(),
    ),
    "merge two pairs": (
        lambda o, x, y: o.relu(o.reshape(x, [20, 42])),
        lambda x, y: x.reshape(20, 42).relu(),
    ),
    "split": (
        lambda o, x, y: o.relu(o.reshape(x, [4, 5, 2, 3, 7])),
        lambda x, y: x.reshape(4, 5, 2, 3, 7).relu(),
    ),
    "regroup": (
        lambda o, x, y: o.relu(o.reshape(x, [4, 10, 3, 7])),
        lambda x, y: x.reshape(4, 10, 3, 7).relu(),
    ),
    "gather": (lambda o, x, i: o.gather(x, i, 1), lambda x, i: x.gather(1, i)),
    "index_select": (
        lambda o, x, y: o.index_select(x, o.iota(3), 2),
        lambda x, y: x.index_select(2, torch.arange(3)),
    ),
    "sum": (lambda o, x, y: o.sum(x, [1]), lambda x, y: x.sum(1)),
    "sum, dims kept": (lambda o, x, y: o.sum(x, [1], True), lambda x, y: x.sum(1, keepdim=True)),
    "sum over two": (lambda o, x, y: o.sum(x, [0, 2]), lambda x, y: x.sum((0, 2))),
    "amax": (lambda o, x, y: o.max(x, [3]), lambda x, y: x.amax(3)),
    "argmax": (lambda o, x, y: o.argmax(x, 0), lambda x, y: x.argmax(0)),
    "var": (lambda o, x, y: o.var(x, [2], 1), lambda x, y: x.var(2)),
    "x - mean": (
        lambda o, x, y: o.sub(x, o.mean(x, [1], True)),
        lambda x, y: x - x.mean(1, keepdim=True),
    ),
    "cumsum": (lambda o, x, y: o.cumsum(x, 1), lambda x, y: x.cumsum(1)),
    "rand_like": (lambda o, x, y: o.mul(x, o.rand_like(x)), lambda x, y: x * torch.rand_like(x)),
    "iota": (
        lambda o, x, y: o.add(x, o.cast(o.iota(7), torch.float32)),
        lambda x, y: x + torch.arange(7),
    ),
}


def strides(t: Tensor) -> list[int]:
    """Strides of dims with more than one element."""
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]


Call = tuple[FusionDefinition, list[Tensor]]


def call(op: str, x: Tensor) -> Call:
    fd = FusionDefinition()
    inputs = [x, index_of(x) if op == "gather" else torch.randn(x.shape)]
    fd.add_output(CASES[op][0](fd.ops, *(fd.from_pytorch(t, static_sizes=True) for t in inputs)))
    return fd, inputs


@pytest.fixture(scope="module")
def calls() -> dict[tuple[str, tuple[int, ...]], Call]:
    made = {(op, order): call(op, laid_out(order)) for op in CASES for order in ORDERS}
    testing.compile_batch(made.values())
    return made


@pytest.mark.parametrize("op", CASES)
def test_strides_are_torchs(op: str, calls: dict[tuple[str, tuple[int, ...]], Call]) -> None:
    wrong = {}
    for order in ORDERS:
        fd, inputs = calls[op, order]
        got, want = fd.execute(inputs)[0], CASES[op][1](*inputs)
        assert got.shape == want.shape
        if strides(got) != strides(want):
            wrong[order] = (got.stride(), want.stride())
    assert not wrong, f"layout of the input: ours, torch's: {wrong}"


@pytest.mark.parametrize("op", ["relu", "flip", "cat", "pad", "sum", "x + y", "slice"])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, :, ::2],
        lambda x: x[:, :, :, 1:],
        lambda x: x[:, :1].expand(-1, 5, -1, -1),
        lambda x: x[:, :, :1],
        lambda x: x[:0],
    ],
    ids=["steps", "sliced", "expanded", "of one", "empty"],
)
def test_layouts_that_are_not_dense(op: str, view: Callable[[Tensor], Tensor]) -> None:
    for order in [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)]:
        fd, inputs = call(op, view(laid_out(order)))
        got, want = fd.execute(inputs)[0], CASES[op][1](*inputs)
        if want.numel():
            assert strides(got) == strides(want), order


@pytest.mark.parametrize("op", ["cat", "pad"])
@pytest.mark.parametrize("order", [(0, 2, 3, 4, 1), (0, 1, 2, 3, 4), (1, 0, 2, 3, 4)])
def test_copies_of_volumes_are_in_their_memory_format(op: str, order: tuple[int, ...]) -> None:
    """The result is channels-last if all operands are, as for images."""
    fd, inputs = call(op, laid_out(order, (2, 3, 4, 5, 6)))
    (got,), want = fd.execute(inputs), CASES[op][1](*inputs)
    assert strides(got) == strides(want)


@pytest.mark.parametrize(("order", "want"), [([3, 0, 2, 1], (15, 1, 5, 1)), ([0, 1, 2, 3], None)])
def test_an_order_that_is_asked_for_holds_for_dims_of_one_element(order, want) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 1, -1, -1])
    fd.add_output(fd.ops.stride_order(x * 2.0, order))
    value = torch.randn(2, 1, 3, 5)
    (got,) = fd.execute([value])
    assert got.stride() == (want or (1, 2, 2, 6))
    torch.testing.assert_close(got, value * 2, rtol=0, atol=0)


def test_every_result_of_a_kernel_has_its_own_layout() -> None:
    """One reduction loop over x stores both results."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1, -1])
    fd.add_output(x * 2.0)
    fd.add_output(fd.ops.sum(x, [0]))
    value = torch.randn(4, 3, 5).permute(2, 1, 0)
    double, total = fd.execute([value])
    assert double.stride() == (value * 2).stride()
    assert total.stride() == value.sum(0).stride()
    torch.testing.assert_close(total, value.sum(0))
    assert len(fd.fec.executor.kernels(None)) == 1
