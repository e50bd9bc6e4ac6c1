"""A function of tensors as one autograd.Function around its two compiled graphs.

AOTAutograd's own wrappers serve mutation, aliases, subclasses and symbolic sizes, at a cost in host
time on every call. A function without any of these needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch.utils._pytree import tree_flatten, tree_unflatten

from fuser._native import load_torch
from fuser.adapters import aten
from fuser.adapters.dynamo import cut
from fuser.adapters.views import laid_out

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[[list[Any]], Any]]
PLAIN = (torch.Tensor, torch.nn.Parameter)


def direct(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    fw_compiler: Compiler,
    bw_compiler: Compiler,
) -> Callable[..., Any] | None:
    """`function` with its gradients, traced on `inputs` and valid for inputs like these; None where
    it is not as plain as that.
    """
    if not torch.is_grad_enabled() or any(type(t) not in PLAIN for t in inputs):
        return None
    if not any(t.requires_grad for t in inputs):
        return None
    spec: Any = None

    def flat(*args: Any) -> list[Any]:
        nonlocal spec
        leaves, spec = tree_flatten(function(*args))
        return leaves

    try:
        joint: Any = aot_export_joint_simple(
            flat, tuple(inputs), trace_joint=True, decompositions=aten.decompositions()
        )
    except Exception:  # it mutates inputs, gives them back, captures tensors, asks for values, ...
        return None
    tangents = [n for n in _placeholders(joint) if n.name.startswith("tangents")]
    count: int = spec.num_leaves
    if len(tangents) != count:
        return None  # results that are no tensors, or have no gradient
    expected = [n.meta["val"] for n in tangents]
    shapes = [(tuple(v.shape), tuple(v.stride())) for v in expected]
    graphs = cut(joint, (), num_fwd_outputs=count)
    forward, backward = (
        make(graph, [n.meta["val"] for n in _placeholders(graph)])
        for make, graph in zip((fw_compiler, bw_compiler), graphs, strict=True)
    )
    apply = _function(forward, backward, count, shapes).apply
    if spec.is_leaf():
        return lambda *args: apply(*args)[0]
    return lambda *args: tree_unflatten(apply(*args), spec)


def _placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    return [n for n in graph.graph.nodes if n.op == "placeholder"]


def _function(
    forward: Callable[[list[Any]], Any],
    backward: Callable[[list[Any]], Any],
    count: int,
    shapes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
) -> Any:
    """The autograd.Function: `forward` gives `count` results and what `backward` takes before their
    gradients, which are laid out as in `shapes`.
    """
    # As AOTAutograd does it: casts of autocast are in the graph already.
    autocast = torch._C._is_any_autocast_enabled()
    context: Callable[[], AbstractContextManager[Any]] = (
        torch._C._DisableAutocast if autocast else nullcontext
    )

    def gradients(ctx: Any, *given: torch.Tensor) -> Any:
        arguments = list(ctx.saved_tensors)
        for gradient, (sizes, strides) in zip(given, shapes, strict=True):
            if gradient.stride() != strides:
                gradient = _laid_out(gradient, sizes, strides)
            arguments.append(gradient)
        with context():
            return tuple(backward(arguments))

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with context():
                results = forward(list(args))
            ctx.save_for_backward(*results[count:])
            return tuple(results[:count])

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            if torch.is_grad_enabled():
                return _Once.apply(  # type: ignore[no-untyped-call]
                    lambda: gradients(ctx, *given), *given, *load_torch().stand_ins(ctx)
                )
            return gradients(ctx, *given)

    return Direct


class _Once(torch.autograd.Function):
    """Gradients whose own gradients are refused, to whom they belong: `sources` are what they may
    depend on.
    """

    @staticmethod
    def forward(ctx: Any, run: Callable[[], Any], *sources: torch.Tensor) -> Any:
        return run()

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        raise RuntimeError("memory_efficient_fusion does not support double backward")


def _laid_out(
    gradient: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> torch.Tensor:
    """A gradient in memory as it was traced; torch gives expanded ones."""
    if tuple(gradient.shape) != sizes:
        return gradient.contiguous()
    return laid_out(gradient, strides)
