"""A function of tensors as one autograd function around its two compiled graphs.

AOTAutograd's wrappers handle mutation, aliases, subclasses and symbolic sizes, at the cost of host
time per call. For functions without these, csrc/torch/direct.h runs the graphs directly, without
Python if each graph is one region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from fuser._native import load_torch
from fuser.adapters import aten
from fuser.adapters.dynamo import cut_as_eager
from fuser.adapters.nodes import writes
from fuser.adapters.torch_compat import aot_export_joint_simple, pytree

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[[list[Any]], Any]]
PLAIN = (torch.Tensor, torch.nn.Parameter)


def direct(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    fw_compiler: Compiler,
    bw_compiler: Compiler,
) -> Any | None:
    """Traces `function` with its gradients on `inputs`. Returns a DirectFunction of csrc/torch for
    inputs of equal layout, if the function does not need AOTAutograd's wrappers.
    """
    if not torch.is_grad_enabled() or any(type(t) not in PLAIN for t in inputs):
        return None
    if not any(t.requires_grad for t in inputs):
        return None
    spec: Any = None

    def flat(*args: Any) -> list[Any]:
        nonlocal spec
        leaves, spec = pytree.tree_flatten(function(*args))
        return leaves

    try:
        joint: Any = aot_export_joint_simple(
            flat, tuple(inputs), trace_joint=True, decompositions=aten.decompositions()
        )
    # mutated inputs, inputs as results, captured tensors, data-dependent control flow, ...
    except Exception:
        return None
    tangents = [n for n in _placeholders(joint) if n.name.startswith("tangents")]
    count: int = spec.num_leaves
    if len(tangents) != count or any(writes(n) for n in joint.graph.nodes):
        return None  # results that are no tensors or have no gradient; writes in the backward graph
    expected = [n.meta["val"] for n in tangents]
    wanted = [(n, list(v.shape), list(v.stride())) for n, v in enumerate(expected)]
    with expected[0].fake_mode:  # as in AOTAutograd: graph rewrites create FakeTensors
        graphs = cut_as_eager(joint, (), num_fwd_outputs=count)
        forward, backward = (
            make(graph, [n.meta["val"] for n in _placeholders(graph)])
            for make, graph in zip((fw_compiler, bw_compiler), graphs, strict=True)
        )
    finish = None if spec.is_leaf() else partial(pytree.tree_unflatten, treespec=spec)
    deterministic = torch.are_deterministic_algorithms_enabled()
    return load_torch().DirectFunction(forward, backward, count, wanted, [], deterministic, finish)


def _placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    return [n for n in graph.graph.nodes if n.op == "placeholder"]
