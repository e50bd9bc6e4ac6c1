"""csrc/torch/script/group: strides of the results of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.adapters.script_ops import eager
from tests.support.scripts import assert_same, fallbacks, fused, groups, warmed, with_gradients


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused():
        yield


def test_results_lie_in_memory_as_those_of_eager() -> None:
    def rows(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        z = F.layer_norm(x * 2, [x.size(2)])
        return z + 1, x + y, y + x

    x, y = torch.randn(4, 5, 6).permute(2, 0, 1), torch.randn(6, 4, 5)
    f = warmed(rows, x, y)
    for got, expected in zip(f(x, y), rows(x, y), strict=True):
        assert_same([got], [expected], 4)
        assert got.stride() == expected.stride()


def test_results_lie_as_those_of_eager_in_every_layout() -> None:
    """Strides equal eager's for every layout: one eager run per new order of dims shows them."""

    def reduced(x: torch.Tensor) -> list[torch.Tensor]:
        y = x * 2
        z = F.layer_norm(x.transpose(1, 2) + 1, [x.size(1)])
        return [y, y.sum(0), y.softmax(1), y.transpose(0, 1) + 1, z * 2]

    x = torch.randn(3, 4, 5)
    f = warmed(reduced, x)
    unfused = fallbacks()
    for order in [(0, 1, 2), (1, 2, 0), (0, 2, 1)]:
        back = [order.index(d) for d in range(3)]
        for _ in range(3):
            x = torch.randn([(3, 4, 5)[d] for d in order]).permute(back)
            for got, expected in zip(f(x), reduced(x), strict=True):
                assert_same([got], [expected], 4)
                assert got.stride() == expected.stride()
    assert fallbacks() == unfused
    assert groups(f.graph_for(x)) == 1


@pytest.mark.parametrize(
    ("op", "first", "others"),
    [
        ("permute(s)", [0, 2, 1], [[2, 1, 0], [0, 1, 2], [1, 2, 0]]),
        ("permute(0, 2, 1).reshape(s)", [24, 8], [[4, 48], [4, 6, 2, 4], [192]]),
        ("permute(2, 0, 1).flatten(s[0], s[1])", [0, 1], [[1, 2], [0, 2]]),
    ],
)
def test_results_lie_as_the_numbers_of_a_run_say(op: str, first: Any, others: Any) -> None:
    """Strides profiled for some dims and sizes do not apply to different ones."""
    source = f"def f(x: Tensor, s: List[int]):\n    return (x * 2).{op} + 1\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    x = torch.randn(4, 8, 6)
    unfused = fallbacks()
    for s in [first, *others, first]:
        for moved in (x, torch.randn(6, 4, 8).permute(1, 2, 0)):
            for _ in range(3):
                got, wanted = f(moved, s), expected(moved, s)
                assert_same([got], [wanted])
                assert got.stride() == wanted.stride(), (s, moved.stride())
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, first)) == 1


@pytest.mark.parametrize(
    "op", ["[:1]", "[:, :1]", "[:, :, :1]", ".unsqueeze(-1)", ".mean([1], True)"]
)
def test_strides_of_dims_of_one_element_are_those_of_eager(op: str) -> None:
    source = f"def f(x: Tensor):\n    return (x * 2){op} + 1\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    for shape in [(6, 4, 8)] * 3 + [(5, 3, 7)] * 2:
        for order in [(1, 2, 0), (0, 2, 1), (2, 1, 0)]:
            x = torch.randn(shape).permute(order)
            got, wanted = f(x), expected(x)
            assert_same([got], [wanted])
            assert got.stride() == wanted.stride(), (shape, order)
    assert groups(f.graph_for(x)) == 1


def several(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [x + y, x * 2, (x * y).permute(2, 0, 1) + 1, x.exp() + y]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_dims_of_one_element_lie_as_those_of_eager(place: int) -> None:
    """Strides of dims of size 1 equal eager's, although they do not affect addresses."""
    x = torch.randn(3, 4, 5)
    f = warmed(several, x, x)
    unfused = fallbacks()
    for order in [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1)]:
        shape = [3, 4, 5]
        shape[order[place]] = 1
        x = torch.randn(shape).permute(order)
        for y in (x, torch.randn(x.shape)):
            for _ in range(3):
                for got, expected in zip(f(x, y), several(x, y), strict=True):
                    assert_same([got], [expected])
                    assert got.stride() == expected.stride(), (shape, order)
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, x)) == 1


