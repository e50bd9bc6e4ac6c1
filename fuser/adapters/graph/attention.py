"""Attention masks: those that do not depend on inputs, and those whose rows are strided.

transformers computes its masks inside the graph: all true, or equivalent to is_causal. A mask keeps
torch from using its fastest kernels, or is memory that they read for nothing. A mask with strided
rows, e.g. a position bias gathered as [queries, keys, heads], leaves only the unfused ops.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from types import BuiltinFunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from fuser.adapters.torch_compat import TorchDispatchMode, disable_current_modes

_ATTENTION = F.scaled_dot_product_attention
_CREATIONS: set[Any] = {torch.arange, torch.full, torch.ones, torch.zeros, torch.tensor}
# In-place operators, e.g. operator.iadd; and_ and or_ have an underscore because of Python's
# keywords.
_OPERATORS_THAT_WRITE = {operator.setitem, operator.delitem} | {
    getattr(operator, f"i{name.rstrip('_')}")
    for name in vars(operator)
    if not name.startswith("__") and hasattr(operator, f"i{name.rstrip('_')}")
}
# Maximum elements of an evaluated mask, without expanded dims.
_MOST = 1 << 26


_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def _masked(module: fx.GraphModule) -> Iterator[tuple[fx.Node, fx.Node, dict[str, Any]]]:
    """Attention nodes of a graph of Dynamo with their masks and all arguments by name."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is _ATTENTION:
            arguments = dict(zip(_ARGUMENTS, node.args, strict=False)) | node.kwargs
            if isinstance(mask := arguments.get("attn_mask"), fx.Node):
                yield node, mask, arguments


def drop_constant_masks(module: fx.GraphModule) -> None:
    """Removes masks from attention in a graph of Dynamo: a mask that is true everywhere is dropped,
    a lower triangular mask becomes is_causal.
    """
    unread: set[fx.Node] = set()
    known: dict[fx.Node, str] = {}
    for node, mask, arguments in _masked(module):
        if arguments.get("is_causal", False) is not False:
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
        # Remove only these nodes: torch would also remove in-place methods with unused results.
        module.graph.eliminate_dead_code(lambda node: node not in unread)
        module.recompile()


def make_mask_rows_contiguous(module: fx.GraphModule) -> None:
    """Copies masks whose last dim is strided, because torch's fused kernels of attention do not
    read them. Equal copies become one later, when no op of the graph modifies a tensor.
    """
    strided = [found for found in _masked(module) if _has_strided_rows(found[1])]
    for node, mask, arguments in strided:
        with module.graph.inserting_before(node):
            copy = module.graph.call_method("contiguous", (mask,))
        node.args, node.kwargs = (), arguments | {"attn_mask": copy}
    if strided:
        module.recompile()


def _has_strided_rows(mask: fx.Node) -> bool:
    """True if neighbours along the last dim are not adjacent, and no dim is expanded: a copy of an
    expanded mask could be larger than the scores.
    """
    example = mask.meta.get("example_value")
    if not isinstance(example, torch.Tensor) or example.layout != torch.strided or not example.ndim:
        return False
    strides = [n for n in example.stride() if type(n) is int]  # a symbol would become a guard
    rows = example.stride(-1)
    return type(rows) is int and rows > 1 and 0 not in strides


def _kind(mask: fx.Node, makers: list[fx.Node]) -> str:
    """Returns "full", "causal", or "" for another or unknown mask."""
    example = mask.meta.get("example_value")
    if not isinstance(example, torch.Tensor) or example.dtype != torch.bool or example.ndim < 2:
        return ""
    sizes = [*example.shape]
    if not all(type(n) is int for n in sizes) or sizes[-1] * sizes[-2] > _MOST:
        return ""
    with disable_current_modes(), torch.no_grad():
        try:
            with _Deterministic():  # type: ignore[no-untyped-call]
                value = _evaluated(makers)
        except Exception:  # torch raises for ops that need a GPU or a fixed device
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
    """Returns the nodes that compute the mask, in order, if it depends on no input and no node
    among them is modified in place.
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
    """True if, judged by its name, the node does not modify its arguments."""
    if node.op == "call_method":
        name = str(node.target)
        if name.startswith("__"):  # x.__eq__(y): torch 2.12 records x == y like this
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
    """Raises an error for ops that draw random numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise RuntimeError(f"{func} uses random numbers")
        return func(*args, **(kwargs or {}))


def _evaluated(nodes: list[fx.Node]) -> torch.Tensor:
    """Evaluates these nodes on the CPU and returns the result of the last one."""
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
