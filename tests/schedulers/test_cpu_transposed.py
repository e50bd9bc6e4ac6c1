"""CPU kernels with operands that are contiguous across the rows: tiles copy them first where lanes
would gather them in several phases, or from lines that evict one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuser import FusionDefinition
from fuser.ops import as_dtype
from tests.support.reducing import assert_close

F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
SetOption = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def on_cpu(set_option: SetOption) -> None:
    set_option("FUSER_HOST_ARCH", 0)


def softmax(ops: Any, x: Any, y: Any) -> list[Any]:
    """Two phases gather y."""
    return [ops.softmax(x * y, 1)]


def stored(ops: Any, x: Any, y: Any) -> list[Any]:
    """The result is stored across the rows, as y is."""
    return [ops.stride_order(ops.cast(ops.softmax(x, 1), x.dtype()), [0, 1]), ops.sum(y, 0)]


def sums(ops: Any, x: Any, y: Any) -> list[Any]:
    """One phase gathers y."""
    return [ops.sum(x * y, 1)]


def rows_and_columns(ops: Any, x: Any, y: Any) -> list[Any]:
    """Two phases gather y, and columns are reduced as well."""
    z = x * y
    return [x - y * ops.broadcast(ops.mean(z, [1]), [False, True]), ops.sum(z, [0])]


CASES: dict[Callable[..., list[Any]], Callable[[Tensor, Tensor], list[Tensor]]] = {
    softmax: lambda x, y: [(x * y).softmax(1)],
    stored: lambda x, y: [x.softmax(1), y.sum(0)],
    sums: lambda x, y: [(x * y).sum(1)],
    rows_and_columns: lambda x, y: [x - y * (x * y).mean(1, keepdim=True), (x * y).sum(0)],
}


def define(write: Callable[..., list[Any]], inputs: Sequence[Tensor]) -> FusionDefinition:
    fd = FusionDefinition()
    for out in write(fd.ops, *(fd.from_pytorch(t) for t in inputs)):
        fd.add_output(fd.ops.cast(out, as_dtype(inputs[0].dtype)))
    return fd


def values(
    shape: tuple[int, int], rng: np.random.Generator, dtype: torch.dtype = F32
) -> list[Tensor]:
    x, y = (torch.from_numpy(rng.normal(size=s)).to(dtype) for s in (shape, shape[::-1]))
    return [x, y.t()]


def kernels(
    write: Callable[..., list[Any]], shape: tuple[int, int], dtype: torch.dtype = F32
) -> list[str]:
    inputs = [torch.empty(shape, dtype=dtype), torch.empty(shape[::-1], dtype=dtype).t()]
    plans = define(write, inputs).plan(inputs)
    return [plan["scheduler"] for plan in (plans if isinstance(plans, tuple) else [plans])]


def test_repeated_gathers_are_one_copy() -> None:
    for shape in [(64, 64), (100, 300), (5000, 8), (8, 5000)]:
        assert kernels(softmax, shape) == ["cpu_pointwise", "cpu_inner"], shape
        assert kernels(rows_and_columns, shape) == ["cpu_pointwise", "cpu_inner_outer"], shape


def test_few_elements_and_short_sides_are_gathered() -> None:
    for shape in [(32, 64), (4, 5000)]:
        assert kernels(softmax, shape) == ["cpu_inner"], shape
        assert kernels(rows_and_columns, shape) == ["cpu_inner_outer"], shape


@pytest.mark.parametrize(("dtype", "distance"), [(F32, 256), (BF16, 512), (F64, 128)], ids=str)
def test_one_gather_is_copied_if_its_lines_conflict(dtype: torch.dtype, distance: int) -> None:
    """Elements of a row are `distance` apart: 1 KB."""
    assert kernels(sums, (3 * distance, 300), dtype) == ["cpu_pointwise", "cpu_inner"]
    assert kernels(sums, (3 * distance // 2, 300), dtype) == ["cpu_inner"]


def test_stores_across_the_rows_are_copied() -> None:
    found = kernels(stored, (100, 300))
    assert sorted(found) == ["cpu_inner", "cpu_inner", "cpu_pointwise"]


def test_columns_keep_their_kernel() -> None:
    """Lanes along kept axes have no rows to gather."""
    x, y = torch.empty(512, 300), torch.empty(300, 512).t()
    fd = FusionDefinition()
    t = fd.from_pytorch(x) + fd.from_pytorch(y)
    fd.add_output(t - fd.ops.broadcast(fd.ops.mean(t, [0]), [True, False]))
    assert fd.plan([x, y])["scheduler"] == "cpu_outer"


@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
@pytest.mark.parametrize("write", CASES, ids=lambda write: write.__name__)
def test_values(
    write: Callable[..., list[Any]],
    dtype: torch.dtype,
    set_option: SetOption,
    rng: np.random.Generator,
) -> None:
    """Results are near float64 and do not depend on threads, for incomplete tiles as well."""
    for shape in [(64, 64), (256, 40), (513, 33), (70, 301), (7, 1000), (2048, 96)]:
        inputs = values(shape, rng, dtype)
        fd = define(write, inputs)
        results = []
        for threads in (1, 2, 5):
            set_option("FUSER_HOST_THREADS", threads)
            results.append(fd.execute(inputs))
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
        wanted = CASES[write](*(t.double() for t in inputs))
        for got, want in zip(results[0], wanted, strict=True):
            assert got.shape == want.shape
            assert_close(got, want, dtype, scale=8.0)


def test_images(rng: np.random.Generator) -> None:
    """A norm over the channels of an image beside a channels-last one, whose rows have two axes."""
    x = torch.from_numpy(rng.normal(size=(3, 14, 15, 96))).to(F32)
    y = torch.from_numpy(rng.normal(size=(3, 96, 14, 15))).to(F32).permute(0, 2, 3, 1)
    fd = FusionDefinition()
    total = fd.from_pytorch(x) + fd.from_pytorch(y)
    fd.add_output(fd.ops.layer_norm(total, [96], None, None, 1e-5)[0])
    assert [plan["scheduler"] for plan in fd.plan([x, y])] == ["cpu_pointwise", "cpu_inner"]
    want = torch.nn.functional.layer_norm(x.double() + y.double(), [96], eps=1e-5)
    assert_close(fd.execute([x, y])[0], want, F32, scale=8.0)
