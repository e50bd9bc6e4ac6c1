"""Plans in C++: sets of accesses of any size are preserved everywhere."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fuser
from fuser import DataType, FusionDefinition, Plan, UserError, _core, _core_testing
from fuser.ops import as_dtype

# csrc/fusion/index/access.h: a kernel has at most 96 accesses.
COUNTS = [8, 61, 62, 63, 64, 65, 80, 94]


def chain(count: int, dtype: torch.dtype) -> FusionDefinition:
    """A sum of `count` tensors: one load each, and one store."""
    fd = FusionDefinition()
    tensors = [fd.define_tensor([-1, -1], dtype=as_dtype(dtype)) for _ in range(count)]
    total = tensors[0]
    for tensor in tensors[1:]:
        total = fd.ops.add(total, tensor)
    fd.add_output(fd.ops.cast(total, as_dtype(dtype)))
    return fd


def operands(count: int, dtype: torch.dtype, shape: tuple[int, ...]) -> list[Tensor]:
    """Operands whose sums every dtype represents: alternately 1 and -1, and one with values up to
    2."""
    found = [torch.full(shape, (-1.0) ** i).to(dtype) for i in range(count)]
    found[count // 2] = (torch.arange(shape[0] * shape[1]).reshape(shape) % 3).to(dtype)
    return found


def exact(inputs: list[Tensor]) -> Tensor:
    return torch.stack([x.double() for x in inputs]).sum(0)


def widths(kernel: dict[str, Any]) -> list[int]:
    """Elements that each access moves at once."""
    lines = re.findall(r"^access \d+ (?:Scalar|Aligned (\d+))", kernel["schedule"], re.MULTILINE)
    return [int(width or 1) for width in lines]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float32], ids=str)
@pytest.mark.parametrize("count", COUNTS)
def test_every_access_of_a_large_kernel_is_a_vector(count: int, dtype: torch.dtype) -> None:
    fd = chain(count, dtype)
    layouts = [([4096, 4096], [4096, 1], 0)] * count
    (kernel,) = _core_testing.plan.plans(fd._builder, layouts, _core.known_device(90), True)
    plan = kernel["plan"]
    assert plan["vector"] > 1 or dtype == torch.float32
    if plan["vector"] > 1:
        assert plan["vectorized"] == (1 << count + 1) - 1
    assert widths(kernel) == [plan["vector"]] * (count + 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("count", [62, 63, 64, 94])
def test_values_of_a_large_kernel(
    count: int, dtype: torch.dtype, set_option: Callable[..., None]
) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    inputs = operands(count, dtype, (8, 64))
    fd = chain(count, dtype)
    (out,) = fd.execute(inputs)
    assert torch.equal(out.double(), exact(inputs))
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    assert plan.vectorized == (1 << count + 1) - 1


def reduced(kind: str, count: int) -> FusionDefinition:
    """Kernels of other schedulers with `count` loads."""
    fd = FusionDefinition()
    x = [fd.define_tensor([-1, -1], dtype=DataType.BFloat16) for _ in range(count)]
    total = x[0]
    for tensor in x[1:]:
        total = fd.ops.add(total, tensor)
    if kind == "transpose":
        for tensor in x:
            total = fd.ops.add(total, tensor)
        total = fd.ops.stride_order(fd.ops.permute(total, [1, 0]), [1, 0])
    elif kind == "inner":
        total = fd.ops.sum(total, 1)
    else:
        total = fd.ops.sum(total, 0)
    fd.add_output(fd.ops.cast(total, DataType.BFloat16))
    return fd


@pytest.mark.parametrize("kind", ["inner", "outer", "transpose"])
def test_every_read_of_the_other_schedulers_is_a_vector(kind: str) -> None:
    layouts = [([1024, 4096], [4096, 1], 0)] * 80
    (kernel,) = _core_testing.plan.plans(
        reduced(kind, 80)._builder, layouts, _core.known_device(90), True
    )
    plan = kernel["plan"]
    assert plan["scheduler"] == kind
    vector = plan.get("vector", plan.get("vector_x"))
    assert vector > 1
    assert widths(kernel)[:80] == [vector] * 80


@pytest.fixture
def large() -> tuple[FusionDefinition, list[Tensor], Plan]:
    inputs = operands(70, torch.bfloat16, (8, 64))
    fd = chain(70, torch.bfloat16)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    return fd, inputs, plan


def test_sets_are_ints_everywhere(large: Any) -> None:
    fd, inputs, plan = large
    assert plan.vectorized == (1 << 71) - 1
    assert type(plan.vectorized) is int
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert eval(repr(plan), {"Plan": Plan}) == plan
    assert Plan(**json.loads(json.dumps(dict(plan)))) == plan
    fd.execute(inputs)
    (kernel,) = fd.fec.executor.kernels(inputs)
    assert f"vectorized={plan.vectorized}," in kernel.plan
    assert plan.replace(vectorized=plan.vectorized) == plan
    (same,) = fd.execute(inputs, plan=plan.replace(vectorized=plan.vectorized))
    assert torch.equal(same.double(), exact(inputs))


@pytest.mark.parametrize("field", ["vectorized", "strided"])
def test_no_bit_of_a_set_is_overlooked(large: Any, field: str) -> None:
    fd, inputs, plan = large
    for bit in (0, 62, 63, 64, 70, 71, 127, 128, 1000):
        with pytest.raises(UserError) as caught:
            fd.execute(inputs, plan=plan.replace(**{field: plan[field] ^ 1 << bit}))
        assert caught.value.rule == "plan-1"
        assert f"{field}={plan[field] ^ 1 << bit} is not allowed" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (
            "vectorized",
            -1,
            "expected a set of accesses, an int of 0 or more with bit i for access i",
        ),
        ("vectorized", -(2**70), "expected an int of 64 bits"),
        ("vectorized", 2**5000, "expected a set of the kernel's accesses"),
        ("threads", 2**63, "expected an int of 64 bits"),
        ("threads", -(2**63) - 1, "expected an int of 64 bits"),
        ("threads", 2**64 + 128, "expected an int of 64 bits"),
        ("threads", "128", "expected an int"),
        ("threads", None, "expected an int"),
        ("threads", 128.0, "expected an int"),
        ("scheduler", 3, "expected a str"),
    ],
)
def test_plan_1_of_what_is_no_such_number(
    large: Any, field: str, value: Any, expected: str
) -> None:
    fd, inputs, plan = large
    with pytest.raises(UserError) as caught:
        fd.execute(inputs, plan=Plan(**{**plan, field: value}))
    assert caught.value.rule == "plan-1"
    assert expected in str(caught.value)
    assert f"plan: {field}={value!r} has a wrong type" in str(caught.value)


def test_a_tuned_plan_of_a_large_kernel_is_kept(
    large: Any, tmp_path: Path, set_option: Callable[..., None]
) -> None:
    set_option("FUSER_CACHE_DIR", tmp_path)
    fd, inputs, plan = large
    tuned = fuser.autotune(fd, inputs, candidates=1)
    assert isinstance(tuned, Plan)
    assert tuned.vectorized == plan.vectorized
    again = chain(70, torch.bfloat16)
    assert fuser.autotune(again, inputs, candidates=1) == tuned
    assert again.plan(inputs) == tuned
