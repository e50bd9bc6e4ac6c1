"""Small networks on the CPU: training step and inference, in eager mode, compiled by Inductor, and
compiled by fuser.

    python -m benchmarks.cpu_networks                              all networks, float32
    python -m benchmarks.cpu_networks gpt unet --autocast --threads 1
    python -m benchmarks.cpu_networks --frozen --json FILE         constants folded, by both

Each network runs in its own process with empty caches on disk. A training step is forward, backward
and SGD. "first s" is the first step, with compilation. Contenders alternate; "ms" is the fastest of
the rounds, because other programs may use the processor. FUSER_HOST_ARCH=0 selects CPU kernels.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.networks.written import UNet
from benchmarks.report import table

CONTENDERS = ("eager", "inductor", "fuser")
KINDS = ("training", "inference")
Inputs = tuple[torch.Tensor, ...]


class _Residual(nn.Module):
    """Two convolutions with batch norm, and a residual."""

    def __init__(self, before: int, after: int, step: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, step, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.skip = nn.Conv2d(before, after, 1, step, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.norms[2](self.skip(x)))


class _Mobile(nn.Module):
    """An inverted residual with a depthwise convolution, squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 4 * width
        self.grow, self.shrink = nn.Conv2d(width, wide, 1), nn.Conv2d(wide, width, 1)
        self.deep = nn.Conv2d(wide, wide, 3, 1, 1, groups=wide)
        self.squeeze, self.excite = nn.Conv2d(wide, width, 1), nn.Conv2d(width, wide, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(wide), nn.BatchNorm2d(wide)])
        self.last = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.hardswish(self.norms[0](self.grow(x)))
        y = F.hardswish(self.norms[1](self.deep(y)))
        y = y * F.hardsigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.last(self.shrink(y))


class _Images(nn.Module):
    """Blocks between a stem and a classifier."""

    def __init__(self, stem: nn.Module, blocks: nn.Module, width: int) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = stem, blocks, nn.Linear(width, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        b, s, c = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if bias is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            y = (q @ k.transpose(2, 3) + bias).float().softmax(3).to(v.dtype) @ v
        return self.out(y.transpose(1, 2).reshape(b, s, c))


class _Layer(nn.Module):
    """Attention and a feed-forward network, each after its norm."""

    def __init__(self, width: int, norm: type[nn.Module], causal: bool) -> None:
        super().__init__()
        self.attention = _Attention(width, 4, causal)
        self.norms = nn.ModuleList([norm(width), norm(width)])
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), bias)
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class _Words(nn.Module):
    """A transformer over words: causal with learned positions, or with a relative position bias of
    logarithmic distances."""

    def __init__(self, width: int, relative: bool) -> None:
        super().__init__()
        norm = nn.RMSNorm if relative else nn.LayerNorm
        self.embed, self.place = nn.Embedding(1000, width), nn.Embedding(128, width)
        self.layers = nn.ModuleList(_Layer(width, norm, not relative) for _ in range(3))
        self.table = nn.Embedding(32, 4) if relative else None
        self.norm = norm(width)

    def bias(self, length: int) -> torch.Tensor:
        assert self.table is not None
        place = torch.arange(length)
        far = (place[None] - place[:, None]).abs()
        large = 8 + (torch.log(far.clamp(min=1).float() / 8) / math.log(16) * 8).long()
        return self.table(torch.where(far < 8, far, large.clamp(max=15))).permute(2, 0, 1)[None]

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        bias = self.bias(words.shape[1]) if self.table is not None else None
        if bias is None:
            x = x + self.place(torch.arange(words.shape[1]))
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x) @ self.embed.weight.t()


