"""Ops that a library computes: methods of fd.ops as any other.

A generated kernel does none of them well. Each is a step of its own that torch runs between
kernels, on its current stream: what it reads and gives lies in memory, and what stands before and
after is fused as ever.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fuser import _core
from fuser._core import DataType, Tensor
from fuser.errors import UserError

if TYPE_CHECKING:
    from fuser.ops import Ops

__all__ = [
    "argsort",
    "baddbmm",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "index_put_accumulate",
    "library",
    "linear",
    "matmul",
    "scatter",
    "sort",
    "topk",
]


def library(ops: "Ops", op: str, tensors: Sequence[Tensor], **attributes: int) -> Tensor:
    """Result 0 of the library op of that name (csrc/ir/library.def); others are result(..., 1).

    Raises UserError `library-1` for a name that there is not, `library-2` for a wrong number of
    tensors or other attributes; DTypeError `library-dtype-1` for a type that it does not compute
    on, `library-dtype-2` for operands of different types or an index that is not int64; ShapeError
    `library-rank-1` and `library-size-1` for shapes that do not go together, `library-dim-1` for a
    dim out of range.
    """
    names = _core.library_attributes(op)
    if set(attributes) != set(names):
        raise UserError(
            f"{op}(): expected the attributes {names}, got {list(attributes)}", rule="library-2"
        )
    return _core.library(ops._builder, op, list(tensors), [int(attributes[n]) for n in names])


def matmul(ops: "Ops", arg1: Tensor, arg2: Tensor) -> Tensor:
    """The product of matrices, vectors or batches of matrices, as torch.matmul. Operands are of one
    floating or complex type, which the result keeps; half types are accumulated in float32. A
    permuted operand is read where it stands. Raises as library() does.
    """
    return library(ops, "matmul", [arg1, arg2])


def linear(ops: "Ops", arg1: Tensor, arg2: Tensor, bias: Tensor | None = None) -> Tensor:
    """arg1 [..., k] times arg2 [n, k] transposed, plus bias [n], as torch.nn.functional.linear.
    Types are those of matmul. Raises as library() does.
    """
    return library(ops, "linear", [arg1, arg2] if bias is None else [arg1, arg2, bias])


def baddbmm(ops: "Ops", arg: Tensor, batch1: Tensor, batch2: Tensor) -> Tensor:
    """arg [b, m, n] plus the products of batch1 [b, m, k] and batch2 [b, k, n], as torch.baddbmm.
    Raises as library() does.
    """
    return library(ops, "baddbmm", [arg, batch1, batch2])


def topk(
    ops: "Ops", arg: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = False
) -> tuple[Tensor, Tensor]:
    """The k largest (smallest) elements along `dim` and their int64 indices, as torch.topk. Raises
    ShapeError `topk-1` for a k out of range, and as library() does.
    """
    return _pair(ops, "topk", arg, k=k, dim=dim, largest=largest, sorted=sorted)


def sort(
    ops: "Ops", arg: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> tuple[Tensor, Tensor]:
    """The elements in order along `dim` and their int64 indices, as torch.sort. Raises as library()
    does.
    """
    return _pair(ops, "sort", arg, dim=dim, descending=descending, stable=stable)


def argsort(
    ops: "Ops", arg: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> Tensor:
    """The int64 indices that sort() gives. Raises as library() does."""
    return library(ops, "argsort", [arg], dim=dim, descending=descending, stable=stable)


def cumsum(ops: "Ops", arg: Tensor, dim: int) -> Tensor:
    """Sums of the elements up to each one along `dim`, in the type of `arg`: integers wrap, where
    torch.cumsum widens them. Raises as library() does.
    """
    return library(ops, "cumsum", [arg], dim=dim)


def cumprod(ops: "Ops", arg: Tensor, dim: int) -> Tensor:
    """Products of the elements up to each one along `dim`, in the type of `arg`. Raises as
    library() does.
    """
    return library(ops, "cumprod", [arg], dim=dim)


def cummax(ops: "Ops", arg: Tensor, dim: int) -> Tensor:
    """The greatest of the elements up to each one along `dim`; NaN wins. Raises as library()
    does.
    """
    return library(ops, "cummax", [arg], dim=dim)


def cummin(ops: "Ops", arg: Tensor, dim: int) -> Tensor:
    """The least of the elements up to each one along `dim`; NaN wins. Raises as library() does."""
    return library(ops, "cummin", [arg], dim=dim)


def scatter(ops: "Ops", arg: Tensor, index: Tensor, src: Tensor, dim: int) -> Tensor:
    """`arg` with src[i, j] at [index[i, j], j] (for dim 0), as torch.scatter: which of several at
    one place wins is not defined, and indices must be in range. Raises as library() does.
    """
    return library(ops, "scatter", [arg, _index(ops, index), src], dim=dim)


def index_put_accumulate(ops: "Ops", acc: Tensor, index: Tensor, value: Tensor) -> Tensor:
    """`acc` [n, ...] with value[i, ...] added at acc[index[i], ...], as torch.index_put with
    accumulate. The index may have several dims; `value` has them in place of the first of `acc`.
    Raises as library() does.
    """
    return library(ops, "index_put_accumulate", [acc, _index(ops, index), value])


def _pair(ops: "Ops", op: str, arg: Tensor, **attributes: int) -> tuple[Tensor, Tensor]:
    values = library(ops, op, [arg], **attributes)
    return values, ops.result(values, 1)


def _index(ops: "Ops", index: Tensor) -> Tensor:
    """int64, where it is another integer."""
    dtype = index.dtype()
    return ops.cast(index, DataType.Int) if dtype.kind == "Int" and dtype != DataType.Int else index
