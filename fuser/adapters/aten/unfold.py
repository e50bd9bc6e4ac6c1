"""Pooling. Averages are over windows that do not overlap: each element is read once, so its
producer can be fused. With overlap the producer would be recomputed for each window; torch computes
these.

Gradients of maxima over windows are sums over the windows that contain an element. The order of the
terms is fixed, where torch adds by atomics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fuser.adapters.torch_compat import suggest_memory_format

_LARGEST = 9  # maximum elements of a window, or windows of an element; each is one read


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


def max_pool2d_backward(
    g: Tensor,
    x: Tensor,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil: bool,
    indices: Tensor,
) -> Any:
    """Sums the gradients of the windows whose maximum is the element."""
    del ceil  # the shape of `g` has it
    if any(type(n) is not int for n in (*x.shape, *x.stride(), *g.shape)) or not x.numel():
        return NotImplemented
    sizes = window[0], window[-1]
    steps = (stride[0], stride[-1]) if stride else sizes
    if any(n != 1 for n in dilation) or _overlap(sizes, steps) > _LARGEST:
        return NotImplemented
    last = is_channels_last(x)
    if last:
        g, indices = g.permute(0, 2, 3, 1), indices.permute(0, 2, 3, 1)
    first = 1 if last else x.ndim - 2  # first of the two dims of an image
    high, wide = x.shape[-2:]
    own = torch.arange(high * wide, device=x.device).view(high, wide, *([1] if last else []))
    dtype = torch.float32 if g.dtype.itemsize == 2 else g.dtype
    geometry = [sizes, steps, (padding[0], padding[-1]), (high, wide)]
    dims = [(first + i, *(pair[i] for pair in geometry)) for i in range(2)]
    terms = zip(_containing(g.to(dtype), 0, dims), _containing(indices, -1, dims), strict=True)
    parts = [torch.where(index == own, gradient, 0) for gradient, index in terms]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    total = total.to(x.dtype)
    return total.permute(0, 3, 1, 2) if last else total


def _overlap(sizes: Sequence[int], steps: Sequence[int]) -> int:
    """The number of windows that contain an element, at most."""
    return -(-sizes[0] // steps[0]) * -(-sizes[1] // steps[1])


def _containing(t: Tensor, fill: int, dims: Sequence[tuple[int, ...]]) -> Iterator[Tensor]:
    """Yields images whose elements are values of `t` at the windows that contain them, and `fill`
    outside of `t`. A dim of the image has an index, window, stride, padding and size.
    """
    if not dims:
        yield t
        return
    (d, window, stride, padding, size), *rest = dims
    count = (size - 1 + padding) // stride + 1
    for back in range(-(-window // stride)):
        # The element at n is in the window (n + padding) // stride - back, if that window is wide
        # enough.
        ends = [0, 0] * (t.ndim - 1 - d) + [back, count - back - t.shape[d]]
        wider = torch.constant_pad_nd(t, ends, fill).unsqueeze(d + 1)
        shape = list(wider.shape)
        shape[d + 1] = stride
        merged = [*shape[:d], count * stride, *shape[d + 2 :]]
        yield from _containing(
            wider.expand(shape).reshape(merged).narrow(d, padding, size), fill, rest
        )
