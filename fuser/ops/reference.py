"""Reference implementations of scalar ops, reductions, movement ops and library ops, by torch ops
on CPU tensors: one entry per row of csrc/ir/ops.def, reductions.def, movement.h and library.def.

`fuser.evaluate` and the tests compare with them. Operands: floats as float64, complex as
complex128, bool as bool, integers in the compute dtype of the op, which determines wrapping and the
width of shifts. Results: float64, complex128, bool or that integer dtype. Integer results are
exact. float64 results are accurate to a few units in the last place of float64, even if the usual
formula cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fuser.errors import Unsupported

__all__ = ["LIBRARY", "MOVEMENTS", "REDUCTIONS", "REFERENCES", "LibraryReference", "philox"]


def _nonzero(b: Tensor) -> Tensor:
    """Replaces divisors that torch rejects by 1: 0, and -1, which overflows the least integer."""
    bad = b == 0 if b.dtype == torch.uint8 else (b == 0) | (b == -1)
    return torch.where(bad, torch.ones_like(b), b)


def _fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c. The exact product of finite factors is finite and cannot cancel an infinity."""
    finite = a.isfinite() & b.isfinite()
    return torch.where(c.isinf() & finite, c, a * b + c)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    """a / b; integers truncate, x / 0 is -1, and x / -1 wraps."""
    if b.is_floating_point() or b.is_complex():
        return a / b
    quotient = torch.div(a, _nonzero(b), rounding_mode="trunc")
    if b.dtype != torch.uint8:
        quotient = torch.where(b == -1, -a, quotient)
    return torch.where(b == 0, torch.full_like(a, 255 if b.dtype == torch.uint8 else -1), quotient)


_broadcast: Callable[..., Any] = torch.broadcast_tensors  # a typed alias


def _rest(a: Tensor, b: Tensor) -> Tensor:
    """Remainder of `_divide`, with the sign of a; a for an integer divisor of 0."""
    if b.is_floating_point():
        # torch.fmod of float64 gives NaN for quotients beyond about 2^1023.
        with np.errstate(invalid="ignore"):
            # Broadcast by torch, so that sizes that do not match raise its usual error.
            a, b = _broadcast(a, b)
            return torch.as_tensor(np.fmod(a.numpy(), b.numpy()))
    return torch.where(b == 0, a, a - _divide(a, b) * b)


def _signs_differ(a: Tensor, b: Tensor) -> Tensor:
    """True if a / b is negative and no integer."""
    return (_rest(a, b) != 0) & (b != 0) & ((a < 0) != (b < 0))


def _floor_divide(a: Tensor, b: Tensor) -> Tensor:
    """floor(a / b); integers as `_divide`."""
    if b.is_floating_point():
        return torch.floor_divide(a, b)
    return _divide(a, b) - _signs_differ(a, b).to(a.dtype)


def _ceil_divide(a: Tensor, b: Tensor) -> Tensor:
    """The least integer that is at least a / b; integers only."""
    above = (_rest(a, b) != 0) & (b != 0) & ((a < 0) == (b < 0))
    return _divide(a, b) + above.to(a.dtype)


def _remainder(a: Tensor, b: Tensor) -> Tensor:
    """Remainder of `_floor_divide`, with the sign of b."""
    if b.is_floating_point():
        rest = _rest(a, b)
        return torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
    return _rest(a, b) + b * _signs_differ(a, b).to(b.dtype)


def _shift(a: Tensor, count: Tensor, kind: str) -> Tensor:
    """Shift of integers by any count: a count outside [0, width) shifts out all bits but the
    sign.
    """
    width = 8 * a.element_size()
    inside = (count >= 0) & (count < width)
    places = torch.where(inside, count, torch.zeros_like(count)).long()
    wide = a.long()
    if kind == "left":
        return torch.where(inside, wide << places, 0).to(a.dtype)
    if kind == "arithmetic":
        return (wide >> torch.where(inside, places, 63)).to(a.dtype)
    # Shift the sign in and mask it out; a shift by 0 needs no mask.
    mask = torch.where(places == 0, -1, (1 << (width - places).clamp(max=63)) - 1)
    return torch.where(inside, (wide >> places) & mask, 0).to(a.dtype)


