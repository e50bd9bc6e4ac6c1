"""Plans of pointwise kernels with many operands per column: several rows per thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fuser import FusionDefinition, Plan, UserError
from fuser.ops import as_dtype
from tests.support.reducing import assert_close, kernels_for

F32, BF16 = torch.float32, torch.bfloat16


def normalized(dtype: torch.dtype = F32, rank: int = 2) -> FusionDefinition:
    """(x - mean) * rstd * weight + bias for x [..., n] and float32 operands [n]."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * rank, dtype=as_dtype(dtype))
    mean, rstd, weight, bias = (fd.define_tensor([-1]) for _ in range(4))
    fd.add_output(fd.ops.cast((x - mean) * rstd * weight + bias, as_dtype(dtype)))
    return fd


def plan_of(shape: tuple[int, ...], dtype: torch.dtype = F32, arch: int = 90) -> dict[str, Any]:
    fd = normalized(dtype, len(shape))
    (kernel,) = kernels_for(fd, [shape, *[shape[-1:]] * 4], arch, text=True)
    assert kernel["cuda"].threads == kernel["plan"]["threads_x"] * kernel["plan"]["threads_y"]
    plan: dict[str, Any] = kernel["plan"]
    return plan


def inputs_of(
    shape: tuple[int, ...], dtype: torch.dtype, rng: np.random.Generator
) -> list[torch.Tensor]:
    sizes = [shape, *[shape[-1:]] * 4]
    made = [torch.from_numpy(rng.normal(size=size)).to(F32) for size in sizes]
    return [made[0].to(dtype), *made[1:]]


def exact(inputs: list[torch.Tensor]) -> torch.Tensor:
    x, mean, rstd, weight, bias = (t.double() for t in inputs)
    return (x - mean) * rstd * weight + bias


@pytest.mark.parametrize("arch", [70, 80, 90, 100])
def test_a_thread_keeps_its_columns_for_several_rows(arch: int) -> None:
    plan = plan_of((1 << 20, 64), BF16, arch)
    assert (plan["scheduler"], plan["vector"], plan["threads_x"]) == ("broadcast", 8, 8)
    assert plan["unroll"] > 1
    assert plan_of((1000, 4, 5, 4096), F32, arch)["threads_x"] == 32


def test_few_bytes_along_columns_are_no_reason() -> None:
    fd = FusionDefinition()
    x, bias = fd.define_tensor([-1, -1]), fd.define_tensor([-1])
    fd.add_output(x + bias)
    (kernel,) = kernels_for(fd, [(4096, 64), (64,)])
    assert kernel["plan"]["scheduler"] == "pointwise"


def test_behind_its_statistics_it_starts_at_the_end() -> None:
    """The second kernel starts at the end, because the last elements read by the statistics kernel
    are still in L2."""
    fd = FusionDefinition()
    x, weight, bias = fd.define_tensor([-1, -1]), fd.define_tensor([-1]), fd.define_tensor([-1])
    variance, mean = fd.ops.var_mean(x, 0, keepdim=True)
    fd.add_output((x - mean) * fd.ops.rsqrt(variance + 1e-5) * weight + bias)
    kernels = kernels_for(fd, [(1 << 16, 128), (128,), (128,)])
    statistics, stores = (kernel["plan"] for kernel in kernels)
    assert (statistics["scheduler"], stores["scheduler"]) == ("outer", "broadcast")
    assert stores["reverse_grid"] == 1
    assert plan_of((4096, 128))["reverse_grid"] == 0


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("shape", [(1, 64), (37, 64), (1000, 8), (33, 7), (3, 5, 7, 40), (9, 1031)])
def test_values(shape: tuple[int, ...], dtype: torch.dtype, rng: np.random.Generator) -> None:
    fd, inputs = normalized(dtype, len(shape)), inputs_of(shape, dtype, rng)
    (got,) = fd.execute(inputs)
    assert_close(got, exact(inputs), dtype)


@pytest.mark.parametrize("changes", [{"unroll": 3}, {"threads_y": 4}, {"reverse_grid": 1}])
def test_changed_plans_run(changes: dict[str, int], rng: np.random.Generator) -> None:
    fd, inputs = normalized(), inputs_of((101, 72), F32, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    (got,) = fd.execute(inputs, plan=plan.replace(**changes))
    assert_close(got, exact(inputs), F32)
    assert torch.equal(got, fd.execute(inputs)[0])


@pytest.mark.parametrize("changes", [{"unroll": 17}, {"threads_x": 1}, {"threads_y": 65}])
def test_plan_1(changes: dict[str, int], rng: np.random.Generator) -> None:
    fd, inputs = normalized(), inputs_of((101, 72), F32, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    with pytest.raises(UserError, match="is not allowed; expected") as caught:
        fd.execute(inputs, plan=plan.replace(**changes))
    assert caught.value.rule == "plan-1"
