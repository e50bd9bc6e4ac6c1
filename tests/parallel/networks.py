"""Small networks for the programs of tests/parallel."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

# The parameters of a block fill more than half of DDP's smallest bucket, 1 MiB.
WIDTH, HEADS, LENGTH, CLASSES = 128, 4, 6, 11

Wrap = Callable[[nn.Module], nn.Module]
Context = Callable[[], object]


class Mlp(nn.Module):
    """Gated linear units, as in Llama."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    """Causal attention; the number of heads follows the local width of the projections."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.q, self.v, self.o = (nn.Linear(width, width) for _ in range(3))
        # A bias of the keys has gradient 0: its float32 gradient would be rounding errors alone.
        self.k = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [
            y.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for y in (self.q(x), self.k(x), self.v(x))
        ]
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A transformer block with norms before attention and MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH, eps=1e-5)
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Blocks between an embedding and a head; `around` wraps the call of each block."""

    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(CLASSES, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        self.around: Callable[..., torch.Tensor] | None = None

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x) if self.around is None else self.around(block, x)
        return self.head(self.norm(x))


class Images(nn.Module):
    """Convolutions with batch norms, for statistics over all ranks."""

    def __init__(self) -> None:
        super().__init__()
        # A bias before a batch norm has gradient 0, as a bias of keys.
        self.conv1, self.conv2 = (nn.Conv2d(n, 8, 3, padding=1, bias=False) for n in (3, 8))
        self.norm1, self.norm2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.silu(self.norm2(self.conv2(x)) + x)
        return self.head(x.mean((2, 3)))


def loss_of(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores.flatten(0, -2), labels.flatten())
