"""Small networks, and a comparison of a training step with eager and float64, for CPU and GPU
tests."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class ConvNet(nn.Module):
    """Convolution, batch norm, squeeze and excitation, group norm, layer norm, loss."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.batch = nn.BatchNorm2d(width)
        self.squeeze, self.excite = nn.Conv2d(width, 2, 1), nn.Conv2d(2, width, 1)
        self.group, self.layer = nn.GroupNorm(2, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.batch(self.conv(x)))
        x = x * self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))).sigmoid()
        x = F.hardswish(self.group(x)) + x
        x = self.layer(x.permute(0, 2, 3, 1)).mean((1, 2))
        return F.cross_entropy(self.head(x), labels, label_smoothing=0.1)


class Attention(nn.Module):
    """A transformer layer and a loss over classes."""

    def __init__(self, width: int = 16, vocabulary: int = 11, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout=dropout, batch_first=True
        )
        self.layer.activation = F.gelu

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        y = self.layer(self.embed(x)) @ self.embed.weight.t()  # tied weights
        return F.cross_entropy(y.flatten(0, 1), labels.flatten())


def tokens(
    length: int = 5, batch: int = 2, device: Any = "cpu", vocabulary: int = 11
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random words and labels."""
    words, labels = (torch.randint(0, vocabulary, (batch, length)) for _ in range(2))
    return words.to(device), labels.to(device)


def agree(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    *,
    autocast: torch.dtype | None = None,
    slack: float = 1e-5,
    **kwargs: Any,
) -> None:
    """Compare loss, gradients and buffers of torch.compile(model, **kwargs) with float64. The error
    is at most 4 times eager's plus `slack` of the largest element."""
    eager, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    compiled = torch.compile(model, **kwargs)
    device = inputs[0].device.type
    losses = []
    for run in (compiled, eager):
        with torch.autocast(device, dtype=autocast, enabled=autocast is not None):
            loss = run(*inputs)
        loss.backward()
        losses.append(loss.detach().double())
    true = wide(*(t.double() if t.is_floating_point() else t for t in inputs))
    true.backward()
    near(losses[0], losses[1], true.detach(), slack)
    for a, b, c in zip(model.parameters(), eager.parameters(), wide.parameters(), strict=True):
        near(a.grad, b.grad, c.grad, slack)
    for a, b, c in zip(model.buffers(), eager.buffers(), wide.buffers(), strict=True):
        near(a, b, c, slack)


def near(found: Any, eager: Any, true: Any, slack: float) -> None:
    """Assert that the error of `found` is comparable to that of `eager`."""
    noise = (eager.double() - true).abs().max()
    scale = max(1.0, float(true.abs().max()))
    assert found.shape == eager.shape
    assert found.dtype == eager.dtype
    assert (found.double() - true).abs().max() <= 4 * noise + slack * scale
