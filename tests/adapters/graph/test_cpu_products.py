"""fuser/adapters/graph/cpu_products.py: products of CPU tensors by the faster library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from fuser.adapters import report
from fuser.adapters.dynamo import backend
from fuser.adapters.graph import cpu_products
from fuser.adapters.graph.cpu_products import choose_library, prefers_onednn
from tests.adapters.graphs import names, traced
from tests.adapters.training import agree

ONEDNN = "_linear_pointwise"


@pytest.fixture(autouse=True)
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor for which oneDNN is faster; any product is large."""
    monkeypatch.setattr(cpu_products, "prefers_onednn", lambda: True)
    monkeypatch.setattr(cpu_products, "_LARGE", 1)


def chosen(function: Callable[..., Any], *inputs: torch.Tensor) -> list[str]:
    """The products of the graph after the pass, which computes the function's results."""
    module = traced(function, *inputs)
    choose_library(module.graph)
    module.recompile()
    for found, wanted in zip(module(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert found.stride() == wanted.stride()
    products = [n for n in module.graph.nodes if n.op == "call_function"]
    return [name for name in names(products) if name in ("mm", "addmm", "bmm", ONEDNN)]


def test_products_with_and_without_bias() -> None:
    a, b, bias = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5)
    assert chosen(lambda a, b: (a @ b,), a, b) == [ONEDNN]
    assert chosen(lambda a, b: (a.t() @ b,), a.t().contiguous(), b) == [ONEDNN]
    assert chosen(lambda a, b: (a @ b.t(),), a, b.t().contiguous()) == [ONEDNN]
    assert chosen(lambda a, b, bias: (F.linear(a, b, bias),), a, b.t().contiguous(), bias) == [
        ONEDNN
    ]


def test_other_products_stay() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    assert chosen(lambda a, b: (torch.addmm(a @ b, a, b, beta=2.0),), a, b) == [ONEDNN, "addmm"]
    assert chosen(lambda a, b: (torch.addmm(torch.ones(3, 5), a, b),), a, b) == ["addmm"]
    assert chosen(lambda a, b: (a @ b,), a.double(), b.double()) == ["mm"]
    assert chosen(lambda a, b: (a @ b,), a.expand(2, 3, 4), b.expand(2, 4, 5)) == ["bmm"]


def test_small_products_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_products, "_LARGE", 3 * 4 * 5 + 1)
    assert chosen(lambda a, b: (a @ b,), torch.randn(3, 4), torch.randn(4, 5)) == ["mm"]


def test_symbolic_sizes_stay() -> None:
    graph: fx.Graph = traced(lambda a: (a @ a.t(),), torch.randn(3, 4), dynamic=True).graph
    choose_library(graph)
    assert ONEDNN not in names([n for n in graph.nodes if n.op == "call_function"])


def test_the_vendor_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a processor with AVX-512 of another vendor than MKL's prefers oneDNN."""
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    for level, vendor, wanted in (
        ("AVX512", "AuthenticAMD", True),
        ("AVX2", "AuthenticAMD", False),
        ("AVX512", "GenuineIntel", False),
        ("AVX512", "", False),
    ):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda level=level: level)
        monkeypatch.setattr(cpu_products, "_vendor", lambda vendor=vendor: vendor)
        prefers_onednn.cache_clear()
        assert prefers_onednn() == wanted
    prefers_onednn.cache_clear()


def test_a_training_step() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).square().mean()

    with report.recording() as seen:
        agree(Loss(), (torch.randn(6, 8),), backend=backend)
    left = {op for graph in seen.graphs for op, _ in graph.left}
    assert "mkldnn._linear_pointwise.default" in left
    assert not {"aten.mm.default", "aten.addmm.default"} & left
