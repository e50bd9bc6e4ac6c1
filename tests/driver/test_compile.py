"""csrc/driver/compile: plans and their changes, variants, in-place outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuser
from fuser import DataType, FusionDefinition, Plan, UserError, _core, _core_testing
from tests.support.definitions import bias_gelu, gained, scaled


def inputs(rows: int = 37, columns: int = 64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(rows, columns, generator=generator)
    return [x.bfloat16(), torch.randn(columns, generator=generator).bfloat16()]


# ---- plans


def test_plan_of_a_call() -> None:
    plan = bias_gelu().plan(inputs())
    assert isinstance(plan, Plan)
    assert list(plan) == [
        "scheduler",
        "threads",
        "vector",
        "collapsed",
        "tail",
        "vectorized",
        "strided",
        "split_at_rows",
        "uniform_select",
    ]
    assert plan.scheduler == "pointwise"
    assert (plan.vector, plan.collapsed, plan.tail, plan.vectorized) == (8, 1, 0, 0b111)
    odd = bias_gelu().plan(inputs(columns=63))
    assert isinstance(odd, Plan)
    # Rows are not multiples of a vector: all dims are collapsed, and only the bias is read by
    # single elements.
    assert (odd.vector, odd.collapsed, odd.tail, odd.vectorized) == (8, 2, 1, 0b101)


def test_planning_compiles_nothing() -> None:
    before = fuser.cache_info()
    bias_gelu().plan(inputs())
    gain = gained(before)
    assert (gain.kernels_compiled, gain.kernels_from_disk, gain.misses) == (0, 0, 0)


def test_planning_for_layouts_says_what_is_missing() -> None:
    """Planning without tensors reports a wrong number of layouts, and incomplete layouts."""
    fd = bias_gelu()
    device, one = _core.known_device(90), ([4, 8], [8, 1], 0)
    count = len(fd.fusion.inputs())
    for inputs in ([], [one] * (count + 1)):
        with pytest.raises(
            UserError, match=f"expected {count} tensors, got {len(inputs)}"
        ) as found:
            _core_testing.plan.plans(fd._builder, inputs, device)
        assert found.value.rule == "argument-count"
    with pytest.raises(UserError, match="tensor 0 has 2 sizes and 1 strides") as found:
        _core_testing.plan.plans(fd._builder, [([4, 8], [8], 0)] * count, device)
    assert found.value.rule == "argument-rank"


@pytest.mark.parametrize("columns", [64, 63])
def test_every_legal_plan_gives_the_same_bits(columns: int) -> None:
    fd, given = bias_gelu(), inputs(columns=columns)
    plan = fd.plan(given)
    assert isinstance(plan, Plan)
    (expected,) = fd.execute(given)
    changes = [{"threads": n} for n in (32, 96, 128, 1024)]
    changes += [{"vector": n} for n in (1, 2, 4)]
    changes += [{"tail": 1}, {"vector": 2, "threads": 64, "tail": 1}]
    for change in changes:
        changed = plan.replace(**change)
        assert {name: changed[name] for name in change} == change
        (result,) = fd.execute(given, plan=changed)
        assert result.equal(expected), changed
        (kernel,) = fd.fec.executor.kernels()
        assert kernel.threads == changed.threads
        assert f"vector={changed.vector}" in kernel.plan
    # Without a plan argument the planned kernel runs.
    fd.execute(given)
    (kernel,) = fd.fec.executor.kernels()
    assert kernel.threads == plan.threads


def test_a_plan_is_compiled_once() -> None:
    fd, given = scaled(1.375), [torch.arange(100.0)]
    plan = fd.plan(given)
    assert isinstance(plan, Plan)
    fd.execute(given)
    before = fuser.cache_info()
    for _ in range(3):
        fd.execute(given, plan=plan.replace(threads=2 * plan.threads))
    gain = gained(before)
    assert (gain.hits, gain.misses, gain.plans) == (2, 1, 1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"threads": 100},
            "threads=100 is not allowed; expected a multiple of 32 from 32 to",
        ),
        ({"threads": 0}, "threads=0 is not allowed"),
        ({"threads": 2048}, "threads=2048 is not allowed"),
        ({"vector": 3}, "vector=3 is not allowed; expected a divisor of 8"),
        ({"vector": 16}, "vector=16 is not allowed; expected a divisor of 8"),
        ({"vector": 0}, "vector=0 is not allowed"),
        ({"collapsed": 2}, "collapsed=2 is not allowed; expected 1"),
        ({"vectorized": 0}, "vectorized=0 is not allowed; expected 7"),
        (
            {"scheduler": "reduction"},
            "scheduler=reduction is not allowed; expected pointwise, the first scheduler that",
        ),
    ],
)
def test_plan_1(change: dict[str, object], text: str) -> None:
    fd, given = bias_gelu(), inputs()
    plan = fd.plan(given)
    assert isinstance(plan, Plan)
    fd.execute(given, plan=plan)  # a record of a valid plan must not hide an invalid one
    with pytest.raises(UserError) as caught:
        fd.execute(given, plan=plan.replace(**change))
    assert caught.value.rule == "plan-1"
    assert text in str(caught.value)
    assert f"planned: pointwise(threads={plan.threads}, vector=8, " in str(caught.value)
    fd.execute(given, plan=plan)


def test_plan_1_of_a_tail_that_is_needed() -> None:
    fd, given = bias_gelu(), inputs(columns=63)
    plan = fd.plan(given)
    assert isinstance(plan, Plan)
    with pytest.raises(UserError, match="tail=0 is not allowed; expected 1") as caught:
        fd.execute(given, plan=plan.replace(tail=0))
    assert caught.value.rule == "plan-1"


def test_plan_2() -> None:
    fd, given = bias_gelu(), inputs()
    with pytest.raises(UserError) as caught:
        fd.execute(given, plan=Plan(scheduler="pointwise", unroll=2))
    assert caught.value.rule == "plan-2"
    assert str(caught.value).startswith("plan: no field unroll; planned: pointwise(threads=")


def test_plan_3() -> None:
    fd, given = bias_gelu(), inputs()
    plan = fd.plan(given)
    assert isinstance(plan, Plan)
    with pytest.raises(UserError) as caught:
        fd.execute(given, plan=(plan, plan))
    assert caught.value.rule == "plan-3"
    assert str(caught.value) == "plan: 2 plans for 1 kernels"


def test_a_plan_may_name_only_what_changes() -> None:
    fd, given = bias_gelu(), inputs()
    fd.execute(given, plan=Plan(scheduler="pointwise", threads=512))
    (kernel,) = fd.fec.executor.kernels()
    assert kernel.threads == 512


# ---- in place


def in_place(
    compute: Callable[[FusionDefinition, Any], Any],
    rank: int = 2,
    dtype: DataType = DataType.Float,
) -> FusionDefinition:
    """x <- compute(x)."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1] * rank, dtype=dtype)
        fd.add_output(compute(fd, x), x)
    return fd


