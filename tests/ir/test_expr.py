"""csrc/ir/expr: hash-consing, folding, the normal form of integer arithmetic, integer programs."""

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser import _core_testing
from fuser._core import DataType
from fuser.errors import InternalError, Unsupported

ir = _core_testing.ir
Expr, Symbol = ir.Expr, ir.Symbol
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-9, 9)
INDEX = st.integers(0, 99)


class Arena:
    """Creates expressions in Python syntax: a(0) + 2 * a(1)."""

    def __init__(self) -> None:
        self.exprs = ir.Exprs()

    def int(self, value: int) -> Expr:
        return self.exprs.integer(value)

    def var(self, number: int, dtype: DataType = DataType.Int) -> Expr:
        return self.exprs.symbol(Symbol.Var, number, dtype=dtype)

    def __getattr__(self, op: str) -> Callable[..., Expr]:
        return lambda *args: self.exprs.apply(op, list(args))


@pytest.fixture
def a() -> Arena:
    return Arena()


def wrap(value: int, bits: int = 64) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def python_value(op: str, x: int, y: int) -> int:
    """The device's conventions: wrapping, division towards zero, x / 0 = -1, x % 0 = x."""
    if op in ("div", "mod"):
        quotient = -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return wrap(quotient if op == "div" else x if y == 0 else x - quotient * y)
    if op in ("minimum", "maximum"):
        return min(x, y) if op == "minimum" else max(x, y)
    return wrap({"add": x + y, "sub": x - y, "mul": x * y}[op])


OPS = ["add", "sub", "mul", "div", "mod", "minimum", "maximum"]


def test_equal_structure_is_one_node(a: Arena) -> None:
    x, y = a.var(0), a.var(1)
    assert a.sub(x, y) == a.sub(a.var(0), a.var(1))
    assert a.sub(x, y) != a.sub(y, x)
    size = len(a.exprs)
    assert a.sub(x, y) == a.sub(x, y)
    assert len(a.exprs) == size
    assert a.var(0, DataType.Float) != x
    assert a.exprs.symbol(Symbol.Size, 1, 2) != a.exprs.symbol(Symbol.Size, 2, 1)


def test_constants_are_equal_by_bits(a: Arena) -> None:
    def real(value: complex) -> Expr:
        return a.exprs.real(value, DataType.Float)

    assert real(0.0) != real(-0.0)
    assert real(float("nan")) == real(float("nan"))
    assert real(1.0) != a.exprs.real(1.0, DataType.Double)
    assert a.exprs.integer(1, DataType.Int32) != a.int(1)


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("add", "x", 0, "x"),
        ("add", 0, "x", "x"),
        ("sub", "x", 0, "x"),
        ("sub", "x", "x", "0"),
        ("mul", "x", 1, "x"),
        ("mul", 1, "x", "x"),
        ("mul", 0, "x", "0"),
        ("mul", "x", 0, "0"),
        ("div", "x", 1, "x"),
        ("mod", "x", 1, "0"),
        ("minimum", "x", "x", "x"),
        ("maximum", "x", "x", "x"),
        # Not folded, because 0 / x is -1 if x is 0; other cases are undecided.
        ("div", 0, "x", "0 / v0"),
        ("div", "x", "x", "v0 / v0"),
        ("div", "x", 0, "-1"),
        ("mod", "x", 0, "v0"),
        ("sub", 0, "x", "0 - v0"),
        ("lt", "x", "x", "v0 < v0"),
    ],
)
def test_folds(a: Arena, op: str, left: str | int, right: str | int, expected: str) -> None:
    operands = [a.var(0) if v == "x" else a.int(v) for v in (left, right)]
    folded = a.exprs.apply(op, operands)
    assert str(folded) == expected.replace("x", "v0")


@given(st.sampled_from(OPS), INT64 | SMALL, INT64 | SMALL)
def test_constants_fold_as_the_device_computes(op: str, x: int, y: int) -> None:
    a = Arena()
    assert a.exprs.apply(op, [a.int(x), a.int(y)]) == a.int(python_value(op, x, y))


def test_smallest_over_minus_one_wraps(a: Arena) -> None:
    smallest = a.int(-(2**63))
    assert a.div(smallest, a.int(-1)) == smallest
    assert a.mod(smallest, a.int(-1)) == a.int(0)


