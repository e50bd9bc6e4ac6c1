"""fuser/adapters/region.py: a region as a definition."""

from __future__ import annotations

import inspect
import sys

import pytest
import sympy
import torch

from fuser.adapters import report
from fuser.adapters.partition import partition
from fuser.adapters.region import Definition, _evaluated, runner
from tests.adapters.graphs import traced


def definition(function, *inputs, dynamic: bool = False) -> Definition:
    graph = traced(function, *inputs, dynamic=dynamic).graph
    (nodes,) = partition(graph).regions
    inside = set(nodes)
    return Definition(nodes, [n for n in nodes if any(u not in inside for u in n.users)])


def test_results_have_the_strides_that_torch_gives() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for f in (lambda x: x.sin() * 2, lambda x: (x.sin() * 2).contiguous(), lambda x: x.sum(1) * 2):
        (result,) = definition(f, x).fd.execute([x])
        torch.testing.assert_close(result, f(x))
        assert result.stride() == f(x).stride()


def test_half_types_are_rounded_once() -> None:
    x = torch.randn(64, 32, dtype=torch.bfloat16)
    (result,) = definition(lambda x: (x * 3).exp() / 7, x).fd.execute([x])
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, ((x.float() * 3).exp() / 7).bfloat16())


def test_a_cast_of_the_program_rounds() -> None:
    x = torch.randn(64)
    f = lambda x: x.to(torch.bfloat16).float() * 3  # noqa: E731
    (result,) = definition(f, x).fd.execute([x])
    assert torch.equal(result, f(x))


def test_sizes_come_from_the_operands() -> None:
    """Symbolic sizes of an operand are not arguments of the region."""
    x = torch.randn(3, 4)
    made = definition(lambda x: (x.sin() + 1).sum(1) / x.size(1), x, dynamic=True)
    assert [n.op for n in made.arguments] == ["placeholder"]
    for size in (4, 7):
        x = torch.randn(3, size)
        (result,) = made.fd.execute([x])
        torch.testing.assert_close(result, (x.sin() + 1).sum(1) / size)


def test_numbers_for_torch_in_its_place() -> None:
    x = torch.randn(3, 4)
    made = definition(lambda x: (x.sin() + 1).sum(1) / x.size(1), x, dynamic=True)
    numbers = [n for m in made.nodes for n in m.all_input_nodes if n.op == "call_function"]
    sizes = [n for n in numbers if isinstance(n.meta["val"], torch.SymInt)]
    assert made.numbers(sizes, [torch.randn(5, 6)]) == [6]


def test_sizes_of_sizes() -> None:
    """Sizes are computed for expressions of any depth; an unknown symbol makes all expressions that
    contain it unknown."""
    a, b = sympy.symbols("a b", integer=True)
    deep, value = a, 3
    for i in range(300):
        deep, value = (
            (deep + 1, value + 1) if i % 2 else (sympy.Mul(2, deep, evaluate=False), 2 * value)
        )
    table = {a: 3}
    frames = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 60)
    try:
        assert _evaluated(deep, table) == value
    finally:
        sys.setrecursionlimit(frames)
    assert table[deep] == value
    assert _evaluated(deep + b, table) is None
    assert _evaluated(sympy.Mod(a, 5), table) is None
    assert b not in table


def test_a_region_without_operands_runs_where_it_was_traced() -> None:
    made = definition(lambda: (torch.arange(5, device="cpu") * 2 + 1).float())
    (result,) = runner(made, lambda: None, strict=True)()
    assert result.device.type == "cpu"
    assert result.tolist() == [1, 3, 5, 7, 9]


def test_a_symbol_that_tracing_found_to_be_a_number() -> None:
    """Tracing replaced a size by a constant, but the placeholder still has the symbol, so that the
    region would lack the size."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x) * 3
        y[..., ::2].mul_(2)
        return torch.tanh(y).exp()

    torch._dynamo.reset()
    run = torch.compile(f, backend="fuser")
    with report.recording() as seen:
        for sizes in ((3, 4), (5, 2), (7, 2)):
            x = torch.randn(sizes)
            torch.testing.assert_close(run(x), f(x))
    assert len(seen.graphs) == 2
    assert not any(graph.left or graph.fallbacks for graph in seen.graphs)


@pytest.mark.parametrize(
    ("function", "fused"),
    [
        pytest.param(lambda n: torch.arange(n, -n, -1.0, dtype=torch.int64), True, id="whole"),
        pytest.param(lambda n: torch.arange(0, n + 0.5, 0.5), False, id="of the run"),
    ],
)
def test_steps_of_a_float_over_sizes_that_are_symbols(function, fused: bool) -> None:
    """A region computes a float arange with integer arguments itself; for fractional arguments
    torch does, and the region remains."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return (function(x.shape[0]) * 2 + 1).sqrt().float() + x[0, 0]

    torch._dynamo.reset()
    run = torch.compile(f, backend="fuser", dynamic=True)
    with report.recording() as seen:
        for n in (5, 8):
            x = torch.randn(n, 2)
            torch.testing.assert_close(run(x), f(x), equal_nan=True)
    (graph,) = seen.graphs
    assert not graph.fallbacks
    assert any("arange" in op for op, _ in graph.left) != fused
