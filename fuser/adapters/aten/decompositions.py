"""Decompositions applied before a joint graph is partitioned.

Most decompose ops without a row into ops with rows. Softmax, classification losses, norms over
channels and dropout have rows, but as single ops their results would be saved for the backward
graph. Decomposed, they are rematerialized from values that are saved anyway: inputs, statistics of
rows, masks.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

from fuser.adapters.aten import foreach, quantization, unfold
from fuser.adapters.aten.table import row
from fuser.adapters.aten.torch_ops import TorchOps
from fuser.adapters.aten.unfold import is_channels_last
from fuser.adapters.graph.gemm_padding import is_worth_padding, rounded
from fuser.adapters.torch_compat import channel_shuffle, get_decompositions, suggest_memory_format
from fuser.ops.normalizations import group_norm_of, standardized
from fuser.ops.reductions import softmax_over

# Op packets; overloads with their own row are not decomposed.
_BROKEN_UP = [
    *("addr", "dist", "glu_backward", "hinge_embedding_loss", "isin", "logaddexp2", "mvlgamma"),
    *("_prelu_kernel_backward", "rot90", "rrelu_with_noise", "special_entr", "special_log_ndtr"),
    *("special_xlog1py", "trace", "addmv", "deg2rad", "rad2deg", "fmin", "fmax", "copysign"),
    *("diag_embed", "linspace", "logspace", "pixel_shuffle", "pixel_unshuffle"),
    *("reflection_pad1d", "reflection_pad2d", "replication_pad2d", "aminmax", "sinc", "std_mean"),
    *("select_scatter", "nan_to_num", "linalg_cross", "unsafe_split"),
    *("replication_pad1d", "replication_pad3d", "reflection_pad3d", "_weight_norm_interface"),
]

_RECOMPUTED = [
    "detach",  # otherwise it separates a saved result from ops that could rematerialize it
    *("_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data"),
    "_safe_softmax",
    "_native_batch_norm_legit_functional",
    # Elementwise, but unknown to torch's partitioner, which would save their operands and results.
    *("_prelu_kernel", "elu_backward", "glu", "hardsigmoid_backward", "hardswish", "leaky_relu"),
    *("hardswish_backward", "hardtanh_backward", "leaky_relu_backward", "log_sigmoid_backward"),
    *("log_sigmoid_forward", "mish_backward", "softplus_backward", "threshold_backward"),
]


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Torch's decompositions where they exist, and fuser's. Ops with a row, and library calls, are
    not decomposed.
    """
    return dict(_decompositions())


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    parts = _of_torch(_BROKEN_UP)
    return {op: how for op, how in parts.items() if row(str(op)) is None} | (
        _of_torch(_RECOMPUTED) | foreach.decompositions() | quantization.DECOMPOSITIONS | _OURS
    )


def _of_torch(names: list[str]) -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return get_decompositions([getattr(aten, name) for name in names if hasattr(aten, name)])


def _nll_loss_backward(
    g: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total: Tensor,
) -> Tensor:
    """The gradient of a classification loss, x[N, C, ...]; only the shape of x is used."""
    dim = 1 if x.ndim > 1 else 0
    ignored = target == ignore_index
    share = -g / total if reduction == 1 else -g
    if weight is not None:
        kept = torch.where(ignored, 0, target)
        # A 0-dim index would be converted to a number, which is unknown while tracing.
        share = share * (weight[kept] if kept.ndim else weight[kept.view(1)].view(()))
    place = torch.where(ignored, -1, target)
    if target.ndim < x.ndim:
        place = place.unsqueeze(dim)
        share = share.unsqueeze(dim) if share.ndim else share
    classes = torch.arange(x.shape[dim], device=x.device)
    hot = place == classes.view([-1 if d == dim else 1 for d in range(x.ndim)])
    return torch.where(hot, share, 0.0).to(x.dtype)


