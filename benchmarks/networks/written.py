"""Networks written in plain torch: images, diffusion, language, speech and recommendation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.networks.network import Classifier, Maker, Network, frozen, images_of

_SOURCE = "benchmarks.networks"


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


class UNet(nn.Module):
    """Three resolutions, group norm, and the image itself as the target."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [_Block(3, width), _Block(width, 2 * width), _Block(2 * width, 4 * width)]
        )
        self.up = nn.ModuleList([_Block(6 * width, 2 * width), _Block(3 * width, width)])
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.predict(images), images)

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        x, skips = images, []
        for block in self.down:
            x = block(x if not skips else F.avg_pool2d(x, 2))
            skips.append(x)
        for block, skip in zip(self.up, skips[-2::-1], strict=True):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), skip], 1))
        return self.last(x)


class _Predict(nn.Module):
    """The prediction of a network that otherwise returns its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        predicted: torch.Tensor = self.network.predict(*inputs)  # type: ignore[operator]
        return predicted


def _unet(device: torch.device, small: bool) -> Network:
    module = UNet(16 if small else 64).to(device, memory_format=torch.channels_last)
    shape = (2, 3, 32, 32) if small else (16, 3, 128, 128)
    images = torch.randn(shape, device=device).to(memory_format=torch.channels_last)
    return Network(module, (images,), torch.bfloat16, _SOURCE)


def _unet_denoise(device: torch.device, small: bool) -> Network:
    images = torch.randn((2, 3, 32, 32) if small else (2, 3, 128, 128))
    return frozen(_Predict(UNet(16 if small else 64)), (images,), device, _SOURCE)


class _Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with group norm, and a residual."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(before, width, 1, bias=False),
                nn.Conv2d(width, width, 3, stride, 1, bias=False),
                nn.Conv2d(width, after, 1, bias=False),
            ]
        )
        self.norms = nn.ModuleList(nn.GroupNorm(32, n) for n in (width, width, after))
        self.skip = (
            nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.GroupNorm(32, after))
            if stride > 1 or before != after
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.convs[0](x)))
        y = F.relu(self.norms[1](self.convs[1](y)))
        return F.relu(self.norms[2](self.convs[2](y)) + self.skip(x))


def _resnet_gn(device: torch.device, small: bool) -> Network:
    """ResNet-50 with group norm, images in torch's layout."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.GroupNorm(32, 64)]
    layers += [nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for stage, depth in enumerate((1, 1) if small else (3, 4, 6, 3)):
        for i in range(depth):
            layers.append(_Bottleneck(before, 64 << stage, 2 if stage and not i else 1))
            before = 256 << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)]
    module = Classifier(nn.Sequential(*layers)).to(device)
    inputs = images_of(device, 2 if small else 32, 64 if small else 224)
    return Network(module, inputs, torch.bfloat16, _SOURCE)


