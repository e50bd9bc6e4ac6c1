"""Random functions whose inputs or results are modified between the forward and the backward
pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F

from fuser._native import load_torch
from fuser.adapters.autograd.autograd_function import direct

Function = Callable[..., Any]

UNARY: dict[str, Function] = {
    "tanh": torch.tanh,
    "exp": torch.exp,
    "sin": torch.sin,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": F.gelu,
    "abs": torch.abs,
    "square": torch.square,
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "amax": lambda x: x - x.amax(-1, keepdim=True),
    "mean": lambda x: x - x.mean(-1, keepdim=True),
    "logsumexp": lambda x: x - torch.logsumexp(x, -1, keepdim=True),
    "neg": torch.neg,
    "halved": lambda x: x * 0.5,
    "shifted": lambda x: x + 1.5,
    "clamped": lambda x: x.clamp(-0.5, 0.8),
    "transposed": lambda x: (x * 2).t().contiguous().t(),
    "viewed": lambda x: (x * 2).view(-1).view(x.shape),
    "turned": lambda x: (x * 2).view(2, 6).view(x.shape),
    "flipped": lambda x: x.flip(0),
}
BINARY: dict[str, Function] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, y: x / (y.abs() + 1),
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(x > y, x, y * 2),
    "mm": lambda x, y: x @ (y.t() @ x) * 0.1,
}
SHAPES = [(3, 4), (4,), (3, 1), (3, 4)]


@dataclass
class Program:
    """Steps over a list of values that begins with the inputs; `results` are indices into it."""

    steps: list[tuple[str, tuple[int, ...]]]
    results: list[int]
    needs: list[bool]

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for name, places in self.steps:
            op = UNARY.get(name) or BINARY[name]
            values.append(op(*(values[n].expand(3, 4) for n in places)))
        return tuple(values[n] for n in self.results)


def random_program(rng: Random) -> Program:
    steps: list[tuple[str, tuple[int, ...]]] = []
    count = len(SHAPES)
    for n in range(rng.randint(2, 5)):
        table = UNARY if rng.random() < 0.6 else BINARY
        # Mostly the last value, so that programs are deep.
        last = count + n - 1 if n else rng.randrange(count)
        places = [last if rng.random() < 0.6 else rng.randrange(count + n) for _ in range(2)]
        steps.append((rng.choice(list(table)), tuple(places[: 1 if table is UNARY else 2])))
    made = range(count, count + len(steps))
    results = sorted({made[-1], *rng.sample(made, rng.randint(1, 2))})
    needs = [rng.random() < 0.8 for _ in SHAPES]
    return Program(steps, results, needs)


def inputs_of(program: Program, leaves: bool) -> list[torch.Tensor]:
    """Leaves, or values computed from leaves, which are stored as `source`."""
    g = torch.Generator().manual_seed(7)
    out = []
    for shape, needs in zip(SHAPES, program.needs, strict=True):
        t = torch.randn(shape, generator=g).requires_grad_(needs)
        out.append(t if leaves else t * 1)
        out[-1].source = t
    return out


def gradients(function: Function, program: Program, leaves: bool, changed: int | None) -> Any:
    """The gradients of all leaves, or the error. changed: index of the input or, after the inputs,
    the result that is modified between forward and backward."""
    inputs = inputs_of(program, leaves)
    results = function(*inputs)
    weights = [torch.arange(1.0, 1 + r.numel()).view(r.shape) / r.numel() for r in results]
    loss = sum((r * w).sum() for r, w in zip(results, weights, strict=True) if r.requires_grad)
    if changed is not None:
        with torch.no_grad():
            (*inputs, *results)[changed].mul_(-3)
    sources = [t.source for t in inputs if t.source.requires_grad]
    try:
        return torch.autograd.grad(loss, sources, allow_unused=True)
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return error


def differences(program: Program, fused: Function) -> Iterator[str]:
    """Cases in which only the fused function raises, and cases with different gradients."""
    for leaves in (False, True):
        right = gradients(program, program, leaves, None)
        for changed in (None, *range(len(SHAPES) + len(program.results))):
            wanted = gradients(program, program, leaves, changed)
            found = gradients(fused, program, leaves, changed)
            where = f"{program}, leaves={leaves}, changed={changed}"
            if isinstance(found, Exception):
                if not isinstance(wanted, Exception):
                    yield f"{where}: {found}"
                continue
            if isinstance(wanted, Exception):
                wanted = right
            for a, b in zip(found, wanted, strict=True):
                if (a is None) != (b is None) or (
                    a is not None and not torch.allclose(a, b, rtol=1e-4, atol=1e-5)
                ):
                    yield f"{where}: {a} is not {b}"
                    break


def traced(program: Program) -> Function | None:
    """The function as memory_efficient_fusion partitions it, with torch's ops instead of kernels,
    or None if it is left to torch.compile."""

    def by_torch(module: torch.fx.GraphModule, inputs: Any) -> Function:
        return lambda given: module(*given)

    if not any(program.needs):
        return None
    switch: Any = load_torch().DirectSwitch()
    switch.function = direct(program, inputs_of(program, False), by_torch, by_torch)
    return switch.call if switch.function is not None else None
