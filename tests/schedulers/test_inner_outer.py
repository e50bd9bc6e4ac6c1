"""Plans of kernels that reduce rows and then columns: a persistent cooperative grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fuser import FusionDefinition, Plan, UserError, _core, _core_testing
from fuser.ops import as_dtype
from tests.support.reducing import (
    PROGRAMS,
    assert_close,
    dense,
    kernels_for,
    plan_for,
    random_inputs,
)

F32, BF16 = torch.float32, torch.bfloat16
ARCHS = [70, 80, 90, 100]
LENGTHS = [32, 33, 64, 100, 768, 1024, 1023, 4096, 5120, 8192]


def h100() -> _core.Device:
    device = _core.known_device(90)
    device.bandwidth = 3_352_000_000_000
    device.resident_clusters = [66, 30, 15, 7]
    return device


def plan_on(length: int, dtype: torch.dtype, device: _core.Device) -> dict[str, int]:
    """The plan for 4096 rows of this length."""
    program = PROGRAMS["norm_backward"]
    inputs = [(list(s), dense(s), 0) for s in program.shapes(4096, length)]
    (kernel,) = _core_testing.plan.plans(program.definition(dtype)._builder, inputs, device)
    return kernel["plan"]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", ["norm_backward", "centered"])
def test_what_holds_of_every_plan(name: str, dtype: torch.dtype, arch: int) -> None:
    device = _core.known_device(arch)
    program = PROGRAMS[name]
    fd = program.definition(dtype)
    for length in LENGTHS:
        (kernel,) = kernels_for(fd, program.shapes(4096, length), arch, text=True)
        plan, cuda = kernel["plan"], kernel["cuda"]
        assert plan["scheduler"] == "inner_outer"
        threads = plan["threads_x"] * plan["threads_y"]
        assert threads == cuda.threads
        assert 256 <= threads * plan["min_blocks_per_sm"] <= 1024
        assert plan["cluster_size"] * plan["threads_x"] * plan["unroll"] * plan["vector"] >= length
        assert threads % plan["columns_per_merge"] == 0
        # All blocks are resident at once; otherwise the grid's barrier would deadlock.
        assert cuda.cooperative
        clusters = [device.sms, *device.resident_clusters]
        resident = clusters[plan["cluster_size"].bit_length() - 1] * plan["cluster_size"]
        assert plan["grid_blocks"] == resident * plan["min_blocks_per_sm"]
        assert plan["min_blocks_per_sm"] * threads <= device.threads_per_sm
        assert plan["min_blocks_per_sm"] * cuda.shared_bytes <= device.shared_per_sm
        assert cuda.shared_bytes <= device.shared_per_block


def test_rows_are_copied_ahead_from_sm_80_on() -> None:
    for length in (64, 1024, 4096):
        assert plan_for("norm_backward", (4096, length), BF16, 70)["num_stages"] == 0
        for arch in (80, 90, 100):
            assert plan_for("norm_backward", (4096, length), BF16, arch)["num_stages"] >= 2
    assert plan_for("norm_backward", (4096, 999), BF16, 90)["num_stages"] == 0, (
        "no 16-byte accesses"
    )


def test_short_rows_share_a_block() -> None:
    plans = [plan_for("norm_backward", (4096, n), BF16) for n in (64, 256, 1024, 8192)]
    assert [p["threads_y"] > 1 for p in plans] == [True, True, True, False]


def test_a_plan_sees_no_size(rng: np.random.Generator) -> None:
    program = PROGRAMS["norm_backward"]
    fd = program.definition()
    seen: dict[object, object] = {}
    met = 0
    for _ in range(300):
        rows, length = int(2 ** rng.uniform(1, 14)), int(2 ** rng.uniform(1, 13))
        if rows == 1 or length == 1:
            continue
        facts = _core_testing.driver.bucket_of(length), length % 4 == 0
        plans = [k["plan"] for k in kernels_for(fd, program.shapes(rows, length))]
        met += facts in seen
        assert seen.setdefault(facts, plans) == plans, (rows, length)
    assert met > 100


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_long_rows_are_cut_over_a_cluster(dtype: torch.dtype, arch: int) -> None:
    device = _core.known_device(arch)
    program = PROGRAMS["norm_backward"]
    steps_a_row = []
    for length in (20_000, 32_768, 50_256, 65_536):
        shapes = program.shapes(4096, length)
        (kernel,) = kernels_for(program.definition(dtype), shapes, arch, text=True)
        plan, cuda = kernel["plan"], kernel["cuda"]
        assert cuda.cluster == plan["cluster_size"]
        per_block = plan["threads_x"] * plan["unroll"] * plan["vector"]
        assert per_block * plan["cluster_size"] >= length > per_block
        assert plan["num_stages"] >= 2
        assert cuda.shared_bytes <= device.shared_per_block
        assert plan["grid_blocks"] % plan["cluster_size"] == 0
        held = device.sms * plan["min_blocks_per_sm"]
        assert plan["grid_blocks"] <= held, "all of them are resident at once"
        registers = 64 + plan["unroll"] * plan["vector"] * 2  # per thread, for two sums per column
        assert plan["min_blocks_per_sm"] * cuda.threads * registers <= device.registers_per_sm
        assert cuda.threads % plan["columns_per_merge"] == 0
        assert plan["cluster_size"] > 1
        steps_a_row.append(plan["cluster_size"] * plan["threads_x"] * plan["unroll"])
    assert steps_a_row == sorted(steps_a_row)


def test_as_many_clusters_as_the_device_holds() -> None:
    device = _core.known_device(90)
    for dtype, place, cluster in ((BF16, 1, 4), (F32, 2, 8)):
        for clusters in (7, 11):
            held = [0] * 4
            held[place] = clusters
            device.resident_clusters = held
            plan = plan_on(65_536, dtype, device)
            assert (plan["cluster_size"], plan["grid_blocks"]) == (cluster, cluster * clusters)


def test_smaller_blocks_share_a_processor() -> None:
    """Smaller blocks wait alternately for their clusters, unless clusters of that size leave many
    SMs idle."""
    device = _core.known_device(90)
    for length, clusters, chosen in (
        (16_384, 15, (2, 192, 6, 2)),
        (65_536, 12, (4, 512, 4, 1)),
        (65_536, 15, (8, 128, 8, 2)),  # eight steps fill it
        (57_000, 15, (8, 160, 6, 2)),
    ):
        device.resident_clusters = [66, 30, clusters, 7]
        plan = plan_on(length, BF16, device)
        fields = ("cluster_size", "threads_x", "unroll", "min_blocks_per_sm")
        assert tuple(plan[k] for k in fields) == chosen


def at_once(plan: dict[str, int], dtype: torch.dtype) -> int:
    """Bytes of rows of two tensors that are processed at once on an SM."""
    elements = plan["threads_x"] * plan["threads_y"] * plan["unroll"] * plan["vector"]
    return plan["min_blocks_per_sm"] * elements * 2 * dtype.itemsize


@pytest.mark.parametrize(
    ("dtype", "length", "chosen"),
    [
        (BF16, 6_144, (1, 1, 256, 3, 3)),
        (BF16, 8_192, (1, 1, 512, 2, 3)),
        (BF16, 10_240, (4, 3, 160, 2, 3)),  # too few per cluster of 2, too many per block
        (BF16, 12_288, (2, 1, 256, 3, 3)),
        (BF16, 16_384, (2, 1, 512, 2, 3)),
        (BF16, 32_768, (8, 2, 256, 2, 3)),  # instead of a cluster of 4 with one block per SM
        (BF16, 65_536, (8, 1, 512, 2, 2)),
        (F32, 4_096, (1, 1, 512, 2, 3)),
        (F32, 12_288, (8, 2, 128, 3, 3)),
    ],
    ids=str,
)
def test_rows_come_as_memory_brings_them(
    dtype: torch.dtype, length: int, chosen: tuple[int, ...]
) -> None:
    plan = plan_on(length, dtype, h100())
    fields = ("cluster_size", "min_blocks_per_sm", "threads_x", "unroll", "num_stages")
    assert tuple(plan[k] for k in fields) == chosen
    assert 23 * 1024 <= at_once(plan, dtype) <= 34 * 1024
    assert plan["num_stages"] * at_once(plan, dtype) < h100().shared_per_sm


def test_more_bandwidth_takes_more_at_once() -> None:
    fast, slow = h100(), h100()
    fast.bandwidth = fast.bandwidth * 14 // 10
    slow.bandwidth //= 4  # rows take an SM as long as on the other GPU
    for length in (10_240, 12_288, 20_480, 24_576):
        plan = plan_on(length, BF16, h100())
        assert plan_on(length, BF16, slow) == plan
        faster = plan_on(length, BF16, fast)
        assert at_once(faster, BF16) > at_once(plan, BF16)
        assert faster["num_stages"] * at_once(faster, BF16) < fast.shared_per_sm


def test_clusters_that_leave_many_processors_idle_bring_no_rows() -> None:
    few = h100()
    few.resident_clusters = [66, 30, 12, 3]
    assert plan_on(20_480, BF16, h100())["cluster_size"] == 8
    assert plan_on(20_480, BF16, few)["cluster_size"] == 4


def test_rows_that_are_too_long_take_several_kernels() -> None:
    program = PROGRAMS["norm_backward"]
    assert len(kernels_for(program.definition(), program.shapes(4096, 1 << 20))) > 1
    assert len(kernels_for(program.definition(), program.shapes(4096, 65_536), 80)) > 1
    # The row fits neither into prefetched tiles nor into registers next to the columns.
    assert len(kernels_for(program.definition(), program.shapes(4096, 16_384), 80)) > 1
    assert len(kernels_for(program.definition(BF16), program.shapes(4096, 16_384), 80)) == 1
    assert len(kernels_for(program.definition(BF16), program.shapes(4096, 9999))) > 1


@pytest.mark.parametrize("blocks", [1, 3])
def test_changed_plans_run(blocks: int, rng: np.random.Generator) -> None:
    program = PROGRAMS["norm_backward"]
    fd, inputs = program.definition(), random_inputs("norm_backward", (40, 256), F32, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    got = fd.execute(inputs, plan=plan.replace(grid_blocks=blocks))
    for one, exact in zip(got, program.exact(inputs), strict=True):
        assert_close(one, exact, F32)


@pytest.mark.parametrize("shape", [(40, 1024), (33, 999)])
def test_values_kept_between_walks_change_no_bit(
    shape: tuple[int, int], rng: np.random.Generator
) -> None:
    program = PROGRAMS["norm_backward"]
    fd, inputs = program.definition(), random_inputs("norm_backward", shape, F32, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    results = [fd.execute(inputs, plan=plan.replace(cache_computed=keep)) for keep in (0, 1)]
    for again, kept in zip(*results, strict=True):
        assert torch.equal(again, kept)


def test_values_are_kept_where_registers_last() -> None:
    kept = {
        n: plan_for("norm_backward", (4096, n), BF16)["cache_computed"]
        for n in (1024, 4096, 16_384)
    }
    assert kept == {1024: 1, 4096: 1, 16_384: 0}
    program = PROGRAMS["norm_backward"]
    (kernel,) = kernels_for(program.definition(BF16), program.shapes(4096, 4096), text=True)
    second = kernel["cuda"].text.split("collect_warps")[-1].split("grid_barrier(")[0]
    assert "unpack(" not in second, "the second walk reads its row again"


def test_rows_that_nobody_reads() -> None:
    """In an outer product there is no row of memory to prefetch."""
    fd = FusionDefinition()
    x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
    product = fd.ops.broadcast(x, [False, True]) * fd.ops.broadcast(y, [True, False])
    fd.add_output(fd.ops.sum(product, [0]))
    fd.add_output(fd.ops.sum(product, [1]))
    inputs = [torch.arange(64.0) % 5, torch.arange(256.0) % 7]
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert (plan.scheduler, plan["num_stages"]) == ("inner_outer", 0)
    exact = torch.outer(*inputs)
    columns, rows = fd.execute(inputs)
    assert torch.equal(columns, exact.sum(0))
    assert torch.equal(rows, exact.sum(1))


@pytest.mark.parametrize(
    "changes", [{"grid_blocks": 0}, {"grid_blocks": 5}, {"num_stages": 2}, {"threads_x": 64}]
)
def test_plan_1(changes: dict[str, int], rng: np.random.Generator) -> None:
    """A plan with more blocks than are resident is rejected, because they would deadlock."""
    fd = PROGRAMS["norm_backward"].definition()
    inputs = random_inputs("norm_backward", (40, 256), F32, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert plan["grid_blocks"] == 4
    with pytest.raises(UserError, match="is not allowed; expected") as caught:
        fd.execute(inputs, plan=plan.replace(**changes))
    assert caught.value.rule == "plan-1"


def rotated_norm_backward(heads: int, dtype: torch.dtype) -> FusionDefinition:
    """The gradient of a norm of rows of heads * 64 elements whose results were rotated: the tables
    of cosines and sines vary along the elements of a head, not along the heads.
    """
    with FusionDefinition() as fd:
        given, x = (fd.define_tensor([-1, heads, 64], dtype=as_dtype(dtype)) for _ in range(2))
        cos, sin = (fd.define_tensor([-1, 1, 64]) for _ in range(2))
        weight, rstd = fd.define_tensor([1, heads, 64]), fd.define_tensor([-1, 1, 1])
        gradient = given * cos - fd.ops.roll(given * sin, 32, 2)
        normal = x * rstd
        fd.add_output(fd.ops.sum(gradient * normal, [0]))
        scaled = gradient * weight
        mean = fd.ops.mean(scaled * normal, [1, 2], True)
        fd.add_output((scaled - normal * mean) * rstd)
    return fd


def rotated_shapes(rows: int, heads: int) -> list[tuple[int, ...]]:
    table = (rows, 1, 64)
    return [(rows, heads, 64), (rows, heads, 64), table, table, (1, heads, 64), (rows, 1, 1)]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_blocks_with_tables_of_heads_are_resident(dtype: torch.dtype, arch: int) -> None:
    """Shared memory of all row copies fits, also of tables that vary along a part of the row."""
    device, reserved, cooperative = _core.known_device(arch), 1024 if arch >= 80 else 0, 0
    for heads in (2, 4, 8, 16, 32, 64):
        fd = rotated_norm_backward(heads, dtype)
        for kernel in kernels_for(fd, rotated_shapes(4096, heads), arch, text=True):
            if not kernel["cuda"].cooperative:
                continue
            cooperative += 1
            blocks = kernel["plan"]["min_blocks_per_sm"]
            assert blocks * (kernel["cuda"].shared_bytes + reserved) <= device.shared_per_sm, heads
    assert cooperative >= 3


@pytest.mark.parametrize("heads", [2, 16])
def test_tables_of_heads(heads: int, rng: np.random.Generator) -> None:
    inputs = [torch.from_numpy(rng.standard_normal(s)) for s in rotated_shapes(37, heads)]
    given, x, cos, sin, weight, rstd = inputs
    gradient = given * cos - (given * sin).roll(32, 2)
    scaled, normal = gradient * weight, x * rstd
    mean = (scaled * normal).mean((1, 2), True)
    exact = [(gradient * normal).sum(0), (scaled - normal * mean) * rstd]
    fd = rotated_norm_backward(heads, F32)
    for got, wanted in zip(fd.execute([t.float() for t in inputs]), exact, strict=True):
        assert_close(got, wanted, F32, scale=8.0)
