"""fuser/adapters/graph/constants.py: factories that ops of torch read are made once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from fuser.adapters import compile_graph
from fuser.adapters.graph.constants import keep_constants
from tests.adapters.graphs import names, traced


def bags(words: torch.Tensor, table: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return F.embedding_bag(words, table) + F.embedding_bag(words, other)


def inputs() -> tuple[torch.Tensor, ...]:
    return torch.randint(0, 9, (6, 4)), torch.randn(9, 5), torch.randn(9, 5)


def kinds(module: fx.GraphModule) -> list[str]:
    return [str(n.target) if n.op == "call_function" else n.op for n in module.graph.nodes]


def test_equal_factories_are_one_attribute() -> None:
    given = inputs()
    module = traced(lambda *x: (bags(*x),), *given)
    assert kinds(module).count("aten.arange.start_step") == 2
    keep_constants(module.graph, ())
    module.graph.eliminate_dead_code()
    module.recompile()
    assert kinds(module).count("get_attr") == 1
    assert "aten.arange.start_step" not in kinds(module)
    for _ in range(2):
        torch.testing.assert_close(module(*given)[0], bags(*given))


def test_factories_that_are_written_returned_or_viewed_stay() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        viewed = torch.arange(4.0).view(2, 2)
        return torch.zeros(3), viewed, torch.mv(torch.ones(2, 2), x)

    module = traced(function, torch.randn(2))
    keep_constants(module.graph, ())
    kept = [n for n in module.graph.nodes if n.op == "get_attr"]
    assert [names(n.users) for n in kept] == [["mv"]]


def test_large_factories_and_those_of_regions_stay() -> None:
    module = traced(lambda x: (torch.mv(torch.ones(1 << 18, 2), x),), torch.randn(2))
    keep_constants(module.graph, ())
    assert all(n.op != "get_attr" for n in module.graph.nodes)
    module = traced(lambda x: (torch.ones(2) * x,), torch.randn(2))
    keep_constants(module.graph, list(module.graph.nodes))
    assert all(n.op != "get_attr" for n in module.graph.nodes)


def test_a_compiled_graph_makes_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    real = compile_graph.program

    def program(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        written.append(result[0].text)
        return result

    monkeypatch.setattr(compile_graph, "program", program)
    run = torch.compile(bags, backend="fuser")
    with torch.no_grad():
        for _ in range(2):
            given = inputs()
            torch.testing.assert_close(run(*given), bags(*given))
    assert len(written) == 1
    assert "dtype" not in written[0]  # of a factory's call


def test_gradients_of_ops_that_read_constants() -> None:
    words, *tables = inputs()
    results = []
    for function in (bags, torch.compile(bags, backend="fuser")):
        own = [t.clone().requires_grad_() for t in tables]
        function(words, *own).square().sum().backward()
        results.append([t.grad for t in own])
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted)
