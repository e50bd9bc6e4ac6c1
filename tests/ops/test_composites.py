"""fuser/ops/composites.py: the value of each composite, compared with torch.nn.functional in
float64."""

import functools
import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuser import DataType, FusionDefinition, Tensor, UserError, evaluate
from fuser.ops.composites import Composites
from fuser.ops.methods import op_names

Op = Callable[..., Any]

EDGES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 19.9, 20.1, -40.0, 40.0, 700.0, -700.0]
EDGES += [math.inf, -math.inf, math.nan]

UNARY: list[tuple[str, dict[str, Any], Op]] = [
    ("square", {}, torch.square),
    ("gelu", {}, F.gelu),
    ("gelu", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
    ("mish", {}, F.mish),
    ("softplus", {}, F.softplus),
    ("softplus", {"beta": 2.0, "threshold": 5.0}, lambda x: F.softplus(x, 2.0, 5.0)),
    ("logsigmoid", {}, F.logsigmoid),
    ("softsign", {}, F.softsign),
    ("tanhshrink", {}, F.tanhshrink),
    ("hardtanh", {}, F.hardtanh),
    ("hardtanh", {"min_val": -2.0, "max_val": 0.5}, lambda x: F.hardtanh(x, -2.0, 0.5)),
    ("relu6", {}, F.relu6),
    ("hardsigmoid", {}, F.hardsigmoid),
    ("hardswish", {}, F.hardswish),
    ("leaky_relu", {}, F.leaky_relu),
    ("leaky_relu", {"negative_slope": 0.3}, lambda x: F.leaky_relu(x, 0.3)),
    ("elu", {}, F.elu),
    ("elu", {"alpha": 0.7}, lambda x: F.elu(x, 0.7)),
    ("celu", {}, F.celu),
    ("celu", {"alpha": 0.7}, lambda x: F.celu(x, 0.7)),
    ("selu", {}, F.selu),
    ("hardshrink", {}, F.hardshrink),
    ("hardshrink", {"lambd": 2.0}, lambda x: F.hardshrink(x, 2.0)),
    ("softshrink", {}, F.softshrink),
    ("softshrink", {"lambd": 2.0}, lambda x: F.softshrink(x, 2.0)),
    ("logit", {}, torch.logit),
    ("segment_set", {}, lambda x: x),
]
BINARY: list[tuple[str, dict[str, Any], Op]] = [
    ("rsub", {}, torch.rsub),
    ("rsub", {"alpha": 2.5}, lambda a, b: torch.rsub(a, b, alpha=2.5)),
    ("add_alpha", {"alpha": 2.5}, lambda a, b: torch.add(a, b, alpha=2.5)),
    ("sub_alpha", {"alpha": 2.5}, lambda a, b: torch.sub(a, b, alpha=2.5)),
    ("hypot", {}, torch.hypot),
    ("log_add_exp", {}, torch.logaddexp),
    ("xlogy", {}, torch.xlogy),
    ("prelu", {}, lambda x, w: torch.where(x > 0, x, w * x)),
]
TERNARY: list[tuple[str, dict[str, Any], Op]] = [
    ("addcmul", {}, torch.addcmul),
    ("addcmul", {"value": -0.5}, lambda x, a, b: torch.addcmul(x, a, b, value=-0.5)),
    ("addcdiv", {}, torch.addcdiv),
    ("addcdiv", {"value": 3}, lambda x, a, b: torch.addcdiv(x, a, b, value=3)),
]


KEEPING_INTEGERS = ("segment_set", "square", "hardtanh", "relu6")
MIXED: dict[str, Op] = {
    "add_alpha": lambda a, b: torch.add(a, b, alpha=0.1),
    "sub_alpha": lambda a, b: torch.sub(a, b, alpha=0.1),
    "rsub": lambda a, b: torch.rsub(a, b, alpha=0.1),
    "hypot": torch.hypot,
    "log_add_exp": torch.logaddexp,
    "xlogy": torch.xlogy,
    "prelu": lambda x, w: torch.where(x > 0, x, w * x),
    "addcmul": lambda x, a, b: torch.addcmul(x, a, b, value=0.1),
    "addcdiv": lambda x, a, b: torch.addcdiv(x, a, b, value=0.1),
}


def run(name: str, keywords: dict[str, Any], *inputs: torch.Tensor) -> torch.Tensor:
    with FusionDefinition() as fd:
        args = [fd.define_tensor([-1], dtype=DataType.Double) for _ in inputs]
        fd.add_output(getattr(fd.ops, name)(*args, **keywords))
    return evaluate(fd, list(inputs))[0]


def grid(arity: int, rng: np.random.Generator) -> list[torch.Tensor]:
    values = torch.tensor(EDGES, dtype=torch.float64)
    columns = [c.flatten() for c in torch.meshgrid(*[values] * arity, indexing="ij")]
    return [torch.cat([c, torch.from_numpy(rng.normal(0, 3, 500))]) for c in columns]


@pytest.mark.parametrize(
    ("name", "keywords", "reference"),
    UNARY + BINARY + TERNARY,
    ids=lambda v: "torch" if callable(v) else str(v),
)
def test_meaning(
    name: str, keywords: dict[str, Any], reference: Op, rng: np.random.Generator
) -> None:
    arity = 1 if (name, keywords, reference) in UNARY else 3 if name.startswith("addc") else 2
    inputs = grid(arity, rng)
    expected = reference(*inputs)
    if name in ("hardswish", "gelu", "mish"):
        # torch's formula gives NaN or 0 at -inf; the limit is 0 or -0, and both are accepted.
        keep = ~torch.isinf(inputs[0])
        inputs, expected = [i[keep] for i in inputs], expected[keep]
    torch.testing.assert_close(
        run(name, keywords, *inputs), expected, rtol=1e-12, atol=1e-15, equal_nan=True
    )


def test_every_composite_is_tested() -> None:
    assert {name for name, *_ in UNARY + BINARY + TERNARY} == set(op_names(Composites))


@pytest.mark.parametrize("name", op_names(Composites))
def test_every_composite_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(Composites, name))


