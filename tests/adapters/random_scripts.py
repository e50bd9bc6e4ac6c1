"""Random scripts with views, optional tensors, branches and in-place ops, compared with eager on
any device."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import pytest
import torch

from tests.support.sampling import thorough
from tests.support.scripts import assert_same, fallbacks, with_gradients

SCRIPTS = 200 if thorough() else 2
UNARY = ["relu", "sigmoid", "tanh", "exp", "neg", "abs", "sin"]
BINARY = ["+", "-", "*"]


def random_script(rng: np.random.Generator) -> str:
    """Source of a differentiable function of x and y [n, m], b [m] or None, a number and a flag."""
    lines = ["def f(x: Tensor, y: Tensor, b: Optional[Tensor], a: float, flag: bool):"]
    names, fresh = ["x", "y"], []

    def pick() -> str:
        return names[rng.integers(len(names))]

    for n in range(int(rng.integers(4, 10))):
        name = f"v{n}"
        kind = rng.integers(9)
        if kind <= 1:
            lines.append(f"    {name} = torch.tanh({pick()}).{UNARY[rng.integers(len(UNARY))]}()")
        elif kind <= 3:
            lines.append(f"    {name} = {pick()} {BINARY[rng.integers(3)]} {pick()} * a")
        elif kind == 4:
            lines.append(f"    {name} = {pick()} - {pick()}.mean([1], True)")
        elif kind == 5:
            lines.append(f"    {name} = ({pick()}.t() * 2).t() + 1")
        elif kind == 6:
            lines.append(f"    {name} = {pick()}.reshape(-1).view(x.size(0), -1) * 0.5")
        elif kind == 7:
            lines += [f"    {name} = {pick()} + 0.5", "    if b is not None:"]
            lines.append(f"        {name} = {name} * b")
        else:
            lines += [f"    {name} = {pick()} * 0.5", "    if flag:"]
            lines.append(f"        {name} = {name} + {pick()}")
        if kind <= 5 and rng.integers(3) == 0:
            lines.append(f"    {name}.mul_(0.5)")
        names.append(name)
        fresh.append(name)
    lines.append(f"    return {' + '.join(fresh[-3:])}")
    return "\n".join(lines) + "\n"


def check_random_script(number: int, device: torch.device) -> None:
    """Compare results and gradients at several shapes; no call may run unfused."""
    source = random_script(np.random.default_rng([20260, number]))
    names: dict[str, Any] = {"torch": torch, "Tensor": torch.Tensor, "Optional": Optional}
    exec(source, names)
    f = torch.jit.CompilationUnit(source).f
    unfused = fallbacks()
    for turn, shape in enumerate([(3, 8), (3, 8), (3, 8), (4, 8), (5, 6)]):
        generator = torch.Generator().manual_seed(turn)
        tensors = [torch.randn(shape, generator=generator).to(device) for _ in "xy"]
        for t in tensors:
            t.requires_grad_(number % 3 != 0)
        b = torch.rand(shape[1], generator=generator).to(device) if number % 2 else None
        rest = (b, 0.75, number % 4 < 2)
        try:
            expected = with_gradients(names["f"], tensors, *rest)
        except RuntimeError:
            continue  # eager rejects an in-place change of a value saved for backward
        try:
            got = with_gradients(f, tensors, *rest)
        except RuntimeError:
            # A script saves more values for backward than eager, so the unfused script rejects the
            # change too.
            with torch.jit.fuser("none"):
                alone = torch.jit.CompilationUnit(source).f
                for _ in range(turn):
                    with_gradients(alone, tensors, *rest)
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    with_gradients(alone, tensors, *rest)
            return
        assert_same(got, expected, 32)
    assert fallbacks() == unfused, source
