"""The programs of benchmarks.parallel: BERT under DDP, Llama under FSDP2 and under tensor parallel.

The networks are plain modules of torch in training sizes. A maker returns the function of one
rank's forward pass, which gives the loss, and the parameters that SGD steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from benchmarks.models import compiled


@dataclass
class Sizes:
    """Sizes of a transformer and of one rank's batch."""

    width: int
    heads: int
    hidden: int
    depth: int
    words: int
    batch: int
    length: int


BERT = Sizes(width=768, heads=12, hidden=3072, depth=8, words=30522, batch=16, length=512)
LLAMA = Sizes(width=2048, heads=16, hidden=5632, depth=6, words=32000, batch=4, length=1024)
SMALL = Sizes(width=64, heads=4, hidden=128, depth=2, words=97, batch=2, length=16)


def _heads(x: Tensor, size: int) -> Tensor:
    """[batch, heads, length, size]; tensor parallel leaves a rank some of the heads."""
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


class _Attention(nn.Module):
    """Self-attention of both networks; Llama's is causal and rotates queries and keys."""

    def __init__(self, s: Sizes, bias: bool) -> None:
        super().__init__()
        self.size = s.width // s.heads
        self.q, self.k, self.v, self.o = (nn.Linear(s.width, s.width, bias) for _ in range(4))

    def forward(self, x: Tensor, cos: Tensor | None = None, sin: Tensor | None = None) -> Tensor:
        q, k, v = (_heads(f(x), self.size) for f in (self.q, self.k, self.v))
        if cos is not None and sin is not None:
            q, k = (_rotated(y, cos, sin) for y in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cos is not None)
        return self.o(y.transpose(1, 2).flatten(2))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class _BertBlock(nn.Module):
    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.attention = _Attention(s, bias=True)
        self.up, self.down = nn.Linear(s.width, s.hidden), nn.Linear(s.hidden, s.width)
        self.norm1, self.norm2 = nn.LayerNorm(s.width), nn.LayerNorm(s.width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + F.dropout(self.attention(x), 0.1))
        return self.norm2(x + F.dropout(self.down(F.gelu(self.up(x))), 0.1))


class Bert(nn.Module):
    """An encoder with norms after the sums, and the loss of masked words."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(s.words, s.width), nn.Embedding(512, s.width)
        self.norm, self.last = nn.LayerNorm(s.width), nn.LayerNorm(s.width)
        self.blocks = nn.ModuleList(_BertBlock(s) for _ in range(s.depth))
        self.transform, self.head = nn.Linear(s.width, s.width), nn.Linear(s.width, s.words)

    def forward(self, words: Tensor, labels: Tensor) -> Tensor:
        x = self.norm(self.embed(words) + self.position.weight[: words.shape[1]])
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.last(F.gelu(self.transform(x))))
        return F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten())


class _Mlp(nn.Module):
    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(s.width, s.hidden, False) for _ in range(2))
        self.down = nn.Linear(s.hidden, s.width, False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class _LlamaBlock(nn.Module):
    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(s.width, eps=1e-5) for _ in range(2))
        self.attention, self.mlp = _Attention(s, bias=False), _Mlp(s)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    """A decoder with RMS norms, rotary embeddings and gated linear units; returns the scores."""

    cos: Tensor
    sin: Tensor

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(s.words, s.width), nn.Linear(s.width, s.words, False)
        self.blocks = nn.ModuleList(_LlamaBlock(s) for _ in range(s.depth))
        self.norm = nn.RMSNorm(s.width, eps=1e-5)
        size = s.width // s.heads
        rates = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(s.length), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def _loss(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten())


Forward = Callable[[Tensor, Tensor], Tensor]
Made = tuple[Forward, Iterable[nn.Parameter]]


def bert_ddp(device: torch.device, s: Sizes, contender: str) -> Made:
    """torch.compile(DDP(model)) with autocast to bfloat16: graphs end at the buckets."""
    ids = [device.index] if device.type == "cuda" else None
    module = nn.parallel.DistributedDataParallel(Bert(s).to(device), device_ids=ids)
    run = compiled(module, contender)

    def forward(words: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return run(words, labels)

    return forward, module.parameters()


def llama_fsdp(device: torch.device, s: Sizes, contender: str) -> Made:
    """FSDP2 with bfloat16 parameters and float32 gradients; each block and the loss compiled."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    module: Any = Llama(s).to(device)
    for i, block in enumerate(module.blocks):
        if contender != "eager":
            module.blocks[i] = block = compiled(block, contender)
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(module, mesh=mesh, mp_policy=policy)
    loss = compiled(_loss, contender)
    return lambda words, labels: loss(module(words), labels), module.parameters()


def llama_tensor_parallel(device: torch.device, s: Sizes, contender: str) -> Made:
    """Tensor parallel in bfloat16 with norms sharded by the sequence; one graph."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    module = Llama(s).to(device, torch.bfloat16)

    def gather(others: int) -> PrepareModuleInput:
        """All-gathers the first argument, which is followed by `others` plain tensors."""
        rest = (None,) * others
        return PrepareModuleInput(
            input_layouts=(Shard(1), *rest), desired_input_layouts=(Replicate(), *rest)
        )

    columns = ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up")
    plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
    for name in ("attention.o", "mlp.down"):
        plan[name] = RowwiseParallel(output_layouts=Shard(1))
    plan |= {"norm1": SequenceParallel(), "norm2": SequenceParallel()}
    plan |= {"attention": gather(2), "mlp": gather(0)}
    whole = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(module, mesh, whole)
    for block in module.blocks:
        parallelize_module(block, mesh, plan)

    def forward(words: Tensor, labels: Tensor) -> Tensor:
        return _loss(module(words), labels)

    return compiled(forward, contender), module.parameters()


@dataclass
class Program:
    """make: builds the forward pass. shared: all ranks have one batch."""

    make: Callable[[torch.device, Sizes, str], Made]
    sizes: Sizes
    shared: bool = False


PROGRAMS = {
    "bert_ddp": Program(bert_ddp, BERT),
    "llama_fsdp": Program(llama_fsdp, LLAMA),
    "llama_tensor_parallel": Program(llama_tensor_parallel, LLAMA, shared=True),
}


def batch(program: Program, s: Sizes, device: torch.device) -> tuple[Tensor, Tensor]:
    """Words and labels of this rank."""
    made = torch.Generator().manual_seed(0 if program.shared else dist.get_rank())
    drawn = torch.randint(0, s.words, (2, s.batch, s.length), generator=made).to(device)
    return drawn[0], drawn[1]
