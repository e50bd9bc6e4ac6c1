"""Plans of reductions along outer axes: lanes are columns; threads_y share a column."""

from __future__ import annotations

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
    assert_close,
    kernels_for,
    plan_for,
    plans_for,
    random_inputs,
)

F32, BF16 = torch.float32, torch.bfloat16
ARCHS = [70, 80, 90, 100]
SHAPES = [(4096, 4096), (1 << 20, 64), (64, 65_536), (7, 33), (1000, 7), (300, 100_001), (2, 2)]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", ["sum_columns", "softmax_columns", "var_columns"])
def test_what_holds_of_every_plan(name: str, dtype: torch.dtype, arch: int) -> None:
    device = _core.known_device(arch)
    program = PROGRAMS[name]
    fd = program.definition(dtype)
    for shape in SHAPES:
        for kernel in kernels_for(fd, program.shapes(*shape), arch, text=True):
            plan, cuda = kernel["plan"], kernel["cuda"]
            if plan["scheduler"] != "outer":
                continue
            threads = plan["threads_x"] * plan["threads_y"]
            assert threads == cuda.threads
            assert threads <= 1024
            assert cuda.shared_bytes <= device.shared_per_block
            assert cuda.cluster == 1
            assert plan["vector"] in (1, 16 // dtype.itemsize)
            if not plan["looped"]:
                assert plan["threads_y"] * plan["unroll"] >= shape[0]


def test_few_columns_are_cut_over_the_grid() -> None:
    for arch in ARCHS:
        processors = _core.known_device(arch).sms
        few = plan_for("sum_columns", (1 << 20, 64), arch=arch)
        assert processors <= few["grid_blocks"] <= 8 * processors
        assert few["looped"]
        assert plan_for("sum_columns", (1 << 14, 1 << 18), arch=arch)["grid_blocks"] == 0
        assert plan_for("sum_columns", (64, 65_536), arch=arch)["grid_blocks"] == 0, "short columns"


def test_few_columns_are_cut_where_rows_are_stored_too() -> None:
    """The gradient of an activation and of its bias: rows are stored while they are summed, and the
    columns are split over the grid."""
    fd = FusionDefinition()
    g, x = (fd.define_tensor([-1, -1], True, DataType.BFloat16) for _ in range(2))
    product = fd.ops.mul(fd.ops.gelu(x), g)
    fd.add_output(fd.ops.cast(product, DataType.BFloat16))
    fd.add_output(fd.ops.sum(product, [0]))
    (kernel,) = kernels_for(fd, [(8192, 3072)] * 2)
    assert kernel["plan"]["scheduler"] == "outer"
    assert kernel["plan"]["grid_blocks"] >= _core.known_device(90).sms


def test_short_columns_stay_in_registers() -> None:
    for rows in (2, 16, 64):
        plan = plan_for("softmax_columns", (rows, 8192))
        assert (plan["persistent_in"], plan["looped"]) == (REGISTERS, 0)
    assert all(
        p.get("persistent_in") != REGISTERS for p in plans_for("softmax_columns", (65, 8192))
    )


def test_long_columns_are_read_again_or_take_two_kernels() -> None:
    many = plan_for("softmax_columns", (4096, 1 << 16))
    assert (many["persistent_in"], many["single_pass"]) == (RELOAD, 1)
    statistics, stores = plans_for("softmax_columns", (4096, 128))
    assert statistics["grid_blocks"] > 0
    assert stores["scheduler"] == "pointwise"


def test_vectors_lie_along_columns() -> None:
    assert plan_for("sum_columns", (100, 4096), BF16)["vector"] == 8
    assert plan_for("sum_columns", (101, 4096))["vector"] == 4
    assert plan_for("sum_columns", (50, 4095), BF16)["vector"] == 1


def test_long_columns_of_odd_rows_are_read_by_shifted_vectors() -> None:
    for columns in (4095, 4097, 65):
        odd = plan_for("sum_columns", (4096, columns), BF16)
        assert (odd["vector"], odd["vectorized"], odd["unaligned"]) == (8, 0, 1)
    assert plan_for("sum_columns", (4096, 4096), BF16)["unaligned"] == 0
    assert plan_for("sum_columns", (4096, 7), BF16)["unaligned"] == 0, "hardly a whole vector"
    assert plan_for("softmax_columns", (1 << 14, 65_537))["unaligned"] == 0, "its stores are narrow"


def stores_and_sums(dtype: torch.dtype) -> FusionDefinition:
    """2 x in place, and its sum over the rows."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=as_dtype(dtype))
    twice = x * 2.0
    fd.add_output(fd.ops.cast(twice, as_dtype(dtype)), x)
    fd.add_output(fd.ops.sum(twice, [0]))
    return fd


def test_rows_that_start_at_whole_vectors_end_in_a_part_of_one() -> None:
    def plan(columns: int, stride: int) -> dict[str, int]:
        strides = [[stride, 1]]
        (kernel,) = kernels_for(stores_and_sums(BF16), [(8192, columns)], strides=strides)
        found: dict[str, int] = kernel["plan"]
        return found

    padded = plan(30_522, 30_528)
    assert (padded["vector"], padded["tail"]) == (8, 1)
    assert padded["vectorized"] & 3 == 3, "what is read and what is stored"
    assert plan(30_528, 30_528)["tail"] == 0
    assert (plan(30_522, 30_522)["vector"], plan(30_522, 30_522)["tail"]) == (2, 0)
    assert plan(30_521, 30_521)["vector"] == 1
    assert plan(30, 32)["vector"] == 1, "hardly a whole vector"


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("shape", [(70, 1002), (5, 67), (300, 77)], ids=str)
def test_values_of_padded_rows(shape: tuple[int, int], dtype: torch.dtype, set_option: Any) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    rows, columns = shape
    wide = torch.full((rows, -(-columns // 8) * 8), torch.nan, dtype=dtype)
    x = wide[:, :columns].normal_()
    before = x.double()
    *_, total = stores_and_sums(dtype).execute([x])
    assert torch.equal(x.double(), 2 * before)
    assert wide[:, columns:].isnan().all(), "what lies between rows"
    assert_close(total, 2 * before.sum(0), F32, scale=4.0)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", ["sum_columns", "var_columns"])
def test_values_of_long_columns(name: str, dtype: torch.dtype, rng: np.random.Generator) -> None:
    program = PROGRAMS[name]
    fd = program.definition(dtype)
    for shape in [(1000, 65), (65, 1031), (4099, 71), (777, 64), (129, 40)]:
        inputs = random_inputs(name, shape, dtype, rng)
        for got, exact in zip(fd.execute(inputs), program.exact(inputs), strict=True):
            assert_close(got, exact, dtype, scale=2.0)


def test_deviations_from_a_large_mean(rng: np.random.Generator) -> None:
    """Accumulating several rows at once, by their own mean, is as accurate as one by one."""
    fd = PROGRAMS["var_columns"].definition()
    x = torch.from_numpy(rng.normal(3000.0, 1.0, size=(5000, 64))).to(F32)
    variance, mean = fd.execute([x])
    assert ((variance - x.double().var(0)).abs() < 5e-5 * x.double().var(0)).all()
    assert ((mean - x.double().mean(0)).abs() < 3000 * 2.0**-22).all()


def test_reduced_dims_need_not_be_neighbours() -> None:
    """A reduction over dims 0 and 2 of 4 in memory keeps the innermost dim."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * 4)
    fd.add_output(fd.ops.sum(x, [0, 2]))
    (kernel,) = kernels_for(fd, [(8, 5, 9, 64)])
    assert kernel["plan"]["scheduler"] == "outer"
    given = torch.randn(8, 5, 9, 64)
    (got,) = fd.execute([given])
    assert_close(got, given.double().sum((0, 2)), F32)


def bucket(n: int) -> int:
    return max(0, _core_testing.driver.bucket_of(n))


def test_a_plan_sees_no_size(rng: np.random.Generator) -> None:
    fd = PROGRAMS["sum_columns"].definition()
    seen: dict[object, object] = {}
    met = 0
    for _ in range(800):
        rows, columns = int(2 ** rng.uniform(1, 16)), int(2 ** rng.uniform(1, 14))
        facts = bucket(rows), bucket(columns), columns % 4 == 0, columns % 2 == 0
        plans = [k["plan"] for k in kernels_for(fd, [(rows, columns)])]
        met += facts in seen
        assert seen.setdefault(facts, plans) == plans, (rows, columns)
    assert met > 30  # equal hints occurred often enough to be tested


@pytest.mark.parametrize(
    ("name", "shape", "unroll"),
    [
        ("sum_columns", (50, 300), 9),
        ("sum_columns", (5000, 24), 32),
        ("softmax_columns", (50, 300), 16),
    ],
)
def test_changed_plans_run(
    name: str, shape: tuple[int, int], unroll: int, rng: np.random.Generator
) -> None:
    program = PROGRAMS[name]
    fd, inputs = program.definition(), random_inputs(name, shape, F32, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert plan["unroll"] != unroll
    (got,) = fd.execute(inputs, plan=plan.replace(unroll=unroll))
    assert_close(got, program.exact(inputs)[0], F32)


@pytest.mark.parametrize(
    "changes", [{"unroll": 33}, {"threads_x": 64}, {"unroll": 0}, {"grid_blocks": 0}]
)
def test_plan_1(changes: dict[str, int], rng: np.random.Generator) -> None:
    fd = PROGRAMS["sum_columns"].definition()
    inputs = random_inputs("sum_columns", (500, 30), F32, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    with pytest.raises(UserError, match="is not allowed; expected") as caught:
        fd.execute(inputs, plan=plan.replace(**changes))
    assert caught.value.rule == "plan-1"
