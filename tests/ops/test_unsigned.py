"""uint16, uint32 and uint64: supported ops as in torch, and rejected ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import fuser
from fuser import DataType, DTypeError, FusionDefinition
from fuser.ops import as_dtype

TYPES = [torch.uint16, torch.uint32, torch.uint64]


@pytest.fixture(autouse=True)
def checked(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)


def drawn(dtype: torch.dtype, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random bits; the second tensor equals the first in some elements."""
    x, y = rng.integers(0, 256, (2, 3, 40, dtype.itemsize), np.uint8)
    y = np.where(rng.random((3, 40, 1)) < 0.5, x, y)
    first, second = (torch.from_numpy(t).view(dtype).view(3, 40) for t in (x, y))
    return first, second


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_ops_of_torch(dtype: torch.dtype, rng: np.random.Generator) -> None:
    with FusionDefinition() as fd:
        o = fd.ops
        x, y = (fd.define_tensor([-1, -1], dtype=as_dtype(dtype)) for _ in range(2))
        index = fd.define_tensor([-1], dtype=DataType.Int)
        equal = o.eq(x, y)
        for result in (
            *(o.mul(x, y), o.mul(x, 3), o.bitwise_and(x, y), o.bitwise_or(x, y)),
            *(o.bitwise_xor(x, y), equal, o.ne(x, y), o.where(equal, x, 7), o.set(x)),
            *(o.sum(x, [1]), o.prod(x, [0]), o.sum(x), o.truediv(x, y), o.sqrt(x)),
            *(o.cat([x, y], 1), o.permute(o.mul(x, y), [1, 0]), o.flip(x, [0])),
            *(o.index_select(x, index, 1), o.full([2], 9, as_dtype(dtype))),
            o.slice(x, [0, 3], [2, 30]),
        ):
            fd.add_output(result)
    x, y = drawn(dtype, rng)
    index = torch.tensor([3, 0, 39, 3])
    expected = [
        *(x * y, x * 3, x & y, x | y, x ^ y, x == y, x != y, torch.where(x == y, x, 7), x),
        *(x.sum(1), x.prod(0), x.sum(), x / y, x.sqrt(), torch.cat([x, y], 1), (x * y).t()),
        *(x[[2, 1, 0]], x[:, index], torch.full((2,), 9, dtype=dtype), x[:2, 3:30]),
    ]
    for got, wanted in zip(fd.execute([x, y, index]), expected, strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True)
    for got, wanted in zip(fuser.evaluate(fd, [x, y, index]), expected, strict=True):
        torch.testing.assert_close(got.to(wanted.dtype), wanted, equal_nan=True)
    fd.validate([x, y, index])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_casts(dtype: torch.dtype, rng: np.random.Generator) -> None:
    x, _ = drawn(dtype, rng)
    others = [
        torch.int8,
        torch.int32,
        torch.int64,
        torch.bool,
        torch.float32,
        torch.float64,
        *TYPES,
    ]
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], dtype=as_dtype(dtype))
        for other in others:
            fd.add_output(fd.ops.cast(t, other))
    for got, other in zip(fd.execute([x]), others, strict=True):
        assert got.dtype == other
        assert got.equal(x.to(other)), other
    limits = torch.iinfo(dtype)
    edges = [-1e30, -1.0, -0.5, 0.9, 1.0, limits.max / 2 + 1, float(limits.max), 1e30, torch.nan]
    whole = [0, 0, 0, 0, 1, limits.max // 2 + 1, limits.max, limits.max, 0]
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1], dtype=DataType.Double)
        i = fd.define_tensor([-1], dtype=DataType.Int)
        fd.add_output(fd.ops.cast(t, dtype))
        fd.add_output(fd.ops.cast(i, dtype))
    negative = torch.tensor([-1, 5, 2**40 + 3])
    floats, wrapped = fd.execute([torch.tensor(edges, dtype=torch.float64), negative])
    assert floats.tolist() == whole
    assert wrapped.equal(negative.to(dtype))
    fd.validate([torch.tensor(edges, dtype=torch.float64), negative])


def test_what_torch_lacks_is_refused() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1], dtype=DataType.UInt32)
    i = fd.define_tensor([-1], dtype=DataType.Int32)
    for call, rule in [
        (lambda: x + x, "op-dtype-1"),
        (lambda: fd.ops.maximum(x, x), "op-dtype-1"),
        (lambda: fd.ops.max(x, [0]), "reduce-dtype-1"),
        (lambda: fd.ops.cumsum(x, 0), "library-dtype-1"),
        (lambda: x * i, "promote-1"),
        (lambda: fd.ops.cat([i, x]), "promote-1"),
    ]:
        with pytest.raises(DTypeError, match="hint: cast") as caught:
            call()
        assert caught.value.rule == rule


def test_the_state_of_attention_as_torch_has_it() -> None:
    """sdpfa_bwd() accepts torch's uint64 state and sdpfa_fwd()'s int64 state."""
    torch.manual_seed(0)
    q, grad = torch.randn(1, 2, 8, 8), torch.randn(1, 2, 8, 8)
    out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)
    got = []
    for dtype in (torch.uint64, torch.int64):
        state = [torch.zeros(2, dtype=dtype), torch.zeros([], dtype=dtype)]
        with FusionDefinition() as fd:
            g, x, y, t, *state_of = map(fd.from_pytorch, [grad, q, out, total, *state])
            for result in fd.ops.sdpfa_bwd(g, x, x, x, y, t, 0.0, False, *state_of, None):
                fd.add_output(result)
        got.append(fd.execute([grad, q, out, total, *state]))
    for a, b in zip(*got, strict=True):
        assert a.equal(b)
