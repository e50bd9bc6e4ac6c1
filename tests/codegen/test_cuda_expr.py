"""csrc/codegen/cuda_expr: expressions of Kernel IR as CUDA C: literals, indices, values."""

from __future__ import annotations

import pytest
import torch

from fuser import DataType, FusionDefinition
from tests.codegen.test_cuda import BUFFERS, printed

# ---- literals


@pytest.mark.parametrize(
    ("constant", "text"),
    [
        ("true:bool", "true"),
        ("false:bool", "false"),
        ("7:i32", "7"),
        ("-7:i32", "-7"),
        ("2147483647:i32", "2147483647"),
        ("-2147483648:i32", "(-2147483647 - 1)"),
        ("-1", "-1ll"),
        ("9223372036854775807", "9223372036854775807ll"),
        ("-9223372036854775808", "(-9223372036854775807ll - 1)"),
        ("200:u8", "(u8)200"),
        ("-128:i8", "(i8)-128"),
        ("-32768:i16", "(i16)-32768"),
        ("1.0:f32", "1.0f"),
        ("-0.0:f32", "-0.0f"),
        ("0.10000000149011612:f32", "0.100000001f"),
        ("16777216.0:f32", "16777216.0f"),
        ("1.0000000150474662e+30:f32", "1.00000002e+30f"),
        ("inf:f32", "float_((u32)0x7f800000u)"),
        ("-inf:f32", "float_((u32)0xff800000u)"),
        ("nan:f32", "float_((u32)0x7fc00000u)"),
        ("0.1:f64", "0.10000000000000001"),
        ("-0.0:f64", "-0.0"),
        ("5e-324:f64", "4.9406564584124654e-324"),
        ("1e+300:f64", "1.0000000000000001e+300"),
        ("inf:f64", "float_((u64)0x7ff0000000000000ull)"),
        ("nan:f64", "float_((u64)0x7ff8000000000000ull)"),
        ("1.5:bf16", "to<bf16>(1.5f)"),
        ("-inf:f16", "to<f16>(float_((u32)0xff800000u))"),
        ("nan:f8e4m3", "to<f8e4m3>(float_((u32)0x7fc00000u))"),
    ],
)
def test_literals(constant: str, text: str) -> None:
    dtype = constant.partition(":")[2] or "i64"
    lines = printed(f"  buffer g {dtype} written\n  array r {dtype} 1\n  r[0] = {constant}\n")
    assert lines == [f"{dtype} r[1];", f"r[0] = {text};"]


def complex_kernel(value: complex, dtype: DataType) -> tuple[str, torch.Tensor]:
    """The kernel text for a complex constant, and the value of the constant."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([1], value, dtype))
    (result,) = fd.execute([], device="cpu")
    return fd.last_cuda_code(), result


def test_complex_literals() -> None:
    text, result = complex_kernel(complex(-0.0, 2.5), DataType.ComplexDouble)
    assert "complex_(-0.0, 2.5)" in text
    assert str(result[0].item()) == "(-0+2.5j)"
    text, result = complex_kernel(complex(float("nan"), float("-inf")), DataType.ComplexDouble)
    nan, infinity = "float_((u64)0x7ff8000000000000ull)", "float_((u64)0xfff0000000000000ull)"
    assert f"complex_({nan}, {infinity})" in text
    assert str(result[0].item()) == "(nan-infj)"


# ---- index arithmetic and values

PARAMS = """\
  param p0 : i32 divisor size(0, 0)
  param p1 : i32 int size(0, 1)
"""


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("thread / p0", "fast_div_(thread_x(), p0)"),
        ("thread % p0", "fast_mod_(thread_x(), p0)"),
        ("thread / p1", "thread_x() / p1"),
        ("thread % p1", "thread_x() % p1"),
        ("(thread + p1) / p1", "(p1 + thread_x()) / p1"),
        ("p1 * thread - 3", "(p1 * thread_x()) - 3"),
        ("thread < p1", "thread_x() < p1"),
        ("logical_not(thread < p1)", "!(thread_x() < p1)"),
        ("logical_and(thread < p1, block < p1)", "(thread_x() < p1) && (block_x() < p1)"),
        ("where(thread < p1, p1, 7)", "((thread_x() < p1) ? p1 : 7)"),
        ("minimum(thread, p1)", "minimum_(thread_x(), p1)"),
    ],
)
def test_index_arithmetic(expression: str, text: str) -> None:
    kind = "bool" if expression.startswith(("logical", "thread <")) else "i32"
    assert printed(PARAMS + f"  v0 = {expression}\n") == [f"const {kind} v0 = {text};"]


def test_only_32_bit_divisors_are_divided_by_fast() -> None:
    wide = PARAMS.replace("i32", "i64") + "  v0 = thread / p0\n"
    assert printed(wide, index=64) == ["const i64 v0 = ((i64)thread_x()) / p0;"]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("add(neg(r[0]), 2.0:f32)", "minus_(r[0]) + 2.0f"),
        ("mul(sub(r[0], r[1]), r[2])", "(r[0] - r[1]) * r[2]"),
        ("add(r[v0 + 1], 1.0:f32)", "r[v0 + 1] + 1.0f"),
        ("where(lt(r[0], r[1]), r[0], r[1])", "where_((r[0] < r[1]), r[0], r[1])"),
        ("f32(bf16(r[3]))", "to<f32>(to<bf16>(r[3]))"),
    ],
)
def test_values_are_the_texts_of_their_ops(expression: str, text: str) -> None:
    assert printed(BUFFERS + f"  v1 : f32 = {expression}\n")[2:] == [f"const f32 v1 = {text};"]
