"""fuser/debug/evaluate.py: evaluation of a definition op by op in float64."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuser import (
    ArgumentTypeError,
    DataType,
    DTypeError,
    FusionDefinition,
    ShapeError,
    UserError,
    evaluate,
)


def test_real_ops_do_not_round() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output((x + 1e-12) - x)
    (result,) = evaluate(fd, [torch.ones(3)])
    assert result.dtype == torch.float64
    torch.testing.assert_close(result, torch.full((3,), 1e-12).double(), rtol=1e-3, atol=0)


def test_casts_round() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        y = fd.ops.cast(x / 3, DataType.BFloat16)
        fd.add_output(y)
        fd.add_output(y * 3)
        fd.add_output(fd.ops.cast(y * 3 - 0.01, DataType.Int32))
    rounded, times, whole = evaluate(fd, [torch.tensor([1.0, 5.0])])
    third = torch.tensor([1 / 3, 5 / 3]).bfloat16().double()
    assert rounded.tolist() == third.tolist()
    assert times.tolist() == (third * 3).tolist()
    assert whole.dtype == torch.int32
    assert whole.tolist() == [0, 4]


def test_integers_are_exact_in_their_type() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Int32)
        y = fd.define_tensor([-1], dtype=DataType.Int)
        fd.add_output(x * x)
        fd.add_output(x * y)
        fd.add_output(x // 0)
        fd.add_output(x > 3)
    big = torch.tensor([2**20, -7], dtype=torch.int32)
    wrapped, wide, by_zero, compared = evaluate(fd, [big, torch.tensor([2**40, 3])])
    assert (wrapped.dtype, wrapped.tolist()) == (torch.int32, [0, 49])
    assert (wide.dtype, wide.tolist()) == (torch.int64, [2**60, -21])
    assert by_zero.tolist() == [-1, -1]
    assert (compared.dtype, compared.tolist()) == (torch.bool, [True, False])


def test_complex() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.ComplexFloat)
        fd.add_output(fd.ops.exp(x) * 2j)
        fd.add_output(fd.ops.imag(x))
    given = torch.tensor([1 + 2j, -0.5j])
    results = evaluate(fd, [given])
    torch.testing.assert_close(results[0], given.to(torch.complex128).exp() * 2j)
    assert results[1].tolist() == [2.0, -0.5]


def test_movement() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x - fd.ops.permute(x, [1, 0]))
        row = fd.define_tensor([-1])
        column = fd.ops.broadcast(row, [False, True])
        fd.add_output(column - row)
        fd.add_output(fd.ops.broadcast_in_dim(row, [2, fd.ops.size(row, 0), 2], [1]))
        fd.add_output(fd.ops.squeeze(fd.ops.stride_order(column, [0, 1]), [-1]))
        fd.add_output(fd.ops.full([row.size(0) * 2, 3], 0.1, DataType.Half))
        fd.add_output(fd.ops.expand(column, [-1, 4]))
    a, b = torch.randn(3, 3), torch.arange(4.0)
    turned, outer, grown, squeezed, filled, expanded = evaluate(fd, [a, b])
    assert torch.equal(turned, a.double() - a.T.double())
    assert torch.equal(outer, (b[:, None] - b[None, :]).double())
    assert torch.equal(grown, b[None, :, None].expand(2, 4, 2).double())
    assert torch.equal(squeezed, b.double())
    assert torch.equal(filled, torch.full((8, 3), 0.1).half().double())
    assert torch.equal(expanded, b[:, None].expand(4, 4).double())


def test_scalars_and_sizes() -> None:
    with FusionDefinition() as fd:
        s = fd.define_scalar()
        x = fd.define_tensor([-1, -1])
        n = fd.define_scalar(DataType.Int)
        half = fd.define_scalar(DataType.Half)
        fd.add_output(x * (s + x.size(0)) + n % 3)
        fd.add_output(fd.ops.full([n, 2], half, DataType.Double))
    first, second = evaluate(fd, [0.5, torch.ones(4, 1), 5, 0.1])
    assert first.tolist() == [[6.5]] * 4
    assert second.tolist() == [[float(torch.tensor(0.1).half())] * 2] * 5


def test_aliased_outputs_and_untouched_inputs() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Double)
        fd.add_output(x * 2, alias_input=x)
        fd.add_output(x + 1)
        fd.add_output(x)
    given = torch.tensor([1.0, 2.0], dtype=torch.float64)
    results = evaluate(fd, [given])
    assert [r.tolist() for r in results] == [[2.0, 3.0], [1.0, 2.0]]
    everything = evaluate(fd, [given], aliased=True)
    assert [r.tolist() for r in everything] == [[2.0, 4.0], [2.0, 3.0], [1.0, 2.0]]
    everything[2][0] = 9.0
    assert given.tolist() == [1.0, 2.0]


def test_every_value_of_narrow_types_comes_in_exactly() -> None:
    for dtype, torch_dtype in [
        (DataType.Float8_e4m3fn, torch.float8_e4m3fn),
        (DataType.Float8_e5m2, torch.float8_e5m2),
    ]:
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1], dtype=dtype)
            fd.add_output(fd.ops.neg(x))
        values = torch.arange(256, dtype=torch.uint8).view(torch_dtype)
        (result,) = evaluate(fd, [values])
        torch.testing.assert_close(result, -values.double(), rtol=0, atol=0, equal_nan=True)


def test_ten_thousand_ops(rng: np.random.Generator) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Double)
        y = x
        for _ in range(5_000):
            y = -(y + 1)
        fd.add_output(y)
    given = torch.from_numpy(rng.normal(size=3).round(2))
    (result,) = evaluate(fd, [given])
    torch.testing.assert_close(result, given, rtol=1e-9, atol=1e-9)


def two_inputs() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 4])
        s = fd.define_scalar()
        y = fd.define_tensor([-1], dtype=DataType.Half)
        fd.add_output(x * s + y)
    return fd


ERRORS: list[tuple[list[Any], type[UserError], str, str]] = [
    ([torch.ones(2, 4)], UserError, "argument-count", "evaluate(): expected 3 inputs, got 1"),
    (
        [1.0, torch.ones(2, 4), 1.0],
        ArgumentTypeError,
        "argument-type",
        "evaluate(): input 0: expected a tensor, got float",
    ),
    (
        [torch.ones(2, 4), torch.ones(()), torch.ones(4).half()],
        ArgumentTypeError,
        "argument-type",
        "evaluate(): input 1: expected a number, got Tensor",
    ),
    (
        [torch.ones(2, 4), 1.0, torch.ones(4)],
        DTypeError,
        "argument-dtype",
        "evaluate(): input 2 (t1, defined at {1}): expected float16, got float32\n"
        "  hint: convert the input, or define the tensor with that type",
    ),
    (
        [torch.ones(4), 1.0, torch.ones(4).half()],
        ShapeError,
        "argument-rank",
        "evaluate(): input 0 (t0, defined at {0}): expected shape [-1, 4] (-1: any), got [4]",
    ),
    (
        [torch.ones(4, 3), 1.0, torch.ones(4).half()],
        ShapeError,
        "argument-size",
        "evaluate(): input 0 (t0, defined at {0}): expected shape [-1, 4] (-1: any), got [4, 3]",
    ),
]


@pytest.mark.parametrize(("inputs", "kind", "rule", "text"), ERRORS)
def test_inputs_that_do_not_fit(
    inputs: list[Any], kind: type[UserError], rule: str, text: str
) -> None:
    fd = two_inputs()
    lines = [t.location for t in fd.fusion.inputs() if hasattr(t, "location")]
    with pytest.raises(UserError) as caught:
        evaluate(fd, inputs)
    assert type(caught.value) is kind
    assert caught.value.rule == rule
    assert str(caught.value) == text.replace("{0}", lines[0]).replace("{1}", lines[1])


def test_evaluate_1() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        z = x + y
        fd.add_output(z)
    with pytest.raises(ShapeError) as caught:
        evaluate(fd, [torch.ones(3), torch.ones(4)])
    assert caught.value.rule == "evaluate-1"
    assert str(caught.value).startswith("add: ")
    assert str(caught.value).endswith(
        f"\n  t0: sizes [3]\n  t1: sizes [4]\n  defined at {z.location}"
    )


@pytest.mark.parametrize(
    "wanted",
    [
        lambda o, x, n: o.reshape(x, [n, 3]),
        lambda o, x, n: o.reshape(x, [n]),
        lambda o, x, n: o.reshape(x, [n, -1]),
        lambda o, x, n: o.reshape(x, [2, n, 3]),
        lambda o, x, n: o.expand(x, [n, 6]),
        lambda o, x, n: o.broadcast_in_dim(x, [n, 3, 6], [1, 2]),
        lambda o, x, n: o.full([n], 1.0, DataType.Float),
    ],
)
def test_a_scalar_is_no_minus_one(wanted: Callable[..., Any]) -> None:
    """A literal -1 is a symbolic size; a scalar input of -1 is a negative size and an error."""
    fd = FusionDefinition()
    x, n = fd.define_tensor([3, 6]), fd.define_scalar(DataType.Int)
    fd.add_output(wanted(fd.ops, x, n))
    for run in (fd.execute, functools.partial(evaluate, fd)):
        with pytest.raises(ShapeError):
            run([torch.zeros(3, 6), -1])


def test_reductions(rng: np.random.Generator) -> None:
    x = torch.from_numpy(rng.normal(size=(4, 3, 5))).float()
    n = torch.from_numpy(rng.integers(-3, 4, (4, 3, 5))).to(torch.int8)
    exact = x.double()
    with FusionDefinition() as fd:
        a, b = fd.from_pytorch(x), fd.from_pytorch(n)
        for t in (a, b):
            for name in ("sum", "prod", "max", "min", "any", "all"):
                fd.add_output(getattr(fd.ops, name)(t, [2, 0]))
        fd.add_output(fd.ops.argmax(a))
        fd.add_output(fd.ops.argmin(b, 1))
        fd.add_output(fd.ops.reduction("argmax", a, [0, 2]))
    results = evaluate(fd, [x, n])
    flat = exact.permute(1, 0, 2).reshape(3, 20)
    whole = n.permute(1, 0, 2).reshape(3, 20)
    for values, got in ((flat, results[:6]), (whole, results[6:12])):
        expected = [values.sum(1), values.prod(1), values.amax(1), values.amin(1)]
        expected += [values.any(1), values.all(1)]
        for one, other in zip(got, expected, strict=True):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-15)
    assert results[12].item() == exact.argmax().item()
    assert results[13].tolist() == n.long().argmin(1).tolist()
    assert results[14].tolist() == flat.amax(1).tolist()


def test_half_types_are_not_rounded_in_a_sum() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.BFloat16)
        fd.add_output(fd.ops.sum(x * 1.001))
        fd.add_output(fd.ops.sum(x, dtype=DataType.BFloat16))
    given = torch.ones(1001).bfloat16()
    exact, rounded = evaluate(fd, [given])
    assert exact.item() == pytest.approx(1002.001, abs=1e-9)
    assert rounded.item() == 1000.0


def test_nothing_to_reduce() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        for name in ("sum", "prod", "any", "all"):
            fd.add_output(getattr(fd.ops, name)(x, 1))
        fd.add_output(fd.ops.max(x, 1, identity=True))
        fd.add_output(fd.ops.max(x, 0))
    results = evaluate(fd, [torch.zeros(2, 0)])
    assert [r.tolist() for r in results] == [
        *([0.0, 0.0], [1.0, 1.0], [False, False], [True, True], [-math.inf, -math.inf], []),
    ]
    with pytest.raises(ShapeError) as caught:
        evaluate(fd, [torch.zeros(0, 2)])
    assert caught.value.rule == "reduce-empty-1"
    assert str(caught.value).startswith(
        "max: axis 0 has size 0, expected at least one element\n  t0: sizes [0, 2]\n  defined at "
    )


def test_nothing_taken_from_nothing() -> None:
    """A result without elements may be gathered from a dim without elements, as in torch."""
    with FusionDefinition() as fd:
        x, index = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1], dtype=DataType.Int)
        fd.add_output(fd.ops.take_along_axis(x, index, 1))
        fd.add_output(fd.ops.index_select(x, fd.ops.iota(fd.ops.size(x, 1)), 1))
        fd.add_output(fd.ops.sum(fd.ops.take_along_axis(x, index, 1), [1]))
    inputs = [torch.ones(3, 0), torch.zeros(3, 0, dtype=torch.int64)]
    for results in (evaluate(fd, inputs), fd.execute(inputs)):
        assert [r.tolist() for r in results] == [[[], [], []], [[], [], []], [0.0, 0.0, 0.0]]
    for run in (evaluate, lambda fd, inputs: fd.execute(inputs)):
        with pytest.raises(ShapeError) as caught:
            run(fd, [torch.ones(3, 0), torch.zeros(3, 2, dtype=torch.int64)])
        assert caught.value.rule == "reduce-empty-1"
    with FusionDefinition() as fd:
        x = fd.define_tensor([3, 0])
        fd.add_output(fd.ops.index_select(x, fd.define_tensor([0], dtype=DataType.Int), 1))
        fd.add_output(fd.ops.gather(x, fd.define_tensor([-1, 0], dtype=DataType.Int), 1))
        with pytest.raises(ShapeError):
            fd.ops.select(x, 0, 1)
    none = torch.zeros(0, dtype=torch.int64)
    results = fd.execute([torch.ones(3, 0), none, none.view(2, 0)])
    assert [list(r.shape) for r in results] == [[3, 0], [2, 0]]


def test_indices() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        index = fd.define_tensor([-1, -1], dtype=DataType.Int)
        fd.add_output(fd.ops.take_along_axis(x, index, 1))
        fd.add_output(fd.ops.gather(x, index, 0))
        fd.add_output(fd.ops.iota(x.size(1), 10, -2))
        fd.add_output(fd.ops.iota(3, 0.25, dtype=DataType.Half))
    values, index = torch.arange(12.0).reshape(3, 4), torch.tensor([[0, 2, -1, 7]])
    taken, gathered, counted, floats = evaluate(fd, [values, index])
    assert taken.tolist() == [[0.0, 2.0, 3.0, 3.0], [4.0, 6.0, 7.0, 7.0], [8.0, 10.0, 11.0, 11.0]]
    assert gathered.tolist() == [[0.0, 9.0, 10.0, 11.0]]
    assert counted.tolist() == [10, 8, 6, 4]
    assert floats.tolist() == [0.25, 1.25, 2.25]


def test_dims_split_and_merged() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        halves = fd.ops.split_dim(x, 1, [2, -1])
        fd.add_output(halves)
        fd.add_output(fd.ops.merge_dims(fd.ops.permute(halves, [1, 0, 2]), 1))
    values = torch.arange(12.0).reshape(2, 6)
    split, merged = evaluate(fd, [values])
    assert torch.equal(split, values.double().reshape(2, 2, 3))
    assert torch.equal(merged, values.double().reshape(2, 2, 3).transpose(0, 1).reshape(2, 6))
    with pytest.raises(ShapeError) as caught:
        evaluate(fd, [torch.zeros(2, 5)])
    assert caught.value.rule == "evaluate-1"


@pytest.mark.parametrize(("m", "n"), [(1, 5), (5, 1), (5, 5), (1, 1)])
def test_sizes_of_what_was_broadcast(m: int, n: int) -> None:
    """The mean divides by the broadcast size, from whichever operand it comes."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        total = x + y
        fd.add_output(fd.ops.mean(total))
        fd.add_output(fd.ops.full(fd.ops.shape(total), 1, DataType.Int))
        fd.add_output(total * total.size(0))
    mean, ones, times = evaluate(fd, [torch.ones(m), torch.ones(n)])
    assert mean.item() == 2.0
    assert ones.shape == (max(m, n),)
    assert times.tolist() == [2.0 * max(m, n)] * max(m, n)


