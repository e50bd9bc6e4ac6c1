"""Comparison of a scripted function with eager, and inspection of its graphs."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

import fuser
from fuser.adapters import torchscript


@contextmanager
def fused(cpu: bool = True) -> Iterator[None]:
    """Enable the fuser for scripts, and suppress the deprecation warning of torch.jit."""
    with fuser.torchscript_fuser(cpu=cpu), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield


def compiled(source: str) -> Any:
    """The function f defined by a source text."""
    return torch.jit.CompilationUnit(textwrap.dedent(source)).f


def counted(name: str, before: dict[str, int]) -> int:
    """Increase of one of the fuser's counters since `before`."""
    return torchscript.counters()[name] - before[name]


def fallbacks() -> int:
    return torchscript.counters()["fallbacks"]


def tutorial_inputs(
    rows: tuple[int, int], width: int, vectors: int, device: str = "cpu"
) -> list[torch.Tensor]:
    shapes = [(*rows, width)] * 2 + [(width,)] * vectors
    return [torch.rand(s, device=device, requires_grad=True) for s in shapes]


def groups(graph: Any) -> int:
    """Number of fusion groups in a graph, its blocks and its differentiable subgraphs."""
    count = 0
    for node in graph.nodes():
        count += node.kind() == "prim::CudaFusionGroup"
        if node.kind() == "prim::DifferentiableGraph":
            count += groups(node.g("Subgraph"))
        count += sum(groups(block) for block in node.blocks())
    return count


def warmed(function: Callable[..., Any], *args: Any) -> Any:
    scripted = torch.jit.script(function)
    for _ in range(3):
        scripted(*args)
    return scripted


def last_graph() -> Any:
    return torch.jit.last_executed_optimized_graph()


def with_gradients(
    function: Callable[..., torch.Tensor], tensors: Sequence[torch.Tensor], *rest: Any
) -> list[torch.Tensor]:
    """The result for copies of the tensors, and the gradient of each that requires one."""
    copies = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
    result = function(*copies, *rest)
    wanted = [t for t in copies if t.requires_grad]
    if wanted and result.requires_grad:
        # Numbers of float32, rounded to the dtype.
        gradient = torch.linspace(-1, 1, result.numel(), device=result.device).to(result.dtype)
        result.backward(gradient.view(result.shape))
    return [result.detach(), *(t.grad for t in wanted if t.grad is not None)]


def assert_same(
    got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], loosen: float = 1.0
) -> None:
    """Assert equality up to one more or one fewer rounding of intermediate results."""
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        epsilon = torch.finfo(b.dtype).eps if b.is_floating_point() else 0.0
        scale = float(b.detach().abs().max()) if b.numel() and b.is_floating_point() else 0.0
        torch.testing.assert_close(
            a, b, rtol=16 * loosen * epsilon, atol=16 * loosen * epsilon * max(scale, 1.0)
        )