def _lgamma(x: Tensor) -> Tensor:
    """torch's, but near overflow: torch's is infinite from 2.556348e305 on, the exact one from
    2.559984e305. Above 1e17, Stirling's further terms are below half a ULP.
    """
    return torch.where(x > 1e17, x * (torch.log(x) - 1), torch.lgamma(x))


def _near_overflow(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """cosh or sinh near overflow: torch's are infinite from 710 on, the exact ones from 710.5."""

    def exact(x: Tensor) -> Tensor:
        if x.is_complex():
            return function(x)
        root = torch.exp(x.abs() / 2)
        large = torch.where(function(torch.sign(x)) < 0, -0.5, 0.5) * root * root
        return torch.where(x.abs() > 700, large, function(x))

    return exact


def _sigmoid(x: Tensor) -> Tensor:
    """sigmoid(x) for x below -710 too: torch's is 0 there, while exp(x) is not."""
    if x.is_complex():
        return torch.sigmoid(x)
    return torch.where(x < -600, torch.exp(x), torch.sigmoid(x))


def _silu(x: Tensor) -> Tensor:
    if x.is_complex():
        return torch.nn.functional.silu(x)
    # e^x as two factors, because it alone would be denormal where the product is not.
    left = x * torch.exp(x + 600) * torch.exp(torch.full_like(x, -600))
    return torch.where(x < -600, left, torch.nn.functional.silu(x))


def _gelu_tanh(x: Tensor) -> Tensor:
    """x (1 + tanh u) / 2 as x sigmoid(2 u), which is accurate for negative x."""
    return x * _sigmoid(2 * math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x))


def _gelu_erf(x: Tensor) -> Tensor:
    """x (1 + erf(x / sqrt 2)) / 2 by erfc, which is accurate for negative x."""
    return 0.5 * x * torch.erfc(x * -math.sqrt(0.5))


def _erfcx(x: Tensor) -> Tensor:
    """erfcx(x); for negative x it is 2 exp(x * x), with the rounding error of x * x."""
    high = x.float().to(x.dtype).clamp(-27, 0)  # its square is exact in float64
    low = x.clamp(-27, 0) - high
    square = 2 * torch.exp(high * high) * torch.exp((2 * high + low) * low)
    return torch.where(x < -6, square, torch.special.erfcx(x))


def _add(a: Tensor, b: Tensor) -> Tensor:
    return a | b if a.dtype == torch.bool else a + b


