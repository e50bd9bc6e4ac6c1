"""Products of matrices: which are faster with larger matrices, and zeros in what is added.

The GPU's libraries move half types 16 bytes at once where all sizes are multiples of 8, and take
two to seven times as long where one is not (a vocabulary of 30522 or 50257 words).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

# The places of both matrices among the arguments.
PRODUCTS: dict[Any, tuple[int, int]] = {
    torch.ops.aten.mm.default: (0, 1),
    torch.ops.aten.bmm.default: (0, 1),
    torch.ops.aten.addmm.default: (1, 2),
}

_UNIT = 8
_DEVICES = {"cuda"}
# A product with fewer multiplications takes no longer than a call of the host; one with fewer for
# each element of its matrices no longer than copying these.
_LARGE = 1 << 30
_INTENSE = 256


def rounded(size: int) -> int:
    """The next size that products are fast with."""
    return -(-size // _UNIT) * _UNIT


def padded_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Of a matrix or a batch of them, with zeros at its end."""
    return (*sizes[:-2], rounded(sizes[-2]), rounded(sizes[-1]))


def is_worth_padding(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Is a[..., M, K] times b[..., K, N] faster, copies counted, with padded sizes? Never where a
    size is symbolic.
    """
    if a.device.type not in _DEVICES or a.dtype.itemsize != 2:
        return False
    sizes = (*a.shape, b.shape[-1])
    if not all(type(n) is int for n in sizes):
        return False
    if all(n == rounded(n) for n in sizes[-3:]):
        return False
    elements = sizes[-3] * sizes[-2] + sizes[-2] * sizes[-1] + sizes[-3] * sizes[-1]
    return bool(prod(sizes) >= _LARGE and prod(sizes[-3:]) >= _INTENSE * elements)


def zeros_behind(
    sizes: Sequence[int], full: Sequence[int], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """New memory for a tensor of these sizes: the beginning of one with the sizes `full`, which is
    zero where it is longer.
    """
    result = memory = torch.empty(full, dtype=dtype, device=device)
    for dim, (size, whole) in enumerate(zip(sizes, full, strict=True)):
        if size < whole:
            memory.narrow(dim, size, whole - size).zero_()
            result = result.narrow(dim, 0, size)
    return result


def with_zeros_behind(given: torch.Tensor, full: Sequence[int]) -> torch.Tensor:
    """A copy of `given` in such memory."""
    return zeros_behind(given.shape, full, given.dtype, given.device).copy_(given)
