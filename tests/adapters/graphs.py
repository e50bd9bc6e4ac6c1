"""Graphs of torch's ops as the adapters get them: traced, with FakeTensors in meta["val"]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx


def traced(function: Callable[..., Any], *inputs: Any, dynamic: bool = False) -> fx.GraphModule:
    """The function as a graph of aten ops; sizes are symbols with `dynamic`."""
    mode = "symbolic" if dynamic else "fake"
    return make_fx(function, tracing_mode=mode)(*inputs)


def names(nodes: list[fx.Node]) -> list[str]:
    """The ops of nodes, without namespace and overload."""
    return [str(n.target).split(".")[1] for n in nodes]
