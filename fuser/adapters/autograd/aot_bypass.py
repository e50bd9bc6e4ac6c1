"""Bypasses AOTAutograd's wrappers around compiled graphs.

The wrappers handle mutation, aliases, subclasses, tokens and symbolic sizes, in many Python calls
per run. A graph without these does not need them: its compiled forward and backward graphs become
one autograd function in C++ (csrc/torch/direct.h), as in memory_efficient_fusion. AOTAutograd
compiles the backward graph at its first use; until then its own function runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import fx

from fuser._native import load_torch
from fuser.adapters.autograd.aot_metadata import Facts, metadata_now
from fuser.adapters.torch_compat import (
    FakeTensor,
    TracingContext,
    functorch_transform,
    saved_tensors_hooks,
)

Compiled = Callable[..., Any]

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)

# Attribute of AOTAutograd's metadata, shared by both graphs, that leads to the _Forward object.
# Graphs from the AOT cache are loaded while their function is made.
_ATTRIBUTE = "_fuser_unwrapped"


class Unwrapped:
    """A function of tensors while AOTAutograd compiles it."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.inputs = list(inputs)
        self.switch: Any = load_torch().DirectSwitch()
        self.forward: _Forward | None = None

    def function(self, wrapped: Compiled) -> Compiled:
        """Returns `wrapped`, AOTAutograd's function, or the function without wrappers."""
        if self.forward is None:
            return wrapped
        self.switch.wrapped = wrapped
        call: Compiled = self.switch.call
        return call


class _Forward:
    """A compiled forward or inference graph that needs no wrappers, and its compile-time state."""

    def __init__(self, made: Unwrapped, graph: fx.Graph, call: Compiled) -> None:
        self.count, self.call = len(made.inputs), call
        self.results = len(_results(graph))
        self.deterministic = torch.are_deterministic_algorithms_enabled()
        self.switch = weakref.ref(made.switch)

    def run_with(self, backward: Compiled | None, graph: fx.Graph | None, facts: Facts) -> None:
        """Switches to the forward and the backward graph without wrappers."""
        switch = self.switch()
        gradients = _gradients(graph, self, facts) if graph is not None else ([], [])
        if switch is None or gradients is None:
            return
        switch.function = load_torch().DirectFunction(
            self.call,
            backward,
            facts.outputs,
            *gradients,
            self.deterministic,
            tuple,
        )

    def __reduce__(self) -> Any:
        """Pickles as None when AOTAutograd saves its metadata."""
        return type(None), ()


_making: ContextVar[Unwrapped | None] = ContextVar("making", default=None)


@contextmanager
def unwrapping(inputs: Sequence[Any]) -> Iterator[Unwrapped]:
    """Context of AOTAutograd's compilation of a function with these inputs."""
    made = Unwrapped(inputs)
    before = _making.set(made)
    try:
        yield made
    finally:
        _making.reset(before)


def note_half(name: str, graph: fx.Graph, call: Compiled, facts: Facts, loaded: bool) -> None:
    """Records a compiled graph: "forward", "backward" or "inference", compiled by AOTAutograd or
    loaded from the AOT cache.
    """
    made = _making.get()
    link: Any = made if loaded else metadata_now()
    if link is None:
        return
    if name == "backward":
        forward = getattr(link, _ATTRIBUTE, None)
        if forward is not None:
            forward.run_with(call, graph, facts)
        return
    if made is None or not facts.plain or _is_watched() or not _is_plain(graph, made.inputs):
        return
    made.forward = _Forward(made, graph, call)
    if name == "forward":
        setattr(link, _ATTRIBUTE, made.forward)
    elif made.forward.results == facts.outputs:
        made.forward.run_with(None, None, facts)
    else:
        made.forward = None


def _gradients(
    graph: fx.Graph, forward: _Forward, facts: Facts
) -> tuple[list[tuple[int, list[int], list[int]]], list[int]] | None:
    """Returns the results with gradients and the layouts that the backward graph expects, and the
    inputs hidden from autograd because they get no gradient. Returns None for an unexpected
    backward graph.
    """
    taken, given = _inputs(graph), _results(graph)
    kept = forward.results - facts.outputs
    if len(taken) != kept + len(facts.wanted) or len(given) != forward.count:
        return None
    if not all(map(_is_tensor, taken)):
        return None
    tangents = [
        (place, list(value.shape), list(value.stride()))
        for place, value in zip(facts.wanted, taken[kept:], strict=True)
    ]
    return tangents, [n for n in facts.inner if given[n] is None]


def _is_watched() -> bool:
    """True if hooks, transforms or compiled autograd observe the run."""
    # at the first compilation Dynamo is loaded
    from fuser.adapters.torch_compat import compiled_autograd, dynamo_config

    context = TracingContext.try_get()
    hooks: Any = saved_tensors_hooks(True)
    transforms: Any = functorch_transform()
    return (
        hooks is not None
        or transforms is not None
        or bool(dynamo_config.compiled_autograd)
        or bool(getattr(compiled_autograd, "compiled_autograd_enabled", False))
        or bool(getattr(context, "fakify_first_call", False))
    )


def _is_plain(graph: fx.Graph, inputs: Sequence[Any]) -> bool:
    """True if the graph takes exactly these inputs, each once, and all values are tensors of known
    sizes.
    """
    taken = _inputs(graph)
    if len(taken) != len(inputs) or len({id(t) for t in inputs}) != len(inputs):
        return False
    return all(map(_is_tensor, (*inputs, *taken, *_results(graph))))


def _is_tensor(value: Any) -> bool:
    """True for a tensor of known sizes that is no subclass."""
    if type(value) not in _PLAIN or value.layout is not torch.strided:
        return False
    return all(type(n) is int for n in (*value.shape, *value.stride()))


def _inputs(graph: fx.Graph) -> list[Any]:
    return [n.meta.get("val") for n in graph.nodes if n.op == "placeholder"]


def _results(graph: fx.Graph) -> list[Any]:
    """Results as FakeTensors, with None for missing results."""
    nodes = next(n for n in graph.nodes if n.op == "output").args[0]
    return [n.meta.get("val") if isinstance(n, fx.Node) else n for n in nodes]
