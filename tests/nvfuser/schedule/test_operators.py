"""fuser/nvfuser/schedule/operators.py: fd.sched, and nvFuser's schedulers in schedules by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuser
from fuser import (
    FusionDefinition,
    MemoryType,
    ParallelType,
    SchedulerType,
    UserError,
    schedule,
)
from fuser.nvfuser.schedule.graph import view_of

X = torch.arange(64 * 512, dtype=torch.float32).view(64, 512) / 64 - 200


class Scheduled(FusionDefinition):
    """2 * relu(x), with the schedule that `written` makes of it."""

    def __init__(self, written: Callable[[Scheduled], Any]) -> None:
        super().__init__()
        self.written, self.returned = written, None

    def definition(self) -> None:
        self.x = self.from_pytorch(X)
        self.y = self.ops.relu(self.x) * 2.0
        self.add_output(self.y)

    def schedule(self) -> None:
        self.returned = self.written(self)


def check(fd: Scheduled) -> Any:
    """Runs the definition, and returns the value of its schedule."""
    assert fd.execute([X])[0].equal(2 * X.relu())
    return fd.returned


# ---- primitives as functions


def test_primitives_as_functions() -> None:
    def written(fd: Scheduled) -> list[str]:
        copied = fd.sched.cache_after(fd.x)
        before = fd.sched.cache_before(fd.y)
        fd.sched.merge(fd.y, dim=0)
        fd.sched.split(fd.y, dim=0, factor=256)
        fd.sched.split(fd.y, 0, 2, inner_split=False)
        fd.sched.reorder(fd.y, {0: 1})
        fd.sched.transform_like(fd.y)
        fd.sched.parallelize(fd.y, 0, ParallelType.grid_x)
        fd.sched.parallelize(fd.y, -1, ParallelType.block_x)
        fd.sched.parallelize_like(fd.y)
        fd.sched.set_memory_type(copied, MemoryType.shared)
        fd.sched.set_allocation_as_loop(copied)
        fd.sched.inline_at(fd.y, 1)
        fd.sched.inline_most()
        assert [fd.sched.is_reduction(tensor) for tensor in fd.sched.tensors()] == [False] * 5
        return [fd.sched.to_string(tensor) for tensor in (copied, before, fd.y)]

    texts = check(Scheduled(written))
    inner = "( ceilDiv(( ceilDiv(( i0 * i1 ), 256) ), 2) )"
    assert [text.partition("[")[0] for text in texts] == ["T3_s_float", "T4_l_float", "T2_g_float"]
    for text in texts:
        assert f"{{{inner}}}, iS" in text
        assert "ithreadIdx.x" in text
        assert " ca_pos( 3 )" in text


def test_reductions_as_functions() -> None:
    fd = FusionDefinition()
    x = fd.from_pytorch(X)
    total = fd.ops.sum(x, [1])
    fd.add_output(total)
    fd.sched.split(total, 1, 32)
    first = fd.sched.rfactor(total, dims=[1])
    assert fd.sched.is_reduction(first)
    partial = fd.sched.cache_before(total)
    assert not fd.sched.is_reduction(total)
    fd.sched.split(partial, 1, 4)
    second = fd.sched.reduction_factor(partial, [1])
    assert fd.sched.is_reduction(second) is True
    torch.testing.assert_close(fd.manual_execute([X])[0], X.sum(1))


def test_cache_fork_as_a_function() -> None:
    fd = FusionDefinition()
    x = fd.from_pytorch(X)
    y = fd.ops.relu(x)
    fd.add_output(y)
    fd.add_output(y * 2.0)
    fork = fd.sched.cache_fork(y)
    assert fork.is_output
    assert fd.manual_execute([X])[1].equal(2 * X.relu())


def test_the_schedule_as_text() -> None:
    fd = Scheduled(lambda fd: fd.sched.split(fd.y, 1, 128))
    check(fd)
    text = fd.sched.user_schedule_ir()
    assert text.splitlines()[:4] == [
        *("Inputs:", "  T0_g_float[iS0{i0}, iS1{i1}]", "Outputs:"),
        "  T2_g_float[iS4{i0}, iS6{( ceilDiv(i1, 128) )}, iS7{128}]",
    ]
    assert "T1_l_float[iS2{i0}, iS3{i1}]\n   = relu(T0);" in text
    assert "  Split: iS5{i1} by factor 128 -> iS6{( ceilDiv(i1, 128) )}, iS7{128}" in text
    assert "%kernel {" in text
    assert fd.sched.report([X]).splitlines()[1:] == [
        "  as planned",
        "not taken over: split: no axis is bound",
    ]


# ---- schedulers in schedule()


def test_schedulers_of_the_run() -> None:
    def written(fd: Scheduled) -> Any:
        found = fd.sched.find_compatible_schedulers()
        answers = [fd.sched.can_schedule(kind) for kind in (found[0], SchedulerType.reduction)]
        params = fd.sched.compute_pointwise_heuristics()
        params.vectorization_factor, params.lparams.bdimx = 2, 64
        fd.sched.schedule()
        return found, answers

    fd = Scheduled(written)
    found, answers = check(fd)
    assert found == [SchedulerType.pointwise]
    assert answers[0] == (True, "")
    assert not answers[1][0]
    assert "reduction does not take this definition; expected pointwise" in answers[1][1]
    report = fd.sched.report([X])
    assert "threads=64 instead of 128 (bdimx=64)" in report
    assert "vector=2 instead of 4 (vectorization_factor=2)" in report


def test_limits_of_the_run() -> None:
    def written(fd: Scheduled) -> None:
        limits = fd.sched.schedule_hyperparameters()
        limits.threads_per_block_max, limits.vectorize_factor = 32, 1
        fd.sched.schedule(SchedulerType.pointwise)

    fd = Scheduled(written)
    check(fd)
    assert "threads=32 instead of 128" in fd.sched.report([X])
    assert "vector=1 instead of 4" in fd.sched.report([X])


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        (lambda fd: [fd.sched.schedule() for _ in range(2)], "by-hand-twice"),
        (lambda fd: fd.sched.schedule(SchedulerType.reduction), "by-hand-scheduler"),
        (lambda fd: fd.sched.schedule("pointwise"), "by-hand-scheduler"),
        (lambda fd: fd.sched.compute_reduction_heuristics(), "by-hand-scheduler"),
        (lambda fd: fd.sched.compute_matmul_heuristics(), "by-hand-scheduler"),
        (lambda fd: fd.sched.can_schedule(), "by-hand-scheduler"),
        (lambda fd: fd.sched.compute_heuristics(SchedulerType.transpose), "by-hand-scheduler"),
        (lambda fd: fd.sched.split(3, 0, 4), "by-hand-tensor"),
    ],
)
def test_schedules_are_checked(written: Callable[[Scheduled], Any], rule: str) -> None:
    with pytest.raises(UserError) as caught:
        check(Scheduled(written))
    assert caught.value.rule == rule


def test_schedulers_outside_of_a_run_need_inputs() -> None:
    fd = Scheduled(lambda fd: None)
    for call in (
        fd.sched.find_compatible_schedulers,
        fd.sched.compute_pointwise_heuristics,
        fd.sched.schedule,
        lambda: fd.sched.can_schedule(SchedulerType.pointwise),
    ):
        with pytest.raises(UserError, match="expected the inputs of a run") as caught:
            call()
        assert caught.value.rule == "by-hand-inputs"
    assert fd.sched.can_schedule(fd.fusion, SchedulerType.pointwise, [X]) == (True, "")
    assert fd.sched.find_compatible_schedulers(fd.fusion, [X]) == [SchedulerType.pointwise]


# ---- the module


def test_schedulers_of_the_module() -> None:
    fd = FusionDefinition()
    x = fd.from_pytorch(X)
    y = fd.ops.sum(fd.ops.exp(x * 1e-3), [1])
    fd.add_output(y)
    kind = SchedulerType.reduction
    params = schedule.compute_heuristics(fd.fusion, kind, [X])
    assert fd.sched.compute_heuristics(fd.fusion, kind, [X]) == params
    params.unroll_factor_top_of_vectorization = 4
    params.lparams.bdimy = 1
    assert schedule.schedule(fd.fusion, kind, params) is params
    (got,) = fd.manual_validate([X])
    torch.testing.assert_close(got.double(), (X.double() * 1e-3).exp().sum(1), rtol=1e-5, atol=0)
    assert "unroll=4 instead of" in str(fd.ke.report)
    for call in (schedule.schedule, fd.sched.schedule):
        with pytest.raises(UserError, match=r"scheduled already, by reduction") as caught:
            call(fd.fusion, kind, [X])
        assert caught.value.rule == "by-hand-twice"
    again = FusionDefinition()
    fuser.clone(fd, again)
    assert schedule.schedule(again.fusion, kind, [X]).scheduler_type is kind
    assert again.manual_execute([X], params)[0].shape == (64,)


def test_warp_specialization_is_recorded() -> None:
    fd = FusionDefinition()
    x = fd.from_pytorch(X)
    fd.add_output(fd.ops.relu(x))
    schedule.warp_specialize(x, 3, 2, ParallelType.block_y)
    assert fd.manual_execute([X])[0].equal(X.relu())
    assert "not taken over: T0.warp_specialize(number_of_stages=3" in str(fd.ke.report)
    assert view_of(x).ndim == 2
