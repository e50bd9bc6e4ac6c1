"""fuser/adapters/graph/freezing.py: values of parameters, kept between calls."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from fuser.adapters import report
from fuser.adapters.dynamo import backend
from fuser.adapters.graph.freezing import Frozen, freeze, refreshing
from tests.adapters.graphs import names, traced
from tests.adapters.training import ConvNet


def frozen(
    function: Callable[..., Any], *inputs: torch.Tensor, static: tuple[int, ...] = (1,)
) -> tuple[fx.GraphModule, list[str], list[str]]:
    """The graph after the pass, the ops of the kept function, and the ops of the graph."""
    module = traced(function, *inputs)
    freeze(module.graph, static)
    module.graph.lint()
    module.recompile()
    calls = [n for n in module.graph.nodes if n.op == "call_function"]
    kept = [n.target.module.graph for n in calls if isinstance(n.target, Frozen)]
    inside = [names([n]) for g in kept for n in g.nodes if n.op == "call_function"]
    outside = [n for n in calls if str(n.target).startswith("aten.")]
    return module, [name for one in inside for name in one], names(outside)


X, W = torch.randn(3, 4), torch.randn(4, 4)


def cast(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x.bfloat16() @ (w * 2).bfloat16().t(), x + w[0])


def test_values_of_parameters_are_kept() -> None:
    """Casts, products and views of parameters are computed in the first call alone."""
    module, inside, outside = frozen(cast, X, W)
    assert inside == ["mul", "_to_copy", "t", "select"]
    assert outside == ["_to_copy", "mm", "add"]
    (node,) = [n for n in module.graph.nodes if isinstance(n.target, Frozen)]
    for _ in range(2):
        torch.testing.assert_close(module(X, W), cast(X, W))
        first = node.target.results
    assert all(a is b for a, b in zip(first, node.target(W), strict=True))


def test_a_changed_parameter_is_seen() -> None:
    """After a write in place, the values are new, in the same memory; other memory is seen too."""
    w = W.clone()
    module, *_ = frozen(cast, X, w)
    (node,) = [n for n in module.graph.nodes if isinstance(n.target, Frozen)]
    module(X, w)
    memory = node.target.results[0].data_ptr()
    w.mul_(3)
    torch.testing.assert_close(module(X, w), cast(X, w))
    assert node.target.results[0].data_ptr() == memory
    torch.testing.assert_close(module(X, w + 1), cast(X, w + 1))
    with torch.inference_mode():
        torch.testing.assert_close(module(X, w * 2), cast(X, w * 2))
    torch.testing.assert_close(module(X, w), cast(X, w))


def test_what_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of inputs, results of the graph and their views, random numbers, expanded parameters
    and constants stay."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        tall = (w + 1).expand(8, 4, 4).clone()
        return (w * 2).t(), tall + x.sum(), torch.ones(4) + x, torch.rand_like(w) + x.sum()

    monkeypatch.setattr("fuser.adapters.graph.freezing._ALWAYS", 64)
    _, inside, outside = frozen(f, X, W)
    assert "rand_like" in outside
    assert {"t", "clone", "ones"} <= set(outside)
    assert "mul" not in inside
    _, inside, _ = frozen(lambda x, w: (x.sum() + w * 2,), X, W, static=())
    assert inside == []


def test_a_written_tensor_is_no_parameter() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x.sum() + w * 2
        w.copy_(y)
        return (y,)

    module = traced(f, X, W.clone())
    freeze(module.graph, (1,))
    assert not [n for n in module.graph.nodes if isinstance(n.target, Frozen)]


def test_a_constant_beside_a_parameter_is_part_of_its_value() -> None:
    """A position bias: indices made of constants, and rows of a table."""

    def f(x: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor]:
        far = (torch.arange(5)[None] - torch.arange(5)[:, None]).abs()
        return (x + table[far] + far[..., None],)

    x, table = torch.randn(5, 5, 2), torch.randn(5, 2)
    module, inside, outside = frozen(f, x, table)
    assert "index" in inside
    assert "index" not in outside
    torch.testing.assert_close(module(x, table), f(x, table))


def test_a_replayed_graph_checks_parameters() -> None:
    module, *_ = frozen(cast, X, W)
    (node,) = [n for n in module.graph.nodes if isinstance(n.target, Frozen)]
    seen: list[Any] = []
    run = refreshing(lambda arguments: seen.append(arguments), module.graph)
    run([X, W])
    assert len(node.target.results) == 2
    assert len(seen) == 1
    plain = traced(cast, X, W).graph
    assert refreshing(seen.append, plain) == seen.append


class _Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.last = ConvNet().eval(), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        y = self.net.conv(x).mean((2, 3))[:, :4]
        return F.gelu(self.last(y)).softmax(1) + self.net(x, labels)


@pytest.mark.parametrize("half", [False, True])
def test_a_network(half: bool) -> None:
    """Results equal float64's within eager's error, before and after load_state_dict()."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, other = _Mixed().eval(), _Mixed().eval()
    inputs = torch.randn(2, 3, 8, 8), torch.tensor([1, 3])
    run = torch.compile(model, backend=backend, options={"freezing": True})
    with torch.no_grad(), report.recording() as seen:
        for _ in range(2):
            for _ in range(2):
                with torch.autocast("cpu", torch.bfloat16, half):
                    found, eager = run(*inputs), model(*inputs)
                true = copy.deepcopy(model).double()(inputs[0].double(), inputs[1])
                error = (eager - true).abs().max()
                assert (found - true).abs().max() <= 2 * error + 1e-6
            model.load_state_dict(other.state_dict())
    kept = "values of parameters, kept between calls"
    assert [kept in {op for op, _ in graph.left} for graph in seen.graphs] == [True]


def test_training_freezes_nothing() -> None:
    torch._dynamo.reset()
    x = torch.randn(3, 4)
    model = nn.Linear(4, 4)
    with report.recording() as seen:
        torch.compile(model, backend=backend, options={"freezing": True})(x).sum().backward()
    assert {graph.name for graph in seen.graphs} == {"forward", "backward"}
    assert not [op for graph in seen.graphs for op, _ in graph.left if "kept" in op]
