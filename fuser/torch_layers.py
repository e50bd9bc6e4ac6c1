"""Functions of torch.nn.functional for tensors of a definition, with torch's arguments after a
leading `ops`: the functions of fuser/torch_functions.py that concern layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fuser._core import DataType, Tensor
from fuser.errors import UserError

if TYPE_CHECKING:
    from fuser.ops import Ops

__all__ = ["LAYERS"]


def prelu(ops: Ops, input: Tensor, weight: Any) -> Any:
    if isinstance(weight, Tensor) and weight.ndim == 1 and input.ndim > 1:
        weight = ops.broadcast(weight, [d != 1 for d in range(input.ndim)])
    return ops.prelu(input, weight)


def pad(
    ops: Ops, input: Tensor, pad: Sequence[Any], mode: str = "constant", value: Any = None
) -> Any:
    if mode != "constant":
        raise UserError(
            f"pad(): mode: expected 'constant', got {mode!r}\n"
            "  hint: fd.ops.take_along_axis picks elements by index",
            rule="habit-argument",
        )
    return ops.pad(input, pad, value)


def embedding(
    ops: Ops,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    return ops.embedding_fwd(
        input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
    )


def linear(ops: Ops, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    return ops.linear(input, weight, bias)


def _along_a_dim(op: str, sign: int = 1) -> Callable[..., Any]:
    def function(
        ops: Ops, input: Tensor, dim: Any = None, dtype: Any = None, *, _stacklevel: int = 3
    ) -> Any:
        if dim is None:  # default dim of torch.nn.functional
            dim = 0 if input.ndim in (0, 1, 3) else 1
        return getattr(ops, op)(input if sign > 0 else ops.neg(input), dim, dtype)

    return function


def normalize(ops: Ops, input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    length = ops.norm(input, p, [dim] if isinstance(dim, int) else list(dim), True)
    return ops.truediv(input, ops.maximum(length, eps))


def layer_norm(
    ops: Ops,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: Any = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    return ops.layer_norm(input, normalized_shape, weight, bias, eps)[0]


def rms_norm(
    ops: Ops, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: Any = None
) -> Any:
    return ops.rms_norm(input, normalized_shape, weight, eps)[0]


def group_norm(
    ops: Ops,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: Any = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    return ops.group_norm(input, num_groups, weight, bias, eps)[0]


def batch_norm(
    ops: Ops,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    statistics = running_mean, running_var
    return ops.batch_norm(input, weight, bias, *statistics, momentum, eps, training)[0]


def instance_norm(
    ops: Ops,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    statistics = running_mean, running_var
    return ops.instance_norm(input, weight, bias, *statistics, momentum, eps, use_input_stats)[0]


def dropout(ops: Ops, input: Tensor, p: float = 0.5, training: bool = True) -> Any:
    return ops.dropout(input, p, training)[0]


def scaled_dot_product_attention(
    ops: Ops,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: Any = 0.0,
    is_causal: Any = False,
    scale: Any = None,
) -> Any:
    truths = attn_mask is not None and attn_mask.dtype == DataType.Bool
    bias, mask = (None, attn_mask) if truths else (attn_mask, None)
    return ops.sdpfa_fwd(query, key, value, bias, mask, dropout_p, is_causal, scale)[0]


def cross_entropy(
    ops: Ops,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    return ops.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def nll_loss(
    ops: Ops,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
) -> Any:
    return ops.nll_loss(input, target, weight, ignore_index, reduction)


def _squared(ops: Ops, distance: Tensor) -> Tensor:
    return ops.square(distance)


def _magnitude(ops: Ops, distance: Tensor) -> Tensor:
    return ops.abs(distance)


def _loss(of: Callable[[Ops, Any], Any]) -> Callable[..., Any]:
    """Makes a loss from a function of the difference of input and target."""

    def function(
        ops: Ops,
        input: Tensor,
        target: Tensor,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
    ) -> Any:
        if weight is not None:
            raise UserError(
                "weight: expected None, got a tensor\n"
                "  hint: use reduction='none', then multiply and sum",
                rule="habit-argument",
            )
        if reduction not in ("none", "mean", "sum"):
            raise UserError(
                f"reduction: expected 'none', 'mean' or 'sum', got {reduction!r}",
                rule="habit-argument",
            )
        loss = of(ops, ops.sub(input, target))
        return loss if reduction == "none" else getattr(ops, reduction)(loss)

    return function


# Functions by torch's name.
LAYERS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(prelu, pad, embedding, linear, normalize, layer_norm, rms_norm, group_norm, batch_norm),
        *(instance_norm, dropout, scaled_dot_product_attention, cross_entropy, nll_loss),
    )
}
LAYERS |= {
    "softmax": _along_a_dim("softmax"),
    "log_softmax": _along_a_dim("log_softmax"),
    "softmin": _along_a_dim("softmax", -1),
    "mse_loss": _loss(_squared),
    "l1_loss": _loss(_magnitude),
}