@pytest.mark.parametrize("op", ["add", "mul"])
def test_sums_and_products_do_not_depend_on_order(op: str, a: Arena) -> None:
    leaves = [a.var(0), a.var(1), a.mod(a.var(2), a.var(3)), a.int(3), a.int(5)]
    found = set()
    for order in itertools.permutations(leaves):
        x, y, z, u, v = order
        join = getattr(a, op)
        found.add(join(join(join(join(x, y), z), u), v))
        found.add(join(join(x, y), join(z, join(u, v))))
    constant = {"add": 8, "mul": 15}[op]
    sign = {"add": "+", "mul": "*"}[op]
    assert [str(e) for e in found] == [f"v2 % v3 {sign} v0 {sign} v1 {sign} {constant}"]


def test_normal_form_does_not_depend_on_the_arena(rng: np.random.Generator) -> None:
    order = random.Random(int(rng.integers(2**31)))
    texts = set()
    for _ in range(50):
        a = Arena()
        names = list(range(5))
        order.shuffle(names)
        for n in names:  # created in a different order each time
            a.var(n)
        terms = [a.mul(a.var(n), a.var((n + 1) % 5)) for n in names]
        total = a.int(7)
        for t in terms:
            total = a.add(t, total)
        texts.add(str(total))
    assert texts == {"v0 * v1 + v0 * v4 + v1 * v2 + v2 * v3 + v3 * v4 + 7"}


def test_multiples_of_the_same_are_one_term_of_a_sum(a: Arena) -> None:
    """A sum added to itself collects equal terms, so its size stays constant."""
    total = a.add(a.var(0), a.var(1))
    for step in range(1, 63):
        total = a.add(a.add(total, a.int(1)), total)
        assert total == a.add(
            a.add(a.mul(a.var(0), a.int(2**step)), a.mul(a.var(1), a.int(2**step))),
            a.int(2**step - 1),
        )
    total = a.add(total, total)
    assert a.add(total, total) == a.int(-4)  # wraps as int64


def test_a_sum_that_is_left_once_is_of_terms(a: Arena) -> None:
    inner = a.add(a.var(0), a.var(1))
    twice, minus = a.mul(inner, a.int(2)), a.mul(inner, a.int(-1))
    assert a.add(twice, minus) == inner
    expected = a.add(a.mul(a.var(0), a.int(2)), a.var(1))
    assert a.add(a.add(twice, a.var(0)), minus) == expected
    assert a.add(a.add(twice, minus), a.var(0)) == expected


def test_a_product_of_products_of_itself_stays_small(a: Arena) -> None:
    value, power = a.mul(a.var(0), a.int(3)), 3
    for _ in range(60):
        value, power = a.mul(value, value), wrap(power * power)
        assert a.exprs.rebuilt(value) == value
    assert ir.run(value, lambda *leaf: 1) == power
    assert a.mul(a.int(5), value) == a.mul(value, a.int(5))
    assert len(a.exprs) < 10000


def test_multiples_are_one_term_in_any_order(rng: np.random.Generator, a: Arena) -> None:
    """Multiples of symbols and products are collected in any order, including multiples that
    cancel."""
    names = [a.var(0), a.var(1), a.mul(a.var(0), a.var(2)), a.int(1)]
    for _ in range(50):
        times = [*rng.integers(-3, 4, 12)]
        terms = [a.mul(names[i % 4], a.int(int(n))) for i, n in enumerate(times)]
        expected = a.int(0)
        for i, name in enumerate(names):
            expected = a.add(expected, a.mul(name, a.int(int(sum(times[i::4])))))
        total = a.int(0)
        for i in rng.permutation(len(terms)):
            total = a.add(terms[i], total) if rng.integers(2) else a.add(total, terms[i])
        assert total == expected


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "mul", "sub"]), INDEX, INDEX), max_size=14
)


@given(STEPS)
def test_a_normal_form_is_its_own(steps: list[tuple[str, int, int]]) -> None:
    """Rebuilding an expression from its operands yields the expression itself; its value is
    Python's."""
    a = Arena()
    pool, values = [a.var(0), a.var(1), a.int(2), a.int(-1)], [7, -5, 2, -1]
    for op, i, j in steps:
        x, y = i % len(pool), j % len(pool)
        pool.append(a.exprs.apply(op, [pool[x], pool[y]]))
        values.append(python_value(op, values[x], values[y]))
        assert a.exprs.rebuilt(pool[-1]) == pool[-1]
        assert ir.run(pool[-1], lambda symbol, number, _: values[number]) == values[-1]


def test_cancelling_constants_vanish(a: Arena) -> None:
    assert a.add(a.add(a.var(0), a.int(3)), a.int(-3)) == a.var(0)
    half = a.mul(a.var(0), a.int(2**63 - 1))
    assert a.mul(half, a.int(-1)) == a.mul(a.var(0), a.int(-(2**63) + 1))
    assert a.mul(a.mul(a.var(0), a.int(2**32)), a.int(2**32)) == a.int(0)


