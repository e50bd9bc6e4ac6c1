"""Strides of results of scripts, including strides known only at run time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from fuser.adapters import torchscript
from tests.adapters.script_ops import eager
from tests.support.scripts import assert_same, compiled, counted, fused, groups


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused():
        yield


def test_a_part_of_a_dim_that_gets_a_second_element() -> None:
    """If the dim of a slice grows beyond one element, the order of dims in memory changes."""
    source = """\
def f(x: Tensor):
    p, q = torch.chunk(x.permute([0, 2, 3, 1]), 2, 2)
    return torch.exp(p * 2), torch.exp(q * 2)
"""
    f, expected = compiled(source), eager(source)
    sizes = [(3, 4, 5, 2)] * 4 + [(3, 4, 5, n) for n in (3, 4, 2, 40, 100, 101)] * 2
    for shape in sizes:
        x = torch.randn(shape)
        for got, wanted in zip(f(x), expected(x), strict=True):
            assert got.stride() == wanted.stride(), shape
            assert_same([got], [wanted])
    assert groups(f.graph_for(x)) == 1


def test_sizes_beyond_those_that_parts_depend_on_share_a_definition() -> None:
    source = """\
def f(x: Tensor):
    a, b = torch.chunk(x, 2, 1)
    return torch.sigmoid(a) * b + 1
"""
    f, expected = compiled(source), eager(source)

    def image(batch: int, size: int) -> torch.Tensor:
        x = torch.randn(batch, 8, size, size)
        return x.contiguous(memory_format=torch.channels_last)

    for _ in range(4):
        f(image(5, 6))
    before = torchscript.counters()
    for batch in range(5, 9):
        for size in range(5, 15):
            x = image(batch, size)
            got, wanted = f(x), expected(x)
            assert got.stride() == wanted.stride()
            assert_same([got], [wanted])
    assert counted("definitions", before) <= 1
    assert counted("fallbacks", before) == 0


@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_with_gradients_is_fused(train: bool) -> None:
    """Batch norm with gradients is fused, although some of its saved activations are empty."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()).train(train)
    scripted = torch.jit.script(model)
    x = torch.randn(2, 4, 3, 3, requires_grad=True)
    dy = torch.randn(2, 4, 3, 3)
    for _ in range(4):
        scripted(x).backward(dy)
    before = torchscript.counters()
    other = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()).double().train(train)
    other.load_state_dict(model.state_dict())
    for t in (x, *model.parameters()):
        t.grad = None
    x64 = x.detach().double().requires_grad_()
    y, wanted = scripted(x), other(x64)
    y.backward(dy)
    wanted.backward(dy.double())
    assert counted("runs", before) == 2
    assert counted("fallbacks", before) == 0
    torch.testing.assert_close(y.double(), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(x.grad.double(), x64.grad, rtol=1e-4, atol=1e-5)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-4, atol=1e-5)
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a.to(b.dtype), b, rtol=1e-5, atol=1e-6)
