"""Operands for tests of scalar ops: edge cases of the type and of the domain, then random
values."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from fuser import _core

RANDOM = 4096

# Critical points of functions: zeros, poles, ends of domains, overflow, denormal tails.
_PLACES = (
    *(0.0, 1e-30, 1e-4, 0.1, 0.25, 0.5, 0.55, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, math.pi / 2, math.pi),
    *(5.0, 8.0, 9.0, 9.3, 10.0, 10.5, 10.85, 11.0, 14.2, 14.5, 17.3, 20.0, 87.3, 88.72, 88.73),
    *(89.4, 103.0, 104.0, 108.0, 126.0, 127.0, 128.0, 149.0, 150.0, 709.0, 1e4, 1e10, 1e30),
)

# Domains of interest: (low, high) of a uniform draw. Other ops get normal numbers of every
# magnitude.
_DOMAINS: dict[str, tuple[float, float]] = {
    "acos": (-1, 1),
    "acosh": (1, 50),
    "asin": (-1, 1),
    "atanh": (-1, 1),
    "cos": (-30, 30),
    "cosh": (-90, 90),
    "erf": (-4, 4),
    "erfc": (-10, 10),
    "erfcinv": (0, 2),
    "erfcx": (-10, 40),
    "erfinv": (-1, 1),
    "exp": (-105, 90),
    "exp_half": (-105, 90),
    "exp2": (-151, 129),
    "expm1": (-20, 90),
    "gelu_erf": (-15, 15),
    "gelu_erf_half": (-15, 15),
    "gelu_tanh": (-12, 12),
    "gelu_tanh_half": (-12, 12),
    "lgamma": (-2.2, 60),
    "log1p": (-1, 3),
    "sigmoid": (-110, 30),
    "sigmoid_half": (-110, 30),
    "silu": (-112, 30),
    "silu_half": (-112, 30),
    "sin": (-30, 30),
    "sinh": (-90, 90),
    "tan": (-30, 30),
    "tanh": (-10, 10),
}

# Ops of several operands whose wide random values would mostly overflow or be trivial.
_NARROW = {"pow": (1e-2, 20.0), "lerp": (-4.0, 4.0), "atan2": (-4.0, 4.0)}

_ARITY = {row.name: row.arity for row in _core.op_rows()}


def edges(dtype: torch.dtype) -> Tensor:
    """Edge values of a dtype."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        parts = (-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0)
        pairs = list(itertools.product(parts, parts))
        return torch.tensor([complex(re, im) for re, im in pairs], dtype=dtype)
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        sizes = [info.tiny, info.smallest_normal, info.max, info.eps, math.inf]
        sizes += [info.smallest_normal * info.eps, info.smallest_normal * (1 - info.eps)]
        sizes += [x for x in _PLACES if x <= info.max]
        return torch.tensor([s * x for x in sizes for s in (1, -1)] + [math.nan], dtype=dtype)
    info = torch.iinfo(dtype)
    near = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64]
    near += [info.max - 1, info.max, info.min, info.min + 1]
    near += [-x for x in near if info.min < 0 and x != info.min]
    return torch.tensor(sorted({x for x in near if info.min <= x <= info.max}), dtype=dtype)


def random(op: str, dtype: torch.dtype, generator: torch.Generator, count: int = RANDOM) -> Tensor:
    """Random values of a dtype in the op's domain."""
    if dtype == torch.bool:
        return torch.rand(count, generator=generator) < 0.5
    if dtype.is_complex:
        part = torch.float64
        re = torch.randn(count, generator=generator, dtype=part)
        im = torch.randn(count, generator=generator, dtype=part)
        size = torch.exp2(torch.empty(count, dtype=part).uniform_(-3, 3, generator=generator))
        return torch.complex(re * size, im * size).to(dtype)
    if dtype.is_floating_point:
        if op in _DOMAINS or op in _NARROW:
            low, high = (_DOMAINS | _NARROW)[op]
            wide = torch.empty(count, dtype=torch.float64)
            return wide.uniform_(low, high, generator=generator).to(dtype)
        sign = torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1
        size = torch.empty(count, dtype=torch.float64).uniform_(-10, 10, generator=generator)
        return (sign * torch.exp2(size)).to(dtype)
    info = torch.iinfo(dtype)
    if op == "pow":
        return torch.randint(max(info.min, -3), 12, (count,), generator=generator, dtype=dtype)
    if "shift" in op:
        return torch.randint(0, 8 * dtype.itemsize + 2, (count,), generator=generator, dtype=dtype)
    wide = torch.randint(info.min, info.max, (count,), generator=generator, dtype=torch.int64)
    small = torch.randint(1, 62, (count,), generator=generator)
    shorter = wide >> small.clamp(max=8 * dtype.itemsize - 4)
    return torch.where(small % 2 == 0, wide, shorter).to(dtype)


def _product(columns: list[Tensor]) -> list[Tensor]:
    """Every combination of the columns' values."""
    places = [torch.arange(len(column)) for column in columns]
    grids = torch.meshgrid(*places, indexing="ij")
    return [column[grid.reshape(-1)] for column, grid in zip(columns, grids, strict=True)]


def cases(
    op: str, dtype: torch.dtype, generator: torch.Generator, count: int = RANDOM
) -> tuple[Tensor, ...]:
    """Operands of an op computed in `dtype`, of equal length.

    All combinations of edge values come first, then `count` random values. Operand 0 of `where` is
    bool, the other operands are of `dtype`.
    """
    dtypes = [dtype] * _ARITY[op]
    if op == "where":
        dtypes[0] = torch.bool
    edge = [edges(t) for t in dtypes]
    if len(edge) == 3:  # sample instead of testing 90^3 combinations
        edge = [e[torch.randint(0, len(e), (6,), generator=generator)] for e in edge]
    columns = [
        torch.cat([e, random(op, t, generator, count)])
        for e, t in zip(_product(edge), dtypes, strict=True)
    ]
    return tuple(columns)
