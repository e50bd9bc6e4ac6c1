"""Comparison of torch.compile with eager: values, types, strides, aliases, mutations, gradients and
errors. A difference that torch's aot_eager shows too is attributed to torch."""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_flatten, tree_leaves

import fuser
from fuser.adapters import report

# Rounding error relative to the largest element, by the narrowest type involved.
TOLERANCES = {
    torch.bfloat16: 6e-2,
    torch.float16: 8e-3,
    torch.float32: 3e-4,
    torch.float64: 1e-6,
}


@dataclass(frozen=True)
class Leaf:
    """A tensor argument; alias: (argument, view of it) if it shares another argument's memory."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str = "plain"
    grad: bool = False
    alias: tuple[int, str] | None = None


@dataclass
class Call:
    """Arguments of one call, and its autograd mode."""

    arguments: list[Any]  # Leaf, number, None
    mode: str = "grad"


@dataclass
class Program:
    """Source of a function f, and calls of it."""

    number: int
    source: str
    calls: list[Call]
    how: str
    random: bool = False

    def text(self) -> str:
        calls = "\n".join(f"# {c.mode}: {c.arguments}" for c in self.calls)
        return f"# program {self.number}, {self.how}\n{self.source}\n{calls}"


def tensor_of(leaf: Leaf, seed: int, device: str) -> torch.Tensor:
    """A tensor for a leaf, with equal values on every device."""
    g = torch.Generator().manual_seed(seed)
    shape = list(leaf.shape)
    if leaf.layout == "expanded" and shape:
        shape[seed % len(shape)] = min(1, shape[seed % len(shape)])
    if leaf.dtype.is_floating_point:
        t = (torch.randint(-16, 17, shape, generator=g) / 8).to(leaf.dtype)
    elif leaf.dtype == torch.bool:
        t = torch.randint(0, 2, shape, generator=g).bool()
    else:
        t = torch.randint(0 if leaf.dtype == torch.uint8 else -3, 6, shape, generator=g)
        t = t.to(leaf.dtype)
    t = t.to(device)
    if leaf.layout == "permuted" and t.ndim > 1:
        order = list(range(t.ndim))
        random.Random(seed).shuffle(order)
        memory = torch.empty([t.shape[d] for d in order], dtype=t.dtype, device=device)
        view = memory.permute(sorted(range(t.ndim), key=order.__getitem__))
        t = view.copy_(t)
    elif leaf.layout == "steps" and t.ndim:
        memory = torch.empty([*t.shape[:-1], 2 * t.shape[-1]], dtype=t.dtype, device=device)
        t = memory[..., ::2].copy_(t)
    elif leaf.layout == "offset":
        memory = torch.empty(t.numel() + 3, dtype=t.dtype, device=device)
        t = memory[3:].view(t.shape).copy_(t)
    elif leaf.layout == "last" and t.ndim == 4:
        t = t.to(memory_format=torch.channels_last)
    elif leaf.layout == "expanded":
        t = t.expand(leaf.shape)
    return t


def arguments(call: Call, device: str) -> list[Any]:
    made: list[Any] = []
    for i, a in enumerate(call.arguments):
        if not isinstance(a, Leaf):
            made.append(a)
        elif a.alias is None:
            made.append(tensor_of(a, 17 * i + 3, device).requires_grad_(a.grad))
        else:
            made.append(eval(a.alias[1], {"x": made[a.alias[0]], "torch": torch}))
    return made


def function_of(p: Program, device: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {"torch": torch, "F": F, "D": device}
    exec(compile(p.source, f"<program {p.number}>", "exec"), scope)
    f: Callable[..., Any] = scope["f"]
    return f


@dataclass
class Outcome:
    """Results, gradients and error of a call."""

    error: BaseException | None = None
    results: Any = None
    arguments: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)


def modes(mode: str, device: str) -> Any:
    return {
        "grad": nullcontext,
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
        "autocast": lambda: torch.autocast(device, dtype=torch.bfloat16),
    }[mode]()


def run(f: Callable[..., Any], call: Call, device: str) -> Outcome:
    given = arguments(call, device)
    torch.manual_seed(0)
    outcome = Outcome(arguments=given)
    try:
        with modes(call.mode, device):
            outcome.results = f(*given)
        leaves = [t for t in tree_leaves(outcome.results) if isinstance(t, torch.Tensor)]
        sources = [
            a for a in given if isinstance(a, torch.Tensor) and a.requires_grad and a.is_leaf
        ]
        loss = None
        for t in leaves:
            if t.requires_grad and t.grad_fn is not None:
                weights = torch.linspace(0.5, 1.5, t.numel(), device=t.device).view(t.shape)
                part = (t.double() * weights).sum()
                loss = part if loss is None else loss + part
        if loss is not None and sources:
            outcome.gradients = list(torch.autograd.grad(loss, sources, allow_unused=True))
    except Exception as error:
        outcome.error = error
    return outcome


def difference(found: Outcome, wanted: Outcome, tolerance: float, is_random: bool) -> str | None:
    """Description of a relevant difference, or None."""
    if wanted.error is not None:
        if found.error is None:
            return f"no error; eager: {type(wanted.error).__name__}: {wanted.error}"[:300]
        return None
    if found.error is not None:
        text = "".join(traceback.format_exception_only(found.error)).strip()
        return f"raises {text}"[:1500]
    (got, shape), (want, expected) = tree_flatten(found.results), tree_flatten(wanted.results)
    if shape != expected:
        return f"structure {shape}, not {expected}"
    if len(found.gradients) != len(wanted.gradients):
        return f"{len(found.gradients)} gradients, not {len(wanted.gradients)}"
    fault = None
    pairs = [("result", i, a, b) for i, (a, b) in enumerate(zip(got, want, strict=True))]
    pairs += [
        ("argument", i, a, b)
        for i, (a, b) in enumerate(zip(found.arguments, wanted.arguments, strict=True))
    ]
    pairs += [
        ("gradient", i, a, b)
        for i, (a, b) in enumerate(zip(found.gradients, wanted.gradients, strict=True))
    ]
    for what, i, a, b in pairs:
        fault = fault or unlike(a, b, tolerance, is_random, what)
        if fault:
            return f"{what} {i}: {fault}"
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if isinstance(b, torch.Tensor):
            for j, (x, y) in enumerate(zip(found.arguments, wanted.arguments, strict=True)):
                if isinstance(y, torch.Tensor) and y.numel() and b.numel():
                    if (a is x) != (b is y):
                        return f"result {i} is argument {j}: {a is x}, not {b is y}"
                    shared = a.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
                    expected = b.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
                    if shared != expected:
                        return f"result {i} shares memory with argument {j}: {shared}"
    return None


def unlike(a: Any, b: Any, tolerance: float, is_random: bool, what: str) -> str | None:
    if type(a) is not type(b):
        return f"{type(a)}, not {type(b)}"
    if not isinstance(b, torch.Tensor):
        return None if a == b or a != a else f"{a}, not {b}"
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return f"{a.dtype}{list(a.shape)} on {a.device}, not {b.dtype}{list(b.shape)} on {b.device}"
    if what != "gradient":
        if a.requires_grad != b.requires_grad:
            return f"requires_grad {a.requires_grad}"
        if a.is_inference() != b.is_inference():
            return f"is_inference {a.is_inference()}"
        real = [d for d, n in enumerate(b.shape) if n > 1]
        if b.numel() and any(a.stride(d) != b.stride(d) for d in real):
            return f"strides {a.stride()}, not {b.stride()} of {list(b.shape)}"
        if a.storage_offset() != b.storage_offset() and what == "argument":
            return f"offset {a.storage_offset()}, not {b.storage_offset()}"
    if is_random or not b.numel():
        return None
    a, b = a.detach(), b.detach()
    if not b.is_floating_point():
        wrong = int((a != b).sum())
        return (
            f"{wrong} of {b.numel()} elements: {a.flatten()[:8]}, not {b.flatten()[:8]}"
            if wrong
            else None
        )
    a, b = a.double(), b.double()
    finite = b.isfinite()
    both = finite & a.isfinite()
    if not torch.equal(a[~both].nan_to_num(5.5), b[~both].nan_to_num(5.5)):
        return f"not finite: {a.flatten()[:8]}, not {b.flatten()[:8]}"
    if not both.any():
        return None
    scale = max(1.0, float(b[both].abs().max()))
    worst = float((a[both] - b[both]).abs().max())
    if worst > tolerance * scale:
        return f"off by {worst:.3g} of {scale:.3g}: {a.flatten()[:6]}, not {b.flatten()[:6]}"
    return None


def tolerance_of(p: Program) -> float:
    """Tolerance of the narrowest type in the program's text or arguments."""
    kinds = [a.dtype for c in p.calls for a in c.arguments if isinstance(a, Leaf)]
    text = p.source
    found = [t for t in TOLERANCES if t in kinds]
    if "bfloat16" in text or any(c.mode == "autocast" for c in p.calls):
        found.append(torch.bfloat16)
    if "half" in text or "float16" in text:
        found.append(torch.float16)
    if "float" in text or "/" in text or not found:
        found.append(torch.float32)
    return max(TOLERANCES[t] for t in found)


