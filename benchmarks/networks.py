"""The networks of benchmarks.models: random weights, realistic training sizes, a loss.

A network is a module that returns its loss, with its inputs. `small` reduces depth and inputs for a
functional check. Image networks come from timm if it is installed, else from benchmarks.vision; the
fallback of vit_base is the model of transformers.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import vision


@dataclass
class Network:
    """autocast: dtype of the training step's autocast, or None for float32. source: package of the
    network."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    autocast: torch.dtype | None
    source: str


Maker = Callable[[torch.device, bool], Network]


class _Language(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=words, labels=labels).loss


class _Classifier(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = self.model(images)
        return F.cross_entropy(getattr(scores, "logits", scores), labels)


def _language(
    config: str, model: str, layers: str, depth: int, batch: int, length: int, **sizes: Any
) -> Maker:
    """A network of transformers; `layers` is the name of its depth parameter."""

    def make(device: torch.device, small: bool) -> Network:
        import transformers

        made = getattr(transformers, config)(**{layers: 2 if small else depth}, **sizes)
        module = _Language(getattr(transformers, model)(made)).to(device)
        shape = (2, 32) if small else (batch, length)
        words, labels = (torch.randint(1, made.vocab_size, shape, device=device) for _ in range(2))
        return Network(module, (words, labels), torch.bfloat16, "transformers")

    return make


def _vit(device: torch.device, small: bool) -> Network:
    import transformers

    config = transformers.ViTConfig(num_hidden_layers=2 if small else 12, num_labels=1000)
    module = _Classifier(transformers.ViTForImageClassification(config)).to(device)
    return Network(module, _images(device, 2 if small else 64), torch.bfloat16, "transformers")


# Networks of timm: model name, and the sequences of equal blocks that `small` shortens.
_TIMM: dict[str, tuple[str, Callable[[Any], Sequence[nn.Sequential]]]] = {
    "resnet50": ("resnet50", lambda m: [m.layer1, m.layer2, m.layer3, m.layer4]),
    "efficientnet": ("efficientnet_b0", lambda m: m.blocks),
    "mobilenetv3": ("mobilenetv3_large_100", lambda m: m.blocks),
    "convnext": ("convnext_tiny", lambda m: [stage.blocks for stage in m.stages]),
    "vit_base": ("vit_base_patch16_224", lambda m: [m.blocks]),
    "mixer": ("mixer_b16_224", lambda m: [m.blocks]),
}
# Patch-based networks, which normalize rows and need a fixed image size.
_OF_ROWS = ("vit_base", "mixer")


def _timm(name: str, small: bool) -> nn.Module:
    import timm

    model, stages = _TIMM[name]
    sizes = {"img_size": 64} if small and name in _OF_ROWS else {}
    made: nn.Module = timm.create_model(model, **sizes)
    for blocks in stages(made) if small else ():
        del blocks[2 if name in _OF_ROWS else 1 :]
    return made


def _vision(name: str) -> Maker:
    def make(device: torch.device, small: bool) -> Network:
        source = "timm" if importlib.util.find_spec("timm") else "benchmarks.vision"
        if source != "timm" and name not in vision.LARGE:
            return _vit(device, small)
        layout = torch.contiguous_format if name in _OF_ROWS else torch.channels_last
        written = vision.SMALL if small else vision.LARGE
        model = _timm(name, small) if source == "timm" else written[name]()
        images, labels = _images(device, 2, 64) if small else _images(device, 64)
        module = _Classifier(model).to(device, memory_format=layout)
        inputs = (images.to(memory_format=layout), labels)
        return Network(module, inputs, torch.bfloat16, source)

    return make


def _images(device: torch.device, count: int, size: int = 224) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randn(count, 3, size, size, device=device)
    return images, torch.randint(0, 1000, (count,), device=device)


class _Block(nn.Module):
    """Two convolutions with group norm and SiLU, and a residual."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, after) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.norms[0](self.first(x)))
        return F.silu(self.norms[1](self.second(y))) + self.skip(x)


class _UNet(nn.Module):
    """Three resolutions, group norm, and the image itself as the target."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [_Block(3, width), _Block(width, 2 * width), _Block(2 * width, 4 * width)]
        )
        self.up = nn.ModuleList([_Block(6 * width, 2 * width), _Block(3 * width, width)])
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x, skips = images, []
        for block in self.down:
            x = block(x if not skips else F.avg_pool2d(x, 2))
            skips.append(x)
        for block, skip in zip(self.up, skips[-2::-1], strict=True):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), skip], 1))
        return F.mse_loss(self.last(x), images)


def _unet(device: torch.device, small: bool) -> Network:
    module = _UNet(16 if small else 64).to(device, memory_format=torch.channels_last)
    shape = (2, 3, 32, 32) if small else (16, 3, 128, 128)
    images = torch.randn(shape, device=device).to(memory_format=torch.channels_last)
    return Network(module, (images,), torch.bfloat16, "benchmarks.networks")


NETWORKS: dict[str, Maker] = {
    "bert4": _language("BertConfig", "BertForMaskedLM", "num_hidden_layers", 4, 16, 512),
    "bert": _language("BertConfig", "BertForMaskedLM", "num_hidden_layers", 12, 16, 512),
    "distilbert": _language("DistilBertConfig", "DistilBertForMaskedLM", "n_layers", 6, 16, 512),
    "gpt2": _language("GPT2Config", "GPT2LMHeadModel", "n_layer", 12, 4, 1024, use_cache=False),
    "t5": _language(
        *("T5Config", "T5ForConditionalGeneration", "num_layers", 6, 8, 512),
        use_cache=False,
        decoder_start_token_id=0,
        pad_token_id=0,
    ),
    "llama": _language(
        *("LlamaConfig", "LlamaForCausalLM", "num_hidden_layers", 4, 4, 1024),
        hidden_size=2048,
        intermediate_size=5632,
        num_attention_heads=16,
        num_key_value_heads=4,
        use_cache=False,
    ),
    "vit": _vit,
    **{name: _vision(name) for name in _TIMM},
    "unet": _unet,
}
