"""Rows of reductions, softmax and its gradients, and library calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser import DataType, Tensor, Unsupported, _core
from fuser.adapters.aten.emitter import Emitter, known
from fuser.arguments import as_dtype

Row = Callable[..., Any]


def _converted(e: Emitter, x: Tensor, dtype: Any) -> tuple[Tensor, DataType]:
    """Operand of an op with an optional dtype, and the dtype of the result."""
    if dtype is None:
        return e.wide(x), x.dtype()
    wanted = as_dtype(dtype)
    return e.computed(e.real_for(x, wanted), wanted), wanted


def _total(op: str) -> Row:
    """A row for sum or prod: int64 for bool and integers."""

    def write(
        e: Emitter, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Tensor:
        if dtype is None and x.dtype().kind in ("Bool", "Int"):
            dtype = DataType.Int
        value, wanted = _converted(e, x, dtype)
        return e.narrow(getattr(e.ops, op)(value, e.dims(dim, x.ndim), keepdim), wanted)

    return write


def _of_all(row: Row) -> Row:
    """A row for the overload without dims."""

    def write(e: Emitter, x: Tensor, **named: Any) -> Any:
        return row(e, x, None, **named)

    return write


def _mean(
    e: Emitter, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    value, wanted = _converted(e, x, dtype)
    return e.narrow(e.ops.mean(value, e.dims(dim, x.ndim), keepdim), wanted)


def _nansum(
    e: Emitter, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    if x.dtype().kind == "Float":
        x = e.same(e.ops.where(e.ops.isnan(e.wide(x)), 0.0, e.wide(x)), x)
    return _total("sum")(e, x, dim, keepdim, dtype=dtype)


def _extreme(op: str) -> Row:
    def write(e: Emitter, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        value = e.wide(x)
        kept = value.dtype().compute
        return e.same(getattr(e.ops, op)(value, e.dims(dim, x.ndim), keepdim, kept), x)

    return write


def _extreme_with_index(op: str) -> Row:
    """A row for max.dim: values and indices."""

    def write(e: Emitter, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if x.ndim == 0:
            return e.copy(x), e.ops.full([], 0, DataType.Int)
        value = e.ops.reduction(f"arg{op}", x, [dim])
        index = e.ops.result(value, 1)
        kept = [e.ops.keep_dims(t, x, [dim % x.ndim], keepdim) for t in (value, index)]
        return e.same(kept[0], x), kept[1]

    return write


def _index_of(op: str) -> Row:
    def write(e: Emitter, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if dim is None and keepdim and x.ndim > 1:
            raise Unsupported("argmax or argmin of a flattened tensor with keepdim")
        return getattr(e.ops, op)(x, dim, keepdim)

    return write


def _truth(op: str) -> Row:
    def write(e: Emitter, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        dtype = DataType.Byte if x.dtype() == DataType.Byte else DataType.Bool
        return e.narrow(getattr(e.ops, op)(x, e.dims(dim, x.ndim), keepdim), dtype)

    return write


def _truth_over(op: str) -> Row:
    """A row for the overload with several dims. Unlike for other reductions, [] reduces no dims."""

    def write(e: Emitter, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        if dim is None or len(dim):
            return _truth(op)(e, x, dim, keepdim)
        dtype = DataType.Byte if x.dtype() == DataType.Byte else DataType.Bool
        return e.narrow(e.ops.ne(x, 0), dtype)

    return write


def _count_nonzero(e: Emitter, x: Tensor, dim: Any = None) -> Tensor:
    return e.ops.sum(e.ops.ne(x, 0), e.dims(dim, x.ndim))


def _hash(e: Emitter, x: Tensor, dim: Any = (), keepdim: bool = False, mode: int = 0) -> Tensor:
    """The exclusive or of integers; floats would need their bits."""
    if mode or x.dtype().kind not in ("Bool", "Int"):
        raise Unsupported("a hash of floats")
    return e.ops.cast(e.ops.xor_sum(x, e.dims(dim, x.ndim), keepdim), DataType.UInt64)


# ---- moments


def _moments(e: Emitter, x: Tensor, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    amount = 1 if correction is None else correction
    return e.ops.var_mean(e.wide(x), e.dims(dim, x.ndim), amount, keepdim)


def _real(dtype: DataType) -> DataType:
    return _core.real_type(dtype) if dtype.kind == "Complex" else dtype


def _spread(pair: bool, root: bool) -> Row:
    """A row for var, std, var_mean or std_mean with `correction`."""

    def write(
        e: Emitter, x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False
    ) -> Any:
        spread, mean = _moments(e, x, dim, correction, keepdim)
        spread = e.narrow(e.ops.sqrt(spread) if root else spread, _real(x.dtype()))
        return (spread, e.same(mean, x)) if pair else spread

    return write


def _unbiased(row: Row) -> Row:
    """A row for the overload with `unbiased` and dims."""

    def write(
        e: Emitter, x: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False
    ) -> Any:
        return row(e, x, dim, correction=int(unbiased), keepdim=keepdim)

    return write


def _unbiased_all(row: Row) -> Row:
    """A row for the overload with `unbiased` and without dims."""

    def write(e: Emitter, x: Tensor, unbiased: bool = True) -> Any:
        return row(e, x, None, correction=int(unbiased))

    return write


def _vector_norm(
    e: Emitter, x: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    value, wanted = _converted(e, x, dtype)
    power = 2 if p is None else p
    result = e.ops.norm(value, power, e.dims(dim, x.ndim), keepdim)
    return e.narrow(result, _real(wanted))


def _logsumexp(e: Emitter, x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    dtype = e.to_float(x.dtype())
    return e.narrow(e.ops.logsumexp(e.computed(x, dtype), e.dims(dim, x.ndim), keepdim), dtype)


# ---- softmax


def _softmax(op: str) -> Row:
    """A row for softmax.int(x, dim, dtype)."""

    def write(e: Emitter, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
        value, wanted = _converted(e, x, dtype)
        return e.narrow(getattr(e.ops, op)(value, dim), e.to_float(wanted))

    return write


def _softmax_data(op: str) -> Row:
    """A row for _softmax(x, dim, half_to_float)."""

    def write(e: Emitter, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        wanted = DataType.Float if half_to_float else x.dtype()
        return e.narrow(getattr(e.ops, op)(e.wide(x), dim), wanted)

    return write


def _safe_softmax(e: Emitter, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax, with 0 instead of NaN in rows that contain only -inf."""
    value, wanted = _converted(e, x, dtype)
    masked = e.ops.all(e.ops.isneginf(value), dim, True)
    result = e.ops.where(masked, 0.0, e.ops.softmax(value, dim))
    return e.narrow(result, wanted)


