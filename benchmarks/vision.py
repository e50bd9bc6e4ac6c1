"""Image networks in the shapes of ResNet-50, EfficientNet-B0, MobileNetV3-L, ConvNeXt-T, its second
version and Mixer-B/16, written out as a replacement for timm."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 1000
Activation = Callable[[torch.Tensor], torch.Tensor]


def _conv(before: int, after: int, size: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False)


def _head(width: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


class _Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with batch norm, and a residual."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.convs = nn.ModuleList(
            [_conv(before, width, 1), _conv(width, width, 3, stride), _conv(width, after, 1)]
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (width, width, after))
        self.skip = (
            nn.Sequential(_conv(before, after, 1, stride), nn.BatchNorm2d(after))
            if stride > 1 or before != after
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.convs[0](x)))
        y = F.relu(self.norms[1](self.convs[1](y)))
        return F.relu(self.norms[2](self.convs[2](y)) + self.skip(x))


def resnet(depths: Sequence[int] = (3, 4, 6, 3)) -> nn.Module:
    layers: list[nn.Module] = [_conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for stage, depth in enumerate(depths):
        for i in range(depth):
            layers.append(_Bottleneck(before, 64 << stage, 2 if stage and not i else 1))
            before = 256 << stage
    return nn.Sequential(*layers, _head(before))


class _Inverted(nn.Module):
    """1x1 expansion, depthwise convolution, 1x1 projection; a residual if the shapes allow.
    `squeezed`: channels of squeeze and excitation, or None without it."""

    def __init__(
        self,
        sizes: tuple[int, int, int],
        size: int,
        stride: int,
        act: Activation,
        squeezed: int | None,
        excited: tuple[Activation, Activation] = (F.silu, torch.sigmoid),
    ) -> None:
        super().__init__()
        before, wide, after = sizes
        self.up = _conv(before, wide, 1) if wide > before else nn.Identity()
        self.depthwise = _conv(wide, wide, size, stride, wide)
        self.down = _conv(wide, after, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (wide, wide, after))
        self.act, self.excited = act, excited
        self.reduce, self.expand = (
            (nn.Conv2d(wide, squeezed, 1), nn.Conv2d(squeezed, wide, 1))
            if squeezed
            else (None, None)
        )
        self.residual = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.norms[0](self.up(x)))
        y = self.act(self.norms[1](self.depthwise(y)))
        if self.reduce is not None and self.expand is not None:
            inner, outer = self.excited
            y = y * outer(self.expand(inner(self.reduce(y.mean((2, 3), keepdim=True)))))
        y = self.norms[2](self.down(y))
        return x + y if self.residual else y


# (channels, kernel, stride, expansion, blocks)
_STAGES = (
    (16, 3, 1, 1, 1),
    (24, 3, 2, 6, 2),
    (40, 5, 2, 6, 2),
    (80, 3, 2, 6, 3),
    (112, 5, 1, 6, 3),
    (192, 5, 2, 6, 4),
    (320, 3, 1, 6, 1),
)


def efficientnet(stages: int = len(_STAGES)) -> nn.Module:
    layers: list[nn.Module] = [_conv(3, 32, 3, 2), nn.BatchNorm2d(32), nn.SiLU()]
    before = 32
    for after, size, stride, factor, depth in _STAGES[:stages]:
        for i in range(depth):
            sizes = (before, before * factor, after)
            layers.append(_Inverted(sizes, size, 1 if i else stride, F.silu, max(1, before // 4)))
            before = after
    layers += [_conv(before, 1280, 1), nn.BatchNorm2d(1280), nn.SiLU()]
    return nn.Sequential(*layers, _head(1280))


# (kernel, expanded, channels, squeezed, hardswish, stride)
_MOBILE = (
    (3, 16, 16, None, False, 1),
    (3, 64, 24, None, False, 2),
    (3, 72, 24, None, False, 1),
    (5, 72, 40, 24, False, 2),
    (5, 120, 40, 32, False, 1),
    (5, 120, 40, 32, False, 1),
    (3, 240, 80, None, True, 2),
    (3, 200, 80, None, True, 1),
    (3, 184, 80, None, True, 1),
    (3, 184, 80, None, True, 1),
    (3, 480, 112, 120, True, 1),
    (3, 672, 112, 168, True, 1),
    (5, 672, 160, 168, True, 2),
    (5, 960, 160, 240, True, 1),
    (5, 960, 160, 240, True, 1),
)


def mobilenet(blocks: int = len(_MOBILE)) -> nn.Module:
    layers: list[nn.Module] = [_conv(3, 16, 3, 2), nn.BatchNorm2d(16), nn.Hardswish()]
    before = 16
    for size, wide, after, squeezed, hard, stride in _MOBILE[:blocks]:
        act = F.hardswish if hard else F.relu
        excited = (F.relu, F.hardsigmoid)
        layers.append(_Inverted((before, wide, after), size, stride, act, squeezed, excited))
        before = after
    layers += [_conv(before, 6 * before, 1), nn.BatchNorm2d(6 * before), nn.Hardswish()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6 * before, 1280)]
    return nn.Sequential(*layers, nn.Hardswish(), nn.Linear(1280, CLASSES))


class _ChannelsNorm(nn.LayerNorm):
    """Layer norm over the channels of images."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias)
        return y.permute(0, 3, 1, 2)


