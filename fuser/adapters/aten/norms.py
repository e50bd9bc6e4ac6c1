"""Rows of normalizations and of their gradients.

Statistics and gradients of weights are computed in float32 for half types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser import DataType, Tensor, Unsupported
from fuser.adapters.aten.emitter import Emitter, known
from fuser.arguments import count_over
from fuser.ops.normalizations import moving_average

Row = Callable[..., Any]
Mask = Sequence[bool]


def _optional(e: Emitter, x: Tensor | None) -> Tensor | None:
    return None if x is None else e.wide(x)


def _float(e: Emitter, x: Tensor) -> Tensor:
    """x in its compute type."""
    dtype = x.dtype().compute
    return e.computed(x, dtype)


def _backward(
    e: Emitter,
    gradient: Tensor,
    normal: Tensor,
    rstd: Tensor,
    dims: Sequence[int],
) -> Tensor:
    """Gradient of normal = (x - mean) * rstd over `dims` with respect to x."""
    ops = e.ops
    shift = ops.mean(gradient, dims, True)
    slope = ops.mean(ops.mul(gradient, normal), dims, True)
    inner = ops.sub(ops.sub(gradient, shift), ops.mul(normal, slope))
    return ops.mul(inner, rstd)


def _first(*tensors: Tensor | None) -> DataType:
    """The dtype of the first tensor that is given."""
    return next(t.dtype() for t in tensors if t is not None)


def _masked(mask: Mask, makers: Sequence[Callable[[], Tensor]]) -> tuple[Tensor | None, ...]:
    """Computes the results for which the mask is true."""
    return tuple(make() if wanted else None for wanted, make in zip(mask, makers, strict=True))


def _over(e: Emitter, x: Tensor, dims: Sequence[int]) -> Tensor:
    """The sum over dims; x itself if there are no dims."""
    return e.ops.sum(x, list(dims)) if dims else x


# ---- layer norm, RMS norm


def _native_layer_norm(
    e: Emitter,
    x: Tensor,
    shape: Sequence[Any],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    inputs = e.wide(x), list(shape), _optional(e, weight), _optional(e, bias)
    y, mean, rstd = e.ops.layer_norm(*inputs, eps)
    return e.same(y, x), mean, rstd


def _layer_norm(
    e: Emitter,
    x: Tensor,
    shape: Sequence[Any],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Tensor:
    del cudnn
    return _native_layer_norm(e, x, shape, weight, bias, eps)[0]


def _layer_norm_backward(
    e: Emitter,
    g: Tensor,
    x: Tensor,
    shape: Sequence[Any],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Mask,
) -> tuple[Tensor | None, ...]:
    ops, dy = e.ops, _float(e, g)
    rows = list(range(x.ndim - len(shape)))
    inner = list(range(len(rows), x.ndim))
    scale = e.wide(rstd)
    normal = ops.mul(ops.sub(_float(e, x), e.wide(mean)), scale)
    gradient = dy if weight is None else ops.mul(dy, e.wide(weight))
    parameter = _first(weight, bias, x)
    return _masked(
        mask,
        [
            lambda: e.same(_backward(e, gradient, normal, scale, inner), x),
            lambda: e.narrow(_over(e, ops.mul(dy, normal), rows), parameter),
            lambda: e.narrow(_over(e, dy, rows), parameter),
        ],
    )


def _fused_rms_norm(
    e: Emitter,
    x: Tensor,
    shape: Sequence[Any],
    weight: Tensor | None,
    eps: float | None,
) -> tuple[Tensor, Tensor]:
    y, rstd = e.ops.rms_norm(e.wide(x), list(shape), _optional(e, weight), eps)
    return e.same(y, x), rstd


def _fused_rms_norm_backward(
    e: Emitter,
    g: Tensor,
    x: Tensor,
    shape: Sequence[Any],
    rstd: Tensor,
    weight: Tensor | None,
    mask: Mask,
) -> tuple[Tensor | None, ...]:
    ops, dy = e.ops, _float(e, g)
    rows = list(range(x.ndim - len(shape)))
    inner = list(range(len(rows), x.ndim))
    scale = e.wide(rstd)
    normal = ops.mul(_float(e, x), scale)
    gradient = dy if weight is None else ops.mul(dy, e.wide(weight))

    def to_input() -> Tensor:
        slope = ops.mean(ops.mul(gradient, normal), inner, True)
        return e.same(ops.mul(ops.sub(gradient, ops.mul(normal, slope)), scale), x)

    parameter = _first(weight, x)
    return _masked(
        mask, [to_input, lambda: e.narrow(_over(e, ops.mul(dy, normal), rows), parameter)]
    )


# ---- group norm


def _native_group_norm(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    samples: Any,
    channels: Any,
    rest: Any,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The statistics have the type of the weight, or else of x, on all devices."""
    del samples, channels, rest  # sizes of x
    y, mean, rstd = e.ops.group_norm(
        e.wide(x), groups, _optional(e, weight), _optional(e, bias), eps
    )
    dtype = _first(weight, x)
    return e.same(y, x), e.narrow(mean, dtype), e.narrow(rstd, dtype)


