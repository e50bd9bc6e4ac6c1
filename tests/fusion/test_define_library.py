"""csrc/fusion/build/define_library.cpp: shapes, types, text and errors of extern ops."""

from typing import Any

import pytest

from fuser import DataType, DTypeError, FusionDefinition, ShapeError, Tensor, UserError
from tests.support.refusals import Refusal, check_refused


def tensor(fd: FusionDefinition, *shape: int, dtype: DataType = DataType.Float) -> Tensor:
    return fd.define_tensor(shape=list(shape), dtype=dtype)


def sizes(t: Tensor) -> str:
    return str(t).partition("[")[2].removesuffix("]")


@pytest.fixture
def fd() -> FusionDefinition:
    return FusionDefinition()


PRODUCTS = [
    ((7,), (7,), ""),
    ((5, 7), (7,), "5"),
    ((7,), (7, 3), "3"),
    ((5, 7), (7, 3), "5, 3"),
    ((4, 1, 5, 7), (2, 7, 3), "4, 2, 5, 3"),
    ((7,), (2, 7, 3), "2, 3"),
    ((2, 5, 7), (7,), "2, 5"),
]


@pytest.mark.parametrize(("a", "b", "wanted"), PRODUCTS, ids=str)
def test_products(fd: FusionDefinition, a: Any, b: Any, wanted: str) -> None:
    assert sizes(fd.ops.matmul(tensor(fd, *a), tensor(fd, *b))) == wanted


def test_other_shapes(fd: FusionDefinition) -> None:
    x = tensor(fd, -1, 7)
    assert sizes(fd.ops.linear(x, tensor(fd, 3, 7), tensor(fd, 3))) == "size(t0, 0), 3"
    values, indices = fd.ops.topk(x, 2)
    assert sizes(values) == sizes(indices) == "size(t0, 0), 2"
    assert indices.dtype() == DataType.Int
    assert fd.ops.argsort(x, 0).dtype() == DataType.Int


def test_text(fd: FusionDefinition) -> None:
    x, y = tensor(fd, 4, 4), tensor(fd, 4, 4)
    fd.ops.matmul(x, y)
    fd.ops.cumsum(x, -1)
    fd.ops.sort(x, 0, True)
    lines = [line.strip() for line in repr(fd).splitlines() if line.startswith("    T")]
    assert lines[2:] == [
        "T2 = fd.ops.matmul(T0, T1)",
        "T3 = fd.ops.cumsum(T0, dim=1)",
        'T4 = fd.ops.library("sort", [T0], dim=0, descending=1, stable=0)',
        "T5 = fd.ops.result(T4, 1)",
    ]


# x: float32[2, 3], i: int64[2, 3]
REFUSALS = [
    Refusal(
        UserError,
        "library-2",
        "matmul(): expected 2 to 2 tensors, got 1",
        lambda fd, x, i: fd.ops.library("matmul", [x]),
    ),
    Refusal(
        UserError,
        "library-2",
        "cumsum(): expected the attributes ['dim'], got []",
        lambda fd, x, i: fd.ops.library("cumsum", [x]),
    ),
    Refusal(
        UserError,
        "library-2",
        "cumsum(): expected the attributes ['dim'], got ['dims']",
        lambda fd, x, i: fd.ops.library("cumsum", [x], dims=0),
    ),
    Refusal(
        DTypeError,
        "library-dtype-1",
        "matmul(t1, t1): the op does not support the dtype of operand 0",
        lambda fd, x, i: fd.ops.matmul(i, i),
    ),
    Refusal(
        DTypeError,
        "library-dtype-1",
        "sort(t2): the op does not support the dtype of operand 0",
        lambda fd, x, i: fd.ops.sort(tensor(fd, 3, dtype=DataType.Float8_e4m3fn)),
    ),
    Refusal(
        DTypeError,
        "library-dtype-2",
        "matmul(t0, t2): operand 1 is of type float64, expected float32",
        lambda fd, x, i: fd.ops.matmul(x, tensor(fd, 3, 3, dtype=DataType.Double)),
    ),
    Refusal(
        DTypeError,
        "library-dtype-2",
        "scatter(t0, t0, t0): operand 1 is of type float32, expected int64",
        lambda fd, x, i: fd.ops.scatter(x, x, x, 0),
    ),
    Refusal(
        ShapeError,
        "library-rank-1",
        "linear(t0, t2, t3): operand 1 has 1 dim, expected 2",
        lambda fd, x, i: fd.ops.linear(x, tensor(fd, 3), tensor(fd, 3)),
    ),
    Refusal(
        ShapeError,
        "library-rank-1",
        "matmul(t2, t0): operand 0 has 0 dims, expected at least 1",
        lambda fd, x, i: fd.ops.matmul(tensor(fd), x),
    ),
    Refusal(
        ShapeError,
        "library-size-1",
        "matmul(t0, t0): axis 1 of operand 0 has size 3, expected 2 as in operand 1",
        lambda fd, x, i: fd.ops.matmul(x, x),
    ),
    Refusal(
        ShapeError,
        "library-size-1",
        "scatter(t0, t1, t2): axis 0 of operand 1 has size 2, expected at most 1 as in operand 2",
        lambda fd, x, i: fd.ops.scatter(x, i, tensor(fd, 1, 3), 0),
    ),
    Refusal(
        ShapeError,
        "library-dim-1",
        "cumsum(t0): dim 2 is out of range for rank 2",
        lambda fd, x, i: fd.ops.cumsum(x, 2),
    ),
    Refusal(
        ShapeError,
        "topk-1",
        "topk(t0): expected k between 0 and the size of axis 1, got 4",
        lambda fd, x, i: fd.ops.topk(x, 4),
    ),
    Refusal(
        UserError,
        "result-2",
        "result(t2, 2): sort has 2 results; t2 is result 0",
        lambda fd, x, i: fd.ops.result(
            fd.ops.library("sort", [x], dim=0, descending=0, stable=0), 2
        ),
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: r.id)
def test_refusals(fd: FusionDefinition, refusal: Refusal) -> None:
    check_refused(refusal, fd, tensor(fd, 2, 3), tensor(fd, 2, 3, dtype=DataType.Int))
