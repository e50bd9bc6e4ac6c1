"""Properties of the nodes of a graph of torch ops, and relations between nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import torch
from torch import fx

from fuser.adapters import aten
from fuser.adapters.torch_compat import OpOverload

T = TypeVar("T")


def results_of(graph: fx.Graph) -> list[Any]:
    """Results of a graph that returns a list or tuple: nodes or constants."""
    return list(next(n for n in graph.nodes if n.op == "output").args[0])


def tensor_of(node: fx.Node) -> Any:
    """The FakeTensor of the node, if it has exactly one."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def computed(node: fx.Node, instead: Mapping[fx.Node, torch.Tensor] | None = None) -> Any:
    """Evaluates the node on FakeTensors; `instead` replaces the values of some nodes."""
    given = instead or {}
    args, kwargs = fx.node.map_arg(
        (node.args, node.kwargs), lambda n: given[n] if n in given else n.meta["val"]
    )
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    return target(*args, **kwargs)


def call_node(graph: fx.Graph, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """Adds a call to the graph, with its FakeTensor."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = computed(node)
    return node


def from_front(dims: Iterable[int], rank: int) -> list[int]:
    """Dims of a tensor, counted from the front. A tensor of rank 0 has none, but torch lets its
    reductions name dim 0 or -1.
    """
    return [d % rank for d in dims] if rank else []


def specialised(n: int | torch.SymInt) -> int | torch.SymInt:
    """Returns a size as int if tracing specialized its symbol to one number."""
    return int(n.node.expr) if isinstance(n, torch.SymInt) and n.node.expr.is_Integer else n


def hint(n: Any) -> int:
    """Returns a size, or the hint of a symbolic size; adds no guard."""
    if isinstance(n, int):
        return n
    traced = n.node.hint
    return int(traced) if traced is not None else 2


def tensor_inputs(node: fx.Node) -> list[fx.Node]:
    """Operands of the node that are tensors."""
    return [n for n in node.all_input_nodes if not is_number(n)]


def is_number(node: fx.Node) -> bool:
    """True if the node gives a size or another number."""
    value = node.meta.get("val")
    return isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)


def kind_of(node: fx.Node) -> str:
    """Kind of the node's row in the op table; "part" for one of several results of an op, ""
    without a row.
    """
    if node.op != "call_function":
        return ""
    if node.target is operator.getitem:
        return "part"
    return _kind(node.target) if isinstance(node.target, OpOverload) else ""


@cache
def _kind(op: OpOverload) -> str:
    found = aten.row(str(op))
    return found.kind if found else ""


def is_view(node: fx.Node) -> bool:
    """True if the node is a view of its operand, or one of several views."""
    kind = kind_of(node)
    if kind == "part":
        source = node.args[0]
        return isinstance(source, fx.Node) and kind_of(source) == "view"
    return kind == "view"


def reads_of(node: fx.Node) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Yields (source, user) for all users of `node` and of its views; source is `node` or the view.
    A view is yielded before its users.
    """
    found = [node]
    for source in found:  # the list grows during the loop
        for user in source.users:
            yield source, user
            if is_view(user):
                found.append(user)


def in_order(wanted: T, needs: Callable[[T], Iterable[T]], known: Collection[T]) -> Iterator[T]:
    """Yields `wanted` and its dependencies that are not `known`, in topological order. The caller
    must add each yielded element to `known`.
    """
    waiting = [wanted]
    while waiting:
        missing = [n for n in needs(waiting[-1]) if n not in known]
        if missing:
            waiting += missing
        elif (ready := waiting.pop()) not in known:
            yield ready


def writes(node: fx.Node) -> bool:
    """True if the node writes to one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def is_write(node: fx.Node) -> bool:
    """True if the node copies a value into an input of the graph."""
    if node.target is not torch.ops.aten.copy_.default:
        return False
    target = node.args[0]
    return isinstance(target, fx.Node) and target.op == "placeholder"


def device_of(node: fx.Node) -> Any:
    """Device of the first tensor result, if any."""
    value = node.meta.get("val")
    while isinstance(value, list | tuple):
        value = next((v for v in value if v is not None), None)
    return getattr(value, "device", None)
