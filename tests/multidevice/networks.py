"""Definitions of networks, forward and backward, as users of sharded definitions write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from tests.multidevice.compared import R, S

BATCH, TOKENS, WIDTH, HEADS, HIDDEN = 4, 6, 16, 4, 24


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers near 1 in float64."""
    generator = torch.Generator().manual_seed(sum(shape) + seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator) / math.sqrt(shape[-1])


def transposed(fd: Any, x: Any) -> Any:
    return fd.ops.permute(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def normalized(fd: Any, x: Any) -> tuple[Any, Any]:
    """Rows with mean 0 and variance 1, and the reciprocal of their deviation."""
    spread, mean = fd.ops.var_mean(x, [x.ndim - 1], correction=0, keepdim=True)
    scale = fd.ops.rsqrt(spread + 1e-5)
    return (x - mean) * scale, scale


def norm_backward(fd: Any, grad: Any, weight: Any, hat: Any, scale: Any) -> tuple[Any, Any, Any]:
    """Gradients of the rows, of the weight and of the bias of a layer norm."""
    last, rest = [hat.ndim - 1], [*range(hat.ndim - 1)]
    inner = grad * weight
    a = fd.ops.mean(inner, last, keepdim=True)
    b = fd.ops.mean(inner * hat, last, keepdim=True)
    return (
        scale * (inner - a - hat * b),
        fd.ops.sum(grad * hat, rest),
        fd.ops.sum(grad, rest),
    )


def weight_grad(fd: Any, grad: Any, x: Any) -> Any:
    """Gradient of the weight of a linear layer on [batch, tokens, width]."""
    flat = [fd.ops.reshape(t, [BATCH * TOKENS, n]) for t, n in ((grad[0], grad[1]), (x[0], x[1]))]
    return fd.ops.matmul(transposed(fd, flat[0]), flat[1])


def mlp(fd: Any, x: Any, w: Any, b: Any, v: Any, c: Any, grad: Any) -> Sequence[Any]:
    """Two linear layers around gelu, and all gradients."""
    h = fd.ops.linear(x, w, b)
    a = fd.ops.gelu(h)
    y = fd.ops.linear(a, v, c)
    below = fd.ops.matmul(grad, v)
    density = fd.ops.exp(h * h * -0.5) * (1 / math.sqrt(2 * math.pi))
    slope = (fd.ops.erf(h * math.sqrt(0.5)) + 1.0) * 0.5 + h * density
    inner = below * slope
    return [
        y,
        fd.ops.matmul(inner, w),
        weight_grad(fd, (inner, HIDDEN), (x, WIDTH)),
        fd.ops.sum(inner, [0, 1]),
        weight_grad(fd, (grad, WIDTH), (a, HIDDEN)),
        fd.ops.sum(grad, [0, 1]),
    ]


def heads_of(fd: Any, x: Any) -> Any:
    split = fd.ops.reshape(x, [BATCH, TOKENS, HEADS, WIDTH // HEADS])
    return fd.ops.permute(split, [0, 2, 1, 3])


def merged(fd: Any, x: Any) -> Any:
    return fd.ops.reshape(fd.ops.permute(x, [0, 2, 1, 3]), [BATCH, TOKENS, WIDTH])


def block(fd: Any, x: Any, n: Any, q: Any, k: Any, v: Any, o: Any, *rest: Any) -> Sequence[Any]:
    """A transformer block before its MLP's norm, the MLP, and all gradients."""
    m, w, b, u, c, grad = rest
    hat, scale = normalized(fd, x)
    inner = hat * n
    heads = [heads_of(fd, fd.ops.linear(inner, t)) for t in (q, k, v)]
    found, lse, seed, offset = fd.ops.sdpfa_fwd(*heads)
    joined = merged(fd, found)
    middle = x + fd.ops.linear(joined, o)
    hat2, scale2 = normalized(fd, middle)
    y, below, *of_mlp = mlp(fd, hat2 * m, w, b, u, c, grad)

    to_middle, grad_m, _ = norm_backward(fd, below, m, hat2, scale2)
    to_middle = to_middle + grad
    to_joined = heads_of(fd, fd.ops.matmul(to_middle, o))
    to_heads = fd.ops.sdpfa_bwd(*(to_joined, *heads, found, lse, 0.0, False, seed, offset, None))
    flat = [merged(fd, t) for t in to_heads]
    to_inner = [fd.ops.matmul(g, t) for g, t in zip(flat, (q, k, v), strict=True)]
    to_x, grad_n, _ = norm_backward(fd, to_inner[0] + to_inner[1] + to_inner[2], n, hat, scale)
    return [
        *(middle + y, to_x + to_middle, grad_n),
        *(weight_grad(fd, (g, WIDTH), (inner, WIDTH)) for g in flat),
        *(weight_grad(fd, (to_middle, WIDTH), (joined, WIDTH)), grad_m, *of_mlp),
    ]


def mlp_inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    shapes = [(HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN), (WIDTH,)]
    rows = (BATCH, TOKENS, WIDTH)
    return [
        t.to(dtype) for t in (values(*rows), *(values(*s) for s in shapes), values(*rows, seed=1))
    ]


def block_inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    x, *layers, grad = mlp_inputs(torch.float64)
    square = [values(WIDTH, WIDTH, seed=i) for i in range(4)]
    norms = [values(WIDTH, seed=7) + 1, values(WIDTH, seed=8) + 1]
    return [t.to(dtype) for t in (x, norms[0], *square, norms[1], *layers, grad)]


# Placements by tensor parallelism on the last dim of the mesh: weights of the first layer by
# rows, of the second by columns.
_MLP: list[Any] = [S(0), S(0), S(1), R]
_BLOCK: list[Any] = [R, S(0), S(0), S(0), S(1), R, *_MLP]


def placements(name: str, data: Sequence[Any]) -> list[list[Any]]:
    """Placements of the inputs; `data` are those of activations on the other dims of the mesh."""
    weights = _MLP if name == "mlp" else _BLOCK
    rows = [*data, R]
    return [rows, *([*[R] * len(data), p] for p in weights), rows]


NETWORKS = {"mlp": (mlp, mlp_inputs), "block": (block, block_inputs)}
