"""Other kernel libraries, if installed, as contenders of the cases: QuACK and Liger.

Each function here is a benchmarks.case.Peer: it takes the inputs of a case, imports its library and
returns the call to time. Backward passes use autograd of the library's public function: forward
runs once and the graph is kept. Only the backward kernels are timed, because the host runs ahead of
the GPU (benchmarks.harness).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

# Module and distribution by contender.
LIBRARIES = {"quack": ("quack", "quack-kernels"), "liger": ("liger_kernel", "liger-kernel")}

EPS = 1e-5


def available() -> tuple[dict[str, str], dict[str, str]]:
    """Versions of the importable libraries, and the import errors of the rest, by contender."""
    versions, missing = {}, {}
    for name, (module, distribution) in LIBRARIES.items():
        try:
            importlib.import_module(module)
        except Exception as failure:  # an import that compiles can fail in any way
            missing[name] = f"{type(failure).__name__}: {str(failure).splitlines()[0][:120]}"
            continue
        try:
            versions[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            versions[name] = "of unknown version"
    return versions, missing


def _backward(
    forward: Callable[..., Any], differentiable: Sequence[Tensor], dy: Tensor, *others: Any
) -> Callable[[], Any]:
    """The backward pass of forward(*differentiable, *others) for the gradient `dy`."""
    leaves = [t.detach().clone().requires_grad_() for t in differentiable]
    with torch.enable_grad():
        y = forward(*leaves, *others)
    y = y[0] if isinstance(y, tuple) else y
    return lambda: torch.autograd.grad(y, leaves, dy.reshape(y.shape), retain_graph=True)


# ---- softmax and cross-entropy


def quack_softmax(x: Tensor) -> Callable[[], Any]:
    from quack.softmax import softmax

    return lambda: softmax(x)


def quack_softmax_backward(dy: Tensor, y: Tensor) -> Callable[[], Any]:
    from quack.softmax import softmax_bwd

    return lambda: softmax_bwd(dy, y)


def quack_cross_entropy(logits: Tensor, target: Tensor) -> Callable[[], Any]:
    from quack.cross_entropy import cross_entropy

    return lambda: cross_entropy(logits, target, reduction="none")


def quack_cross_entropy_backward(
    logits: Tensor, target: Tensor, lse: Tensor, dloss: Tensor
) -> Callable[[], Any]:
    from quack.cross_entropy import cross_entropy

    target = target.flatten()
    return _backward(lambda x: cross_entropy(x, target, reduction="none"), [logits], dloss)


def liger_softmax(x: Tensor) -> Callable[[], Any]:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return lambda: LigerSoftmaxFunction.apply(x)


def liger_softmax_backward(dy: Tensor, y: Tensor) -> Callable[[], Any]:
    from liger_kernel.ops.softmax import _softmax_backward, _softmax_forward

    _, *settings = _softmax_forward(y)
    return lambda: _softmax_backward(dy, y, *settings)


def liger_cross_entropy(logits: Tensor, target: Tensor) -> Callable[[], Any]:
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    # weight, ignored index, scale of lse squared, label smoothing, reduction
    options = (None, -100, 0.0, 0.0, "none")
    return lambda: LigerCrossEntropyFunction.apply(logits, target, *options)[0]


# ---- norms


def quack_rms_norm(x: Tensor, weight: Tensor) -> Callable[[], Any]:
    from quack.rmsnorm import rmsnorm_fwd

    def call() -> list[Tensor]:
        y, _, rstd = rmsnorm_fwd(x, weight, eps=EPS, store_rstd=True)
        return [y, rstd]

    return call


def quack_rms_norm_backward(dy: Tensor, x: Tensor, rstd: Tensor, weight: Tensor) -> Any:
    from quack.rmsnorm import rmsnorm

    return _backward(lambda x, w: rmsnorm(x, w, eps=EPS), [x, weight], dy)


def quack_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Callable[[], Any]:
    from quack.rmsnorm import rmsnorm_fwd

    def call() -> list[Tensor]:
        y, total, _ = rmsnorm_fwd(x, weight, residual=residual, eps=EPS)
        return [y, total]

    return call


def quack_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Callable[[], Any]:
    try:  # the module depends on the version
        from quack.rmsnorm import layernorm_fwd
    except ImportError:
        from quack.layernorm import layernorm as layernorm_fwd

    # The kernel expects weight and bias as float32.
    wide_weight, wide_bias = weight.float(), bias.float()

    def call() -> list[Tensor | None]:
        results = layernorm_fwd(
            x, wide_weight, wide_bias, eps=EPS, return_rstd=True, return_mean=True
        )
        return [results[0], None, None]  # the order of the other results depends on the version

    return call


def liger_rms_norm(x: Tensor, weight: Tensor) -> Callable[[], Any]:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    # offset, casting mode, whether the backward pass may overwrite dy
    return lambda: [LigerRMSNormFunction.apply(x, weight, EPS, 0.0, "llama", False), None]


def liger_rms_norm_backward(dy: Tensor, x: Tensor, rstd: Tensor, weight: Tensor) -> Any:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    return _backward(LigerRMSNormFunction.apply, [x, weight], dy, EPS, 0.0, "llama", False)


def liger_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Callable[[], Any]:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    return lambda: LigerFusedAddRMSNormFunction.apply(x, residual, weight, EPS, 0.0, "llama", False)


def liger_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Callable[[], Any]:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    return lambda: [LigerLayerNormFunction.apply(x, weight, bias, EPS), None, None]


def liger_layer_norm_backward(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor
) -> Callable[[], Any]:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    bias = torch.zeros_like(weight)
    return _backward(LigerLayerNormFunction.apply, [x, weight, bias], dy, EPS)


def liger_group_norm_silu(groups: int) -> Callable[..., Callable[[], Any]]:
    def prepare(x: Tensor, weight: Tensor, bias: Tensor) -> Callable[[], Any]:
        from liger_kernel.ops.group_norm import LigerGroupNormFunction

        def call() -> Tensor:
            y = LigerGroupNormFunction.apply(x, weight, bias, x.shape[1], groups, EPS)
            return torch.nn.functional.silu(y)

        return call

    return prepare
