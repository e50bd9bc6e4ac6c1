"""csrc/driver/launch: arguments as the kernel receives them, sizes that launch nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import fuser
from fuser import DataType, FusionDefinition
from fuser.ops import as_dtype
from tests.definitions import gained, scaled, sum_of_two


def value_of(given: DataType, wanted: torch.dtype) -> FusionDefinition:
    """The scalar input, cast, as a tensor of 3 elements."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([3], fd.define_scalar(given), as_dtype(wanted)))
    return fd


INT = [0, -1, 2**31, 2**53 + 1, -(2**63), 2**63 - 1]
PYTHON_TYPE = {float: torch.float64, complex: torch.complex128}
FLOAT = [0.1, -0.0, 1e-310, 1e300, math.inf, math.nan, 16777217.0]


@pytest.mark.parametrize(
    ("given", "wanted", "values"),
    [
        (DataType.Int, torch.int64, INT),
        (DataType.Int, torch.float64, INT),
        (DataType.Int, torch.float32, [*INT, 16777217, 2**24 + 3, (1 << 54) + (1 << 30) + 1]),
        (DataType.Int, torch.bool, [0, 1, 256, 2**40]),
        (DataType.Int32, torch.int32, [0, -1, 2**31 - 1, -(2**31)]),
        (DataType.Double, torch.float64, FLOAT),
        (DataType.Double, torch.float32, FLOAT),
        (DataType.Double, torch.bfloat16, [0.1, -0.0, 1e39, math.nan]),
        (DataType.Float, torch.float32, [0.1, 1e39, -math.inf]),
        (DataType.Float, torch.float64, [0.1]),
        (DataType.Bool, torch.bool, [False, True]),
        (DataType.Bool, torch.float32, [False, True]),
        (DataType.ComplexDouble, torch.complex128, [0.1 - 1e300j, complex(-0.0, math.inf)]),
        (DataType.ComplexDouble, torch.complex64, [0.1 - 0.3j, complex(-0.0, 1e39)]),
        (DataType.ComplexFloat, torch.complex64, [0.1 + 0.7j]),
    ],
    ids=lambda v: v.torch_name if isinstance(v, DataType) else str(v).removeprefix("torch.")[:10],
)
def test_scalars(given: DataType, wanted: torch.dtype, values: list[complex]) -> None:
    fd = value_of(given, wanted)
    own = getattr(torch, given.torch_name)
    before = fuser.cache_info()
    for value in values:
        (result,) = fd.execute([value], device="cpu")
        exact = torch.tensor(value, dtype=PYTHON_TYPE.get(type(value)))
        expected = exact.to(own).to(wanted)
        assert bits(result).equal(bits(expected.expand(3).contiguous())), (value, result, expected)
    assert gained(before).plans == 1, "no value is compiled into a kernel"


def bits(x: torch.Tensor) -> torch.Tensor:
    if x.is_complex():
        return bits(torch.view_as_real(x))
    if x.is_floating_point():
        x = torch.where(x.isnan(), torch.full_like(x, math.nan), x)  # any NaN is NaN
    return x.contiguous().view(-1).view(torch.uint8)


def test_an_int64_is_rounded_once() -> None:
    """2^54 + 2^30 + 1 lies above the middle of two floats; as a double it is the middle itself."""
    value = (1 << 54) + (1 << 30) + 1
    (result,) = value_of(DataType.Int, torch.float32).execute([value], device="cpu")
    assert int(result[0].item()) == (1 << 54) + (1 << 31)


def test_scalars_beside_tensors() -> None:
    """Arguments of every size, in an order that needs padding."""
    with FusionDefinition() as fd:
        flag = fd.define_scalar(DataType.Bool)
        x = fd.define_tensor([-1], dtype=DataType.Double)
        z = fd.define_scalar(DataType.ComplexDouble)
        n = fd.define_scalar(DataType.Int)
        y = fd.define_tensor([-1], dtype=DataType.Int)
        f = fd.define_scalar(DataType.Double)
        fd.add_output(fd.ops.where(flag, x * f, x))
        fd.add_output(fd.ops.add(x, z))
        fd.add_output(y + n)
    x, y = torch.arange(7.0).double(), torch.arange(7)
    for flag, z, n, f in [(True, 1 - 2j, 2**60, 0.1), (False, 3j, -1, 7.0)]:
        a, b, c = fd.execute([flag, x, z, n, y, f])
        assert a.equal(x * f if flag else x)
        assert b.equal(x + z)
        assert c.equal(y + n)


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    ],
    ids=lambda d: str(d).removeprefix("torch."),
)
def test_0_dim_tensors(dtype: torch.dtype) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([], dtype=as_dtype(dtype))
        for result in (x, fd.ops.broadcast_in_dim(x, [2, 3], [])):
            fd.add_output(fd.ops.cast(result, as_dtype(dtype)))
    x = torch.tensor(1.0).to(dtype)
    same, spread = fd.execute([x])
    assert same.shape == ()
    assert same.dtype == dtype
    assert bits(same).equal(bits(x))
    assert bits(spread).equal(bits(x.expand(2, 3).contiguous()))