def _native_layer_norm(
    x: Tensor, shape: Sequence[Any], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    """(result, mean, rstd) of a norm without parameters. Other values scale its result, and their
    gradients read it (adaptive norms), so it is rematerialized from its operand and statistics.
    """
    if weight is not None or bias is not None:
        return NotImplemented
    ops, wide = TorchOps(), _wide(x)
    dims = list(range(x.ndim - len(shape), x.ndim))
    y, mean, _, rstd = standardized(ops, wide, dims, eps)
    dtype = x.dtype if x.device.type == "cpu" else wide.dtype
    return y.to(x.dtype), *(ops.keep_dims(t, wide, dims).to(dtype) for t in (mean, rstd))


def _native_group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    samples: Any,
    channels: Any,
    rest: Any,
    groups: int,
    eps: float,
) -> tuple[Tensor, ...]:
    """(result, mean, rstd); the result has the layout of x."""
    del samples, channels, rest
    y, *statistics = group_norm_of(TorchOps(), _wide(x), groups, weight, bias, eps)
    dtype = x.dtype if weight is None else weight.dtype
    return y.to(x.dtype), *(t.to(dtype) for t in statistics)


def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Any:
    """Divides once per row; torch's version divides once per element."""
    if x.ndim and not guard_or_false(x.shape[dim] > 0):
        return NotImplemented
    result = softmax_over(TorchOps(), _wide(x.contiguous()), [dim], None)
    return result if half_to_float else result.to(x.dtype)