class _Autoencoder(nn.Module):
    """A variational autoencoder: a normal distribution for each place of a smaller image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = (width, 2 * width, 4 * width)
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1),
            *(
                nn.Sequential(_Block(a, b), nn.Conv2d(b, b, 3, 2, 1))
                for a, b in zip((width, *widths), widths, strict=False)
            ),
            nn.Conv2d(4 * width, 8, 1),
        )
        self.decode = nn.Sequential(
            nn.Conv2d(4, 4 * width, 1),
            *(
                nn.Sequential(_Block(a, b), nn.Upsample(scale_factor=2.0))
                for a, b in zip(widths[::-1], (*widths[-2::-1], width), strict=True)
            ),
            nn.Conv2d(width, 3, 3, 1, 1),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean, spread = self.encode(images).float().chunk(2, 1)
        drawn = mean + torch.exp(0.5 * spread) * torch.randn_like(mean)
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).mean()
        return F.mse_loss(self.decode(drawn), images) + 1e-3 * divergence

    def predict(self, latent: torch.Tensor) -> torch.Tensor:
        return self.decode(latent)


def _vae(device: torch.device, small: bool) -> Network:
    images, _ = images_of(device, 2 if small else 8, 32 if small else 256)
    return Network(_Autoencoder(16 if small else 64).to(device), (images,), torch.bfloat16, _SOURCE)


def _vae_decode(device: torch.device, small: bool) -> Network:
    latent = torch.randn((1, 4, 8, 8) if small else (1, 4, 64, 64))
    return frozen(_Predict(_Autoencoder(16 if small else 64)), (latent,), device, _SOURCE)


class _Modulated(nn.Module):
    """A block of a diffusion transformer: scale, shift and gate of each image."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.adapt = nn.Linear(width, 6 * width)

    def forward(self, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        a, b, c, d, e, f = self.adapt(F.silu(given))[:, None].chunk(6, -1)
        count, length, width = x.shape
        y = self.joined(self.norm(x) * (1 + a) + b)
        q, k, v = y.view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + c * self.out(y.transpose(1, 2).reshape(count, length, width))
        y = self.up(self.norm(x) * (1 + d) + e)
        return x + f * self.down(F.gelu(y, approximate="tanh"))


class _Diffusion(nn.Module):
    """A diffusion transformer on patches, with embedded time steps."""

    def __init__(self, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.patch = nn.Linear(16, width)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(_Modulated(width, heads) for _ in range(depth))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, 16)

    def predict(self, patches: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(-9.21 / 128 * torch.arange(128, device=times.device))
        angles = times[:, None] * rates
        given = self.time(torch.cat([angles.cos(), angles.sin()], -1).to(patches.dtype))
        x = self.patch(patches)
        for block in self.blocks:
            x = block(x, given)
        return self.last(self.norm(x))

    def forward(self, patches: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.predict(patches, times).float(), patches)


def _diffusion(small: bool, count: int) -> tuple[_Diffusion, tuple[torch.Tensor, torch.Tensor]]:
    module = _Diffusion(*((64, 4, 2) if small else (1024, 16, 12)))
    count, length = (2, 16) if small else (count, 256)
    return module, (torch.randn(count, length, 16), torch.rand(count) * 1000)


def _dit(device: torch.device, small: bool) -> Network:
    module, inputs = _diffusion(small, 16)
    moved = tuple(t.to(device) for t in inputs)
    return Network(module.to(device), moved, torch.bfloat16, _SOURCE)


def _dit_denoise(device: torch.device, small: bool) -> Network:
    module, inputs = _diffusion(small, 2)
    return frozen(_Predict(module), inputs, device, _SOURCE)


class _Rotated(nn.Module):
    """A decoder block: RMS norm, rotated queries and keys of few heads, a gated feed-forward."""

    def __init__(self, width: int, heads: int, kept: int, length: int, batch: int) -> None:
        super().__init__()
        self.heads, self.kept, self.size = heads, kept, width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.joined = nn.Linear(width, (heads + 2 * kept) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 5 * width, bias=False)
        self.down = nn.Linear(5 * width // 2, width, bias=False)
        if batch:
            shape = (batch, kept, length, self.size)
            self.register_buffer("keys", torch.zeros(shape))
            self.register_buffer("values", torch.zeros(shape))

    def forward(
        self, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor], at: torch.Tensor | None
    ) -> torch.Tensor:
        count, length, width = x.shape
        joined = self.joined(self.norms[0](x)).view(count, length, -1, self.size).transpose(1, 2)
        q, k, v = joined.split([self.heads, self.kept, self.kept], 1)
        q, k = (t * turns[0] + _turned(t) * turns[1] for t in (q, k))
        mask = None
        if at is not None:
            k, v = self.keys.index_copy_(2, at, k), self.values.index_copy_(2, at, v)
            mask = (torch.arange(k.shape[2], device=k.device) <= at)[None, None]
        shared = self.heads // self.kept
        k, v = (t.repeat_interleave(shared, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
        x = x + self.out(y.transpose(1, 2).reshape(count, length, width))
        gate, y = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * y)


def _turned(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class _Decoder(nn.Module):
    """A language model of decoder blocks. `batch` > 0: one word of each sequence in a call, at a
    position, with a cache of keys and values."""

    def __init__(self, depth: int, width: int, heads: int, length: int, batch: int) -> None:
        super().__init__()
        self.size = width // heads
        self.words = nn.Embedding(32000, width)
        self.blocks = nn.ModuleList(
            _Rotated(width, heads, heads // 4, length, batch) for _ in range(depth)
        )
        self.norm, self.last = nn.RMSNorm(width), nn.Linear(width, 32000, bias=False)

    def predict(self, words: torch.Tensor, at: torch.Tensor | None = None) -> torch.Tensor:
        places = torch.arange(words.shape[1], device=words.device) if at is None else at
        rates = 1e4 ** (-torch.arange(0, self.size, 2, device=words.device) / self.size)
        x = self.words(words)
        angles = (places[:, None] * rates).repeat(1, 2)
        turns = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, turns, at)
        return self.last(self.norm(x))

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.predict(words).flatten(0, 1).float(), labels.flatten())


def _decoder(small: bool, depth: int, length: int = 0, batch: int = 0) -> _Decoder:
    return _Decoder(2, 64, 4, length, batch) if small else _Decoder(depth, 2048, 16, length, batch)


def _decoder_training(device: torch.device, small: bool) -> Network:
    shape = (2, 32) if small else (4, 1024)
    words, labels = (torch.randint(0, 32000, shape, device=device) for _ in range(2))
    return Network(_decoder(small, 4).to(device), (words, labels), torch.bfloat16, _SOURCE)


def _decoder_prefill(device: torch.device, small: bool) -> Network:
    words = torch.randint(0, 32000, (1, 32 if small else 1024))
    return frozen(_Predict(_decoder(small, 8)), (words,), device, _SOURCE)


def _decoder_decode(device: torch.device, small: bool) -> Network:
    batch, length = (2, 32) if small else (8, 1024)
    module = _Predict(_decoder(small, 8, length, batch))
    words = torch.randint(0, 32000, (batch, 1))
    return frozen(module, (words, torch.tensor([length // 2])), device, _SOURCE)


class _Conformer(nn.Module):
    """Half a feed-forward, attention, a gated depthwise convolution, half a feed-forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate, self.last = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise = nn.Conv1d(width, width, 31, padding=15, groups=width)
        self.batch = nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.feeds[0](self.norms[0](x))
        count, length, width = x.shape
        y = self.joined(self.norms[1](x)).view(count, length, 3, self.heads, -1)
        y = F.scaled_dot_product_attention(*y.permute(2, 0, 3, 1, 4))
        x = x + self.out(y.transpose(1, 2).reshape(count, length, width))
        y = F.glu(self.gate(self.norms[2](x).transpose(1, 2)), 1)
        x = x + self.last(F.silu(self.batch(self.depthwise(y)))).transpose(1, 2)
        x = x + 0.5 * self.feeds[1](self.norms[3](x))
        return self.norms[4](x)


class _Head(nn.Module):
    """The cross entropy of one class for each position."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(x).flatten(0, 1).float(), labels.flatten())


def _conformer(device: torch.device, small: bool) -> Network:
    width, depth, shape = (64, 2, (2, 32)) if small else (512, 8, (16, 400))
    blocks = (_Conformer(width, width // 64) for _ in range(depth))
    module = _Head(nn.Sequential(nn.Linear(80, width), *blocks, nn.Linear(width, 512)))
    inputs = torch.randn(*shape, 80, device=device), torch.randint(0, 512, shape, device=device)
    return Network(module.to(device), inputs, torch.bfloat16, _SOURCE)


class _Gated(nn.Module):
    """Dilated convolutions of samples with a gate, as in WaveNet."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.dilated = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, padding=1 << i % 8, dilation=1 << i % 8)
            for i in range(depth)
        )
        self.mixed = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(depth))
        self.last = nn.Conv1d(width, 256, 1)

    def forward(self, sound: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x, total = self.first(sound), 0.0
        for dilated, mixed in zip(self.dilated, self.mixed, strict=True):
            a, b = dilated(x).chunk(2, 1)
            a, b = mixed(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = (x + a) * 0.5**0.5, total + b
        return F.cross_entropy(self.last(F.relu(total)).float(), labels)


def _wavenet(device: torch.device, small: bool) -> Network:
    width, depth, count, samples = (16, 4, 2, 256) if small else (128, 16, 8, 16000)
    sound = torch.randn(count, 1, samples, device=device)
    labels = torch.randint(0, 256, (count, samples), device=device)
    return Network(_Gated(width, depth).to(device), (sound, labels), torch.bfloat16, _SOURCE)


class _Recommender(nn.Module):
    """Tables of categories, a dense part, products of all pairs, and a click as the target."""

    def __init__(self, width: int, tables: int, rows: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.dense = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width)
        )
        pairs = (tables + 1) * tables // 2
        self.register_buffer("pairs", torch.triu_indices(tables + 1, tables + 1, 1))
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU()
        )
        self.last = nn.Linear(256, 1)

    def forward(
        self, numbers: torch.Tensor, categories: torch.Tensor, clicked: torch.Tensor
    ) -> torch.Tensor:
        dense = F.relu(self.dense(numbers))
        found = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        joined = torch.stack([dense, *(f.to(dense.dtype) for f in found)], 1)
        products = joined @ joined.transpose(1, 2)
        pairs = products[:, self.pairs[0], self.pairs[1]]
        scores = self.last(self.top(torch.cat([dense, pairs], 1)))
        return F.binary_cross_entropy_with_logits(scores[:, 0].float(), clicked)


def _dlrm(device: torch.device, small: bool) -> Network:
    width, tables, rows, count = (16, 4, 100, 32) if small else (64, 26, 20000, 8192)
    categories = torch.randint(0, rows, (count, tables), device=device)
    numbers, clicked = torch.randn(count, 13, device=device), torch.rand(count, device=device)
    module = _Recommender(width, tables, rows).to(device)
    return Network(module, (numbers, categories, clicked.round()), torch.bfloat16, _SOURCE)


class _Recurrent(nn.Module):
    """Two layers of LSTM on embedded words, and the next word as the target."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(10000, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1)
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, 10000)

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.words(words))
        scores = self.last(F.gelu(self.norm(x)))
        return F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten())


def _lstm(device: torch.device, small: bool) -> Network:
    width, shape = (64, (2, 16)) if small else (1024, (32, 128))
    words, labels = (torch.randint(0, 10000, shape, device=device) for _ in range(2))
    return Network(_Recurrent(width).to(device), (words, labels), torch.bfloat16, _SOURCE)


TRAINING: dict[str, Maker] = {
    "unet": _unet,
    "resnet_gn": _resnet_gn,
    "vae": _vae,
    "dit": _dit,
    "decoder": _decoder_training,
    "conformer": _conformer,
    "wavenet": _wavenet,
    "dlrm": _dlrm,
    "lstm": _lstm,
}
INFERENCE: dict[str, Maker] = {
    "unet_denoise": _unet_denoise,
    "dit_denoise": _dit_denoise,
    "vae_decode": _vae_decode,
    "decoder_prefill": _decoder_prefill,
    "decoder_decode": _decoder_decode,
}
