"""A user's Triton kernel inside of a compiled program, forward and backward."""

from __future__ import annotations

import pytest
import torch

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

pytestmark = pytest.mark.gpu


@triton.jit
def _scaled(x, out, count, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) * scale, mask=inside)


def _tripled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    _scaled[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), 3.0, BLOCK=128)
    return out


class _Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _tripled(x)

    @staticmethod
    def backward(ctx, dy):
        return _tripled(dy)


def test_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_STRICT", "1")
    x = torch.randn(1000, device="cuda")

    def f(x: torch.Tensor) -> torch.Tensor:
        return (_tripled(x.sin() + 1) * 2 + x).cos()

    want = ((x.double().sin() + 1) * 6 + x.double()).cos()
    got = torch.compile(f, backend="fuser", fullgraph=True)(x)
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_STRICT", "1")
    x = torch.randn(1000, device="cuda", requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return (_Tripled.apply(x.sin() + 1) * 2 + x).cos().sum()

    torch.compile(f, backend="fuser", fullgraph=True)(x).backward()
    exact = x.detach().double().requires_grad_()
    ((exact.sin() + 1) * 6 + exact).cos().sum().backward()
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=1e-5, atol=1e-4)
