"""fuser/adapters/graph/views.py: removal of views without effect, and merging of chains of
views.
"""

from __future__ import annotations

import pytest
import torch

from fuser import Unsupported
from fuser.adapters.graph.views import (
    bases_of_views,
    drop_views,
    laid_out,
    merge_copies,
    owner_of,
    stride_order,
)
from fuser.adapters.torch_compat import reinterpret_tensor
from tests.adapters.graphs import names, traced


def left(module) -> list[str]:
    return names([n for n in module.graph.nodes if n.op == "call_function"])


@pytest.mark.parametrize("dynamic", [False, True])
def test_round_trips(dynamic: bool) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin().t().t()
        return (y.view(-1).view(x.shape).detach().cos(), y.t().mm(x))

    module = traced(f, torch.ones(3, 5), dynamic=dynamic)
    drop_views(module.graph, range(0))
    assert [op for op in left(module) if "sym_size" not in op] == ["sin", "cos", "t", "mm"]
    module.recompile()
    x = torch.randn(3, 5)
    torch.testing.assert_close(module(x), f(x))


def test_dims_that_were_reduced_are_not_kept_for_a_reshape() -> None:
    """The gradient of a bias drops kept reduced dims if only a reshape reads it. Exceptions:
    another user reads the dims, or the reshape inserts other dims."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = x.amax([1], True)
        return (
            x.sum([0, 1], True).view(5),
            x.mean([-1], True).view(3, 4).cos(),
            kept.view(3, 5),
            kept + 1,
            x.sum([0], True).view(4, 1, 5),
        )

    x = torch.randn(3, 4, 5, dtype=torch.float64)
    module = traced(f, x)
    expected = module(x)
    drop_views(module.graph, range(0))
    module.recompile()
    assert left(module).count("view") == 2  # the value read twice, and the extra dim
    for a, b in zip(module(x), expected, strict=True):
        assert a.shape == b.shape
        assert torch.equal(a, b)


def test_two_reshapes_are_one() -> None:
    module = traced(lambda x: (x.mm(x).view(2, 8).view(4, 2, 2).sin(),), torch.ones(4, 4))
    drop_views(module.graph, range(0))
    assert left(module) == ["mm", "view", "sin"]
    module.recompile()
    x = torch.randn(4, 4)
    torch.testing.assert_close(module(x)[0], x.mm(x).view(4, 2, 2).sin())


def test_results_stay_views_but_where_asked() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin()
        return y.t().t(), y.detach()

    module = traced(f, torch.ones(3, 5))
    drop_views(module.graph, [1])
    output = list(module.graph.nodes)[-1]
    assert names(list(output.args[0])) == ["t", "sin"]
    assert left(module) == ["sin", "t", "t"]


def test_another_layout_stays() -> None:
    """A transposed square, a slice, and a reinterpreted dtype are kept, although sizes are
    equal."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        square = x[:3]
        return square.t() + 1, x[1:] + x[:3], square.view(torch.int32) + 1

    module = traced(f, torch.ones(4, 3))
    # A dtype view is followed by a full view, whose name depends on the version of torch.
    before = [op for op in left(module) if op not in ("detach", "alias")]
    drop_views(module.graph, range(0))
    assert left(module) == before


def test_a_view_of_views_is_one_of_their_memory() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.sin().view(2, 6).split(3, 1)
        return a.t().mm(b.t().t()), x.t()

    module = traced(f, torch.ones(4, 3))
    nodes = {n.name: n for n in module.graph.nodes}
    bases = bases_of_views(module.graph)
    assert {bases[n] for n in bases if not n.name.startswith("split")} == {nodes["sin"]}
    assert nodes["t_3"] not in bases  # a graph output shares the version of x
    x = torch.randn(4, 3).sin()
    for node, base in bases.items():
        value, offset = node.meta["val"], node.meta["val"].storage_offset()
        if base is nodes["sin"]:
            shown = reinterpret_tensor(x, value.shape, value.stride(), offset)
            assert torch.equal(shown, x.as_strided(value.shape, value.stride(), offset))


def test_symbols_and_other_types_stay_views() -> None:
    module = traced(lambda x: (x.sin().t().mm(x),), torch.ones(4, 3), dynamic=True)
    assert not bases_of_views(module.graph)
    module = traced(lambda x: (x.sin().view(torch.int32).t() + 1,), torch.ones(4, 3))
    bases = bases_of_views(module.graph)
    assert set(names(list(bases.values()))) == {"view"}


def test_views_of_what_is_written_stay() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor]:
        y = x.t()
        x.copy_(y.sin())
        return (y.mm(y),)

    assert not bases_of_views(traced(f, torch.ones(3, 3)).graph)


def test_laid_out() -> None:
    x = torch.randn(3, 4)
    y = laid_out(x, (1, 3))
    assert y.stride() == (1, 3)
    assert torch.equal(x, y)


def test_whose_memory_a_tensor_lies_in() -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        y = torch.ops.aten.mm(x, x)
        views = [y.t(), torch.ops.aten._unsafe_view(y, [16]), torch.ops.aten.resolve_conj(y)]
        return [*views, torch.ops.aten.clone(y)]

    graph = traced(f, torch.ones(4, 4)).graph
    results = next(n for n in graph.nodes if n.op == "output").args[0]
    assert [owner_of(n).name for n in results] == ["mm", "mm", "mm", "clone"]


@pytest.mark.parametrize(
    ("sizes", "strides", "order"),
    [
        ((2, 3), (3, 1), [1, 0]),
        ((2, 3), (1, 2), [0, 1]),
        ((2, 1, 3), (3, 77, 1), [2, 1, 0]),
        ((1, 3, 2), (6, 1, 3), [2, 0, 1]),
        ((1, 4, 3), (4, 1, 4), [1, 0, 2]),
        ((1, 3), (1, 1), [0, 1]),
        ((2, 1, 4, 6), (24, 1, 6, 1), [3, 0, 2, 1]),
        ((1, 5, 1, 3), (99, 3, 3, 1), [3, 2, 1, 0]),
        ((), (), []),
    ],
)
def test_stride_order(sizes: tuple, strides: tuple, order: list[int]) -> None:
    assert stride_order(torch.empty_strided(sizes, strides)) == order


def test_gaps_are_unsupported() -> None:
    with pytest.raises(Unsupported):
        stride_order(torch.empty_strided((2, 3), (4, 1)))
    with pytest.raises(Unsupported):
        stride_order(torch.empty(3).expand(2, 3))


def test_equal_copies_are_merged_unless_they_are_results() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.t()
        a, b, c = (y.clone(memory_format=torch.contiguous_format) for _ in range(3))
        return a.sin(), b.view(-1).cos(), c.view(-1), x.clone().cos(), y.clone().cos()

    x = torch.randn(3, 5)
    module = traced(f, x)
    expected = module(x)
    drop_views(module.graph, range(0))
    merge_copies(module.graph)
    module.recompile()
    assert left(module).count("clone") == 4
    for a, b in zip(module(x), expected, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_copies_around_a_write_stay() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.ops.aten.clone.default(x)
        torch.ops.aten.add_.Tensor(x, 1)
        return a.sin(), torch.ops.aten.clone.default(x).sin()

    module = traced(f, torch.ones(3))
    merge_copies(module.graph)
    assert left(module).count("clone") == 2
