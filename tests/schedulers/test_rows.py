"""Plans and values of pointwise kernels whose rows have many common operands: several rows per
thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuser import FusionDefinition, Plan, UserError, testing
from fuser.ops import as_dtype
from tests.support.reducing import kernels_for

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


def rope(dtype: torch.dtype) -> FusionDefinition:
    """Rotary embedding of x[batch, length, heads, dim] with float32 angles [length, dim]."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * 4, dtype=as_dtype(dtype))
    cos, sin = (
        fd.ops.broadcast(fd.define_tensor([-1, -1]), [True, False, True, False]) for _ in range(2)
    )
    first, second = fd.ops.chunk(x, 2, -1)
    turned = fd.ops.cat([-second, first], -1)
    fd.add_output(fd.ops.cast(x * cos + turned * sin, as_dtype(dtype)))
    return fd


def rope_shapes(*shape: int) -> list[tuple[int, ...]]:
    return [shape, (shape[1], shape[3]), (shape[1], shape[3])]


def padded(dtype: torch.dtype, rank: int, around: list[int]) -> FusionDefinition:
    fd = FusionDefinition()
    fd.add_output(fd.ops.pad(fd.define_tensor([-1] * rank, dtype=as_dtype(dtype)), around))
    return fd


def plan_of(fd: FusionDefinition, shapes: list[tuple[int, ...]], **how: Any) -> dict[str, Any]:
    (kernel,) = kernels_for(fd, shapes, text=True, **how)
    plan: dict[str, Any] = kernel["plan"]
    if plan["scheduler"] == "rows":
        threads = plan["threads_x"] * plan["threads_y"] * plan["threads_z"]
        assert kernel["cuda"].threads == threads
    return plan


@pytest.mark.parametrize("arch", [70, 80, 90, 100])
def test_heads_share_their_angles(arch: int) -> None:
    plan = plan_of(rope(BF16), rope_shapes(4, 2048, 32, 128), arch=arch)
    assert (plan["scheduler"], plan["vector"], plan["threads_x"]) == ("rows", 8, 16)
    assert (plan["unroll"], plan["threads_y"]) == (2, 8)
    assert plan["vectorized"] == 0b111111


def test_what_is_shared_must_outweigh_what_moves() -> None:
    """The scheduler requires that common operands outweigh moved bytes; in float32 the angles are
    only as many bytes as a head and its result."""
    assert plan_of(rope(F32), rope_shapes(4, 2048, 32, 128))["scheduler"] == "pointwise"


def test_a_block_has_a_warp_at_least() -> None:
    plan = plan_of(rope(BF16), rope_shapes(4, 2048, 1, 16))
    assert plan["threads_x"] * plan["threads_y"] * plan["threads_z"] == 32


@pytest.mark.parametrize(
    ("columns", "around", "wanted"),
    [
        (56, [1, 1, 1, 1], ("rows", 2)),  # a pair may contain a boundary
        (54, [2, 2, 2, 2], ("rows", 2)),
        (56, [4, 4, 1, 1], ("pointwise", 4)),
        (55, [1, 1, 0, 0], ("pointwise", 4)),
        (56, [0, 0, 1, 1], ("pointwise", 4)),
    ],
    ids=str,
)
def test_rims(columns: int, around: list[int], wanted: tuple[str, int]) -> None:
    """The scheduler rejects pads with complete vectors, and rows that do not consist of pairs."""
    plan = plan_of(padded(F32, 4, around), [(8, 64, 56, columns)])
    assert (plan["scheduler"], plan["vector"]) == wanted


def test_many_rows_a_thread_where_places_cost_much() -> None:
    for width, x, y in ((56, 32, 4), (28, 16, 4), (112, 64, 2)):
        plan = plan_of(padded(BF16, 4, [1, 1, 1, 1]), [(32, 256, width, width)])
        assert (plan["vector"], plan["unroll"]) == (2, 8)
        assert (plan["threads_x"], plan["threads_y"], plan["threads_z"]) == (x, y, 1)


def trimmed(
    dtype: torch.dtype, start: list[int], stop: list[int | None], around: list[int], input_: Any
) -> FusionDefinition:
    """A slice of the input, padded with zeros."""
    fd = FusionDefinition()
    x = fd.define_tensor(dtype=as_dtype(dtype), **input_)
    part = fd.ops.slice(x, start, stop) * 1.5
    fd.add_output(fd.ops.cast(fd.ops.pad(part, around), as_dtype(dtype)))
    return fd


def test_lanes_share_a_condition_where_the_read_ends_elsewhere() -> None:
    """Cropped and padded images: the pad ends at a multiple of two, but the rows that it reads end
    one element later. The load uses the pad's condition."""
    fd = trimmed(BF16, [0, 0, 1, 1], [None, None, -1, -1], [2, 2, 2, 2], {"shape": [-1] * 4})
    (kernel,) = kernels_for(fd, [(32, 256, 56, 56)], text=True)
    plan = kernel["plan"]
    assert (plan["scheduler"], plan["vector"], plan["uniform_select"]) == ("rows", 2, 1)
    inside = {line.split(" in ")[1] for line in kernel["ir"].splitlines() if " load " in line}
    assert len(inside) == 1, "the pad's"
    assert kernel["ir"].count("load r_in0") == 1