def test_nan_and_infinity_are_numbers() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(fd.ops.where(x > 0, math.inf, math.nan))
    (result,) = evaluate(fd, [torch.tensor([1.0, -1.0])])
    assert result[0] == math.inf
    assert result[1].isnan()


def test_sizes_that_do_not_fit_are_one_error_for_all_ops() -> None:
    for op in ("add", "fmod", "remainder"):
        fd = FusionDefinition()
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(getattr(fd.ops, op)(x, y))
        with pytest.raises(ShapeError):
            evaluate(fd, [torch.ones(3), torch.ones(4)])


def test_another_default_device_of_torch() -> None:
    """On the default device "meta", tensors created without a device have no values; fuser is
    unaffected."""
    x, index = torch.randn(6, 4), torch.randint(0, 4, (6, 2))
    with FusionDefinition() as fd:
        a, i = fd.from_pytorch(x), fd.from_pytorch(index)
        fd.add_output(fd.ops.gather(fd.ops.cast(a, DataType.Half), i, 1))
        fd.add_output(fd.ops.sum(fd.ops.iota(5, 0, 2)))
        fd.add_output(fd.ops.pad(a / 3, [1, 1]))
        fd.add_output(fd.ops.argmax(a, 1))
    with torch.device("meta"):
        gathered, total, padded, largest = fd.validate([x, index])
        exact = evaluate(fd, [x, index])
    assert torch.equal(gathered, x.half().gather(1, index))
    assert total.item() == 20
    assert torch.equal(padded, torch.nn.functional.pad(x / 3, [1, 1]))
    assert torch.equal(largest, x.argmax(1))
    assert all(t.device.type == "cpu" for t in exact)
