"""fuser.adapters.torchscript: the ops that a group takes, switches, fallbacks, random scripts."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import fuser
from fuser import Unsupported
from fuser.adapters import torchscript
from tests.sampling import thorough
from tests.scripts import assert_same, groups, with_gradients

SCRIPTS = 200 if thorough() else 2  # random ones


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fuser.torchscript_fuser(cpu=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield


def compiled(source: str) -> Any:
    return torch.jit.CompilationUnit(textwrap.dedent(source)).f


# ---- the op list, a batch of ops to a script; x and y are of one shape, w and b of its last dim

BATCHES = {
    "arithmetic": (
        "x + y; x - y * 2; x * y; x / y; torch.rsub(x, y); torch.rsub(x, 2.0); torch.atan2(x, y); "
        "torch.max(x, y); torch.min(x, y); torch.pow(x, 2); torch.pow(x.abs() + 1, y); 2.0 ** x; "
        "torch.remainder(x, 2.0); torch.fmod(x, y); torch.lerp(x, y, 0.25); torch.lerp(x, y, x); "
        "torch.addcmul(x, y, x, value=0.5); torch.where(x > y, x, y); torch.clamp(x, -0.5, 0.5)"
    ),
    "exponents": (
        "x.abs(); x.ceil(); x.floor(); x.frac(); -x; x.round(); x.trunc(); x.exp(); x.expm1(); "
        "x.exp2(); x.abs().log(); (x.abs() + 1).log10(); x.abs().log1p(); x.abs().log2(); "
        "x.abs().sqrt(); (x.abs() + 1).rsqrt(); x.reciprocal(); x.erf(); x.erfc(); "
        "(x * 0.2).erfinv(); (x.abs() + 1).lgamma()"
    ),
    "trigonometry": (
        "x.cos(); x.sin(); x.tan(); x.tanh(); x.sinh(); x.cosh(); x.atan(); torch.asin(x * 0.2); "
        "torch.acos(x * 0.2); torch.atanh(x * 0.2); torch.acosh(x.abs() + 1); torch.asinh(x)"
    ),
    "activations": (
        "x.relu(); x.sigmoid(); F.silu(x); F.gelu(x); F.gelu(x, approximate='tanh'); "
        "F.softplus(x, 1.0, 20.0); F.threshold(x, 0.1, 0.2); F.leaky_relu(x, 0.1); "
        "F.hardtanh(x); F.elu(x); F.relu6(x); F.hardswish(x); x.type_as(y) * 2; x.to(y.dtype) + 1"
    ),
    "comparisons": (
        "x == y; x != y; x > y; x >= y; x < y; x <= y; x == 1.0; x > 0.5; x.isfinite(); x.isinf(); "
        "x.isnan(); x.isneginf(); x.isposinf(); x.isreal(); (x > y) & (y > 0); (x > y) | (y > 0); "
        "(x > y) ^ (y > 0); ~(x > y)"
    ),
    "views": (
        "x.view(-1) + 1; x.reshape(-1) * 2; x.flatten(0, 1) + y.flatten(); "
        "(x + 1).permute(1, 0) * 2; x.transpose(0, 1) * 2; x.t() + 1; x.unsqueeze(0) * y; "
        "x.unsqueeze(1).squeeze(1) + y; b.expand(3, -1) * 2; b.expand_as(x) + x"
    ),
    "reductions": (
        "x.sum([1]); x.mean([1], True); x.amax([1]); x.amin([1], True); x.var([1]); "
        "x.std([1], False); x.softmax(1); x.log_softmax(1)"
    ),
    "norms": "F.layer_norm(x, [x.size(1)], w, b, 1e-5); F.layer_norm(x, [x.size(1)]) * 2",
    "parts": "x.index_select(1, i) * 2; x.gather(1, i.expand(x.size(0), -1)) + 1",
}
# The second script of each is a sum over the ops, differentiated.
WITH_GRADIENTS = {
    "arithmetic": "x + y; x - y * 2; x * y; x / (y * y + 1); x ** 2; torch.where(x > y, x, y); "
    "torch.rsub(x, 2.0); torch.lerp(x, y, 0.25); torch.addcmul(x, y, x, value=0.5)",
    "functions": "x.exp(); (x.abs() + 1).log(); (x * x + 1).sqrt(); (x * x + 1).rsqrt(); x.erf(); "
    "x.sin(); x.cos(); x.tanh(); x.sigmoid(); x.relu(); F.gelu(x); F.silu(x); x.neg(); "
    "F.hardswish(x); F.leaky_relu(x, 0.1)",
    "reductions": "x - x.mean([1], True); x.softmax(1); x.log_softmax(1); "
    "x * x.var([1], True, True); "
    "F.layer_norm(x, [x.size(1)], w, b)",
    "views": "x.t().t() * y; x.view(-1).view(x.size(0), x.size(1)) * 2; b.expand_as(x) * x",
}


def batch_source(ops: str) -> str:
    arguments = ", ".join(f"{name}: Tensor" for name in "xywbi")
    lines = [f"r{n} = {op.strip()}" for n, op in enumerate(ops.split(";"))]
    names = ", ".join(f"r{n}" for n in range(len(lines)))
    body = "\n    ".join([*lines, f"return [{names}]"])
    return f"def f({arguments}) -> List[Tensor]:\n    {body}\n".replace(
        "F.", "torch.nn.functional."
    )


def eager(source: str) -> Any:
    from typing import List  # noqa: UP035

    names = {"torch": torch, "Tensor": torch.Tensor, "List": List}  # noqa: UP006
    exec(source, names)
    return names["f"]


def batch_inputs(shape: tuple[int, int], dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(shape[0])
    vectors = [torch.randn(shape[1], generator=generator, dtype=torch.float64) for _ in range(2)]
    tensors = [torch.rand(shape, generator=generator, dtype=torch.float64) * 4 - 2 for _ in "xy"]
    return [*(t.to(dtype) for t in [*tensors, *vectors]), torch.tensor([0, 2, 1])]


DTYPES = [torch.float32, torch.bfloat16, torch.float64]


OPS = [
    (batch, dtype)
    for batch in BATCHES
    for dtype in DTYPES
    if thorough() or dtype == torch.float32 or (batch, dtype) == ("norms", torch.bfloat16)
]


@pytest.mark.parametrize(("batch", "dtype"), OPS, ids=str)
def test_ops(batch: str, dtype: torch.dtype) -> None:
    """Scripted against eager, at shapes that the script was not warmed up on."""
    source = batch_source(BATCHES[batch])
    expected = eager(source)
    f = torch.jit.CompilationUnit(source).f
    unfused = torchscript.counters()["fallbacks"]
    for shape in [(3, 8), (3, 8), (3, 8), (3, 6), (3, 12)]:
        inputs = batch_inputs(shape, dtype)
        for place, (a, b) in enumerate(zip(f(*inputs), expected(*inputs), strict=True)):
            assert a.dtype == b.dtype, place
            try:
                assert_same([a], [b], 2)
            except AssertionError as error:
                raise AssertionError(BATCHES[batch].split(";")[place]) from error
    assert torchscript.counters()["fallbacks"] == unfused
    assert groups(f.graph_for(*inputs)) == 1


@pytest.mark.parametrize("batch", WITH_GRADIENTS)
def test_gradients(batch: str) -> None:
    terms = " + ".join(f"({op.strip()})" for op in WITH_GRADIENTS[batch].split(";"))
    source = f"def f(x: Tensor, y: Tensor, w: Tensor, b: Tensor):\n    return {terms}\n"
    source = source.replace("F.", "torch.nn.functional.")
    expected, f = eager(source), torch.jit.CompilationUnit(source).f
    unfused = torchscript.counters()["fallbacks"]
    for shape in [(3, 8), (3, 8), (3, 8), (4, 6)]:
        inputs = [t.requires_grad_() for t in batch_inputs(shape, torch.float32)[:4]]
        assert_same(with_gradients(f, inputs), with_gradients(expected, inputs), 32)
    assert torchscript.counters()["fallbacks"] == unfused
    assert groups(f.graph_for(*inputs)) == 1


# ---- switches and errors


def test_fuser2_is_ours_while_enabled() -> None:
    source = "def f(x: Tensor):\n    return (x + 1).relu() * 2\n"
    x = torch.randn(4)
    with torch.jit.fuser("fuser2"):
        f = compiled(source)
        for _ in range(3):
            f(x)
        assert groups(f.graph_for(x)) == 1
    with torch.jit.fuser("none"):
        f = compiled(source)
        for _ in range(3):
            f(x)
        assert groups(f.graph_for(x)) == 0
    f = compiled(source)
    for _ in range(3):
        f(x)
    assert groups(f.graph_for(x)) == 1


def test_the_switch_leaves_others_alone() -> None:
    def switches() -> list[bool]:
        return [
            torch._C._jit_texpr_fuser_enabled(),
            torch._C._jit_can_fuse_on_cpu(),
            torch._C._jit_can_fuse_on_gpu(),
        ]

    before = switches()
    fuser.enable_torchscript_fuser()
    assert switches() == before
    fuser.enable_torchscript_fuser(False)
    assert switches() == before


def test_what_cannot_be_written_runs_unfused(
    monkeypatch: pytest.MonkeyPatch, set_option: Any
) -> None:
    def refuse(*_: Any) -> Any:
        raise Unsupported("not today", rule="script-output")

    monkeypatch.setattr(torchscript, "write_definition", refuse)
    x = torch.randn(4)
    f = compiled("def f(x: Tensor):\n    return (x + 1).relu() * 2\n")
    unfused = torchscript.counters()["fallbacks"]
    f(x)
    with pytest.warns(UserWarning, match="not today"):
        f(x)
    for _ in range(2):
        assert_same([f(x)], [(x + 1).relu() * 2])
    assert torchscript.counters()["fallbacks"] > unfused
    set_option("FUSER_STRICT", 1)
    f = compiled("def f(x: Tensor):\n    return (x + 1).relu() * 2\n")
    f(x)
    with pytest.raises(RuntimeError, match="not today"):
        f(x)


def test_the_environment_switches_it_on() -> None:
    program = "import fuser; from fuser.adapters import torchscript as t; print(t._state, t._on)"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FUSER_TORCHSCRIPT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "(True, False) True"


# ---- random scripts

UNARY = ["relu", "sigmoid", "tanh", "exp", "neg", "abs", "sin"]
BINARY = ["+", "-", "*"]


def random_script(rng: np.random.Generator) -> str:
    """A function of x and y [n, m], b [m] or None, a number and a flag; differentiable."""
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


@pytest.mark.parametrize("number", range(SCRIPTS))
def test_random_scripts(number: int) -> None:
    from typing import Optional

    source = random_script(np.random.default_rng([20260, number]))
    names: dict[str, Any] = {"torch": torch, "Tensor": torch.Tensor, "Optional": Optional}
    exec(source, names)
    f = torch.jit.CompilationUnit(source).f
    unfused = torchscript.counters()["fallbacks"]
    for turn, shape in enumerate([(3, 8), (3, 8), (3, 8), (4, 8), (5, 6)]):
        generator = torch.Generator().manual_seed(turn)
        tensors = [torch.randn(shape, generator=generator) for _ in "xy"]
        for t in tensors:
            t.requires_grad_(number % 3 != 0)
        b = torch.rand(shape[1], generator=generator) if number % 2 else None
        rest = (b, 0.75, number % 4 < 2)
        try:
            expected = with_gradients(names["f"], tensors, *rest)
        except RuntimeError:
            continue  # eager refuses to change what a gradient needs
        assert_same(with_gradients(f, tensors, *rest), expected, 32)
    assert torchscript.counters()["fallbacks"] == unfused, source
