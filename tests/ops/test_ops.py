"""fuser/ops/__init__.py, csrc/bind/{ops,define,handles,fusion}.cpp: fd.ops and the Python
operators.
"""

import gc
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuser import DataType, DTypeError, FusionDefinition, Scalar, Tensor, UserError, _core
from fuser.ops import Ops, as_dtype, is_internal

ROWS = _core.op_rows()


@pytest.fixture
def fd() -> FusionDefinition:
    return FusionDefinition()


def last_line(fd: FusionDefinition) -> str:
    """The statement of the latest tensor."""
    return [line.strip() for line in repr(fd).splitlines() if line.startswith("    T")][-1]


# ---- the methods


def test_every_row_but_the_internal_ones_is_a_method() -> None:
    missing = {row.name for row in ROWS if not hasattr(Ops, row.name)}
    assert missing == {"fma"} | {row.name for row in ROWS if row.name.endswith("_half")}


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_signature_and_documentation(row: _core.OpRow) -> None:
    if is_internal(row.name):
        return
    method = getattr(Ops, row.name)
    parameters = list(inspect.signature(method).parameters.values())
    assert len(parameters) == 1 + row.arity
    assert all(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in parameters)
    assert method.__name__ == row.name
    text = inspect.getdoc(method)
    assert text is not None
    assert text.startswith(f"{row.name}({', '.join(p.name for p in parameters[1:])}), elementwise.")
    for word in ("Shape:", "Types:", "Accuracy:", "NaN", "Raises"):
        assert word in text
    if row.ulp:
        assert f"within {row.ulp:g} ULP" in text
    else:
        assert "exact, or correctly rounded" in text


METHODS = [
    *("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "xor_sum", "reduction"),
    "result",
    *("iota", "take_along_axis", "gather", "split_dim", "merge_dims", "cast", "full", "size"),
]


@pytest.mark.parametrize("name", METHODS)
def test_every_written_method_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(Ops, name))


def test_keyword_names_of_reductions_are_those_that_users_know() -> None:
    for name in ("sum", "prod", "max", "min"):
        parameters = inspect.signature(getattr(Ops, name)).parameters
        assert list(parameters)[1:5] == ["arg", "dims", "keepdim", "dtype"]
        assert "dim" in parameters
    for name, expected in {
        "var": ["arg", "dims", "correction", "keepdim"],
        "var_mean": ["arg", "dims", "correction", "keepdim"],
        "welford": ["arg", "dims"],
        "argmax": ["arg", "dim", "keepdim"],
        "iota": ["length", "start", "step", "dtype"],
        "gather": ["arg", "index", "dim"],
        "take_along_axis": ["arg", "index", "dim"],
    }.items():
        assert list(inspect.signature(getattr(Ops, name)).parameters)[1:] == expected


def test_names_of_arguments_are_those_that_users_know() -> None:
    def names(op: str) -> list[str]:
        return list(inspect.signature(getattr(Ops, op)).parameters)[1:]

    assert names("lerp") == ["start", "end", "weight"]
    assert names("where") == ["c", "x", "y"]
    assert names("clamp") == ["x", "min", "max"]
    assert names("threshold") == ["x", "thr", "value"]
    assert names("addcmul") == ["x", "t1", "t2", "value"]
    assert names("complex") == ["real", "imag"]
    assert names("add") == ["a", "b"]
    assert names("cast") == ["arg", "dtype"]
    assert names("broadcast") == ["arg", "is_broadcast_dim"]
    assert names("broadcast_in_dim") == ["arg", "shape", "broadcast_dims"]
    assert names("expand") == ["arg", "shape"]
    assert names("squeeze") == ["arg", "dims", "squeeze_expanded"]
    assert names("permute") == ["arg", "dims"]
    assert names("stride_order") == ["arg", "stride_order"]
    assert names("full") == ["shape", "fill_value", "dtype"]
    assert names("size") == ["arg", "dim"]
    assert names("shape") == ["arg"]
    assert names("rand_like") == names("randn_like") == ["arg", "rng_seed", "rng_offset"]


def test_a_wrong_name_suggests_a_right_one(fd: FusionDefinition) -> None:
    with pytest.raises(AttributeError) as caught:
        fd.ops.sigmod  # noqa: B018
    assert str(caught.value) == "fd.ops has no op 'sigmod'; did you mean 'sigmoid'?"
    with pytest.raises(AttributeError) as caught:
        fd.ops.zzzz  # noqa: B018
    assert str(caught.value) == "fd.ops has no op 'zzzz'"
    with pytest.raises(AttributeError):
        fd.ops.fma  # noqa: B018


