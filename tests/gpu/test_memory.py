"""Layouts of memory: any alignment, stride and size, in place, tensors beyond 32-bit indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fuser import DataType, FusionDefinition

pytestmark = pytest.mark.gpu


def double_of(x: Tensor) -> FusionDefinition:
    """x + x in the dtype of x."""
    fd = FusionDefinition()
    t = fd.from_pytorch(x)
    fd.add_output(fd.ops.cast(t + t, x.dtype))
    return fd


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64], ids=str
)
def test_every_alignment(dtype: torch.dtype, device: torch.device) -> None:
    """All offsets below 16 bytes, and lengths near complete vectors; adjacent elements are
    unchanged."""
    fd = None
    for offset in range(16 // dtype.itemsize):
        for length in (1, 15, 16, 17, 1000, 4096):
            base = torch.randint(0, 100, (length + 40,), device=device).to(dtype)
            x = base[offset : offset + length]
            fd = fd or double_of(base)
            (y,) = fd.execute([x])
            assert torch.equal(y, x + x), f"offset {offset}, length {length}"


@pytest.mark.parametrize("offset", range(9))
def test_in_place(offset: int, device: torch.device) -> None:
    base = torch.arange(5000, device=device, dtype=torch.float32)
    before, x = base.clone(), base[offset : offset + 4001]
    version = x._version
    fd = FusionDefinition()
    t = fd.define_tensor([-1], True, DataType.Float)
    fd.add_output(t * 3.0, t)
    assert fd.execute([x]) == []
    before[offset : offset + 4001] *= 3
    assert torch.equal(base, before)
    assert x._version > version, "autograd must see the change"


def test_in_place_of_a_transposed_read(device: torch.device) -> None:
    """x <- x + x.T reads elements that other threads write, so it uses a temporary."""
    x = torch.randn(257, 257, device=device)
    expected = x + x.T
    fd = FusionDefinition()
    t = fd.from_pytorch(x)
    fd.add_output(t + fd.ops.permute(t, [1, 0]), t)
    fd.execute([x])
    assert torch.equal(x, expected)


def strided_inputs(device: torch.device) -> list[Tensor]:
    base = torch.randn(40, 64, 36, device=device)
    return [
        base,
        base.permute(2, 0, 1),
        base.transpose(0, 1),
        base[::2, :, 3:],
        base[:, 1::3, ::2],
        base[:1].expand(40, 64, 36),
        base[:, :, :1].expand(40, 64, 36),
        base.as_strided((30, 20, 36), (64, 36, 1)),  # rows overlap
        base.as_strided((1000,), (1,), 7),
    ]


def test_strides(device: torch.device) -> None:
    for x in strided_inputs(device):
        (y,) = double_of(x).execute([x])
        assert torch.equal(y, x + x), f"{list(x.shape)} strides {x.stride()}"


def test_transposes(device: torch.device) -> None:
    for shape in ((64, 64), (33, 33)):
        x = torch.randn(shape, device=device)
        fd = FusionDefinition()
        t = fd.from_pytorch(x)
        fd.add_output(t - fd.ops.permute(t, [1, 0]))
        (y,) = fd.execute([x])
        assert torch.equal(y, x - x.T)


def test_outer_difference(device: torch.device) -> None:
    x = torch.randn(1001, device=device)
    fd = FusionDefinition()
    t = fd.define_tensor([-1], True, DataType.Float)
    rows, columns = fd.ops.broadcast(t, [False, True]), fd.ops.broadcast(t, [True, False])
    fd.add_output(rows - columns)
    (y,) = fd.execute([x])
    assert torch.equal(y, x[:, None] - x[None, :])


def test_empty(device: torch.device) -> None:
    for shape in ((0,), (0, 5), (5, 0), (3, 0, 4)):
        x = torch.empty(shape, device=device)
        (y,) = double_of(x).execute([x])
        assert y.shape == x.shape
        assert y.device.type == device.type


def test_a_number_from_the_cpu(device: torch.device) -> None:
    x, factor = torch.randn(1000, device=device), torch.tensor(2.5)
    fd = FusionDefinition()
    fd.add_output(fd.from_pytorch(x) * fd.from_pytorch(factor))
    for value in (2.5, -7.0):  # the value is not part of any key
        (y,) = fd.execute([x, factor.fill_(value)])
        assert torch.equal(y, x * value)


def test_scalars(device: torch.device) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1], True, DataType.Float)
    s = fd.define_scalar(DataType.Double)
    fd.add_output(x + s)
    data = torch.randn(100, device=device)
    for value in (0.5, 3, -1e10):
        (y,) = fd.execute([data, value])
        assert torch.equal(y, data + value)


def need(device: torch.device, gigabytes: int) -> None:
    if torch.cuda.mem_get_info(device)[0] < gigabytes << 30:
        pytest.skip(f"needs {gigabytes} GB of free GPU memory")


def test_more_than_2_to_the_31_elements(device: torch.device) -> None:
    need(device, 12)
    for count in ((1 << 31) + 4099, (1 << 31) - 3, (1 << 32) + 16):
        x = torch.randint(0, 128, (count,), dtype=torch.uint8, device=device)
        (y,) = double_of(x).execute([x])
        assert torch.equal(y, x.add_(x)), f"{count} elements"
        del x, y


def test_a_span_of_more_than_2_to_the_31(device: torch.device) -> None:
    """Few elements over a span of more than 2^31 bytes."""
    need(device, 6)
    base = torch.randint(0, 100, ((1 << 31) + 5000,), dtype=torch.uint8, device=device)
    x = base.as_strided((3, 1000), (1 << 30, 1), 17)
    (y,) = double_of(x).execute([x])
    assert torch.equal(y, x + x)


def test_2d_beyond_32_bits(device: torch.device) -> None:
    need(device, 12)
    rows, columns = 70_001, 32_769
    x = torch.randint(0, 60, (rows, columns), dtype=torch.uint8, device=device)
    bias = torch.randint(0, 60, (columns,), dtype=torch.uint8, device=device)
    fd = FusionDefinition()
    fd.add_output(fd.from_pytorch(x) + fd.from_pytorch(bias))
    (y,) = fd.execute([x, bias])
    assert torch.equal(y, x.add_(bias))


def test_temporaries_are_given_back(device: torch.device) -> None:
    """Sixteen temporaries, of which at most three are live at a time."""
    x = torch.rand(1024, 4096, device=device)
    fd = FusionDefinition()
    y = fd.from_pytorch(x)
    for _ in range(8):
        y = fd.ops.cumsum(fd.ops.relu(y) * 0.001, 1)
    fd.add_output(y)
    fd.execute([x])
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    fd.execute([x])
    size = x.numel() * x.itemsize
    assert torch.cuda.max_memory_allocated(device) - before <= 4 * size


COUNT = (1 << 31) + 40_000
# Functions of x, int8[COUNT], and of m, an int8[65537, 32768] view of it.
WIDE: dict[str, tuple[Callable[[Any, Any, Any], Any], Callable[[Tensor, Tensor], Tensor]]] = {
    "sum": (lambda o, x, m: o.sum(x), lambda x, m: x.sum(dtype=torch.int64)),
    "maximum": (lambda o, x, m: o.max(x), lambda x, m: x.amax()),
    "place": (lambda o, x, m: o.argmax(x), lambda x, m: torch.tensor(COUNT - 3)),
    "columns": (lambda o, x, m: o.sum(m, [0]), lambda x, m: m.sum(0)),
    "rows": (lambda o, x, m: o.sum(m, [1]), lambda x, m: m.sum(1)),
    "transpose": (
        lambda o, x, m: o.stride_order(o.permute(m, [1, 0]), [1, 0]),
        lambda x, m: m.T.contiguous(),
    ),
    "slice": (
        lambda o, x, m: o.slice(x, [(1 << 31) - 5], [None]) + 1,
        lambda x, m: x[(1 << 31) - 5 :] + 1,
    ),
    "steps": (
        lambda o, x, m: o.slice(x, [1], [None], [1 << 20]) + 1,
        lambda x, m: x[1 :: 1 << 20] + 1,
    ),
    "flip": (lambda o, x, m: o.flip(x, [0]), lambda x, m: x.flip(0)),
    "pad": (
        lambda o, x, m: o.pad(x, [3, 5], 7),
        lambda x, m: torch.nn.functional.pad(x, (3, 5), value=7),
    ),
    "regroup": (lambda o, x, m: o.reshape(x, [8, -1]) + 1, lambda x, m: x.reshape(8, -1) + 1),
    "index": (
        lambda o, x, m: o.index_select(x, o.iota(4, COUNT - 1, -(1 << 29)), 0),
        lambda x, m: x[torch.arange(4, device=x.device) * -(1 << 29) + COUNT - 1],
    ),
}


@pytest.fixture(scope="module")
def wide(device: torch.device) -> Tensor:
    need(device, 16)
    x = torch.randint(-50, 50, (COUNT,), dtype=torch.int8, device=device)
    x[-3] = 100
    return x


@pytest.mark.parametrize("name", WIDE)
def test_beyond_32_bits(name: str, wide: Tensor) -> None:
    define, torch_form = WIDE[name]
    rows = wide[: 65537 * 32768].view(65537, 32768)
    fd = FusionDefinition()
    fd.add_output(define(fd.ops, fd.from_pytorch(wide), fd.from_pytorch(rows)))
    (got,) = fd.execute([wide, rows])
    assert torch.equal(got, torch_form(wide, rows).to(got.device))


def test_softmax_beyond_32_bits(device: torch.device) -> None:
    need(device, 24)
    x = torch.randn(32_808, 65_600, dtype=torch.bfloat16, device=device)
    fd = FusionDefinition()
    t = fd.from_pytorch(x)
    for dim in (1, 0):
        fd.add_output(fd.ops.cast(fd.ops.softmax(t, dim), DataType.BFloat16))
    for got, dim in zip(fd.execute([x]), (1, 0), strict=True):
        want = torch.softmax(x, dim)
        torch.testing.assert_close(got[-100:], want[-100:], rtol=2**-7, atol=1e-7)
        torch.testing.assert_close(got[:, -100:], want[:, -100:], rtol=2**-7, atol=1e-7)


def test_counters_are_in_no_pool(device: torch.device) -> None:
    """Four rows are split over the grid. The grid's counters persist per stream, so they must not
    be in memory that may be freed, e.g. a user's pool or the pool of CUDA graphs."""
    x = torch.randn(4, 1 << 20, device=device)
    fd = FusionDefinition()
    fd.add_output(fd.ops.sum(fd.from_pytorch(x), [1]))
    fd.execute([x])
    assert "counter" in fd.last_cuda_code()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool), torch.cuda.stream(torch.cuda.Stream(device)):
        (y,) = fd.execute([x])
    torch.cuda.synchronize(device)
    torch.testing.assert_close(y.double(), x.double().sum(1), rtol=1e-5, atol=1e-2)
    del y
    blocks = [block for segment in pool.snapshot() for block in segment["blocks"]]
    assert not [block for block in blocks if block["state"] == "active_allocated"]
