"""fuser/adapters/graph/prepacking.py: packed weights and joined activations of oneDNN."""

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
from fuser.adapters.graph.cpu_products import choose_library
from fuser.adapters.graph.freezing import freeze
from fuser.adapters.graph.prepacking import pack_weights
from tests.adapters.graphs import names, traced

LAST = torch.channels_last


@pytest.fixture(autouse=True)
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor for which oneDNN is faster; any product is large."""
    monkeypatch.setattr(cpu_products, "prefers_onednn", lambda: True)
    monkeypatch.setattr(cpu_products, "_LARGE", 1)


def packed(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> fx.GraphModule:
    """The graph after the passes, which compute the result in two calls and after a change of the
    parameters, which are all inputs but the first."""
    module = traced(lambda *given: (function(*given),), *inputs)
    static = range(1, len(inputs))
    choose_library(module.graph)
    pack_weights(module.graph, static)
    freeze(module.graph, static)
    module.graph.lint()
    module.recompile()
    tolerance = 1e-5 if inputs[0].dtype == torch.float32 else 2e-2
    with torch.no_grad():
        for change in (1, 1, -2):
            for t in inputs[1:]:
                t.mul_(change)
            (found,), wanted = module(*inputs), function(*inputs)
            torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
            assert found.stride() == wanted.stride()
    return module


def calls(module: fx.GraphModule) -> list[tuple[str, Any]]:
    """Library calls and other ops outside the kept values, with their activations."""
    nodes = [n for n in module.graph.nodes if str(n.target).startswith(("aten.", "mkldnn."))]
    return [(names([n])[0], n.args[-3] if "pointwise" in str(n.target) else None) for n in nodes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products(dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("the processor has no bfloat16")
    x, w, b = (torch.randn(*s, dtype=dtype) for s in ((6, 8), (5, 8), (5,)))
    for given in ((x, w), (x, w, b)):
        found = packed(lambda x, w, *b: F.linear(x, w, *b), *given)
        assert calls(found) == [("_linear_pointwise", "none")]
    found = packed(lambda x, w: x @ w, x, w.t().contiguous())
    assert calls(found) == [("_linear_pointwise", "none")]


@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions(groups: int) -> None:
    x = torch.randn(2, 4, 6, 6).to(memory_format=LAST)
    w, b = torch.randn(4, 4 // groups, 3, 3), torch.randn(4)
    for given in ((x, w), (x, w, b)):
        found = packed(
            lambda x, w, b=None: F.conv2d(x, w, b, padding=1, stride=2, groups=groups), *given
        )
        assert calls(found) == [("_convolution_pointwise", "none")]
    rows = packed(lambda x, w: F.conv2d(x, w, groups=groups), x.contiguous(), w)
    assert calls(rows) == [("convolution", None)]


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        *((F.relu, "relu"), (torch.sigmoid, "sigmoid"), (torch.tanh, "tanh")),
        *((F.hardswish, "hardswish"), (F.silu, "swish"), (F.gelu, "gelu")),
        (lambda y: F.gelu(y, approximate="tanh"), "gelu"),
    ],
)
def test_activations_between_library_calls(activation, name: str) -> None:
    x, w, v = torch.randn(6, 8), torch.randn(8, 8), torch.randn(8, 8)
    found = packed(lambda x, w, v: F.linear(activation(F.linear(x, w)), v), x, w, v)
    assert calls(found) == [("_linear_pointwise", name), ("_linear_pointwise", "none")]


def test_other_activations_stay() -> None:
    """An activation that a region takes, or whose operand has another reader."""
    x, w = torch.randn(6, 8), torch.randn(8, 8)
    found = packed(lambda x, w: F.linear(x, w).relu() * 2, x, w)
    assert calls(found) == [("_linear_pointwise", "none"), ("relu", None), ("mul", None)]
    found = packed(lambda x, w: (y := F.linear(x, w)).relu() @ y.t(), x, w)
    assert ("relu", None) in calls(found)


def test_weights_of_inputs_are_not_packed() -> None:
    x, w = torch.randn(6, 8), torch.randn(8, 8)
    module = traced(lambda x, w: (F.linear(x, w),), x, w)
    choose_library(module.graph)
    pack_weights(module.graph, ())
    assert not [n for n in module.graph.nodes if "reorder" in str(n.target)]


def test_a_network() -> None:
    """Convolutions with folded norms and a perceptron: library calls alone, the mean, and a copy of
    the row-major input."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)]
    model = nn.Sequential(*layers).eval()
    run = torch.compile(model, backend=backend, options={"freezing": True})
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad(), report.recording() as seen:
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        model[0].weight.mul_(2)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
    left = {op: n for graph in seen.graphs for (op, _), n in graph.left.items()}
    assert left.pop("aten.clone.default") == 1
    assert left.pop("values of parameters, kept between calls") == 1
    assert left == {
        "mkldnn._convolution_pointwise.default": 2,
        "mkldnn._linear_pointwise.default": 2,
    }
