"""Ops of fd.ops on tensors of torch, for decompositions that compute as a composite of fuser.ops.

The ops are those that the shared composites call: softmax_over() and group_norm_of(). Operands have
their compute type already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class TorchOps:
    """Counterpart of fuser.ops.Ops that computes with torch, e.g. while torch traces."""

    add = staticmethod(torch.add)
    exp = staticmethod(torch.exp)
    mean = staticmethod(torch.mean)
    mul = staticmethod(torch.mul)
    reciprocal = staticmethod(torch.reciprocal)
    rsqrt = staticmethod(torch.rsqrt)
    sub = staticmethod(torch.sub)
    sum = staticmethod(torch.sum)

    def truediv(self, a: Any, b: Any) -> Any:
        return a / b

    def max(
        self, x: Tensor, dims: Sequence[int], keepdim: bool, dtype: Any, *, identity: bool
    ) -> Tensor:
        del dtype, identity  # callers pass no empty rows
        return torch.amax(x, list(dims), keepdim)

    def keep_dims(self, reduced: Tensor, x: Tensor, dims: Sequence[int]) -> Tensor:
        return self.broadcast(reduced, [d in dims for d in range(x.ndim)])

    def broadcast(self, x: Tensor, places: Sequence[bool]) -> Tensor:
        for d, new in enumerate(places):
            x = x.unsqueeze(d) if new else x
        return x

    def split_dim(self, x: Tensor, dim: int, sizes: Sequence[Any]) -> Tensor:
        return torch.unflatten(x, dim, list(sizes))

    def merge_dims(self, x: Tensor, dim: int, size: Any) -> Tensor:
        del size
        return x.flatten(dim, dim + 1)