def _group_norm(
    e: Emitter,
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Tensor:
    del cudnn
    return _native_group_norm(e, x, weight, bias, 0, 0, 0, groups, eps)[0]


def _group_norm_backward(
    e: Emitter,
    g: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    samples: Any,
    channels: Any,
    rest: Any,
    groups: int,
    mask: Mask,
) -> tuple[Tensor | None, ...]:
    del samples, channels, rest
    ops = e.ops
    grouped = ops.split_dim(_float(e, x), 1, [groups, -1])
    sizes = [grouped.size(1), grouped.size(2)]
    dy = ops.split_dim(_float(e, g), 1, sizes)
    inner = list(range(2, grouped.ndim))
    others = [0, *range(3, grouped.ndim)]  # all dims but groups and their channels
    average, scale = (ops.keep_dims(e.wide(t), grouped, inner) for t in (mean, rstd))
    normal = ops.mul(ops.sub(grouped, average), scale)
    gradient = dy
    if weight is not None:
        split = ops.split_dim(e.wide(weight), 0, sizes)
        gradient = ops.mul(dy, ops.keep_dims(split, grouped, others))
    size, parameter = x.size(1), _first(weight, x)

    def per_channel(value: Tensor) -> Tensor:
        return e.narrow(ops.merge_dims(ops.sum(value, others), 0, size), parameter)

    return _masked(
        mask,
        [
            lambda: e.same(
                ops.merge_dims(_backward(e, gradient, normal, scale, inner), 1, size), x
            ),
            lambda: per_channel(ops.mul(dy, normal)),
            lambda: per_channel(dy),
        ],
    )


# ---- batch norm


def _check_channels(e: Emitter, x: Tensor, *operands: Tensor | None) -> None:
    """Rejects broadcasting between operands and channels, for which torch raises an error."""
    for t in operands:
        if t is not None and (known(e.size(t, 0)) == 1) != (known(e.size(x, 1)) == 1):
            raise Unsupported(
                f"a parameter of shape {t.shape()} for the channels of {x.shape()}",
                rule="aten-sizes",
            )


def _batch_norm_functional(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Returns y, mean, rstd and the updated running mean and variance."""
    ops = e.ops
    _check_channels(e, x, weight, bias, mean, var)
    wide, scale, shift = e.wide(x), _optional(e, weight), _optional(e, bias)
    if not training:
        y, _, _ = ops.batch_norm(wide, scale, shift, mean, var, momentum, eps, False)
        kept = tuple(e.copy(t) for t in (mean, var) if t is not None)
        return (e.same(y, x), *_given_statistics(e, x, mean, var, eps), *kept)
    y, own_mean, rstd = ops.batch_norm(wide, scale, shift, None, None, momentum, eps, True)
    result: tuple[Tensor, ...] = (e.same(y, x), own_mean, rstd)
    if mean is None or var is None:
        return result
    # Recompute the variance in the same reduction loop: from rstd it would cancel for a large eps.
    spread, _ = ops.var_mean(_float(e, x), [d for d in range(x.ndim) if d != 1], 1)
    return (*result, _moved(e, mean, own_mean, momentum), _moved(e, var, spread, momentum))


def _given_statistics(
    e: Emitter, x: Tensor, mean: Tensor | None, var: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Results that batch norm saves if statistics are given: the statistics on a GPU, empty tensors
    on the CPU.
    """
    dtype = x.dtype().compute
    if not e.on_gpu or mean is None or var is None:
        nothing = e.ops.full([0], 0, dtype)
        return nothing, nothing
    rstd = e.ops.rsqrt(e.ops.add(e.computed(var, dtype), eps))
    return e.ops.set(e.computed(mean, dtype)), rstd


def _moved(e: Emitter, running: Tensor, value: Tensor, momentum: float) -> Tensor:
    """The new running statistic, in the dtype of the old one."""
    return e.same(moving_average(e.ops, e.wide(running), value, momentum), running)


def _native_batch_norm(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Running statistics, which must be inputs of the definition, are updated in place."""
    _check_channels(e, x, weight, bias, mean, var)
    wide, scale, shift = e.wide(x), _optional(e, weight), _optional(e, bias)
    y, own_mean, rstd = e.ops.batch_norm(wide, scale, shift, mean, var, momentum, eps, training)
    if not training:
        own_mean, rstd = _given_statistics(e, x, mean, var, eps)
    return e.same(y, x), own_mean, rstd


def _batch_norm(e: Emitter, *args: Any) -> Tensor:
    """batch_norm(..., eps, cudnn_enabled)."""
    return _native_batch_norm(e, *args[:8])[0]


def _impl_index(e: Emitter, *args: Any) -> tuple[Any, ...]:
    y, mean, rstd = _native_batch_norm(e, *args[:8])
    return y, mean, rstd, e.ops.full([0], 0, DataType.Byte), 0


def _with_update(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """_batch_norm_with_update_functional: returns an empty reserve before the running
    statistics.
    """
    y, own_mean, rstd, new_mean, new_var = _batch_norm_functional(
        e, x, weight, bias, mean, var, True, momentum, eps
    )
    return y, own_mean, rstd, e.ops.full([0], 0, DataType.Byte), new_mean, new_var


def _instance_norm(
    e: Emitter,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    own: bool,
    momentum: float,
    eps: float,
    cudnn: bool = True,
) -> Tensor:
    del cudnn
    _check_channels(e, x, weight, bias, mean, var)
    wide, scale, shift = e.wide(x), _optional(e, weight), _optional(e, bias)
    return e.same(e.ops.instance_norm(wide, scale, shift, mean, var, momentum, eps, own)[0], x)


def _batch_norm_backward(
    e: Emitter,
    g: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_rstd: Tensor | None,
    train: bool,
    eps: float,
    mask: Mask,
    *_: Any,
) -> tuple[Tensor | None, ...]:
    """Gradients of batch norm; the sums over a channel are shared by all three."""
    ops = e.ops
    dims = [d for d in range(x.ndim) if d != 1]
    dy, wide = _float(e, g), _float(e, x)

    def along(t: Tensor) -> Tensor:
        return ops.keep_dims(t, x, dims)

    if train:
        mean, rstd = save_mean, save_rstd
    else:
        mean, rstd = running_mean, None
        if running_var is not None:
            rstd = ops.rsqrt(ops.add(e.wide(running_var), eps))
    if mean is None or rstd is None:
        raise ValueError("running statistics are missing")
    scale = e.wide(rstd)
    normal = ops.mul(ops.sub(wide, along(e.wide(mean))), along(scale))
    dbias = ops.sum(dy, dims)
    dweight = ops.sum(ops.mul(dy, normal), dims)
    factor = scale if weight is None else ops.mul(scale, e.wide(weight))

    def to_input() -> Tensor:
        inner = dy
        if train:
            count = count_over(x, dims)
            shift, slope = (along(ops.truediv(t, count)) for t in (dbias, dweight))
            inner = ops.sub(ops.sub(dy, shift), ops.mul(normal, slope))
        return e.same(ops.mul(inner, along(factor)), x)

    parameter = _first(weight, x)
    return _masked(
        mask, [to_input, lambda: e.narrow(dweight, parameter), lambda: e.narrow(dbias, parameter)]
    )


ROWS: dict[str, Row] = {
    "aten.native_layer_norm.default": _native_layer_norm,
    "aten.layer_norm.default": _layer_norm,
    "aten.native_layer_norm_backward.default": _layer_norm_backward,
    "aten._fused_rms_norm.default": _fused_rms_norm,
    "aten._fused_rms_norm_backward.default": _fused_rms_norm_backward,
    "aten.rms_norm.default": lambda e, x, shape, weight=None, eps=None: _fused_rms_norm(
        e, x, shape, weight, eps
    )[0],
    "aten.native_group_norm.default": _native_group_norm,
    "aten.group_norm.default": _group_norm,
    "aten.native_group_norm_backward.default": _group_norm_backward,
    "aten.native_batch_norm.default": _native_batch_norm,
    "aten._native_batch_norm_legit.default": _native_batch_norm,
    "aten._native_batch_norm_legit.no_stats": lambda e, x, weight, bias, *rest: _native_batch_norm(
        e, x, weight, bias, None, None, *rest
    ),
    "aten._native_batch_norm_legit_no_training.default": (
        lambda e, x, weight, bias, mean, var, *rest: _native_batch_norm(
            e, x, weight, bias, mean, var, False, *rest
        )
    ),
    "aten._native_batch_norm_legit_functional.default": _batch_norm_functional,
    "aten._batch_norm_with_update_functional.default": _with_update,
    "aten.batch_norm.default": _batch_norm,
    "aten._batch_norm_impl_index.default": _impl_index,
    "aten.instance_norm.default": _instance_norm,
    "aten.native_batch_norm_backward.default": _batch_norm_backward,
    # the further argument is torch's reserve
    "aten.batch_norm_backward.default": _batch_norm_backward,
    "aten._batch_norm_impl_index_backward.default": lambda e, index, x, g, *rest: (
        _batch_norm_backward(e, g, x, *rest)
    ),
}
