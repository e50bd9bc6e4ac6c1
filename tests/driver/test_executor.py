"""csrc/driver/executor: records, kernels for many shapes, outputs, dropped caches."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import fuser
from fuser import DataType, FusionDefinition, ShapeError
from fuser.testing import assert_close_ulp
from tests.support.definitions import bias_gelu, counted, gained, scaled

MAX_RECORDS = 4096  # csrc/driver/executor.cpp


def test_the_records_used_last_stay() -> None:
    fd = scaled(2.0, rank=2)
    shapes = [torch.empty(0, n) for n in range(2, MAX_RECORDS + 3)]  # one more than the limit
    before = fuser.cache_info()
    for x in shapes[:-1]:
        fd.execute([x])
    assert all(fd.fec.is_compiled([x]) for x in shapes[:-1])
    fd.execute([shapes[0]])
    fd.execute([shapes[-1]])
    assert counted(before) == (1, MAX_RECORDS + 1)
    kept = [fd.fec.is_compiled([x]) for x in shapes]
    assert sum(kept) == MAX_RECORDS // 2 + 1
    assert kept[0], "it was used again just before"
    assert not any(kept[1 : MAX_RECORDS // 2])
    assert all(kept[MAX_RECORDS // 2 + 1 :])
    # Dropped records are made again.
    assert fd.execute([shapes[1]])[0].shape == (0, 3)
    assert counted(before) == (1, MAX_RECORDS + 2)
    assert gained(before).kernels_compiled == 0, "nothing to compute, nothing to compile"


def gelu_of(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    a = x.double() + bias.double()
    u = math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)
    return a * torch.sigmoid(2 * u)  # torch's 1 + tanh(u) cancels in the left tail


def run_shapes(shapes: list[tuple[int, int]], generator: torch.Generator) -> int:
    """Run bias_gelu on the shapes and compare; return the number of compiled kernels."""
    fuser.clear_caches(disk=True)
    fd = bias_gelu()
    for rows, columns in shapes:
        x = torch.randn(rows, columns, generator=generator).bfloat16()
        bias = torch.randn(columns, generator=generator).bfloat16()
        (result,) = fd.execute([x, bias])
        assert_close_ulp(result, gelu_of(x, bias), 1.0)
    info = fuser.cache_info()
    assert info.kernels_from_disk == 0
    assert info.hits + info.misses == len(shapes)
    return info.kernels_compiled


def test_few_kernels_for_many_shapes(rng: np.random.Generator) -> None:
    generator = torch.Generator().manual_seed(int(rng.integers(1 << 31)))
    shapes = [(int(r), int(c)) for r, c in rng.integers(1, 200, (200, 2))]
    shapes[:3] = [(1, 1), (1, 64), (64, 1)]
    compiled = run_shapes(shapes, generator)
    print(f"{compiled} kernels for {len(shapes)} shapes")
    assert 2 <= compiled <= 8


def test_fewer_kernels_where_rows_are_aligned(rng: np.random.Generator) -> None:
    generator = torch.Generator().manual_seed(int(rng.integers(1 << 31)))
    shapes = [(int(r), 8 * int(c)) for r, c in rng.integers(1, 40, (200, 2))]
    compiled = run_shapes(shapes, generator)
    print(f"{compiled} kernels for {len(shapes)} shapes")
    assert 1 <= compiled <= 4


def test_plans_count_variants() -> None:
    fd = scaled(3.5)
    before = fuser.cache_info()
    for n in (1000, 2000, 1001, 1003, 3000):  # multiples of 4, and odd sizes
        fd.execute([torch.ones(n)])
    gain = gained(before)
    assert gain.definitions == 1
    assert gain.plans == 2
    assert gain.kernels_compiled + gain.kernels_from_disk == 2
    assert gain.misses == 5


def test_clear_caches_forgets_everything(
    tmp_path: Path, set_option: Callable[[str, object], None]
) -> None:
    set_option("FUSER_CACHE_DIR", tmp_path)
    fd, x = scaled(6.5), torch.arange(10.0)

    def run() -> fuser.CacheInfo:
        assert fd.execute([x])[0].equal(x * 6.5)
        return fuser.cache_info()

    fuser.clear_caches()
    assert not any(fuser.cache_info())
    info = run()
    assert (info.kernels_compiled, info.kernels_from_disk, info.misses) == (1, 0, 1)
    assert info.compile_seconds > 0
    fuser.clear_caches()
    assert not fd.fec.is_compiled([x])
    info = run()
    assert (info.kernels_compiled, info.kernels_from_disk, info.misses) == (0, 1, 1)
    assert info.compile_seconds == 0
    fuser.clear_caches(disk=True)
    info = run()
    assert (info.kernels_compiled, info.kernels_from_disk, info.misses) == (1, 0, 1)


def test_a_record_outlives_the_caches() -> None:
    """A record keeps its kernel loaded after the caches are dropped."""
    fd, x = scaled(7.5), torch.arange(10.0)
    kernels = fd.fec.executor.kernels([x])
    fuser.clear_caches()
    assert kernels[0].text
    assert fd.execute([x])[0].equal(x * 7.5)


def test_kernels_of_a_call() -> None:
    fd = scaled(2.0, rank=2)
    (kernel,) = fd.fec.executor.kernels([torch.zeros(100, 100)])
    assert kernel.name.startswith("mul_")
    assert kernel.name in kernel.text
    assert kernel.grid == math.ceil(10_000 / 4 / kernel.threads)  # 4 elements per thread
    assert kernel.ir.startswith("kernel ")
    assert (kernel.registers, kernel.local_bytes) == (0, 0)  # known for GPUs only
    assert fd.fec.executor.kernels([torch.zeros(0, 100)]) == []


def test_one_definition_without_connection_is_as_many_kernels_as_spaces() -> None:
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1]), fd.define_tensor([-1, -1])
        fd.add_output(a * 2.0)
        fd.add_output(b * 3.0)
        fd.add_output(a + 1.0)
    a, b = torch.arange(7.0), torch.arange(15.0).view(3, 5)
    first, second, third = fd.execute([a, b])
    assert first.equal(a * 2)
    assert second.equal(b * 3)
    assert third.equal(a + 1)
    plans = fd.plan([a, b])
    assert isinstance(plans, tuple)
    assert len(plans) == 2
    # One kernel has no elements to compute: the plan is the other's.
    empty = torch.empty(0)
    plan = fd.plan([empty, b])
    assert isinstance(plan, fuser.Plan)
    fd.execute([empty, b], plan=plan.replace(threads=64))
    (kernel,) = fd.fec.executor.kernels()
    assert kernel.threads == 64


def test_last_is_of_the_last_call() -> None:
    fd = scaled(2.0)
    assert fd.fec.executor.kernels() == []
    fd.execute([torch.zeros(8)])
    fd.execute([torch.zeros(1 << 15)])
    assert fd.fec.executor.kernels()[0].grid > 1
    fd.execute([torch.zeros(8)])
    assert fd.fec.executor.kernels()[0].grid == 1


def test_no_inputs() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([3, 5], 2.5, DataType.Half))
    (result,) = fd.execute([], device="cpu")
    assert result.equal(torch.full((3, 5), 2.5, dtype=torch.float16))


@pytest.mark.parametrize("reduced", [False, True])
def test_elements_1(reduced: bool) -> None:
    """More elements than int64 represents: their number would wrap, here to 0."""
    fd = FusionDefinition()
    x, size = fd.define_tensor([-1]), fd.define_scalar(DataType.Int)
    rows = fd.ops.expand(fd.ops.broadcast(x, [True, False]), [size, -1]) + 1.0
    fd.add_output(fd.ops.sum(rows, [0, 1]) if reduced else rows)
    with pytest.raises(ShapeError, match=r"sizes \[4611686018427387904, 16\]") as caught:
        fd.execute([torch.zeros(16), 2**62])
    assert caught.value.rule == "elements-1"
    assert str(fd.execute([torch.zeros(16), 0])[0].numel()) == ("1" if reduced else "0")
