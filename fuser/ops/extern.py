"""Ops that a library computes: methods of fd.ops like any other.

Generated kernels would compute them badly. Each is a step that torch runs between kernels on its
current stream. Its operands and results are in memory; ops before and after it are fused as usual.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.arguments import Number, Size, along_a_dim, as_dtype
from fuser.errors import Unsupported, UserError
from fuser.ops.methods import composed
from fuser.ops.shapes import Shapes


@composed
class Extern(Shapes):
    """Ops that a library computes."""

    def library(self, op: str, tensors: Sequence[Tensor], **attributes: Any) -> Tensor:
        """Result 0 of the library op named `op` (csrc/ir/library.def); further results are
        result(..., 1).

        Raises UserError `library-1` for an unknown name, `library-2` for a wrong number of tensors
        or other attributes, `library-3` for an attribute of another type; DTypeError
        `library-dtype-1` for an unsupported type, `library-dtype-2` for operand types that differ
        from its row; ShapeError `library-rank-1` and `library-size-1` for shapes that do not match,
        `library-dim-1` for a dim out of range. A run raises Unsupported `library-torch` if the
        installed torch lacks it for the device or type.
        """
        names = _core.library_attributes(op)
        if set(attributes) != set(names):
            raise UserError(
                f"{op}(): expected the attributes {names}, got {list(attributes)}", rule="library-2"
            )
        return _core.library(self._builder, op, list(tensors), [attributes[n] for n in names])

    def matmul(self, arg1: Tensor, arg2: Tensor) -> Tensor:
        """The product of matrices, vectors or batches of matrices, as torch.matmul. Operands have
        one common floating or complex type, which is also the result's; half types are accumulated
        in float32. A permuted operand is read without a copy. Raises as library() does.
        """
        return self.library("matmul", [arg1, arg2])

    def linear(self, arg1: Tensor, arg2: Tensor, bias: Tensor | None = None) -> Tensor:
        """arg1 [..., k] times arg2 [n, k] transposed, plus bias [n], as torch.nn.functional.linear.
        Types as in matmul. A 1-dim arg2 is treated as [1, k], and its dim is dropped from the
        result; its bias has no dims. Raises as library() does.
        """
        if arg2.ndim == 1 and (bias is None or bias.ndim == 0):
            product = self.matmul(arg1, arg2)
            return product if bias is None else self.cast(self.add(product, bias), product.dtype())
        return self.library("linear", [arg1, arg2] if bias is None else [arg1, arg2, bias])

    def baddbmm(self, arg: Tensor, batch1: Tensor, batch2: Tensor) -> Tensor:
        """arg [b, m, n] plus the products of batch1 [b, m, k] and batch2 [b, k, n], as
        torch.baddbmm. Raises as library() does.
        """
        return self.library("baddbmm", [arg, batch1, batch2])

    def grouped_mm(
        self,
        mat1: Tensor,
        mat2: Tensor,
        offsets: Tensor,
        scale1: Tensor | None = None,
        scale2: Tensor | None = None,
        alpha: Tensor | None = None,
        bias: Tensor | None = None,
        beta: Tensor | None = None,
        dtype: Any = DataType.BFloat16,
        output_block_scale_size: int = 0,
        output_block_scale_dtype: Any = DataType.BFloat16,
        output_gamma: bool = False,
    ) -> Tensor:
        """Products of groups of matrices, as torch.nn.functional.grouped_mm: mat1 [m, k] by mat2
        [g, k, n] in groups of rows, [g, m, k] by [k, n] in groups of columns, both [m, n], or [m,
        k] by [k, n] in groups of terms, [g, m, n]. Group i ends before offsets[i].

        With scales the matrices are float8 and the result has type `dtype`, bfloat16 on GPUs:
        scale1 is float32 [..., m, 1] and scale2 [..., 1, n], with a dim g if their matrix or the
        result has one. As torch._scaled_grouped_mm, which has kernels for sm_90.

        Raises Unsupported `grouped-mm-1` for alpha, bias, beta, output_block_scale_size and
        output_gamma, UserError `grouped-mm-2` for one scale alone, and as library() does. A run
        raises Unsupported `grouped-mm-3` for another type than bfloat16 on a GPU.
        """
        _without(
            "grouped_mm",
            "grouped-mm-1",
            alpha=alpha,
            bias=bias,
            beta=beta,
            output_block_scale_size=output_block_scale_size,
            output_gamma=output_gamma,
        )
        if scale1 is None and scale2 is None:
            return self.library("grouped_mm", [mat1, mat2, _index(self, offsets, DataType.Int32)])
        if scale1 is None or scale2 is None:
            raise UserError(
                "grouped_mm(): expected both scale1 and scale2 or neither, got one of them",
                rule="grouped-mm-2",
            )
        return self.scaled_grouped_mm(mat1, mat2, offsets, scale1, scale2, dtype)

    def scaled_grouped_mm(
        self,
        mat1: Tensor,
        mat2: Tensor,
        offsets: Tensor,
        scale1: Tensor,
        scale2: Tensor,
        dtype: Any = DataType.BFloat16,
    ) -> Tensor:
        """grouped_mm() of float8 matrices with scales."""
        tensors = [mat1, mat2, _index(self, offsets, DataType.Int32), scale1, scale2]
        return self.library("scaled_grouped_mm", tensors, dtype=as_dtype(dtype))

    def scaled_mm(
        self,
        mat1: Tensor,
        mat2: Tensor,
        scale1: Tensor,
        scale2: Tensor,
        alpha: Tensor | None = None,
        bias: Tensor | None = None,
        beta: Tensor | None = None,
        dtype: Any = DataType.BFloat16,
        output_block_scale_size: int = 0,
        output_block_scale_dtype: Any = DataType.BFloat16,
        output_gamma: bool = False,
    ) -> Tensor:
        """(mat1 * scale1) @ (mat2 * scale2) + bias in `dtype`, for float8 [m, k] and [k, n] and
        float32 scales of one element, or [m, 1] and [1, n]. As torch.nn.functional.scaled_mm; mat2
        is read by columns, so pass a transposed one.

        Raises Unsupported `scaled-mm-1` for alpha, beta, output_block_scale_size and output_gamma,
        which only block-scaled types have, and as library() does.
        """
        _without(
            "scaled_mm",
            "scaled-mm-1",
            alpha=alpha,
            beta=beta,
            output_block_scale_size=output_block_scale_size,
            output_gamma=output_gamma,
        )
        tensors = [mat1, mat2, scale1, scale2] + ([] if bias is None else [bias])
        return self.library("scaled_mm", tensors, dtype=as_dtype(dtype))

    def sdpfa_fwd(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | Scalar | float | None = None,
        mask: Tensor | Scalar | bool | None = None,
        dropout_p: Scalar | float | None = None,
        is_causal: Scalar | bool | None = None,
        scale: Scalar | float | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """softmax(query @ key^T * scale + bias) @ value by torch's flash attention, for tensors
        [batch, heads, length, head size]. Returns (result, logsumexp, philox_seed, philox_offset);
        sdpfa_bwd() takes the last three. `mask` is true for keys that count; scale is 1 / sqrt(head
        size) by default. dropout_p, is_causal and scale may be scalar inputs. Numbers passed as
        bias and mask are taken as dropout_p and is_causal, followed by scale: older definitions
        have no bias and mask.

        GPUs: flash attention for float16 and bfloat16 with heads of one size of at most 256;
        torch's memory-efficient attention with a bias or mask, for float32, and for other heads.
        CPU: no dropout. A run raises Unsupported `sdpfa-...` for unsupported features of its
        device, and for is_causal with different lengths. Raises UserError `sdpfa-2` for a tensor
        and a number as bias and mask, and as library() does.
        """
        older = (Scalar, int, float, complex)
        if isinstance(bias, older) or isinstance(mask, older):
            if isinstance(bias, Tensor) or isinstance(mask, Tensor):
                raise UserError(
                    "sdpfa_fwd(): bias, mask: expected tensors, got a tensor and a number\n"
                    "  hint: pass the numbers by name: dropout_p=..., is_causal=...",
                    rule="sdpfa-2",
                )
            scale = dropout_p if scale is None else scale
            return self.sdpfa_fwd(query, key, value, None, None, bias, mask, scale)
        added: Tensor | None = bias
        if mask is not None:
            allowed, masked = self.cast(0.0, query.dtype()), self.cast(-math.inf, query.dtype())
            added = self.where(mask, allowed if bias is None else bias, masked)
            added = added if added.dtype() == query.dtype() else self.cast(added, query.dtype())
        tensors = [query, key, value] + ([] if added is None else [added])
        out = self.library("sdpfa_fwd", tensors, **_attention(dropout_p, is_causal, scale))
        return out, self.result(out, 1), self.result(out, 2), self.result(out, 3)

    def sdpfa_bwd(
        self,
        grad_output: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        logsumexp: Tensor,
        dropout_p: Scalar | float | None,
        is_causal: Scalar | bool | None,
        philox_seed: Tensor,
        philox_offset: Tensor,
        scale: Scalar | float | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of query, key and value in sdpfa_fwd() without bias and mask. Raises as
        sdpfa_fwd() does.
        """
        state = [_index(self, philox_seed), _index(self, philox_offset)]  # torch's own are uint64
        tensors = [grad_output, query, key, value, output, logsumexp, *state]
        out = self.library("sdpfa_bwd", tensors, **_attention(dropout_p, is_causal, scale))
        return out, self.result(out, 1), self.result(out, 2)

    @along_a_dim
    def topk(
        self, arg: Tensor, k: Size, dim: int = -1, largest: bool = True, sorted: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The k largest (smallest) elements along `dim` and their int64 indices, as torch.topk. If
        k is only known at run time, they are the first k elements of a sort. Raises ShapeError
        `topk-1` for a k out of range, and as library() does.
        """
        if isinstance(k, Scalar):
            if k.value is None:
                return _first_of_sort(self, arg, k, dim, largest)
            k = int(k.value)
        return _pair(self, "topk", arg, k=k, dim=dim, largest=largest, sorted=sorted)

    @along_a_dim
    def sort(
        self, arg: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The sorted elements along `dim` and their int64 indices, as torch.sort. Raises as
        library() does.
        """
        return _pair(self, "sort", arg, dim=dim, descending=descending, stable=stable)

    @along_a_dim
    def argsort(
        self, arg: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
    ) -> Tensor:
        """The int64 indices of sort(). Raises as library() does."""
        return self.library("argsort", [arg], dim=dim, descending=descending, stable=stable)

    @along_a_dim
    def cumsum(self, arg: Tensor, dim: int, init: Scalar | Number | None = None) -> Tensor:
        """Cumulative sums along `dim`, plus `init`, in the type of `arg`: integers wrap, while
        torch.cumsum widens them. Raises as library() does.
        """
        return _scan(self, "cumsum", arg, dim, init, self.add)

    @along_a_dim
    def cumprod(self, arg: Tensor, dim: int, init: Scalar | Number | None = None) -> Tensor:
        """Cumulative products along `dim`, times `init`, in the type of `arg`. Raises as library()
        does.
        """
        return _scan(self, "cumprod", arg, dim, init, self.mul)

    @along_a_dim
    def cummax(self, arg: Tensor, dim: int, init: Scalar | Number | None = None) -> Tensor:
        """Cumulative maximum along `dim`, including `init`; NaN wins. Without `init`, result(...,
        1) is the int64 index of that element, as torch.cummax gives it. Raises as library() does.
        """
        return _scan(self, "cummax", arg, dim, init, self.maximum)

    @along_a_dim
    def cummin(self, arg: Tensor, dim: int, init: Scalar | Number | None = None) -> Tensor:
        """Cumulative minimum along `dim`, including `init`; otherwise as cummax()."""
        return _scan(self, "cummin", arg, dim, init, self.minimum)

    @along_a_dim
    def scatter(
        self, arg: Tensor, index: Tensor, src: Tensor | Scalar | Number, dim: int
    ) -> Tensor:
        """`arg` with src[i, j], or the number `src`, stored at [index[i, j], j] (for dim 0), as
        torch.scatter. If several elements have one target, the winner is undefined. Indices must be
        in range. Raises as library() does.
        """
        if not isinstance(src, Tensor):
            src = self.full(self.shape(index), src, arg.dtype())
        return self.library("scatter", [arg, _index(self, index), src], dim=dim)

    def index_put_accumulate(self, acc: Tensor, index: Tensor, value: Tensor) -> Tensor:
        """`acc` [n, ...] with value[i, ...] added at acc[index[i], ...], as torch.index_put with
        accumulate. The index may have several dims; they replace the first dim of `acc` in `value`.
        Raises as library() does.
        """
        return self.library("index_put_accumulate", [acc, _index(self, index), value])


def _first_of_sort(
    ops: Extern, arg: Tensor, k: Scalar, dim: int, largest: bool
) -> tuple[Tensor, Tensor]:
    place = _core.dim_of(arg, "topk", dim)
    starts: list[Size] = [0] * arg.ndim
    ends: list[Size | None] = [None] * arg.ndim
    ends[place] = k
    first, where = (
        ops.slice(t, starts, ends) for t in ops.sort(arg, place, descending=largest, stable=True)
    )

    def sized(t: Tensor) -> Tensor:
        return ops.merge_dims(ops.unsqueeze(t, place), place, k)

    return sized(first), sized(where)


def _pair(ops: Extern, op: str, arg: Tensor, **attributes: int) -> tuple[Tensor, Tensor]:
    values = ops.library(op, [arg], **attributes)
    return values, ops.result(values, 1)


def _index(ops: Extern, index: Tensor, wanted: DataType = DataType.Int) -> Tensor:
    """Casts an integer index to the `wanted` dtype; other types are left to the op's check."""
    dtype = index.dtype()
    return ops.cast(index, wanted) if dtype.kind == "Int" and dtype != wanted else index


def _scan(
    ops: Extern,
    op: str,
    arg: Tensor,
    dim: int,
    init: Scalar | Number | None,
    combine: Callable[[Any, Any], Tensor],
) -> Tensor:
    scan = ops.library(op, [arg], dim=dim)
    return scan if init is None else ops.cast(combine(scan, init), arg.dtype())


def _attention(
    dropout_p: Scalar | float | None, is_causal: Scalar | bool | None, scale: Scalar | float | None
) -> dict[str, Any]:
    return {
        "dropout_p": _attribute(dropout_p, 0.0, float),
        "is_causal": _attribute(is_causal, False, bool),
        "scale": _attribute(scale, math.nan, float),  # NaN selects the default by head size
    }


def _attribute(value: Any, default: Any, kind: Callable[[Any], Any]) -> Any:
    """Returns a number of the definition, or a Scalar that is only known at run time."""
    known = value.value if isinstance(value, Scalar) else value
    if isinstance(value, Scalar) and known is None:
        return value
    return default if known is None else kind(known)


def _without(op: str, rule: str, **arguments: Any) -> None:
    """Raises Unsupported if an argument is given."""
    for name, value in arguments.items():
        if isinstance(value, Tensor) or value:
            raise Unsupported(
                f"{op}(): {name} is for block-scaled types (nvfp4, mxfp8), which DataType does "
                "not have\n"
                "  hint: compute it in float32, before or after the product",
                rule=rule,
            )