@pytest.mark.parametrize(
    ("name", "keywords"), [(n, k) for n, k, _ in UNARY if n not in KEEPING_INTEGERS]
)
@pytest.mark.parametrize("dtype", [DataType.Half, DataType.Int32])
def test_half_and_integers_count_as_float32(
    name: str, keywords: dict[str, Any], dtype: DataType
) -> None:
    fd = FusionDefinition()
    result: Tensor = getattr(fd.ops, name)(fd.define_tensor([2], dtype=dtype), **keywords)
    assert result.dtype() == DataType.Float


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32])
def test_half_and_integers_in_hardtanh_and_relu6(dtype: torch.dtype) -> None:
    """Integers keep their type, and fractions of the bounds are truncated, as in torch."""
    x = torch.tensor([-3, -2, -1, 0, 1, 2, 7], dtype=dtype)
    integers = not dtype.is_floating_point
    for name, bounds in (("relu6", ()), ("hardtanh", ()), ("hardtanh", (-2.9, 1.9))):
        got = executed(lambda ops, t, n=name, b=bounds: getattr(ops, n)(t, *b), x)
        expected = getattr(F, name)(x if integers else x.float(), *bounds)
        assert got.dtype == expected.dtype
        assert got.equal(expected)


def test_bounds_that_no_integer_is() -> None:
    """torch rejects these bounds for integers; fuser computes in float32."""
    x = torch.tensor([0, 3, 200], dtype=torch.uint8)
    assert executed(lambda ops, t: ops.hardtanh(t), x).equal(torch.tensor([0.0, 1.0, 1.0]))
    y = x.int() - 3
    assert executed(lambda ops, t: ops.hardtanh(t, -math.inf, 2), y).tolist() == [-3.0, 0.0, 2.0]


def test_the_square_of_bool_is_int64() -> None:
    x = torch.tensor([True, False])
    got = executed(lambda ops, t: ops.square(t), x)
    assert got.dtype == torch.square(x).dtype == torch.int64
    assert got.equal(torch.square(x))


@pytest.mark.parametrize("name", ["mish", "logsigmoid", "softsign", "hardshrink", "softshrink"])
def test_bool_and_the_least_integer_count_as_float32(name: str) -> None:
    """bool and the smallest integer have no absolute value in their own type, so these ops compute
    in float32."""
    for x in (
        torch.tensor([True, False]),
        torch.tensor([-(2**31), -7, 0, 7, 2**31 - 1], dtype=torch.int32),
    ):
        got = executed(lambda ops, t: getattr(ops, name)(t), x)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, getattr(F, name)(x.float()), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int32, torch.int64])
