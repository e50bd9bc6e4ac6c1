"""Functions and methods of torch for tensors of a definition, if their signature differs from
fd.ops: other arguments, another order, or several results. torch_layers.py has functions of
torch.nn.

A function here has torch's name and arguments, after a leading `ops`. Functions that are missing
here are ops of equal name (fuser/torch_habits.py). Types are as in fd.ops.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fuser._core import DataType, Scalar, Tensor
from fuser.arguments import Size, defined
from fuser.errors import ShapeError, UserError
from fuser.torch_layers import LAYERS

if TYPE_CHECKING:
    from fuser.ops import Ops

__all__ = ["ALIASES", "FUNCTIONS", "METHODS", "Pair", "sizes_of"]


class Pair(NamedTuple):
    """Result of torch functions that return values and indices."""

    values: Tensor
    indices: Tensor


# Torch names of ops that have another name in fd.ops or in this module.
ALIASES = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "inner"), "matmul"),
    "view": "reshape",
    "view_as": "reshape_as",
    "ndimension": "dim",
    "nelement": "numel",
    "_threshold": "threshold",
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "divide": "div",
    "expit": "sigmoid",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "log_sigmoid": "logsigmoid",
    "logaddexp": "log_add_exp",
    "moveaxis": "movedim",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "positive": "set",
    "ravel": "flatten",
    "subtract": "sub",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "true_divide": "div",
}


def sizes_of(arg: Tensor) -> list[Size]:
    """All sizes, as int if they are known."""
    return [n if n.value is None else int(n.value) for n in arg.shape]


def _place(op: str, arg: Tensor, dim: int, more: int = 0) -> int:
    """The dim counted from the front."""
    rank = max(arg.ndim + more, 1)
    place = operator.index(dim)
    if not -rank <= place < rank:
        raise ShapeError(
            f"{op}(t{arg.id}): dim {dim} is out of range for rank {arg.ndim}{defined(arg)}",
            rule="habit-dim",
        )
    return place % rank


# ---- arithmetic


def div(ops: Ops, input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return ops.truediv(input, other)
    if rounding_mode == "floor":
        return ops.floor_divide(input, other)
    if rounding_mode == "trunc":
        return ops.trunc(ops.div(input, other))
    raise UserError(
        f"div(): rounding_mode: expected None, 'floor' or 'trunc', got {rounding_mode!r}",
        rule="habit-argument",
    )


def clamp(ops: Ops, input: Any, min: Any = None, max: Any = None) -> Any:
    if min is not None and max is not None:
        return ops.clamp(input, min, max)
    if min is None and max is None:
        raise UserError("clamp(): expected min, max or both, got neither", rule="habit-argument")
    return ops.maximum(input, min) if max is None else ops.minimum(input, max)


def _where_method(ops: Ops, self: Any, condition: Any, other: Any) -> Any:
    return ops.where(condition, self, other)


# ---- types and copies


def to(ops: Ops, input: Tensor, *args: Any, **named: Any) -> Any:
    dtypes = [a for a in (*args[:2], named.get("dtype")) if _is_dtype(a)]
    if isinstance(args[0] if args else None, Tensor):
        dtypes = [args[0].dtype]
    if not dtypes:
        raise UserError(
            "to(): a tensor of a definition has no device; a definition runs on the device of "
            "its inputs\n"
            "  hint: fd.execute([tensor.to(device)]) moves data, x.to(dtype) casts",
            rule="habit-device",
        )
    return ops.cast(input, dtypes[0])


def _is_dtype(value: Any) -> bool:
    return isinstance(value, DataType) or type(value).__name__ == "dtype"


def _caster(dtype: DataType) -> Callable[..., Any]:
    return lambda ops, input: ops.cast(input, dtype)


def full_like(ops: Ops, input: Tensor, fill_value: Any, *, dtype: Any = None) -> Any:
    return ops.full(sizes_of(input), fill_value, input.dtype if dtype is None else dtype)


# ---- properties of tensors


def numel(ops: Ops, input: Tensor) -> Any:
    sizes = sizes_of(input)
    if any(isinstance(n, Scalar) for n in sizes):
        return functools.reduce(ops.mul, sizes)
    return math.prod(sizes)


# ---- reductions


def _all_if_empty(dim: Any) -> Any:
    """Converts dims from torch's convention, in which () means all dims."""
    return None if dim is None or (isinstance(dim, list | tuple) and not dim) else dim


def _extreme(ops: Ops, op: str, input: Tensor, dim: Any, keepdim: bool) -> Any:
    """Maximum or minimum of all elements, or of two tensors; along a dim, values and indices."""
    if isinstance(dim, Tensor):
        return getattr(ops, f"{op}imum")(input, dim)
    if dim is None:
        return getattr(ops, op)(input)
    if input.ndim == 0:
        return Pair(getattr(ops, op)(input), ops.full([], 0, DataType.Int))
    dims = [_place(op, input, dim)]
    values = ops.reduction(f"arg{op}", input, dims)
    indices = ops.result(values, 1)
    return Pair(*(ops.keep_dims(t, input, dims, keepdim) for t in (values, indices)))


