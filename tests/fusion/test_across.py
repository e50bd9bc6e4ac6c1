"""Tensors that lie across the rows of a reduction: copied along them where that is worth it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuser import FusionDefinition, explain, testing
from fuser.ops import as_dtype
from tests.reducing import kernels_for

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
Build = Callable[..., list[Any]]

LARGE, SMALL = (64, 196, 768), (4, 196, 768)


def turned(fd: FusionDefinition, t: Any) -> Any:
    return fd.ops.permute(t, [0, 2, 1])


def rows(fd: FusionDefinition, t: Any, dtype: torch.dtype) -> Any:
    return fd.ops.stride_order(fd.ops.cast(t, as_dtype(dtype)), [2, 1, 0])


def normal(fd: FusionDefinition, x: Any) -> Any:
    centred = x - fd.ops.mean(x, [2], keepdim=True)
    return centred * fd.ops.rsqrt(fd.ops.mean(centred * centred, [2], keepdim=True) + 1e-5)


def reads(fd: FusionDefinition, dtype: torch.dtype, x: Any, y: Any) -> list[Any]:
    total = x + turned(fd, y)
    return [rows(fd, total, dtype), rows(fd, normal(fd, total), dtype)]


def reads_exact(x: Tensor, y: Tensor) -> list[Tensor]:
    total = x + y.transpose(1, 2)
    return [total, normal_exact(total)]


def normal_exact(x: Tensor) -> Tensor:
    centred = x - x.mean(2, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(2, keepdim=True) + 1e-5)


def stores(fd: FusionDefinition, dtype: torch.dtype, x: Any, y: Any) -> list[Any]:
    return [rows(fd, turned(fd, normal(fd, x + y)), dtype)]


def stores_both(fd: FusionDefinition, dtype: torch.dtype, x: Any, y: Any) -> list[Any]:
    y = normal(fd, x + y)
    return [rows(fd, y, dtype), rows(fd, turned(fd, y), dtype)]


def columns(fd: FusionDefinition, dtype: torch.dtype, x: Any, y: Any) -> list[Any]:
    """A gradient: rows with a tensor across them, and sums over the columns."""
    y = turned(fd, y)
    slope = fd.ops.mean(x * y, [2], keepdim=True)
    return [rows(fd, x - y * slope, dtype), fd.ops.sum(x * y, [0, 1])]


def columns_exact(x: Tensor, y: Tensor) -> list[Tensor]:
    y = y.transpose(1, 2)
    return [x - y * (x * y).mean(2, keepdim=True), (x * y).sum((0, 1))]


CASES: dict[str, tuple[Build, bool, Callable[..., list[Tensor]], list[str]]] = {
    # How it is built, does its second operand lie across, in float64, kernels where it is large.
    "reads": (reads, True, reads_exact, ["transpose", "inner"]),
    "stores": (
        stores,
        False,
        lambda x, y: [normal_exact(x + y).transpose(1, 2)],
        ["inner", "transpose"],
    ),
    "stores both": (
        stores_both,
        False,
        lambda x, y: [normal_exact(x + y), normal_exact(x + y).transpose(1, 2)],
        ["inner", "transpose"],
    ),
    "columns": (columns, True, columns_exact, ["transpose", "inner_outer"]),
}


def define(name: str, dtype: torch.dtype) -> FusionDefinition:
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1] * 3, dtype=as_dtype(dtype)) for _ in range(2))
    for result in CASES[name][0](fd, dtype, x, y):
        fd.add_output(result)
    return fd


def shapes(name: str, shape: tuple[int, int, int]) -> list[tuple[int, ...]]:
    b, t, c = shape
    return [shape, (b, c, t) if CASES[name][1] else shape]


def kernels(name: str, shape: tuple[int, int, int], arch: int = 90) -> list[dict[str, Any]]:
    return kernels_for(define(name, BF16), shapes(name, shape), arch, text=True)


@pytest.mark.parametrize("arch", [70, 80, 90])
@pytest.mark.parametrize("name", CASES)
def test_large_ones_are_copied(name: str, arch: int) -> None:
    found = [k["plan"]["scheduler"] for k in kernels(name, LARGE, arch)]
    if arch >= 80 or name != "columns":
        assert found == CASES[name][3]


@pytest.mark.parametrize("name", CASES)
def test_rows_are_moved_by_vectors_then(name: str) -> None:
    """All but what has one element a row."""
    for kernel in kernels(name, LARGE):
        plan = kernel["plan"]
        if plan["scheduler"] == "transpose":
            assert (plan["vector_x"] * plan["vector_y"], plan["wide"]) == (32, 3)
        else:
            assert plan["vector"] == 8
            assert "load1(" not in kernel["cuda"].text.partition("KERNEL")[2]


@pytest.mark.parametrize("name", CASES)
def test_small_ones_are_one_kernel(name: str) -> None:
    shape = SMALL if CASES[name][1] else (1, 196, 768)
    assert len(kernels(name, shape)) == 1


def test_neighbours_in_a_sector_are_read_together() -> None:
    """Of four rows side by side in memory, transactions of single elements serve all."""
    assert len(kernels("reads", (64 * 49, 4, 768))) == 1


def test_what_is_stored_in_both_layouts_is_copied_from_there() -> None:
    """Three results in all, one of them read again; without the other one a temporary is."""
    inputs = [torch.zeros(16, 96, 768, dtype=BF16) for _ in range(2)]
    size = inputs[0].nbytes
    assert explain(define("stores both", BF16), inputs).bytes == (2 + 3) * size
    assert explain(define("stores", BF16), inputs).bytes == (2 + 3) * size


@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64], ids=str)
@pytest.mark.parametrize("shape", [(5, 211, 1030), (16, 96, 768)], ids=str)
def test_values(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    rng: np.random.Generator,
    set_option: Callable[[str, Any], None],
) -> None:
    """Against float64: sums of a thousand products, one rounding of what is stored."""
    set_option("FUSER_HOST_DEBUG", 1)
    tolerance = max(2e-5 if dtype != F64 else 1e-12, 2 * torch.finfo(dtype).eps)
    made = []
    for name in CASES:
        inputs = [torch.from_numpy(rng.normal(size=s)).to(dtype) for s in shapes(name, shape)]
        made.append((name, define(name, dtype), inputs))
    testing.compile_batch((fd, inputs) for _, fd, inputs in made)
    for name, fd, inputs in made:
        assert len(fd.execute(inputs)) == len(CASES[name][2](*inputs))
        for got, want in zip(
            fd.execute(inputs), CASES[name][2](*(x.double() for x in inputs)), strict=True
        ):
            scale = float(want.abs().max())
            assert got.shape == want.shape
            assert float((got.double() - want).abs().max()) <= tolerance * scale, name


def test_in_place(rng: np.random.Generator) -> None:
    """The sum is stored over its operand, and over the one that lies across."""
    shape = (16, 96, 768)
    for target in (0, 1):
        fd = FusionDefinition()
        tensors = [fd.define_tensor([-1] * 3) for _ in range(2)]
        total = tensors[0] + turned(fd, tensors[1])
        fd.add_output(rows(fd, normal(fd, total), F32))
        fd.add_output(turned(fd, total) if target else total, tensors[target])
        inputs = [torch.from_numpy(rng.normal(size=s)).to(F32) for s in (shape, (16, 768, 96))]
        want = reads_exact(*(x.double() for x in inputs))
        (got,) = fd.execute(inputs)
        assert torch.allclose(got.double(), want[1], rtol=0, atol=2e-5)
        stored = inputs[target].transpose(1, 2) if target else inputs[target]
        assert torch.allclose(stored.double(), want[0], rtol=0, atol=1e-6)
