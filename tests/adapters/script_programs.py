"""Random scripts of torch's ops: TorchScript with fusion groups compared with eager.

python -m tests.adapters.script_programs --count 1000 --seed 7          prints differences
python -m tests.adapters.script_programs --count 1 --first 31 --show    one script, with its text

Besides ops, a script has branches, loops, lists, Optional tensors and calls of other functions. A
difference that torch's executor without a fuser shows too is attributed to torch.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any, Optional

import torch

from tests.adapters.compared import (
    Call,
    Leaf,
    Outcome,
    Program,
    arguments,
    difference,
    run,
    tolerance_of,
)
from tests.adapters.programs import Maker, sweep
from tests.support.scripts import fused

HELPERS = """
def helper(x: Tensor, y: Tensor):
    return torch.tanh(x) * 0.5 + y


def half_of(x: Tensor, n: int):
    if n > 1:
        return x * 0.5
    return x + 1
"""
TYPES: dict[str, Any] = {
    "torch": torch,
    "F": torch.nn.functional,
    "Tensor": torch.Tensor,
    "Optional": Optional,
    "D": "cpu",
}
NAME = re.compile(r"\b[vn]\d+\b")


def annotation(value: Any) -> str:
    if value is None or isinstance(value, torch.Tensor):
        return "Optional[Tensor]" if value is None else "Tensor"
    return type(value).__name__


def scripted(text: str) -> str:
    """Text for the script compiler, which does not know the names F and D."""
    return re.sub(r"\bF\.", "torch.nn.functional.", text).replace("device=D", "device='cpu'")


class ScriptMaker(Maker):
    """Writes a script line by line; each line is first compiled, and run in eager."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        exec(HELPERS, TYPES)
        self.env |= TYPES

    def attempt(self, line: str, *, wraps: bool = True) -> bool:
        return self.block(self.wrapped(line) if wraps and self.chance(0.2) else [line])

    def block(self, lines: list[str]) -> bool:
        """Keep the lines if they compile as a script and run in eager."""
        text = "\n".join(lines)
        names = {n for n in NAME.findall(text) if n in self.env}
        made = re.findall(r"^(v\d+) = ", text, re.MULTILINE)
        heads = ", ".join(f"{n}: {annotation(self.env[n])}" for n in sorted(names - set(made)))
        body = "\n".join("    " + line for line in [*lines, *(f"return {n}" for n in made[-1:])])
        try:
            torch.jit.CompilationUnit(scripted(f"{HELPERS}\ndef f({heads}):\n{body}\n"))
            exec(text, self.env)
        except Exception:
            return False
        self.lines += lines
        return True

    def condition(self) -> str:
        x = self.tensor()
        flags = [n for n, v in self.env.items() if n[0] == "n" and type(v) in (int, float, bool)]
        return self.one(
            f"{x}.dim() {self.one('>', '==')} 2",
            f"{x}.size(0) > 2" if self.env[x].ndim else f"{x}.numel() == 1",
            f"{x}.requires_grad",
            *(f"{n} {self.one('>', '!=')} 1" for n in flags),
            *(f"bool({n})" for n in flags),
        )

    def wrapped(self, line: str) -> list[str]:
        """A line in a branch or a loop."""
        name, equals, _ = line.partition(" = ")
        if not equals or not NAME.fullmatch(name):
            return [f"if {self.condition()}:", "    " + line]
        other = f"    {name} = {self.tensor()}"
        kind = self.rng.randrange(4)
        if kind == 0:
            return [f"if {self.condition()}:", "    " + line, "else:", other]
        if kind == 1:
            return [other.strip(), f"if {self.condition()}:", "    " + line]
        x = self.tensor()
        turns = self.one("2", "3", "0", f"{x}.dim()")
        step = f"    {name} = {name} * 0.5 {self.one('+', '-')} {x}"
        if kind == 2:
            return [line, f"for i in range({turns}):", step]
        return [line, "i = 0", f"while i < {turns}:", step, "    i += 1"]

    def several(self) -> list[str]:
        """Statements specific to scripts: lists, tuples of views, Optional tensors, calls."""
        x, y, name = self.ranked(1), self.tensor(), f"v{len(self.names)}"
        d = self.dim(x)
        n = self.env[x].shape[d]
        absent = [k for k, v in self.env.items() if k[0] == "n" and v is None]
        choices = [
            [f"l = [{x}, {x} * 2]", f"l.append({x} + 1)", f"{name} = torch.cat(l, {d})"],
            [f"l = [{x} * 2, {x}.exp()]", f"{name} = l[0] + l[1]"],
            [f"a, b = {x}.chunk(2, {d})", f"{name} = a.sum() + b"],
            [f"a, b = torch.split({x}, {-(-n // 2)}, {d})", f"{name} = a * 2 + b.mean()"],
            [f"{name} = helper({x}, {y})"],
            [f"{name} = half_of({x}, {x}.dim())"],
            [f"{name} = {x} * {x}.size({d}) + {y}.numel()"],
            [f"{name} = {x} / float({x}.size({d}))"],
            [f"s = {x}.shape", f"{name} = ({x} * 2).view(s)"],
            [f"m, s = torch.{self.one('var', 'std')}_mean({x}, {d})", f"{name} = m + s"],
            [f"m, s = torch.max({x}, {d})", f"{name} = m + s"],
            [f"t = ({x} * 2, {y} + 1)", f"{name} = t[0] - t[1]"],
            [f"{name} = {x} + 1", f"{name} += {y}", f"{name} *= 0.5"],
            [f"{name} = {x} * 2", f"{name}[0] = {self.number()}"],
            [f"{name} = torch.zeros_like({x})", f"{name}.add_({y}).relu_()"],
            [f"{name} = {x}.chunk(2, {d})[0] * 2 + {x}.unbind({d})[-1].sum()"],
            [f"{name} = {x} / ({x} + 1).numel() + len({x} * 2) * ({x} * {y}).dim()"],
            [f"{name} = F.mse_loss({x} * 2, {y}) + F.l1_loss({x}, {x} + 1) * {y}"],
            [f"{name} = F.pad({x} * 2, [1, 0]) + 1"],
            [f"{name} = torch.fmax({x}, {y}) - torch.fmin({x}, {y} * 2)"],
            [f"{name} = F.cosine_similarity({x} * 2, {x} + {y}, {d}) + 1"],
            [f"{name} = torch.hstack([{x} * 2, {x}]).tile([2]) + 1"],
            [f"a = {x} * 2", "b = a.view(-1)", "b.add_(1)", f"{name} = a + 1"],
            [f"{name} = torch.relu({x})", f"{name} = {name} if {self.condition()} else {x} + 1"],
        ]
        for k in absent:
            choices.append(
                [f"{name} = {x} + 1", f"if {k} is not None:", f"    {name} = {name} * {k}"]
            )
        choices += self.by_numbers(name, x, y)
        found: list[str] = self.rng.choice(choices)
        return found

    def by_numbers(self, name: str, x: str, y: str) -> list[list[str]]:
        """Dims, sizes and bounds from run-time numbers; indices and devices from tensors."""
        numbers = [k for k, v in self.env.items() if k[0] == "n" and type(v) is int]
        n = self.rng.choice(numbers) if numbers else f"({x}.dim() - 1)"
        # Clamp: conversion of values outside the integer's range is undefined in torch. Round,
        # because halves may round differently.
        whole = f"torch.nan_to_num({y}.float()).mul(64).round().div(64).clamp(-99, 99)"
        index = f"({whole}.long().abs() % max({x}.size(0), 1))"
        d = self.dim(x)
        return [
            [f"{name} = ({x} * 2).{self.one('sum', 'mean', 'softmax', 'amax', 'cumsum')}({n}) + 1"],
            [f"{name} = ({x} * 2).{self.one('unsqueeze', 'flatten', 'squeeze')}({n}) + 1"],
            [f"{name} = ({x} * 2).transpose(0, {n}) + 1"],
            [f"{name} = ({x} * 2).reshape({n}, -1) + 1"],
            [f"{name} = ({x} * 2)[{n}:] + ({x} * 2)[:, :{n}].sum()"],
            [f"{name} = ({x} * 2).select({d}, {n}) + 1"],
            [f"{name} = ({x} * 2).narrow({d}, 0, {n}) + 1"],
            [f"{name} = ({x} * 2).roll({n}, {d}) + 1"],
            [f"{name} = ({x} * 2)[{index}] + 1"],
            [f"{name} = ({x} * 2)[:, {index}] + {y}.sum()"],
            [f"{name} = ({x} * 2).index_select(0, {index}.view(-1)) + 1"],
            [f"{name} = ({x} * 2).to({y}.device) + {y}.to(({x} + 1).device, torch.float32)"],
            [f"{name} = ({x} * 2).diagonal({self.one(0, 1, -1)}, 0, {d}) + 1"],
            [f"{name} = torch.zeros_like({x})[:, :0] + 1"],
            ["with torch.no_grad():", f"    {name} = {x} * 2 + {y}", f"{name} = {name} * {x}"],
        ]

    def new_value(self) -> bool:
        if not self.chance(0.25):
            return super().new_value()
        name = f"v{len(self.names)}"
        try:
            lines = self.several()
        except LookupError:
            return False
        before = len(self.lines)
        if not self.block(lines):
            return False
        value = self.env[name]
        if not isinstance(value, torch.Tensor) or value.numel() > 40000 or value.ndim > 6:
            del self.env[name], self.lines[before:]
            return False
        self.names.append(name)
        return True

    def step(self) -> None:
        if self.chance(0.1):
            try:
                if self.attempt(self.in_place()):
                    return
            except LookupError:
                return
        self.new_value()

    def result(self) -> str:
        parts = [self.tensor() for _ in range(self.rng.randrange(8))]
        made = [n for n in self.names if n in self.env][-1]
        parts.append(made)
        if self.chance(0.1) and self.env[made].is_contiguous():
            parts.append(f"{made}.view(-1)")
        text = ", ".join(parts)
        return self.one(f"({text},)", f"[{text}]", made)

    def calls(self, given: list[Any]) -> list[Call]:
        """Sometimes add a call in which a size is 0 or 1."""
        made = super().calls(given)
        sizes = sorted({n for a in given if isinstance(a, Leaf) for n in a.shape if n > 1})
        if not sizes or self.chance(0.7):
            return made
        which, small = self.rng.choice(sizes), self.one(0, 1)
        changed = [
            replace(a, shape=tuple(small if n == which else n for n in a.shape))
            if isinstance(a, Leaf)
            else a
            for a in given
        ]
        return [*made, Call(changed, made[-1].mode), made[0]]

    def script(self, number: int) -> Program | None:
        made = self.program(number)
        return None if made is None else replace(made, how="script", source=self.typed(made))

    def typed(self, p: Program) -> str:
        head, _, body = p.source.partition("\n")
        names = re.findall(r"[vn]\d+", head)
        given = arguments(p.calls[0], "cpu")
        typed = ", ".join(f"{n}: {annotation(v)}" for n, v in zip(names, given, strict=True))
        return f"{HELPERS}\n\ndef f({typed}):\n{body}"


