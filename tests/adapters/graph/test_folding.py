"""fuser/adapters/graph/folding.py: affine maps of channels, folded into convolutions."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fuser.adapters import report
from fuser.adapters.dynamo import backend
from fuser.adapters.graph.folding import fold_affine_maps
from fuser.adapters.graph.freezing import freeze
from tests.adapters.graphs import names, traced

_RANDOM = torch.Generator().manual_seed(0)
X, W, B = (torch.randn(s, generator=_RANDOM) for s in ((2, 3, 6, 6), (4, 3, 3, 3), (4,)))
PARAMETERS = range(1, 9)


def folded(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[str]:
    """The ops after the convolution, after the pass and freezing, which keep the result."""
    module = traced(lambda *given: (function(*given),), *inputs)
    fold_affine_maps(module.graph, PARAMETERS)
    freeze(module.graph, PARAMETERS)
    module.graph.lint()
    module.recompile()
    tolerance = 1e-5 if inputs[0].dtype == torch.float32 else 2e-2
    (found,) = module(*inputs)
    torch.testing.assert_close(found, function(*inputs), rtol=tolerance, atol=tolerance)
    ops = names([n for n in module.graph.nodes if "aten" in str(n.target)])
    return ops[ops.index("convolution") + 1 :]


def column(t: torch.Tensor) -> torch.Tensor:
    return t[:, None, None]


@pytest.mark.parametrize("bias", [None, B], ids=["plain", "bias"])
@pytest.mark.parametrize(
    "f",
    [
        lambda y, b: y * column(b),
        lambda y, b: column(b) + y,
        lambda y, b: y - column(b),
        lambda y, b: (y - column(b)) * column(b) * b[0] + column(b * 2),
        lambda y, b: (y.double() * column(b).double()).float(),
    ],
)
def test_maps_of_channels(f, bias: torch.Tensor | None) -> None:
    given = (X, W, B) if bias is None else (X, W, B, bias)
    ops = folded(lambda x, w, b, *c: f(F.conv2d(x, w, *c), b).relu(), *given)
    assert ops == ["relu"]


def test_half_types_round_once() -> None:
    """The casts around a norm of half types go with it."""

    def norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return ((F.conv2d(x, w).float() - column(b)) * column(b)).bfloat16().relu()

    assert folded(norm, X.bfloat16(), W.bfloat16(), B) == ["relu"]

    def rounded(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (F.conv2d(x, w) * column(b)).bfloat16() * column(b)

    assert folded(rounded, X, W, B) == ["_to_copy", "mul"]


@pytest.mark.parametrize(
    "f",
    [
        lambda y, b: column(b) - y,
        lambda y, b: y * b,
        lambda y, b: y / column(b),
        lambda y, b: y * y.mean((2, 3), keepdim=True),
        lambda y, b: torch.add(y, column(b), alpha=2),
    ],
)
def test_other_ops_stay(f) -> None:
    y = F.conv2d(X, W)
    b = B[: y.shape[3]]
    assert "relu" in (ops := folded(lambda x, w, b: f(F.conv2d(x, w), b).relu(), X, W, b))
    assert len(ops) > 1


def test_a_result_that_is_read_twice_stays() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, w)
        return y * column(b) + y

    assert folded(f, X, W, B) == ["mul", "add"]
    transposed = W.transpose(0, 1).contiguous()
    assert "mul" in folded(lambda x, w, b: F.conv_transpose2d(x, w) * column(b), X, transposed, B)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("half", [False, True])
def test_batch_norm_of_a_frozen_network(dims: int, half: bool) -> None:
    """The convolution, its folded norm and the activation: no op of the norm is left in the graph,
    and the error is at most twice eager's."""
    torch._dynamo.reset()
    torch.manual_seed(dims)
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](3, 4, 3)
    norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dims - 1](4)
    with torch.no_grad():
        for t in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
            t.uniform_(0.5, 2)
    model = nn.Sequential(conv, norm, nn.ReLU()).eval()
    x = torch.randn(2, 3, *[7] * dims)
    run = torch.compile(model, backend=backend, options={"freezing": True})
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, half):
        with report.recording() as seen:
            found = run(x)
        eager, true = model(x), copy.deepcopy(model).double()(x.double()) if not half else None
    if true is None:
        with torch.no_grad():
            true = copy.deepcopy(model).double()(x.double())
    assert (found - true).abs().max() <= 2 * (eager - true).abs().max() + 1e-6
    fused = [op for graph in seen.graphs for region in graph.regions for op in region]
    assert not {"aten.sub.Tensor", "aten.rsqrt.default"} & {str(op) for op in fused}
