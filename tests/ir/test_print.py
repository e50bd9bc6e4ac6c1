"""csrc/ir/print: the text of kernels is stable, readable and exact."""

import math
import struct

import pytest

from fuser import _core, _core_testing
from fuser._core import DataType

ir = _core_testing.ir
Symbol = ir.Symbol


def text_of(value: ir.Expr) -> str:
    """The expression's text after `v0 : dtype = `."""
    line = ir.let_text(value).split("\n")[1]
    prefix, _, text = line.partition(" = ")
    assert prefix == f"  v0 : {value.dtype.device_name}"
    return text


@pytest.fixture
def exprs() -> ir.Exprs:
    return ir.Exprs()


def nan(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "1.0"),
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
        (5e-324, "5e-324"),
        (1 / 3, "0.3333333333333333"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (nan(0x7FF8000000000000), "nan"),
        (nan(0xFFF8000000000000), "nan(0xfff8000000000000)"),
        (nan(0x7FF8000000000001), "nan(0x7ff8000000000001)"),
    ],
)
def test_floats_are_exact(value: float, expected: str, exprs: ir.Exprs) -> None:
    assert text_of(exprs.real(value, DataType.Double)) == f"{expected}:f64"


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (0, DataType.Bool, "false:bool"),
        (1, DataType.Bool, "true:bool"),
        (-128, DataType.Char, "-128:i8"),
        (255, DataType.Byte, "255:u8"),
        (-(2**63), DataType.Int, "-9223372036854775808"),
        (2**63 - 1, DataType.Int, "9223372036854775807"),
    ],
)
def test_integers(value: int, dtype: DataType, expected: str, exprs: ir.Exprs) -> None:
    assert text_of(exprs.integer(value, dtype)) == expected


def test_complex(exprs: ir.Exprs) -> None:
    value = exprs.real(complex(1.5, -math.inf), DataType.ComplexFloat)
    assert text_of(value) == "{1.5, -inf}:c64"


@pytest.mark.parametrize(
    ("symbol", "dtype", "expected"),
    [
        (Symbol.Size, DataType.Int, "size(3, 2)"),
        (Symbol.Stride, DataType.Int, "stride(3, 2)"),
        (Symbol.Scalar, DataType.Int, "scalar(3)"),
        (Symbol.Scalar, DataType.Double, "scalar(3):f64"),
        (Symbol.Value, DataType.BFloat16, "value(3):bf16"),
        (Symbol.Axis, DataType.Int, "a3"),
        (Symbol.Var, DataType.Int, "v3"),
        (Symbol.Param, DataType.Int, "p3"),
        (Symbol.Thread, DataType.Int, "thread"),
        (Symbol.Block, DataType.Int, "block"),
    ],
)
def test_symbols(symbol: Symbol, dtype: DataType, expected: str, exprs: ir.Exprs) -> None:
    assert text_of(exprs.symbol(symbol, 3, 2, dtype)) == expected


def test_parentheses_only_where_they_are_needed(exprs: ir.Exprs) -> None:
    x, y, z = (exprs.symbol(Symbol.Var, i) for i in (1, 2, 3))

    def op(name: str, *args: ir.Expr) -> ir.Expr:
        return exprs.apply(name, list(args))

    assert text_of(op("sub", op("sub", x, y), z)) == "v1 - v2 - v3"
    assert text_of(op("sub", x, op("sub", y, z))) == "v1 - (v2 - v3)"
    assert text_of(op("div", op("mul", x, y), z)) == "v1 * v2 / v3"
    assert text_of(op("div", x, op("mul", y, z))) == "v1 / (v2 * v3)"
    assert text_of(op("mod", op("add", x, y), z)) == "(v1 + v2) % v3"
    assert text_of(op("lt", op("add", x, y), op("mod", y, z))) == "v1 + v2 < v2 % v3"
    assert text_of(op("sub", x, exprs.integer(-1))) == "v1 - -1"
    assert text_of(op("neg", op("add", x, y))) == "neg(v1 + v2)"
    assert text_of(op("logical_not", op("lt", x, y))) == "logical_not(v1 < v2)"


def test_only_int64_is_infix(exprs: ir.Exprs) -> None:
    for dtype in (DataType.Int32, DataType.Float):
        x = exprs.symbol(Symbol.Var, 1, dtype=dtype)
        assert text_of(exprs.apply("mul", [x, x])) == "mul(v1, v1)"
        assert text_of(exprs.apply("lt", [x, x])) == "lt(v1, v1)"


KERNEL = """\
kernel k threads 128 min_blocks 2 index 64 {
  buffer g_in0 f32 read
  buffer g_out0 f32 written restrict
  array r f32 2
  v0 = block * 128 + thread
  load r[0] width 2 g_in0[v0 * 2]
  for v1 < 2 {
    for v2 < 1 {
      r[v1] = neg(r[v1])
    }
  }
  write g_out0[v0 * 2] width 2 r[0]
  barrier
}
"""


def test_kernel_text() -> None:
    kernel = _core.parse_kernel(KERNEL)
    assert kernel.text() == KERNEL
    assert str(kernel) == KERNEL
    assert kernel.statements() == [
        "v0 = block * 128 + thread",
        "load r[0] width 2 g_in0[v0 * 2]",
        "for v1 < 2",
        "for v2 < 1",
        "r[v1] = neg(r[v1])",
        "write g_out0[v0 * 2] width 2 r[0]",
        "barrier",
    ]


def test_fields_are_named_where_there_are_several() -> None:
    """A state of several fields names its field; a state of one field is written as a plain
    value."""
    head = "kernel k threads 32 min_blocks 0 index 32 {\n  buffer g f32 written\n"
    text = (
        head
        + """\
  array r f32 1 state sum
  array w f32 1 state welford
  array a f32 1 state argmin
  v0 : f32 = add(r[0], w[0].f2)
  v1 : f32 = add(w[0].f0, a[0].f0)
  v2 = a[0].f1 + 1
}
"""
    )
    assert _core.parse_kernel(text).text() == text
    bare = text.replace(".f0", "")
    assert _core.parse_kernel(bare).text() == text


def test_loops_and_conditions_without_their_bodies() -> None:
    head = "kernel k threads 32 min_blocks 0 index 32 {\n"
    kernel = _core.parse_kernel(
        head + "  serial v0 < block {\n    if uniform v0 < 3 {\n      barrier\n    }\n  }\n}\n"
    )
    assert kernel.statements() == ["serial v0 < block", "if uniform v0 < 3", "barrier"]


def test_text_does_not_depend_on_the_history_of_the_arena() -> None:
    later = KERNEL.replace("  v0 = ", "  blocks size(0, 1)\n  v0 = ").replace("v0 * 2]", "v0 + p0]")
    declared = later.replace("  array", "  param p0 : i32 int size(0, 1) + size(0, 0)\n  array")
    # size(0, 1) was created first, but the sum is printed in the same order.
    assert "int size(0, 0) + size(0, 1)\n" in _core.parse_kernel(declared).text()
