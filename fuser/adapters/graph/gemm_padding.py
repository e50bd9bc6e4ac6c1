"""Matrix products: the sizes that need padding, and zero-padded memory.

The GPU's libraries load 16 bytes of half types at once if all sizes are multiples of 8, and are
several times slower otherwise, e.g. for vocabularies of 30522 or 50257.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

# Argument indices of both matrices.
PRODUCTS: dict[Any, tuple[int, int]] = {
    torch.ops.aten.mm.default: (0, 1),
    torch.ops.aten.bmm.default: (0, 1),
    torch.ops.aten.addmm.default: (1, 2),
}

_UNIT = 8
_DEVICES = {"cuda"}
# Minimum multiplications of a padded product, and minimum multiplications per element of its
# matrices. Below the first the host's call dominates, below the second the copies.
_LARGE = 1 << 30
_INTENSE = 256


def rounded(size: int) -> int:
    """Next larger size that is fast in products."""
    return -(-size // _UNIT) * _UNIT


def padded_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Sizes of a matrix, or a batch of matrices, with padding at the ends."""
    return (*sizes[:-2], rounded(sizes[-2]), rounded(sizes[-1]))


def is_worth_padding(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if a[..., M, K] times b[..., K, N] is faster with padded sizes, including copies. False
    for symbolic sizes.
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
    """Allocates a tensor of these sizes at the beginning of memory with the sizes `full`, which is
    zero elsewhere.
    """
    result = memory = torch.empty(full, dtype=dtype, device=device)
    for dim, (size, whole) in enumerate(zip(sizes, full, strict=True)):
        if size < whole:
            memory.narrow(dim, size, whole - size).zero_()
            result = result.narrow(dim, 0, size)
    return result


def with_zeros_behind(given: torch.Tensor, full: Sequence[int]) -> torch.Tensor:
    """Copies `given` into zero-padded memory."""
    return zeros_behind(given.shape, full, given.dtype, given.device).copy_(given)