def kernel_of(fd: FusionDefinition, given: list[torch.Tensor]) -> str:
    """The text of the kernel, without running it."""
    return fd.cuda_code_for(given)


def is_direct(fd: FusionDefinition, given: list[torch.Tensor]) -> bool:
    """Return True if the kernel stores into input 0, and has no output buffer."""
    text = kernel_of(fd, given)
    direct = "f32* g_in0" in text and "const f32* g_in0" not in text
    assert direct != ("g_out0" in text)
    return direct


def test_stored_directly() -> None:
    fd = in_place(lambda fd, x: x * 2.0 + 1.0)
    x = torch.arange(35.0).view(5, 7)
    address, version = x.data_ptr(), x._version
    assert is_direct(fd, [x])
    assert fd.execute([x]) == []
    assert x.equal(torch.arange(35.0).view(5, 7) * 2 + 1)
    assert x.data_ptr() == address
    assert x._version == version + 1


@pytest.mark.parametrize(
    "make",
    [
        lambda base: base[:, ::2],
        lambda base: base.T,
        lambda base: base[2:5, 3:],
        lambda base: base[:0],
    ],
    ids=["every other", "transposed", "window", "empty"],
)
def test_stored_directly_into_a_view(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    fd = in_place(lambda fd, x: x * 2.0)
    base = torch.arange(80.0).view(8, 10)
    expected = base.clone()
    make(expected).mul_(2)
    version = base._version
    fd.execute([make(base)])
    assert base.equal(expected)
    assert base._version > version


def test_what_other_threads_still_read_goes_through_a_copy() -> None:
    fd = in_place(lambda fd, x: x + fd.ops.permute(x, [1, 0]))
    x = torch.arange(33.0 * 33).view(33, 33)
    expected, version = x + x.T, x._version
    assert not is_direct(fd, [x])
    assert fd.execute([x]) == []
    assert x.equal(expected)
    assert x._version == version + 1


def test_transposed_into_itself() -> None:
    fd = in_place(lambda fd, x: fd.ops.permute(x, [1, 0]))
    x = torch.arange(33.0 * 33).view(33, 33)
    expected = x.T.clone()
    fd.execute([x])
    assert x.equal(expected)


def two_inputs() -> FusionDefinition:
    """x <- x + y."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(x + y, x)
    return fd


@pytest.mark.parametrize(("begin", "direct"), [(0, False), (3, False), (99, False), (100, True)])
def test_overlapping_inputs(begin: int, direct: bool) -> None:
    base = torch.arange(300.0)
    x, y = base[:100], base[begin : begin + 100]
    expected = x + y
    fd = two_inputs()
    assert is_direct(fd, [x, y]) == direct
    fd.execute([x, y])
    assert x.equal(expected)


def test_the_same_tensor_as_target_of_one_and_input_of_another_kernel() -> None:
    """The second kernel must read the old value of x."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1, -1])
        fd.add_output(x * 2.0, x)
        fd.add_output(y + x)
    x, y = torch.arange(5.0), torch.ones(3, 5)
    (result,) = fd.execute([x, y])
    assert result.equal(torch.ones(3, 5) + torch.arange(5.0))
    assert x.equal(torch.arange(5.0) * 2)


def test_swap() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(fd.ops.set(y), x)
        fd.add_output(fd.ops.set(x), y)
    a, b = torch.arange(50.0), -torch.arange(50.0)
    assert fd.execute([a, b]) == []
    assert a.equal(-torch.arange(50.0))
    assert b.equal(torch.arange(50.0))


def counted(fd: FusionDefinition) -> None:
    """A counter that is updated first and read by all, like the step of an optimizer."""
    x, count = matrix(fd), fd.define_tensor([])
    fd.add_output(count + 1.0, count)
    fd.add_output(x / (count + 1.0), x)
    fd.add_output(fd.ops.sum(x * count, [0]))


def test_what_others_read_is_overwritten_last() -> None:
    found = specialized(counted, [5, 7], [])
    assert found["in_place"] == [True, True, False]
    stores = [found["groups"][group]["stores"] for _, group in found["steps"]]
    assert stores[-1] == [0]
    assert all(kind == "kernel" for kind, _ in found["steps"])


def test_what_others_read_is_overwritten_last_in_values() -> None:
    with FusionDefinition() as fd:
        counted(fd)
    x, count = torch.arange(35.0).view(5, 7), torch.tensor(3.0)
    (result,) = fd.execute([x, count])
    before = torch.arange(35.0).view(5, 7)
    assert result.equal((before * 3).sum(0))
    assert x.equal(before / 4)
    assert count.item() == 4


def test_two_kernels_that_overwrite_what_the_other_reads() -> None:
    """Each kernel overwrites an input of the other one. The second one stores in place; the result
    of the first is copied at the end."""

    def crossed(fd: FusionDefinition) -> None:
        x, y = vector(fd), matrix(fd)
        first_row = fd.ops.squeeze(fd.ops.slice(y, [0, 0], [1, y.size(1)]), [0])
        fd.add_output(x + first_row, x)
        fd.add_output(y * fd.ops.broadcast(x, [True, False]), y)

    found = specialized(crossed, [5], [7, 5])
    assert sorted(found["in_place"]) == [False, True]
    with FusionDefinition() as fd:
        crossed(fd)
    x, y = torch.arange(5.0), torch.arange(35.0).view(7, 5)
    expected = [x + y[0], y * x]
    assert fd.execute([x, y]) == []
    assert x.equal(expected[0])
    assert y.equal(expected[1])


def test_aliased_outputs_are_not_returned() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x + 1.0)
        fd.add_output(x * 2.0, x)
        fd.add_output(x - 1.0)
    x = torch.arange(9.0)
    above, below = fd.execute([x])
    assert above.equal(torch.arange(9.0) + 1)
    assert below.equal(torch.arange(9.0) - 1)
    assert x.equal(torch.arange(9.0) * 2)


