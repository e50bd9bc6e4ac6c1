"""What rearranges elements, as models write it: one kernel that reads and writes each element once,
with sizes as numbers and as symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

import fuser
from fuser.adapters.report import recording

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
    # Each input is one operand, but where a view of it is all that is read.
    assert found.bytes == sum(t.nbytes for t in (*inputs, *expected))
