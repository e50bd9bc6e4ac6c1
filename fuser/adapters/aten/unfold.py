"""Average pooling with windows that do not overlap. Each element is read once, so its producer can
be fused. With overlapping windows the producer would be recomputed for each; torch computes these.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fuser.adapters.torch_compat import suggest_memory_format

_LARGEST = 9  # maximum elements of a window; each is one read


def is_channels_last(x: Tensor) -> bool:
    """True if the tensor is channels-last; False if that depends on symbols."""
    known = x.ndim == 4 and all(type(n) is int for n in (*x.shape, *x.stride()))
    return known and suggest_memory_format(x) == torch.channels_last


def avg_pool2d(
    x: Tensor,
    window: Any,
    stride: Any = (),
    padding: Any = (0,),
    ceil: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> Any:
    """Sums strided slices of x; the result has the layout of `x`."""
    del counts_padding  # there is no padding
    high, wide = window[0], window[-1]
    if (stride and (stride[0], stride[-1]) != (high, wide)) or any(padding) or ceil:
        return NotImplemented
    known = all(type(n) is int for n in (*x.shape, *x.stride()))
    if not known or not x.is_floating_point() or high * wide > _LARGEST:
        return NotImplemented
    rows, columns = x.shape[-2] // high, x.shape[-1] // wide
    if not x.numel() or not rows * columns:  # torch raises the error
        return NotImplemented
    dtype = torch.float32 if x.dtype.itemsize == 2 else x.dtype
    taken = x[..., : rows * high, : columns * wide].to(dtype)
    parts = [taken[..., i::high, j::wide] for i in range(high) for j in range(wide)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    average = (total / (divisor or high * wide)).to(x.dtype)
    images = torch.channels_last if is_channels_last(x) else torch.contiguous_format
    return average.contiguous(memory_format=images)


def avg_pool2d_backward(
    g: Tensor, x: Tensor, window: Any, stride: Any, padding: Any, *others: Any
) -> Any:
    """Without overlap, all elements of a window have the gradient of one element of `g`."""
    sizes = [window[0], window[-1]]
    wide = [*x.shape[:-2], *(n * size for n, size in zip(g.shape[-2:], sizes, strict=True))]
    if any(type(n) is not int for n in (*x.shape, *x.stride(), *wide)) or wide != list(x.shape):
        return NotImplemented
    if (stride and [stride[0], stride[-1]] != sizes) or any(padding):
        return NotImplemented
    share = g / (others[-1] or sizes[0] * sizes[1])
    last = is_channels_last(x)
    rows = share.permute(0, 2, 3, 1) if last else share
    first = 1 if last else x.ndim - 2  # first of the two dims of an image
    rows = rows.unsqueeze(first + 1).unsqueeze(first + 3)
    shape = list(rows.shape)
    shape[first + 1], shape[first + 3] = sizes
    wider = [*shape[:first], wide[-2], wide[-1], *shape[first + 4 :]]
    result = rows.expand(shape).reshape(wider)
    return result.permute(0, 3, 1, 2) if last else result
