"""Data movement as models write it becomes one kernel that reads and writes each element once, with
static and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

import fuser
from fuser import _core, _core_testing
from fuser.adapters.partition import partition
from fuser.adapters.region import Definition
from fuser.adapters.report import explain_model, recording
from tests.adapters.graphs import traced

B, L, H, D = 2, 12, 4, 8


def split_heads(x: Tensor) -> list[Tensor]:
    b, length, _ = x.shape
    q, k, v = x.reshape(b, length, 3, H, D).permute(2, 0, 3, 1, 4)
    return [q * 0.125, k.contiguous(), v.contiguous()]


def split_and_turn(x: Tensor) -> list[Tensor]:
    b, length, _ = x.shape
    heads = (t.view(b, length, H, D).transpose(1, 2) for t in x.split([H * D] * 3, -1))
    return [(t * scale).contiguous() for t, scale in zip(heads, (0.125, 1.0, 2.0), strict=True)]


def norms_of_heads(x: Tensor) -> list[Tensor]:
    b, length, _ = x.shape
    q, k, v = x.view(b, length, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)
    turned = [t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-6) for t in (q, k)]
    return [*turned, v.contiguous()]


def merge_heads(x: Tensor, y: Tensor) -> Tensor:
    b, h, length, d = x.shape
    return x.transpose(1, 2).reshape(b, length, h * d) + y


def windows(x: Tensor) -> Tensor:
    b, h, w, c = x.shape
    x = torch.roll(x, (-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c) * 2


def from_windows(x: Tensor, y: Tensor) -> Tensor:
    b, h, w, c = y.shape
    x = x.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
    return torch.roll(x, (2, 2), (1, 2)) + y


def patches(x: Tensor) -> Tensor:
    b, c, h, w = x.shape
    x = (x * 2 - 1).view(b, c, h // 4, 4, w // 4, 4)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * 16)


def space_to_depth(x: Tensor) -> Tensor:
    b, h, w, c = x.shape
    x = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5)
    return (x.reshape(b, h // 2, w // 2, 4 * c) * 2).relu()


def merge_patches(x: Tensor) -> Tensor:
    parts = [x[:, i::2, j::2] for j in range(2) for i in range(2)]
    return torch.cat(parts, -1) * 2


def shuffle_channels(x: Tensor, y: Tensor) -> Tensor:
    both = torch.cat([x, y], 1)
    b, c, h, w = both.shape
    return both.relu().view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w) * 2


def shuffle_channels_last(x: Tensor) -> Tensor:
    return torch.channel_shuffle(x.to(memory_format=torch.channels_last).relu(), 3) * 2


def wavelets(x: Tensor) -> list[Tensor]:
    a, b, c, d = (x[:, :, i::2, j::2] for i in range(2) for j in range(2))
    return [a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d]


def turn_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2) + 1


def turn_heads(x: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
    b, length, _ = x.shape
    q, k, v = x.view(b, length, 3, H, D).permute(2, 0, 3, 1, 4)

    def turned(t: Tensor) -> Tensor:
        first, second = t.chunk(2, -1)
        return t * cos + torch.cat([-second, first], -1) * sin

    return [turned(q), turned(k), v.contiguous()]


def repeat_heads(x: Tensor) -> Tensor:
    b, h, length, d = x.shape
    return x[:, :, None].expand(b, h, 3, length, d).reshape(b, 3 * h, length, d) * 2


PROGRAMS: list[tuple[Callable[..., Any], Sequence[tuple[int, ...]]]] = [
    (split_heads, [(B, L, 3 * H * D)]),
    (split_and_turn, [(B, L, 3 * H * D)]),
    (norms_of_heads, [(B, L, 3 * H * D)]),
    (merge_heads, [(B, H, L, D), (B, L, H * D)]),
    (windows, [(2, 8, 8, 16)]),
    (from_windows, [(8, 16, 16), (2, 8, 8, 16)]),
    (patches, [(2, 3, 8, 8)]),
    (space_to_depth, [(2, 8, 8, 12)]),
    (merge_patches, [(2, 8, 8, 12)]),
    (shuffle_channels, [(2, 6, 8, 8), (2, 6, 8, 8)]),
    (shuffle_channels_last, [(2, 12, 8, 8)]),
    (wavelets, [(2, 3, 8, 8)]),
    (turn_pairs, [(B, L, H, D), (L, D // 2), (L, D // 2)]),
    (turn_heads, [(B, L, 3 * H * D), (L, D), (L, D)]),
    (repeat_heads, [(B, 2, L, D)]),
    (lambda x: F.pixel_shuffle(x, 2).relu() * 2, [(2, 12, 8, 8)]),
    (lambda x: F.pixel_unshuffle(x, 2).relu() * 2, [(2, 3, 8, 8)]),
    (lambda x: x.repeat_interleave(3, 1) * 2, [(B, 2, L, D)]),
]


@pytest.mark.parametrize("dynamic", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize(("function", "shapes"), PROGRAMS, ids=lambda f: getattr(f, "__name__", ""))
def test_movements_are_one_kernel(function, shapes, dynamic: bool) -> None:
    g = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=g) for shape in shapes]
    torch._dynamo.reset()
    with recording(keeps_runs=True) as seen:
        results = tree_leaves(torch.compile(function, backend="fuser", dynamic=dynamic)(*inputs))
    expected = tree_leaves(function(*inputs))
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-6)
        assert result.stride() == wanted.stride()
    assert not any(graph.left or graph.fallbacks for graph in seen.graphs)
    (run,) = seen.runs
    found = fuser.explain(run.fd, run.inputs)
    assert len(found.steps) == 1
    # Each input is one operand, except if only a view of it is read.
    assert found.bytes == sum(t.nbytes for t in (*inputs, *expected))


# ---- between other ops of a graph


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.interpolate(x.sin(), scale_factor=(1.5, 2.0), mode="bilinear").cos(),
        lambda x: F.pad(x.sin(), (1, 1, 2, 2), mode="reflect").cos(),
        lambda x: F.pad(x[0].sin(), (1, 2), mode="replicate").cos(),
        lambda x: torch.linalg.cross(x.sin(), x.cos(), dim=1).exp(),
        lambda x: x.softmax(-1).scatter(-1, x.argmax(-1, keepdim=True), 2.0).log(),
        lambda x: torch._weight_norm(x.sin(), x[:, :1, :1, :1].exp(), 0).cos(),
        lambda x: x.new_empty(x.shape).copy_(x.sin()).cos(),
    ],
    ids=["bilinear", "reflect", "replicate", "cross", "scatter", "weight_norm", "empty"],
)
def test_what_moves_between_elementwise_ops_is_fused(function: Any) -> None:
    torch._dynamo.reset()
    x = torch.randn(2, 3, 4, 6)
    report = explain_model(function, x)
    found, true = torch.compile(function, backend="fuser")(x), function(x.double())
    torch.testing.assert_close(found.double(), true, rtol=1e-5, atol=1e-5)
    assert found.stride() == function(x).stride()
    assert not any(graph.left or graph.fallbacks for graph in report.graphs)


def test_numbers_by_size_and_angle_are_fused() -> None:
    def f(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(angle.exp(), angle)
        return torch.view_as_real(turned).flatten(-2)

    torch._dynamo.reset()
    x, angle = torch.randn(2, 3, 8), torch.randn(3, 4)
    report = explain_model(f, x, angle)
    found = torch.compile(f, backend="fuser")(x, angle)
    torch.testing.assert_close(found.double(), f(x.double(), angle.double()), rtol=1e-5, atol=1e-5)
    assert not any(graph.left or graph.fallbacks for graph in report.graphs), str(report)


def test_gradients_of_every_other_element_are_fused() -> None:
    """Gradients of strided slices are fused: rotary embeddings of neighbouring pairs, a gather of
    one label per row, weight norm."""

    def f(x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * x.sin()
        given = x.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        weight = torch._weight_norm(x.exp(), x[:1, :1].cos(), 2)
        return turned, given * 2, weight * x

    x, labels = torch.randn(3, 4, 6, requires_grad=True), torch.randint(0, 6, (3, 4))
    report = explain_model(f, x, labels)
    torch._dynamo.reset()
    results = torch.compile(f, backend="fuser")(x, labels)
    wide = x.detach().double().requires_grad_()
    true = f(wide, labels)
    (found,) = torch.autograd.grad(sum(t.square().sum() for t in results), x)
    (exact,) = torch.autograd.grad(sum(t.square().sum() for t in true), wide)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
    assert not any(graph.left or graph.fallbacks for graph in report.graphs), str(report)


def test_what_is_written_into_a_slice_is_fused() -> None:
    def f(words: torch.Tensor) -> torch.Tensor:
        shifted = words.new_zeros(words.shape)
        shifted[..., 1:] = words[..., :-1].clone()
        shifted[..., 0] = 3
        return shifted * 2

    torch._dynamo.reset()
    words = torch.arange(12).view(3, 4)
    report = explain_model(f, words)
    assert torch.equal(torch.compile(f, backend="fuser")(words), f(words))
    assert not any(graph.left or graph.fallbacks for graph in report.graphs)


def test_what_is_written_into_a_slice_of_a_slice_is_fused() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z, turned = x * 2, x.sin().transpose(1, 2).contiguous().transpose(1, 2)
        z[:, 1:3, 2:5] = y
        z[:, :, 0] = 1
        turned[1:, :2, 3:].mul_(3)
        return z * 3, turned

    torch._dynamo.reset()
    x, y = torch.randn(3, 4, 6), torch.randn(3, 2, 3)
    report = explain_model(f, x, y)
    for got, want in zip(torch.compile(f, backend="fuser")(x, y), f(x, y), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
    assert not any(graph.left or graph.fallbacks for graph in report.graphs), str(report)


def test_what_is_written_into_a_permuted_tensor_is_fused() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x.t() * 2
        z[:, 1:3] = y.t()
        return z * 3, z

    torch._dynamo.reset()
    x, y = torch.randn(5, 6), torch.randn(2, 6)
    report = explain_model(f, x, y)
    for got, want in zip(torch.compile(f, backend="fuser")(x, y), f(x, y), strict=True):
        assert torch.equal(got, want)
        assert got.stride() == want.stride()
    assert not any(graph.left or graph.fallbacks for graph in report.graphs)


def shifted_norm(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """The gradient of a shifted window's input, from those of queries, keys and values."""
    b, h, w, c = 2, 8, 8, 16
    x = (x + y + z).view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
    x = torch.roll(x, (2, 3, 1), (1, -2, 0))
    return x - x.mean(-1, keepdim=True)


