"""Plans of row reductions: their dependence on length, number of rows, alignment and GPU. Only
changed plans are compiled, and run on the host executor."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from fuser import DataType, FusionDefinition, Plan, UserError, _core, _core_testing
from fuser.ops import as_dtype
from tests.support.reducing import (
    PROGRAMS,
    REGISTERS,
    RELOAD,
    SHARED,
    assert_close,
    kernels_for,
    plan_for,
    plans_for,
    random_inputs,
)
from tests.support.sampling import rotated

F32, BF16 = torch.float32, torch.bfloat16
ARCHS = [70, 80, 90, 100]
LENGTHS = [2, 3, 64, 100, 256, 1000, 1023, 4096, 8192, 10_000, 32_768, 65_536, 131_072, 300_000]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "sum_rows", "over_norm"])
def test_what_holds_of_every_plan(name: str, dtype: torch.dtype, arch: int) -> None:
    device = _core.known_device(arch)
    program = PROGRAMS[name]
    fd = program.definition(dtype)
    for length in LENGTHS:
        for rows in (4096, 200, 2):
            shapes = program.shapes(rows, length)
            for kernel in kernels_for(fd, shapes, arch, text=True):
                plan, cuda = kernel["plan"], kernel["cuda"]
                if plan["scheduler"] != "inner":
                    continue
                threads = plan["threads_x"] * plan["threads_y"]
                assert threads == cuda.threads
                assert 64 <= threads <= 1024
                assert threads % 32 == 0
                combined = plan["threads_x"]
                assert combined & (combined - 1) == 0 or combined == threads, "by halves, or all"
                if plan["num_stages"]:
                    assert plan["grid_blocks"] % plan["cluster_size"] == 0
                    assert plan["grid_blocks"] <= device.sms * plan["min_blocks_per_sm"]
                assert cuda.shared_bytes <= device.shared_per_block
                assert cuda.cluster == plan["cluster_size"]
                assert plan["cluster_size"] in ((1, 2, 4, 8, 16) if device.clusters else (1,))
                widest = 16 // dtype.itemsize
                assert plan["vector"] in ((1, 2, 4) if plan["packed"] else (1, widest))
                assert bool(plan["vectorized"]) == (plan["vector"] > 1)
                # A row is processed completely: by one group of threads, in a loop, or over the
                # grid.
                if not plan["looped"]:
                    walked = plan["threads_x"] * plan["unroll"] * plan["vector"]
                    assert walked * plan["cluster_size"] >= length


# Expected placement of softmax rows between reduction loops, by length.
PLACES = {
    (BF16, 80): [(64, REGISTERS), (1000, REGISTERS), (16_384, SHARED), (300_000, RELOAD)],
    (BF16, 90): [(64, REGISTERS), (1000, REGISTERS), (16_384, SHARED), (57_000, REGISTERS)],
    (F32, 70): [(100, REGISTERS), (1000, REGISTERS), (300_000, RELOAD)],
    (F32, 90): [(100, REGISTERS), (1000, REGISTERS), (8192, SHARED), (100_000, REGISTERS)],
}


@pytest.mark.parametrize(("dtype", "arch"), PLACES, ids=str)
def test_the_longer_a_row_the_further_out_it_lies(dtype: torch.dtype, arch: int) -> None:
    for length, place in PLACES[dtype, arch]:
        assert plan_for("softmax", (4096, length), dtype, arch)["persistent_in"] == place, length


def test_clusters_from_sm_90_on_only() -> None:
    length = 131_072
    assert plan_for("softmax", (4096, length), BF16, 90)["cluster_size"] > 1
    for arch in (70, 75, 80, 86, 89):
        for name in ("softmax", "layer_norm"):
            plan = plan_for(name, (4096, length), BF16, arch)
            assert (plan["cluster_size"], plan["persistent_in"], plan["single_pass"]) == (
                1,
                RELOAD,
                1,
            )


def test_longer_rows_get_larger_clusters() -> None:
    sizes = [
        plan_for("softmax", (4096, n), BF16, 90)["cluster_size"]
        for n in (8192, 65_536, 131_072, 250_000)
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 2


def test_a_row_that_only_all_registers_hold_has_a_processor_for_itself() -> None:
    for name in ("softmax", "layer_norm"):
        plan = plan_for(name, (4096, 65_536), BF16, 80)
        assert (plan["persistent_in"], plan["threads_x"], plan["unroll"]) == (REGISTERS, 1024, 8)
        assert plan["single_pass"] == (name == "softmax")
    assert plan_for("softmax", (4096, 20_000), BF16, 90)["persistent_in"] == SHARED


def test_rows_that_wait_for_other_blocks_are_combined_once() -> None:
    for length, cluster, threads in ((65_536, 8, 128), (131_072, 16, 128), (262_144, 16, 256)):
        plan = plan_for("softmax", (4096, length), BF16, 90)
        assert (plan["cluster_size"], plan["single_pass"]) == (cluster, 1)
        assert (plan["persistent_in"], plan["threads_x"]) == (REGISTERS, threads)
        assert plan["min_blocks_per_sm"] * threads == 1024
    assert plan_for("softmax", (4096, 262_144), F32, 90)["cluster_size"] == 16
    assert plan_for("softmax", (4096, 16_384), BF16, 90)["single_pass"] == 0


def test_rows_of_many_elements_have_small_blocks() -> None:
    """Long rows use many small blocks per SM, in different phases, instead of two blocks with 64 KB
    each."""
    for name, length, dtype, cluster in (
        ("softmax", 24_576, BF16, 4),
        ("rms_norm", 32_768, BF16, 4),
        ("softmax", 38_000, BF16, 8),
        ("rms_norm", 19_000, F32, 8),
    ):
        plan = plan_for(name, (4096, length), dtype)
        assert (plan["persistent_in"], plan["threads_x"], plan["unroll"]) == (REGISTERS, 128, 8)
        assert (plan["cluster_size"], plan["min_blocks_per_sm"]) == (cluster, 8)
        assert plan_for(name, (4096, length), dtype, 80)["cluster_size"] == 1
    for name, length, dtype in (("softmax", 20_480, BF16), ("softmax", 16_384, F32)):
        assert plan_for(name, (4096, length), dtype)["persistent_in"] == SHARED


def test_two_blocks_hold_rows_of_floats_that_are_combined_twice() -> None:
    for length in (10_000, 16_384):
        plan = plan_for("layer_norm", (4096, length))
        assert (plan["persistent_in"], plan["threads_x"], plan["unroll"]) == (REGISTERS, 512, 8)
        assert plan["min_blocks_per_sm"] == 2


def _group_norm(ops: Any, x: Any, weight: Any, bias: Any) -> Any:
    return ops.silu(ops.group_norm(x, 32, weight, bias, 1e-5)[0])


@pytest.mark.parametrize(
    ("shape", "dtype", "cluster"), [((64, 320, 64, 64), BF16, 2), ((16, 640, 64, 64), F32, 8)]
)
def test_rows_with_divided_coordinates_are_cut_into_small_blocks(
    shape: tuple[int, ...], dtype: torch.dtype, cluster: int
) -> None:
    """Rows over channels and pixels with weights per channel divide coordinates; they are split
    into blocks of which five fit on an SM."""
    fd = FusionDefinition()
    channels = shape[1:2]
    tensors = [fd.define_tensor([-1] * n, dtype=as_dtype(dtype)) for n in (4, 1, 1)]
    fd.add_output(fd.ops.cast(_group_norm(fd.ops, *tensors), as_dtype(dtype)))
    (kernel,) = kernels_for(fd, [shape, channels, channels], text=True)
    plan, device = kernel["plan"], _core.known_device(90)
    assert (plan["persistent_in"], plan["cluster_size"], plan["threads_x"]) == (
        SHARED,
        cluster,
        256,
    )
    assert plan["single_pass"] == 0
    row = shape[1] // 32 * shape[2] * shape[3] * dtype.itemsize
    reserved = 1024  # by the system, per block
    taken = row // cluster + kernel["cuda"].shared_bytes + reserved
    assert device.shared_per_sm // taken >= 5
    old = kernels_for(fd, [shape, channels, channels], arch=80)[0]["plan"]
    assert old["cluster_size"] == 1


def test_odd_rows_of_two_shifted_reads_get_few_registers() -> None:
    plan = plan_for("layer_norm", (4096, 16_385), BF16)
    assert (plan["threads_x"], plan["min_blocks_per_sm"], plan["streaming"]) == (384, 4, 8)
    plan = plan_for("rms_norm", (4096, 16_385), BF16)
    assert (plan["threads_x"], plan["min_blocks_per_sm"], plan["streaming"]) == (512, 0, 0)


def test_short_rows_share_a_block_and_long_ones_fill_it() -> None:
    plans = [plan_for("softmax", (4096, n), BF16) for n in (16, 64, 256, 1024, 4096)]
    along = [p["threads_x"] for p in plans]
    assert along == sorted(along)
    assert along[0] <= 4
    assert along[-1] >= 128
    across = [p["threads_y"] for p in plans]
    assert across == sorted(across, reverse=True)
    assert across[0] >= 32
    assert across[-1] == 1


def test_a_reduction_alone_keeps_nothing() -> None:
    for length in (100, 4096, 100_000):
        plan = plan_for("sum_rows", (4096, length))
        assert (plan["persistent_in"], plan["single_pass"], plan["smem_unroll"]) == (RELOAD, 0, 0)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        (shape, dtype)
        for place, dtype in enumerate([F32, BF16, torch.float64, torch.int32])
        for shape in rotated([(40, 64), (7, 4096), (3, 4099), (3, 5, 256)], place, 2)
    ],
    ids=str,
)
def test_the_place_of_an_extreme_is_its_first(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """argmax and argmin return the first of equal values or NaNs, within a vector and across
    threads, also if indices do not ascend along the loop."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randint(-3, 4, shape, generator=generator).to(dtype)
    if dtype.is_floating_point:
        x.view(-1)[[17, 18, 90]] = float("nan")
        x[-1] = -float("inf")
        x[-1].view(-1)[[9, 13]] = float("nan")
    turned = [*range(1, len(shape)), 0]
    for dim, order in ((-1, None), (None, None), (None, turned)):
        fd = FusionDefinition()
        t = fd.from_pytorch(x)
        y, exact = (t, x) if order is None else (fd.ops.permute(t, order), x.permute(order))
        fd.add_output(fd.ops.argmax(y, dim))
        fd.add_output(fd.ops.argmin(y, dim))
        most, least = fd.execute([x])
        wanted = exact.double() if dtype == BF16 else exact
        assert torch.equal(most, wanted.argmax(dim))
        assert torch.equal(least, wanted.argmin(dim))


