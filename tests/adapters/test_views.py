"""fuser/adapters/views.py: views without a difference are dropped."""

from __future__ import annotations

import pytest
import torch

from fuser.adapters.views import drop_views
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
    """The same sizes are not enough: a transposed square, a part, another type."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        square = x[:3]
        return square.t() + 1, x[1:] + x[:3], square.view(torch.int32) + 1

    module = traced(f, torch.ones(4, 3))
    before = [op for op in left(module) if op != "detach"]
    drop_views(module.graph, range(0))
    assert left(module) == before
