"""csrc/fusion/build/define_reduction.cpp: shapes, types, text and errors of reductions, iota,
gathers, and split and merged dims.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import DataType, DTypeError, FusionDefinition, ShapeError, Tensor, UserError
from fuser.debug.interpreter import torch_dtype
from tests.support.refusals import Refusal, check_whole_message

DTYPES = [DataType.__members__[name] for name in DataType.__members__]
ONE_RESULT = ["sum", "prod", "max", "min", "any", "all"]


def tensor(fd: FusionDefinition, *shape: int, dtype: DataType = DataType.Float) -> Tensor:
    return fd.define_tensor(shape=list(shape), dtype=dtype)


def sizes(t: Tensor) -> str:
    return str(t).partition("[")[2].removesuffix("]")


def last_line(fd: FusionDefinition) -> str:
    """The statement of the latest tensor."""
    return [line.strip() for line in repr(fd).splitlines() if line.startswith("    T")][-1]


@pytest.fixture
def fd() -> FusionDefinition:
    return FusionDefinition()


# ---- types


@pytest.mark.parametrize("op", ["sum", "prod", "amax", "amin", "any", "all", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_result_types_are_those_of_torch(fd: FusionDefinition, op: str, dtype: DataType) -> None:
    """Result types are torch's, but sums and products of half types are float32. If torch has no
    kernel for a narrow type (float8, argmax of bool), the rule for wider types applies."""
    name = op.removeprefix("a") if op in ("amax", "amin") else op
    x = tensor(fd, 2, 3, dtype=dtype)
    sample = torch.zeros(2, 3).to(torch_dtype(dtype))
    has_no_order = dtype.kind == "Complex" or dtype.name in ("UInt16", "UInt32", "UInt64")
    if has_no_order and name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(RuntimeError):
            getattr(torch, op)(sample, dim=1)
        with pytest.raises(DTypeError) as caught:
            getattr(fd.ops, name)(x, 1)
        assert caught.value.rule == "reduce-dtype-1"
        return
    if dtype.bytes == 1 and dtype.kind == "Float":
        sample = sample.float()
    if dtype == DataType.Bool and name in ("argmax", "argmin"):
        sample = sample.to(torch.uint8)
    expected = getattr(torch, op)(sample, dim=1).dtype
    if op in ("sum", "prod") and expected.is_floating_point and expected.itemsize < 4:
        expected = torch.float32
    if op in ("amax", "amin"):
        expected = torch_dtype(dtype)
    if dtype == DataType.Byte and name in ("any", "all"):
        expected = torch.bool  # torch returns uint8 for historical reasons
    result = getattr(fd.ops, name)(x, 1)
    assert torch_dtype(result.dtype()) == expected
    assert sizes(result) == "2"


@pytest.mark.parametrize("op", ["sum", "prod"])
def test_dtype_is_that_of_the_operand_first(fd: FusionDefinition, op: str) -> None:
    x = tensor(fd, 2, 3)
    result = getattr(fd.ops, op)(x, [1], dtype=DataType.BFloat16)
    assert result.dtype() == DataType.BFloat16
    assert [line.partition(" = ")[2] for line in repr(fd).splitlines()[2:]] == [
        "fd.ops.cast(T0, dtype=DataType.BFloat16)",
        f"fd.ops.{op}(T1, dims=[1])",
        "fd.ops.cast(T2, dtype=DataType.BFloat16)",
    ]


def test_dtype_of_choices_is_that_of_the_result(fd: FusionDefinition) -> None:
    x = tensor(fd, 2, 3)
    assert fd.ops.max(x, [1], dtype=DataType.Half).dtype() == DataType.Half
    assert last_line(fd) == "T2 = fd.ops.cast(T1, dtype=DataType.Half)"
    assert fd.ops.any(x, 0, dtype=DataType.Byte).dtype() == DataType.Byte


# ---- shapes


@pytest.mark.parametrize(
    ("arguments", "kept", "reduced"),
    [
        ((), "1, 1, 1", ""),
        ((DataType.Double,), "1, 1, 1", ""),
        ((1,), "2, 1, size(t0, 2)", "2, size(t0, 2)"),
        ((-1,), "2, 1, 1", "2, 1"),
        (([0, 2],), "1, 1, 1", "1"),
        (([-1, 0],), "1, 1, 1", "1"),
        (([],), "2, 1, size(t0, 2)", "2, 1, size(t0, 2)"),
    ],
)
@pytest.mark.parametrize("op", ONE_RESULT)
def test_shapes(
    fd: FusionDefinition, op: str, arguments: tuple[Any, ...], kept: str, reduced: str
) -> None:
    x = tensor(fd, 2, 1, -1)
    method = getattr(fd.ops, op)
    assert sizes(method(x, *arguments)) == reduced
    assert sizes(method(x, *arguments, keepdim=True)) == kept


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_shapes_of_indices(fd: FusionDefinition, op: str) -> None:
    x = tensor(fd, 2, 3)
    method = getattr(fd.ops, op)
    assert sizes(method(x)) == ""
    assert sizes(method(x, keepdim=True)) == "1, 1"
    assert sizes(method(x, 0)) == "3"
    assert sizes(method(x, -1, keepdim=True)) == "2, 1"


def test_a_tensor_of_no_dims(fd: FusionDefinition) -> None:
    x = tensor(fd, dtype=DataType.Int32)
    assert str(fd.ops.sum(x)) == "t1: int64[]"
    assert str(fd.ops.max(x, -1)) == "t2: int32[]"
    assert str(fd.ops.any(x, 0, keepdim=True)) == "t3: bool[]"
    assert str(fd.ops.argmax(x, 0)) == "t4: int64[]"


def test_overloads(fd: FusionDefinition) -> None:
    x = tensor(fd, 2, 3)
    assert fd.ops.sum(x, DataType.Double).dtype() == DataType.Double
    assert fd.ops.sum(x, torch.float64).dtype() == DataType.Double
    assert fd.ops.sum(x, DataType.Null).dtype() == DataType.Float
    assert sizes(fd.ops.sum(x, dim=0, keepdim=True)) == "1, 3"
    assert sizes(fd.ops.sum(arg=x, dims=[0], dtype=DataType.Null)) == "3"
    assert str(fd.ops.max(x, 0, False, DataType.Half)).endswith("float16[3]")
    with pytest.raises(UserError) as caught:
        fd.ops.sum(x, dims=[0], dim=0)
    assert caught.value.rule == "reduce-dim-4"


def test_results_of_a_reduction_of_several(fd: FusionDefinition) -> None:
    x = tensor(fd, 2, 3, dtype=DataType.Half)
    value = fd.ops.reduction("argmax", x, [1])
    assert str(value) == "t1: float32[2]"
    assert str(fd.ops.result(value, 1)) == "t2: int64[2]"
    assert [line.strip() for line in repr(fd).splitlines()[2:]] == [
        'T1 = fd.ops.reduction("argmax", T0, dims=[1])',
        "T2 = fd.ops.result(T1, 1)",
    ]


def test_iota(fd: FusionDefinition) -> None:
    n = fd.define_scalar(DataType.Int32)
    assert str(fd.ops.iota(5)) == "t0: int64[5]"
    assert last_line(fd) == "T0 = fd.ops.iota(5)"
    assert fd.ops.iota(n).dtype() == DataType.Int
    assert fd.ops.iota(5, 1, 2, DataType.Half).dtype() == DataType.Half
    assert fd.ops.iota(length=5, start=0.5, step=0.25, dtype=torch.float64).dtype().name == "Double"


def test_take_along_axis_broadcasts_and_gather_does_not(fd: FusionDefinition) -> None:
    x = tensor(fd, 4, -1, dtype=DataType.BFloat16)
    one = tensor(fd, 1, 3, dtype=DataType.Int)
    taken = fd.ops.take_along_axis(x, one, dim=-1)
    assert str(taken) == "t2: bfloat16[4, 3]"
    assert last_line(fd) == "T2 = fd.ops.take_along_axis(T0, T1, dim=1)"
    four = tensor(fd, 4, 3, dtype=DataType.Int32)
    assert sizes(fd.ops.gather(x, four, 1)) == "4, 3"
    assert last_line(fd) == "T4 = fd.ops.gather(T0, T3, dim=1)"
    assert sizes(fd.ops.gather(x, one, 1)) == "1, 3"
    with pytest.raises(ShapeError) as caught:
        fd.ops.gather(x, tensor(fd, 5, 3, dtype=DataType.Int), 1)
    assert caught.value.rule == "gather-1"


def test_split_and_merge(fd: FusionDefinition) -> None:
    x = tensor(fd, -1, 12)
    assert sizes(fd.ops.split_dim(x, 1, [3, -1])) == "size(t0, 0), 3, 4"
    assert last_line(fd) == "T1 = fd.ops.split_dim(T0, dim=1, sizes=[3, -1])"
    split = fd.ops.split_dim(x, -2, [-1, 8])
    assert sizes(split) == "size(t0, 0) / 8, 8, 12"
    assert sizes(fd.ops.merge_dims(split, 1)) == "size(t0, 0) / 8, 96"
    # A known factor divides without a remainder.
    known = fd.ops.split_dim(fd.ops.merge_dims(x, 0), 0, [-1, 4])
    assert sizes(known) == "size(t0, 0) * 3, 4"
    assert sizes(fd.ops.split_dim(fd.ops.merge_dims(x, 0), 0, [-1, 8])) == (
        "size(t0, 0) * 12 / 8, 8"
    )
    merged = fd.ops.merge_dims(split, 0, x.size(0))
    assert sizes(merged) == "size(t0, 0), 12"
    assert last_line(fd).endswith(", dim=0, size=fd.ops.size(T0, 0))")


# ---- sizes that must not be zero


def test_sizes_that_must_not_be_0_are_listed(fd: FusionDefinition) -> None:
    x = tensor(fd, -1, 4, -1)
    fd.ops.sum(x, [0])
    fd.ops.max(x, [0, 1])
    fd.ops.min(x, [2], identity=True)
    fd.ops.argmin(x, 2)
    assert fd.fusion.records()["nonempty"] == [
        ("max(t0, dims=[0, 1])", 0, 0),
        ("argmin(t0, dims=[2])", 2, 0),
    ]


def test_reduce_empty_1(fd: FusionDefinition) -> None:
    x = tensor(fd, 0, 3)
    for op in ("max", "min", "argmax", "argmin"):
        assert sizes(getattr(fd.ops, op)(x, 1)) == "0"
        with pytest.raises(ShapeError) as caught:
            getattr(fd.ops, op)(x, 0)
        assert caught.value.rule == "reduce-empty-1"
        assert str(caught.value) == (
            f"{op}(t0, dims=[0]): axis 0 has size 0, expected at least one element\n"
            f"  t0: float32[0, 3]  defined at {x.location}"
        )
    assert sizes(fd.ops.max(x, 0, identity=True)) == "3"
    assert last_line(fd).endswith("fd.ops.max(T0, dims=[0], identity=True)")
    for op in ("sum", "prod", "any", "all"):
        assert sizes(getattr(fd.ops, op)(x, 0)) == "3"


# ---- rebuilt for sizes of 1


# ---- errors: the complete message; {0} and {1} are the lines of the first two tensors

Error = tuple[type[UserError], str, str, Callable[[FusionDefinition, Tensor, Tensor], object]]

ERRORS: list[Error] = [
    (
        ShapeError,
        "reduce-dim-1",
        "sum(t0, dims=[2]): dim 2 is out of range for rank 2\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.sum(x, [2]),
    ),
    (
        ShapeError,
        "reduce-dim-2",
        "max(t0, dims=[1, -1]): dim 1 is given twice\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.max(x, [1, -1]),
    ),
    (
        ShapeError,
        "reduce-dim-3",
        "sum(t0, dims=[]): expected at least one dim\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.reduction("sum", x, []),
    ),
    (
        DTypeError,
        "reduce-dtype-1",
        "max(t2, dims=[0]): max is not defined on complex64\n"
        "  t2: complex64[2, 3]  defined at {2}\n"
        "  hint: reduce the real part or the magnitude: fd.ops.real, fd.ops.abs",
        lambda fd, x, y: fd.ops.max(fd.ops.complex(x, x), [0]),
    ),
    (
        DTypeError,
        "reduce-dtype-1",
        "welford(t1, dims=[0]): welford is not defined on int64\n"
        "  t1: int64[2, 4]  defined at {1}\n  hint: cast the operand first",
        lambda fd, x, y: fd.ops.reduction("welford", y, [0]),
    ),
    (
        UserError,
        "reduction-1",
        "reduction(): unknown reduction median",
        lambda fd, x, y: fd.ops.reduction("median", x, [0]),
    ),
    (
        UserError,
        "result-1",
        "result(t0, 1): expected the tensor of a reduction or of a library op\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.result(x, 1),
    ),
    (
        UserError,
        "result-2",
        "result(t2, 1): sum has 1 result; t2 is result 0\n  t2: float32[2]  defined at {2}",
        lambda fd, x, y: fd.ops.result(fd.ops.sum(x, [1]), 1),
    ),
    (
        ShapeError,
        "iota-1",
        "iota(length): expected a size of at least 0, got -1",
        lambda fd, x, y: fd.ops.iota(-1),
    ),
    (
        ShapeError,
        "take-along-axis-1",
        "take_along_axis(t0, t3): expected operands of equal rank\n"
        "  t0: float32[2, 3]  defined at {0}\n  t3: int64[2]  defined at {2}\n"
        "  hint: add dims of size 1 with broadcast",
        lambda fd, x, y: fd.ops.take_along_axis(x, fd.ops.argmax(x, 1), 1),
    ),
    (
        ShapeError,
        "take-along-axis-2",
        "take_along_axis(t0, t1): dim 2 is out of range for rank 2\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.take_along_axis(x, y, 2),
    ),
    (
        DTypeError,
        "index-dtype-1",
        "gather(t1, t0): expected an index of integers\n"
        "  t1: int64[2, 4]  defined at {1}\n  t0: float32[2, 3]  defined at {0}\n"
        "  hint: cast the index to DataType.Int",
        lambda fd, x, y: fd.ops.gather(y, x, 1),
    ),
    (
        ShapeError,
        "broadcast-1",
        "take_along_axis(t0, t1): operands do not broadcast\n"
        "  t0: float32[2, 3]  defined at {0}\n  t1: int64[2, 4]  defined at {1}\n"
        "  axis 1: 4 against 3; expected equal sizes, or a size of 1",
        lambda fd, x, y: fd.ops.take_along_axis(x, y, 0),
    ),
    (
        ShapeError,
        "gather-1",
        "gather(t0, t1): axis 1: the index has size 4, the operand 3; expected at most the size "
        "of the operand\n"
        "  t0: float32[2, 3]  defined at {0}\n  t1: int64[2, 4]  defined at {1}\n"
        "  hint: take_along_axis broadcasts sizes of 1",
        lambda fd, x, y: fd.ops.gather(x, y, 0),
    ),
    (
        ShapeError,
        "split-dim-1",
        "split_dim(t0, 2, [1, -1]): dim 2 is out of range for rank 2\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.split_dim(x, 2, [1, -1]),
    ),
    (
        ShapeError,
        "split-dim-2",
        "split_dim(t0, 1, [-1, -1]): at most one size can be -1\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.split_dim(x, 1, [-1, -1]),
    ),
    (
        ShapeError,
        "split-dim-2",
        "split_dim(t0, 1): expected two sizes, got 3\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.split_dim(x, 1, [1, 1, 3]),
    ),
    (
        ShapeError,
        "split-dim-2",
        "split_dim(t0, 1, [0, -1]): -1 is ambiguous next to a size of 0\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.split_dim(x, 1, [0, -1]),
    ),
    (
        ShapeError,
        "split-dim-3",
        "split_dim(t0, 1, [2, -1]): axis 1 has size 3, expected the product of the sizes, 2\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.split_dim(x, 1, [2, -1]),
    ),
    (
        ShapeError,
        "merge-dims-1",
        "merge_dims(t0, 1): expected a dim after dim 1\n  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.merge_dims(x, 1),
    ),
    (
        ShapeError,
        "merge-dims-2",
        "merge_dims(t0, 0): the product of the sizes is 6, expected 5\n"
        "  t0: float32[2, 3]  defined at {0}",
        lambda fd, x, y: fd.ops.merge_dims(x, 0, 5),
    ),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e[1])
def test_errors(fd: FusionDefinition, error: Error) -> None:
    x, y = tensor(fd, 2, 3), tensor(fd, 2, 4, dtype=DataType.Int)
    check_whole_message(Refusal(*error), fd, x, y)


def test_a_failed_reduction_leaves_the_definition_as_it_was(fd: FusionDefinition) -> None:
    x, y = tensor(fd, 3, -1), tensor(fd, 4, 4, dtype=DataType.Int)
    before = fd.fusion.records(), repr(fd)
    for provoke in (
        lambda: fd.ops.max(x, [1, 3]),
        lambda: fd.ops.gather(x, y, 1),
        lambda: fd.ops.split_dim(y, 1, [3, -1]),
    ):
        with pytest.raises(UserError):
            provoke()
    assert (fd.fusion.records(), repr(fd)) == before


# ---- consecutive reductions


def kl_divergence(ops: Any, x: Any, y: Any, dims: list[int]) -> Any:
    a, b = ops.log_softmax(x, -1), ops.log_softmax(y, -1)
    return ops.sum(ops.exp(b) * (b - a), dims)


def test_what_has_the_rows_for_their_statistics_sums_them_too(fd: FusionDefinition) -> None:
    x, y = tensor(fd, -1, -1), tensor(fd, -1, -1)
    fd.add_output(kl_divergence(fd.ops, x, y, [0, 1]))
    assert "dims=[1]" in repr(fd).splitlines()[-3]
    inputs = [torch.randn(64, 300), torch.randn(64, 300)]
    plans = fd.plan(inputs)
    assert isinstance(plans, tuple)
    assert len(plans) == 2
    a, b = (x.double().log_softmax(1) for x in inputs)
    (got,) = fd.execute(inputs)
    torch.testing.assert_close(got.double(), (b.exp() * (b - a)).sum(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("op", ["sum", "max", "min", "any"])
def test_in_turn_means_the_same(fd: FusionDefinition, op: str) -> None:
    """A reduction over two dims is split so that the dim of the statistics comes first; results are
    unchanged."""
    x = tensor(fd, -1, -1, -1)
    centered = x - fd.ops.mean(x, [1], keepdim=True)
    fd.add_output(getattr(fd.ops, op)(centered, [-2, 0]))
    data = torch.randn(5, 6, 7)
    wanted = data - data.mean(1, keepdim=True)
    (got,) = fd.execute([data])
    torch.testing.assert_close(
        got,
        {
            "sum": wanted.sum((0, 1)),
            "max": wanted.amax((0, 1)),
            "min": wanted.amin((0, 1)),
            "any": wanted.ne(0).any(0).any(0),
        }[op],
        atol=1e-5,
        rtol=1e-5,
    )


@pytest.mark.parametrize("op", ["argmax", "welford", "online_softmax"])
def test_states_of_several_fields_are_reduced_at_once(fd: FusionDefinition, op: str) -> None:
    x = tensor(fd, -1, -1)
    centered = x - fd.ops.mean(x, [0], keepdim=True)
    state = fd.ops.reduction(op, centered, [0, 1])
    for t in (state, fd.ops.result(state, 1)):
        fd.add_output(fd.ops.cast(t, DataType.Double))
    data = torch.randn(37, 53, generator=torch.Generator().manual_seed(7))
    wanted = data.double() - data.double().mean(0)
    first, second = fd.execute([data])
    if op == "argmax":
        assert int(second) == int(wanted.argmax())
        return
    expected = {
        "welford": (wanted.mean(), (wanted - wanted.mean()).square().sum()),
        "online_softmax": (wanted.max(), (wanted - wanted.max()).exp().sum()),
    }[op]
    torch.testing.assert_close(first, expected[0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(second, expected[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("statistics", "dims"),
    [
        ([0, 1], [0, 1]),  # equal dims
        ([1, 2], [0, 1]),  # different kept dims
        ([2], [0, 1]),
        ([], [0, 1]),
    ],
)
def test_all_at_once_elsewhere(
    fd: FusionDefinition, statistics: list[int], dims: list[int]
) -> None:
    x = tensor(fd, -1, -1, -1)
    y = x - fd.ops.mean(x, statistics, keepdim=True) if statistics else x * 2.0
    before = repr(fd).count("ops.sum")
    fd.add_output(fd.ops.sum(y, dims))
    assert repr(fd).count("ops.sum") == before + 1
