"""Masks of attention that depend on no input.

transformers makes its masks inside of the graph: all of them true, or what is_causal stands for. A
mask is memory that torch's fastest kernels do not take, or read in vain.
"""

from __future__ import annotations

import operator
from types import BuiltinFunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

_ATTENTION = F.scaled_dot_product_attention
_CREATIONS: set[Any] = {torch.arange, torch.full, torch.ones, torch.zeros, torch.tensor}
# operator.iadd and its like; and_ and or_ bear their underscore for Python's sake.
_OPERATORS_THAT_WRITE = {operator.setitem, operator.delitem} | {
    getattr(operator, f"i{name.rstrip('_')}")
    for name in vars(operator)
    if not name.startswith("__") and hasattr(operator, f"i{name.rstrip('_')}")
}
# Elements of a mask, without the dims that only repeat it, that are looked at.
_MOST = 1 << 26


def drop_constant_masks(module: fx.GraphModule) -> None:
    """In a graph of Dynamo's: attention whose mask is true everywhere has none, one whose mask is a
    lower triangle is causal.
    """
    unread: set[fx.Node] = set()
    known: dict[fx.Node, str] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target is not _ATTENTION:
            continue
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        arguments = dict(zip(names, node.args, strict=False)) | node.kwargs
        mask = arguments.get("attn_mask")
        if not isinstance(mask, fx.Node) or arguments.get("is_causal", False) is not False:
            continue
        if mask not in known:
            makers = _makers(mask)
            known[mask] = _kind(mask, makers) if makers else ""
            if makers and known[mask]:
                unread.update(makers)
        if known[mask]:
            arguments |= {"attn_mask": None, "is_causal": known[mask] == "causal"}
            node.args, node.kwargs = (), arguments
    if unread:
        # Nothing else: torch takes a method that writes in place for dead where nobody reads its
        # result.
        module.graph.eliminate_dead_code(lambda node: node not in unread)
        module.recompile()


def _kind(mask: fx.Node, makers: list[fx.Node]) -> str:
    """ "full", "causal", or "" for another mask, or one that is not known."""
    example = mask.meta.get("example_value")
    if not isinstance(example, torch.Tensor) or example.dtype != torch.bool or example.ndim < 2:
        return ""
    sizes = [*example.shape]
    if not all(type(n) is int for n in sizes) or sizes[-1] * sizes[-2] > _MOST:
        return ""
    with _disable_current_modes(), torch.no_grad():
        try:
            with _Deterministic():  # type: ignore[no-untyped-call]
                value = _evaluated(makers)
        except Exception:  # of torch: what works on the GPU alone, or with a fixed device
            return ""
        for dim, stride in enumerate(value.stride()):
            value = value.narrow(dim, 0, 1) if stride == 0 else value
        if value.numel() > _MOST:
            return ""
        if bool(value.all()):
            return "full"
        causal = torch.ones(sizes[-2:], dtype=torch.bool).tril()
        return "causal" if sizes[-1] == sizes[-2] and bool((value == causal).all()) else ""


def _makers(mask: fx.Node) -> list[fx.Node] | None:
    """The nodes that make the mask out of nothing, in order; None where it has other sources, or
    something writes into one of them.
    """
    found: dict[fx.Node, None] = {}
    waiting = [mask]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        if not (_is_pure(node) and all(map(_is_pure, node.users))):
            return None
        if not node.all_input_nodes and node.target not in _CREATIONS:
            return None
        found[node] = None
        waiting += node.all_input_nodes
    return [n for n in mask.graph.nodes if n in found]


def _is_pure(node: fx.Node) -> bool:
    """Does it write into nothing that it is given, as far as its name says?"""
    if node.op == "call_method":
        name = str(node.target)
        if name.startswith("__"):  # x.__eq__(y): what torch 2.12 records for x == y
            return getattr(operator, name, operator.setitem) not in _OPERATORS_THAT_WRITE
        return not name.endswith("_")
    if node.op != "call_function":
        return node.op == "output"
    target = node.target
    if getattr(target, "__module__", "") == "_operator":
        return target not in _OPERATORS_THAT_WRITE
    builtin = isinstance(target, BuiltinFunctionType) and not target.__name__.endswith("_")
    return (builtin or target is F.embedding) and "out" not in node.kwargs


class _Deterministic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises for what takes random numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise RuntimeError(f"{func} takes random numbers")
        return func(*args, **(kwargs or {}))


def _evaluated(nodes: list[fx.Node]) -> torch.Tensor:
    """What the last of these nodes gives, on the CPU."""
    values: dict[fx.Node, Any] = {}

    def given(argument: Any) -> Any:
        if isinstance(argument, torch.device):
            return torch.device("cpu")
        return values[argument] if isinstance(argument, fx.Node) else argument

    for node in nodes:
        args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), given)
        target: Any = node.target
        if node.op == "call_method":
            values[node] = getattr(args[0], target)(*args[1:], **kwargs)
        else:
            values[node] = target(*args, **kwargs)
    result: torch.Tensor = values[nodes[-1]]
    return result