def test_a_roll_reads_each_operand_once() -> None:
    """One access for each operand in a kernel for an H100: vectors, without masks for parts."""
    inputs = [torch.randn(8, 16, 16) for _ in range(3)]
    (nodes,) = partition(traced(shifted_norm, *inputs).graph).regions
    made = Definition(nodes, [nodes[-1]])
    device = _core.known_device(90)
    layouts = [(list(x.shape), list(x.stride()), 0) for x in inputs]
    (kernel,) = _core_testing.plan.plans(made.fd._builder, layouts, device, True)
    text = kernel["cuda"].text
    assert [text.count(f", g_in{i} + ") for i in range(3)] == [1, 1, 1]
    assert kernel["plan"]["vectorized"] == 0b1111
    torch._dynamo.reset()
    got = torch.compile(shifted_norm, backend="fuser")(*inputs)
    expected = shifted_norm(*(x.double() for x in inputs))
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_rolls_by_any_shift(size: int, dynamic: bool) -> None:
    def f(x: Tensor) -> Tensor:
        for shift in (-7, -1, 0, 2, 5):
            x = torch.roll(x, (shift, shift), (0, 1)) + 1
        return x

    torch._dynamo.reset()
    x = torch.randn(size, 4, 3)
    got = torch.compile(f, backend="fuser", dynamic=dynamic)(x)
    torch.testing.assert_close(got, f(x), rtol=0, atol=0)
