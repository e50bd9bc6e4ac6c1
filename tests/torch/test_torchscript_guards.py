"""fuser.adapters.torchscript: scripts that must not be fused, and the selection of definitions."""

from __future__ import annotations

import gc
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from fuser import FusionDefinition
from fuser.adapters import torchscript
from tests.adapters.script_ops import eager
from tests.support.scripts import assert_same, compiled, counted, fused, groups


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused():
        yield


# ---- aliases that torch's passes do not know of

GIVEN_BACK = {
    "dropout": "torch.dropout(v, p, trains)",
    "feature_dropout": "torch.feature_dropout(v, p, trains)",
    "alpha_dropout": "torch.alpha_dropout(v, p, trains)",
    "dropout-evaluating": "torch.dropout(v, 0.5, False)",
    "dropout-of-nothing": "torch.dropout(v, 0.0, True)",
    "sum_to_size": "v.sum_to_size([3, 4])",
    "atleast_1d": "torch.atleast_1d(v)",
    "conj_physical": "torch.conj_physical(v)",
    "einsum": "torch.einsum('ij->ij', [v])",
    "type_as": "v.type_as(x)",
}


@pytest.mark.parametrize("written", ["z", "v"])
@pytest.mark.parametrize("op", GIVEN_BACK)
def test_an_op_in_place_on_what_was_given_back(op: str, written: str) -> None:
    source = f"""\
def f(x: Tensor, p: float, trains: bool):
    v = x * 2
    z = {GIVEN_BACK[op]}
    w = z * 3
    {written} += 1
    return v * 2, z * 2, w
"""
    f, expected = compiled(source), eager(source)
    x = torch.randn(3, 4)
    for p, trains in ((0.5, False), (0.5, False), (0.5, False), (0.0, True), (0.5, False)):
        assert_same(f(x, p, trains), expected(x, p, trains))


def test_an_op_in_place_behind_a_dropout_that_is_alone_is_fused() -> None:
    """The operand of the dropout has no other readers, so the in-place op is fused."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            y = self.dropout(x * 2)
            y += x
            return torch.tanh(y)

    scripted = torch.jit.script(Block().eval())
    x = torch.randn(3, 4)
    for _ in range(4):
        assert_same([scripted(x)], [torch.tanh(x * 2 + x)])
    assert groups(scripted.graph_for(x)) == 1


LOOPS = {
    "for": """\
    for i in range(n):
        v = v + 1
""",
    "while": """\
    i = 0
    while i < n:
        v = v + 1
        i += 1
""",
    "tuple": """\
    carried = (v, v * 3)
    for i in range(n):
        carried = (carried[0] + 1, carried[1])
    v = carried[0]
""",
}


@pytest.mark.parametrize("written", ["v", "x"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_runs_no_time(loop: str, written: str) -> None:
    source = f"""\
def f(x: Tensor, n: int):
    v = x
{LOOPS[loop]}    y = x / 2
    w = v / 4
    {written}.mul_(0)
    return torch.exp(y), torch.exp(w), v
"""
    f, expected = compiled(source), eager(source)
    for n in (2, 2, 2, 0, 1, 0):
        assert_same(f(torch.ones(2), n), expected(torch.ones(2), n))


CHAINS = {
    "one after the other": """
        y = x * 2 + 1
        z = torch.dropout(y, 0.5, False)
        w = torch.dropout(z, 0.5, False)
        w.mul_(2)
        return y * 3 + 1, w
        """,
    "of an input": """
        z = torch.dropout(x, 0.5, False)
        w = z.type_as(x)
        w.mul_(2)
        return x * 3 + 1, w
        """,
    "twice of one tensor": """
        y = x * 2 + 1
        z = torch.dropout(y, 0.5, False)
        w = torch.alpha_dropout(y, 0.5, False)
        z.mul_(2)
        return w * 3 + 1, z
        """,
    "one of a list": """
        y = x * 2 + 1
        z = x.sum_to_size([2, 2])
        l = [z, y][n % 2]
        l += 1
        return y * 3 + 1, x * 1
        """,
    "one of two before a loop": """
        a = x * 2
        c = x * 3
        if n > 1:
            g = a
        else:
            g = c
        for i in range(n):
            g = a
        p = g * 2
        c.mul_(3)
        return p + 1, c, g - 1
        """,
    "another one in the next turn": """
        a = x * 2 + 1
        b = a + x
        for i in range(n - 1):
            for j in range(n - 1):
                a[0].add_(1)
            for k in range(n):
                a = b
        return b * 3 + 1, a * 2
        """,
    **{
        op: f"""
        y = x * 2 + 1
        z = {op}
        z.mul_(2)
        return y * 3 + 1, z
        """
        for op in (
            "y.to_dense()",
            "torch.dequantize(y)",
            "torch._cast_Float(y)",
            "torch.unsafe_chunk(y, 1)[0]",
            "torch.unsafe_split(y, 3)[0]",
        )
    },
}


@pytest.mark.parametrize("body", CHAINS.values(), ids=CHAINS.keys())
def test_several_names_of_one_tensor(body: str) -> None:
    source = f"def f(x: Tensor, n: int):\n{textwrap.indent(textwrap.dedent(body[1:]), '    ')}\n"
    f, expected = compiled(source), eager(source)
    for n in (2, 2, 2, 1, 0, 3):
        x, y = torch.ones(2, 2), torch.ones(2, 2)
        assert_same([*f(x, n), x], [*expected(y, n), y])


def test_sums_in_place_in_a_loop_are_fused() -> None:
    source = """\