HOW: dict[str, Callable[..., Any]] = {
    "compile": lambda f, b: torch.compile(f, backend=b),
    "dynamic": lambda f, b: torch.compile(f, backend=b, dynamic=True),
    "static": lambda f, b: torch.compile(f, backend=b, dynamic=False),
    "mem": lambda f, b: (
        fuser.memory_efficient_fusion(f) if b == "fuser" else torch.compile(f, backend=b)
    ),
    "nested": lambda f, b: torch.compile(lambda *a: f(*a), backend=b),
}


def faults(p: Program, device: str, backend: str = "fuser") -> list[str | None]:
    """Fault of each call, or None."""
    torch._dynamo.reset()
    f = function_of(p, device)
    compiled = HOW[p.how](f, backend)
    tolerance = tolerance_of(p)
    found = []
    for call in p.calls:
        try:
            arguments(call, device)
        except Exception:  # the view is invalid for these sizes
            found.append(None)
            continue
        wanted = run(f, call, device)
        found.append(difference(run(compiled, call, device), wanted, tolerance, p.random))
    return found


def check(p: Program, device: str) -> tuple[str | None, list[str]]:
    """A difference from eager that aot_eager does not show, and the fallbacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with report.recording() as seen:
            ours = faults(p, device)
        fallen = [f"{ops}: {why}" for g in seen.graphs for ops, why in g.fallbacks]
        if not any(ours):
            return None, fallen
        theirs = faults(p, device, "aot_eager")
    for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine and not other:
            return f"call {i}: {mine}", fallen
    return None, fallen
