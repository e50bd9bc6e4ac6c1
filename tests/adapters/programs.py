"""Random programs of torch's ops, called several times on inputs of changing layouts.

python -m tests.adapters.programs --count 1000 --seed 7             prints differences
python -m tests.adapters.programs --count 1 --first 831 --show      one program, with its text
"""

from __future__ import annotations

import argparse
import logging
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from tests.adapters.compared import Call, Leaf, Program, arguments, check

FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool, torch.int16)
LAYOUTS = ("plain", "plain", "plain", "permuted", "steps", "offset", "expanded", "last")


class Maker:
    """Writes a program line by line; each line is first run in eager."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.env: dict[str, Any] = {"torch": torch, "F": F, "D": "cpu"}
        self.names: list[str] = []  # of tensors
        self.random = False

    def one(self, *among: Any) -> Any:
        return self.rng.choice(among)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def tensor(self, accepts: Callable[[torch.Tensor], bool] = lambda t: True) -> str:
        found = [n for n in self.names if accepts(self.env[n])]
        if not found:
            raise LookupError
        # Prefer the latest values, so that programs are deep.
        return found[-1] if self.chance(0.35) else self.rng.choice(found)

    def floating(self, rank: int = 0) -> str:
        return self.tensor(lambda t: t.is_floating_point() and t.ndim >= rank)

    def ranked(self, rank: int) -> str:
        return self.tensor(lambda t: t.ndim >= rank)

    def dim(self, name: str) -> int:
        return self.rng.randrange(-self.env[name].ndim, self.env[name].ndim)

    def some(self, name: str) -> str:
        """Dims of a reduction, as text."""
        rank = self.env[name].ndim
        if rank == 0 or self.chance(0.2):
            return ""
        count = self.rng.randrange(1, rank + 1) if self.chance(0.3) else 1
        dims = self.rng.sample(range(rank), count)
        text = str(tuple(dims)) if count > 1 else str(dims[0] - self.one(0, rank))
        return text + self.one("", ", keepdim=True")

    def number(self) -> str:
        names = [n for n, v in self.env.items() if n[0] == "n" and type(v) in (int, float, bool)]
        if names and self.chance(0.3):
            return self.rng.choice(names)
        return self.one("2", "0.5", "-1.5", "3", "True", "1", "-2", "0", "1e-3", "7.25")

    def operand(self) -> str:
        return self.number() if self.chance(0.25) else self.tensor()

    # ---- lines

    def pointwise(self) -> str:
        x = self.tensor()
        return self.one(
            *(f"torch.{f}({x})" for f in ("sin", "cos", "tanh", "sigmoid", "neg", "abs", "square")),
            *(f"torch.{f}({x})" for f in ("erf", "relu", "sign", "isnan", "logical_not", "atan")),
            *(f"torch.{f}({x}.abs() + 1)" for f in ("sqrt", "rsqrt", "log", "log1p", "reciprocal")),
            *(f"F.{f}({x})" for f in ("gelu", "silu", "softplus", "elu", "hardswish", "mish")),
            *(f"torch.{f}({x})" for f in ("floor", "ceil", "round", "trunc", "frac", "expm1")),
            f"F.leaky_relu({x}, 0.1)",
            f"{x}.clamp({self.number()}, 3)",
            f"{x}.clamp(min={self.tensor()})",
            f"~{x}",
            f"torch.exp(-{x}.abs())",
            f"torch.nan_to_num({x} / {self.operand()})",
            f"{x} ** {self.one('2', '3', '2.0', '0.5', '-1')}",
            f"{self.one('2', '0.5')} ** {x}",
            f"{x}.clone()",
            f"torch.positive({x})",
        )

    def binary(self) -> str:
        x, y = self.tensor(), self.operand()
        if self.chance(0.3):
            x, y = y, x
        return self.one(
            *(f"{x} {op} {y}" for op in ("+", "-", "*", "+", "-", "*", "/")),
            *(f"({x} {op} {y})" for op in ("<", ">=", "==", "!=", "&", "|", "^")),
            *(f"torch.{f}({x}, {y})" for f in ("maximum", "minimum", "fmax", "atan2", "hypot")),
            f"{x} // {y}",
            f"{x} % {y}",
            f"torch.fmod({x}, {y})",
            f"torch.add({x}, {y}, alpha={self.number()})",
            f"torch.sub({x}, {y}, alpha=2)",
            f"torch.where({self.tensor()} > 0, {x}, {y})",
            f"torch.lerp({x}, {y}, 0.25)",
            f"torch.addcmul({x}, {self.tensor()}, {y}, value=0.5)",
            f"torch.copysign({x}, {y})",
            f"torch.true_divide({x}, {y})",
            f"torch.div({x}, {y}, rounding_mode='{self.one('floor', 'trunc')}')",
            f"torch.rsub({x}, {y})",
            f"torch.logical_and({x}, {y})",
            f"torch.ldexp({x}, {y})",
            f"{x}.masked_fill({self.tensor()} > 0, {self.number()})",
            f"torch.isclose({x}, {y})",
        )

    def reduction(self) -> str:
        x = self.tensor()
        dims = self.some(x)
        d = self.dim(x) if self.env[x].ndim else 0
        return self.one(
            *(f"{x}.{f}({dims})" for f in ("sum", "mean", "amax", "amin", "sum", "mean")),
            f"{x}.float().var({dims})",
            f"{x}.float().std({dims})",
            f"{x}.{self.one('prod', 'any', 'all', 'argmax', 'argmin')}({d})",
            f"{x}.{self.one('max', 'min', 'sum', 'any', 'all', 'prod', 'argmax')}()",
            f"{x}.{self.one('max', 'min')}({d}{self.one('', ', keepdim=True')})[0]",
            f"{x}.max({d})[1]",
            f"{x}.sum({d}, dtype=torch.{self.one('float64', 'int64', 'float32', 'bfloat16')})",
            f"torch.logsumexp({x}, {d})",
            f"torch.softmax({x}, {d})",
            f"torch.log_softmax({x}, {d}{self.one('', ', dtype=torch.float32')})",
            f"torch.var_mean({x}.float(), {d}, correction=0)[{self.one(0, 1)}]",
            f"torch.linalg.vector_norm({x}.float(), {self.one('2', '1', 'torch.inf')}, {d})",
            f"{x}.cumsum({d})",
            f"F.normalize({x}.float(), dim={d})",
            f"torch.count_nonzero({x}, {d})",
            f"torch.aminmax({x}, dim={d})[1]",
            f"{x}.norm()",
            f"torch.cummax({x}, {d})[0]",
        )

    def norm(self) -> str:
        x = self.floating(1)
        n = self.env[x].shape[-1]
        t = self.env[x]
        w = self.one("None", f"torch.ones({n}, dtype={x}.dtype, device=D)", f"{x}.shape[-1:]")
        if w.endswith(":]"):
            w = f"torch.arange({x}.shape[-1], device=D).to({x}.dtype)"
        choices = [
            f"F.layer_norm({x}, ({x}.shape[-1],), {w})",
            f"F.rms_norm({x}, ({n},), {w}, 1e-5)",
            f"F.dropout({x}, 0.0)",
        ]
        if t.ndim >= 3:
            c = t.shape[1]
            zeros = f"torch.zeros({c}, device=D)"
            choices += [
                f"F.group_norm({x}, 1)",
                f"F.instance_norm({x})",
                f"F.batch_norm({x}, None, None, training=True)",
                f"F.batch_norm({x}, {zeros}, {zeros} + 1)",
                f"F.layer_norm({x}, {tuple(t.shape[-2:])})",
            ]
        if t.ndim == 4:
            choices += [
                f"F.interpolate({x}, scale_factor=2)",
                f"F.avg_pool2d({x}, 2)",
                f"F.max_pool2d({x}, 2)",
                f"F.adaptive_avg_pool2d({x}, 1)",
                f"F.conv2d({x}, torch.ones(2, {t.shape[1]}, 1, 1, device=D, dtype={x}.dtype) / 4)",
                f"F.pixel_shuffle({x}, 1)",
            ]
        return str(self.rng.choice(choices))

    def view(self) -> str:
        x = self.ranked(1)
        t, d, e = self.env[x], self.dim(x), self.dim(x)
        n = t.shape[d]
        order = list(range(t.ndim))
        self.rng.shuffle(order)
        y = self.tensor()
        return self.one(
            f"{x}.reshape(-1)",
            f"{x}.reshape({x}.shape[0], -1)",
            f"{x}.view({x}.size(0), -1)",
            f"{x}.flatten({self.one('', '0, 1')})",
            f"{x}.transpose({d}, {e})",
            f"{x}.permute({order})",
            f"{x}.mT",
            f"{x}.unsqueeze({self.one(0, -1, 1)})",
            f"{x}.squeeze({self.one('', d)})",
            f"{x}[{'..., ' * (d < 0)}None]",
            f"{x}.unsqueeze(0).expand(2, {'-1, ' * t.ndim})",
            f"{x}.expand_as({y})",
            f"torch.broadcast_to({x}, {y}.shape)",
            f"{x}[::2]",
            f"{x}[1:]",
            f"{x}[..., :-1]",
            f"{x}[..., {self.one('1', '-1', '0', '::3', '1:2')}]",
            f"{x}.narrow({d}, 0, {max(1, n // 2)})",
            f"{x}.select({d}, {max(0, n - 1)})",
            f"{x}.flip({d})",
            f"{x}.roll(1, {d})",
            f"{x}.chunk(2, {d})[{self.one(0, -1)}]",
            f"{x}.split({max(1, n // 2)}, {d})[-1]",
            f"{x}.unbind({d})[0]",
            f"torch.stack([{x}, {x} * 2], {d})",
            f"torch.cat([{x}, {x}.flip(0)], {d})",
            f"torch.cat([{x}, {y}], {d})",
            f"{x}.unflatten({d}, (1, -1))",
            f"{x}.repeat({', '.join('2' if i == 0 else '1' for i in range(t.ndim))})",
            f"{x}.repeat_interleave(2, {d})",
            f"{x}.diagonal()",
            f"torch.diag_embed({x})",
            f"{x}.{self.one('tril', 'triu')}({self.one('', '1', '-1')})",
            f"F.pad({x}, (1, {self.one(0, 2, -1)}), value={self.one(0.0, 2.0)})",
            f"{x}.contiguous()",
            f"{x}.detach()",
            f"{x}.unfold({d}, {max(1, n // 2)}, 1)",
            f"{x}.movedim(0, -1)",
            f"{x}.view_as({x})",
            f"{x}.T" if t.ndim == 2 else f"{x}.swapaxes(0, {d})",
            f"{x}.contiguous(memory_format=torch.channels_last)" if t.ndim == 4 else f"{x} + 0",
            f"torch.atleast_2d({x})",
            f"torch.meshgrid({x}.reshape(-1), torch.arange(2, device=D), indexing='ij')[0]",
        )

    def cast(self) -> str:
        x = self.tensor()
        kinds = ("float32", "float64", "bfloat16", "float16", "bool")
        # Clamp: conversion of values outside the integer's range is undefined in torch. Round,
        # because halves may round differently.
        whole = f"torch.nan_to_num({x}.float()).mul(64).round().div(64).clamp(-99, 99)"
        y = self.tensor(lambda t: t.is_floating_point())
        return self.one(
            f"{x}.to(torch.{self.one(*kinds)})",
            f"{x}.to(torch.{self.one(*kinds)})",
            f"{whole}.to(torch.{self.one('int64', 'int32', 'uint8', 'int8')})",
            f"{whole}.{self.one('long', 'int')}()",
            f"{x}.{self.one('float', 'half', 'bfloat16', 'double', 'bool')}()",
            f"{x}.to({y})",
            f"{x}.type_as({y})",
            f"{x}.to(D)",
            f"{x}.to(torch.float32, copy=True)",
            f"({x} > 0).to({x}.dtype)",
        )

    def indexing(self) -> str:
        x = self.ranked(1)
        d = self.dim(x)
        index = f"torch.arange(3, device=D) % {x}.shape[0]"
        return self.one(
            f"{x}[{index}]",
            f"{x}[[0, -1]]",
            f"{x}[torch.tensor([0, -1], device=D)]",
            f"{x}.index_select({d}, torch.tensor([0, 0], device=D))",
            f"{x}.gather({d}, torch.zeros_like({x}, dtype=torch.int64))",
            f"torch.take_along_dim({x}, {x}.argsort({d}), {d})",
            f"{x}.sort({d})[0]",
            f"{x}.topk(1, {d})[0]",
            f"{x}[{x} > 0]",
            f"torch.where({x} > 0, {x}, torch.tensor(0.5, device=D))",
            f"{x}.index_add(0, {index}, {x}[{index}])",
            f"{x}.scatter({d}, torch.zeros_like({x}, dtype=torch.int64), 1)",
            f"{x}.scatter_add(0, torch.zeros_like({x}, dtype=torch.int64), {x})",
            f"torch.index_put({x}, ({index},), {x}[0])",
            f"F.one_hot({x}.long().abs() % 5, 5)",
            f"F.embedding({x}.long().abs() % 4, torch.ones(4, 3, device=D))",
            f"{x}.index_fill({d}, torch.tensor([0], device=D), 2)",
            f"{x}.masked_select({x} > 0).sum()",
            f"torch.searchsorted(torch.arange(4., device=D), {x}.float())",
            f"torch.nonzero({x}).sum()",
            f"{x}.unique().sum()",
        )

    def product(self) -> str:
        x = self.floating(2)
        t = self.env[x]
        return self.one(
            f"{x} @ {x}.mT",
            f"torch.einsum('...ij,...kj->...ik', {x}, {x})",
            f"F.linear({x}, torch.ones(3, {t.shape[-1]}, dtype={x}.dtype, device=D) / 8)",
            f"torch.matmul({x}, {x}.new_ones({x}.shape[-1]))",
            f"F.mse_loss({x}, {x}.flip(0))",
            f"F.cross_entropy({x}.reshape(-1, {x}.shape[-1]), "
            f"torch.zeros({x}.numel() // {x}.shape[-1], dtype=torch.int64, device=D))",
            f"F.smooth_l1_loss({x}, {x} * 0.5, reduction='{self.one('none', 'sum', 'mean')}')",
            f"F.binary_cross_entropy_with_logits({x}, torch.zeros_like({x}))",
            f"torch.cdist({x}.float(), {x}.float())",
            f"torch.outer({x}.reshape(-1)[:4], {x}.reshape(-1)[:3])",
        )

    def creation(self) -> str:
        x = self.tensor()
        d = "0" if not self.env[x].ndim else f"{x}.shape[{self.dim(x)}]"
        return self.one(
            f"torch.zeros({x}.shape, device=D)",
            f"torch.arange({d}, device=D)",
            f"torch.full_like({x}, {self.number()})",
            f"torch.ones_like({x}, dtype=torch.float32)",
            f"{x}.new_zeros(3)",
            f"{x}.new_full({x}.shape[:1], 2)",
            f"torch.linspace(0, 1, {d}, device=D)",
            "torch.eye(3, device=D)",
            f"torch.tensor({self.one(3.0, 2, [1.0, 2.0], True)}, device=D)",
            "torch.tensor(1.5)",
            f"torch.empty_like({x}).fill_({self.number()})",
            f"torch.zeros_like({x}, memory_format=torch.contiguous_format)",
            f"torch.scalar_tensor({self.number()})",
        )

    def drawing(self) -> str:
        self.random = True
        x = self.floating()
        return self.one(
            f"F.dropout({x}, 0.5)",
            f"torch.rand_like({x})",
            f"torch.randn_like({x}) * {x}",
            f"torch.bernoulli({x}.sigmoid())",
            "torch.rand(3, device=D)",
            f"F.dropout1d({x}, 0.5)" if self.env[x].ndim == 3 else f"F.alpha_dropout({x}, 0.2)",
            f"torch.randint_like({x}, 5)",
        )

    def in_place(self) -> str:
        x, y = self.tensor(), self.operand()
        t = self.env[x]
        lines = [
            *(f"{x}.{f}({y})" for f in ("add_", "mul_", "sub_", "copy_", "add_", "div_")),
            f"{x}.{self.one('relu_', 'sin_', 'zero_', 'neg_', 'sigmoid_', 'abs_', 'exp_')}()",
            f"{x}.clamp_(min=0)",
            f"{x}.fill_({self.number()})",
            f"{x} += {y}",
            f"{x} *= {y}",
            f"{x}.masked_fill_({x} > 1, {self.number()})",
            f"{x}.data.mul_(2)",
            f"torch.add({x}, 1, out=torch.empty_like({x}))",
        ]
        if t.ndim:
            lines += [
                f"{x}[0] = {self.number()}",
                f"{x}[0] = {x}[-1]",
                f"{x}[..., 0] += 1",
                f"{x}[1:].mul_(2)",
                f"{x}[{x} > 0] = 0",
                f"{x}[:, :1] = {self.operand()}",
                f"{x}.t_()",
                f"{x}.unsqueeze_(0)",
                f"{x}.squeeze_()",
                f"{x}.transpose_(0, -1)",
                f"{x}.reshape(-1)[0] = 3",
                f"{x}.view(-1).add_(1)",
                f"{x}.index_add_(0, torch.zeros(1, dtype=torch.int64, device=D), {x}[:1])",
                f"{x}.scatter_(0, torch.zeros_like({x}, dtype=torch.int64), 2)",
                f"{x}.cumsum_(0)",
            ]
        return str(self.rng.choice(lines))

    # ---- the program

    def attempt(self, line: str, *, wraps: bool = True) -> bool:
        """Run a line in eager; keep it if it succeeds."""
        block = [line]
        if wraps and self.chance(0.06):
            head = self.one(
                "with torch.no_grad():",
                "with torch.enable_grad():",
                "with torch.autocast(D, dtype=torch.bfloat16):",
                "if v0.ndim < 9:",
                "for _ in range(2):",
            )
            block = [head, "    " + line]
        try:
            exec("\n".join(block), self.env)
        except Exception:
            return False
        self.lines += block
        return True

    def new_value(self) -> bool:
        kinds: list[tuple[int, Callable[[], str]]] = [
            (8, self.pointwise),
            (9, self.binary),
            (6, self.reduction),
            (2, self.norm),
            (8, self.view),
            (3, self.cast),
            (3, self.indexing),
            (1, self.product),
            (2, self.creation),
        ]
        if self.chance(0.02):
            kinds = [(1, self.drawing)]
        weights = [w for w, _ in kinds]
        before = self.random
        name = f"v{len(self.names)}"
        try:
            text = self.rng.choices([k for _, k in kinds], weights)[0]()
        except LookupError:
            return False
        if self.chance(0.02):
            text = f"torch.utils.checkpoint.checkpoint(lambda: {text}, use_reentrant=False)"
        if not self.attempt(f"{name} = {text}"):
            self.random = before
            return False
        value = self.env[name]
        if not isinstance(value, torch.Tensor) or value.numel() > 40000 or value.ndim > 6:
            del self.env[name]
            while self.lines and name in self.lines[-1]:
                self.lines.pop()
            while self.lines and self.lines[-1].endswith(":"):
                self.lines.pop()
            return False
        self.names.append(name)
        return True

    def step(self) -> None:
        if self.chance(0.1):
            with suppress(LookupError):
                if self.attempt(self.in_place()):
                    return
        if self.chance(0.02):
            self.attempt(
                self.one(
                    "torch._dynamo.graph_break()",
                    "n9 = v0.shape[0] * 2",
                    "n8 = v0.numel()",
                    "n7 = float(v0.sum())",
                ),
                wraps=False,
            )
        self.new_value()

    def leaf(self, sizes: list[int]) -> Leaf:
        rank = self.one(0, 1, 2, 2, 3, 3, 4)
        shape = [1 if self.chance(0.12) else n for n in sizes[len(sizes) - rank :]]
        dtype = self.one(*FLOATS) if self.chance(0.8) else self.one(*INTEGERS)
        grad = dtype.is_floating_point and self.chance(0.4)
        return Leaf(tuple(shape), dtype, self.one(*LAYOUTS), grad)

    def arguments(self) -> list[Any]:
        sizes = [self.one(1, 2, 3, 4, 5, 8, 17) for _ in range(4)]
        if self.chance(0.04):
            sizes[self.rng.randrange(4)] = 0
        if self.chance(0.1):
            sizes[3] = self.one(64, 100, 257)
        made: list[Any] = [self.leaf(sizes) for _ in range(self.rng.randrange(1, 5))]
        if self.chance(0.15):
            i = self.rng.randrange(len(made))
            view = self.one("x", "x", "x.view(-1)", "x[1:]", "x.mT", "x.detach()", "x[..., :1]")
            made.append(replace(made[i], alias=(i, view)))
        while self.chance(0.2):
            made.append(self.one(2, 3, 0.5, -1.0, True, None, 0, 1))
        return made

    def program(self, number: int) -> Program | None:
        given = self.arguments()
        try:
            values = arguments(Call(given), "cpu")
        except Exception:
            return None
        heads = []
        for i, v in enumerate(values):
            name = f"v{i}" if isinstance(v, torch.Tensor) else f"n{i}"
            if not isinstance(v, torch.Tensor):
                self.names.append(self.names[0])
            else:
                self.names.append(name)
            heads.append(name)
            self.env[name] = v
        for _ in range(self.rng.randrange(2, 26)):
            self.step()
        if not self.lines:
            return None
        result = self.result()
        body = "\n".join("    " + line for line in [*self.lines, f"return {result}"])
        source = f"def f({', '.join(heads)}):\n{body}\n"
        how = self.one(
            "compile", "compile", "compile", "compile", "dynamic", "static", "mem", "mem", "nested"
        )
        return Program(number, source, self.calls(given), how, self.random)

    def result(self) -> str:
        count = self.rng.randrange(1, 5)
        parts = [self.tensor() for _ in range(count)]
        made = [n for n in self.names if n in self.env][-1]
        parts.append(made)
        if self.chance(0.2):
            parts.append(self.one("None", "3", f"{made}.shape", f"{made}.ndim", "'text'"))
        if self.chance(0.15):
            parts.append(f"{made}.view(-1)" if self.env[made].is_contiguous() else f"{made}[...]")
        if self.chance(0.1):
            parts.append(made)
        text = ", ".join(parts)
        return self.one(f"({text},)", f"[{text}]", f"{{'a': ({text},), 'b': {parts[-1]}}}")

    def calls(self, given: list[Any]) -> list[Call]:
        made = [Call(given)]
        for _ in range(self.one(0, 1, 2, 3)):
            changed = list(made[-1].arguments)
            kind = self.one("same", "sizes", "layout", "dtype", "grad", "mode", "number")
            mode = made[-1].mode
            sizes = {n: self.one(2, 3, 6, 7, 9, 12, 1, 33) for n in range(300)}
            for i, a in enumerate(changed):
                if isinstance(a, Leaf):
                    if kind == "sizes":
                        shape = tuple(sizes[n] if n > 1 else n for n in a.shape)
                        changed[i] = replace(a, shape=shape)
                    elif kind == "layout":
                        changed[i] = replace(a, layout=self.one(*LAYOUTS))
                    elif kind == "dtype" and a.dtype.is_floating_point:
                        changed[i] = replace(a, dtype=self.one(*FLOATS))
                    elif kind == "grad" and a.dtype.is_floating_point:
                        changed[i] = replace(a, grad=self.chance(0.5))
                elif kind == "number" and a is not None:
                    changed[i] = type(a)(self.one(2, 4, 5, -3))
            if kind == "mode":
                mode = self.one("grad", "no_grad", "inference", "autocast")
            made.append(Call(changed, mode))
        return made


def program(number: int, seed: int = 0) -> Program | None:
    """Program `number` of the family `seed`, or None if this number yields no program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Maker(seed * 1_000_003 + number).program(number)


def sweep(
    make: Callable[[int, int], Program | None],
    examine: Callable[[Program, str], tuple[str | None, list[str]]],
    called: str,
) -> None:
    """Command line of a sweep: make programs, print differences and fallbacks. make(number, seed)
    returns a program; examine(program, device) its fault and its fallbacks; called: noun for the
    programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    tally: Counter[str] = Counter()
    for number in range(options.first, options.first + options.count * options.step, options.step):
        if time.monotonic() - started > options.seconds:
            break
        p = make(number, options.seed)
        if p is None:
            continue
        if options.show:
            print(p.text(), flush=True)
        fault, fallen = examine(p, options.device)
        tally[called] += 1
        tally["wrong"] += fault is not None
        tally["fallen"] += bool(fallen)
        if fallen:
            print(f"[{number}] fell back: {fallen}"[:1500], flush=True)
        if fault:
            print(f"==== {fault}\n{p.text()}\n", flush=True)
    print(dict(tally), f"{time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    torch._logging.set_logs(dynamo=logging.CRITICAL, graph_breaks=False)
    sweep(program, check, "programs")


if __name__ == "__main__":
    main()
