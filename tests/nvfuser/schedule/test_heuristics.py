"""fuser/nvfuser/schedule/heuristics.py: nvFuser's schedulers and parameters for fuser's plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import (
    FusionDefinition,
    MatmulParams,
    Plan,
    PointwiseParams,
    ReductionParams,
    SchedulerType,
    UserError,
    schedule,
)
from fuser.nvfuser.schedule.heuristics import params_of, scheduler_named
from fuser.nvfuser.schedule.params import changed

ONES = torch.ones


def defined(build: Callable[..., Any], *inputs: torch.Tensor) -> FusionDefinition:
    fd = FusionDefinition()
    results = build(fd, *[fd.from_pytorch(value) for value in inputs])
    for result in results if isinstance(results, tuple) else (results,):
        fd.add_output(result)
    return fd


def backward(fd: FusionDefinition, x: Any, g: Any) -> Any:
    diff = x - fd.ops.mean(x, [1], keepdim=True)
    rows = g * diff - fd.ops.mean(g * diff, [1], keepdim=True)
    return fd.ops.sum(g * diff, [0]), fd.ops.sum(g, [0]), rows


@pytest.mark.parametrize(
    ("build", "shapes", "names"),
    [
        (lambda fd, x: fd.ops.relu(x), [(8, 64)], ["pointwise"]),
        (lambda fd, x, y: x * y, [(8, 64), (64,)], ["pointwise"]),
        (
            lambda fd, x, y: fd.ops.permute(x, [1, 0]) + y,
            [(256, 256), (256, 256)],
            ["transpose", "pointwise"],
        ),
        (lambda fd, x: fd.ops.sum(x, [1]), [(64, 128)], ["reduction"]),
        (lambda fd, x: fd.ops.sum(x, [0]), [(640, 128)], ["reduction"]),
        (lambda fd, x: fd.ops.softmax(x, 1), [(64, 128)], ["inner_persistent"]),
        (
            lambda fd, x: x - fd.ops.mean(x, [0], keepdim=True),
            [(64, 128)],
            ["outer_persistent"],
        ),
        (backward, [(1024, 256), (1024, 256)], ["inner_outer_persistent"]),
        (lambda fd, x, y: x @ y, [(64, 64), (64, 64)], ["expr_eval"]),
        (lambda fd, x: fd.ops.permute(x, [1, 0]), [(4, 8)], ["no_op"]),
        (lambda fd, x, y: (fd.ops.sum(x, [0]), fd.ops.relu(y)), [(256, 256), (1000,)], []),
        (lambda fd, x, y: fd.ops.relu(x @ y), [(64, 64), (64, 64)], []),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, list) else "",
)
def test_schedulers_that_take_a_definition(
    build: Callable[..., Any], shapes: list[tuple[int, ...]], names: list[str]
) -> None:
    inputs = [ONES(*shape) for shape in shapes]
    fd = defined(build, *inputs)
    found = schedule.find_compatible_schedulers(fd.fusion, inputs)
    assert [kind.name for kind in found] == names
    for kind in SchedulerType:
        accepted, reason = schedule.can_schedule(fd.fusion, kind, inputs)
        assert accepted == (kind.name in names)
        assert bool(reason) != accepted
    if not names:
        with pytest.raises(UserError, match=r"compute_heuristics\(\): ") as caught:
            schedule.compute_heuristics(fd.fusion, SchedulerType.pointwise, inputs)
        assert caught.value.rule == "by-hand-scheduler"


def test_parameters_stand_for_a_plan() -> None:
    inner = Plan(scheduler="inner", threads_x=64, threads_y=2, unroll=3, vector=4, persistent_in=1)
    found = params_of("inner_persistent", inner)
    assert isinstance(found, ReductionParams)
    assert (found.lparams.bdimx, found.lparams.bdimy) == (64, 2)
    assert found.vectorize_inner_reduction
    assert found.unroll_factor_inner_reduction == 4
    assert found.unroll_factor_top_of_vectorization == 3
    assert found.persistent_kernel
    assert found.fastest_dim
    outer = Plan(scheduler="outer", threads_x=8, threads_y=32, unroll=5, vector=2, persistent_in=3)
    found = params_of("reduction", outer)
    assert isinstance(found, ReductionParams)
    assert not found.persistent_kernel
    assert (found.vectorize_iter_dom, found.unroll_factor_iter_dom) == (True, 2)
    assert found.unroll_factor_inner_reduction == 5
    pointwise = params_of("pointwise", Plan(scheduler="pointwise", threads=128, vector=4))
    assert isinstance(pointwise, PointwiseParams)
    assert (pointwise.vectorization_factor, pointwise.lparams.bdimx) == (4, 128)
    assert isinstance(params_of("matmul", inner), MatmulParams)


def test_changed_fields() -> None:
    base = PointwiseParams(vectorization_factor=4)
    params = PointwiseParams(vectorization_factor=2, break_point=1)
    params.lparams.bdimx = 64
    params.cparams.maxrregcount = 32
    assert changed(params, base) == {"vectorization_factor": 2, "break_point": 1, "bdimx": 64}
    assert changed(base, base) == {}
    with pytest.raises(AttributeError):
        params.vectorisation_factor = 2  # type: ignore[attr-defined]
    assert MatmulParams(tile=3).tile == 3  # type: ignore[attr-defined]


def test_schedulers_are_named_by_the_enumeration() -> None:
    assert scheduler_named(SchedulerType.reduction, "schedule") == "reduction"
    for wrong in ("reduction", None, 3):
        with pytest.raises(UserError, match=r"^schedule\(\): scheduler_type: ") as caught:
            scheduler_named(wrong, "schedule")
        assert caught.value.rule == "by-hand-scheduler"
