"""Statistics composed of sums and maxima: methods of fd.ops like any other.

They are defined with two reduction loops over the data (the mean, then the deviations from it; the
maximum, then the exponentials). The compiler merges these into one loop if the data does not fit on
chip. Half types are computed in float32 and give float32. Means of bool and integers have no
natural type and raise, as in torch.
"""

import math
import operator
from typing import Any

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.arguments import Dims, as_dtype, count_over, defined, reduced_dims
from fuser.errors import DTypeError, UserError
from fuser.ops.methods import composed
from fuser.ops.primitives import Primitives


@composed
class Reductions(Primitives):
    """Statistics composed of sums and maxima."""

    def mean(
        self,
        arg: Tensor,
        dims: Dims | DataType = None,
        keepdim: bool = False,
        dtype: Any = None,
        *,
        dim: int | None = None,
    ) -> Tensor:
        """sum(arg) / n over `dims`, as torch.mean; NaN over no elements. Arguments as for sum().

        Raises DTypeError `mean-dtype-1` for bool and integers without `dtype`, and the errors of
        sum().
        """
        which, wanted = reduced_dims("mean", arg, dims, dtype, dim)
        if wanted is not None and arg.dtype() != wanted:
            arg = self.cast(arg, wanted)
        _floating("mean", arg)
        # Multiply by 1 / n, computed on the host, as torch does on GPUs.
        share = self.truediv(1.0, count_over(arg, which))
        result: Tensor = self.mul(self.sum(arg, which, keepdim), share)
        return _narrowed(self, result, wanted)

    def var_mean(
        self,
        arg: Tensor,
        dims: Dims = None,
        correction: float = 1,
        keepdim: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """The variance sum(|arg - mean|^2) / max(n - correction, 0) over `dims`, and the mean. As
        torch.var_mean: real for complex numbers, NaN over no elements.

        Raises DTypeError `mean-dtype-1` for bool and integers.
        """
        which = _which("var_mean", arg, dims)
        average, total = _moments(self, "var_mean", arg, which)
        degrees = self.maximum(self.sub(count_over(arg, which), correction), 0)
        variance = self.truediv(total, degrees)
        return (
            self.keep_dims(variance, arg, which, keepdim),
            self.keep_dims(average, arg, which, keepdim),
        )

    def var(
        self,
        arg: Tensor,
        dims: Dims = None,
        correction: float = 1,
        keepdim: bool = False,
    ) -> Tensor:
        """The variance over `dims`: the first result of var_mean()."""
        return self.var_mean(arg, dims, correction, keepdim)[0]

    def std(
        self,
        arg: Tensor,
        dims: Dims = None,
        correction: float = 1,
        keepdim: bool = False,
    ) -> Tensor:
        """The square root of var()."""
        return self.sqrt(self.var(arg, dims, correction, keepdim))

    def welford(self, arg: Tensor, dims: Dims) -> tuple[Tensor, Tensor, Tensor]:
        """The mean, the sum of |arg - mean|^2 and the count (int64) over `dims`."""
        which = _which("welford", arg, dims)
        average, total = _moments(self, "welford", arg, which)
        return average, total, self.full(self.shape(total), count_over(arg, which), DataType.Int)

    def norm(
        self,
        arg: Tensor,
        p: Scalar | float = 2,
        dims: Dims = None,
        keepdim: bool = False,
        dtype: Any = None,
    ) -> Tensor:
        """sum(|arg|^p)^(1/p) over `dims`, as torch.linalg.vector_norm: the maximum of |arg| for
        inf, the minimum for -inf, the count of nonzero elements for 0. `arg` is cast to `dtype`
        first. If p is only known at run time, all of these are computed.

        Raises UserError `norm-1` for a p that is no number, DTypeError `mean-dtype-1` for bool and
        integers; over no elements ShapeError `reduce-empty-1` for inf and a negative p.
        """
        if isinstance(p, Scalar) and p.value is not None:
            p = p.value
        is_number = isinstance(p, int | float) and not isinstance(p, bool) and not math.isnan(p)
        if not is_number and not isinstance(p, Scalar):
            raise UserError(f"norm(): p: expected a number, got {p!r}", rule="norm-1")
        wanted = None if dtype is None else as_dtype(dtype)
        if wanted is not None and arg.dtype() != wanted:
            arg = self.cast(arg, wanted)
        _floating("norm", arg)
        which = _which("norm", arg, dims)
        if isinstance(p, Scalar):
            result = _norm_of_run(self, arg, p, which, keepdim)
        elif p == 0:
            real = _core.real_type(arg.dtype().compute)
            result = self.sum(self.cast(self.ne(arg, 0), real), which, keepdim)
        elif math.isinf(p):
            size = self.abs(arg)
            result = (self.max if p > 0 else self.min)(size, which, keepdim, size.dtype().compute)
        elif p == 1:
            result = self.sum(self.abs(arg), which, keepdim)
        elif p == 2:
            result = self.sqrt(self.sum(_magnitude_squared(self, arg), which, keepdim))
        else:
            # the norm of no elements is undefined: this unused minimum raises the error
            if p < 0 and which:
                self.min(self.abs(arg), which)
            result = self.pow(self.sum(self.pow(self.abs(arg), float(p)), which, keepdim), 1.0 / p)
        return _narrowed(self, result, None if wanted is None else _core.real_type(wanted))

    def logsumexp(self, arg: Tensor, dims: Dims, keepdim: bool = False) -> Tensor:
        """log(sum(exp(arg))) over `dims` without intermediate overflow, as torch.logsumexp: -inf
        over no elements or only -inf, inf if an element is inf.
        """
        which = _which("logsumexp", arg, dims)
        x = _as_float(self, arg)
        largest, _, total = shifted(self, x, which, x.dtype().compute)
        # An infinite maximum is the result; its difference to itself is NaN.
        result: Tensor = self.where(
            self.isinf(largest), largest, self.add(largest, self.log(total))
        )
        return result if keepdim or not which else self.squeeze(result, which)

    def softmax(self, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
        """exp(x - max) / sum(exp(x - max)) along `dim`, as torch.softmax: x is cast to `dtype`
        first; NaN if a row contains inf or only -inf. Accuracy: log2(n) + 16 units in the last
        place.
        """
        x = _as_float(self, x, dtype)
        which = _normalized_dim("softmax", x, dim)
        return _narrowed(self, softmax_over(self, x, which, x.dtype().compute), dtype)

    def log_softmax(self, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
        """log(softmax(x, dim, dtype)) as (x - max) - log(sum(exp(x - max)))."""
        x = _as_float(self, x, dtype)
        which = _normalized_dim("log_softmax", x, dim)
        _, distance, total = shifted(self, x, which, x.dtype().compute)
        return _narrowed(self, self.sub(distance, self.log(total)), dtype)


def _floating(op: str, arg: Tensor, dtype: Any = None) -> None:
    if dtype is None and arg.dtype().kind in ("Bool", "Int"):
        raise DTypeError(
            f"{op}(t{arg.id}): expected a floating point or complex tensor, got "
            f"{arg.dtype().torch_name}{defined(arg)}\n"
            "  hint: cast it first",
            rule="mean-dtype-1",
        )


def _normalized_dim(op: str, arg: Tensor, dim: int) -> list[int]:
    """Checks the only dim of a softmax, which is required, unlike the dims of reductions."""
    return reduced_dims(op, arg, operator.index(dim))[0]


def _which(op: str, arg: Tensor, dims: Dims) -> list[int]:
    return reduced_dims(op, arg, dims)[0]


def _moments(ops: Reductions, op: str, arg: Tensor, which: list[int]) -> tuple[Tensor, Tensor]:
    """Returns the mean over `which`, and the sum of |arg - mean|^2."""
    _floating(op, arg)
    average = ops.mean(arg, which)
    deviation = ops.sub(arg, ops.keep_dims(average, arg, which))
    return average, ops.sum(_magnitude_squared(ops, deviation), which)


def _magnitude_squared(ops: Reductions, x: Tensor) -> Tensor:
    """|x|^2, real for complex x."""
    if x.dtype().kind != "Complex":
        return ops.mul(x, x)
    real, imag = ops.real(x), ops.imag(x)
    return ops.add(ops.mul(real, real), ops.mul(imag, imag))


def _norm_of_run(
    ops: Reductions, arg: Tensor, p: Scalar, which: list[int], keepdim: bool
) -> Tensor:
    """Computes a norm with p known at run time: computes all cases and selects one."""
    size = ops.abs(arg)
    kept = size.dtype().compute
    counted = ops.cast(ops.ne(arg, 0), kept)
    power = ops.where(ops.eq(p, 0), counted, ops.pow(size, p))
    total = ops.sum(power, which, keepdim)
    root = ops.where(ops.eq(p, 0), total, ops.pow(total, ops.reciprocal(p)))
    extreme = ops.where(
        ops.gt(p, 0),
        ops.max(size, which, keepdim, kept, identity=True),
        ops.min(size, which, keepdim, kept, identity=True),
    )
    return ops.where(ops.isinf(p), extreme, root)


def softmax_over(ops: Any, x: Any, which: list[int], compute: Any) -> Any:
    """exp(x - max) / sum(exp(x - max)) over `which` in the type `compute`; divides once per row.

    ops: fd.ops, or its counterpart for tensors of torch (fuser/adapters/aten/torch_ops.py).
    """
    _, distance, total = shifted(ops, x, which, compute)
    return ops.mul(ops.exp(distance), ops.reciprocal(total))


def shifted(ops: Any, x: Any, which: list[int], compute: Any) -> tuple[Any, Any, Any]:
    """Returns the maximum over `which`, x minus the maximum, and the sum of the exponentials of the
    difference. The reduced dims stay, of size 1.
    """
    largest = ops.max(x, which, True, compute, identity=True)
    distance = ops.sub(x, largest)
    return largest, distance, ops.sum(ops.exp(distance), which, True)


def _as_float(ops: Reductions, x: Tensor, dtype: Any = None) -> Tensor:
    """x in `dtype`; bool and integers count as float32."""
    if dtype is not None:
        wanted = as_dtype(dtype)
        return x if x.dtype() == wanted else ops.cast(x, wanted)
    return ops.cast(x, DataType.Float) if x.dtype().kind in ("Bool", "Int") else x


def _narrowed(ops: Reductions, result: Tensor, dtype: Any) -> Tensor:
    return result if dtype is None or result.dtype() == as_dtype(dtype) else ops.cast(result, dtype)