def test_few_threads_combine_places() -> None:
    """Combining values with indices is expensive, so argmax uses fewer threads with more elements
    each than max."""
    plans = {}
    for name in ("max", "argmax"):
        fd = FusionDefinition()
        fd.add_output(getattr(fd.ops, name)(fd.define_tensor([-1, -1]), 1))
        (kernel,) = kernels_for(fd, [(8192, 8192)])
        plans[name] = kernel["plan"]
    assert 2 * plans["argmax"]["threads_x"] == plans["max"]["threads_x"]
    assert plans["argmax"]["unroll"] == 2 * plans["max"]["unroll"]


def test_threads_of_short_rows_have_two_vectors() -> None:
    for length, threads, steps in ((4, 1, 1), (8, 1, 2), (12, 2, 2), (16, 2, 2), (20, 4, 2)):
        plan = plan_for("sum_rows", (1 << 20, length))
        assert (plan["vector"], plan["threads_x"], plan["unroll"]) == (4, threads, steps), length


def test_neighbours_store_neighbours_of_rows_of_two_vectors() -> None:
    for length, threads, steps in ((4, 1, 1), (8, 2, 1), (12, 2, 2), (16, 2, 2)):
        plan = plan_for("softmax", (1 << 20, length))
        assert (plan["vector"], plan["threads_x"], plan["unroll"]) == (4, threads, steps), length


