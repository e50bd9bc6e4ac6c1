"""What a node of a graph of torch's ops is, and how nodes hang together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import torch
from torch import fx

from fuser.adapters import aten

T = TypeVar("T")


def tensor_of(node: fx.Node) -> Any:
    """The FakeTensor that the node gives, None where it gives none or several."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def computed(node: fx.Node, instead: Mapping[fx.Node, torch.Tensor] | None = None) -> Any:
    """What the node gives, by FakeTensors, with other values in place of those of some nodes."""
    given = instead or {}
    args, kwargs = fx.node.map_arg(
        (node.args, node.kwargs), lambda n: given[n] if n in given else n.meta["val"]
    )
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    return target(*args, **kwargs)


def specialised(n: int | torch.SymInt) -> int | torch.SymInt:
    """A size, an int where tracing found that its symbol stands for one number only."""
    return int(n.node.expr) if isinstance(n, torch.SymInt) and n.node.expr.is_Integer else n


def hint(n: Any) -> int:
    """A size, or what a symbolic one was when it was traced; nothing is guarded."""
    if isinstance(n, int):
        return n
    traced = n.node.hint
    return int(traced) if traced is not None else 2


def tensor_inputs(node: fx.Node) -> list[fx.Node]:
    """Nodes that it reads tensors from."""
    return [n for n in node.all_input_nodes if not is_number(n)]


def is_number(node: fx.Node) -> bool:
    """Does it give a size or another number?"""
    value = node.meta.get("val")
    return isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)


def kind_of(node: fx.Node) -> str:
    """The kind of its row; "part" for a result of an op that has several, "" without a row."""
    if node.op != "call_function":
        return ""
    if node.target is operator.getitem:
        return "part"
    return _kind(node.target) if isinstance(node.target, torch._ops.OpOverload) else ""


@cache
def _kind(op: torch._ops.OpOverload) -> str:
    found = aten.row(str(op))
    return found.kind if found else ""


def is_view(node: fx.Node) -> bool:
    """Is it a view of what it reads, or one of several views?"""
    kind = kind_of(node)
    if kind == "part":
        source = node.args[0]
        return isinstance(source, fx.Node) and kind_of(source) == "view"
    return kind == "view"


def reads_of(node: fx.Node) -> Iterator[tuple[fx.Node, fx.Node]]:
    """What reads `node` or a view of it, each behind the one of these that it reads. A view comes
    before what reads it.
    """
    found = [node]
    for source in found:  # grows
        for user in source.users:
            yield source, user
            if is_view(user):
                found.append(user)


def in_order(wanted: T, needs: Callable[[T], Iterable[T]], known: Collection[T]) -> Iterator[T]:
    """`wanted` and all that it needs and that is not `known`, each behind what it needs itself. The
    caller makes known what is yielded.
    """
    waiting = [wanted]
    while waiting:
        missing = [n for n in needs(waiting[-1]) if n not in known]
        if missing:
            waiting += missing
        elif (ready := waiting.pop()) not in known:
            yield ready


def writes(node: fx.Node) -> bool:
    """Does it write into one of its arguments?"""
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def is_write(node: fx.Node) -> bool:
    """Does it copy a value into an input of the graph?"""
    if node.target is not torch.ops.aten.copy_.default:
        return False
    target = node.args[0]
    return isinstance(target, fx.Node) and target.op == "placeholder"


def device_of(node: fx.Node) -> Any:
    """Where its first result lies, None of a number."""
    value = node.meta.get("val")
    while isinstance(value, list | tuple):
        value = next((v for v in value if v is not None), None)
    return getattr(value, "device", None)