def _softmax_gradient(e: Emitter, g: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
    ops, dy, out = e.ops, e.wide(g), e.wide(y)
    product = ops.mul(dy, out)
    if y.ndim:
        projected = ops.sum(product, dim, True)
        product = ops.sub(product, ops.mul(out, projected))
    else:
        product = ops.sub(product, ops.mul(out, product))
    return e.narrow(product, dtype)


def _log_softmax_gradient(e: Emitter, g: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
    ops, dy = e.ops, e.wide(g)
    total = ops.sum(dy, dim, True) if g.ndim else dy
    return e.narrow(ops.sub(dy, ops.mul(ops.exp(e.wide(y)), total)), dtype)


# ---- to a size


def _sum_to_size(e: Emitter, x: Tensor, size: Sequence[Any] | None) -> Tensor:
    """Sums over the dims that `size` lacks or that have size 1 there."""
    if size is None:
        return x
    new = x.ndim - len(size)
    wanted = list(size)
    ones = [
        d + new for d, n in enumerate(wanted) if known(n) == 1 and known(e.size(x, d + new)) != 1
    ]
    if not (ones or new):
        return x
    if x.dtype().kind in ("Bool", "Int"):  # as sum() does
        x = e.computed(x, DataType.Int)
    value = e.wide(x)
    if ones:
        value = e.ops.sum(value, ones, True)
    if new:
        value = e.ops.sum(value, list(range(new)))
    return e.same(value, x)


# ---- library


def _cumulative(op: str) -> Row:
    def write(e: Emitter, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
        if x.ndim == 0:
            raise Unsupported(f"{op} of a tensor of rank 0")
        if dtype is None and x.dtype().kind in ("Bool", "Int"):
            dtype = DataType.Int
        value, wanted = _converted(e, x, dtype)
        return e.narrow(getattr(e.ops, op)(value, dim), wanted)

    return write


def _linear(e: Emitter, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product is a library call; the bias fuses with its consumers."""
    product = e.ops.linear(x, weight)
    return product if bias is None else e.pointwise("add", product, bias)


def _matmul(e: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return e.ops.matmul(a, b)


def _with_dims(name: str, row: Row, dims: str) -> dict[str, Row]:
    """Rows of `name` for the overloads without and with dims."""
    return {
        f"aten.{name}.default": _of_all(row),
        **{f"aten.{name}.{overload}": row for overload in dims.split()},
    }


def _spreads(name: str, row: Row) -> dict[str, Row]:
    return {
        f"aten.{name}.correction": row,
        f"aten.{name}.dim": _unbiased(row),
        f"aten.{name}.default": _unbiased_all(row),
    }


ROWS: dict[str, Row] = {
    **_with_dims("sum", _total("sum"), "dim_IntList"),
    **_with_dims("prod", _total("prod"), "dim_int"),
    **_with_dims("mean", _mean, "dim"),
    "aten.nansum.default": _nansum,
    "aten.amax.default": _extreme("max"),
    "aten.amin.default": _extreme("min"),
    "aten.max.default": _extreme("max"),
    "aten.min.default": _extreme("min"),
    "aten.max.dim": _extreme_with_index("max"),
    "aten.min.dim": _extreme_with_index("min"),
    "aten.argmax.default": _index_of("argmax"),
    "aten.argmin.default": _index_of("argmin"),
    **_with_dims("any", _truth("any"), "dim"),
    **_with_dims("all", _truth("all"), "dim"),
    "aten.any.dims": _truth_over("any"),
    "aten.all.dims": _truth_over("all"),
    "aten.hash_tensor.default": _hash,
    "aten.count_nonzero.default": _count_nonzero,
    "aten.count_nonzero.dim_IntList": _count_nonzero,
    **_spreads("var", _spread(pair=False, root=False)),
    **_spreads("std", _spread(pair=False, root=True)),
    **_spreads("var_mean", _spread(pair=True, root=False)),
    **_spreads("std_mean", _spread(pair=True, root=True)),
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.norm.ScalarOpt_dim": _vector_norm,
    "aten.norm.Scalar": lambda e, x, p=2: _vector_norm(e, x, p),
    "aten.logsumexp.default": _logsumexp,
    "aten.softmax.int": _softmax("softmax"),
    "aten.log_softmax.int": _softmax("log_softmax"),
    "aten._softmax.default": _softmax_data("softmax"),
    "aten._log_softmax.default": _softmax_data("log_softmax"),
    "aten._safe_softmax.default": _safe_softmax,
    "aten._softmax_backward_data.default": _softmax_gradient,
    "aten._log_softmax_backward_data.default": _log_softmax_gradient,
    "aten.sum_to_size.default": _sum_to_size,
    "aten._grad_sum_to_size.default": _sum_to_size,
}

LIBRARY: dict[str, Row] = {
    "aten.cumsum.default": _cumulative("cumsum"),
    "aten.cumprod.default": _cumulative("cumprod"),
    "aten.linear.default": _linear,
    "aten.matmul.default": _matmul,
    "aten.mm.default": _matmul,
    "aten.bmm.default": _matmul,
}