@pytest.mark.parametrize("first", [(2, 3, 6), (2, 0, 6)])
def test_results_without_elements_lie_as_those_of_eager(first: tuple[int, ...]) -> None:
    """Torch has special stride rules for empty tensors, which do not apply to nonempty ones."""
    f = warmed(several, torch.randn(first), torch.randn(first))
    unfused = fallbacks()
    for shape in [(2, 0, 6), (0, 3, 6), (2, 3, 0), (2, 3, 6), (4, 2, 5), (0, 0, 1)]:
        for order in [(0, 1, 2), (1, 2, 0), (2, 1, 0)]:
            x = torch.randn([shape[d] for d in order]).permute([order.index(d) for d in range(3)])
            for _ in range(2):
                for got, expected in zip(f(x, x), several(x, x), strict=True):
                    assert_same([got], [expected])
                    assert got.stride() == expected.stride(), (shape, order)
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, x)) == 1


def test_a_result_without_elements_shows_nothing_for_others() -> None:
    source = "def f(x: Tensor):\n    y = x * 2\n    return y[2:] + y.sum()\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    for rows in (2, 2, 2, 4, 4):
        x = torch.randn(5, 6, rows).permute(2, 0, 1)
        got, wanted = f(x), expected(x)
        assert_same([got], [wanted])
        assert got.stride() == wanted.stride()
    assert groups(f.graph_for(x)) == 1


def test_results_do_not_follow_an_operand_where_it_is_expanded() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).relu()

    dense = torch.randn(2, 4, 5, 6)
    images = dense.contiguous(memory_format=torch.channels_last)
    f = warmed(add, dense, images)
    for x in [
        dense,
        dense[:, :, :1, :1].expand_as(dense),
        dense[:1, :, :1].expand_as(dense),
        dense,
    ]:
        for _ in range(2):
            got, expected = f(x, images), add(x, images)
            assert_same([got], [expected])
            assert got.stride() == expected.stride()


def test_sizes_come_from_one_node_and_numbers_are_remembered() -> None:
    def normalized(
        x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, dim: int, keepdim: bool
    ) -> torch.Tensor:
        y = x + b
        z = (y - y.mean(dim, keepdim)) * w
        return (z * z).mean(dim, keepdim) * z

    def arguments(*sizes: int) -> list[torch.Tensor]:
        return [torch.randn(s, requires_grad=True) for s in (sizes, sizes[-1:], (1,))]

    f = torch.jit.script(normalized)
    for _ in range(4):
        f(*arguments(3, 4, 8), 2, True).sum().backward()
    unfused = fallbacks()
    wanted = [((3, 4, 8), 2), ((3, 4, 8), 1), ((5, 4, 8), 2), ((3, 1, 8), 0), ((3, 1, 8), -1)]
    for sizes, dim in [*wanted, *wanted[::-1]]:
        given = arguments(*sizes)
        got = with_gradients(f, given, dim, True)
        assert_same(got, with_gradients(normalized, given, dim, True), 16)
    assert fallbacks() == unfused
    states = f.get_debug_state().execution_plans.values()
    code = next(iter(states)).code
    (forward,) = code.differentiable_op_executor_states()[0].execution_plans.values()
    (backward,) = code.grad_executor_states()[0].execution_plans.values()
    kinds = [n.kind() for n in forward.graph.nodes()]
    assert "fuser::sizes" in kinds
    assert not {"aten::size", "prim::BroadcastSizes", "aten::_size_if_not_equal"} & set(kinds)
    assert "fuser::numbers" in str(backward.graph)


def test_numbers_are_those_of_what_is_given() -> None:
    """Calls are distinguished also if they differ only in lists, the sign of a zero, or None."""

    def scaled(x: torch.Tensor, a: float, ns: list[int], m: int | None) -> torch.Tensor:
        total = 1
        for n in ns:
            total = total * n
        if m is not None:
            total = total + m
        share = 1.0 / (a + 1e-30) + total
        return (x * share + total).relu() * share

    f = torch.jit.script(scaled)
    x = torch.randn(4, 8)
    calls = [(0.5, [2, 3], None), (0.0, [2, 3], None), (-0.0, [2, 3], 1), (0.5, [3, 2], 0)]
    calls += [(float("inf"), [2], 7), (0.5, [], None), (0.5, [2, 3], None), (0.5, [2, 4], None)]
    for call in [calls[0]] * 3 + calls + calls[::-1]:
        assert_same([f(x, *call)], [scaled(x, *call)], 8)


def test_what_only_a_dtype_was_wanted_of_is_no_group() -> None:
    """A group of which only a dtype is used has no outputs, so it must not be created."""

    def as_type_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        like = (x * 2.0).relu()
        return ((y + 1.0).exp()).to(like.dtype)

    x, y = torch.randn(4, 5), torch.randn(4, 5, dtype=torch.float64)
    unfused = fallbacks()
    f = warmed(as_type_of, x, y)
    assert_same([f(x, y)], [as_type_of(x, y)], 4)
    assert groups(f.graph_for(x, y)) == 1
    assert fallbacks() == unfused
