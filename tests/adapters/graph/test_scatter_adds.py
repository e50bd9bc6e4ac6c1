"""fuser/adapters/graph/scatter_adds.py: scatter-adds by known indices become gathers and sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuser.adapters import report
from fuser.adapters.dynamo import backend
from fuser.adapters.graph.scatter_adds import gather_scatter_adds
from tests.adapters.graphs import names, traced

aten = torch.ops.aten
SCATTERS = {"_unsafe_index_put", "index_put"}


def rewritten(function: Callable[..., Tensor], *inputs: Tensor) -> torch.fx.GraphModule:
    graph = traced(function, *inputs)
    with next(iter(graph.graph.nodes)).meta["val"].fake_mode:
        gather_scatter_adds(graph.graph)
    graph.recompile()
    return graph


def ops(graph: torch.fx.GraphModule) -> list[str]:
    return names([n for n in graph.graph.nodes if n.op == "call_function"])


def scattered(g: Tensor, size: int, index: Tensor, dim: int) -> Tensor:
    sizes = [*g.shape[:dim], size, *g.shape[dim + 1 :]]
    return aten._unsafe_index_put(g.new_zeros(sizes), [*[None] * dim, index], g, True)


INDICES = {
    "twice": lambda: torch.arange(8) // 2,
    "padded": lambda: (torch.arange(10) - 3).clamp(0, 4),
    "reflected": lambda: 4 - (4 - (torch.arange(9) - 2).abs()).abs(),
    "rolled": lambda: (torch.arange(7) + 3) % 7,
    "reversed": lambda: 6 - torch.arange(7),
    "third": lambda: torch.arange(10) * 6 // 10,
    "skipped": lambda: torch.arange(4) * 3,
    "negative": lambda: torch.arange(5) - 5,
    "one": lambda: torch.arange(40) * 0,
    "long": lambda: torch.arange(100) * 3 // 100,
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_index_vectors(name: str, dim: int, rng: Any) -> None:
    """Exact: the elements are small integers."""
    size = int(INDICES[name]().max()) + 2 if name != "negative" else 5
    sizes = [2, 3, 4]
    sizes[dim] = INDICES[name]().numel()
    g = torch.from_numpy(rng.integers(-9, 9, sizes)).float()
    graph = rewritten(lambda g: scattered(g, size, INDICES[name](), dim), g)
    assert SCATTERS.isdisjoint(ops(graph))
    assert torch.equal(graph(g), scattered(g, size, INDICES[name](), dim))


def test_index_vectors_of_two_dims_and_negative_weights(rng: Any) -> None:
    """Scatters that are summed share the sums along the first dim. Exact: small integers."""
    g = torch.from_numpy(rng.integers(-9, 9, (2, 8, 12))).float()

    def f(g: Tensor) -> Tensor:
        rows, columns = torch.arange(8)[:, None] // 2, torch.arange(12) // 3
        after = (columns + 1).clamp(max=3)
        weight = (torch.arange(12) % 3).float()
        zeros = g.new_zeros(2, 4, 4)
        left = aten._unsafe_index_put(zeros, [None, rows, columns], g - g * weight, True)
        return left + aten._unsafe_index_put(zeros, [None, rows, after], g * weight, True)

    graph = rewritten(f, g)
    assert SCATTERS.isdisjoint(ops(graph))
    assert torch.equal(graph(g), f(g))
    rows_read = [n for n in graph.graph.nodes if n.target is aten.slice.Tensor and n.args[1] == 1]
    assert len(rows_read) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda g, i: scattered(g, 5, i, 0),
        lambda g, i: scattered(g, 6, torch.arange(6) - i[0], 0),
        lambda g, i: aten._unsafe_index_put(g.new_zeros(5), [torch.arange(6) // 2], g),
        lambda g, i: aten._unsafe_index_put(g.new_ones(5), [torch.arange(6) // 2], g, True),
        lambda g, i: aten._unsafe_index_put(g.new_zeros(5), [torch.arange(6) // 2], g[:1], True),
        lambda g, i: aten.index_put(g.new_zeros(40), [(torch.arange(64) - 31).clamp(0)],
                                    g.new_ones(64), True),
    ],
    ids=["given", "partly_given", "last_write", "nonzero", "expanded", "uneven"],
)  # fmt: skip
def test_other_scatters_stay(function: Callable[..., Tensor]) -> None:
    g, index = torch.arange(6.0), torch.tensor([0, 3, 0, 1, 4, 3])
    graph = rewritten(function, g, index)
    assert not SCATTERS.isdisjoint(ops(graph))
    assert torch.equal(graph(g, index), function(g, index))


def compared(function: Callable[[Tensor], Tensor], x: Tensor, tolerance: float) -> None:
    """Results and gradients against eager in float64. Torch computes no scatter."""
    torch._dynamo.reset()
    x = x.detach().requires_grad_()
    wide = x.detach().double().requires_grad_()
    expected = function(wide)
    weights = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).view(expected.shape)
    (wanted,) = torch.autograd.grad(expected, wide, weights)
    with report.recording() as seen:
        result = torch.compile(function, backend=backend)(x)
        (gradient,) = torch.autograd.grad(result, x, weights.to(result.dtype))
    left = {op for graph in seen.graphs for op, _ in graph.left}
    assert not {op for op in left if "index" in op or "upsample" in op}, left
    largest = float(wanted.abs().max())
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(
        gradient.double(), wanted, rtol=tolerance, atol=tolerance * max(1, largest)
    )


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("factor", [2.0, 0.5, 1.7, 3.0, 4.0])
def test_bilinear(factor: float, corners: bool, rng: Any) -> None:
    x = torch.from_numpy(rng.standard_normal((2, 3, 6, 9))).float()
    settings = {"scale_factor": factor, "mode": "bilinear", "align_corners": corners}
    compared(lambda x: F.interpolate(x.sin(), **settings) * 2, x, 1e-5)


@pytest.mark.parametrize(
    ("sizes", "settings"),
    [
        ((2, 3, 7), {"size": 17, "mode": "linear"}),
        ((1, 2, 5, 4), {"size": (10, 8), "mode": "bicubic"}),
        ((1, 2, 3, 4, 5), {"scale_factor": 2.0, "mode": "trilinear"}),
        ((2, 3, 5, 4), {"size": (7, 6), "mode": "nearest"}),
        ((1, 2, 2, 3), {"scale_factor": 17.0, "mode": "bilinear"}),
    ],
    ids=lambda v: v["mode"] if isinstance(v, dict) else "",
)
def test_modes(sizes: tuple[int, ...], settings: dict[str, Any], rng: Any) -> None:
    x = torch.from_numpy(rng.standard_normal(sizes)).float()
    compared(lambda x: F.interpolate(x.sin(), **settings) * 2, x, 2e-5)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_paddings(mode: str, rng: Any) -> None:
    x = torch.from_numpy(rng.standard_normal((2, 3, 6, 5))).float()
    compared(lambda x: F.pad(x.sin(), (2, 1, 3, 0), mode=mode).exp(), x, 1e-5)


def test_channels_last(rng: Any) -> None:
    x = torch.from_numpy(rng.standard_normal((2, 16, 4, 5))).float()
    x = x.to(memory_format=torch.channels_last)
    compared(lambda x: F.interpolate(x.sin(), scale_factor=3.0, mode="bilinear"), x, 1e-5)


def test_half_types_are_summed_in_float32(rng: Any) -> None:
    """A sum in bfloat16 would stop at 256."""
    g = torch.ones(4, 600, dtype=torch.bfloat16)
    graph = rewritten(lambda g: scattered(g, 2, torch.arange(600) // 300, 1), g)
    assert SCATTERS.isdisjoint(ops(graph))
    assert torch.equal(graph(g), torch.full((4, 2), 300.0, dtype=torch.bfloat16))
    x = torch.from_numpy(rng.standard_normal((2, 3, 6, 9))).bfloat16()
    compared(lambda x: F.interpolate(x, scale_factor=4.0, mode="bilinear"), x, 2e-2)