def test_only_int64_is_normalized(a: Arena) -> None:
    for dtype in (DataType.Float, DataType.Int32):
        x, y = a.var(0, dtype), a.var(1, dtype)
        assert a.add(x, y) != a.add(y, x)
        assert str(a.add(y, x)) == "add(v1, v0)"


def test_ceil_div_and_product(a: Arena) -> None:
    assert str(a.exprs.ceil_div(a.var(0), 8)) == "(v0 + 7) / 8"
    assert a.exprs.ceil_div(a.var(0), 1) == a.var(0)
    assert a.exprs.ceil_div(a.int(17), 8) == a.int(3)
    assert a.exprs.product([]) == a.int(1)
    assert str(a.exprs.product([a.var(1), a.int(4), a.var(0)])) == "v0 * v1 * 4"


def test_result_dtypes(a: Arena) -> None:
    f32, c64, flag = (
        a.var(0, DataType.Float),
        a.var(1, DataType.ComplexFloat),
        a.lt(a.int(1), a.var(2)),
    )
    assert a.add(f32, f32).dtype == DataType.Float
    assert flag.dtype == DataType.Bool
    assert a.isnan(c64).dtype == DataType.Bool
    assert a.abs(c64).dtype == DataType.Float
    assert a.complex(f32, f32).dtype == DataType.ComplexFloat
    assert a.where(flag, f32, f32).dtype == DataType.Float
    assert a.exprs.cast(DataType.BFloat16, f32).dtype == DataType.BFloat16


def test_wrong_number_of_operands(a: Arena) -> None:
    with pytest.raises(InternalError, match="add expects 2 operands, got 3"):
        a.add(a.var(0), a.var(1), a.var(2))


def test_casts_of_constants(a: Arena) -> None:
    cast = a.exprs.cast
    assert cast(DataType.Int, a.var(0)) == a.var(0)
    assert cast(DataType.Double, a.int(3)) == a.exprs.real(3.0, DataType.Double)
    assert cast(DataType.Bool, a.int(256)) == a.exprs.integer(1, DataType.Bool)
    assert cast(DataType.Int, a.exprs.integer(-3, DataType.Char)) == a.int(-3)
    # 2^60 + 2^36 + 1 is above the midpoint of two floats. Rounding to float64 first would yield the
    # midpoint, which rounds down.
    value = 2**60 + 2**36 + 1
    assert cast(DataType.Float, a.int(value)) == a.exprs.real(
        float(np.float32(2**60 + 2**37)), DataType.Float
    )
    assert str(cast(DataType.BFloat16, a.int(3))) == "bf16(3)"


def test_visit_is_operands_first_and_once(a: Arena) -> None:
    x = a.var(0)
    twice = a.mod(x, a.div(x, a.int(3)))
    assert ir.visited([twice, x]) == ["v0", "3", "v0 / 3", "v0 % (v0 / 3)"]


def test_visit_of_what_holds_a_symbol(a: Arena) -> None:
    size, axis = a.exprs.symbol(Symbol.Size, 0, 1), a.exprs.symbol(Symbol.Axis, 2)
    moved = a.add(a.mul(size, a.int(3)), axis)
    assert ir.visited([a.div(moved, size), size, axis], axes=True) == [
        *(str(axis), str(moved), str(a.div(moved, size)))
    ]
    assert ir.visited([size], axes=True) == []
    assert ir.visited([axis], axes=True) == [str(axis)]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda a: a.exprs.symbol(Symbol.Size, 0, 1), "size(t0, 1)"),
        (lambda a: a.exprs.symbol(Symbol.Stride, 2, 0), "stride(t2, 0)"),
        (lambda a: a.exprs.symbol(Symbol.Scalar, 3, dtype=DataType.Double), "s3"),
        (lambda a: a.exprs.symbol(Symbol.Value, 1, dtype=DataType.Half), "t1"),
        (lambda a: a.exprs.symbol(Symbol.Axis, 4), "a4"),
        (lambda a: a.sub(a.var(0), a.add(a.var(1), a.int(2))), "v0 - (v1 + 2)"),
        (lambda a: a.sub(a.sub(a.var(0), a.var(1)), a.int(2)), "v0 - v1 - 2"),
        (lambda a: a.exprs.real(1.0, DataType.Float), "1.0"),
    ],
)
def test_to_string(build: Callable[[Arena], Expr], expected: str, a: Arena) -> None:
    assert str(build(a)) == expected


# ---- Integer programs

Tree = int | tuple[str, "Tree", "Tree"]
TREES: st.SearchStrategy[Tree] = st.recursive(
    INT64 | SMALL, lambda t: st.tuples(st.sampled_from(OPS), t, t), max_leaves=20
)


