"""One network of benchmarks.models, and classes of packages that may be missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Network:
    """autocast: dtype of the training step's autocast, or None for float32. source: package of the
    network. trains: True if the module returns a loss and a step is forward, backward and SGD;
    else a step is one call without gradients."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    autocast: torch.dtype | None
    source: str
    trains: bool = True


# Makes a network on a device; True: with few layers and small inputs.
Maker = Callable[[torch.device, bool], Network]


def member(package: str, name: str) -> Any:
    """A class or function of a package; ImportError if the package or its release lacks it."""
    found = getattr(importlib.import_module(package), name, None)
    if found is None:
        raise ImportError(f"this release of {package} has no {name}", name=package)
    return found


class Classifier(nn.Module):
    """The cross entropy of a model's scores."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = self.model(images)
        return F.cross_entropy(getattr(scores, "logits", scores), labels)


def images_of(device: torch.device, count: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of 1000 classes."""
    images = torch.randn(count, 3, size, size, device=device)
    return images, torch.randint(0, 1000, (count,), device=device)


def frozen(
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    device: torch.device,
    source: str,
    layout: torch.memory_format = torch.contiguous_format,
) -> Network:
    """Inference in bfloat16."""
    module = module.eval().to(device, torch.bfloat16, memory_format=layout)
    given = tuple(
        t.to(device, torch.bfloat16) if t.is_floating_point() else t.to(device) for t in inputs
    )
    if layout is torch.channels_last:
        given = tuple(t.to(memory_format=layout) if t.dim() == 4 else t for t in given)
    return Network(module, given, None, source, trains=False)
