"""Tensors for random definitions: their elements and their strides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Pick = Callable[[int], int]  # pick(n): an integer in 0 .. n - 1


def described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"# {value!r}"
    return (
        f"# {value.dtype} {list(value.shape)} strides {list(value.stride())} "
        f"offset {value.storage_offset()} of {value.untyped_storage().nbytes()} bytes "
        f"at {value.data_ptr() % 16} past 16"
    )


@dataclass(frozen=True)
class Values:
    """Element distribution of an input: small integers, for floats also infinities and NaN, or the
    extremes of the type."""

    dtype: torch.dtype
    special: bool = False
    extreme: bool = False

    @property
    def bound(self) -> float:
        return math.inf if self.extreme else 4.0

    def draw(self, pick: Pick, count: int) -> torch.Tensor:
        dtype = self.dtype
        generator = torch.Generator().manual_seed(pick(1 << 16))
        if dtype == torch.bool:  # any nonzero byte is true
            values = torch.randint(0, 3, (count,), generator=generator)
            return values.to(torch.uint8).view(torch.bool)
        low, high = (0, 4) if dtype == torch.uint8 else (-3, 4)
        if dtype.is_complex:
            low, high = -2, 3
        parts = torch.randint(low, high, (1 + dtype.is_complex, count), generator=generator)
        parts = parts.to(dtype.to_real() if dtype.is_complex else dtype)
        if self.special or self.extreme:
            odd = self.odd(parts.dtype)
            chosen = odd[torch.randint(0, len(odd), parts.shape, generator=generator)]
            often = torch.rand(parts.shape, generator=generator) < (0.7 if self.extreme else 0.2)
            # Select by bytes: torch.where does not support float8.
            size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[odd.itemsize]
            parts = torch.where(often, chosen.view(size), parts.view(size)).view(parts.dtype)
        return torch.complex(*parts) if dtype.is_complex else parts[0]

    def odd(self, dtype: torch.dtype) -> torch.Tensor:
        if not dtype.is_floating_point:
            info = torch.iinfo(dtype)
            return torch.tensor([info.min, info.max, info.max - 1], dtype=dtype)
        odd = [-0.0, math.nan, math.inf, -math.inf]
        if self.extreme:
            limits = torch.finfo(dtype)
            sizes = [limits.max, limits.tiny, limits.tiny * limits.eps, limits.tiny * 0.5]
            sizes += [limits.eps, 1 + limits.eps, 0.5, 2.5]
            odd += [*sizes, *(-x for x in sizes)]
        return torch.tensor(odd, dtype=torch.float64).to(dtype)


def strided(pick: Pick, sizes: tuple[int, ...], values: Values, dense: bool) -> torch.Tensor:
    """A tensor with permuted, padded, sliced and (unless `dense`) expanded or overlapping dims, at
    any offset."""
    rank = len(sizes)
    order = list(range(rank))
    if pick(2):
        order.sort(key=lambda _: pick(64))
    strides = [0] * rank
    step = 1 if pick(3) else 2
    overlaps = not dense and pick(5) == 0
    for d in reversed(order):
        if not dense and sizes[d] > 1 and pick(6) == 0:
            continue  # stride 0
        strides[d] = step
        if overlaps and step > 1 and pick(2):
            strides[d] = 1 + pick(step)
        step *= max(sizes[d], 1)
        if pick(5) == 0:
            step += 1 + pick(8)
    offset = pick(4) if pick(3) == 0 else 0
    return values.draw(pick, offset + step + 8).as_strided(sizes, strides, offset)