def test_autograd_sees_the_change() -> None:
    fd = in_place(lambda fd, x: x * 2.0, rank=1)
    weight = torch.ones(4, requires_grad=True)
    x = torch.ones(4)
    product = weight * x  # saves x
    fd.execute([x])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_an_inference_tensor_has_no_version() -> None:
    fd = in_place(lambda fd, x: x * 2.0, rank=1)
    with torch.inference_mode():
        x = torch.ones(4)
        fd.execute([x])
        assert x.tolist() == [2.0] * 4


@pytest.mark.parametrize("lazy", ["conj", "neg"])
def test_argument_in_place_of_a_lazy_view(lazy: str) -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    target = z.conj() if lazy == "conj" else z.conj().imag
    dtype = DataType.ComplexFloat if lazy == "conj" else DataType.Float
    fd = in_place(lambda fd, x: x + x, rank=1, dtype=dtype)
    assert target.is_conj() if lazy == "conj" else target.is_neg()
    with pytest.raises(UserError, match="is written in place, but is a lazy") as caught:
        fd.execute([target])
    assert caught.value.rule == "argument-in-place"
    assert z.tolist() == [1 + 2j, 3 - 4j]
    resolved = target.clone()
    expected = resolved * 2
    fd.execute([resolved])
    assert resolved.equal(expected)


