"""Packed rows: short rows, adjacent in memory, staged together through shared memory. Values on the
host executor in debug mode, which checks every access."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fuser import FusionDefinition, Plan, UserError, _core, _core_testing, testing
from fuser.ops import as_dtype
from tests.support.reducing import kernels_for

F32, BF16 = torch.float32, torch.bfloat16


def definition(
    inputs: list[Tensor], define: Callable[..., Any], static: bool = False
) -> FusionDefinition:
    fd = FusionDefinition()
    results = define(fd.ops, *(fd.from_pytorch(t, static_sizes=static) for t in inputs))
    for result in results if isinstance(results, list) else [results]:
        fd.add_output(result)
    return fd


def plan_of(inputs: list[Tensor], define: Callable[..., Any]) -> Plan:
    plan = definition(inputs, define).plan(inputs)
    assert isinstance(plan, Plan)
    return plan


def softmax(ops: Any, x: Any) -> Any:
    return ops.cast(ops.softmax(x, -1), x.dtype())


def norm(ops: Any, x: Any, weight: Any, bias: Any) -> list[Any]:
    variance, mean = ops.var_mean(x, [-1], correction=0, keepdim=True)
    rstd = ops.rsqrt(variance + 1e-5)
    return [ops.cast((x - mean) * rstd * weight + bias, x.dtype()), mean, rstd]


def norm_exact(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    return list(torch.native_layer_norm(x, x.shape[-1:], weight, bias, 1e-5))


def statistics(ops: Any, x: Any) -> list[Any]:
    return [ops.sum(x, [-1]), ops.max(x, [-1]), ops.argmax(x, -1)]


def statistics_exact(x: Tensor) -> list[Tensor]:
    return [x.sum(-1), x.amax(-1), x.argmax(-1)]


def two_results(ops: Any, x: Any, y: Any) -> list[Any]:
    """Results of two tensors of different widths: one stored before the row's sum is known, one
    after."""
    early = ops.cast(x + y, x.dtype())
    late = ops.cast((x - ops.sum(x * y, [-1], keepdim=True)) * y, y.dtype())
    return [early, late]


def two_results_exact(x: Tensor, y: Tensor) -> list[Tensor]:
    return [x + y, (x - (x * y).sum(-1, keepdim=True)) * y]


def masked(ops: Any, x: Any, mask: Any) -> Any:
    return ops.cast(ops.softmax(x * 0.5 + mask, -1), x.dtype())


def masked_exact(x: Tensor, mask: Tensor) -> list[Tensor]:
    return [torch.softmax(x * 0.5 + mask, -1)]


LENGTHS = (2, 3, 5, 7, 10, 12, 17, 31, 34, 49, 77, 100, 131)
ROWS = 1300  # ten blocks and an incomplete one, whose last vector is incomplete too


@pytest.mark.parametrize("arch", [70, 80, 90])
@pytest.mark.parametrize("dtype", [F32, BF16, torch.float16, torch.float64], ids=str)
def test_rows_of_any_length(
    arch: int, dtype: torch.dtype, set_option: Callable[[str, object], None]
) -> None:
    set_option("FUSER_HOST_ARCH", arch)
    set_option("FUSER_HOST_DEBUG", 1)
    bound = 1e-4 if dtype.itemsize >= 4 else 0.02
    cases = []
    for length in LENGTHS:
        if length % (16 // dtype.itemsize) == 0:
            continue  # complete vectors
        x = torch.randn(ROWS + length, length).to(dtype)
        weight, bias = torch.randn(2, length).to(dtype)
        for define, exact, inputs in (
            (softmax, lambda x: [torch.softmax(x, -1)], [x]),
            (norm, norm_exact, [x, weight, bias]),
            (statistics, statistics_exact, [x]),
        ):
            fd = definition(inputs, define)
            plan = fd.plan(inputs)
            assert isinstance(plan, Plan)
            assert plan.packed, length
            assert plan.vector == (1 if dtype.itemsize > 2 else math.gcd(length, 4))
            cases.append((fd, inputs, exact))
    testing.compile_batch([(fd, inputs) for fd, inputs, _ in cases])
    for fd, inputs, exact in cases:
        for got, wanted in zip(
            fd.execute(inputs), exact(*(t.double() for t in inputs)), strict=True
        ):
            torch.testing.assert_close(got.double(), wanted.double(), atol=bound, rtol=bound)


@pytest.mark.parametrize("dtype", [F32, BF16, torch.int8], ids=str)
def test_rows_of_several_axes(
    dtype: torch.dtype, set_option: Callable[[str, object], None]
) -> None:
    """Image planes as rows: dense, and every second one."""
    set_option("FUSER_HOST_DEBUG", 1)
    for planes in ((5, 6), (7, 7), (6, 5), (3, 4), (2, 11), (1, 6)):
        base = torch.randint(-9, 9, (40, 6, *planes)).to(dtype)
        for x in (base, base[:, ::2], base[::2]):

            def centred(ops: Any, x: Any) -> Any:
                wide = ops.cast(x, as_dtype(F32))
                return ops.cast(wide - ops.max(wide, [2, 3], keepdim=True), x.dtype())

            wide = x.float()
            wanted = (wide - wide.amax((2, 3), keepdim=True)).to(dtype)
            assert torch.equal(definition([x], centred).execute([x])[0], wanted), planes


@pytest.mark.parametrize("rows", [35, ROWS])
@pytest.mark.parametrize("static", [False, True], ids=["run_time", "static"])
def test_results_of_other_widths_and_walks(
    static: bool, rows: int, set_option: Callable[[str, object], None]
) -> None:
    """A result reuses the shared memory of an operand after its last load; other results have their
    own. With static sizes each is a separate buffer, with symbolic sizes all are one."""
    set_option("FUSER_HOST_DEBUG", 1)
    for widths in ((F32, F32), (F32, BF16), (BF16, F32), (torch.float64, torch.float16)):
        x, y = (torch.randn(rows, 17).to(dtype) for dtype in widths)
        fd = definition([x, y], two_results, static)
        got = fd.execute([x, y])
        plan = fd.plan([x, y])
        assert isinstance(plan, Plan)
        assert plan.packed == 0b1111
        for mine, wanted in zip(got, two_results_exact(x.double(), y.double()), strict=True):
            tolerance = 0.05 if mine.dtype.itemsize < 4 else 1e-4
            torch.testing.assert_close(mine.double(), wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("length", [197, 333, 511, 777])
@pytest.mark.parametrize("dtype", [torch.int8, BF16, F32], ids=str)
def test_the_rows_of_a_block_are_whole_vectors(
    dtype: torch.dtype, length: int, set_option: Callable[[str, object], None]
) -> None:
    """For any number of threads per row, a block starts at a 16-byte boundary."""
    set_option("FUSER_HOST_DEBUG", 1)
    x = torch.randint(-99, 99, (260, length)).to(dtype)
    for define in (softmax, lambda ops, x: ops.argmax(x, -1)):
        fd = definition([x], lambda ops, x, define=define: define(ops, ops.cast(x, as_dtype(F32))))
        plan = fd.plan([x])
        assert isinstance(plan, Plan)
        rows = plan.threads_y * max(1, plan.rows_per_thread)
        assert not plan.packed or rows * dtype.itemsize % 16 == 0
        fd.validate([x])


def test_what_many_rows_share_is_read_where_it_is_used() -> None:
    x, mask = torch.randn(4, 3, 250, 77), torch.randn(4, 1, 1, 77)
    fd = definition([x, mask], masked)
    plan = fd.plan([x, mask])
    assert isinstance(plan, Plan)
    assert plan.packed == 0b101, "the mask crosses nothing"
    torch.testing.assert_close(fd.execute([x, mask])[0], masked_exact(x, mask)[0])
    # One of the operands would be transposed.
    each = torch.randn(4, 3, 250, 80)[..., :77]
    assert plan_of([x, each], masked).packed == 0


def test_an_input_is_overwritten_in_its_place() -> None:
    x = torch.randn(ROWS, 17)
    wanted = torch.softmax(x, -1)
    fd = FusionDefinition()
    t = fd.from_pytorch(x)
    fd.add_output(fd.ops.softmax(t, 1), t)
    fd.execute([x])
    torch.testing.assert_close(x, wanted)


def test_rows_that_do_not_follow_each_other_are_no_stretch() -> None:
    assert plan_of([torch.randn(ROWS, 20)[:, :17]], softmax).packed == 0
    assert plan_of([torch.randn(17, ROWS).t()], softmax).scheduler == "outer"
    # Rows of complete vectors are not packed, because they need not be.
    assert plan_of([torch.randn(ROWS, 64)], softmax).packed == 0
    # Few rows are packed, although SMs remain idle, so that their bits do not depend on other rows.
    assert plan_of([torch.randn(20, 17)], softmax).packed != 0


def test_memory_that_is_not_aligned_is_no_stretch() -> None:
    x = torch.randn(ROWS * 17 + 1)[1:].view(ROWS, 17)
    fd = definition([x], softmax)
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    assert plan.packed == 0
    torch.testing.assert_close(fd.execute([x])[0], torch.softmax(x, -1))


@pytest.mark.parametrize("arch", [70, 80, 90, 100])
def test_five_blocks_fit_a_processor(arch: int) -> None:
    device = _core.known_device(arch)
    for length in (3, 17, 49, 100, 197, 501):
        for dtype in (F32, BF16):
            if length % (16 // dtype.itemsize) == 0:
                continue
            fd = FusionDefinition()
            t = fd.define_tensor([-1, -1], True, dtype=as_dtype(dtype))
            fd.add_output(fd.ops.cast(fd.ops.softmax(t, 1), t.dtype()))
            layout = ([1 << 20, length], [length, 1], 0)
            (kernel,) = _core_testing.plan.plans(fd._builder, [layout], device)
            plan = kernel["plan"]
            assert plan["packed"] == 0b11
            bytes_of_block = plan["threads_y"] * length * dtype.itemsize
            assert bytes_of_block % 16 == 0
            assert 5 * bytes_of_block <= device.shared_per_sm
            assert plan["threads_x"] * plan["threads_y"] in (64, 128)


def test_no_element_is_asked_whether_it_exists() -> None:
    """Elements have no bounds checks, because each thread knows its number of steps per row."""
    x = torch.randn(ROWS, 197).bfloat16()
    (kernel,) = kernels_for(definition([x], softmax), [x.shape], text=True)
    taken_in = [line for line in kernel["ir"].splitlines() if "accumulate" in line]
    assert len(taken_in) == 4, "the maximum and the sum, unrolled and one by one"
    assert not any(" in " in line for line in taken_in)


def planned() -> tuple[FusionDefinition, Tensor, Plan]:
    x = torch.randn(ROWS, 17)
    fd = definition([x], softmax)
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    return fd, x, plan


@pytest.mark.parametrize(
    "changes",
    [
        {"threads_x": 4},
        {"threads_x": 2, "threads_y": 32},
        {"threads_y": 128},
        {"unroll": 1},
        {"smem_unroll": 4},
    ],
)
def test_changed_plans_run(changes: dict[str, int]) -> None:
    fd, x, plan = planned()
    torch.testing.assert_close(
        fd.execute([x], plan=plan.replace(**changes))[0], torch.softmax(x, -1)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"threads_x": 64, "threads_y": 16},  # a row would be reduced over several warps
        {"threads_y": 512},
        {"threads_y": 40},  # blocks would start within a vector
        {"packed": 0},
        {"persistent_in": 1},
    ],
)
def test_plan_1(changes: dict[str, int]) -> None:
    fd, x, plan = planned()
    with pytest.raises(UserError, match="is not allowed; expected") as caught:
        fd.execute([x], plan=plan.replace(**changes))
    assert caught.value.rule == "plan-1"
