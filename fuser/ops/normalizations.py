"""Normalizations: methods of fd.ops like any other, composed of reductions and scalar ops.

Half types are computed in float32 and the results stay float32 until they are cast. Variances are
population variances in two reduction loops: sum((x - mean)^2) / n. Accuracy of y: log2(n) + 32
units in the last place of float32 at max(|y|, 1), scaled by |weight|.
"""

from collections.abc import Sequence
from typing import Any

import fuser._core as _core
from fuser._core import Scalar, Tensor
from fuser.arguments import Number, Size, count_over, defined
from fuser.errors import DTypeError, ShapeError
from fuser.ops.methods import composed
from fuser.ops.reductions import Reductions
from fuser.ops.shapes import same_size

# Torch's default eps, by the dtype that it computes in.
_EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


@composed
class Normalizations(Reductions):
    """Normalizations of layers, as in torch."""

    def layer_norm(
        self,
        x: Tensor,
        normalized_shape: Size | Sequence[Size],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: Scalar | Number = 1e-5,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(x - mean) * rstd * weight + bias over the last dims, as torch.layer_norm; and mean and
        rstd, with these dims of size 1.

        weight and bias have the shape `normalized_shape`. Raises ShapeError `norm-shape-1` unless
        the shape of x ends with it, DTypeError `norm-dtype-1` unless x has a floating point type.
        """
        _floating("layer_norm", x)
        dims = _inner_dims(self, "layer_norm", x, normalized_shape)
        y, mean, _, rstd = standardized(self, x, dims, eps)
        y = _scaled(self, y, weight, bias)
        return y, self.keep_dims(mean, x, dims), self.keep_dims(rstd, x, dims)

    def rms_norm(
        self,
        x: Tensor,
        normalized_shape: Size | Sequence[Size],
        weight: Tensor | None = None,
        eps: Scalar | Number | None = None,
    ) -> tuple[Tensor, Tensor]:
        """x * rstd * weight over the last dims, rstd = 1 / sqrt(mean(x^2) + eps), as
        torch.rms_norm; and rstd, with these dims of size 1. The default eps is the epsilon of the
        compute type.

        Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019). Raises as layer_norm().
        """
        _floating("rms_norm", x)
        dims = _inner_dims(self, "rms_norm", x, normalized_shape)
        if eps is None:
            eps = _EPSILON[x.dtype().compute.torch_name]
        rstd = self.rsqrt(self.add(self.mean(self.mul(x, x), dims, True), eps))
        return _scaled(self, self.mul(x, rstd), weight, None), rstd

    def group_norm(
        self,
        x: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: Scalar | Number = 1e-5,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(x - mean) * rstd * weight + bias of x[N, C, ...], as torch.group_norm. mean and rstd,
        returned as [N, num_groups], are over C / num_groups channels and all later dims.

        weight and bias are [C]. Wu and He, "Group Normalization" (2018). Raises ShapeError
        `norm-shape-2` for fewer than two dims, `split-dim-3` if num_groups does not divide C;
        DTypeError `norm-dtype-1` unless x has a floating point type.
        """
        _floating("group_norm", x)
        _ranked("group_norm", x)
        return group_norm_of(self, x, num_groups, weight, bias, eps)

    def batch_norm(
        self,
        arg: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: Scalar | Number,
        eps: Scalar | Number,
        training: bool,
        channels_last: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(arg - mean) * rstd * weight + bias per channel, as torch.batch_norm; and mean and rstd,
        [C].

        The channels are dim 1, or the last dim if `channels_last`. In training the statistics are
        computed from `arg`, and running statistics become (1 - momentum) * running + momentum * new
        as in-place outputs, with the unbiased variance. Otherwise the running statistics are used.
        Ioffe and Szegedy, "Batch Normalization" (2015).

        Raises ShapeError `norm-shape-2` for fewer than two dims, `norm-running-1` if running
        statistics are needed but missing; DTypeError `norm-dtype-1` unless `arg` has a floating
        point type.
        """
        return _per_channel(
            self,
            "batch_norm",
            arg,
            weight,
            bias,
            (running_mean, running_var),
            momentum,
            eps,
            training,
            channels_last,
            instances=False,
        )

    def instance_norm(
        self,
        arg: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: Scalar | Number,
        eps: Scalar | Number,
        use_input_stats: bool,
        channels_last: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """batch_norm() with separate statistics for each sample, as torch.instance_norm: mean and
        rstd are [N, C] (running statistics: [C]). Their means over N update the running statistics.

        Raises as batch_norm().
        """
        return _per_channel(
            self,
            "instance_norm",
            arg,
            weight,
            bias,
            (running_mean, running_var),
            momentum,
            eps,
            use_input_stats,
            channels_last,
            instances=True,
        )


def _floating(op: str, x: Tensor) -> None:
    if x.dtype().kind != "Float":
        raise DTypeError(
            f"{op}(t{x.id}): expected a floating point tensor, got {x.dtype().torch_name}"
            f"{defined(x)}\n  hint: cast it first",
            rule="norm-dtype-1",
        )


def _inner_dims(
    ops: Normalizations, op: str, x: Tensor, normalized_shape: Size | Sequence[Size]
) -> list[int]:
    """Returns the last dims, as many as `normalized_shape` has sizes. Sizes that are only known at
    run time are compared then, by a tensor without users: x keeps its own sizes, so that one kernel
    serves rows of all lengths.
    """
    shape = [normalized_shape] if isinstance(normalized_shape, int | Scalar) else normalized_shape
    inner = list(range(x.ndim - len(shape), x.ndim))
    fits = bool(inner) and inner[0] >= 0
    for d, wanted in zip(inner if fits else [], shape, strict=False):
        known, given = x.size(d).value, wanted.value if isinstance(wanted, Scalar) else wanted
        fits = fits and (None in (known, given) or given in (-1, known))
        if fits and given != -1 and not same_size(x.size(d), wanted):
            # Compare twice the size: comparing the dim itself would replace its size by the number.
            twice = ops.full([x.size(d), 2], 0.0, _core.DataType.Float)
            double = ops.mul(wanted, 2) if isinstance(wanted, Scalar) else 2 * wanted
            ops.merge_dims(twice, 0, double)
    if not fits:
        raise ShapeError(
            f"{op}(t{x.id}, normalized_shape={list(shape)}): expected the last sizes of t{x.id}, "
            f"at least one{defined(x)}",
            rule="norm-shape-1",
        )
    return inner


def group_norm_of(
    ops: Any, x: Any, num_groups: Any, weight: Any, bias: Any, eps: Any
) -> tuple[Any, Any, Any]:
    """The results of group_norm(), whose arguments are valid.

    ops: fd.ops, or its counterpart for tensors of torch (fuser/adapters/aten/torch_ops.py).
    """
    grouped = ops.split_dim(x, 1, [num_groups, -1])
    y, mean, _, rstd = standardized(ops, grouped, list(range(2, grouped.ndim)), eps)

    def per_group(parameter: Any) -> Any:
        if parameter is None:
            return None
        places = [d not in (1, 2) for d in range(grouped.ndim)]
        # Use the size scalars of x, so that the result has them too.
        sizes = [grouped.size(1), grouped.size(2)]
        return ops.broadcast(ops.split_dim(parameter, 0, sizes), places)

    y = _scaled(ops, y, per_group(weight), per_group(bias))
    return ops.merge_dims(y, 1, x.size(1)), mean, rstd


def _scaled(ops: Any, y: Any, weight: Any, bias: Any) -> Any:
    """y * weight + bias; both are optional and broadcast."""
    if weight is not None:
        y = ops.mul(y, weight)
    return y if bias is None else ops.add(y, bias)


def standardized(ops: Any, x: Any, dims: Sequence[int], eps: Any) -> tuple[Any, Any, Any, Any]:
    """Returns (x - mean) * rstd, and without `dims`: the mean, the sum of (x - mean)^2, and rstd =
    1 / sqrt(variance + eps).
    """
    mean = ops.mean(x, dims)
    centered = ops.sub(x, ops.keep_dims(mean, x, dims))
    total = ops.sum(ops.mul(centered, centered), dims)
    rstd = ops.rsqrt(ops.add(ops.mul(total, ops.truediv(1.0, count_over(x, dims))), eps))
    return ops.mul(centered, ops.keep_dims(rstd, x, dims)), mean, total, rstd


def _ranked(op: str, x: Tensor) -> None:
    if x.ndim < 2:
        raise ShapeError(
            f"{op}(t{x.id}): expected at least two dims, of samples and of channels{defined(x)}",
            rule="norm-shape-2",
        )


def moving_average(ops: Any, running: Any, value: Any, momentum: Any) -> Any:
    """(1 - momentum) * running + momentum * value."""
    return ops.add(ops.mul(running, ops.sub(1.0, momentum)), ops.mul(value, momentum))


def _track(
    ops: Normalizations, running: Tensor | None, value: Tensor, momentum: Scalar | Number
) -> None:
    """Updates a running statistic in place."""
    if running is None:
        return
    moved = moving_average(ops, running, value, momentum)
    if moved.dtype() != running.dtype():
        moved = ops.cast(moved, running.dtype())
    _core.add_output(ops._builder, moved, running)


def _per_channel(
    ops: Normalizations,
    op: str,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Tensor | None, Tensor | None],
    momentum: Scalar | Number,
    eps: Scalar | Number,
    own_statistics: bool,
    channels_last: bool,
    instances: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm, or instance norm if `instances`."""
    _floating(op, x)
    _ranked(op, x)
    channel = x.ndim - 1 if channels_last else 1
    kept = (0, channel) if instances else (channel,)
    dims = [d for d in range(x.ndim) if d not in kept]
    others = [d for d in range(x.ndim) if d != channel]

    def along(parameter: Tensor | None) -> Tensor | None:
        return None if parameter is None else ops.keep_dims(parameter, x, others)

    # Values after earlier statements that update them: a layer may be called twice.
    running_mean, running_var = (
        None if t is None else _core.written(ops._builder, t) for t in running
    )
    if own_statistics:
        y, mean, total, rstd = standardized(ops, x, dims, eps)
        degrees = ops.maximum(ops.sub(count_over(x, dims), 1), 0)
        unbiased = ops.truediv(total, degrees)
        seen_mean = ops.mean(mean, 0) if instances else mean
        seen_var = ops.mean(unbiased, 0) if instances else unbiased
        _track(ops, running_mean, seen_mean, momentum)
        _track(ops, running_var, seen_var, momentum)
    else:
        if running_mean is None or running_var is None:
            raise ShapeError(
                f"{op}(t{x.id}): expected running_mean and running_var without training, got none\n"
                "  hint: pass both, or set training",
                rule="norm-running-1",
            )
        mean, rstd = running_mean, ops.rsqrt(ops.add(running_var, eps))
        centered = ops.sub(x, ops.keep_dims(mean, x, others))
        y = ops.mul(centered, ops.keep_dims(rstd, x, others))
    return _scaled(ops, y, along(weight), along(bias)), mean, rstd