def test_a_0_dim_tensor_of_a_slice() -> None:
    base = torch.arange(10.0)
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) + fd.define_tensor([]))
    (result,) = fd.execute([base, base[7]])
    assert result.equal(base + 7)


def test_promotion_of_0_dim_tensors_is_torch_s() -> None:
    x, y = torch.ones(3, dtype=torch.float16), torch.tensor(2.0, dtype=torch.float64)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.cast(fd.from_pytorch(x) * fd.from_pytorch(y), DataType.Half))
    assert fd.execute([x, y])[0].equal(x * y)


@pytest.mark.parametrize("sizes", [(0,), (0, 5), (5, 0), (3, 0, 4), (0, 0)], ids=str)
def test_empty_compiles_and_launches_nothing(sizes: tuple[int, ...]) -> None:
    fd = scaled(11.5, rank=len(sizes))
    x = torch.empty(sizes)
    before = fuser.cache_info()
    for _ in range(2):
        (result,) = fd.execute([x])
        assert result.shape == x.shape
        assert result.stride() == (x * 2).stride()
    assert fd.fec.executor.kernels() == []
    gain = gained(before)
    assert (gain.kernels_compiled, gain.kernels_from_disk, gain.plans) == (0, 0, 0)
    assert (gain.hits, gain.misses) == (1, 1)


def test_empty_by_broadcast() -> None:
    (result,) = sum_of_two().execute([torch.ones(1, 5), torch.empty(0, 5)])
    assert result.shape == (0, 5)


CHANNELS_LAST = torch.arange(2.0 * 3 * 4 * 5).view(2, 3, 4, 5)
LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: CHANNELS_LAST,
    "channels last": lambda: CHANNELS_LAST.to(memory_format=torch.channels_last),
    "permuted": lambda: CHANNELS_LAST.permute(3, 1, 0, 2),
    "one channel, last": lambda: CHANNELS_LAST[:, :1].to(memory_format=torch.channels_last),
    "size 1 inside": lambda: CHANNELS_LAST[:, :, :1],
    "size 1 outside": lambda: CHANNELS_LAST[:1],
    "all of size 1": lambda: CHANNELS_LAST[:1, :1, :1, :1],
    "a slice": lambda: CHANNELS_LAST[:, 1:, :, 1:4],
    "every other": lambda: CHANNELS_LAST[..., ::2],
    "a permuted slice": lambda: CHANNELS_LAST.permute(2, 3, 0, 1)[1:, :, :, ::2],
    "expanded": lambda: CHANNELS_LAST[:, :, :1].expand(2, 3, 4, 5),
    "expanded outside": lambda: CHANNELS_LAST[:1].expand(2, 3, 4, 5),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_strides_of_outputs_are_torch_s(name: str) -> None:
    x = LAYOUTS[name]()
    (result,) = scaled(2.0, rank=4).execute([x])
    expected = x * 2.0
    assert result.equal(expected)
    # Of sizes of 1 torch itself has two minds.
    assert result.stride() in (expected.stride(), (x + x).stride())
    assert result.is_contiguous() == expected.is_contiguous()
    channels_last = torch.channels_last
    assert result.is_contiguous(memory_format=channels_last) == expected.is_contiguous(
        memory_format=channels_last
    )


@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", ["contiguous", "channels last", "permuted"])
def test_strides_of_two_inputs(first: str, second: str) -> None:
    a, b = LAYOUTS[first](), LAYOUTS[second]()
    try:
        expected = a + b
    except RuntimeError:
        return
    (result,) = sum_of_two(rank=4).execute([a, b])
    assert result.equal(expected)
    assert result.stride() == expected.stride()


def test_debug_mode_checks_the_ranges(set_option: Callable[[str, object], None]) -> None:
    """Strided, in place and 0-dim arguments all lie in the ranges that a launch announces."""
    set_option("FUSER_HOST_DEBUG", 1)
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1]), fd.define_tensor([])
        fd.add_output(x * y, x)
        fd.add_output(fd.ops.permute(x, [1, 0]) + y)
    base = torch.arange(200.0).view(10, 20)
    expected = base.clone()
    expected[1:9:2, 3:17].mul_(3)
    (result,) = fd.execute([base[1:9:2, 3:17], torch.tensor(3.0)])
    assert base.equal(expected)
    assert result.equal(torch.arange(200.0).view(10, 20)[1:9:2, 3:17].T + 3)