class _Vision(nn.Module):
    """A transformer over patches of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.place = nn.Parameter(torch.randn(1, 64, width))
        self.layers = nn.ModuleList(_Layer(width, nn.LayerNorm, False) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class _Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(1000, width), nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, 1000)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(words))[0])


class _Recommender(nn.Module):
    """DLRM: bags of embeddings, products between features, two perceptrons."""

    def __init__(self, width: int, tables: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(2000, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 128), nn.ReLU(), nn.Linear(128, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: torch.Tensor, bags: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        features = [x, *(table(bags[:, i]) for i, table in enumerate(self.tables))]
        z = torch.stack(features, 1)
        products = (z @ z.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], 1)).sigmoid()


def _resnet() -> tuple[nn.Module, Inputs]:
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    blocks = nn.Sequential(_Residual(16, 32, 1), _Residual(32, 64, 2), _Residual(64, 128, 2))
    return _Images(stem, blocks, 128), (torch.randn(8, 3, 32, 32),)


def _mobile() -> tuple[nn.Module, Inputs]:
    stem = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.Hardswish())
    return _Images(stem, nn.Sequential(_Mobile(24), _Mobile(24)), 24), (torch.randn(8, 3, 48, 48),)


def _words(batch: int, length: int) -> Inputs:
    return (torch.randint(0, 1000, (batch, length)),)


NETWORKS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "resnet": _resnet,
    "mobilenet": _mobile,
    "gpt": lambda: (_Words(128, False), _words(4, 64)),
    "t5": lambda: (_Words(128, True), _words(4, 64)),
    "vit": lambda: (_Vision(128), (torch.randn(4, 3, 64, 64),)),
    "lstm": lambda: (_Recurrent(128), _words(8, 32)),
    "unet": lambda: (UNet(16), (torch.randn(2, 3, 32, 32),)),
    "dlrm": lambda: (
        _Recommender(32, 8),
        (torch.randn(128, 13), torch.randint(0, 2000, (128, 8, 4))),
    ),
}


def compiled(module: nn.Module, contender: str, frozen: bool) -> Callable[..., Any]:
    if contender == "eager":
        return module
    if contender == "inductor":
        import torch._inductor.config as inductor

        inductor.freezing = frozen
        return torch.compile(module)
    options = {"freezing": True} if frozen else {}
    return torch.compile(module, backend="fuser", options=options)


def _step(
    module: nn.Module, run: Callable[..., Any], inputs: Inputs, kind: str, half: bool
) -> Callable[[], Any]:
    optimizer = torch.optim.SGD(module.parameters(), 1e-3)
    module.train(kind == "training")

    def infer() -> Any:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, half):
            return run(*inputs)

    def train() -> Any:
        with torch.autocast("cpu", torch.bfloat16, half):
            loss = run(*inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train if kind == "training" else infer


def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Records of a network: one per kind and contender."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    module, inputs = NETWORKS[name]()
    records = []
    for kind in options.kinds:
        steps = {}
        for contender in options.contenders:
            torch._dynamo.reset()
            own = copy.deepcopy(module)
            run = compiled(own, contender, options.frozen and kind == "inference")
            step = steps[contender] = _step(own, run, inputs, kind, options.autocast)
            start = time.perf_counter()
            step()
            first = time.perf_counter() - start
            records.append({"name": name, "kind": kind, "contender": contender, "first_s": first})
            step()
        best = dict.fromkeys(steps, math.inf)
        for _ in range(options.rounds):
            for contender, step in steps.items():
                for _ in range(3):
                    start = time.perf_counter()
                    step()
                    best[contender] = min(best[contender], time.perf_counter() - start)
        for record in records[-len(steps) :]:
            record["ms"] = 1e3 * best[record["contender"]]
    return records


def _apart(name: str, arguments: list[str]) -> list[dict[str, Any]]:
    """Measures in a process with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch",
            "FUSER_CACHE_DIR": f"{folder}/fuser",
        }
        command = [sys.executable, "-m", "benchmarks.cpu_networks", name, "--inside", *arguments]
        done = subprocess.run(command, env=os.environ | caches, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return []
    records: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return records


def rows(records: list[dict[str, Any]], contenders: list[str]) -> list[list[str]]:
    found = {(r["name"], r["kind"], r["contender"]): r for r in records}
    lines = []
    for name, kind in dict.fromkeys((r["name"], r["kind"]) for r in records):
        of = [found.get((name, kind, c), {}) for c in contenders]
        times = [r.get("ms", math.nan) for r in of]
        firsts = [r.get("first_s", math.nan) for r in of]
        ratio = times[contenders.index("inductor")] / times[-1] if "inductor" in contenders else 0.0
        lines.append(
            [name, kind, *(f"{t:.2f}" for t in times), f"{ratio:.2f}"]
            + [f"{t:.1f}" for t in firsts]
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--autocast", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--frozen", action="store_true", help="freeze parameters for inference")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps([r for name in options.names for r in measure(name, options)]))
        return
    given = [a for a in sys.argv[1:] if a not in options.names]
    head = ["network", "", *(f"{c} ms" for c in options.contenders), "inductor/ours"]
    print(table([*head, *(f"{c} first s" for c in options.contenders)], []))
    records = []
    for name in options.names:
        found = _apart(name, given)
        records += found
        for row in rows(found, options.contenders):
            print("| " + " | ".join(row) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