def test_binary_floats_of_integers(dtype: torch.dtype) -> None:
    least = 0 if dtype == torch.bool else torch.iinfo(dtype).min
    a, b = torch.tensor([least, 1, 3], dtype=dtype), torch.tensor([0, 1, least], dtype=dtype)
    for name, reference in (("hypot", torch.hypot), ("log_add_exp", torch.logaddexp)):
        got = executed(lambda ops, x, y, n=name: getattr(ops, n)(x, y), a, b)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, reference(a.float(), b.float()), rtol=1e-6, atol=1e-6)


def executed(op: Op, *inputs: torch.Tensor) -> torch.Tensor:
    fd = FusionDefinition()
    fd.add_output(op(fd.ops, *(fd.from_pytorch(t) for t in inputs)))
    return fd.execute(list(inputs))[0]


@pytest.mark.parametrize("name", MIXED)
def test_mixed_types_are_promoted_first(name: str, rng: np.random.Generator) -> None:
    """Operands are promoted to the common type before any op, as in torch, so that no intermediate
    rounds to a lower type. The reference for half types is torch's float32 result, rounded."""
    arity = 3 if name.startswith("addc") else 2
    scaled = name in ("add_alpha", "sub_alpha", "rsub", "addcmul", "addcdiv")
    values = {
        dtype: torch.from_numpy(rng.uniform(0.1, 3.0, 6)).to(dtype)
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    }
    values[torch.int64] = torch.tensor([1, 2, 3, 5, 7, 2**40 + 1])
    values[torch.bool] = torch.tensor([True, False, True, True, False, True])
    fd, expected = FusionDefinition(), []
    tensors = {dtype: fd.from_pytorch(t) for dtype, t in values.items()}
    for dtypes in itertools.product(values, repeat=arity):
        common = functools.reduce(torch.promote_types, dtypes)
        if len(set(dtypes)) == 1 or not common.is_floating_point:
            continue
        operands = [values[dtype] for dtype in dtypes]
        wide = torch.float32 if common.itemsize < 4 else common
        given = [tensors[dtype] for dtype in dtypes]
        fd.add_output(getattr(fd.ops, name)(*given, *([0.1] if scaled else [])))
        exact = MIXED[name](*(t.to(wide).double() for t in operands))
        size = torch.stack([t.to(wide).double().abs() for t in operands]).sum(0)
        expected.append((dtypes, wide, exact, size))
    results = fd.execute(list(values.values()))
    for got, (dtypes, wide, exact, size) in zip(results, expected, strict=True):
        assert got.dtype == wide, dtypes
        error = (got.double() - exact).abs() / torch.maximum(exact.abs(), size)
        assert torch.equal(got.isnan(), exact.isnan()), dtypes
        assert error.nan_to_num(0.0).max() < 8 * torch.finfo(wide).eps, dtypes


def test_numbers_and_tensors_of_no_dims_count_less() -> None:
    s, d = torch.tensor([0.1, 0.7]), torch.tensor([3.0, 5.0], dtype=torch.float64)
    got = executed(lambda ops, x: ops.xlogy(x, 3), d)
    torch.testing.assert_close(got, torch.xlogy(d, 3), rtol=1e-15, atol=0)
    got = executed(lambda ops, x: ops.xlogy(2, x), d)
    torch.testing.assert_close(got, torch.xlogy(2, d), rtol=1e-15, atol=0)
    one = d.sum()  # float64, zero dims
    got = executed(lambda ops, x, y: ops.add_alpha(x, y, 0.1), s, one)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, torch.add(s, one, alpha=0.1))
    got = executed(lambda ops, x, y: ops.addcmul(x, y, y), s.long(), one)
    expected = torch.addcmul(s.double() // 1, one, one)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, expected, rtol=1e-15, atol=0)


def test_gelu_1() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2])
    with pytest.raises(UserError) as caught:
        fd.ops.gelu(x, approximate="erf")
    assert caught.value.rule == "gelu-1"
    assert str(caught.value) == "gelu(): approximate: expected 'none' or 'tanh', got 'erf'"


def test_a_value_of_one_costs_nothing() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2])
    fd.ops.addcmul(x, x, x)
    assert repr(fd).count("fd.ops.") == 2


def test_composites_of_scalars_are_scalars() -> None:
    fd = FusionDefinition()
    s = fd.define_scalar()
    fd.add_output(fd.define_tensor([2], dtype=DataType.Double) * fd.ops.softplus(s))
    (result,) = evaluate(fd, [0.25, torch.ones(2, dtype=torch.float64)])
    expected = F.softplus(torch.full((2,), 0.25, dtype=torch.float64))
    torch.testing.assert_close(result, expected, rtol=1e-15, atol=0)
