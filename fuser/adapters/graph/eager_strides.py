"""Strides of elementwise results as in eager mode.

Some ops are traced through decompositions that take operands in another order than the kernel. If
the operands' layouts differ, the result then has the layout of the wrong operand (copysign,
floor_divide, gradients of hardtanh). The op itself determines the correct layout: it runs once on
stand-ins with two elements per dim and the operands' dim orders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import fx

from fuser.adapters import aten
from fuser.adapters.nodes import computed, hint, kind_of, specialised
from fuser.adapters.torch_compat import OpOverload, detect_fake_mode, disable_current_modes

# Dims of a tensor from the outermost in memory to the innermost.
Order = tuple[int, ...]


def correct_strides(graph: fx.Graph) -> None:
    """Gives FakeTensors of elementwise results the strides of eager mode, and recomputes
    FakeTensors that depend on them. If one of these cannot be recomputed, restores all traced
    values.
    """
    before = {n: n.meta["val"] for n in graph.nodes if "val" in n.meta}
    changed: set[fx.Node] = set()
    try:
        for node in graph.nodes:
            if node.op != "call_function" or "val" not in node.meta:
                continue
            follows = not changed.isdisjoint(node.all_input_nodes)
            if isinstance(node.target, OpOverload) and aten.row(str(node.target)):
                orders = _eager_orders(node) if aten.by_element(str(node.target)) else None
                value = computed(node) if follows else node.meta["val"]
                value = value if orders is None else _laid_out(value, orders)
            elif follows and kind_of(node) == "part":
                value = computed(node)
            else:
                continue
            if follows or value is not node.meta["val"]:
                node.meta["val"] = value
                changed.add(node)
    except (RuntimeError, ValueError, TypeError):
        for node, value in before.items():
            node.meta["val"] = value


def _laid_out(value: Any, orders: Sequence[Order | None]) -> Any:
    """Recreates FakeTensors of a result that have another dim order. Returns `value` itself if it
    is unchanged.
    """
    given = value if isinstance(value, list | tuple) else [value]
    made = [
        t if order is None or t is None else _in_order(t, order)
        for t, order in zip(given, orders, strict=True)
    ]
    if all(a is b for a, b in zip(made, given, strict=True)):
        return value
    return tuple(made) if isinstance(value, list | tuple) else made[0]


def _in_order(t: torch.Tensor, order: Order) -> torch.Tensor:
    if t.layout != torch.strided or order == _order(t.shape, t.stride()):
        return t
    with detect_fake_mode([t]):  # type: ignore[union-attr]
        return torch.empty_permuted(t.shape, order, dtype=t.dtype, device=t.device)


def _is(n: Any, number: int) -> bool:
    """True if a size or stride is known to be `number`; adds no guard."""
    known = specialised(n)
    return type(known) is int and known == number


def _order(sizes: Sequence[Any], strides: Sequence[Any]) -> Order:
    """Dims from the outermost in memory to the innermost; dims of size 1 keep their position."""
    numbers = [hint(n) for n in strides]
    ones = {d for d, n in enumerate(sizes) if _is(n, 1)}
    wide = iter(sorted((d for d in range(len(sizes)) if d not in ones), key=lambda d: -numbers[d]))
    return tuple(d if d in ones else next(wide) for d in range(len(sizes)))


def _eager_orders(node: fx.Node) -> tuple[Order | None, ...] | None:
    """Dim orders of the results in eager mode, if an operand is not row-major and the orders are
    known.
    """
    given, named = fx.node.map_arg(
        (tuple(node.args), dict(node.kwargs)), lambda n: n.meta.get("val")
    )
    tensors = [t for t in (*given, *named.values()) if isinstance(t, torch.Tensor)]
    if any(t.layout != torch.strided for t in tensors) or all(map(_row_major, tensors)):
        return None
    try:
        args = tuple(_described(v) for v in given)
        kwargs = tuple((key, _described(v)) for key, v in named.items())
        return _found(node.target, args, kwargs)
    except TypeError:  # an unhashable argument
        return None


def _row_major(t: torch.Tensor) -> bool:
    order = _order(t.shape, t.stride())
    return order == tuple(range(t.ndim)) and not any(_is(n, 0) for n in t.stride())


def _described(value: Any) -> Any:
    """An argument as a hashable key; for a tensor its dtype, its dims of size 1 and of stride 0,
    and its dim order.
    """
    if not isinstance(value, torch.Tensor):
        return 2 if isinstance(value, torch.SymInt | torch.SymFloat) else value
    ones = tuple(_is(n, 1) for n in value.shape)
    still = tuple(_is(n, 0) for n in value.stride())
    return _StandIn((value.dtype, ones, still, _order(value.shape, value.stride())))


class _StandIn(tuple[Any, ...]):
    """The description of a tensor, from which make() creates a small tensor of equal layout."""

    def make(self) -> torch.Tensor:
        dtype, ones, still, order = self
        strides, step = [0] * len(ones), 1
        for dim in reversed(order):
            strides[dim] = 0 if still[dim] else step
            step *= 1 if ones[dim] or still[dim] else 2
        memory = torch.ones(step, dtype=dtype)
        return memory.as_strided([1 if one else 2 for one in ones], strides)


@lru_cache(maxsize=1024)
def _found(target: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Order | None, ...] | None:
    def real(value: Any) -> Any:
        return value.make() if isinstance(value, _StandIn) else value

    with torch.no_grad(), disable_current_modes():
        try:
            result = target(*map(real, args), **{key: real(v) for key, v in kwargs})
        except (RuntimeError, NotImplementedError):  # unsupported on the CPU
            return None
    results = result if isinstance(result, list | tuple) else [result]
    return tuple(
        _order(t.shape, t.stride()) if isinstance(t, torch.Tensor) and t.ndim > 1 else None
        for t in results
    )