class _Response(nn.Module):
    """Global response norm: each channel's norm over the image, relative to the channels' mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = (nn.Parameter(torch.zeros(width)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.norm(p=2, dim=(1, 2), keepdim=True)
        relative = size / (size.mean(-1, keepdim=True) + 1e-6)
        return x + torch.addcmul(self.shift, self.scale, x * relative)


class _Wide(nn.Module):
    """Depthwise 7x7, layer norm, two linear layers with GELU and a residual. A scale follows the
    second layer; with `response`, a global response norm precedes it instead."""

    def __init__(self, width: int, response: bool = False) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.response = _Response(4 * width) if response else nn.Identity()
        self.scale = None if response else nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(self.response(F.gelu(self.up(y))))
        y = y if self.scale is None else y * self.scale
        return x + y.permute(0, 3, 1, 2)


def convnext(
    depths: Sequence[int] = (3, 3, 9, 3), width: int = 96, response: bool = False
) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), _ChannelsNorm(width)]
    for stage, depth in enumerate(depths):
        if stage:
            layers += [_ChannelsNorm(width), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        layers += [_Wide(width, response) for _ in range(depth)]
    return nn.Sequential(*layers, _head(width))


class _Mixing(nn.Module):
    """Linear layers with GELU over tokens, then over channels, each after a layer norm."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.over_tokens = _feed_forward(tokens, width // 2)
        self.over_channels = _feed_forward(width, 4 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.over_tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.norms[1](x))


def _feed_forward(width: int, inner: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class _Mixer(nn.Module):
    def __init__(self, depth: int, width: int, tokens: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*(_Mixing(tokens, width) for _ in range(depth)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.last(self.norm(self.blocks(x)).mean(1))


def mixer(depth: int = 12, width: int = 768, tokens: int = 196) -> nn.Module:
    return _Mixer(depth, width, tokens)


SMALL: dict[str, Callable[[], nn.Module]] = {
    "resnet50": lambda: resnet((1, 1)),
    "efficientnet": lambda: efficientnet(3),
    "mobilenetv3": lambda: mobilenet(5),
    "convnext": lambda: convnext((1, 1), 32),
    "convnextv2": lambda: convnext((1, 1), 32, response=True),
    "mixer": lambda: mixer(2, 64, 16),
}
LARGE: dict[str, Callable[[], nn.Module]] = {
    "resnet50": resnet,
    "efficientnet": efficientnet,
    "mobilenetv3": mobilenet,
    "convnext": convnext,
    "convnextv2": lambda: convnext(response=True),
    "mixer": mixer,
}
