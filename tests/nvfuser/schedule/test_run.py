"""fuser/nvfuser/schedule/run.py: values under schedules by hand, and the plans that follow them."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import fuser
from fuser import (
    DataType,
    FusionDefinition,
    KernelExecutor,
    LaunchParams,
    MemoryType,
    ParallelType,
    PointwiseParams,
    SchedulerType,
    UserError,
    schedule,
)
from fuser.nvfuser.schedule import run
from fuser.nvfuser.schedule.graph import schedule_of

P = ParallelType
Build = Callable[..., Any]


def defined(build: Build, *inputs: torch.Tensor) -> tuple[FusionDefinition, list[Any], Any]:
    fd = FusionDefinition()
    tensors = [fd.from_pytorch(value) for value in inputs]
    result = build(fd, *tensors)
    fd.add_output(result)
    return fd, tensors, result


def normal(rng: np.random.Generator, *sizes: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(sizes).astype(np.float32))


@contextmanager
def refusals(rule: str) -> Iterator[None]:
    """Accepts UserErrors whose rule begins with `rule`."""
    try:
        yield
    except UserError as error:
        if not error.rule.startswith(rule):
            raise


def taken(fd: FusionDefinition) -> str:
    """The lines of the first kernel, without the sources in parentheses."""
    assert fd.ke.report is not None
    return "; ".join(line.partition(" (")[0] for line in fd.ke.report.taken[0])


# ---- the direct way: primitives on tensors, then manual_execute()


def schedule_pointwise(x: Any, y: Any) -> None:
    copied = x.cache_after()
    y.cache_before()
    y.merge(0).split(0, 4 * 64).split(1, 4)
    schedule.transform_like(y)
    y.axis(0).parallelize(P.grid_x)
    y.axis(1).parallelize(P.block_x)
    schedule.parallelize_like(y)
    for tensor in (copied, y):
        tensor.axis(-1).parallelize(P.vectorize)
    schedule.inline_most()


def test_pointwise(rng: np.random.Generator) -> None:
    x = normal(rng, 64, 512)
    fd, (t0,), y = defined(lambda fd, x: fd.ops.relu(x) * 2.0, x)
    schedule_pointwise(t0, y)
    (got,) = fd.manual_validate([x])
    assert got.equal(x.relu() * 2)
    assert taken(fd) == "threads=64 instead of 128; vector=4"
    # other sizes: planned again, still right
    x = normal(rng, 33, 7)
    assert fd.manual_execute([x])[0].equal(x.relu() * 2)
    assert fd.execute([x])[0].equal(x.relu() * 2)


def test_a_cpu_kernel_follows(
    rng: np.random.Generator, set_option: Callable[[str, object], None]
) -> None:
    set_option("FUSER_HOST_ARCH", 0)
    set_option("FUSER_CPU_ISA", "generic")
    x = normal(rng, 64, 512)
    fd, _, y = defined(lambda fd, x: fd.ops.relu(x) * 2.0, x)
    y.split(1, 16).split(1, 8)
    y.axis(0).parallelize(P.grid_x)
    y.axis(1).parallelize(P.grid_y)
    y.axis(3).parallelize(P.block_x)
    (got,) = fd.manual_validate([x])
    assert got.equal(x.relu() * 2)
    assert taken(fd) == "lanes=16 instead of 8; task=128 instead of 16384"
    fd, _, _ = defined(lambda fd, x: fd.ops.sum(x, [1]), x)
    params = schedule.compute_heuristics(fd.fusion, SchedulerType.reduction, [x])
    assert (params.unroll_factor_inner_reduction, params.lparams.bdimx) == (16, 1)


def test_broadcast(rng: np.random.Generator) -> None:
    x, row = normal(rng, 640, 128), normal(rng, 128)
    fd, _, y = defined(lambda fd, x, row: x * row, x, row)
    y.merge(0).split(0, 256)
    y.axis(0).parallelize(P.grid_x)
    y.axis(1).parallelize(P.block_x)
    schedule.transform_like(y)
    schedule.parallelize_like(y)
    schedule.inline_most()
    assert fd.manual_execute([x, row])[0].equal(x * row)
    assert taken(fd) == "threads=256 instead of 128"


def test_reduction_with_rfactor(rng: np.random.Generator) -> None:
    x = normal(rng, 64, 4096)
    fd, _, total = defined(lambda fd, x: fd.ops.sum(x, [1]), x)
    total.split(1, 128).split(1, 4)
    first = total.rfactor([1])
    total.axis(0).parallelize(P.grid_x)
    total.axis(-1).parallelize(P.block_x)
    schedule.transform_like(first)
    schedule.parallelize_like(total)
    schedule.inline_most()
    (got,) = fd.manual_validate([x])
    torch.testing.assert_close(got.double(), x.double().sum(1), rtol=1e-5, atol=1e-4)
    assert taken(fd) == "threads_x=128 instead of 256; threads_y=1; unroll=8 instead of 4"
    assert any("rfactor" in line for line in fd.ke.report.kept)  # type: ignore[union-attr]


def test_outer_reduction(rng: np.random.Generator) -> None:
    x = normal(rng, 640, 128)
    fd, _, total = defined(lambda fd, x: fd.ops.sum(x, [0]), x)
    total.split(0, 16).split(2, 8).reorder({0: -1})
    first = total.rfactor([-1])
    total.axis(0).parallelize(P.block_y)
    total.axis(1).parallelize(P.grid_x)
    total.axis(2).parallelize(P.block_x)
    schedule.transform_like(first)
    schedule.parallelize_like(total)
    (got,) = fd.manual_validate([x])
    torch.testing.assert_close(got.double(), x.double().sum(0), rtol=1e-5, atol=1e-4)
    assert taken(fd) == "threads_x=8; threads_y=16 instead of 32"


def test_transpose(rng: np.random.Generator) -> None:
    x, y = normal(rng, 256, 512), normal(rng, 512, 256)
    fd, (t0, _), result = defined(lambda fd, x, y: fd.ops.permute(x, [1, 0]) + y, x, y)
    result.cache_before()
    tile = t0.cache_after()
    tile.set_memory_type(MemoryType.shared)
    result.split(0, 32).split(2, 32).reorder({1: 2, 2: 1}).merge(0)
    schedule.transform_like(result)
    for tensor in (result, tile):
        tensor.merge(1).split(1, 64)
        tensor.axis(0).parallelize(P.grid_x)
        tensor.axis(-1).parallelize(P.block_x)
    schedule.inline_most()
    assert fd.manual_execute([x, y])[0].equal(x.t() + y)
    assert (
        taken(fd) == "threads=64 instead of 256; tile_y=32 instead of 64; tile_x=32 instead of 64"
    )


def test_each_kernel_follows_its_own_tensors(rng: np.random.Generator) -> None:
    x, y = normal(rng, 256, 256), normal(rng, 1000)
    fd = FusionDefinition()
    a, b = fd.from_pytorch(x), fd.from_pytorch(y)
    total, positive = fd.ops.sum(a, [0]), fd.ops.relu(b)
    fd.add_output(total)
    fd.add_output(positive)
    positive.split(0, 512)
    positive.axis(1).parallelize(P.block_x)
    first, second = fd.manual_execute([x, y])
    torch.testing.assert_close(first.double(), x.double().sum(0), rtol=1e-5, atol=1e-4)
    assert second.equal(y.relu())
    assert fd.ke.report is not None
    assert fd.ke.report.taken[0] == []
    assert fd.ke.report.taken[1][0].startswith("threads=512 instead of 128 (T3: ithreadIdx.x")
    assert str(fd.ke.report).splitlines()[0].endswith(": outer")


def test_tensors_that_accesses_move_belong_to_a_kernel(rng: np.random.Generator) -> None:
    x, row = normal(rng, 64, 512), normal(rng, 512)
    fd, _, _ = defined(lambda fd, x, row: x * row, x, row)
    wide = fd.sched.tensors()[2]
    assert wide.op == "broadcast"
    wide.split(1, 64).parallelize(2, P.block_x)
    assert fd.manual_execute([x, row])[0].equal(x * row)
    assert taken(fd) == "threads=64 instead of 128"
    assert fd.ke.report is not None
    assert fd.ke.report.kept == []


def test_definitions_without_kernels() -> None:
    x = torch.ones(4, 3)
    fd, (t0,), result = defined(lambda fd, x: fd.ops.permute(x, [1, 0]), x)
    t0.split(0, 2)
    result.axis(0).parallelize(P.block_x)
    assert fd.manual_execute([x])[0].equal(x.t())
    expected = f"not taken over: T1: {result.axis(0)}: no kernel computes this tensor"
    assert str(fd.ke.report) == expected


def test_products_of_matrices_by_streams(rng: np.random.Generator) -> None:
    """Torch multiplies; axes of streams are recorded, and the options of nvFuser ignored."""
    x, w = normal(rng, 8, 16), normal(rng, 16, 12)
    fd, (_, weight), product = defined(lambda fd, x, w: fd.ops.matmul(x, w), x, w)
    for tensor in (weight, product):
        tensor.outer_split(1, 3)
        tensor.axis(1).parallelize(P.stream)
        tensor.set_allocation_domain(tensor.get_loop_domain(), True)
    (got,) = fd.execute([x, w], _enable_options=["host_ir_lowering"])
    torch.testing.assert_close(got, x @ w)
    torch.testing.assert_close(fd.manual_validate([x, w])[0], x @ w)
    lines = str(fd.ke.report).splitlines()
    assert lines[-1] == f"not taken over: T2: {product.axis(1)}: no kernel computes this tensor"
    assert str(product.axis(1)).startswith("iStream")


def test_bindings_of_inputs_have_no_effect(rng: np.random.Generator) -> None:
    x = normal(rng, 64, 512)
    fd, (t0,), _ = defined(lambda fd, x: fd.ops.relu(x), x)
    t0.split(1, 64)
    t0.axis(2).parallelize(P.block_x)
    t0.axis(0).parallelize(P.block_y)
    assert fd.manual_execute([x])[0].equal(x.relu())
    assert taken(fd) == ""


def test_random_schedules_keep_values(rng: np.random.Generator) -> None:
    """Any sequence of primitives runs, and the values are those of execute()."""
    x, y = normal(rng, 37, 96), normal(rng, 96)
    ran = 0
    bound = [P.grid_x, P.grid_y, P.block_x, P.block_y, P.unroll, P.serial]
    for _ in range(20):
        fd, _, _ = defined(lambda fd, x, y: fd.ops.softmax(x * y, 1), x, y)
        expected = fd.execute([x, y])[0]
        for _ in range(10):
            view = fd.sched.tensors()[int(rng.integers(len(fd.sched.tensors())))]
            place = int(rng.integers(view.ndim))
            with refusals("by-hand-"):
                match rng.integers(5):
                    case 0:
                        view.split(place, int(rng.integers(1, 40)))
                    case 1:
                        view.merge(place)
                    case 2:
                        view.parallelize(place, bound[int(rng.integers(len(bound)))])
                    case 3:
                        view.cache_after()
                    case _:
                        schedule.transform_like(view)
        with refusals("by-hand-threads"):
            (got,) = fd.manual_execute([x, y])
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
            ran += 1
    assert ran > 5


# ---- rules of a run


def test_a_block_has_at_most_1024_threads() -> None:
    x = torch.ones(10, 1024)
    fd, _, total = defined(lambda fd, x: fd.ops.sum(x, [1]), x)
    total.axis(0).parallelize(P.block_y)
    total.axis(1).parallelize(P.block_x)
    with pytest.raises(RuntimeError, match="at most 1024 threads in a block, got 10240") as caught:
        fd.manual_execute([x])
    assert isinstance(caught.value, UserError)
    assert caught.value.rule == "by-hand-threads"
    few = torch.ones(1, 1024)
    assert fd.manual_execute([few])[0].equal(few.sum(1))


@pytest.mark.parametrize(
    ("primitives", "expected"),
    [
        (lambda x, y: y.axis(1).parallelize(P.vectorize), "a copy, got exp"),
        (lambda x, y: x.cache_after().axis(0).parallelize(P.vectorize), "the innermost axis"),
        (lambda x, y: x.cache_after().axis(1).parallelize(P.vectorize), "at most 16 bytes"),
        (
            lambda x, y: x.cache_after().split(1, 3).axis(2).parallelize(P.vectorize),
            "a power of two",
        ),
        (
            lambda x, y: x.cache_after().split(1, 8).axis(2).parallelize(P.vectorize),
            "got 8 elements of 4 bytes",
        ),
    ],
    ids=["no copy", "outer", "symbolic", "odd", "long"],
)
def test_vectorized_axes_are_checked(primitives: Build, expected: str) -> None:
    x = torch.ones(8, 64)
    fd, (t0,), y = defined(lambda fd, x: fd.ops.exp(x), x)
    primitives(t0, y)
    with pytest.raises(UserError, match=expected) as caught:
        fd.manual_execute([x])
    assert caught.value.rule == "by-hand-vectorize"


def test_wrong_inputs_raise_the_errors_of_a_run() -> None:
    x = torch.ones(8, 64)
    fd, _, y = defined(lambda fd, x: fd.ops.exp(x), x)
    y.split(0, 2)
    for wrong, rule in [([], "argument-count"), ([x.double()], "argument-dtype")]:
        with pytest.raises(UserError) as caught:
            fd.manual_execute(wrong)
        assert caught.value.rule == rule


def test_a_schedule_sees_only_inputs_that_can_run() -> None:
    x = torch.ones(8, 64)
    fd = Norm(x)
    for wrong in ([], [x.double()], [x.to_sparse()], [3]):
        with pytest.raises(UserError) as caught:
            fd.execute(wrong)
        with pytest.raises(UserError) as planned:
            fd.execute(wrong, override_user_schedule=True)
        assert caught.value.rule == planned.value.rule
    assert fd.calls == 0


def test_manual_validate_compares() -> None:
    x = torch.ones(8, 64)
    fd, _, y = defined(lambda fd, x: fd.ops.exp(x), x)
    y.split(0, 2)
    assert fd.manual_validate([x], [x.exp()])[0].equal(fd.execute([x])[0])
    with pytest.raises(UserError) as caught:
        fd.manual_validate([x], [x])
    assert caught.value.rule == "validate-2"


# ---- KernelExecutor


def test_kernel_executor(rng: np.random.Generator) -> None:
    x = normal(rng, 64, 512)
    fd, (t0,), y = defined(lambda fd, x: fd.ops.relu(x) * 2.0, x)
    for ask in (lambda: fd.ke, lambda: KernelExecutor().run([x])):
        with pytest.raises(UserError) as caught:
            ask()
        assert caught.value.rule == "by-hand-executor"
    schedule_pointwise(t0, y)
    executor = KernelExecutor()
    assert not executor.is_compiled()
    executor.compile(fd.fusion, [x])
    assert executor.is_compiled()
    assert not executor.is_programmatic_dependent_launch_enabled()
    assert executor.run([x])[0].equal(x.relu() * 2)
    executor.compile(fd.fusion, [x], LaunchParams(bdimx=32, bdimy=8))
    assert executor.report is not None
    assert executor.report.plans[0].threads == 256
    executor.run([x[:3]])
    assert executor.report.plans[0].threads == 256, "the constraints of compile()"
    executor.run([x], LaunchParams(bdimx=96))
    assert executor.report.plans[0].threads == 96


def test_a_schedule_is_translated_once(
    rng: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    x = normal(rng, 64, 512)
    fd, _, y = defined(lambda fd, x: fd.ops.relu(x), x)
    y.split(1, 64)
    with caplog.at_level(logging.INFO, logger="fuser.schedule"):
        for _ in range(3):
            fd.manual_execute([x])
        assert len(caplog.records) == 1
        y.axis(2).parallelize(P.block_x)
        fd.manual_execute([x])
        assert len(caplog.records) == 2
        assert taken(fd) == "threads=64 instead of 128"
        fd.manual_execute([x[:, :256]])
        params = PointwiseParams(vectorization_factor=1)
        fd.manual_execute([x], params)
        params.vectorization_factor = 2
        fd.manual_execute([x], params)
        assert len(caplog.records) == 5


# ---- the legacy way: schedule() of a subclass


class Norm(FusionDefinition):
    """x / sum(x) by rows, scheduled by hand for blocks of `threads` threads."""

    def __init__(self, example: torch.Tensor, threads: int = 256) -> None:
        super().__init__()
        self.example, self.threads, self.calls = example, threads, 0

    def definition(self) -> None:
        self.t0 = self.from_pytorch(self.example)
        wide = self.ops.cast(self.t0, DataType.Float)
        total = self.ops.sum(wide, dims=[-1])
        self.total = self.ops.broadcast(total, [False, True])
        self.result = self.ops.div(wide, self.total)
        self.add_output(self.result)

    def schedule(self) -> None:
        self.calls += 1
        copied = self.sched.cache_after(self.t0)
        self.sched.set_memory_type(copied, MemoryType.shared)
        self.sched.cache_before(self.result)
        self.sched.split(self.total, dim=-1, factor=self.threads * 4)
        self.sched.split(self.total, dim=-1, factor=4)
        self.sched.transform_like(self.total)
        reductions = list(filter(self.sched.is_reduction, self.sched.tensors()))
        assert len(reductions) == 1
        self.sched.rfactor(reductions[0], dims=[-1])
        self.sched.parallelize(self.total, 0, P.grid_x)
        self.sched.parallelize(self.total, -2, P.block_x)
        self.sched.parallelize_like(self.total)
        self.sched.parallelize(copied, -1, P.vectorize)
        self.sched.parallelize(self.result, -1, P.vectorize)
        self.sched.inline_most()


def test_normalization_by_a_subclass(rng: np.random.Generator) -> None:
    x = normal(rng, 64, 4096).abs()
    fd = Norm(x)
    expected = (x.double() / x.double().sum(1, keepdim=True)).float()
    for _ in range(2):
        torch.testing.assert_close(fd.execute([x])[0], expected, rtol=1e-5, atol=1e-9)
    assert fd.calls == 1, "once for equal inputs"
    text = fd.sched.report([x])
    assert "threads_x=256 instead of 512 (T4: ithreadIdx.x" in text
    assert "unroll=4 instead of 2 (T7: serial reduced axes)" in text
    assert "persistent_in=1 instead of 2: persistent_in=2 is not allowed; expected 1" in text
    assert ".rfactor(axes=(3,)): the scheduler chooses the order of a reduction" in text
    fd.validate([x[:5]])
    assert fd.calls == 2
    fd.execute([x], override_user_schedule=True)
    assert fd.calls == 2
    assert fd.execute([x], profile=True)[0].equal(fd.execute([x])[0])


def test_a_given_plan_replaces_the_schedule(rng: np.random.Generator) -> None:
    x = normal(rng, 64, 4096).abs()
    fd = Norm(x)
    plan = fd.plan([x])
    assert fd.execute([x], plan=plan)[0].equal(fd.execute([x], override_user_schedule=True)[0])
    assert fd.calls == 0


def test_schedule_as_an_attribute(rng: np.random.Generator) -> None:
    x = normal(rng, 64, 512)
    fd, _, y = defined(lambda fd, x: fd.ops.relu(x), x)
    assert fd.execute([x])[0].equal(x.relu())
    seen = []

    def with_threads(threads: int) -> Callable[[], None]:
        def written() -> None:
            fd.sched.split(y, -1, threads)
            fd.sched.parallelize(y, -1, P.block_x)
            seen.append(fd.sched.to_string(y))

        return written

    for threads in (32, 64, 32):
        fd.schedule = with_threads(threads)  # type: ignore[method-assign]
        assert fd.execute([x])[0].equal(x.relu())
        assert f"threads={threads} instead of 128" in fd.sched.report([x])
    assert [text.count("split") for text in seen] == [0, 0, 0]
    assert len({text.split("{")[-1] for text in seen}) == 2


def test_errors_of_a_schedule_reach_the_caller() -> None:
    x = torch.ones(8, 64)
    fd = Norm(x, threads=0)
    for _ in range(2):
        with pytest.raises(UserError, match="expected an integer above 0, got 0") as caught:
            fd.execute([x])
        assert caught.value.rule == "by-hand-factor"
    fd.threads = 32
    torch.testing.assert_close(fd.execute([x])[0], x / 64)


def test_copies_have_no_schedule(rng: np.random.Generator) -> None:
    x = normal(rng, 64, 512)
    fd, (t0,), y = defined(lambda fd, x: fd.ops.relu(x) * 2.0, x)
    schedule_pointwise(t0, y)
    expected = fd.manual_execute([x])[0]
    for again in (copy.deepcopy(fd), pickle.loads(pickle.dumps(fd))):
        assert again.execute([x])[0].equal(expected)
        assert schedule_of(again.fusion.builder).primitives == []


def test_a_definition_is_freed_with_its_schedule(rng: np.random.Generator) -> None:
    def scheduled() -> FusionDefinition:
        fd, _, y = defined(lambda fd, x: fd.ops.relu(x), x)
        fd.schedule = lambda: fd.sched.split(y, 0, 2)  # type: ignore[method-assign]
        fd.execute([x])
        fd.manual_execute([x])
        return fd

    x = normal(rng, 64, 512)
    dead = weakref.ref(scheduled())
    gc.collect()
    assert dead() is None


# ---- reports


def test_inspection_follows_the_schedule(rng: np.random.Generator) -> None:
    x = normal(rng, 64, 4096).abs()
    fd = Norm(x)
    planned, explained = fuser.explain(Norm(x, threads=1), x), fuser.explain(fd, x)
    assert fd.calls == 1
    assert "threads_x=256, threads_y=1, unroll=4" in explained.steps[0].plan
    assert "\nschedule by hand:\nkernel 0, " in str(explained)
    assert explained.steps[0].plan.count("=") == planned.steps[0].plan.count("=")
    text = fd.scheduled_fusion_ir_for([x], tensor_transforms=True)
    assert explained.steps[0].plan in text
    overridden = fd.scheduled_fusion_ir_for([x], override_user_schedule=True)
    assert overridden != fd.scheduled_fusion_ir_for([x])
    assert fd.cuda_code_for([x]) != fd.cuda_code_for([x], override_user_schedule=True)
    fd.execute([x])
    assert fd.last_cuda_code() == fd.cuda_code_for([x])
    assert fd.calls == 1


def test_definitions_print_their_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    fd, _, y = defined(lambda fd, x: fd.ops.relu(x), torch.ones(8, 64))
    fd.fusion.print_math()
    assert capsys.readouterr().out == f"{fd!r}\n"
    y.split(1, 16)
    fd.fusion.print_math()
    assert "by factor 16" in capsys.readouterr().out


def test_one_line_goes_to_the_log(
    rng: np.random.Generator, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    x = normal(rng, 64, 512)
    fd, (t0,), y = defined(lambda fd, x: fd.ops.relu(x), x)
    schedule_pointwise(t0, y)
    t0.swizzle1d(0, P.block_x)
    with caplog.at_level(logging.INFO, logger="fuser.schedule"):
        fd.manual_execute([x])
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("schedule by hand: threads=64 instead of 128 (T1: ithreadIdx.x")
    assert "cache_after, cache_before: copies are in registers" in line
    assert "not taken over: T0.swizzle1d(" in line
    assert capsys.readouterr().err == ""


def test_launch_logs_have_the_line(
    rng: np.random.Generator, set_option: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    x = normal(rng, 64, 512)
    fd, _, y = defined(lambda fd, x: fd.ops.relu(x), x)
    y.split(0, 2)
    set_option("FUSER_LOG", "1")
    fd.manual_execute([x])
    expected = "fuser: schedule by hand: nothing; not taken over: split: no axis is bound\n"
    assert expected in capsys.readouterr().err


def test_a_kernel_without_room_runs_as_planned(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled kernel may need more than the check of its plan could know."""
    x = normal(rng, 64, 512)
    fd, _, y = defined(lambda fd, x: fd.ops.relu(x), x)
    y.split(1, 64)
    y.axis(2).parallelize(P.block_x)
    made = run.prepare(fd, schedule_of(fd.fusion.builder), [x])
    assert made.plans != made.planned

    class Executor:
        """Refuses every plan, as a kernel that spills does."""

        def execute(self, inputs: Any, device: Any, plan: Any = None) -> Any:
            if plan is not None:
                raise UserError("plan: threads=64 needs 1 MB", rule="plan-1")
            return fd.fec.executor.execute(inputs, device)

    class Target:
        class fec:
            executor = Executor()

    assert run.execute(Target, [x], None, made)[0].equal(x.relu())
    assert made.plans == made.planned
    assert made.kept[-1] == "every change of a plan: plan: threads=64 needs 1 MB"
    assert fuser.evaluate(fd, [x])[0].float().equal(x.relu())