# ---- groups with reductions


def specialized(define: Callable[[FusionDefinition], None], *sizes: list[int]) -> dict[str, Any]:
    """The specialized definition for contiguous inputs of these sizes."""
    with FusionDefinition() as fd:
        define(fd)
    inputs = [torch.empty(s, device="meta") for s in sizes]
    layouts = [(list(x.shape), list(x.stride())) for x in inputs]
    found: dict[str, Any] = _core_testing.driver.specialize(fd._builder, layouts)
    return found


def rows(fd: FusionDefinition, value: Any) -> Any:
    """Broadcasts a value per row to [rows, columns]."""
    return fd.ops.broadcast(value, [False, True])


def matrix(fd: FusionDefinition) -> Any:
    return fd.define_tensor([-1, -1])


def vector(fd: FusionDefinition) -> Any:
    return fd.define_tensor([-1])


def centered(fd: FusionDefinition) -> None:
    x = matrix(fd)
    fd.add_output(x - rows(fd, fd.ops.sum(x, [1])), x)


def centered_and_read_across(fd: FusionDefinition) -> None:
    x = matrix(fd)
    fd.add_output(x - rows(fd, fd.ops.sum(fd.ops.permute(x, [1, 0]), [1])), x)


def row_statistics(fd: FusionDefinition) -> None:
    x, running = matrix(fd), vector(fd)
    fd.add_output(running * 0.9 + fd.ops.sum(x, [1]), running)


def column_statistics(fd: FusionDefinition) -> None:
    x, running = matrix(fd), vector(fd)
    fd.add_output(running * 0.9 + fd.ops.sum(x, [0]), running)


def statistics_beside_rows(fd: FusionDefinition) -> None:
    x, running = matrix(fd), vector(fd)
    total = fd.ops.sum(x, [1])
    fd.add_output(x - rows(fd, total))
    fd.add_output(running * 0.9 + total, running)


def statistics_used_in_rows(fd: FusionDefinition) -> None:
    """Threads of a row read the old statistic while another thread stores the new one."""
    x, running = matrix(fd), vector(fd)
    total = fd.ops.sum(x, [1])
    fd.add_output((x - rows(fd, total)) * rows(fd, running))
    fd.add_output(running * 0.9 + total, running)


def statistics_that_are_reduced(fd: FusionDefinition) -> None:
    x, running = matrix(fd), vector(fd)
    fd.add_output(running + fd.ops.sum(x * rows(fd, running), [1]), running)


def read_by_another_kernel(fd: FusionDefinition) -> None:
    x, y = matrix(fd), matrix(fd)
    fd.add_output(x - rows(fd, fd.ops.sum(x, [1])), x)
    fd.add_output(fd.ops.sum(fd.ops.broadcast(x, [True, False, False]) + 1.0, [0, 1, 2]))
    fd.add_output(y)


def scale_of_all(fd: FusionDefinition) -> None:
    """A weight over the reduced axes: every block reads elements that one of them would
    overwrite."""
    x, weight = matrix(fd), vector(fd)
    normalized = x - rows(fd, fd.ops.sum(x, [1]))
    fd.add_output(normalized * fd.ops.broadcast(weight, [True, False]))
    fd.add_output(weight * 2.0, weight)


