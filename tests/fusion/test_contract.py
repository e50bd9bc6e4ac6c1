"""Which mul and add become one fma: decided on the definition, never by the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition
from tests.stages import stage_text

Define = Callable[[FusionDefinition, Any, Any, Any], Any]


def kernel(define: Define, dtype: DataType = DataType.Float) -> str:
    fd = FusionDefinition()
    x, y, z = (fd.define_tensor([-1], dtype=dtype) for _ in range(3))
    fd.add_output(define(fd, x, y, z))
    values = torch.ones(8).to(getattr(torch, dtype.torch_name))
    return stage_text(fd, [values] * 3, "loops")


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
    """It is made once a row, not for each element of the sum."""
    fd = FusionDefinition()
    x, y, z = (fd.define_tensor([-1, columns]) for columns in (1, 1, -1))
    fd.add_output(x * y + z)
    got = stage_text(fd, [torch.ones(8, 1), torch.ones(8, 1), torch.ones(8, 4)], "loops")
    assert "mul(" in got
    assert "fma(" not in got


def test_a_product_that_is_cast_for_nobody_joins() -> None:
    """The adapters round each value of a half type, whoever may want it."""

    def cast_for_nobody(fd: FusionDefinition, x: Any, y: Any, z: Any) -> Any:
        product = x * y
        fd.ops.cast(product, DataType.Half)
        return product + z

    got = kernel(cast_for_nobody)
    assert "mul(" not in got
    assert got.count("fma(") == 1


def test_of_two_products_the_first_joins() -> None:
    got = kernel(lambda fd, x, y, z: x * y + y * z)
    assert got.count("mul(") == 1
    assert got.count("fma(") == 1


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
    """Exactly what the floats would give, at every number around the limit."""
    fd = coins(op, UNIT, limit)
    near = torch.arange(-3, 4) + min(max(round(limit / UNIT), 3), 2**24 - 4)
    numbers = torch.cat([near, torch.tensor([0, 1, 2**24 - 1, 2**23])])
    words = (numbers << 8 | 0xA5).to(torch.int32)
    assert "f32" not in stage_text(fd, [words], "loops").replace("p0", "")
    (got,) = fd.execute([words])
    exact = COMPARED[op](numbers.double() * UNIT, float(torch.tensor(limit, dtype=torch.float32)))
    assert torch.equal(got, exact)


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": 0.1},  # the product is rounded
        {"unit": -UNIT},  # the order turns around
        {"bits": 7},  # 25 bits are no float32
        {"dtype": DataType.Int},  # 56 bits are none either
        {"made_by": "bitwise_or"},  # nor are all bits
        {"limit": float("nan")},
        {"limit": float("inf")},
        {"limit": 1},  # an integer is not what the comparison reads
    ],
)
def test_what_is_not_exact_stays_a_comparison_of_floats(changes: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"op": "ge", "unit": UNIT, "limit": 0.1}
    fd = coins(**(asked | changes))
    words = torch.arange(-8, 8, dtype=torch.int32) * 123_456_789
    if changes.get("dtype") is DataType.Int:
        words = words.long() << 20
    assert "f32" in stage_text(fd, [words], "loops")
    fd.validate([words])