def script_program(number: int, seed: int = 0) -> Program | None:
    """Script `number` of the family `seed`, or None if this number yields no script."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = ScriptMaker(seed * 1_000_003 + number).script(number)
        if p is not None:
            try:
                torch.jit.CompilationUnit(scripted(p.source))
            except RuntimeError:
                return None
        return p


def outcomes(p: Program, device: str, script: Any) -> list[Outcome]:
    """Outcomes of each call, run several times: profiled, fused and repeated."""
    found = []
    for call in p.calls:
        try:
            arguments(call, device)
        except Exception:  # the view is invalid for these sizes
            continue
        found += [run(script, call, device) for _ in range(4)]
    return found


def faults(p: Program, device: str, fuse: bool) -> list[str | None]:
    scope = {**TYPES, "D": device}
    exec(compile(p.source, f"<script {p.number}>", "exec"), scope)
    wanted = outcomes(p, device, scope["f"])
    text = scripted(p.source).replace("device='cpu'", f"device='{device}'")
    with fused() if fuse else torch.jit.fuser("none"):
        got = outcomes(p, device, torch.jit.CompilationUnit(text).f)
    tolerance = tolerance_of(p)
    return [difference(a, b, tolerance, p.random) for a, b in zip(got, wanted, strict=True)]


def check_script(p: Program, device: str) -> tuple[str | None, list[str]]:
    """A difference from eager that does not occur without a fuser, and the fallbacks."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ours = faults(p, device, True)
        fallen = [str(w.message) for w in seen if "runs unfused" in str(w.message)]
        theirs = faults(p, device, False) if any(ours) else ours
    for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if not mine or other:
            continue
        # An in-place change within a script is no longer in place after fusion.
        if "modified by an inplace operation" in mine:
            continue
        # Torch's differentiable graphs (of more than five nodes, with or without a fuser) record
        # gradients in every mode after a call that required them.
        if mine.endswith("gradients, not 0") and p.calls[i // 4].mode in ("no_grad", "inference"):
            continue
        return f"call {i // 4}, run {i % 4}: {mine}", fallen
    return None, fallen


if __name__ == "__main__":
    sweep(script_program, check_script, "scripts")