def test_a_vector_is_read_as_a_whole_where_only_the_tensor_ends_within_one() -> None:
    """Rows of 62 elements with stride 64, sliced to 56: a vector that the tensor's end cuts is
    loaded completely, because the pad's condition suffices."""
    fd = trimmed(BF16, [0, 0], [None, 56], [8, 8, 0, 0], {"shape": [-1, -1]})
    x = torch.randn(40, 64).to(BF16)[:, :62]
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    assert (plan.vector, plan.uniform_select, plan.vectorized) == (8, 1, 0b11)
    assert torch.equal(
        fd.execute([x])[0], torch.nn.functional.pad((x[:, :56].float() * 1.5).to(BF16), (8, 8))
    )


def test_heads_that_are_no_whole_vectors() -> None:
    plan = plan_of(rope(BF16), rope_shapes(2, 16, 4, 50))
    assert (plan["scheduler"], plan["vector"], plan["uniform_select"]) == ("rows", 2, 0)


# ---- Values


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    wide = x.double()
    first, second = wide.chunk(2, -1)
    other = torch.cat([-second, first], -1)
    return wide * cos.double()[:, None, :] + other * sin.double()[:, None, :]


def test_values(rng: np.random.Generator, set_option: Callable[[str, Any], None]) -> None:
    """Small integers, so that every sum and product is exact."""
    set_option("FUSER_HOST_DEBUG", 1)
    made = []
    for dtype in (BF16, F16):
        for shape in ((2, 3, 4, 32), (1, 5, 7, 16), (2, 1, 1, 48), (3, 2, 33, 16), (0, 3, 4, 32)):
            inputs = [
                torch.from_numpy(rng.integers(-4, 5, size=size)).to(dtype if i == 0 else F32)
                for i, size in enumerate(rope_shapes(*shape))
            ]
            made.append((rope(dtype), inputs, turned(*inputs)))
    for dtype in (F32, torch.int8, torch.bool, torch.float64, torch.complex64):
        for shape in ((3, 2, 9, 10), (2, 1, 1, 6), (1, 0, 4, 10), (2, 3, 40, 130)):
            x = torch.from_numpy(rng.integers(-9, 9, size=shape)).to(dtype)
            want = torch.nn.functional.pad(x, (2, 2, 1, 2))
            made.append((padded(dtype, 4, [2, 2, 1, 2]), [x], want))
    testing.compile_batch((fd, inputs) for fd, inputs, _ in made)
    taken = 0
    for fd, inputs, want in made:
        plan = fd.plan(inputs)
        taken += isinstance(plan, Plan) and plan.scheduler == "rows"  # empty tensors
        (got,) = fd.execute(inputs)
        assert torch.equal(got, want.to(got.dtype)), (inputs[0].dtype, inputs[0].shape)
    assert taken >= 10


def test_what_lies_between_rows_is_left() -> None:
    """Rows of 50 elements with stride 56: vectors of 8 exceed the rows, but leave the gaps
    unchanged."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * 4, dtype=as_dtype(BF16))
    scale, shift = (
        fd.ops.broadcast(fd.define_tensor([-1, -1]), [True, False, True, False]) for _ in range(2)
    )
    fd.add_output(fd.ops.cast(x * scale + shift, as_dtype(BF16)), alias_input=x)
    memory = torch.full((2, 16, 4, 56), 7.0, dtype=BF16)
    fd.execute([memory[..., :50], torch.ones(16, 50), torch.ones(16, 50)])
    assert torch.equal(memory[..., :50].unique(), torch.tensor([8.0], dtype=BF16))
    assert torch.equal(memory[..., 50:].unique(), torch.tensor([7.0], dtype=BF16))


@pytest.mark.parametrize(
    "changes", [{"unroll": 1}, {"unroll": 3}, {"threads_y": 4}, {"threads_z": 2}], ids=str
)
def test_changed_plans_run(changes: dict[str, int], rng: np.random.Generator) -> None:
    inputs = [
        torch.from_numpy(rng.integers(-4, 5, size=s)).to(F32) for s in rope_shapes(2, 5, 6, 64)
    ]
    inputs[0] = inputs[0].to(BF16)
    fd = rope(BF16)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    (got,) = fd.execute(inputs, plan=plan.replace(**changes))
    assert torch.equal(got, turned(*inputs).to(BF16))


@pytest.mark.parametrize(
    "changes", [{"threads_x": 4}, {"threads_y": 1024}, {"vector": 4}, {"vectorized": 0}], ids=str
)
def test_plan_1(changes: dict[str, int]) -> None:
    inputs = [torch.ones(s) for s in rope_shapes(2, 5, 6, 64)]
    inputs[0] = inputs[0].to(BF16)
    fd = rope(BF16)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    with pytest.raises(UserError, match="is not allowed; expected") as caught:
        fd.execute(inputs, plan=plan.replace(**changes))
    assert caught.value.rule == "plan-1"
