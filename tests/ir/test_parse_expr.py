"""csrc/ir/parse_expr: expressions of kernel text, into normal form, at any depth."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser import _core, _core_testing
from fuser._core import DataType
from fuser.errors import UserError

ir = _core_testing.ir
Expr, Symbol = ir.Expr, ir.Symbol

HEAD = "kernel k threads 32 min_blocks 0 index 32 {\n"


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("1 + thread", "thread + 1"),
        ("thread + block * 2 + 3 + 4", "block * 2 + thread + 7"),
        ("(((thread)))", "thread"),
        ("add(thread, 1)", "thread + 1"),
        ("lt(thread, 5)", "thread < 5"),
        ("i64(thread)", "thread"),
        ("thread - -1", "thread - -1"),
        ("thread - (block - 1)", "thread - (block - 1)"),
        ("2 * 3 - 10 / 4 % 3", "4"),
        ("5:i64", "5"),
    ],
)
def test_expressions_are_brought_into_normal_form(written: str, normal: str) -> None:
    kernel = _core.parse_kernel(HEAD + f"  v0 = {written}\n}}\n")
    assert kernel.statements() == [f"v0 = {normal}"]


BODY = "  array r f32 4\n  buffer g f32 read\n  array s f32 1 state welford\n"


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("v0 = ", 8, "expected an expression, got the end of the line"),
        ("v0 = thread +", 16, "expected an expression, got the end of the line"),
        ("v0 = thread thread", 15, "expected the end of the line, got 'thread'"),
        ("v0 = (thread", 15, "expected ')', got the end of the line"),
        ("v0 = thread)", 14, "expected the end of the line, got ')'"),
        ("v0 = (thread]", 15, "expected ')', got ']'"),
        ("v0 = unknown", 8, "expected an expression, got 'unknown'"),
        ("v0 = unknown(1)", 8, "expected an expression, got 'unknown'"),
        ("v0 = p0", 8, "expected a declared parameter, got 'p0'"),
        ("v0 = q[0]", 8, "expected a declared array, got 'q'"),
        (
            "v0 = true",
            8,
            "expected the dtype after the constant, e.g. true:bool or inf:f32",
        ),
        ("v0 : bool = 1:bool", 15, "expected true or false, got '1'"),
        ("v0 = 99999999999999999999", 8, "expected an integer of 64 bits"),
        (
            "v0 = 1.5",
            8,
            "expected an integer of 64 bits, or the dtype after the number, e.g. 1.5:f32",
        ),
        (
            "v0 : f32 = r[0] + r[1]",
            19,
            "expected operands of int64 (write add(x, y) for operands of f32)",
        ),
        ("v0 = 1 < 2 < 3", 14, "expected operands of int64 (write lt(x, y) for operands of bool)"),
        ("v0 : f32 = add(r[0])", 22, "expected ',': add expects 2 operands, got ')'"),
        ("v0 : f32 = add(r[0], r[1], r[2])", 28, "expected ')', got ','"),
        ("v0 : f32 = neg()", 18, "expected an expression, got ')'"),
        ("v0 : f16 = f16(r[0], 1)", 22, "expected ')', got ','"),
        ("v0 = size(0)", 14, "expected ',', got ')'"),
        ("v0 = {1.0:c64", 8, "expected an expression, got '{'"),
        ("r[0 = 1.0:f32", 7, "expected ']', got '='"),
        ("v0 : f32 = s[0].g1", 19, "expected a field, e.g. f0, got 'g1'"),
        ("v0 : f32 = s[0].f3", 19, "expected one of the 3 fields of s, got 'f3'"),
        ("v0 : f32 = r[0].f0", 19, "expected one of the 0 fields of r, got 'f0'"),
    ],
)
def test_parse_1(line: str, column: int, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        _core.parse_kernel(HEAD + BODY + "  " + line + "\n}\n")
    assert caught.value.rule == "parse-1"
    assert str(caught.value).startswith(f"kernel text, line 5, column {column}: {expected}")


# ---- Depth

DEPTH = 10_000


@pytest.mark.parametrize(
    "expression",
    [
        "(" * DEPTH + "thread" + ")" * DEPTH,
        "neg(" * DEPTH + "thread" + ")" * DEPTH,
        "thread" + " - 1 % block" * DEPTH,
        "block - (thread % (" * DEPTH + "thread" + "))" * DEPTH,
        "where(thread < 1, block, " * DEPTH + "thread" + ")" * DEPTH,
        " + ".join(f"v{i}" for i in range(1, DEPTH)),
    ],
    ids=["parentheses", "unary", "left", "right", "ternary", "sum"],
)
def test_deep_expressions(expression: str) -> None:
    text = _core.parse_kernel(HEAD + f"  v0 = {expression}\n}}\n").text()
    assert _core.parse_kernel(text).text() == text


# ---- Random expressions

OPS = {row.name: row for row in _core.op_rows()}
FLOAT_BITS = st.integers(0, 2**64 - 1).map(lambda b: struct.unpack("<d", struct.pack("<Q", b))[0])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan]) | FLOAT_BITS
RANGES = {
    **{f"u{b}": (0, 2 ** min(b, 63) - 1) for b in (8, 16, 32, 64)},
    **{f"i{b}": (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64)},
}
COMPUTED = [t for t in DataType.__members__.values() if t.compute == t]


def kind_of(dtype: DataType) -> str:
    return "Unsigned" if dtype.name.startswith("UInt") else dtype.kind


def leaves(exprs: ir.Exprs, dtype: DataType) -> st.SearchStrategy[Expr]:
    small = st.integers(0, 40)
    symbols = [
        st.builds(
            lambda s, i: exprs.symbol(s, i, 0, dtype),
            st.sampled_from([Symbol.Scalar, Symbol.Value]),
            small,
        )
    ]
    if dtype == DataType.Int:
        two = st.sampled_from([Symbol.Size, Symbol.Stride])
        one = st.sampled_from([Symbol.Axis, Symbol.Var])
        symbols += [
            st.builds(exprs.symbol, two, small, small),
            st.builds(exprs.symbol, one, small.map(lambda i: i + 1)),
            st.sampled_from([Symbol.Thread, Symbol.Block]).map(exprs.symbol),
            st.integers(-3, 3).map(exprs.integer),
        ]
    if dtype.kind == "Bool":
        constants = st.booleans().map(lambda b: exprs.integer(b, dtype))
    elif dtype.kind == "Int":
        constants = st.integers(*RANGES[dtype.device_name]).map(lambda i: exprs.integer(i, dtype))
    elif dtype.kind == "Float":
        constants = FLOATS.map(lambda v: exprs.real(v, dtype))
    else:
        constants = st.builds(complex, FLOATS, FLOATS).map(lambda v: exprs.real(v, dtype))
    return st.one_of(constants, *symbols)


def random_expr(draw: st.DrawFn, exprs: ir.Exprs, dtype: DataType, depth: int) -> Expr:
    """An expression of `dtype` that obeys the rules of the op table."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(leaves(exprs, dtype))

    def sub(d: DataType) -> Expr:
        return random_expr(draw, exprs, d, depth - 1)

    kind = kind_of(dtype)
    same = [
        n for n, r in OPS.items() if r.rule in ("Same", "Common", "Float") and kind in r.accepts
    ]
    choices = ["cast", *same, "where"]
    if dtype == DataType.Bool:
        choices += [n for n, r in OPS.items() if r.rule == "Predicate"]
    if dtype == DataType.Int:
        choices += ["add", "sub", "mul", "div", "mod"] * 4  # the infix ops
    name = draw(st.sampled_from(choices))
    if name == "cast":
        return exprs.cast(dtype, sub(draw(st.sampled_from([t for t in COMPUTED if t != dtype]))))
    if name == "where":
        return exprs.apply("where", [sub(DataType.Bool), sub(dtype), sub(dtype)])
    operand = dtype
    if OPS[name].rule == "Predicate":
        operand = draw(st.sampled_from([t for t in COMPUTED if kind_of(t) in OPS[name].accepts]))
    return exprs.apply(name, [sub(operand) for _ in range(OPS[name].arity)])


@given(st.data())
def test_random_expressions_read_back(data: st.DataObject) -> None:
    exprs = ir.Exprs()
    dtype = data.draw(st.sampled_from(list(DataType.__members__.values())))
    if dtype.compute == dtype:
        value = random_expr(data.draw, exprs, dtype, 5)
    else:
        value = exprs.cast(dtype, random_expr(data.draw, exprs, dtype.compute, 4))
    text = ir.let_text(value)
    assert _core.parse_kernel(text).text() == text