def f(x: Tensor, n: int):
    total = torch.zeros_like(x)
    h = x
    for i in range(n):
        h = torch.tanh(h * 2 + 1)
        total += h
    return total * 2 + 1
"""
    f, expected, x = compiled(source), eager(source), torch.randn(3, 4)
    for n in (3, 3, 3, 0, 1):
        assert_same([f(x, n)], [expected(x, n)])
    assert groups(f.graph_for(x, 3)) > 0


# ---- tensor wrappers and modes see each op

TANH = "def f(x: Tensor, y: Tensor):\n    return torch.tanh(x * y) * y + 1\n"


def tanh_fused() -> tuple[Any, Any, Tensor, Tensor]:
    f, x, y = compiled(TANH), torch.randn(3, 4), torch.randn(4)
    for _ in range(3):
        f(x, y)
    assert groups(f.graph_for(x, y)) == 1
    return f, eager(TANH), x, y


def test_transforms_of_torch_func_within_each_other() -> None:
    f, expected, x, y = tanh_fused()
    grad, jvp = torch.func.grad, torch.func.jvp
    ways: list[Any] = [
        lambda h: grad(lambda a: grad(lambda b: h(b, y).sum())(a).sum())(x),
        lambda h: torch.func.hessian(lambda a: h(a, y).sum())(x),
        lambda h: jvp(grad(lambda a: h(a, y).sum()), (x,), (torch.ones_like(x),))[1],
        lambda h: torch.func.vmap(lambda a: h(a, y))(x),
        lambda h: torch.func.functionalize(lambda a: h(a, y))(x),
    ]
    for way in ways:
        for _ in range(4):
            torch.testing.assert_close(way(f), way(expected), rtol=1e-5, atol=1e-5)
    before = torchscript.counters()
    assert_same([f(x, y)], [expected(x, y)])
    assert counted("runs", before) == 1, "and it is still fused"


def test_a_trace_sees_the_ops() -> None:
    f, expected, x, y = tanh_fused()
    traced = make_fx(lambda a: f(a, y))(x)
    assert_same([traced(x + 1)], [expected(x + 1, y)])
    seen: list[str] = []

    class Listen(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Listen():
        f(x, y)
    assert "aten.tanh.default" in seen


# ---- selection of a definition


def test_the_default_dtype() -> None:
    source = "def f(x: Tensor):\n    return torch.exp(x * 0.5) + 1, x / 3 * 2\n"
    f, expected, x = compiled(source), eager(source), torch.tensor([1, 2])
    for dtype in (torch.float32,) * 4 + (torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            got, wanted = f(x), expected(x)
        finally:
            torch.set_default_dtype(torch.float32)
        assert [t.dtype for t in got] == [dtype] * 2
        assert_same(got, wanted)


@pytest.mark.parametrize("limits", ["-a, a", "-a, None", "None, a"])
def test_limits_of_the_run_share_a_definition(limits: str) -> None:
    source = f"def f(x: Tensor, a: float):\n    return torch.clamp(x, {limits}) * 2\n"
    f, expected, x = compiled(source), eager(source), torch.randn(30, 30)
    f(x, 0.5), f(x, 0.5)
    before = torchscript.counters()
    for i in range(20):
        assert_same([f(x, 0.5 + i / 16)], [expected(x, 0.5 + i / 16)])
    assert counted("runs", before) == 20
    assert counted("definitions", before) <= 1


def test_a_limit_of_the_run_for_integers_is_one() -> None:
    source = "def f(x: Tensor, t: float):\n    return torch.threshold(x * 1, t, 1.0) + 1\n"
    f, expected, x = compiled(source), eager(source), torch.arange(-2, 3)
    for _ in range(4):
        assert_same([f(x, -0.5)], [expected(x, -0.5)])


@pytest.mark.parametrize("eps", [0.1, 0.5, 0.9])
def test_limits_of_a_logit_that_cross(eps: float) -> None:
    source = "def f(x: Tensor, e: float):\n    return torch.logit(x * 1, e) + 1\n"
    f, expected, x = compiled(source), eager(source), torch.tensor([0.1, 0.5, 0.9, 1.0])
    for _ in range(4):
        assert_same([f(x, eps)], [expected(x, eps)])


def test_values_without_end_are_left_to_eager() -> None:
    """A value that selects the definition, e.g. a number of decimals, creates a limited number of
    definitions."""
    source = "def f(x: Tensor, n: int):\n    return torch.round(x, decimals=n) * 2\n"
    f, expected, x = compiled(source), eager(source), torch.randn(4, dtype=torch.float64)
    f(x, 1), f(x, 1)
    before = torchscript.counters()
    for n in range(-60, 70):
        assert_same([f(x, n)], [expected(x, n)])
    assert 90 <= counted("definitions", before) <= 100


# ---- memory


def test_definitions_go_with_their_scripts() -> None:
    def alive() -> int:
        gc.collect()
        return sum(isinstance(o, FusionDefinition) for o in gc.get_objects())

    def run_once() -> None:
        f, x, y = compiled(TANH), torch.randn(4, 5), torch.randn(5)
        before = torchscript.counters()
        for _ in range(3):
            f(x, y)
        assert counted("definitions", before) == 1

    run_once()
    run_once()
    before = alive()
    for _ in range(10):
        run_once()
    assert alive() <= before + 1
