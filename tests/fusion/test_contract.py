"""The choice of fma for a mul and an add depends on the definition only, never on the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuser import DataType, FusionDefinition, testing
from tests.support.stages import stage_text

Define = Callable[[FusionDefinition, Any, Any, Any], Any]


def kernel(define: Define, dtype: DataType = DataType.Float) -> str:
    fd = FusionDefinition()
    x, y, z = (fd.define_tensor([-1], dtype=dtype) for _ in range(3))
    fd.add_output(define(fd, x, y, z))
    values = torch.ones(8).to(getattr(torch, dtype.torch_name))
    return stage_text(fd, [values] * 3, "build")


FUSED: dict[str, tuple[Define, str]] = {
    "x*y + z": (lambda fd, x, y, z: x * y + z, "fma(r_in0[v], r_in1[v], r_in2[v])"),
    "z + x*y": (lambda fd, x, y, z: z + x * y, "fma(r_in1[v], r_in2[v], r_in0[v])"),
    "x*y - z": (lambda fd, x, y, z: x * y - z, "neg(r_in2[v])"),
    "z - x*y": (lambda fd, x, y, z: z - x * y, "neg(r_in1[v])"),
    "x*2 + 1": (lambda fd, x, y, z: x * 2.0 + 1.0, "fma(r_in0[v], 2.0:f32, 1.0:f32)"),
    "x*y - 2": (lambda fd, x, y, z: x * y - 2.0, "fma(r_in0[v], r_in1[v], neg(2.0:f32))"),
}


@pytest.mark.parametrize("case", FUSED)
def test_a_product_joins_its_only_sum(case: str) -> None:
    define, text = FUSED[case]
    got = kernel(define)
    assert got.count("fma(") == 1
    assert "mul(" not in got
    lane = got[got.rindex("for v") + 4 :].split()[0]
    assert text.replace("[v]", f"[{lane}]") in got, got


def twice(fd: FusionDefinition, x: Any, y: Any, z: Any) -> Any:
    product = x * y
    return (product + z) * product


def shown(fd: FusionDefinition, x: Any, y: Any, z: Any) -> Any:
    product = x * y
    fd.add_output(product)
    return product + z


SEPARATE: dict[str, Define] = {
    "a product of two uses": twice,
    "a product that is a result": shown,
    "a product that was cast": lambda fd, x, y, z: fd.ops.cast(x * y, DataType.Half) + z,
    "a product of fewer elements": lambda fd, x, y, z: (
        fd.ops.broadcast(x * y, [True, False]) + fd.ops.broadcast(z, [False, True])
    ),
    "a product in a narrower dtype": lambda fd, x, y, z: x * y + fd.ops.cast(z, DataType.Double),
}


@pytest.mark.parametrize("case", SEPARATE)
def test_other_products_stay(case: str) -> None:
    got = kernel(SEPARATE[case])
    assert "mul(" in got
    assert "fma(" not in got


def test_a_product_of_a_column_stays() -> None:
    """A product of two columns is computed once per row, so it is not merged into an fma per
    element."""
    fd = FusionDefinition()
    x, y, z = (fd.define_tensor([-1, columns]) for columns in (1, 1, -1))
    fd.add_output(x * y + z)
    got = stage_text(fd, [torch.ones(8, 1), torch.ones(8, 1), torch.ones(8, 4)], "build")
    assert "mul(" in got
    assert "fma(" not in got


def test_a_product_that_is_cast_for_nobody_joins() -> None:
    """A product with a dead cast still becomes an fma; the adapters cast every half-type value."""

    def cast_for_nobody(fd: FusionDefinition, x: Any, y: Any, z: Any) -> Any:
        product = x * y
        fd.ops.cast(product, DataType.Half)
        return product + z

    got = kernel(cast_for_nobody)
    assert "mul(" not in got
    assert got.count("fma(") == 1


# Operands that may equal the rounded product, so that the difference must not be an fma: rule 1 of
# contract.cpp.
OTHERS: dict[str, Define] = {
    "a product": lambda fd, x, y, z: y * z,
    "a square": lambda fd, x, y, z: fd.ops.pow(z, 2.0),
    "a quotient": lambda fd, x, y, z: y / z,
    "a reciprocal": lambda fd, x, y, z: fd.ops.reciprocal(z),
    "its negative": lambda fd, x, y, z: -(y * z),
    "its size": lambda fd, x, y, z: fd.ops.abs(y * z),
    "its integer part": lambda fd, x, y, z: fd.ops.round(y * z),
    "its remainder": lambda fd, x, y, z: fd.ops.fmod(y * z, 2.0),
    "a cast": lambda fd, x, y, z: fd.ops.cast(fd.ops.cast(y * z, DataType.Half), DataType.Float),
    "a choice": lambda fd, x, y, z: fd.ops.where(fd.ops.gt(x, 0.0), y * z, z),
    "a larger one": lambda fd, x, y, z: fd.ops.maximum(y * z, z),
    "a clamped one": lambda fd, x, y, z: fd.ops.clamp(y * z, 0.0, 1.0),
    "a root": lambda fd, x, y, z: fd.ops.sqrt(z * z),
    "a sum": lambda fd, x, y, z: y * z + 0.0,
    "a moved one": lambda fd, x, y, z: fd.ops.flip(y * z, [0]),
    "a sum of one element": lambda fd, x, y, z: fd.ops.sum(
        fd.ops.broadcast(y * z, [False, True]), [1]
    ),
}


@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("turn", ["x*y - c", "c - x*y", "x*y + -c"])
def test_a_product_beside_another_stays(case: str, turn: str) -> None:
    turns: dict[str, Callable[[Any, Any], Any]] = {
        "x*y - c": lambda p, c: p - c,
        "c - x*y": lambda p, c: c - p,
        "x*y + -c": lambda p, c: p + -c,
    }
    got = kernel(lambda fd, x, y, z: turns[turn](x * y, OTHERS[case](fd, x, y, z)))
    assert "mul(" in got
    assert got.count("fma(") == (case == "a sum")  # itself an fma of a product and a constant


def test_of_two_products_of_one_form_none_joins() -> None:
    assert "fma(" not in kernel(lambda fd, x, y, z: x * y + y * z)


def test_of_two_other_products_one_joins_whatever_their_order() -> None:
    x, y, z = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))

    def define(fd: FusionDefinition, x: Any, y: Any, z: Any) -> Any:
        fd.add_output(fd.ops.exp(fd.ops.sin(x) * y + y * z))
        return fd.ops.exp(z * y + y * fd.ops.sin(x))

    assert kernel(define).count("fma(") == 2
    fd = FusionDefinition()
    fd.add_output(define(fd, *(fd.define_tensor([-1]) for _ in range(3))))
    first, second = fd.execute([x, y, z])
    assert torch.equal(first, second)


def test_a_sum_of_products_that_is_subtracted_from_one_rounds_both() -> None:
    got = kernel(lambda fd, x, y, z: fd.ops.exp(x) * y + y * z - (x * z) * 2.0)
    assert "fma(" not in got


@pytest.mark.parametrize("function", ["exp", "sin", "tanh", "rsqrt", "gelu_erf"])
def test_a_product_beside_a_function_of_one_joins(function: str) -> None:
    got = kernel(lambda fd, x, y, z: x * y - getattr(fd.ops, function)(y * z))
    assert got.count("fma(") == 1
    assert got.count("mul(") == 1


def test_expressions_of_one_form_are_treated_alike() -> None:
    """Rule 2: if one product has another user, no sum of equal form becomes an fma."""

    def both(fd: FusionDefinition, x: Any, y: Any, z: Any) -> Any:
        product = x * y
        fd.add_output(product)
        fd.add_output(fd.ops.exp(product + z))
        return fd.ops.exp(y - z * x)

    got = kernel(both)
    assert "fma(" not in got
    assert got.count("mul(") == 2


def sums_of_squares(define: Callable[[FusionDefinition, Any], Any]) -> str:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(define(fd, x))
    return stage_text(fd, [torch.ones(4, 96)], "build")


def test_a_sum_takes_products_in_unrounded() -> None:
    got = sums_of_squares(lambda fd, x: fd.ops.sum(x * x, [1]))
    assert "mul(" not in got


@pytest.mark.parametrize("scaled", ["mean", "times a number", "over a number"])
def test_a_sum_that_is_subtracted_from_a_product_rounds_its_products(scaled: str) -> None:
    def variance(fd: FusionDefinition, x: Any) -> Any:
        mean = fd.ops.mean(x, [1])
        squares = {
            "mean": lambda: fd.ops.mean(x * x, [1]),
            "times a number": lambda: fd.ops.sum(x * x, [1]) * (1 / 96),
            "over a number": lambda: fd.ops.sum(x * x, [1]) / 96.0,
        }[scaled]()
        return squares - mean * mean

    got = sums_of_squares(variance)
    lane = got[got.index("mul(") :].split(")")[0]
    assert lane.count("r_in0") == 2, got


# ---- Differences of equal expressions


class Random:
    """Random expressions of products and sums, determined by their operands and `seed`."""

    def __init__(self, fd: FusionDefinition, seed: int, leaves: list[Any]) -> None:
        self.fd, self.leaves = fd, leaves
        self.rng = np.random.default_rng(seed)
        self.made: list[Any] = []

    def make(self, depth: int) -> Any:
        leaf, kind = self.rng.integers(0, len(self.leaves)), self.rng.integers(0, 12)
        if depth == 0:
            return self.leaves[leaf]
        ops, a = self.fd.ops, self.make(depth - 1)
        if kind < 7:
            b = self.make(depth - 1)
            t = a * b if kind < 4 else a + b if kind < 6 else a - b
        else:
            t = {
                7: lambda: -a,
                8: lambda: ops.abs(a),
                9: lambda: ops.cast(ops.cast(a, DataType.BFloat16), DataType.Float),
                10: lambda: ops.clamp(a, -2.0, 2.0),
                11: lambda: a * 0.3,
            }[int(kind)]()
        self.made.append(t)
        return t


FORMS: dict[str, Callable[[FusionDefinition, Any, Any], Any]] = {
    "p - q": lambda fd, p, q: p - q,
    "q - p": lambda fd, p, q: q - p,
    "p + (-q)": lambda fd, p, q: p + -q,
    "-p + q": lambda fd, p, q: -p + q,
    "p*p - q*q": lambda fd, p, q: p * p - q * q,
    "p*p + q*q - 2*p*q": lambda fd, p, q: p * p + q * q - p * 2.0 * q,
    "p*0.3 + -q*0.3": lambda fd, p, q: p * 0.3 + -q * 0.3,
    "sub with alpha": lambda fd, p, q: p * 0.7 - fd.ops.mul(q, 0.7),
}


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double], ids=["f32", "f64"])
def test_differences_of_equal_expressions_are_zero(
    dtype: DataType, rng: np.random.Generator
) -> None:
    """160 pairs per type: P and Q have equal form, on three tensors and on copies of them. P - Q is
    0 in every form, although some subexpressions of P are outputs or have other users."""
    calls, kinds = [], []
    for _ in range(20):
        seed = int(rng.integers(0, 1 << 30))
        fd = FusionDefinition()
        leaves = [fd.define_tensor([-1], dtype=dtype) for _ in range(6)]
        first, second = (Random(fd, seed, leaves[i : i + 3]) for i in (0, 3))
        p, q = first.make(4), second.make(4)
        for form in FORMS.values():
            fd.add_output(form(fd, p, q))
        for i, t in enumerate(first.made[:-1]):
            if rng.integers(0, 3) == 0:
                fd.add_output(t if i % 2 else fd.ops.exp(t * leaves[0]))
        values = [torch.from_numpy(rng.normal(size=200)).to(getattr(torch, dtype.torch_name))] * 3
        values = [v.roll(i) for i, v in enumerate(values)]
        calls.append((fd, [*values, *(v.clone() for v in values)]))
        kinds.append(seed)
    testing.compile_batch(calls)
    for (fd, inputs), seed in zip(calls, kinds, strict=True):
        results = fd.execute(inputs)
        for form, got in zip(FORMS, results, strict=False):
            assert (got == 0).all(), (seed, form, got.abs().max())


def test_the_root_of_a_difference_of_equal_squares_is_no_nan() -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    fd = FusionDefinition()
    t, u = fd.define_tensor([-1]), fd.define_tensor([-1])
    fd.add_output(fd.ops.sqrt(t * t - u * u))
    (got,) = fd.execute([x, x.clone()])
    assert (got == 0).all()


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_the_variance_of_equal_values_is_zero(columns: int) -> None:
    """E[x x] - E[x] E[x] of equal values is 0; the sums are so short that they are exact."""
    x = torch.rand(256, 1, generator=torch.Generator().manual_seed(0)).expand(256, columns)
    fd = FusionDefinition()
    t = fd.define_tensor([-1, -1])
    mean = fd.ops.mean(t, [1])
    fd.add_output(fd.ops.sqrt(fd.ops.mean(t * t, [1]) - mean * mean))
    (got,) = fd.execute([x.contiguous()])
    assert (got == 0).all()


def test_a_complex_number_times_its_conjugate_is_real() -> None:
    z = torch.randn(1000, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    fd = FusionDefinition()
    t, u = fd.define_tensor([-1], dtype=DataType.ComplexFloat), fd.define_tensor([-1])
    fd.add_output(t * fd.ops.complex(fd.ops.real(t), -fd.ops.imag(t)))
    fd.add_output(fd.ops.complex(u, u) * fd.ops.complex(u, u))
    product, square = fd.execute([z, z.real.contiguous()])
    assert (product.imag == 0).all()
    assert (square.real == 0).all()


@pytest.mark.parametrize("dtype", [DataType.Int, DataType.ComplexFloat, DataType.Bool])
def test_floats_only(dtype: DataType) -> None:
    assert "fma(" not in kernel(lambda fd, x, y, z: x * y + z, dtype)


def test_the_product_is_not_rounded() -> None:
    x = torch.tensor([1 + 2.0**-12] * 9)
    fd = FusionDefinition()
    t, u = fd.define_tensor([-1]), fd.define_tensor([-1])
    fd.add_output(t * t - u)
    fd.add_output(u - t * t)
    rounded = x * x
    first, second = fd.execute([x, rounded])
    exact = x.double() * x.double() - rounded.double()
    assert exact.any()
    assert torch.equal(first.double(), exact)
    assert torch.equal(second.double(), -exact)


# ---- Comparisons of integers


def coins(
    op: str,
    unit: float,
    limit: float,
    bits: int = 8,
    made_by: str = "logical_right_shift",
    dtype: DataType = DataType.Int32,
) -> FusionDefinition:
    fd = FusionDefinition()
    word = fd.define_tensor([-1], dtype=dtype)
    number = fd.ops.cast(getattr(fd.ops, made_by)(word, bits), DataType.Float)
    fd.add_output(getattr(fd.ops, op)(fd.ops.mul(number, unit), limit))
    return fd


UNIT = 2.0**-24
COMPARED = {"lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}


@pytest.mark.parametrize("limit", [0.1, 0.5, 0.0, 1.0, 1 - UNIT, -0.25, 3 * UNIT, 1e-9, 2.0])
@pytest.mark.parametrize("op", COMPARED)
def test_a_coin_compares_integers(op: str, limit: float) -> None:
    """The integer comparison gives the result of the float comparison at every number near the
    limit."""
    fd = coins(op, UNIT, limit)
    near = torch.arange(-3, 4) + min(max(round(limit / UNIT), 3), 2**24 - 4)
    numbers = torch.cat([near, torch.tensor([0, 1, 2**24 - 1, 2**23])])
    words = (numbers << 8 | 0xA5).to(torch.int32)
    assert "f32" not in stage_text(fd, [words], "build").replace("p0", "")
    (got,) = fd.execute([words])
    exact = COMPARED[op](numbers.double() * UNIT, float(torch.tensor(limit, dtype=torch.float32)))
    assert torch.equal(got, exact)


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": 0.1},  # the product is rounded
        {"unit": -UNIT},  # a negative factor reverses the order
        {"bits": 7},  # 25 bits do not fit float32
        {"dtype": DataType.Int},  # 56 bits do not fit either
        {"made_by": "bitwise_or"},  # the number of bits is unknown
        {"limit": float("nan")},
        {"limit": float("inf")},
        {"limit": 1},  # compares with an integer
    ],
)
def test_what_is_not_exact_stays_a_comparison_of_floats(changes: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"op": "ge", "unit": UNIT, "limit": 0.1}
    fd = coins(**(asked | changes))
    words = torch.arange(-8, 8, dtype=torch.int32) * 123_456_789
    if changes.get("dtype") is DataType.Int:
        words = words.long() << 20
    assert "f32" in stage_text(fd, [words], "build")
    fd.validate([words])
