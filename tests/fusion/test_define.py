"""csrc/fusion/build/define.cpp: shapes, types and errors of the functions that build a
definition.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import (
    DataType,
    DTypeError,
    FusionDefinition,
    ShapeError,
    Tensor,
    UserError,
    _core,
)
from tests.support.refusals import Refusal, check_whole_message

DTYPES = [DataType.__members__[name] for name in DataType.__members__]
NUMBERS: list[bool | int | float | complex] = [True, 2, 0.5, 1j]


def torch_dtype(dtype: DataType) -> torch.dtype:
    return getattr(torch, dtype.torch_name)


def tensor(fd: FusionDefinition, *shape: int, dtype: DataType = DataType.Float) -> Tensor:
    return fd.define_tensor(shape=list(shape), dtype=dtype)


@pytest.fixture
def fd() -> FusionDefinition:
    return FusionDefinition()


# ---- types


def expected_type(a: torch.Tensor | complex, b: torch.Tensor | complex) -> DataType | None:
    """Computation dtype of torch with half types widened to float32, or None if torch has no common
    dtype."""
    try:
        result = torch.result_type(a, b)
    except RuntimeError:
        return None
    if result.is_complex and result.itemsize == 4:
        return DataType.ComplexFloat
    return _core.dtype_from_torch(str(result).removeprefix("torch.")).compute


@pytest.mark.parametrize("ranks", [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_promotion_of_tensors_is_that_of_torch(
    fd: FusionDefinition, ranks: tuple[int, int]
) -> None:
    for a, b in itertools.product(DTYPES, DTYPES):
        shapes = [[2] * rank for rank in ranks]
        samples = [
            torch.empty(s, dtype=torch_dtype(d)) for s, d in zip(shapes, (a, b), strict=True)
        ]
        x, y = (tensor(fd, *s, dtype=d) for s, d in zip(shapes, (a, b), strict=True))
        expected = expected_type(*samples)
        if expected is not None:
            assert (x * y).dtype() == expected, (a, b)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("number", NUMBERS)
def test_promotion_with_numbers_is_that_of_torch(
    fd: FusionDefinition, rank: int, number: complex
) -> None:
    for dtype in DTYPES:
        expected = expected_type(torch.empty([2] * rank, dtype=torch_dtype(dtype)), number)
        if expected is not None:
            x = tensor(fd, *[2] * rank, dtype=dtype)
            assert (x * number).dtype() == expected, dtype
            assert (number * x).dtype() == expected, dtype
            assert (x * fd.define_scalar(number)).dtype() == expected, dtype


def test_a_symbolic_scalar_promotes_as_a_number(fd: FusionDefinition) -> None:
    half = tensor(fd, 2, dtype=DataType.Half)
    ints = tensor(fd, 2, dtype=DataType.Int32)
    double = fd.define_scalar(DataType.Double)
    assert (half * double).dtype() == DataType.Float
    assert (ints * double).dtype() == DataType.Float
    assert (ints * fd.define_scalar(DataType.Int)).dtype() == DataType.Int32


@pytest.mark.parametrize(
    ("op", "given", "result"),
    [
        ("add", DataType.BFloat16, DataType.Float),
        ("exp", DataType.Int, DataType.Float),
        ("exp", DataType.Bool, DataType.Float),
        ("exp", DataType.Double, DataType.Double),
        ("abs", DataType.ComplexFloat, DataType.Float),
        ("abs", DataType.Short, DataType.Short),
        ("isnan", DataType.ComplexDouble, DataType.Bool),
        ("neg", DataType.Float8_e4m3fn, DataType.Float8_e4m3fn),
        ("relu", DataType.BFloat16, DataType.BFloat16),
        ("real", DataType.Half, DataType.Half),
        ("frac", DataType.Float, DataType.Float),
        ("silu", DataType.Half, DataType.Float),
        ("bitwise_not", DataType.Byte, DataType.Byte),
        ("set", DataType.Half, DataType.Half),
    ],
)
def test_result_types(fd: FusionDefinition, op: str, given: DataType, result: DataType) -> None:
    args = [tensor(fd, 2, dtype=given)] * (2 if op == "add" else 1)
    assert getattr(fd.ops, op)(*args).dtype() == result


def test_complex_of_two_reals(fd: FusionDefinition) -> None:
    for real, result in [
        (DataType.Half, DataType.ComplexFloat),
        (DataType.Float, DataType.ComplexFloat),
        (DataType.Double, DataType.ComplexDouble),
    ]:
        x = tensor(fd, 2, dtype=real)
        assert fd.ops.complex(x, x).dtype() == result


def test_where_takes_the_type_of_its_values(fd: FusionDefinition) -> None:
    c = tensor(fd, 2, dtype=DataType.Bool)
    x = tensor(fd, 2, dtype=DataType.Int32)
    assert fd.ops.where(c, x, 1).dtype() == DataType.Int32
    assert fd.ops.where(c, x, 1.5).dtype() == DataType.Float


# ---- shapes


def sizes(t: Tensor) -> str:
    return str(t).partition("[")[2].removesuffix("]")


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ([2, 3], [2, 3], "2, 3"),
        ([2, 1], [1, 3], "2, 3"),
        ([4, 2, 3], [3], "4, 2, 3"),
        ([3], [], "3"),
        ([0, 1], [1, 3], "0, 3"),
        ([-1, 3], [1, 3], "size(t0, 0), 3"),
        ([-1], [8], "8"),
        ([8], [-1], "8"),
        ([-1], [-1], "size(t0, 0)"),
    ],
)
def test_broadcast(fd: FusionDefinition, a: list[int], b: list[int], result: str) -> None:
    assert sizes(tensor(fd, *a) + tensor(fd, *b)) == result


def test_lower_ranks_become_a_broadcast_of_their_own(fd: FusionDefinition) -> None:
    _ = tensor(fd, 4, 2, 3) * tensor(fd, 3)
    assert "T2 = fd.ops.broadcast(T1, is_broadcast_dim=[True, True, False])" in repr(fd)


def test_movement_shapes(fd: FusionDefinition) -> None:
    x = tensor(fd, 2, 1, -1)
    assert sizes(fd.ops.permute(x, [2, 0, 1])) == "size(t0, 2), 2, 1"
    assert sizes(fd.ops.permute(x, [-1, 0, 1])) == "size(t0, 2), 2, 1"
    assert sizes(fd.ops.squeeze(x, [1])) == "2, size(t0, 2)"
    assert sizes(fd.ops.squeeze(x, [-2])) == "2, size(t0, 2)"
    assert sizes(fd.ops.broadcast(x, [False, True, False, False])) == "2, 1, 1, size(t0, 2)"
    assert sizes(fd.ops.expand(x, [-1, 7, -1])) == "2, 7, size(t0, 2)"
    assert sizes(fd.ops.expand(x, [2, fd.define_scalar(DataType.Int), -1])) == "2, s0, size(t0, 2)"
    assert sizes(fd.ops.broadcast_in_dim(tensor(fd, 3), [4, 3, 5], [1])) == "4, 3, 5"
    assert sizes(fd.ops.broadcast_in_dim(tensor(fd, 3), [3], [0])) == "3"
    assert sizes(fd.ops.full([2, fd.ops.size(x, 2)], 0, DataType.Int)) == "2, size(t0, 2)"
    assert sizes(fd.ops.stride_order(x, [0, 1, 2])) == "2, 1, size(t0, 2)"


def test_sizes_are_in_normal_form(fd: FusionDefinition) -> None:
    x = tensor(fd, -1, -1)
    a, b = x.size(0), x.size(1)
    assert str(b * a * 2) == str(2 * (a * b)) == "int64 size(t0, 0) * size(t0, 1) * 2"
    assert str(a + 0) == str(a * 1) == str(a)


def test_sizes_where_unknown_ones_met_are_named_after_the_tensor(fd: FusionDefinition) -> None:
    """The size of a broadcast result is named after the result, because either operand may have
    size 1."""
    x, y = tensor(fd, -1), tensor(fd, -1)
    total = x + y
    doubled = x * 2
    fd.add_output(fd.ops.full([total.size(0)], 1, DataType.Int))
    assert str(total.shape()[0]) == "int64 size(t2, 0)"
    assert str(x.size(0)) == "int64 size(t0, 0)"
    assert str(tensor(fd, 3).size(0)) == "int64 3"
    assert "fd.ops.full(shape=[fd.ops.size(T2, 0)]" in repr(fd)
    assert doubled.id == 3


# ---- errors: the complete message; {0} and {1} are the lines of the first two tensors

Error = tuple[type[UserError], str, str, Callable[[FusionDefinition, Tensor, Tensor], object]]

ERRORS: list[Error] = [
    (
        ShapeError,
        "broadcast-1",
        "add(t0, t1): operands do not broadcast\n"
        "  t0: float32[2, 3]  defined at {0}\n"
        "  t1: int64[2, 4]  defined at {1}\n"
        "  axis 1: 3 against 4; expected equal sizes, or a size of 1",
        lambda fd, x, y: x + y,
    ),
    (
        DTypeError,
        "op-dtype-1",
        "bitwise_and(t0, t1): bitwise_and is not defined on float32\n"
        "  t0: float32[2, 3]  defined at {0}\n"
        "  t1: int64[2, 4]  defined at {1}\n"
        "  hint: cast the operand first",
        lambda fd, x, y: x & y,
    ),
    (
        DTypeError,
        "where-1",
        "where(t0, 1, 2): expected a bool condition\n"
        "  t0: float32[2, 3]  defined at {0}\n"
        "  hint: compare it with a number, or cast it to bool",
        lambda fd, x, y: fd.ops.where(x, 1, 2),
    ),
    (
        UserError,
        "op-arity-1",
        "add(): expected 2 operands, got 1\n  hint: add(a, b, /)",
        lambda fd, x, y: fd.ops.add(x),
    ),
    (
        ShapeError,
        "permute-1",
        "permute(t0, [0, 0]): expected each of 0..1 once\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.permute(x, [0, 0]),
    ),
    (
        ShapeError,
        "permute-1",
        "stride_order(t0, [0]): expected each of 0..1 once\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.stride_order(x, [0]),
    ),
    (
        ShapeError,
        "squeeze-1",
        "squeeze(t0, [2]): dim 2 is out of range for rank 2\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.squeeze(x, [2]),
    ),
    (
        ShapeError,
        "squeeze-2",
        "squeeze(t0, [1]): axis 1 has size 3, expected 1\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.squeeze(x, [1]),
    ),
    (
        ShapeError,
        "squeeze-2",
        "squeeze(t0, [1]): axis 1 has size 3, expected 1\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.squeeze(x, [1], squeeze_expanded=True),
    ),
    (
        ShapeError,
        "broadcast-2",
        "broadcast(t0, ...): expected 2 dims that are not broadcast (the rank of the operand), "
        "got 1\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.broadcast(x, [True, False]),
    ),
    (
        ShapeError,
        "expand-1",
        "expand(t0, shape): expected at least 2 sizes, got 1\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.expand(x, [3]),
    ),
    (
        ShapeError,
        "expand-2",
        "expand(t0, shape): axis 1 has size 3 and cannot be expanded to 4; expected size 1\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.expand(x, [2, 4]),
    ),
    (
        ShapeError,
        "expand-3",
        "expand(t0, shape): expected a size of at least 0, or -1, in axis 0, got -3\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.expand(x, [-3, 3]),
    ),
    (
        ShapeError,
        "broadcast-in-dim-1",
        "broadcast_in_dim(t0, shape, [0]): expected 2 broadcast_dims (the rank of the operand), "
        "got 1\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.broadcast_in_dim(x, [2, 3], [0]),
    ),
    (
        ShapeError,
        "broadcast-in-dim-2",
        "broadcast_in_dim(t0, shape, [1, 0]): expected increasing dims below 3\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.broadcast_in_dim(x, [2, 3, 4], [1, 0]),
    ),
    (
        ShapeError,
        "full-1",
        "full(): expected a size of at least 0 in axis 1, got -1",
        lambda fd, x, y: fd.ops.full([2, -1], 0, DataType.Int),
    ),
    (
        ShapeError,
        "full-1",
        "full(): expected a size of at least 0 in axis 0, got truediv(2.0, 2.0) of "
        "type float32\n  hint: a // b is the quotient of integers, a / b never one",
        lambda fd, x, y: fd.ops.full([x.size(0) / 2], 0, DataType.Int),
    ),
    (
        ShapeError,
        "size-dim-1",
        "size(t0, 2): dim is out of range for rank 2\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: x.size(2),
    ),
    (
        DTypeError,
        "cast-1",
        "cast(t2, float32): casting complex to real discards the imaginary part\n"
        "  t2: complex64[2, 3]  defined at {2}\n"
        "  hint: use fd.ops.real(t2) first",
        lambda fd, x, y: fd.ops.cast(fd.ops.complex(x, x), DataType.Float),
    ),
    (
        ShapeError,
        "alias-1",
        "add_output(t2, t0): an in-place output needs the rank of its input\n"
        "  t2: float32[1, 2, 3]  defined at {2}\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.add_output(fd.ops.broadcast(x, [True, False, False]), x),
    ),
    (
        DTypeError,
        "alias-2",
        "add_output(t0, t1): an in-place output needs the dtype of its input\n"
        "  t0: float32[2, 3]  defined at {0}\n  t1: int64[2, 4]  defined at {1}\n"
        "  hint: cast the output to int64",
        lambda fd, x, y: fd.add_output(x, y),
    ),
    (
        UserError,
        "alias-4",
        "add_output(t0, t2): expected an input tensor as alias_input\n"
        "  t2: float32[2, 3]  defined at {2}",
        lambda fd, x, y: fd.add_output(x, -x),
    ),
    (
        ShapeError,
        "define-tensor-1",
        "define_tensor(shape=[2, -3]): expected -1 (symbolic), 0, 1 or a static size in axis 1, "
        "got -3",
        lambda fd, x, y: fd.define_tensor([2, -3]),
    ),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e[1])
def test_errors(fd: FusionDefinition, error: Error) -> None:
    x, y = tensor(fd, 2, 3), tensor(fd, 2, 4, dtype=DataType.Int)
    check_whole_message(Refusal(*error), fd, x, y)


def test_a_failed_op_leaves_the_definition_as_it_was(fd: FusionDefinition) -> None:
    x, y = tensor(fd, 2, 3), tensor(fd, 2, 4)
    before = repr(fd)
    for op in (fd.ops.add, fd.ops.bitwise_and):
        with pytest.raises(UserError):
            op(x, y)
    assert repr(fd) == before


def test_scalars_alone_give_scalars(fd: FusionDefinition) -> None:
    s = fd.define_scalar(DataType.Half)
    t = s + 1
    assert not isinstance(t, Tensor)
    assert t.dtype() == DataType.Float
    assert (fd.ops.exp(fd.define_scalar(DataType.Int))).dtype() == DataType.Float
    assert (s < 1).dtype() == DataType.Bool
    assert fd.ops.add(1, 2).dtype() == DataType.Int
    with pytest.raises(DTypeError, match="bitwise_and is not defined on float32"):
        s & 1


# Ops with a dim argument, called on a tensor of three dims.
DIMS: dict[str, Callable[[Any, Any, int], Any]] = {
    "argmax": lambda o, x, d: o.argmax(x, d),
    "argmin": lambda o, x, d: o.argmin(x, d),
    "argsort": lambda o, x, d: o.argsort(x, d),
    "broadcast_in_dim": lambda o, x, d: o.broadcast_in_dim(o.sum(x, [0, 1]), [5] * 3, [d]),
    "cat": lambda o, x, d: o.cat([x, x], d),
    "chunk": lambda o, x, d: o.chunk(x, 1, d)[0],
    "cummax": lambda o, x, d: o.cummax(x, d),
    "cummin": lambda o, x, d: o.cummin(x, d),
    "cumprod": lambda o, x, d: o.cumprod(x, d),
    "cumsum": lambda o, x, d: o.cumsum(x, d),
    "flip": lambda o, x, d: o.flip(x, [d]),
    "gather": lambda o, x, d: o.gather(x, o.argsort(x, 0), d),
    "index_select": lambda o, x, d: o.index_select(x, o.iota(2), d),
    "log_softmax": lambda o, x, d: o.log_softmax(x, d),
    "logsumexp": lambda o, x, d: o.logsumexp(x, [d]),
    "max": lambda o, x, d: o.max(x, d),
    "mean": lambda o, x, d: o.mean(x, [d]),
    "min": lambda o, x, d: o.min(x, [d]),
    "norm": lambda o, x, d: o.norm(x, 2, [d]),
    "permute": lambda o, x, d: o.permute(x, [d, (d + 1) % 3, (d + 2) % 3]),
    "prod": lambda o, x, d: o.prod(x, d),
    "roll": lambda o, x, d: o.roll(x, 1, d),
    "scatter": lambda o, x, d: o.scatter(x, o.argsort(x, 0), x, d),
    "select": lambda o, x, d: o.select(x, 1, d),
    "size": lambda o, x, d: o.full([2], o.size(x, d), DataType.Int),
    "softmax": lambda o, x, d: o.softmax(x, d),
    "sort": lambda o, x, d: o.sort(x, d)[0],
    "split_dim": lambda o, x, d: o.split_dim(x, d, [1, -1]),
    "squeeze": lambda o, x, d: o.squeeze(o.sum(x, [d], True), [d]),
    "stack": lambda o, x, d: o.stack([x, x], d),
    "std": lambda o, x, d: o.std(x, [d]),
    "stride_order": lambda o, x, d: o.stride_order(x, [d, (d + 1) % 3, (d + 2) % 3]),
    "sum": lambda o, x, d: o.sum(x, d),
    "take_along_axis": lambda o, x, d: o.take_along_axis(x, o.argsort(x, 0), d),
    "topk": lambda o, x, d: o.topk(x, 2, d)[0],
    "unsqueeze": lambda o, x, d: o.unsqueeze(x, d),
    "var": lambda o, x, d: o.var(x, [d]),
    "var_mean": lambda o, x, d: o.var_mean(x, [d])[0],
    "welford": lambda o, x, d: o.welford(x, [d])[1],
}


@pytest.mark.parametrize("op", DIMS)
def test_negative_dims_count_from_the_end(op: str) -> None:
    """A negative dim of 39 ops yields the definition of the equivalent non-negative dim; dims out
    of range are rejected."""
    size = 4 if op in ("stack", "unsqueeze") else 3
    for d in range(size):
        made = []
        for dim in (d, d - size):
            fd = FusionDefinition()
            fd.add_output(DIMS[op](fd.ops, fd.define_tensor([5, 5, 5]), dim))
            made.append(fd)
        assert made[0].fusion == made[1].fusion, f"{op} at {d}"
    for dim in (size, -size - 1):
        fd = FusionDefinition()
        with pytest.raises(ShapeError):
            DIMS[op](fd.ops, fd.define_tensor([5, 5, 5]), dim)


@pytest.mark.parametrize("dims", [[-2, -1], [0, -1], [-3, 1], [1, -1]])
def test_negative_dims_of_a_broadcast(dims: list[int]) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    shape = [7, 7, 7]
    for i, d in enumerate(dims):
        shape[d] = x.shape[i]
    fd = FusionDefinition()
    fd.add_output(fd.ops.broadcast_in_dim(fd.from_pytorch(x), shape, dims))
    view = [1, 1, 1]
    for i, d in enumerate(dims):
        view[d] = x.shape[i]
    assert torch.equal(fd.execute([x])[0], x.reshape(view).expand(shape))