def philox(low: Tensor, high: Tensor, key: Tensor) -> list[Tensor]:
    """Philox4x32-10 (csrc/device/random.cuh): four words in [0, 2^32) from a counter and a key,
    which are given as the bits of int64.
    """
    mask = 0xFFFFFFFF
    a, b, c, d = low & mask, (low >> 32) & mask, high & mask, (high >> 32) & mask
    k0, k1 = key & mask, (key >> 32) & mask

    def product(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
        # The product wraps to 64 bits; mask the sign extension of its high half.
        both = x * factor
        return (both >> 32) & mask, both & mask

    for _ in range(10):
        p, q = product(a, 0xD2511F53), product(c, 0xCD9E8D57)
        a, b, c, d = q[0] ^ b ^ k0, q[1], p[0] ^ d ^ k1, p[1]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return [a, b, c, d]


def _random(index: Tensor, seed: Tensor, offset: Tensor, words: int) -> Tensor:
    """Word index % 4 of call index / 4, or two words as one of 64 bits."""
    seed, offset = seed.long(), offset.long()
    index = index.long().expand((index | seed | offset).shape)
    shift = 2 if words == 1 else 1
    call = (index >> shift) & ((1 << (64 - shift)) - 1)
    all_words = torch.stack(philox((offset >> 2) & ((1 << 62) - 1), call, seed), -1)
    place = (index & (4 // words - 1)) * words
    taken = [all_words.gather(-1, (place + i).unsqueeze(-1)).squeeze(-1) for i in range(words)]
    return taken[0] if words == 1 else taken[0] | (taken[1] << 32)


REFERENCES: dict[str, Callable[..., Tensor]] = {
    "set": lambda a: a,
    "real": lambda a: a.real,
    "imag": lambda a: a.imag,
    "complex": torch.complex,
    "add": _add,
    "sub": torch.sub,
    "mul": torch.mul,
    "fma": _fma,
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "truediv": torch.true_divide,
    "div": _divide,
    "floor_divide": _floor_divide,
    "ceil_div": _ceil_divide,
    "mod": _rest,
    "fmod": _rest,
    "remainder": _remainder,
    "reciprocal": torch.reciprocal,
    "gcd": lambda a, b: torch.gcd(a, b).abs(),
    "lerp": torch.lerp,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "round": torch.round,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "relu": torch.relu,
    "clamp": torch.clamp,
    "threshold": lambda x, limit, value: torch.where(x <= limit, value, x),
    "where": torch.where,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "isneginf": torch.isneginf,
    "isposinf": torch.isposinf,
    "isreal": torch.isreal,
    "signbit": torch.signbit,
    "logical_not": torch.logical_not,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "bitwise_not": torch.bitwise_not,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "bitwise_left_shift": lambda a, count: _shift(a, count, "left"),
    "bitwise_right_shift": lambda a, count: _shift(a, count, "arithmetic"),
    "logical_right_shift": lambda a, count: _shift(a, count, "logical"),
    "random32": lambda index, seed, offset: _random(index, seed, offset, 1),
    "random64": lambda index, seed, offset: _random(index, seed, offset, 2),
    "pow": torch.pow,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "log10": torch.log10,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "atan2": torch.atan2,
    "sinh": _near_overflow(torch.sinh),
    "cosh": _near_overflow(torch.cosh),
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfcx": _erfcx,
    "erfinv": torch.erfinv,
    "erfcinv": lambda c: torch.special.ndtri(c * 0.5) * -math.sqrt(0.5),
    "lgamma": _lgamma,
    "truediv_half": torch.true_divide,
    "exp_half": torch.exp,
    "sigmoid_half": _sigmoid,
    "silu_half": _silu,
    "tanh_half": torch.tanh,
    "gelu_erf_half": _gelu_erf,
    "gelu_tanh_half": _gelu_tanh,
}


def _least(x: Tensor) -> Tensor:
    """The identity of max, one per row."""
    if x.dtype == torch.bool:
        return x.new_zeros(x.shape[:-1])
    low = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    return x.new_full(x.shape[:-1], low)


def _greatest(x: Tensor) -> Tensor:
    """The identity of min, one per row."""
    if x.dtype == torch.bool:
        return x.new_ones(x.shape[:-1])
    high = math.inf if x.is_floating_point() else torch.iinfo(x.dtype).max
    return x.new_full(x.shape[:-1], high)


def _extreme(x: Tensor, largest: bool) -> Tensor:
    if x.shape[-1] == 0:
        return _least(x) if largest else _greatest(x)
    return x.amax(-1) if largest else x.amin(-1)


def _place(x: Tensor, largest: bool) -> tuple[Tensor, Tensor]:
    """The extreme value and its first index; NaN wins, index 0 over no elements."""
    value = _extreme(x, largest)
    if x.shape[-1] == 0:
        return value, torch.zeros(value.shape, dtype=torch.int64)
    found = (x == value.unsqueeze(-1)) | x.isnan()
    return value, found.to(torch.uint8).argmax(-1)


def _exclusive_or(x: Tensor) -> Tensor:
    while x.shape[-1] > 1:
        middle = x.shape[-1] // 2
        x = torch.cat([x[..., :middle] ^ x[..., middle : 2 * middle], x[..., 2 * middle :]], -1)
    return x[..., 0] if x.shape[-1] else x.new_zeros(x.shape[:-1])


# Reductions of rows: the elements along the last dim become one value per result.
REDUCTIONS: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "sum": lambda x: (x.sum(-1),),
    "prod": lambda x: (x.prod(-1),),
    "max": lambda x: (_extreme(x, True),),
    "min": lambda x: (_extreme(x, False),),
    "any": lambda x: (x.any(-1),),
    "all": lambda x: (x.all(-1),),
    "argmax": lambda x: _place(x, True),
    "argmin": lambda x: _place(x, False),
    "xor_sum": lambda x: (_exclusive_or(x),),
}


def _unsqueezed(x: Tensor, is_broadcast_dim: list[bool]) -> Tensor:
    for d, new in enumerate(is_broadcast_dim):
        x = x.unsqueeze(d) if new else x
    return x


def _sliced(x: Tensor, start_indices: list[int], end_indices: list[int], strides: list[int]) -> Any:
    bounds = zip(start_indices, end_indices, strides, strict=True)
    return x[tuple(slice(*bound) for bound in bounds)]


# Movement ops of csrc/ir/movement.h, by name: functions of the operand and of the arguments by
# name, with integers for scalars. Sizes are checked before by the interpreter of expand, squeeze,
# split_dim and merge_dims, whose errors name the user's line.
MOVEMENTS: dict[str, Callable[..., Tensor]] = {
    "broadcast": _unsqueezed,
    "expand": lambda x, shape: x.expand(shape),  # -1 keeps a size
    "squeeze": lambda x, dims, squeeze_expanded: x[
        tuple(0 if d in dims else slice(None) for d in range(x.dim()))
    ],
    "permute": lambda x, dims: x.permute(dims),
    "stride_order": lambda x, stride_order: x,
    "split_dim": lambda x, dim, sizes: x.unflatten(dim, sizes),
    "merge_dims": lambda x, dim, size: x.flatten(dim, dim + 1),
    "slice": _sliced,
    "flip": lambda x, dims: x.flip(dims),
    "unfold": lambda x, dim, size, step: x.unfold(dim, size, step),
}


class LibraryReference(NamedTuple):
    """A row of csrc/ir/library.def: its function, the length of its sums or products, and True if
    it is linear in each operand.
    """

    compute: Callable[..., Any]
    terms: Callable[..., int] | None = None
    linear: bool = False


def _length(x: Tensor, dim: int) -> int:
    return x.shape[dim] if x.dim() else 1


def _matmul_terms(a: Tensor, b: Tensor, bias: Tensor | None = None) -> int:
    return max(a.shape[-1], 1)


def _grouped_mm(a: Tensor, b: Tensor, offsets: Tensor) -> Tensor:
    ends = offsets.tolist()
    bounds = list(zip([0, *ends], ends, strict=False))
    if a.dim() == b.dim() == 3:
        return a @ b
    if a.dim() == b.dim() == 2:
        return torch.stack([a[:, i:j] @ b[i:j] for i, j in bounds])
    if b.dim() == 3:
        return torch.cat([a[i:j] @ m for (i, j), m in zip(bounds, b, strict=True)])
    return torch.cat([m @ b[:, i:j] for (i, j), m in zip(bounds, a, strict=True)], 1)


def _scaled_grouped_mm(
    a: Tensor, b: Tensor, offsets: Tensor, scale1: Tensor, scale2: Tensor, dtype: Any = None
) -> Tensor:
    if a.dim() == b.dim() == 2:  # scales per result
        return _grouped_mm(a, b, offsets) * scale1 * scale2
    return _grouped_mm(a * scale1, b * scale2, offsets)


def _scale_of(q: Tensor, scale: float) -> float:
    return 1 / math.sqrt(max(q.shape[-1], 1)) if math.isnan(scale) else scale


def _weights(
    q: Tensor, k: Tensor, bias: Tensor | float, dropout_p: float, is_causal: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention weights of the keys for each query, and the logarithm of their divisor."""
    if dropout_p:
        raise Unsupported(
            "evaluate(): attention with dropout is not reproducible, because torch's kernel "
            "draws the random numbers",
            rule="evaluate-2",
        )
    scores = q @ k.mT * _scale_of(q, scale) + bias
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    total = scores.logsumexp(-1)
    return (scores - total.unsqueeze(-1)).exp(), total


def _attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float = 0.0, **attributes: Any
) -> tuple[Tensor, ...]:
    weights, total = _weights(q, k, bias, **attributes)
    # Placeholder state of the random generator, which is not used.
    return weights @ v, total, torch.zeros(2, dtype=torch.int64), torch.tensor(0)


def _attention_gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, *_: Tensor, **attributes: Any
) -> tuple[Tensor, ...]:
    weights, _total = _weights(q, k, 0.0, **attributes)
    inner = weights * (grad @ v.mT - (grad * output).sum(-1, keepdim=True))
    inner = inner * _scale_of(q, attributes["scale"])
    return inner @ k, inner.mT @ q, weights.mT @ grad


LIBRARY: dict[str, LibraryReference] = {
    "matmul": LibraryReference(torch.matmul, _matmul_terms, linear=True),
    "linear": LibraryReference(torch.nn.functional.linear, _matmul_terms, linear=True),
    "baddbmm": LibraryReference(torch.baddbmm, lambda _, a, b: _matmul_terms(a, b), linear=True),
    "grouped_mm": LibraryReference(
        _grouped_mm, lambda a, b, offsets: _matmul_terms(a, b), linear=True
    ),
    "scaled_grouped_mm": LibraryReference(
        # As for scaled_mm below.
        _scaled_grouped_mm,
        lambda a, b, *_, dtype: 128 * _matmul_terms(a, b),
        linear=True,
    ),
    "scaled_mm": LibraryReference(
        lambda a, b, scale1, scale2, bias=0.0, dtype=None: (a * scale1) @ (b * scale2) + bias,
        # Tensor cores of sm_90 keep about 14 bits of a sum of float8 products.
        lambda a, b, *_, dtype: 128 * _matmul_terms(a, b),
        linear=True,
    ),
    "sdpfa_fwd": LibraryReference(
        _attention, lambda q, k, v, *_, **attributes: max(q.shape[-1], k.shape[-2])
    ),
    "sdpfa_bwd": LibraryReference(
        _attention_gradients,
        lambda _, q, k, v, *__, **attributes: max(v.shape[-1], k.shape[-2], q.shape[-2]),
    ),
    "topk": LibraryReference(
        lambda x, k, dim, largest, sorted: tuple(torch.topk(x, k, dim, bool(largest), bool(sorted)))
    ),
    "sort": LibraryReference(
        lambda x, dim, descending, stable: tuple(
            torch.sort(x, stable=bool(stable), dim=dim, descending=bool(descending))
        )
    ),
    "argsort": LibraryReference(
        lambda x, dim, descending, stable: torch.argsort(
            x, dim=dim, descending=bool(descending), stable=bool(stable)
        )
    ),
    "cumsum": LibraryReference(
        lambda x, dim: torch.cumsum(x, dim, dtype=x.dtype), _length, linear=True
    ),
    "cumprod": LibraryReference(
        lambda x, dim: torch.cumprod(x, dim, dtype=x.dtype), _length, linear=True
    ),
    "cummax": LibraryReference(lambda x, dim: tuple(torch.cummax(x, dim))),
    "cummin": LibraryReference(lambda x, dim: tuple(torch.cummin(x, dim))),
    "scatter": LibraryReference(lambda x, index, src, dim: torch.scatter(x, dim, index, src)),
    "index_put_accumulate": LibraryReference(
        lambda x, index, value: torch.index_put(x, (index,), value, accumulate=True),
        lambda x, index, value: index.numel() + 1,
        linear=True,
    ),
}