def test_few_long_rows_are_cut_over_the_grid() -> None:
    for arch in ARCHS:
        processors = _core.known_device(arch).sms
        for rows in (1, 4, 32):
            plan = plan_for("sum_rows", (rows, 1 << 20), arch=arch)
            assert processors <= plan["grid_blocks"] <= 8 * processors
            assert plan["looped"]
        assert plan_for("sum_rows", (8192, 1 << 20), arch=arch)["grid_blocks"] == 0
        assert plan_for("sum_rows", (4, 256), arch=arch)["grid_blocks"] == 0


def test_two_reductions_over_few_long_rows_become_one() -> None:
    plan = plan_for("logsumexp", (4, 1 << 20))
    assert plan["single_pass"]
    assert plan["grid_blocks"] > 0
    assert not plan_for("logsumexp", (8192, 256))["single_pass"]


def test_results_over_few_long_rows_take_a_second_kernel() -> None:
    first, second = plans_for("softmax", (4, 1 << 20))
    assert first["grid_blocks"] > 0
    assert second["scheduler"] == "pointwise"
    assert len(plans_for("softmax", (4, 1 << 14))) == 1


# ---- Odd lengths, alignment


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("length", [2047, 4099, 20_001, 100_001])
def test_odd_rows_are_walked_from_a_boundary(length: int, dtype: torch.dtype) -> None:
    odd = plan_for("softmax", (4096, length), dtype)
    even = plan_for("softmax", (4096, length // 64 * 64), dtype)
    assert (odd["peel"], odd["vector"]) == (1, 16 // dtype.itemsize)
    assert (even["peel"], even["vector"]) == (0, odd["vector"])
    assert odd["lane_axes"] == 0
    assert even["lane_axes"] == 1


@pytest.mark.parametrize(("dtype", "line"), [(F32, 32), (BF16, 64)], ids=str)
def test_odd_rows_are_walked_from_a_line_of_memory(dtype: torch.dtype, line: int) -> None:
    """Loops over odd rows start at a line of memory, so that the vectors of a warp touch as few
    lines and sectors as for aligned rows."""
    program = PROGRAMS["layer_norm"]
    shapes = program.shapes(4096, 65_537)
    (kernel,) = kernels_for(program.definition(dtype), shapes, text=True)
    assert kernel["plan"]["peel"] == 1
    row = re.search(rf"= \({line} - \((\w+) % {line}\)\) % {line};", kernel["cuda"].text)
    assert row
    assert re.search(rf"i32 {row[1]} = v\d+ \* p\d+;", kernel["cuda"].text), "where a row starts"


@pytest.mark.parametrize("sizes", ["known", "unknown"])
@pytest.mark.parametrize(
    ("name", "length", "dtype"),
    [
        *(("layer_norm", n, BF16) for n in (16_385, 50_257, 65_537)),
        *(("rms_norm", n, BF16) for n in (16_384, 65_537, 262_144 + 1)),
        *(("softmax", n, F32) for n in (16_384, 65_537)),
    ],
)
def test_rows_in_shared_memory_start_where_a_line_does(
    name: str, length: int, dtype: torch.dtype, sizes: str
) -> None:
    """Rows in shared memory are aligned to lines, because an asynchronous copy of a line that spans
    two lines of shared memory is written twice."""
    program = PROGRAMS[name]
    shapes = program.shapes(4096, length)
    fd = program.definition(dtype, shapes if sizes == "known" else None)
    (kernel,) = kernels_for(fd, shapes, text=True)
    assert kernel["plan"]["persistent_in"] == SHARED
    starts = re.findall(
        r" s_in\d+ = \(\w+\*\)\(shared_memory\(\)(?: \+ (\d+))?", kernel["cuda"].text
    )
    assert starts
    assert all(int(start or 0) % 128 == 0 for start in starts), starts


def test_two_shifted_vectors_of_words_are_read_for_three_steps() -> None:
    """Long clusters load two unaligned float32 operands for three steps at once; a single operand,
    or half types, for one step."""
    for name, length, dtype, steps in (
        ("layer_norm", 131_073, F32, 3),
        ("layer_norm", 65_537, F32, 1),
        ("rms_norm", 131_073, F32, 1),
        ("layer_norm", 262_145, BF16, 1),
    ):
        plan = plan_for(name, (4096, length), dtype)
        assert (plan["persistent_in"], plan["peel"], plan["unroll"]) == (SHARED, 1, steps)


def test_short_odd_rows_are_walked_by_elements() -> None:
    for rows in (2, 4096, 1 << 20):
        for length in (3, 63, 129):
            plan = plan_for("softmax", (rows, length))
            assert (plan["vector"], plan["peel"], plan["vectorized"]) == (1, 0, 0)
            assert plan["packed"] == 0b11, "the read and the store cross shared memory"


def test_what_is_not_aligned_moves_by_elements() -> None:
    program = PROGRAMS["softmax"]
    (aligned,) = kernels_for(program.definition(), [(64, 1024)])
    (shifted,) = kernels_for(program.definition(), [(64, 1024)], address=4)
    assert aligned["plan"]["vectorized"] == 0b11, "the read and the store"
    assert shifted["plan"]["vectorized"] == 0b10, "outputs are always aligned"


# ---- Size hints


def bucket(n: int) -> int:
    return max(0, _core_testing.driver.bucket_of(n))


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "sum_rows"])
def test_a_plan_sees_no_size(name: str, rng: np.random.Generator) -> None:
    """Sizes with equal hints, i.e. equal divisibility by vectors and equal powers of two, have
    equal plans."""
    program = PROGRAMS[name]
    fd = program.definition()
    seen: dict[Any, Any] = {}
    met = 0
    for _ in range(1200):
        rows = int(2 ** rng.uniform(1, 14))
        length = int(2 ** rng.uniform(1, 18)) // 2 * 2 + int(rng.integers(0, 2))
        # For a second kernel, which is pointwise, the total number of elements matters.
        both = rows * length
        facts = bucket(rows), bucket(length), bucket(both), length % 4 == 0, both % 4 == 0
        plans = [k["plan"] for k in kernels_for(fd, program.shapes(rows, length))]
        met += facts in seen
        assert seen.setdefault(facts, plans) == plans, (rows, length)
    assert met > 30  # equal hints occurred often enough to be tested


# ---- Changed plans


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((5, 256), {"threads_x": 64}),
        ((5, 256), {"unroll": 4}),
        ((5, 256), {"unroll": 7}),
        ((5, 256), {"threads_x": 16, "unroll": 4}),
        ((5, 256), {"threads_y": 8}),
        ((3, 8000), {"unroll": 5}),
        ((2, 20000), {"unroll": 8}),
        ((2, 40000), {"threads_x": 256}),
    ],
)
def test_changed_plans_run(shape: Any, changes: dict[str, int], rng: np.random.Generator) -> None:
    program = PROGRAMS["softmax"]
    fd, inputs = program.definition(), random_inputs("softmax", shape, F32, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert {name: plan[name] for name in changes} != changes
    (got,) = fd.execute(inputs, plan=plan.replace(**changes))
    assert_close(got, program.exact(inputs)[0], F32)


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((5, 256), {"threads_x": 16}),  # would not cover the row
        ((5, 256), {"unroll": 1}),
        ((5, 256), {"unroll": 65}),
        ((5, 256), {"threads_x": 2048}),
        ((5, 256), {"threads_y": 64}),
        ((5, 256), {"cache_computed": 1}),  # no value is computed twice
        ((5, 256), {"cluster_size": 2}),
        ((5, 256), {"persistent_in": SHARED}),
        ((5, 256), {"vector": 2}),
        ((5, 256), {"threads_x": 48}),
        ((5, 256), {"threads_x": 512}),
    ],
)
def test_plan_1(shape: Any, changes: dict[str, int], rng: np.random.Generator) -> None:
    fd = PROGRAMS["softmax"].definition()
    inputs = random_inputs("softmax", shape, F32, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    with pytest.raises(UserError, match="is not allowed; expected") as caught:
        fd.execute(inputs, plan=plan.replace(**changes))
    assert caught.value.rule == "plan-1"


def test_stores_leave_l1_to_what_rows_share() -> None:
    """Stores of long rows are streaming, so that L1 keeps the weights. Bits by access: x, weight,
    bias, y."""
    once = {
        n: plan_for("layer_norm", (4096, n), BF16)["streaming"]
        for n in (8192, 24_576, 50_256, 65_536)
    }
    assert once == {8192: 0, 24_576: 8, 50_256: 8, 65_536: 8}
    assert plan_for("layer_norm", (4096, 65_536), BF16, 80)["streaming"] == 9
    assert plan_for("rms_norm", (4096, 50_256), BF16)["streaming"] == 0
    program = PROGRAMS["layer_norm"]
    shapes = program.shapes(4096, 65_536)
    (kernel,) = kernels_for(program.definition(BF16), shapes, text=True)
    assert (
        "store<true>(g_out0" in kernel["cuda"].text
        or "store_if<true>(g_out0" in kernel["cuda"].text
    )
    plan = plan_for("layer_norm", (4096, 24_576), BF16)
    assert (plan["persistent_in"], plan["threads_x"], plan["unroll"]) == (REGISTERS, 512, 6)
    assert plan["min_blocks_per_sm"] == 2


def test_what_rows_share_stays_in_l1() -> None:
    """Weight and bias of 64 KB stay in L1 if the rows are in registers; rows in shared memory would
    take its capacity."""
    plan = plan_for("layer_norm", (4096, 16_384), BF16, 90)
    assert (plan["persistent_in"], plan["threads_x"], plan["unroll"]) == (REGISTERS, 512, 4)
    assert plan["min_blocks_per_sm"] == 3
    assert plan_for("layer_norm", (4096, 16_384), BF16, 75)["min_blocks_per_sm"] == 2
    for name in ("softmax", "rms_norm"):
        plan = plan_for(name, (4096, 16_384), BF16, 90)
        assert (plan["persistent_in"], plan["min_blocks_per_sm"]) == (SHARED, 0)


def masked_softmax(ops: Any, x: Any, mask: Any) -> Any:
    scores = ops.where(mask, x * 0.125, -1e30)
    keep = ops.ge(ops.uniform(0.0, 1.0, [ops.size(x, 0), ops.size(x, 1)]), 0.1)
    result = ops.softmax(scores, 1) * ops.cast(keep, DataType.Float)
    return keep, ops.cast(result, DataType.BFloat16)


def test_fewer_elements_of_two_tensors_where_instructions_decide() -> None:
    """Instruction-bound rows of two tensors have fewer elements per thread: eight for float32,
    sixteen for bfloat16."""
    for dtype, threads, unroll in ((DataType.Float, 128, 2), (DataType.BFloat16, 64, 2)):
        fd = FusionDefinition()
        x, y = (fd.define_tensor([-1, -1], dtype=dtype) for _ in range(2))
        total = fd.ops.dropout(x, 0.1)[0] + y
        for output in (total, fd.ops.layer_norm(total, [1024])[0]):
            fd.add_output(fd.ops.cast(output, dtype))
        (kernel,) = kernels_for(fd, [(8192, 1024)] * 2)
        plan = kernel["plan"]
        assert (plan["threads_x"], plan["unroll"]) == (threads, unroll)


def test_what_is_computed_again_is_kept_where_instructions_decide(rng: np.random.Generator) -> None:
    """In instruction-bound kernels rematerialized values are cached in registers: 16 exponentials
    per thread in a warp per row. Results are equal bit for bit."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
    mask = fd.define_tensor([-1, -1], dtype=DataType.Bool)
    for output in masked_softmax(fd.ops, x, mask):
        fd.add_output(output)
    (kernel,) = kernels_for(fd, [(4096, 512)] * 2, text=True)
    plan = kernel["plan"]
    assert (plan["threads_x"], plan["unroll"], plan["vector"], plan["cache_computed"]) == (
        32,
        2,
        8,
        1,
    )
    assert kernel["ir"].count("exp_half(") == 1
    assert plan_for("rms_norm", (4096, 512), BF16)["cache_computed"] == 0
    assert plan_for("softmax", (4096, 512), F32)["cache_computed"] == 0, "bytes decide"

    inputs = [
        torch.from_numpy(rng.normal(size=(6, 512))).to(torch.bfloat16),
        torch.from_numpy(rng.random((6, 512)) < 0.8),
    ]
    planned = fd.plan(inputs)
    assert isinstance(planned, Plan)
    results = []
    for keep in (0, 1):
        torch.manual_seed(5)
        results.append(fd.execute(inputs, plan=planned.replace(cache_computed=keep)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    fd.validate(inputs)


def test_a_mask_is_drawn_once_where_bytes_decide() -> None:
    """Dropout, addition and RMS norm with saved mask and sum draw the random numbers once. Drawing
    them again would fit into the kernel's memory time, but takes a quarter of it."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1], dtype=DataType.Float) for _ in range(2))
    dropped, mask = fd.ops.dropout(x, 0.1)[:2]
    total = dropped + y
    root = fd.ops.sqrt(fd.ops.mean(total * total, [1], keepdim=True) + 1e-6)
    for output in (total / root, mask, total):
        fd.add_output(output)
    (kernel,) = kernels_for(fd, [(8192, 1024)] * 2, text=True)
    plan = kernel["plan"]
    assert (plan["persistent_in"], plan["threads_x"], plan["unroll"]) == (REGISTERS, 256, 1)
    assert plan["cache_computed"] == 1
    assert kernel["ir"].count("random32(") == 1


def test_what_is_centered_beside_a_variance_is_not_cut_with_it() -> None:
    """A grid reduction in one phase could not subtract the mean over all blocks."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.Float)
    fd.add_output(fd.ops.var(x, [0, 1], correction=0))
    fd.add_output(x - fd.ops.mean(x, [0, 1], True))
    data = torch.randn(257, 77)
    fd.validate([data])
    torch.testing.assert_close(fd.execute([data])[1], data - data.mean(), rtol=1e-5, atol=1e-5)


def third_moment(ops: Any, x: Any) -> list[Any]:
    centered = x - ops.mean(x, [1], True)
    return [ops.sum(centered * centered * centered, [1])]


def skewness(ops: Any, x: Any) -> list[Any]:
    centered = x - ops.mean(x, [1], True)
    normal = centered * ops.rsqrt(ops.var(x, [1], correction=0, keepdim=True) + 1e-5)
    return [ops.sum(normal * normal * normal, [1])]


@pytest.mark.parametrize("define", [third_moment, skewness])
def test_few_rows_of_reductions_that_wait_for_each_other_take_a_kernel_a_walk(
    define: Any, rng: np.random.Generator
) -> None:
    """Few rows with dependent reductions take one kernel per phase, because one kernel would use
    one block or cluster per row."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.Float)
    for output in define(fd.ops, x):
        fd.add_output(output)
    for length, cut in ((60_000, [0]), (1_000_000, [528, 528])):
        kernels = kernels_for(fd, [(1, length)])
        assert [kernel["plan"]["grid_blocks"] for kernel in kernels] == cut, length
    assert len(kernels_for(fd, [(4096, 1_000_000)])) == 1
    fd.validate([torch.from_numpy(rng.normal(1.0, 2.0, (2, 70_000))).to(F32)])
