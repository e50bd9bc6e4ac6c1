"""Fake quantization for quantization-aware training: rounds to quantized values, with a mask of
elements that pass the gradient. All ops are elementwise; the backward graph rematerializes the
mask.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _per_tensor(x: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Any:
    if type(scale) is not float or type(zero_point) is not int or not _is_taken(x):
        return NotImplemented
    if not 1e-30 < scale < 1e30:  # the scale and its inverse must fit into float32
        return NotImplemented
    scale = _float32(scale)
    return _quantized(x, scale, _float32(1 / scale), zero_point, low, high)


def _by_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, low: int, high: int
) -> Any:
    """Scale and zero point are tensors of one element; x is unchanged unless `enabled`."""
    given = (scale, zero_point, enabled)
    if not _is_taken(x) or any(t.numel() != 1 for t in given) or scale.dtype != torch.float32:
        return NotImplemented
    if any(t.device != x.device or t.is_floating_point() for t in given[1:]):
        return NotImplemented
    scale, zero_point, enabled = (t.reshape([1] * x.ndim) for t in given)
    result, mask = _quantized(x, scale, scale.reciprocal(), zero_point, low, high)
    on = enabled != 0
    return torch.where(on, result, x), mask | ~on


def _per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> Any:
    if not _is_taken(x) or scale.dtype != torch.float32 or zero_point.is_floating_point():
        return NotImplemented
    along = [-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]
    scale = scale.view(along)
    return _quantized(x, scale, scale.reciprocal(), zero_point.view(along), low, high)


def _is_taken(x: Tensor) -> bool:
    return x.ndim > 0 and x.dtype in (torch.float32, torch.float16, torch.bfloat16)


def _quantized(x: Tensor, scale: Any, inverse: Any, zero_point: Any, low: int, high: int) -> Any:
    """(result, mask). Torch rounds before it adds the zero point; NaN gives the least value."""
    found = torch.round(x.to(torch.float32) * inverse) + zero_point
    is_above = found >= low
    kept = torch.where(is_above, found.clamp(max=high), low)
    return ((kept - zero_point) * scale).to(x.dtype), is_above & (found <= high)


def _float32(number: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", number))
    return float(rounded)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.fake_quantize_per_tensor_affine_cachemask.default: _per_tensor,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _by_tensors,
    aten.fake_quantize_per_channel_affine_cachemask.default: _per_channel,
}
