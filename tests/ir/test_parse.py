"""csrc/ir/parse: text -> kernel -> the same text, and errors that say where and what."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser import _core
from fuser._core import DataType
from fuser.errors import UserError

ir = _core.ir_testing
Expr, Symbol = ir.Expr, ir.Symbol

# Every declaration, statement and kind of expression.
EVERYTHING = """\
kernel everything threads 256 min_blocks 3 index 32 vars 12 {
  buffer g_in0 bf16 read restrict
  buffer g_in1 c64 read written
  buffer g_out0 bf16 written restrict
  param p0 : i32 int size(0, 0) * stride(0, 1) + scalar(2)
  param p1 : i32 divisor size(0, 1)
  param p2 : f32 scalar 0
  param p3 : bf16 value 2
  array r_in0 bf16 8
  array r_in1 c64 1
  array r_out0 bf16 8
  axes [a0 a1] extents [size(0, 0), size(0, 1) * 4] index v0 * 8 vector
  axes [a2] extents [7] index v1
  axes [] extents [] index 0
  work size(0, 0) * size(0, 1)
  v0 = block * 256 + thread
  v1 = v0 / p1 % 7
  v2 = v0 < p0
  load r_in0[0] width 8 g_in0[v0 * 8] in v2 count p0 - v0 * 8
  load r_in1[0] width 1 g_in1[stride(1, 0) * a0 + a2] count 1
  v3 : c64 = add(r_in1[0], {1.5, -inf}:c64)
  v4 : i64 = v0 - 3
  for v5 < 8 {
    v6 : f32 = fma(f32(r_in0[v5]), p2, -0.0:f32)
    for v7 < 2 {
      v8 : bool = logical_and(lt(v6, nan:f32), true:bool)
      v9 : f32 = where(v8, v6, f32(p3))
      r_out0[v5] = bf16(add(v9, real(v3)))
    }
    v10 : i32 = bitwise_and(i32(v4), 255:i32)
    v11 : f64 = mul(f64(scalar(1):i32), f64(value(0):f32))
  }
  write g_out0[v0 * 8] width 8 r_out0[0] in v2 count p0 - v0 * 8
  write g_in1[v0] width 1 r_in1[0] in v0 < p0
  barrier
}
"""

HEAD = "kernel k threads 32 min_blocks 0 index 32 {\n"


def test_everything_reads_back() -> None:
    text = EVERYTHING.replace(" vars 12", "")
    kernel = _core.parse_kernel(text)
    assert kernel.text() == text
    kernel.verify()
    assert kernel.vars == 12


@pytest.mark.parametrize("count", [0, 3, 12, 40])
def test_vars_are_restored(count: int) -> None:
    kernel = _core.parse_kernel(EVERYTHING.replace("vars 12", f"vars {count}"))
    assert kernel.vars == count
    assert _core.parse_kernel(kernel.text()).vars == count
    assert (" vars " in kernel.text()) == (count != 12)


def test_smallest_kernel() -> None:
    kernel = _core.parse_kernel(HEAD + "}\n")
    assert kernel.text() == HEAD + "}\n"
    kernel.verify()
    assert (kernel.name, kernel.threads, kernel.min_blocks) == ("k", 32, 0)
    assert (kernel.index64, kernel.vars, kernel.statements()) == (False, 0, [])


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


# ---- Errors

BODY = "  array r f32 4\n  buffer g f32 read\n"


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
        ("v0 : f33 = 1", 8, "expected a dtype, such as f32 or bf16, got 'f33'"),
        (
            "v0 = true",
            8,
            "expected the dtype of the constant behind it, as in true:bool or inf:f32",
        ),
        ("v0 : bool = 1:bool", 15, "expected true or false, got '1'"),
        ("v0 = 99999999999999999999", 8, "expected an integer of 64 bits"),
        ("v0 = 1.5", 8, "expected an integer of 64 bits, or the dtype of the number as in 1.5:f32"),
        ("v0 : f32 = 1", 3, "expected a value of dtype f32, as v0 states (it is i64)"),
        (
            "v0 : f32 = r[0] + r[1]",
            19,
            "expected operands of int64 (write add(x, y) for those of f32)",
        ),
        ("v0 = 1 < 2 < 3", 14, "expected operands of int64 (write lt(x, y) for those of bool)"),
        ("v0 : f32 = add(r[0])", 22, "expected ',': add takes 2 operands, got ')'"),
        ("v0 : f32 = add(r[0], r[1], r[2])", 28, "expected ')', got ','"),
        ("v0 : f32 = neg()", 18, "expected an expression, got ')'"),
        ("v0 : f16 = f16(r[0], 1)", 22, "expected ')', got ','"),
        ("v0 = size(0)", 14, "expected ',', got ')'"),
        ("v0 = {1.0:c64", 8, "expected an expression, got '{'"),
        ("r[0 = 1.0:f32", 7, "expected ']', got '='"),
        ("q[0] = 1.0:f32", 3, "expected a declared array, got 'q'"),
        ("load r[0] g[0]", 13, "expected 'width', got 'g'"),
        ("load r[0] width 1 h[0]", 21, "expected a declared buffer, got 'h'"),
        ("load g[0] width 1 g[0]", 8, "expected a declared array, got 'g'"),
        ("for v0 < thread {", 12, "expected the number of iterations, got 'thread'"),
        ("for v0 < 4", 13, "expected '{', got the end of the line"),
        ("array s f32 4", 3, "expected a statement, got 'array'"),
        ("barrier 1", 11, "expected the end of the line, got '1'"),
    ],
)
def test_parse_1(line: str, column: int, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        _core.parse_kernel(HEAD + BODY + "  barrier\n  " + line + "\n}\n")
    assert caught.value.rule == "parse-1"
    assert str(caught.value).startswith(f"kernel text, line 5, column {column}: {expected}")


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("buffer g f32 read", 10, "expected the name of a buffer that is not taken yet, got 'g'"),
        ("buffer 5 f32", 10, "expected the name of a buffer, got '5'"),
        ("buffer h f32 written read", 24, "expected the end of the line, got 'read'"),
        ("array r f32 4", 9, "expected the name of an array that is not taken yet, got 'r'"),
        ("array s f32", 14, "expected the extent of the array, got the end of the line"),
        ("param p1 : i32 int 4", 9, "expected p0, got 'p1'"),
        ("param p0 int 4", 12, "expected ':', got 'int'"),
        ("param p0 : i32 4", 18, "expected int, divisor, scalar or value, got '4'"),
        ("axes [a0, a1] extents [1, 2]", 11, "expected an axis, such as a0, or ']', got ','"),
        ("axes [a0] extents 4", 21, "expected '[', got '4'"),
    ],
)
def test_parse_1_of_declarations(line: str, column: int, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        _core.parse_kernel(HEAD + BODY + "  " + line + "\n}\n")
    assert caught.value.rule == "parse-1"
    assert str(caught.value) == f"kernel text, line 4, column {column}: {expected}"


def test_index_is_32_or_64() -> None:
    with pytest.raises(UserError, match="expected 32 or 64, got '16'"):
        _core.parse_kernel(HEAD.replace("index 32", "index 16") + "}\n")


def test_nothing_follows_the_kernel() -> None:
    with pytest.raises(UserError, match="line 3, column 1: expected the end of the text, got '}'"):
        _core.parse_kernel(HEAD + "}\n}\n")


def test_loops_nest_to_a_bound() -> None:
    def nested(depth: int) -> str:
        opening = "".join(f"for v{i} < 2 {{\n" for i in range(depth))
        return HEAD + opening + "}\n" * depth + "}\n"

    kernel = _core.parse_kernel(nested(100))
    assert _core.parse_kernel(kernel.text()).text() == kernel.text()
    with pytest.raises(UserError, match="line 102, column 1: expected at most 100 nested loops"):
        _core.parse_kernel(nested(101))


@given(st.data())
def test_damaged_text_is_an_error_or_a_kernel(data: st.DataObject) -> None:
    """Whatever is cut out or put in, the parser ends with a kernel or with parse-1."""
    start = data.draw(st.integers(0, len(EVERYTHING)))
    length = data.draw(st.integers(0, 30))
    put = data.draw(st.text(alphabet="av09 +-*/%<()[]{}:,.\n#", max_size=6))
    text = EVERYTHING[:start] + put + EVERYTHING[start + length :]
    try:
        kernel = _core.parse_kernel(text)
    except UserError as error:
        kernel, rule = None, error.rule
    if kernel is None:
        assert rule == "parse-1"
    else:
        assert _core.parse_kernel(kernel.text()).text() == kernel.text()


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
RANGES = {"u8": (0, 255), **{f"i{b}": (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64)}}
COMPUTED = [t for t in DataType.__members__.values() if t.compute == t]


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

    same = [n for n, r in OPS.items() if r.rule in ("Same", "Float") and dtype.kind in r.accepts]
    choices = ["cast", *same, "where"]
    if dtype == DataType.Bool:
        choices += [n for n, r in OPS.items() if r.rule == "Predicate"]
    if dtype == DataType.Int:
        choices += ["add", "sub", "mul", "div", "mod"] * 4  # the infix ones
    name = draw(st.sampled_from(choices))
    if name == "cast":
        return exprs.cast(dtype, sub(draw(st.sampled_from([t for t in COMPUTED if t != dtype]))))
    if name == "where":
        return exprs.apply("where", [sub(DataType.Bool), sub(dtype), sub(dtype)])
    operand = dtype
    if OPS[name].rule == "Predicate":
        operand = draw(st.sampled_from([t for t in COMPUTED if t.kind in OPS[name].accepts]))
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
