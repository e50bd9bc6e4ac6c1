"""Flex attention as a library call: torch's own kernel, compiled by Inductor for one node.

A graph holds flex attention as one node with its score and mask functions as graphs. Torch computes
this node without Inductor as a product of all queries and keys. Its memory grows with the square
of the length, and its time does not fall with the mask. A node becomes that product only if
Inductor fails, with one line of log; FUSER_STRICT=1 raises Unsupported `flex-attention` instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx, nn

from fuser import Unsupported
from fuser.adapters.report import note_fallback
from fuser.adapters.torch_compat import HigherOrderOperator, compile_by_inductor, pytree

_NAMES = ("flex_attention", "flex_attention_backward")


def is_flex_attention(node: fx.Node) -> bool:
    """True for the forward or backward node of flex attention."""
    return isinstance(node.target, HigherOrderOperator) and str(node.target) in _NAMES


def kernel_of(node: fx.Node, strict: bool) -> Callable[..., Any]:
    """Returns a function with the arguments of the node that runs Inductor's kernel. If Inductor
    cannot compile the node, then the function is the op of torch, or `strict` raises Unsupported
    `flex-attention`.
    """
    try:
        return _compiled(node)
    except Exception as error:  # any error of another compiler
        why = (str(error) or type(error).__name__).split("\n")[0]
        refused = Unsupported(
            f"{node.target}: Inductor compiled no kernel, so that torch computes all products of "
            f"queries and keys: {why}\n  hint: torch.compile(flex_attention) shows the error",
            rule="flex-attention",
        )
        if strict:
            raise refused from error
        note_fallback([node], refused)
        op: Callable[..., Any] = node.target  # type: ignore[assignment]
        return op


def _compiled(node: fx.Node) -> Callable[..., Any]:
    leaves, _ = pytree.tree_flatten((node.args, node.kwargs))
    places: dict[fx.Node, int] = {}  # first position of each operand among the leaves
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, fx.Node) and leaf.op != "get_attr":
            places.setdefault(leaf, i)
    module, structure, results = _alone(node, places)
    operands = [operand.meta["val"] for operand in places]
    kernel = compile_by_inductor(
        module, operands, dynamic_shapes="from_tracing_context", options={}
    )
    chosen = [*places.values()]

    def run(*args: Any, **kwargs: Any) -> Any:
        given, _ = pytree.tree_flatten((args, kwargs))
        made = iter(kernel(*[given[i] for i in chosen]))
        return pytree.tree_unflatten([next(made) if r else None for r in results], structure)

    return run


def _alone(node: fx.Node, operands: Any) -> tuple[fx.GraphModule, Any, list[bool]]:
    """A graph of the node alone, with its used results as a flat list: kernels of CPUs compute no
    others. Also the structure of all results, and for each of its leaves True if it is listed.
    """
    root, graph = nn.Module(), fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for operand in operands:
        copies[operand] = graph.placeholder(operand.name)
        copies[operand].meta["val"] = operand.meta["val"]

    def copied(leaf: fx.Node) -> fx.Node:
        if leaf not in copies:
            owner: Any = node.graph.owning_module
            setattr(root, str(leaf.target), getattr(owner, str(leaf.target)))
            copies[leaf] = graph.get_attr(str(leaf.target))
        return copies[leaf]

    arguments = fx.map_arg((node.args, node.kwargs), copied)
    call = graph.call_function(node.target, *arguments)  # type: ignore[arg-type]
    call.meta["val"] = node.meta["val"]
    found: tuple[list[tuple[Any, Any]], Any] = pytree.tree_flatten_with_path(node.meta["val"])
    paths, structure = found
    used = {user.args[1] for user in node.users if user.target is operator.getitem}
    listed = [value is not None and path[0].idx in used for path, value in paths]
    values = []
    for path, value in (row for row, is_listed in zip(paths, listed, strict=True) if is_listed):
        result = call
        for key in path:
            result = graph.call_function(operator.getitem, (result, key.idx))
        result.meta["val"] = value
        values.append(result)
    graph.output(tuple(values))
    return fx.GraphModule(root, graph), structure, listed