@given(TREES)
def test_programs_agree_with_python(tree: Tree) -> None:
    a = Arena()
    values: list[int] = []

    def build(t: Tree) -> tuple[Expr, int]:
        if isinstance(t, int):
            values.append(t)
            return a.var(len(values) - 1), t
        op, (x, xv), (y, yv) = t[0], build(t[1]), build(t[2])
        return a.exprs.apply(op, [x, y]), python_value(op, xv, yv)

    root, expected = build(tree)
    assert ir.run(root, lambda symbol, i, j: values[i]) == expected


def test_program_leaves(a: Arena) -> None:
    size = a.exprs.symbol(Symbol.Size, 2, 1)
    stride = a.exprs.symbol(Symbol.Stride, 0, 3)
    leaves = {(Symbol.Size, 2, 1): 5, (Symbol.Stride, 0, 3): 7}
    assert ir.run(a.add(a.mul(size, stride), a.int(1)), lambda *leaf: leaves[leaf]) == 36


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (DataType.Bool, 256, 1),
        (DataType.Byte, -1, 255),
        (DataType.Char, 200, -56),
        (DataType.Short, 2**15, -(2**15)),
        (DataType.Int32, 2**31 + 5, -(2**31) + 5),
    ],
)
def test_programs_wrap_casts(dtype: DataType, value: int, expected: int, a: Arena) -> None:
    cast = a.exprs.cast(DataType.Int, a.exprs.cast(dtype, a.var(0)))
    assert ir.run(cast, lambda *_: value) == expected


def test_programs_wrap_narrow_arithmetic(a: Arena) -> None:
    x = a.var(0, DataType.Int32)
    assert ir.run(a.mul(x, x), lambda *_: 2**16) == 0
    assert ir.run(a.neg(x), lambda *_: -(2**31)) == -(2**31)


@pytest.mark.parametrize("y", [-3, -1, 1, 2, 5])
@pytest.mark.parametrize("x", [-7, -6, -1, 0, 1, 6, 7])
def test_programs_divide_as_python_does(x: int, y: int, a: Arena) -> None:
    given = {0: x, 1: y}
    for op, exact in (("floor_divide", x // y), ("ceil_div", -(-x // y)), ("remainder", x % y)):
        root = getattr(a, op)(a.var(0), a.var(1))
        assert ir.run(root, lambda _, place, *rest: given[place]) == exact
        assert ir.run(getattr(a, op)(a.int(x), a.int(y)), lambda *_: 0) == exact


def test_size_arithmetic_1(a: Arena) -> None:
    for root in (
        a.bitwise_and(a.var(0), a.var(1)),
        a.exprs.cast(DataType.Int, a.sqrt(a.exprs.cast(DataType.Float, a.var(0)))),
        a.exprs.cast(DataType.Int, a.var(0, DataType.Double)),
    ):
        with pytest.raises(Unsupported, match="pass it as a scalar input") as caught:
            ir.run(root, lambda *_: 1)
        assert caught.value.rule == "size-arithmetic-1"


# ---- Depth: without recursion

DEPTH = 10_000


def test_deep_chain(a: Arena) -> None:
    x, expected = a.var(0), 123_456
    for i in range(DEPTH):
        x = a.sub(x, a.int(1)) if i % 2 else a.mod(x, a.int(777))
        expected = expected - 1 if i % 2 else python_value("mod", expected, 777)
    assert str(x).endswith(" % 777 - 1")
    assert ir.run(x, lambda *_: 123_456) == expected


def test_deep_chain_of_floats(a: Arena) -> None:
    x = a.var(0, DataType.Float)
    for _ in range(DEPTH):
        x = a.add(x, a.var(1, DataType.Float))
    assert str(x).count("add(") == DEPTH


def test_long_sum(a: Arena) -> None:
    total = a.int(0)
    for i in range(DEPTH):
        total = a.add(total, a.var(i))
    assert str(total) == " + ".join(f"v{i}" for i in range(DEPTH))


# ---- bindings for tests only


def test_wrong_arguments_raise() -> None:
    """Invalid arguments raise errors instead of ending the process."""
    exprs = ir.Exprs()
    for wrong in (
        lambda: exprs.integer("1"),
        lambda: exprs.product(None),
        lambda: exprs.symbol(99),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(InternalError, match="another arena"):
        exprs.apply("neg", [ir.Exprs().integer(1)])


def test_an_expression_keeps_its_arena() -> None:
    node = ir.Exprs().symbol(Symbol.Size, 1, 2)
    assert str(node) == "size(t1, 2)"