def _moments(op: str) -> Callable[..., Any]:
    def function(
        ops: Ops,
        input: Tensor,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        wanted = int(unbiased) if correction is None else correction
        return getattr(ops, op)(input, _all_if_empty(dim), wanted, keepdim)

    return function


def std_mean(ops: Ops, input: Tensor, *args: Any, **named: Any) -> Any:
    variance, mean = FUNCTIONS["var_mean"](ops, input, *args, **named)
    return ops.sqrt(variance), mean


# ---- elements by index


def take_along_dim(ops: Ops, input: Tensor, indices: Tensor, dim: int | None = None) -> Any:
    if dim is None:
        return ops.take_along_axis(ops.reshape(input, [-1]), ops.reshape(indices, [-1]), 0)
    return ops.take_along_axis(input, indices, dim)


# ---- shapes


def _listed(first: Any, rest: Sequence[Any]) -> list[Any]:
    """Sizes or dims, given one by one or as a list."""
    return [*first] if isinstance(first, list | tuple) and not rest else [first, *rest]


def reshape(ops: Ops, input: Tensor, *shape: Any, **named: Any) -> Any:
    if "shape" in named:
        shape = (named["shape"],)
    if len(shape) == 1 and _is_dtype(shape[0]):
        raise UserError(
            "view(): expected sizes, got a dtype; a definition cannot reinterpret bits\n"
            "  hint: x.to(dtype) casts the values",
            rule="habit-argument",
        )
    return ops.reshape(input, _listed(shape[0] if shape else [], shape[1:]))


def permute(ops: Ops, input: Tensor, *dims: Any, **named: Any) -> Any:
    given = named["dims"] if "dims" in named else _listed(dims[0] if dims else [], dims[1:])
    return ops.permute(input, [_place("permute", input, d) for d in given])


def transpose(ops: Ops, input: Tensor, dim0: int, dim1: int) -> Any:
    a, b = _place("transpose", input, dim0), _place("transpose", input, dim1)
    order = list(range(input.ndim))
    if order:
        order[a], order[b] = order[b], order[a]
    return ops.permute(input, order)


def t(ops: Ops, input: Tensor) -> Any:
    if input.ndim > 2:
        raise ShapeError(
            f"t(t{input.id}): expected at most two dims, got {input.ndim}{defined(input)}\n"
            "  hint: x.mT swaps the last two",
            rule="habit-dim",
        )
    return ops.permute(input, list(range(input.ndim))[::-1])


def movedim(ops: Ops, input: Tensor, source: Any, destination: Any) -> Any:
    sources = [_place("movedim", input, d) for d in _listed(source, ())]
    places = [_place("movedim", input, d) for d in _listed(destination, ())]
    rest = iter([d for d in range(input.ndim) if d not in sources])
    moved = dict(zip(places, sources, strict=True))
    return ops.permute(input, [moved[d] if d in moved else next(rest) for d in range(input.ndim)])


def flatten(ops: Ops, input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    if input.ndim == 0:
        return ops.broadcast(input, [True])
    first, last = _place("flatten", input, start_dim), _place("flatten", input, end_dim)
    for _ in range(last - first):
        input = ops.merge_dims(input, first)
    return input


def unflatten(ops: Ops, input: Tensor, dim: int, sizes: Sequence[Any]) -> Any:
    place, whole = _place("unflatten", input, dim), sizes_of(input)
    return ops.reshape(input, [*whole[:place], *sizes, *whole[place + 1 :]])


def squeeze(ops: Ops, input: Tensor, dim: Any = None) -> Any:
    sizes = sizes_of(input)
    if dim is None:
        return ops.squeeze(input, [d for d, n in enumerate(sizes) if _is(n, 1)])
    places = [_place("squeeze", input, d) for d in _listed(dim, ())] if input.ndim else []
    return ops.squeeze(input, [d for d in places if _is(sizes[d], 1)])


def expand(ops: Ops, input: Tensor, *size: Any, **named: Any) -> Any:
    sizes = named["size"] if "size" in named else _listed(size[0] if size else [], size[1:])
    more = len(sizes) - input.ndim
    wide = ops.broadcast(input, [True] * more + [False] * input.ndim) if more > 0 else input
    return ops.expand(wide, sizes)


def repeat(ops: Ops, input: Tensor, *repeats: Any) -> Any:
    """Expands a new dim in front of each dim by its count, then merges the two."""
    counts = _listed(repeats[0] if repeats else [], repeats[1:])
    more = len(counts) - input.ndim
    if more < 0:
        raise ShapeError(
            f"repeat(t{input.id}): expected at least {input.ndim} counts, got {len(counts)}"
            f"{defined(input)}",
            rule="habit-dim",
        )
    sizes: list[Any] = [1] * more + sizes_of(input)
    apart = [flag for d in range(len(counts)) for flag in (True, d < more)]
    wide = ops.broadcast(input, apart)
    wide = ops.expand(wide, [n for pair in zip(counts, sizes, strict=True) for n in pair])
    for d in range(len(counts)):
        wide = ops.merge_dims(wide, d)
    return wide


def narrow(ops: Ops, input: Tensor, dim: int, start: Any, length: Any) -> Any:
    place = _place("narrow", input, dim)
    size = input.size(place)
    if not isinstance(start, Scalar) and start < 0:
        start = ops.add(size, start)
    return _part(ops, input, place, start, ops.add(start, length))


def _part(ops: Ops, input: Tensor, place: int, start: Any, end: Any) -> Any:
    starts: list[Any] = [0] * input.ndim
    ends: list[Any] = [None] * input.ndim
    starts[place], ends[place] = start, end
    return ops.slice(input, starts, ends)


def chunk(ops: Ops, input: Tensor, chunks: int, dim: int = 0) -> Any:
    size = _known_size("chunk", input, dim)
    return split(ops, input, math.ceil(size / chunks) or 1, dim)


def split(ops: Ops, tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    place = _place("split", tensor, dim)
    lengths = split_size_or_sections
    if isinstance(lengths, int):
        size = _known_size("split", tensor, dim)
        starts = range(0, size, lengths) if size else [0]
        lengths = [min(lengths, size - s) for s in starts]
    parts, start = [], 0
    for length in lengths:
        parts.append(_part(ops, tensor, place, start, start + length))
        start += length
    return tuple(parts)


def unbind(ops: Ops, input: Tensor, dim: int = 0) -> Any:
    place = _place("unbind", input, dim)
    return tuple(ops.select(input, i, place) for i in range(_known_size("unbind", input, dim)))


def _known_size(op: str, input: Tensor, dim: int) -> int:
    size = sizes_of(input)[_place(op, input, dim)] if input.ndim else 0
    if isinstance(size, Scalar):
        raise UserError(
            f"{op}(t{input.id}): the size of dim {dim} is known only at run time{defined(input)}\n"
            "  hint: fix it in define_tensor(shape=...); fd.ops.chunk(x, n, dim) gives n parts, "
            "fd.ops.select(x, i, dim) one element",
            rule="habit-size",
        )
    return size


def roll(ops: Ops, input: Tensor, shifts: Any, dims: Any = None) -> Any:
    if dims is not None and dims != ():
        return ops.roll(input, shifts, dims)
    flat = ops.roll(ops.reshape(input, [-1]), shifts, 0)
    return ops.reshape(flat, sizes_of(input))


# ---- products


def addmm(
    ops: Ops, input: Any, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    product: Any = ops.matmul(mat1, mat2)
    product = product if _is(alpha, 1) else ops.mul(product, alpha)
    return ops.add(input if _is(beta, 1) else ops.mul(input, beta), product)


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int | float) and value == number


# Functions by torch's name; names that hide a Python builtin end in _ here.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__.removesuffix("_"): f
    for f in (
        div,
        clamp,
        to,
        full_like,
        numel,
        std_mean,
        take_along_dim,
        reshape,
        permute,
        transpose,
        t,
        movedim,
        flatten,
        unflatten,
        squeeze,
        expand,
        repeat,
        narrow,
        chunk,
        split,
        unbind,
        roll,
        addmm,
    )
}
# Functions that only forward their arguments.
FUNCTIONS |= {
    "add": (
        lambda ops, input, other, *, alpha=1: (
            ops.add(input, other) if _is(alpha, 1) else ops.add_alpha(input, other, alpha)
        )
    ),
    "sub": (
        lambda ops, input, other, *, alpha=1: (
            ops.sub(input, other) if _is(alpha, 1) else ops.sub_alpha(input, other, alpha)
        )
    ),
    "rsub": lambda ops, input, other, *, alpha=1: ops.rsub(input, other, alpha),
    "clamp_min": lambda ops, input, min: ops.maximum(input, min),
    "clamp_max": lambda ops, input, max: ops.minimum(input, max),
    "pow": lambda ops, input, exponent: ops.pow(input, exponent),
    "where": lambda ops, condition, input, other: ops.where(condition, input, other),
    "masked_fill": lambda ops, input, mask, value: ops.where(mask, value, input),
    "addcmul": (
        lambda ops, input, tensor1, tensor2, *, value=1: ops.addcmul(input, tensor1, tensor2, value)
    ),
    "addcdiv": (
        lambda ops, input, tensor1, tensor2, *, value=1: ops.addcdiv(input, tensor1, tensor2, value)
    ),
    "logit": (
        lambda ops, input, eps=None: ops.logit(
            input if eps is None else ops.clamp(input, eps, 1 - eps)
        )
    ),
    "type": lambda ops, input, dtype: ops.cast(input, dtype),
    "type_as": lambda ops, input, other: ops.cast(input, other.dtype),
    "clone": lambda ops, input, *, memory_format=None: ops.set(input),
    "contiguous": lambda ops, input, memory_format=None: input,
    "detach": lambda ops, input: input,
    "zeros_like": lambda ops, input, *, dtype=None: full_like(ops, input, 0, dtype=dtype),
    "ones_like": lambda ops, input, *, dtype=None: full_like(ops, input, 1, dtype=dtype),
    "dim": lambda ops, input: input.ndim,
    "is_floating_point": lambda ops, input: bool(input.dtype.kind == "Float"),
    "is_complex": lambda ops, input: bool(input.dtype.kind == "Complex"),
    "element_size": lambda ops, input: input.dtype.bytes,
    "amax": lambda ops, input, dim=(), keepdim=False: ops.max(input, _all_if_empty(dim), keepdim),
    "amin": lambda ops, input, dim=(), keepdim=False: ops.min(input, _all_if_empty(dim), keepdim),
    "max": (
        lambda ops, input, dim=None, keepdim=False, **named: _extreme(
            ops, "max", input, named.get("other", dim), keepdim
        )
    ),
    "min": (
        lambda ops, input, dim=None, keepdim=False, **named: _extreme(
            ops, "min", input, named.get("other", dim), keepdim
        )
    ),
    "aminmax": (
        lambda ops, input, *, dim=None, keepdim=False: (
            (ops.min(input, dim, keepdim), ops.max(input, dim, keepdim))
        )
    ),
    "norm": (
        lambda ops, input, p="fro", dim=None, keepdim=False, dtype=None: ops.norm(
            input, 2 if p in ("fro", None) else p, dim, keepdim, dtype
        )
    ),
    "cumsum": (
        lambda ops, input, dim, *, dtype=None: ops.cumsum(
            input if dtype is None else ops.cast(input, dtype), dim
        )
    ),
    "cumprod": (
        lambda ops, input, dim, *, dtype=None: ops.cumprod(
            input if dtype is None else ops.cast(input, dtype), dim
        )
    ),
    "sort": (
        lambda ops, input, dim=-1, descending=False, *, stable=False: Pair(
            *ops.sort(input, dim, descending, stable)
        )
    ),
    "topk": (
        lambda ops, input, k, dim=-1, largest=True, sorted=True: Pair(
            *ops.topk(input, k, dim, largest, sorted)
        )
    ),
    "gather": lambda ops, input, dim, index, *, sparse_grad=False: ops.gather(input, index, dim),
    "index_select": lambda ops, input, dim, index: ops.index_select(input, index, dim),
    "select": lambda ops, input, dim, index: ops.select(input, index, dim),
    "scatter": (
        lambda ops, input, dim, index, src=None, *, value=None: ops.scatter(
            input, index, value if src is None else src, dim
        )
    ),
    "reshape_as": lambda ops, input, other: ops.reshape(input, sizes_of(other)),
    "expand_as": lambda ops, input, other: expand(ops, input, sizes_of(other)),
    "broadcast_to": lambda ops, input, size: expand(ops, input, list(size)),
    "flip": (
        lambda ops, input, *dims, **named: ops.flip(
            input, named["dims"] if "dims" in named else _listed(dims[0], dims[1:])
        )
    ),
    "outer": (
        lambda ops, input, vec2: ops.mul(
            ops.broadcast(input, [False, True]), ops.broadcast(vec2, [True, False])
        )
    ),
    "matmul": lambda ops, input, other: ops.matmul(input, other),
}
FUNCTIONS |= LAYERS
FUNCTIONS |= {op: _moments(op) for op in ("var", "std", "var_mean")}
FUNCTIONS |= {
    name: _caster(dtype)
    for name, dtype in {
        "float": DataType.Float,
        "double": DataType.Double,
        "half": DataType.Half,
        "bfloat16": DataType.BFloat16,
        "bool": DataType.Bool,
        "char": DataType.Char,
        "byte": DataType.Byte,
        "short": DataType.Short,
        "int": DataType.Int32,
        "long": DataType.Int,
        "cfloat": DataType.ComplexFloat,
        "cdouble": DataType.ComplexDouble,
    }.items()
}
# Methods with another first argument than the function.
METHODS: dict[str, Callable[..., Any]] = {"where": _where_method}
