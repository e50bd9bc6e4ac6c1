"""Every reduction x dtype x dims x shape, through the complete compiler on the host executor.

A definition has up to CHUNK reductions over one set of dims, each an output, alternately with and
without keepdim. Wide rows run without the executor's debug mode. All other rows run in debug mode,
which also checks every access.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from fuser import DataType, FusionDefinition, ShapeError, _core, evaluate, testing
from fuser.debug.interpreter import torch_dtype
from fuser.ops import as_dtype
from tests.support.sampling import rotated

CHUNK = 4
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
DTYPES = (
    *(*FLOATS, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
EXACT = ("max", "min", "any", "all", "argmax", "argmin")
STATISTICS = ("mean", "var", "std", "norm", "logsumexp")
DIMS: dict[str, tuple[int, list[int] | None]] = {  # name -> (rank, dims)
    "inner": (2, [1]),
    "outer": (2, [0]),
    "all": (2, None),
    "middle": (3, [1]),
    "both ends": (3, [0, 2]),
}
# Rows x width of the reduced dims; a middle dim has both. 1025 and 1023 are adjacent to a power of
# 2.
SHAPES = ((3, 1), (2, 2), (5, 31), (4, 32), (3, 33), (2, 1000), (2, 1023), (3, 1024), (1, 1025))
FEW = ((3, 1), (5, 33), (2, 1000))
LONG = ((2, 4096), (1, 50257))  # without debug mode, for two dtypes
EMPTY = ((0, 5), (3, 0))


def names_of(dtype: torch.dtype) -> list[str]:
    """The reductions that torch supports for a dtype."""
    if dtype.is_complex:
        return ["sum", "prod", "any", "all", "mean", "var", "norm"]
    if dtype.is_floating_point:
        return ["sum", "prod", *EXACT, *STATISTICS]
    return ["sum", "prod", *EXACT, "xor_sum"]


def apply(ops: Any, name: str, x: Any, dims: list[int] | None, keepdim: bool) -> Any:
    if name in ("argmax", "argmin"):  # over one dim, or over all
        return getattr(ops, name)(x, None if dims is None else dims[0], keepdim)
    if name == "logsumexp":
        return ops.logsumexp(x, range(x.ndim) if dims is None else dims, keepdim)
    return getattr(ops, name)(x, dims=dims, keepdim=keepdim)


@dataclass(frozen=True)
class Family:
    """One definition for tensors of any sizes."""

    dtype: torch.dtype
    where: str
    names: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}-{self.where}-{self.names[0]}"

    def define(self) -> FusionDefinition:
        rank, dims = DIMS[self.where]
        fd = FusionDefinition()
        x = fd.define_tensor([-1] * rank, dtype=as_dtype(self.dtype))
        for place, name in enumerate(self.names):
            fd.add_output(apply(fd.ops, name, x, dims, bool(place % 2)))
        return fd

    def shapes(self) -> list[tuple[int, ...]]:
        """A rotating third of the shapes for the two most used dtypes, so that all shapes occur
        with each dims."""
        chosen: tuple[tuple[int, ...], ...] = FEW
        if self.dtype in FLOATS[:2]:
            place = FAMILIES.index(self)
            chosen = (*rotated(SHAPES, place, 3), *rotated(LONG, place, 1))
        if not set(self.names) & {"max", "min", "argmax", "argmin"}:
            chosen = (*chosen, *EMPTY)
        return [self.arranged(*shape) for shape in chosen]

    def arranged(self, rows: int, width: int) -> tuple[int, ...]:
        """The shape of a tensor with `rows` results of `width` reduced elements each."""
        return {
            "inner": (rows, width),
            "outer": (width, rows),
            "all": (rows, width),
            "middle": (rows, width, 3),
            "both ends": (rows, 3, width),
        }[self.where]


def families() -> list[Family]:
    found = []
    for dtype in DTYPES:
        for where in DIMS:
            names = names_of(dtype)
            if where == "both ends":  # argmax reduces one dim, or all
                names = [n for n in names if n not in ("argmax", "argmin")]
            # Group the reductions that reject empty dims.
            names.sort(key=lambda n: n in ("max", "min", "argmax", "argmin"))
            refusing = [n for n in names if n in ("max", "min", "argmax", "argmin")]
            others = [n for n in names if n not in refusing]
            for group in (others, refusing):
                for start in range(0, len(group), CHUNK):
                    found.append(Family(dtype, where, tuple(group[start : start + CHUNK])))
    return found


FAMILIES = families()


def part_of_families() -> list[Family]:
    """All dims for the two most used dtypes, two for each of the rest."""
    taken = {
        dtype: list(DIMS) if dtype in FLOATS[:2] else rotated(list(DIMS), place, 2)
        for place, dtype in enumerate(DTYPES)
    }
    return [family for family in FAMILIES if family.where in taken[family.dtype]]


HERE = part_of_families()  # families of this file


def data(family: Family, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Normal numbers away from 0, with products in range; sometimes a NaN, an infinity, a tie."""
    dtype = family.dtype
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.9
    if not (dtype.is_floating_point or dtype.is_complex):
        info = torch.iinfo(dtype)
        low, high = max(info.min, -(2**40)), min(info.max, 2**40)
        return torch.randint(low, high, shape, generator=generator).to(dtype)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if "prod" in family.names:
        spread = 3.0 / math.sqrt(max(values.numel(), 1))
        values = values.sign() * torch.exp(spread * values)
    else:
        values = values * 2 + 0.5
    if dtype.is_complex:
        angle = torch.randn(shape, generator=generator, dtype=torch.float64)
        return torch.polar(values.abs(), angle).to(dtype)
    if set(family.names) <= set(EXACT) and values.numel() > 8:
        flat = values.view(-1)
        places = torch.randint(0, len(flat), (3,), generator=generator)
        flat[places] = torch.tensor([math.inf, -math.inf, math.nan]).double()
        flat[: len(flat) // 2].round_()
    return values.float().to(dtype)


@dataclass
class Run:
    family: Family
    fd: FusionDefinition
    x: Tensor

    @property
    def debug(self) -> bool:
        return self.x.numel() < 8192


@cache
def runs(seed: int) -> dict[str, list[Run]]:
    """All runs of the file, compiled."""
    found: dict[str, list[Run]] = {}
    for family in HERE:
        generator = torch.Generator().manual_seed(seed + zlib.crc32(family.key.encode()))
        fd = family.define()
        found[family.key] = [
            Run(family, fd, data(family, shape, generator)) for shape in family.shapes()
        ]
    everything = [run for some in found.values() for run in some]
    for debug in (True, False):
        _core.set_option("FUSER_HOST_DEBUG", "1" if debug else "0")
        testing.compile_batch((run.fd, [run.x]) for run in everything if run.debug == debug)
    return found


@pytest.fixture(autouse=True)
def own_options(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_CACHE", 0)
    set_option("FUSER_HOST_DEBUG", 0)
    set_option("FUSER_HOST_ARCH", 80)


def bound_of(name: str, wide: Tensor, exact: Tensor, dims: list[int], unit: float) -> Tensor:
    """Error bound of a reduction, by the roundings of pairwise sums: log2(n) per term, plus a
    few."""
    length = math.prod(wide.shape[d] for d in dims)
    levels = math.log2(max(length, 1)) + 16.0
    magnitude = wide.abs()
    zero = torch.zeros_like(exact, dtype=torch.float64)

    def total(terms: Tensor) -> Tensor:
        return terms.sum(dims).reshape(exact.shape) if dims else terms

    if name == "sum":
        return unit * levels * total(magnitude)
    if name == "mean":
        return unit * levels * total(magnitude) / max(length, 1)
    if name == "prod":  # one rounding per factor
        return unit * (length + 4.0) * exact.abs()
    if name == "norm":
        return unit * levels * exact.abs()
    if name == "logsumexp":
        return unit * (levels + 16.0 * (1.0 + exact.abs()))
    # Deviations from a rounded mean: the first-order error, and its square.
    mean = wide.mean(dims, keepdim=True)
    deviation = (wide - mean).abs()
    off = unit * levels * magnitude.mean(dims, keepdim=True)
    slack = 2 * unit * levels * deviation**2 + 2 * unit * deviation * (magnitude + mean.abs())
    slack = slack + off**2
    variance = total(slack) / max(length - 1, 1)
    if name == "var":
        return variance
    root = exact.clamp(min=1e-300)
    return torch.minimum(variance / root, variance.sqrt()) + unit * 8 * exact + zero


def check(family: Family, x: Tensor, got: list[Tensor], exact: list[Tensor]) -> None:
    rank, dims = DIMS[family.where]
    over = list(range(rank)) if dims is None else dims
    wide = x.to(torch.complex128) if x.is_complex() else x.double()
    for name, one, value in zip(family.names, got, exact, strict=True):
        where = f"{name} over {over} of {x.dtype} {list(x.shape)}"
        assert one.shape == value.shape, f"{where}: shape {list(one.shape)}"
        if not (one.is_floating_point() or one.is_complex()) or name in EXACT:
            same = (one == value.to(one.dtype)) | (one.isnan() & value.isnan())
            assert same.all(), f"{where}: {one[~same][0].item()!r} for {value[~same][0].item()!r}"
            continue
        real = one.dtype.to_real() if one.is_complex() else one.dtype
        bound = bound_of(name, wide, value, over, torch.finfo(real).eps / 2)
        if one.is_complex():
            bound = 4 * bound  # products of four terms
        bound = bound + 2.0**-148
        number = one.to(value.dtype)
        same = (number == value) | (one.isnan() & value.isnan())
        wrong = ~(same | ((number - value).abs() <= bound))
        assert not wrong.any(), (
            f"{where}: {one[wrong][0].item()!r}, exact {value[wrong][0].item()!r}, "
            f"allowed +-{bound[wrong][0].item():.3g}"
        )


@pytest.mark.parametrize("family", HERE, ids=lambda f: f.key)
def test_reduction(family: Family, request: pytest.FixtureRequest) -> None:
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    for run in runs(seed)[family.key]:
        _core.set_option("FUSER_HOST_DEBUG", "1" if run.debug else "0")
        got = run.fd.execute([run.x])
        records = run.fd.fusion.records()
        kinds = [torch_dtype(records["tensors"][t]["dtype"]) for t, _ in records["outputs"]]
        assert [t.dtype for t in got] == kinds
        check(family, run.x, got, evaluate(run.fd, [run.x]))


# ---- beyond the table: unusual layouts, rejected arguments, prologues


def strange() -> dict[str, Tensor]:
    """Layouts of a [24, 40] tensor."""
    base = torch.randn(24, 40, generator=torch.Generator().manual_seed(3))
    return {
        "transposed": base.t().contiguous().t(),
        "every second": torch.stack([base, base.flip(0)], 2)[:, :, 0],
        "rows padded": torch.cat([base, base[:, :5]], 1)[:, :40],
        "one row for all": base[:1].expand(24, 40),
        "one column for all": base[:, :1].expand(24, 40),
        "off by one element": torch.cat([base.flatten()[:1], base.flatten()])[1:].view(24, 40),
        "half": base.bfloat16(),
    }


@pytest.mark.parametrize("dims", [[0], [1], [0, 1]], ids=str)
def test_layouts(dims: list[int], set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    calls = []
    for x in strange().values():
        fd = FusionDefinition()
        t = fd.define_tensor([-1, -1], dtype=as_dtype(x.dtype))
        fd.add_output(fd.ops.sum(t * 2.0 + 1.0, dims))
        fd.add_output(fd.ops.max(t, dims, keepdim=True))
        calls.append((fd, [x]))
    testing.compile_batch(calls)
    for fd, inputs in calls:
        total, largest = fd.execute(inputs)
        exact = inputs[0].double()
        torch.testing.assert_close(total.double(), (exact * 2 + 1).sum(dims), rtol=1e-5, atol=1e-4)
        assert largest.double().equal(exact.amax(dims, keepdim=True))
        fd.validate(inputs)


def test_sums_are_the_same_bits_every_time(set_option: Callable[[str, object], None]) -> None:
    x = torch.randn(7, 3000, generator=torch.Generator().manual_seed(4))
    fd = FusionDefinition()
    t = fd.define_tensor([-1, -1])
    for dims in ([0], [1], None):
        fd.add_output(fd.ops.sum(t, dims))
    first = fd.execute([x])
    for threads in (1, 2, 3):
        set_option("FUSER_HOST_THREADS", threads)
        for one, other in zip(first, fd.execute([x]), strict=True):
            assert torch.equal(one, other)


def test_types_of_sums(set_option: Callable[[str, object], None]) -> None:
    """dtype= casts the operand first, half types accumulate in float32, integers in int64."""
    ones = torch.ones(3, 3000)
    fd = FusionDefinition()
    half = fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
    byte = fd.define_tensor([-1, -1], dtype=DataType.Byte)
    fd.add_output(fd.ops.sum(half, 1))
    fd.add_output(fd.ops.sum(half, 1, dtype=DataType.BFloat16))
    fd.add_output(fd.ops.sum(byte, 1))
    fd.add_output(fd.ops.sum(byte, 1, dtype=DataType.Byte))
    fd.add_output(fd.ops.sum(half * 1.5, 1, dtype=DataType.Int))
    results = fd.execute([ones.bfloat16(), ones.byte() * 200])
    assert [r.dtype for r in results] == [
        *(torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.int64),
    ]
    assert [r[0].item() for r in results] == [3000.0, 3008.0, 600_000, 600_000 % 256, 3000]


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_reduce_empty_1(name: str) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(getattr(fd.ops, name)(x, 1))
    (nothing,) = fd.execute([torch.ones(0, 3)])
    assert nothing.shape == (0,)
    with pytest.raises(ShapeError) as caught:
        fd.execute([torch.ones(3, 0)])
    assert caught.value.rule == "reduce-empty-1"
    assert f"{name}(t0, dims=[1]): axis 1 has size 0" in str(caught.value)


@pytest.mark.parametrize(
    "sizes", [[0] + [2] * 61, [2] * 30 + [0] + [2] * 32, [3] * 30 + [0, *[3] * 32]]
)
def test_an_empty_axis_beside_more_elements_than_can_be_counted(sizes: list[int]) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * len(sizes))
    fd.add_output(fd.ops.sum(x, list(range(len(sizes)))))
    fd.add_output(fd.ops.prod(x, list(range(1, len(sizes)))))
    data = torch.empty([min(size, 1) for size in sizes]).expand(sizes)
    total, product = fd.execute([data])
    assert total.item() == 0.0
    assert product.equal(torch.ones(sizes[0]))


def test_identities() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    n = fd.define_tensor([-1, -1], dtype=DataType.Char)
    fd.add_output(fd.ops.max(x, 1, identity=True))
    fd.add_output(fd.ops.min(n, 1, identity=True))
    fd.add_output(fd.ops.logsumexp(x, 1))
    largest, least, log = fd.execute([torch.ones(2, 0), torch.ones(2, 0, dtype=torch.int8)])
    assert largest.tolist() == log.tolist() == [-math.inf] * 2
    assert least.tolist() == [127, 127]


def test_indices_and_coordinates(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(6, 9, generator=generator)
    index = torch.randint(-9, 9, (6, 4), generator=generator)
    same = torch.randint(0, 6, (2, 9), generator=generator)
    fd = FusionDefinition()
    t, i, s = (fd.define_tensor([-1, -1], dtype=as_dtype(v.dtype)) for v in (x, index, same))
    fd.add_output(fd.ops.take_along_axis(t * 2.0, i, 1))
    fd.add_output(fd.ops.gather(t, s, 0))
    fd.add_output(fd.ops.iota(t.size(1), 3, 2))
    fd.add_output(fd.ops.iota(5, 0.5, 0.25, DataType.BFloat16))
    fd.add_output(fd.ops.sum(fd.ops.take_along_axis(t, fd.ops.argmax(t, 1, True), 1)))
    fd.validate([x, index, same])
    fd.validate([x[:1], index[:1], same[:0]])


def test_a_dim_as_two(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1, -1])
    groups = fd.ops.split_dim(x, 1, [4, -1])
    centered = groups - fd.ops.mean(groups, [2, 3], keepdim=True)
    fd.add_output(fd.ops.merge_dims(centered, 1, x.size(1)))
    fd.add_output(fd.ops.sum(groups, [0, 3]))
    for shape in ((2, 8, 5), (1, 4, 1), (3, 4, 7), (0, 8, 2)):
        fd.validate([torch.randn(shape, generator=torch.Generator().manual_seed(6))])
    with pytest.raises(ShapeError):
        fd.execute([torch.randn(2, 6, 5)])
