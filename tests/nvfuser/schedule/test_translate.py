"""fuser/nvfuser/schedule/translate.py: bindings and parameters as fields of a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import (
    FusionDefinition,
    LaunchParams,
    MatmulParams,
    MemoryType,
    ParallelType,
    Plan,
    PointwiseParams,
    ReductionParams,
    SchedulerHyperParameters,
    schedule,
)
from fuser.nvfuser.schedule.domains import Extent
from fuser.nvfuser.schedule.graph import schedule_of, view_of
from fuser.nvfuser.schedule.translate import (
    Dims,
    Request,
    Requests,
    nearest,
    notes_of_primitives,
    requests_of_bindings,
    requests_of_launch,
    requests_of_limits,
    requests_of_params,
)

P = ParallelType
POINTWISE = Plan(scheduler="pointwise", threads=128, vector=4)
ROWS = Plan(scheduler="rows", threads_x=32, threads_y=4, threads_z=1, unroll=2, vector=4)
INNER = Plan(
    scheduler="inner",
    threads_x=32,
    threads_y=4,
    unroll=2,
    vector=4,
    looped=0,
    persistent_in=1,
    cluster_size=1,
)
OUTER = Plan(scheduler="outer", threads_x=8, threads_y=16, unroll=2, vector=4, looped=1)
TRANSPOSE = Plan(scheduler="transpose", threads=256, tile_x=64, tile_y=64, vector_x=4, vector_y=4)
CPU = Plan(scheduler="cpu_inner", lanes=64, task=16384, splits=0)
CPU_OUTER = Plan(scheduler="cpu_outer", lanes=32, task=16384, splits=0, block_rows=8)


def known(extent: Extent) -> int | None:
    return extent.evaluate(lambda index: None)


def requested(plan: Plan, fd: FusionDefinition) -> tuple[dict[str, int], list[str]]:
    found = Requests()
    requests_of_bindings(plan, schedule_of(fd.fusion.builder).views, known, found)
    return {request.field: request.value for request in found.fields}, found.kept


def reduction(dims: list[int]) -> tuple[FusionDefinition, Any]:
    fd = FusionDefinition()
    x = fd.define_tensor([64, 1024], contiguity=True)
    total = fd.ops.sum(x, dims)
    fd.add_output(total)
    return fd, total


# ---- bindings


def test_threads_of_a_row_and_of_rows() -> None:
    fd, total = reduction([1])
    total.split(0, 4).split(-1, 256)
    total.axis(0).parallelize(P.grid_x)
    total.axis(1).parallelize(P.block_y)
    total.axis(-1).parallelize(P.block_x)
    fields, kept = requested(INNER, fd)
    assert fields == {"threads_x": 256, "threads_y": 4, "unroll": 1}
    assert kept == [f"T1: {total.axis(0)}: the grid follows from the sizes"]
    fields, _ = requested(POINTWISE, fd)
    assert fields == {"threads": 1024}
    total.axis(1).parallelize(P.cluster_x)
    fields, _ = requested(INNER, fd)
    assert fields == {"threads_x": 256, "threads_y": 1, "unroll": 1, "cluster_size": 4}


def test_threads_of_columns() -> None:
    fd, total = reduction([0])
    total.split(0, 16).split(-1, 32)
    total.axis(1).parallelize(P.block_y)
    total.axis(3).parallelize(P.block_x)
    assert requested(OUTER, fd)[0] == {"threads_x": 32, "threads_y": 16}
    total.axis(1).parallelize(P.serial)
    total.axis(0).parallelize(P.unroll)
    assert requested(OUTER, fd)[0] == {"threads_x": 32, "threads_y": 1, "unroll": 4}


def test_threads_along_and_across_rows() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([4, 8, 16], contiguity=True)
    y = fd.ops.exp(x)
    fd.add_output(y)
    for axis, binding in enumerate((P.block_x, P.block_y, P.block_z)):
        y.axis(axis).parallelize(binding)
    assert requested(ROWS, fd)[0] == {"threads_x": 16, "threads_y": 4, "threads_z": 8}


def test_vectors_and_tiles() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([64, 64], contiguity=True)
    y = fd.ops.exp(x)
    fd.add_output(y)
    copied = x.cache_after()
    copied.set_memory_type(MemoryType.shared)
    copied.split(0, 16).split(2, 32).split(3, 2)
    copied.axis(-1).parallelize(P.vectorize)
    fields, _ = requested(TRANSPOSE, fd)
    assert fields == {"vector_x": 2, "vector_y": 2, "tile_y": 16, "tile_x": 32}
    fields, kept = requested(POINTWISE, fd)
    assert fields == {"vector": 2}
    assert kept == ["T2 in shared memory: pointwise has no persistent_in"]
    assert requested(INNER, fd)[0] == {"vector": 2, "persistent_in": 2}


def test_bindings_without_counterpart() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 64], contiguity=True)
    y = fd.ops.exp(x)
    fd.add_output(y)
    y.axis(0).parallelize(P.block_x)
    y.axis(1).parallelize(P.mma)
    fields, kept = requested(POINTWISE, fd)
    assert fields == {}
    assert kept == [
        f"T1: {y.axis(0)}: its extent depends on values",
        f"T1: {y.axis(1)}: fuser has no mma axes",
    ]


def test_equal_dims_of_a_normalization() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([4, 8], contiguity=True)
    y = fd.ops.softmax(fd.ops.permute(x, [1, 0]), 0)
    fd.add_output(y)
    views = schedule_of(fd.fusion.builder).views
    dims = Dims(views)
    row, column = (dims.of(axis) for axis in view_of(x).logical)
    assert [dims.of(axis) for axis in view_of(y).logical] == [column, row]
    assert dims.reduced == {column}
    y.merge(0).split(0, 4)
    assert dims.behind(view_of(y), y.axis(1)) == {row, column}


def test_notes_of_primitives() -> None:
    fd, total = reduction([1])
    total.split(1, 128).split(1, 4)
    total.rfactor([1])
    fusion = schedule_of(fd.fusion.builder)
    always, never = notes_of_primitives(fusion)
    assert always == []
    assert never == [
        "T1.rfactor(axes=(1,)): the scheduler chooses the order of a reduction",
        "split: no axis is bound",
    ]
    total.axis(0).parallelize(P.block_x)
    total.cache_before()
    schedule.inline_most()
    always, never = notes_of_primitives(fusion)
    assert [line.partition(":")[0] for line in always] == ["cache_before", "inline_most"]
    assert len(never) == 1


# ---- parameters


def of_params(plan: Plan, name: str, params: Any) -> tuple[dict[str, int], list[str]]:
    found = Requests()
    requests_of_params(plan, name, params, found)
    return {request.field: request.value for request in found.fields}, found.kept


def test_parameters_of_pointwise() -> None:
    params = PointwiseParams(vectorization_factor=2, unroll_factor_outer=3, break_point=1)
    params.lparams = LaunchParams(bdimx=32, bdimy=8)
    fields, kept = of_params(POINTWISE, "pointwise", params)
    assert fields == {"threads": 256, "vector": 2}
    assert kept == [
        "unroll_factor_outer=3: pointwise has no unroll",
        "break_point=1: fuser has no counterpart",
    ]
    fields, _ = of_params(ROWS, "pointwise", params)
    assert fields == {"threads_x": 32, "threads_y": 8, "vector": 2, "unroll": 3}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"unroll_factor_inner_reduction": 2}, {"vector": 2}),
        ({"unroll_factor_top_of_vectorization": 5}, {"unroll": 5}),
        ({"shared_mem_persistent_buffer": True}, {"persistent_in": 2}),
        (
            {"vectorize_inner_reduction": False, "unroll_factor_inner_reduction": 3},
            {"vector": 1, "unroll": 6},
        ),
    ],
    ids=str,
)
def test_parameters_of_reductions(changes: dict[str, Any], expected: dict[str, int]) -> None:
    from fuser.nvfuser.schedule.heuristics import params_of

    params = params_of("inner_persistent", INNER)
    assert isinstance(params, ReductionParams)
    assert of_params(INNER, "inner_persistent", params) == ({}, [])
    for name, value in changes.items():
        setattr(params, name, value)
    assert of_params(INNER, "inner_persistent", params) == (expected, [])


def test_parameters_of_another_kind() -> None:
    for params in (ReductionParams(), MatmulParams()):
        fields, kept = of_params(POINTWISE, "pointwise", params)
        assert fields == {}
        assert kept == [f"{type(params).__name__}: expected PointwiseParams for pointwise"]


def test_limits_and_launch_constraints() -> None:
    for plan, limits, expected in [
        (POINTWISE, SchedulerHyperParameters(), {}),
        (POINTWISE, SchedulerHyperParameters(vectorize_factor=2), {"vector": 2}),
        (POINTWISE, SchedulerHyperParameters(threads_per_block_max=64), {"threads": 64}),
        (INNER, SchedulerHyperParameters(unroll_factor=3), {"unroll": 3}),
        (INNER, SchedulerHyperParameters(threads_per_block_min=256), {"threads_x": 64}),
        (OUTER, SchedulerHyperParameters(threads_per_block_min=256), {"threads_y": 32}),
        (TRANSPOSE, SchedulerHyperParameters(vectorize_factor=1), {"vector_x": 1, "vector_y": 1}),
    ]:
        found = Requests()
        requests_of_limits(plan, limits, found)
        assert {request.field: request.value for request in found.fields} == expected
    found = Requests()
    requests_of_launch(INNER, LaunchParams(gdimx=4, bdimx=64), found)
    requests_of_launch(POINTWISE, LaunchParams(gdimx=4), found)
    assert [(request.field, request.value) for request in found.fields] == [("threads_x", 64)]


# ---- the nearest allowed plan


def warps(plan: Plan) -> str:
    """Allows threads in whole warps, and vectors of up to 4 elements if threads=64."""
    if plan.threads % 32 or plan.threads > 1024:
        return "a multiple of 32"
    if plan.vector > 4:
        return "at most 4"
    return "" if plan.vector == 4 or plan.threads == 64 else "threads=64"


@pytest.mark.parametrize(
    ("threads", "vector", "expected"),
    [
        (256, 4, (256, 4)),
        (100, 4, (128, 4)),
        (256, 8, (256, 4)),
        (64, 2, (64, 2)),
        (128, 2, (128, 4)),
        (32, 1, (32, 4)),  # the vector cannot change alone
        (4096, 64, (1024, 4)),
    ],
)
def test_the_nearest_plan(threads: int, vector: int, expected: tuple[int, int]) -> None:
    requests = [Request("threads", threads, "a"), Request("vector", vector, "b")]
    plan, lines = nearest(POINTWISE, requests, warps)
    assert (plan.threads, plan.vector) == expected
    assert warps(plan) == ""
    assert lines[0].startswith(f"threads={expected[0]}")
    assert ("instead of" in lines[0]) == (expected[0] != 128 or threads != 128)
    assert lines[1].endswith(" (b)")


def test_nothing_is_allowed_but_the_plan() -> None:
    def refusal(plan: Plan) -> str:
        return "" if plan == POINTWISE else "nothing else"

    plan, lines = nearest(POINTWISE, [Request("threads", 256, "T1")], refusal)
    assert plan == POINTWISE
    assert lines == ["threads=128 instead of 256: nothing else (T1)"]
    assert nearest(POINTWISE, [], refusal) == (POINTWISE, [])


def test_the_search_finds_the_nearest_of_all(rng: np.random.Generator) -> None:
    """By brute force over powers of two, if each field may change alone."""
    powers = [2**i for i in range(11)]
    for _ in range(30):
        drawn = rng.choice(powers, (6, 2))
        allowed = {(int(a), int(b)) for a, b in drawn} | {(128, 4), (1, 4), (128, 1)}
        wanted = (int(rng.choice(powers)), int(rng.choice(powers)))

        def refusal(plan: Plan, allowed: set[tuple[int, int]] = allowed) -> str:
            return "" if (plan.threads, plan.vector) in allowed else "no"

        def distance(pair: tuple[int, int], wanted: tuple[int, int] = wanted) -> float:
            return float(sum(abs(np.log2(a / b)) for a, b in zip(pair, wanted, strict=True)))

        requests = [Request("threads", wanted[0], ""), Request("vector", wanted[1], "")]
        plan, _ = nearest(POINTWISE, requests, refusal)
        got = (plan.threads, plan.vector)
        assert got in allowed
        assert distance(got) == pytest.approx(min(map(distance, allowed)))


def test_extents_depend_on_sizes() -> None:
    fd, total = reduction([1])
    total.split(0, 7)
    assert [known(axis.extent()) for axis in view_of(total).loop] == [10, 7, 1024]
    extent = Extent("ceilDiv", (Extent("size", (3,)), Extent("constant", (7,))))
    assert known(extent) is None
    assert extent.evaluate({3: 64}.get) == 10
    assert str(extent) == "( ceilDiv(i3, 7) )"
    assert fd.sched.to_string(total).endswith("[iS4{10}, iS5{7}, rS3{1024}]")


# ---- CPU kernels


def test_threads_and_vectors_are_lanes_and_blocks_are_tasks() -> None:
    fd, total = reduction([1])
    total.split(0, 4).split(-1, 16).split(-1, 4)
    total.axis(0).parallelize(P.grid_x)
    total.axis(1).parallelize(P.block_y)
    total.axis(3).parallelize(P.block_x)
    total.axis(4).parallelize(P.vectorize)
    fields, kept = requested(CPU, fd)
    assert fields == {"lanes": 16, "task": 4 * 1024}
    assert len(kept) == 1
    assert "a task computes these elements in turn" in kept[0]


def test_unrolled_rows_are_a_block() -> None:
    fd, total = reduction([0])
    total.split(0, 16).split(2, 8).reorder({0: -1})
    total.axis(0).parallelize(P.unroll)
    total.axis(2).parallelize(P.block_x)
    total.axis(1).parallelize(P.cluster_x)
    fields, kept = requested(CPU_OUTER, fd)
    assert fields == {"lanes": 8, "block_rows": 16}
    assert kept == [f"{view_of(total).name}: {total.axis(1)}: a CPU kernel has no cluster_x axes"]
    assert any(line.endswith("cpu_inner has no block_rows") for line in requested(CPU, fd)[1])


def test_parameters_of_cpu_kernels() -> None:
    def requests(add: Any, *arguments: Any) -> tuple[dict[str, int], list[str]]:
        found = Requests()
        add(*arguments, found)
        return {request.field: request.value for request in found.fields}, found.kept

    assert requests(requests_of_launch, CPU, LaunchParams(bdimx=16, bdimy=2))[0] == {"lanes": 32}
    limits = SchedulerHyperParameters(
        vectorize_factor=8, unroll_factor=4, threads_per_block_min=64, threads_per_block_max=128
    )
    fields, kept = requests(requests_of_limits, CPU_OUTER, limits)
    assert fields == {"lanes": 8, "block_rows": 4}
    assert kept == ["threads_per_block_min=64, threads_per_block_max=128: a task is one thread"]
    pointwise = Plan(scheduler="cpu_pointwise", lanes=32, collapsed=1, task=16384, tile_x=0)
    params = PointwiseParams(vectorization_factor=8)
    assert requests(requests_of_params, pointwise, "pointwise", params)[0] == {"lanes": 8}
    rows = ReductionParams(vectorize_inner_reduction=True, unroll_factor_inner_reduction=16)
    assert requests(requests_of_params, CPU, "reduction", rows)[0] == {"lanes": 16}
    columns = ReductionParams(
        vectorize_iter_dom=True, unroll_factor_iter_dom=16, unroll_factor_inner_reduction=4
    )
    fields, _ = requests(requests_of_params, CPU_OUTER, "reduction", columns)
    assert fields == {"lanes": 16, "block_rows": 4}
