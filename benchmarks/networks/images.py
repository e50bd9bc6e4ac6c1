"""Image networks of timm and torchvision. Five of them are written out in benchmarks.vision for
machines without timm; the replacement of vit_base is the model of transformers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import vision
from benchmarks.networks.language import vit
from benchmarks.networks.network import (
    Classifier,
    Maker,
    Network,
    frozen,
    images_of,
    member,
)

# Networks of timm: model name, and the sequences of equal blocks that `small` shortens.
_TIMM: dict[str, tuple[str, Callable[[Any], Sequence[nn.Sequential]]]] = {
    "resnet50": ("resnet50", lambda m: [m.layer1, m.layer2, m.layer3, m.layer4]),
    "efficientnet": ("efficientnet_b0", lambda m: m.blocks),
    "mobilenetv3": ("mobilenetv3_large_100", lambda m: m.blocks),
    "convnext": ("convnext_tiny", lambda m: [stage.blocks for stage in m.stages]),
    "vit_base": ("vit_base_patch16_224", lambda m: [m.blocks]),
    "mixer": ("mixer_b16_224", lambda m: [m.blocks]),
    "convnextv2": ("convnextv2_tiny", lambda m: [stage.blocks for stage in m.stages]),
    "densenet": ("densenet121", lambda m: []),
    "regnet": ("regnety_040", lambda m: []),
    "resnext": ("resnext50_32x4d", lambda m: [m.layer1, m.layer2, m.layer3, m.layer4]),
    "efficientnetv2": ("tf_efficientnetv2_s", lambda m: m.blocks),
    "xcit": ("xcit_tiny_12_p16_224", lambda m: []),
    "pvt": ("pvt_v2_b2", lambda m: []),
    "maxvit": ("maxvit_tiny_tf_224", lambda m: []),
}
# Networks of square images of one size, which are normalized by rows and so in torch's layout.
_OF_ROWS = ("vit_base", "mixer", "xcit", "pvt", "maxvit")


def _timm(name: str, small: bool) -> nn.Module:
    model, stages = _TIMM[name]
    sizes = {"img_size": 64} if small and name in ("vit_base", "mixer") else {}
    made: nn.Module = member("timm", "create_model")(model, **sizes)
    for blocks in stages(made) if small else ():
        del blocks[2 if name in _OF_ROWS else 1 :]
    return made


def _is_written_out(name: str) -> bool:
    return name in vision.LARGE and not importlib.util.find_spec("timm")


def _model(name: str, small: bool) -> tuple[nn.Module, str]:
    """The model and its package."""
    if _is_written_out(name):
        return (vision.SMALL if small else vision.LARGE)[name](), "benchmarks.vision"
    return _timm(name, small), "timm"


def _size(name: str, small: bool) -> int:
    return 64 if small and name not in ("xcit", "pvt", "maxvit") else 224


def _training(name: str) -> Maker:
    def make(device: torch.device, small: bool) -> Network:
        if name == "vit_base" and not importlib.util.find_spec("timm"):
            return vit(device, small)
        layout = torch.contiguous_format if name in _OF_ROWS else torch.channels_last
        model, source = _model(name, small)
        images, labels = images_of(device, 2 if small else 64, _size(name, small))
        module = Classifier(model).to(device, memory_format=layout)
        inputs = (images.to(memory_format=layout), labels)
        return Network(module, inputs, torch.bfloat16, source)

    return make


def _inference(name: str, count: int) -> Maker:
    """Images in torch's layout, as programs load them."""

    def make(device: torch.device, small: bool) -> Network:
        model, source = _model(name, small)
        images, _ = images_of(device, count, _size(name, small))
        return frozen(model, (images,), device, source)

    return make


def _torchvision(name: str) -> Maker:
    def make(device: torch.device, small: bool) -> Network:
        model = member("torchvision.models", name)(weights=None)
        images, labels = images_of(device, 2 if small else 64, 64 if small else 224)
        return Network(
            Classifier(model).to(device), (images, labels), torch.bfloat16, "torchvision"
        )

    return make


class _Segments(nn.Module):
    """The cross entropy of the class of each pixel."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(images)["out"], labels)


def _fcn(device: torch.device, small: bool) -> Network:
    model = member("torchvision.models.segmentation", "fcn_resnet50")(
        weights=None, weights_backbone=None, num_classes=21
    )
    count, size = (2, 64) if small else (16, 256)
    images, _ = images_of(device, count, size)
    labels = torch.randint(0, 21, (count, size, size), device=device)
    return Network(_Segments(model).to(device), (images, labels), torch.bfloat16, "torchvision")


TRAINING: dict[str, Maker] = {
    **{name: _training(name) for name in _TIMM},
    **{name: _torchvision(name) for name in ("vgg16_bn", "shufflenet_v2_x1_0", "squeezenet1_1")},
    "fcn": _fcn,
}
INFERENCE: dict[str, Maker] = {
    f"{name}_{count}": _inference(name, count)
    for name in ("resnet50", "vit_base", "convnext", "mobilenetv3", "efficientnet")
    for count in (1, 8)
}