def test_movement_by_keyword(fd: FusionDefinition) -> None:
    x = fd.define_tensor([2, 1], contiguity=True)
    assert last_line(fd).startswith("T0")
    fd.ops.cast(arg=x, dtype=torch.float16)
    assert last_line(fd) == "T1 = fd.ops.cast(T0, dtype=DataType.Half)"
    fd.ops.squeeze(arg=x, dims=(1,))
    assert last_line(fd).startswith("T2 = fd.ops.squeeze(T0, dims=[1]")
    fd.ops.expand(arg=x, shape=(2, 8))
    assert last_line(fd) == "T3 = fd.ops.expand(T0, shape=[2, 8])"
    fd.ops.full(shape=(2, x.size(0)), fill_value=True, dtype=DataType.Bool)
    assert last_line(fd) == "T4 = fd.ops.full(shape=[2, 2], fill_value=True, dtype=DataType.Bool)"
    fd.ops.broadcast_in_dim(arg=x, shape=[2, 3, 1], broadcast_dims=[0, 2])
    assert last_line(fd) == "T6 = fd.ops.expand(T5, shape=[2, 3, 1])"
    fd.ops.permute(arg=x, dims=torch.Size([1, 0]))
    assert last_line(fd) == "T7 = fd.ops.permute(T0, dims=[1, 0])"
    fd.ops.stride_order(arg=x, stride_order=[0, 1])
    assert last_line(fd) == "T8 = fd.ops.stride_order(T0, stride_order=[0, 1])"


def test_size_and_shape(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, 1, 8])
    assert str(fd.ops.size(x, 0)) == "int64 size(t0, 0)"
    assert str(fd.ops.size(x, -1)) == str(x.size(2)) == "int64 8"
    assert [str(s) for s in fd.ops.shape(x)] == [str(s) for s in x.shape()]
    assert x.ndim == 3
    assert x.dtype() == DataType.Float


def test_as_dtype() -> None:
    assert as_dtype(torch.bfloat16) == DataType.BFloat16
    assert as_dtype(DataType.Half) == DataType.Half
    with pytest.raises(DTypeError) as caught:
        as_dtype(torch.complex32)
    assert caught.value.rule == "dtype-torch"


# ---- operators

BINARY: list[tuple[Callable[[Any, Any], Any], str]] = [
    (operator.add, "add"),
    (operator.sub, "sub"),
    (operator.mul, "mul"),
    (operator.truediv, "truediv"),
    (operator.floordiv, "floor_divide"),
    (operator.mod, "remainder"),
    (operator.pow, "pow"),
    (operator.and_, "bitwise_and"),
    (operator.or_, "bitwise_or"),
    (operator.xor, "bitwise_xor"),
    (operator.lshift, "bitwise_left_shift"),
    (operator.rshift, "bitwise_right_shift"),
]
COMPARISONS: list[tuple[Callable[[Any, Any], Any], str, str]] = [
    (operator.eq, "eq", "eq"),
    (operator.ne, "ne", "ne"),
    (operator.lt, "lt", "gt"),
    (operator.le, "le", "ge"),
    (operator.gt, "gt", "lt"),
    (operator.ge, "ge", "le"),
]


@pytest.mark.parametrize(("function", "name"), BINARY, ids=lambda v: str(v))
def test_binary_operators(
    fd: FusionDefinition, function: Callable[[Any, Any], Any], name: str
) -> None:
    x = fd.define_tensor([2], dtype=DataType.Int)
    s = fd.define_scalar(DataType.Int)
    for left, right, text in [
        (x, x, "T0, T0"),
        (x, 3, "T0, 3"),
        (3, x, "3, T0"),
        (x, s, "T0, S0"),
        (s, x, "S0, T0"),
        (x, True, "T0, True"),
    ]:
        result = function(left, right)
        assert isinstance(result, Tensor)
        assert last_line(fd) == f"T{result.id} = fd.ops.{name}({text})"
    assert isinstance(function(s, 2), Scalar)
    assert isinstance(function(2, s), Scalar)


@pytest.mark.parametrize(("function", "name", "swapped"), COMPARISONS, ids=lambda v: str(v))
def test_comparisons(
    fd: FusionDefinition, function: Callable[[Any, Any], Any], name: str, swapped: str
) -> None:
    x = fd.define_tensor([2])
    s = fd.define_scalar()
    assert function(x, 0.5).dtype() == DataType.Bool
    assert last_line(fd) == f"T1 = fd.ops.{name}(T0, 0.5)"
    function(0.5, x)
    assert last_line(fd) == f"T2 = fd.ops.{swapped}(T0, 0.5)"
    function(x, s)
    assert last_line(fd) == f"T3 = fd.ops.{name}(T0, S0)"
    assert isinstance(function(s, 1.0), Scalar)


