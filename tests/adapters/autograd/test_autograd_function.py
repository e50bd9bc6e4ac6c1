"""fuser/adapters/autograd/autograd_function.py: autograd functions without AOTAutograd's
wrappers.
"""

from __future__ import annotations

import pytest
import torch

import fuser
from fuser._native import load_torch
from fuser.adapters.autograd.autograd_function import direct
from fuser.adapters.compile_graph import Options
from fuser.adapters.dynamo import compilers


def made(function, *inputs: torch.Tensor):
    ours = compilers(Options())
    switch = load_torch().DirectSwitch()
    switch.function = direct(function, inputs, ours["fw_compiler"], ours["bw_compiler"])
    return switch.call if switch.function is not None else None


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(0.1, 2, torch.Size(shape).numel()).reshape(shape).requires_grad_()


def test_several_results_and_gradients() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"a": (x * y).exp(), "b": x.sin() + 1}

    x, y = leaf(4, 8), leaf(8)
    run = made(f, x, y)
    assert run is not None
    results, expected = run(x, y), f(x, y)
    assert results.keys() == expected.keys()
    # An expanded gradient, and a transposed one.
    seeds = [torch.ones(()).expand(4, 8), torch.rand(8, 4).t()]
    found, wanted = (
        torch.autograd.grad(list(r.values()), [x, y], seeds) for r in (results, expected)
    )
    for a, b in zip((*results.values(), *found), (*expected.values(), *wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_what_a_rewriting_creates_is_fake() -> None:
    """The gradient of an interpolation creates a zero tensor, which must be a FakeTensor."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")

    x = leaf(2, 3, 4, 4)
    run = made(f, x)
    assert run is not None
    found, wanted = (torch.autograd.grad(g(x).square().sum(), x) for g in (run, f))
    torch.testing.assert_close(found, wanted)


def test_what_is_not_plain_is_refused() -> None:
    x = leaf(4)
    assert made(lambda x: x.view(2, 2), x) is None  # an alias of an input
    assert made(lambda x: (x * 2, (x > 1)), x) is None  # a result without gradient
    assert made(lambda x: x * 2, x.detach()) is None
    assert made(lambda x, n: x * n, x, 3) is None
    with torch.no_grad():
        assert made(lambda x: x * 2, x) is None
    y = torch.ones(4)
    assert made(lambda x, y: y.add_(x.detach()) * x, x, y) is None


def test_mutation_still_works() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return (x * y).sin()

    run = fuser.memory_efficient_fusion(f)
    x, mine, theirs = leaf(4), torch.ones(4), torch.ones(4)
    torch.testing.assert_close(run(x, mine), f(x, theirs))
    assert torch.equal(mine, theirs)


def test_without_gradients_after_training() -> None:
    f = fuser.memory_efficient_fusion(lambda x: (x.sin() * x).softmax(-1))
    x = leaf(4, 8)
    f(x).sum().backward()
    with torch.no_grad():
        result = f(x)
    assert not result.requires_grad
    torch.testing.assert_close(result, (x.sin() * x).softmax(-1).detach())


def test_autocast_of_the_trace() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ w) * 2

    run = fuser.memory_efficient_fusion(f)
    x, w = leaf(4, 8), leaf(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result, expected = run(x, w), f(x, w)
        assert result.dtype == expected.dtype
        torch.testing.assert_close(result, expected, rtol=0.02, atol=0.02)
    result.float().sum().backward()
    assert w.grad is not None


def test_double_backward_is_refused() -> None:
    f = fuser.memory_efficient_fusion(lambda x: x.sin() * x)
    x = leaf(4)
    (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        g.sum().backward()