@pytest.mark.parametrize(
    ("define", "inputs", "target", "direct"),
    [
        (centered, [[5, 7]], 0, True),
        (centered_and_read_across, [[5, 5]], 0, True),
        (row_statistics, [[5, 7], [5]], 0, True),
        (column_statistics, [[5, 7], [7]], 0, True),
        (statistics_beside_rows, [[5, 7], [5]], 1, True),
        (statistics_used_in_rows, [[5, 7], [5]], 1, False),
        (statistics_that_are_reduced, [[5, 7], [5]], 0, False),
        (read_by_another_kernel, [[5, 7], [5, 7]], 0, True),
        (scale_of_all, [[5, 7], [7]], 1, True),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_in_place_of_a_reduction(
    define: Callable[[FusionDefinition], None], inputs: list[list[int]], target: int, direct: bool
) -> None:
    found = specialized(define, *inputs)
    assert found["in_place"][target] == direct
    assert (("copy", target) in found["steps"]) != direct


def linear_between(fd: FusionDefinition) -> None:
    x, w = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    y = fd.ops.linear(fd.ops.relu(x), w)
    fd.add_output(fd.ops.tanh(y))
    fd.add_output(fd.ops.exp(x), alias_input=x)


def linear_of_a_target(fd: FusionDefinition) -> None:
    x, w = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.linear(x, w))
    fd.add_output(fd.ops.exp(x), alias_input=x)


def test_library_calls_stand_between_what_they_read_and_what_reads_them() -> None:
    found = specialized(linear_between, [5, 7], [3, 7])
    call = next(i for i, step in enumerate(found["steps"]) if step[0] == "linear")
    ((_, (result,)),) = [found["steps"][call]]
    assert found["temps"][result]
    before, after = (
        [found["groups"][group] for kind, group in steps if kind == "kernel"]
        for steps in (found["steps"][:call], found["steps"][call + 1 :])
    )
    assert any(found["temps"][o] and o != result for g in before for o in g["stores"])
    assert [g["reads"] for g in after] == [[result]]


def test_what_a_library_call_reads_is_written_behind_it() -> None:
    found = specialized(linear_of_a_target, [5, 7], [3, 7])
    assert found["in_place"] == [False, True]
    writer = next(i for i, g in enumerate(found["groups"]) if 1 in g["stores"])
    assert found["steps"].index(("linear", [0])) < found["steps"].index(("kernel", writer))


def test_pieces_stand_behind_their_group_and_hand_over_temporaries() -> None:
    found = specialized(centered, [5, 7])
    whole, *others = found["groups"]
    assert found["steps"] == [("kernel", 0)], "pieces are no steps: the plan chooses"
    assert whole["fission"] == list(range(1, len(others) + 1))
    assert len(others) >= 2
    assert whole["stores"] == [0]
    assert found["temps"][0] is False
    stored: set[int] = set()
    for piece in others:
        assert set(piece["reads"]) <= stored
        stored |= set(piece["stores"])
        assert piece["fission"] == []
    assert stored == set(range(len(found["temps"])))
    assert sum(found["temps"]) >= 1


def test_a_reduction_whose_result_no_row_reads_has_no_pieces() -> None:
    found = specialized(row_statistics, [5, 7], [5])
    assert [g["fission"] for g in found["groups"]] == [[]]
    assert not any(found["temps"])


@pytest.mark.parametrize(
    ("value", "bucket"),
    [*[(0, 0), (1, 0), (2, 4), (3, 6), (4, 8), (5, 9), (1 << 40, 160)], ((1 << 40) + 1, 161)],
)
def test_buckets(value: int, bucket: int) -> None:
    assert _core_testing.driver.bucket_of(value) == bucket
    limits = [(4 + b % 4 << b // 4) >> 2 for b in range(bucket + 1)]  # quarters of an octave
    assert value <= limits[bucket]
    assert all(limit < value for limit in limits[:bucket])


# ---- variants


def test_a_variant_for_every_alignment() -> None:
    fd = scaled(1.625)
    base = torch.arange(4096.0)
    for length in (64, 1024):
        for offset in range(5):
            x = base[offset : offset + length]
            assert fd.execute([x])[0].equal(x * 1.625)
    assert fd.plan([base[:64]]) == fd.plan([base[4:68]])
    assert fd.plan([base[:64]]) != fd.plan([base[1:65]])
    before = fuser.cache_info()
    fd.execute([base[8:72]])
    assert gained(before).plans == 0


def test_size_1() -> None:
    """A computed size that is negative."""
    with FusionDefinition() as fd:
        n = fd.define_scalar(DataType.Int)
        fd.add_output(fd.ops.full([n], 1.0, DataType.Float))
    with pytest.raises(fuser.ShapeError) as caught:
        fd.execute([-3], device="cpu")
    assert caught.value.rule == "size-1"
    assert str(caught.value).startswith(
        "full(): axis 0 has a computed size of -3; expected at least 0\n"
        "  t0: float32[s0]  defined at "
    )
    assert fd.execute([0], device="cpu")[0].shape == (0,)