def test_unary_operators(fd: FusionDefinition) -> None:
    x = fd.define_tensor([2], dtype=DataType.Int)
    for function, name in [
        (operator.neg, "neg"),
        (operator.pos, "set"),
        (abs, "abs"),
        (operator.invert, "bitwise_not"),
    ]:
        result = function(x)
        assert last_line(fd) == f"T{result.id} = fd.ops.{name}(T0)"
    assert isinstance(-fd.define_scalar(), Scalar)


def test_handles_hash_by_identity_and_have_no_truth_value(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([2]), fd.define_tensor([2])
    names = {x: "x", y: "y"}
    assert (names[x], names[y]) == ("x", "y")
    with pytest.raises(UserError) as caught:
        bool(x == y)
    assert caught.value.rule == "truth-1"
    assert str(caught.value) == (
        "t2: bool[2]: a tensor of a definition has no truth value: it is known only at run time\n"
        "  hint: fd.ops.where(condition, x, y) selects by value; `is` compares handles"
    )
    with pytest.raises(UserError, match="a scalar of a definition has no truth value"):
        bool(fd.define_scalar() > 0)


def test_foreign_types(fd: FusionDefinition) -> None:
    x = fd.define_tensor([2])
    before = repr(fd)
    assert (x == None) is False  # noqa: E711 - Python's fallback; no op is added
    assert (x != "text") is True
    for value, name in [
        ("text", "str"),
        (None, "NoneType"),
        ([1], "list"),
        (torch.ones(2), "torch.Tensor"),
    ]:
        with pytest.raises(UserError) as caught:
            fd.ops.add(x, value)
        assert caught.value.rule == "operand-1"
        assert str(caught.value) == (
            "add(): operand 1: expected a Tensor, a Scalar or a number, "
            f"got {name}\n"
            "  hint: pass data as an input of the definition; convert a number of another "
            "library by float(x) or int(x)"
        )
    with pytest.raises(TypeError):
        x + "text"
    assert repr(fd) == before


def test_numbers_of_numpy(fd: FusionDefinition) -> None:
    """Scalars of numpy act as Python numbers; numpy defers the operator to fuser. Arrays are
    rejected."""
    x = fd.define_tensor([2])
    for number in (np.float64(0.5), np.float32(0.5), np.float16(0.5)):
        assert isinstance(number * x, Tensor)
        assert last_line(fd).endswith(" = fd.ops.mul(0.5, T0)")
    with pytest.raises(TypeError):
        np.full(2, 0.5) * x


def test_a_number_beyond_int64(fd: FusionDefinition) -> None:
    x = fd.define_tensor([2])
    with pytest.raises(UserError) as caught:
        x + 2**63
    assert caught.value.rule == "operand-2"
    assert str(caught.value) == (
        "add(): operand 1: 9223372036854775808 is out of range for int64\n"
        "  hint: write it as a float"
    )
    assert isinstance(x + (2**63 - 1), Tensor)


def test_a_tensor_of_another_definition(fd: FusionDefinition) -> None:
    x = fd.define_tensor([2])
    other = FusionDefinition()
    y = other.define_tensor([3], dtype=DataType.Half)
    s = other.define_scalar()
    with pytest.raises(UserError) as caught:
        x + y
    assert caught.value.rule == "foreign-1"
    assert str(caught.value) == (
        "add(): operand 1: t0: float16[3] belongs to another definition, whose first input is "
        f"t0: float16[3]  defined at {y.location}\n"
        "  expected a value of the definition whose first input is "
        f"t0: float32[2]  defined at {x.location}\n"
        "  hint: define the value again in the definition that uses it"
    )
    with pytest.raises(
        UserError, match=r"mul\(\): operand 1: scalar s0 belongs to another definition"
    ):
        fd.ops.mul(x, s)
    with pytest.raises(UserError, match=r"expand\(\): size 0: scalar s0 belongs to another"):
        fd.ops.expand(x, [s])
    with pytest.raises(UserError, match=r"permute\(\): arg: t0: float16\[3\] belongs to another"):
        fd.ops.permute(y, [0])
    with pytest.raises(
        UserError, match=r"add_output\(\): output: t0: float16\[3\] belongs to another"
    ):
        fd.add_output(y)


def test_source_lines(fd: FusionDefinition) -> None:
    """The location of inputs, methods, operators and composites is the user's line."""

    def here() -> str:
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        return f"{__file__}:{frame.f_back.f_lineno}"

    x, line = fd.define_tensor([2]), here()
    assert x.location == line
    y, line = fd.ops.tanh(x), here()
    assert y.location == line
    y, line = x + 1, here()
    assert y.location == line
    y, line = fd.ops.mish(x), here()
    assert y.location == line


def test_handles_keep_their_definition(fd: FusionDefinition) -> None:
    x = FusionDefinition().define_tensor([2])
    gc.collect()
    assert str(x + x) == "t1: float32[2]"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_set_keeps_the_type(dtype: torch.dtype) -> None:
    x = torch.arange(8.0).to(dtype)
    fd = FusionDefinition()
    fd.add_output(fd.ops.set(fd.from_pytorch(x)))
    fd.add_output(fd.ops.segment_set(fd.from_pytorch(x)))
    for got in fd.execute([x, x]):
        assert got.dtype == dtype
        assert got.float().equal(x.float())


@pytest.mark.parametrize("value", [1.0, 2, 1j, True])
def test_where_of_numbers_has_the_type_that_torch_gives(value: Any) -> None:
    mask = torch.tensor([True, False])
    fd = FusionDefinition()
    fd.add_output(fd.ops.where(fd.from_pytorch(mask), value, value))
    (got,) = fd.execute([mask])
    assert got.dtype == torch.where(mask, value, value).dtype


ODD = "sin tan asin atan sinh tanh asinh atanh erf erfinv expm1 log1p sqrt neg set ceil round trunc"


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double])
def test_zeros_keep_their_sign_in_functions_that_are_odd_at_0(dtype: DataType) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1], dtype=dtype)
    for name in ODD.split():
        fd.add_output(getattr(fd.ops, name)(x))
    zeros = torch.tensor([0.0, -0.0], dtype=getattr(torch, dtype.torch_name))
    for name, got in zip(ODD.split(), fd.execute([zeros.repeat(32)]), strict=True):
        assert not got.any(), name
        expected = zeros.signbit() if name != "neg" else ~zeros.signbit()
        assert torch.equal(got.signbit(), expected.repeat(32)), name


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (lambda o, t, s: o.where(o.gt(t, 2), t, s), "where(t1, t0, s0)"),
        (lambda o, t, s: o.clamp(t, 0, s), "clamp(t0, 0, s0)"),
        (lambda o, t, s: o.threshold(t, 1, s), "threshold(t0, 1, s0)"),
        (lambda o, t, s: o.pow(t, s), "pow(t0, s0)"),
        (lambda o, t, s: o.pad(t, [1, 1], s), "pad(t0, ...)"),
        (lambda o, t, s: o.full([2], s, t.dtype()), "full()"),
        (lambda o, t, s: o.scatter(t, o.iota(2), s, 0), "scatter(): full()"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_integers_of_a_run_fit_as_those_of_the_definition(
    op: Callable[[Any, Any, Any], Any], name: str
) -> None:
    """scalar-fits-1: a number that the dtype cannot represent is an error in every run, as in
    torch."""
    with FusionDefinition() as fd:
        t, s = fd.define_tensor([-1], dtype=DataType.Char), fd.define_scalar(DataType.Int)
        fd.add_output(op(fd.ops, t, s))
    x = torch.arange(5, dtype=torch.int8)
    for _ in range(2):
        assert fd.execute([x, 3])
        for value in (128, -129, 1 << 40):
            with pytest.raises(DTypeError) as caught:
                fd.execute([x, value])
            assert caught.value.rule == "scalar-fits-1"
            assert str(caught.value).startswith(f"{name}: {value} is out of range for int8")
    other = FusionDefinition()
    t = other.define_tensor([-1], dtype=DataType.Byte)
    other.add_output(other.ops.clamp(t, 0, other.define_scalar(DataType.Int)))
    assert other.execute([x.byte(), -1])[0].equal(x.byte())  # wraps to 255, as in torch.clamp


def test_iota_starts_at_what_its_type_holds(fd: FusionDefinition) -> None:
    """scalar-fits-1: iota() checks its start like full(); floats represent it."""
    starts: list[Any] = [2**31, np.int64(2**31), fd.define_scalar(2**31)]
    for start in starts:
        with pytest.raises(DTypeError) as caught:
            fd.ops.iota(2, start, dtype=DataType.Int32)
        assert caught.value.rule == "scalar-fits-1"
        assert str(caught.value).startswith("iota(): 2147483648 is out of range for int32")
    fd.add_output(fd.ops.iota(2, 2**31 - 2, dtype=DataType.Int32))
    fd.add_output(fd.ops.iota(2, 2**31, dtype=DataType.Double))
    integers, floats = fd.execute([], device="cpu")
    assert integers.equal(torch.tensor([2**31 - 2, 2**31 - 1], dtype=torch.int32))
    assert floats.equal(torch.tensor([2.0**31, 2.0**31 + 1], dtype=torch.float64))