def _vector_norm(
    x: Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """The root of a sum of squares. Torch's partitioner fuses sums; beside an op that it does not
    fuse, it saves elementwise results.
    """
    if ord != 2 or not x.is_floating_point():
        return NotImplemented
    value = x if dtype is None else x.to(dtype)
    wide = _wide(value)
    over = dim if isinstance(dim, list | tuple) else [*range(x.ndim)] if dim is None else [dim]
    return (wide * wide).sum(over, keepdim).sqrt().to(value.dtype)


def _wide(x: Tensor) -> Tensor:
    """x in its compute type."""
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Splits off the bias if the rows of the result are padded. Consumers then add the bias, which
    the library could only add to dense rows.
    """
    if alpha != 1 or beta != 1 or not is_worth_padding(a, b) or b.shape[1] == rounded(b.shape[1]):
        return NotImplemented
    return torch.mm(a, b) + bias


def _transpose(x: Tensor, a: int, b: int) -> Tensor:
    """Replaces a transpose by a permute: torch's partitioner rematerializes permutes but saves
    transposes.
    """
    dims = list(range(x.ndim))
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return x.permute(dims)


def _slice_scatter(
    x: Tensor, part: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """Concatenates the elements before the slice, the slice, and the elements after it. Torch's
    version would gather from `part` by computed indices. The result has the layout of x, without
    gaps.
    """
    size = x.shape[dim]
    if x.dtype != part.dtype:
        return NotImplemented
    if step != 1:
        return _slice_scatter_apart(x, part, dim, start, end, step)
    order = None
    if not x.is_contiguous():
        order = _order_in_memory(x)
        if order is None:
            return NotImplemented
    if all(n is None or type(n) is int for n in (size, start, end)):
        first, last, _ = slice(start, end).indices(size)
        last = max(first, last)
    elif end in (None, sys.maxsize) and start in (None, 0, 1, 2):
        first, last = start or 0, size  # a symbolic size is at least 2
    else:
        return NotImplemented
    around = (x.narrow(dim, 0, first), part, x.narrow(dim, last, size - last))
    empty = (first == 0, part.shape[dim] == 0, last is size or last == size)
    parts = [t for t, without in zip(around, empty, strict=True) if not without]
    if not parts:
        return x.clone()
    if order is None:
        return torch.cat(parts, dim) if len(parts) > 1 else parts[0].clone()
    rows = torch.cat([t.permute(order) for t in parts], order.index(dim % x.ndim))
    return rows.permute([order.index(d) for d in range(x.ndim)])


def _slice_scatter_apart(x: Tensor, part: Tensor, dim: int, start: Any, end: Any, step: Any) -> Any:
    """For steps other than 1: selects between x and `part`, spread by the step with zeros
    between.
    """
    if not all(n is None or type(n) is int for n in (x.shape[dim], start, end, step)):
        return NotImplemented
    if not x.is_contiguous():
        return NotImplemented
    dim %= x.ndim
    first, last, _ = slice(start, end).indices(x.shape[dim])
    places = _places(x, dim) - first
    chosen = (places >= 0) & (places < last - first) & (places % step == 0)
    spread = torch.ops.aten.slice_backward(part, x.shape, dim, first, last, step)
    return torch.where(chosen, spread, x).contiguous()


def _scatter(x: Tensor, dim: int, index: Tensor, src: Any) -> Any:
    """If each row of x has one target, compares all positions with it instead of writing a second
    tensor. E.g. the gradient of a gather of one element per row.
    """
    hot = _one_place(x, dim, index, src)
    return NotImplemented if hot is None else torch.where(hot, src, x).to(x.dtype).contiguous()


def _scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    hot = _one_place(x, dim, index, src)
    return NotImplemented if hot is None else torch.where(hot, x + src, x).contiguous()


def _one_place(x: Tensor, dim: int, index: Tensor, src: Any) -> Tensor | None:
    """Mask of the elements of x that `index` names, if each row has exactly one and x is
    contiguous.
    """
    if x.ndim == 0 or index.ndim != x.ndim or not x.is_contiguous():
        return None
    dim %= x.ndim
    wanted = [1 if d == dim else n for d, n in enumerate(x.shape)]
    given = [index.shape, *([src.shape] if isinstance(src, Tensor) else [])]
    if not all(_are_equal(sizes, wanted) for sizes in given):
        return None
    return index == _places(x, dim)


def _places(x: Tensor, dim: int) -> Tensor:
    """Position of each element along the dim, broadcast against x."""
    places = torch.arange(x.shape[dim], device=x.device)
    return places.view([-1 if d == dim else 1 for d in range(x.ndim)])


def _are_equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """True if the sizes are equal for all values of their symbols."""
    return all(statically_known_true(n == m) for n, m in zip(a, b, strict=True))


def _order_in_memory(x: Tensor) -> list[int] | None:
    """Dims from the outermost in memory to the innermost, possibly with gaps, if no elements
    overlap.
    """
    if not all(type(n) is int for n in (*x.shape, *x.stride())):
        return None
    order = sorted(range(x.ndim), key=lambda d: (x.stride()[d], x.shape[d]), reverse=True)
    past = 1  # memory span of one element of the next dim
    for d in reversed(order):
        if x.shape[d] > 1:
            if x.stride()[d] < past:
                return None
            past = x.stride()[d] * x.shape[d]
    return order


def _native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    """Decomposed so that only the mask is saved and the result is rematerialized."""
    if train is False or not 0 < p < 1 or not x.is_floating_point():
        return NotImplemented
    mask = torch.rand_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) >= p
    return x * mask * (1 / (1 - p)), mask


def _weight_norm_backward(
    grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Gradients of v * (g / norms), where `norms` are over all dims of v but `dim`."""
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    grad, wide, gain = (t.to(norms.dtype) for t in (grad, v, g))
    along = (grad * wide).sum(others, keepdim=True) / norms
    back = (gain / norms) * (grad - wide * (along / norms))
    return back.to(v.dtype), along.to(g.dtype)


def _exponential(x: Tensor, rate: float = 1, *, generator: Any = None) -> Any:
    """Never 0, because a logarithm of it would be infinite, and never infinite."""
    if generator is not None or rate <= 0 or not x.is_floating_point():
        return NotImplemented
    dtype = torch.promote_types(x.dtype, torch.float32)
    even = torch.rand_like(x, dtype=dtype).clamp(min=torch.finfo(dtype).eps / 4)
    return (even.log() / -rate).to(x.dtype)


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Any:
    """Splits off the bias, which consumers add. On a GPU the library would add it in a slow extra
    pass; only torch's depthwise kernel for row-major images adds it itself.
    """
    if bias is None or x.device.type == "cpu":
        return NotImplemented
    is_depthwise = settings[-1] > 1 and weight.shape[1] == 1
    if is_depthwise and not is_channels_last(x):
        return NotImplemented
    y = torch.ops.aten.convolution(x, weight, None, *settings)
    return y + _per_channel(bias, y)


def _channel_shuffle(x: Tensor, groups: Any) -> Tensor:
    """The result has the layout of torch's kernels: as `x` on a CPU, row-major on a GPU as in the
    decomposition.
    """
    y = channel_shuffle(x, groups)
    on_cpu = x.device.type == "cpu"
    return y.contiguous(memory_format=suggest_memory_format(x)) if on_cpu else y


def _convolution_backward(g: Tensor, x: Tensor, weight: Tensor, sizes: Any, *settings: Any) -> Any:
    """Computes the gradient of the bias as a sum, which fuses with the producer of `g`. The library
    would read all of `g` for it, slowly.
    """
    wanted = settings[-1]
    if sizes is None or not wanted[2]:
        return NotImplemented
    others = (*settings[:-1], [wanted[0], wanted[1], False])
    dx, dw, _ = torch.ops.aten.convolution_backward(g, x, weight, sizes, *others)
    return dx, dw, g.sum([0, *range(2, g.ndim)])


def _batch_norm_inference(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """(result, mean, rstd) for given statistics, which are not saved on a CPU: an affine map of
    each channel.
    """
    del momentum
    dtype = torch.promote_types(x.dtype, torch.float32)
    rstd = torch.rsqrt(var.to(dtype) + eps)
    y = (x.to(dtype) - _per_channel(mean.to(dtype), x)) * _per_channel(rstd, x)
    if weight is not None:
        y = y * _per_channel(weight.to(dtype), x)
    if bias is not None:
        y = y + _per_channel(bias.to(dtype), x)
    if x.device.type == "cpu":
        return y.to(x.dtype), x.new_empty(0, dtype=dtype), x.new_empty(0, dtype=dtype)
    return y.to(x.dtype), mean.to(dtype), rstd


def _batch_norm_backward(
    g: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    save_mean: Tensor | None,
    save_rstd: Tensor | None,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> Any:
    """Gradients for given statistics. The saved ones are empty on a CPU."""
    del save_mean, save_rstd
    if train or mean is None or var is None:
        return NotImplemented
    dtype = torch.promote_types(x.dtype, torch.float32)
    parameter = dtype if weight is None else weight.dtype
    rstd = torch.rsqrt(var.to(dtype) + eps)
    dims = [0, *range(2, x.ndim)]
    wide = g.to(dtype)
    scale = rstd if weight is None else rstd * weight.to(dtype)
    normal = (x.to(dtype) - _per_channel(mean.to(dtype), x)) * _per_channel(rstd, x)
    return (
        (wide * _per_channel(scale, x)).to(x.dtype) if mask[0] else None,
        (wide * normal).sum(dims).to(parameter) if mask[1] else None,
        wide.sum(dims).to(parameter) if mask[2] else None,
    )


def _per_channel(t: Tensor, x: Tensor) -> Tensor:
    return t.view([-1, *(1 for _ in range(x.ndim - 2))])


def _in_dtype_of_first(op: Any) -> Callable[..., Any]:
    """Stores losses in the dtype of x, as torch's kernels do; torch's trace uses the common
    dtype.
    """

    def loss(x: Tensor, target: Tensor, *rest: Any) -> Any:
        if x.dtype == target.dtype:
            return NotImplemented
        common = torch.promote_types(x.dtype, target.dtype)
        return op(x.to(common), target.to(common), *rest).to(x.dtype)

    return loss


_OURS: dict[Any, Callable[..., Any]] = {
    **{
        op: _in_dtype_of_first(op)
        for op in (torch.ops.aten.huber_loss.default, torch.ops.aten.soft_margin_loss.default)
    },
    torch.ops.aten._softmax.default: _softmax,
    torch.ops.aten.native_dropout.default: _native_dropout,
    torch.ops.aten.exponential.default: _exponential,
    torch.ops.aten._weight_norm_interface_backward.default: _weight_norm_backward,
    torch.ops.aten.slice_scatter.default: _slice_scatter,
    torch.ops.aten.scatter.src: _scatter,
    torch.ops.aten.scatter.value: _scatter,
    torch.ops.aten.scatter_add.default: _scatter_add,
    torch.ops.aten.transpose.int: _transpose,
    torch.ops.aten.addmm.default: _addmm,
    torch.ops.aten.convolution.default: _convolution,
    torch.ops.aten.convolution_backward.default: _convolution_backward,
    torch.ops.aten.avg_pool2d.default: unfold.avg_pool2d,
    torch.ops.aten.avg_pool2d_backward.default: unfold.avg_pool2d_backward,
    torch.ops.aten.max_pool2d_with_indices_backward.default: unfold.max_pool2d_backward,
    torch.ops.aten.channel_shuffle.default: _channel_shuffle,
    torch.ops.aten.nll_loss_backward.default: _nll_loss_backward,
    torch.ops.aten.nll_loss2d_backward.default: _nll_loss_backward,
    torch.ops.aten.native_layer_norm.default: _native_layer_norm,
    torch.ops.aten.native_group_norm.default: _native_group_norm,
    torch.ops.aten.linalg_vector_norm.default: _vector_norm,
    torch.ops.aten._native_batch_norm_legit_no_training.default: _batch_norm_inference,
    torch.ops.aten.native_batch_norm_backward.default: _batch_norm_backward,
}
