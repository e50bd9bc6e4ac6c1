"""Small definitions used by several tests, and the cache counters."""

from __future__ import annotations

import re

import torch

import fuser
from fuser import CacheInfo, DataType, FusionDefinition
from fuser.ops import as_dtype


def scaled(
    factor: float, rank: int = 1, dtype: DataType | torch.dtype = DataType.Float
) -> FusionDefinition:
    """x * factor, for x of any sizes."""
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1] * rank, dtype=as_dtype(dtype)) * factor)
    return fd


def sum_of_two(rank: int = 2, dtype: DataType = DataType.Float) -> FusionDefinition:
    """a + b; dims of size 1 broadcast."""
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1] * rank, dtype=dtype) for _ in range(2))
        fd.add_output(a + b)
    return fd


def bias_gelu() -> FusionDefinition:
    """tanh-approximated gelu(x[rows, columns] + bias[columns]), from bf16 to bf16."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.BFloat16)
        bias = fd.define_tensor([-1], True, DataType.BFloat16)
        fd.add_output(fd.ops.cast(fd.ops.gelu(x + bias, approximate="tanh"), DataType.BFloat16))
    return fd


def gained(before: CacheInfo) -> CacheInfo:
    """Increase of the counters since `before`."""
    now = fuser.cache_info()
    return CacheInfo(*(new - old for new, old in zip(now, before, strict=True)))  # type: ignore[arg-type]


def counted(before: CacheInfo) -> tuple[int, int]:
    """Hits and misses since `before`."""
    gain = gained(before)
    return gain.hits, gain.misses


def without_digest(text: str) -> str:
    """Kernel text without the digest in the name of its function."""
    return re.sub(r"(KERNEL2?\([\d, ]+\) void \w+?)_[0-9a-f]{8}\(", r"\1(", text)
