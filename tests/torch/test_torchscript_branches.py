"""csrc/torch/script/torchscript: branches, loops, optional tensors, and biases of matrix
products.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fuser.adapters import torchscript
from tests.adapters.script_ops import eager
from tests.support.scripts import (
    assert_same,
    compiled,
    fallbacks,
    fused,
    groups,
    last_graph,
    warmed,
    with_gradients,
)


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused():
        yield


@pytest.mark.parametrize(
    "variance",
    ["y.var([1], True, True)", "y.std([-1], False, True)", "torch.var_mean(y, [1], True, True)[0]"],
)
def test_the_gradient_of_a_variance_is_one_group(variance: str) -> None:
    """Torch computes this gradient in branches on ranks, which read sizes."""
    body = f"    y = x * w\n    v = {variance}\n    return y / (v + 1) + 1\n"
    names: dict[str, Any] = {"torch": torch}
    exec(f"def f(x, w):\n{body}", names)
    f = torch.jit.CompilationUnit(f"def f(x: Tensor, w: Tensor):\n{body}").f
    for shape in [(4, 8)] * 4 + [(3, 8), (5, 6)]:
        x, w = torch.randn(shape, requires_grad=True), torch.rand(shape[1:], requires_grad=True)
        assert_same(with_gradients(f, [x, w]), with_gradients(names["f"], [x, w]), 8)
    assert groups(f.graph_for(x, w)) == groups(last_graph()) == 1


def test_branches_that_follow_sizes_stay_outside() -> None:
    def grows(x: torch.Tensor, deep: bool) -> torch.Tensor:
        y = x * 2 + 1
        if deep:
            if x.size(0) > 4:
                y = y.tanh() * 2
            for _ in range(x.size(1) - 6):
                y = (y + 1).sin() * x.numel()
        return (y + 1) * 3

    f = warmed(grows, torch.randn(4, 8), True)
    unfused = fallbacks()
    for shape in [(4, 8), (5, 8), (3, 7), (6, 1)]:
        x = torch.randn(shape)
        for deep in (True, False):
            assert_same([f(x, deep)], [grows(x, deep)], 16)
    assert fallbacks() == unfused


def test_the_body_of_a_loop_is_a_group_for_any_number_of_turns() -> None:
    def iterated(x: torch.Tensor, turns: int) -> torch.Tensor:
        y = x
        for _ in range(turns):
            y = (y * 1.5 + x).tanh() * 0.5
        return y

    x = torch.randn(4, 8)
    f = warmed(iterated, x, 3)
    assert groups(f.graph_for(x, 3)) >= 1
    before = torchscript.counters()
    for turns in (3, 1, 0, 5, 10, 17):
        assert_same([f(x, turns)], [iterated(x, turns)], 8)
    after = torchscript.counters()
    assert after["definitions"] <= before["definitions"] + 1  # eight iterations, unrolled by torch
    assert after["fallbacks"] == before["fallbacks"]
    assert after["runs"] - before["runs"] == 3 + 1 + 0 + 5 + (1 + 2) + (2 + 1)


def test_optional_arguments_and_branches() -> None:
    def maybe(x: torch.Tensor, b: torch.Tensor | None, scale: bool) -> torch.Tensor:
        y = x.exp() + 1
        if b is not None:
            y = y + b
        if scale:
            y = y * 2.0
        return y.log()

    x = torch.randn(4, 8)
    f = torch.jit.script(maybe)
    for _ in range(3):
        for b in (None, torch.ones(8)):
            for scale in (True, False):
                assert_same([f(x, b, scale)], [maybe(x, b, scale)])


def test_a_bias_is_added_by_what_follows() -> None:
    def line(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).relu()

    x, w, b = (torch.randn(s, requires_grad=True) for s in [(4, 8), (3, 8), (3,)])
    f = torch.jit.script(line)
    for _ in range(4):
        assert_same(with_gradients(f, [x, w, b]), with_gradients(line, [x, w, b]), 4)
    assert groups(f.graph_for(x, w, b)) == 1

    def alone(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b)

    assert groups(warmed(alone, x, w, b).graph_for(x, w, b)) == 0


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("made_by", ["trace", "freeze", "script"])
def test_a_bias_of_a_convolution_is_added_by_what_follows(dims: int, made_by: str) -> None:
    """In a plain script the bias is an Optional."""
    conv = torch.nn.Conv1d if dims == 1 else torch.nn.Conv2d
    model = torch.nn.Sequential(conv(3, 4, 3, padding=1), torch.nn.ReLU()).eval()
    x = torch.randn(2, 3, *[8] * dims)
    f = torch.jit.trace(model, x) if made_by == "trace" else torch.jit.script(model)
    if made_by == "freeze":
        f = torch.jit.freeze(f)
    unfused = fallbacks()
    with torch.no_grad():
        for _ in range(3):
            assert_same([f(x)], [model(x)], 4)
        assert groups(f.graph_for(x)) == 1
        for autocast in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                got, expected = f(x), model(x)
            assert got.dtype == expected.dtype
            assert_same([got], [expected], 4)
    assert fallbacks() == unfused
    if made_by == "script":  # the parameters' gradients fail the guard
        for _ in range(3):
            assert_same(with_gradients(f, [x]), with_gradients(model, [x]), 4)
            wanted = list(model.parameters())
            got, expected = (torch.autograd.grad(g(x).sum(), wanted) for g in (f, model))
            assert_same(got, expected, 64)


def test_the_other_side_of_a_guard_adds_a_bias_too() -> None:
    def line(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        return F.linear(x, w, b).relu()

    x, w, b = torch.randn(4, 8), torch.randn(3, 8), torch.randn(3)
    f = warmed(line, x, w, b)
    assert groups(f.graph_for(x, w, b)) == 1
    for bias in (b, None):
        for given in (x, x[None], x.double()):
            args = (given, w.to(given.dtype), None if bias is None else bias.to(given.dtype))
            assert_same([f(*args)], [line(*args)], 4)


def test_optional_tensors_in_a_group() -> None:
    """The presence of an optional tensor selects the definition; a tensor that requires a gradient
    fails the guard."""

    def normed(
        x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, n: int
    ) -> torch.Tensor:
        return F.layer_norm(x + 1, [n], w, b) * 2

    x, w, b = torch.randn(4, 8), torch.randn(8), torch.randn(8)
    f = warmed(normed, x, w, None, 8)
    unfused = fallbacks()
    for given in [(w, None), (None, None), (w, b), (None, b)]:
        assert_same([f(x, *given, 8)], [normed(x, *given, 8)], 4)
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, w, b, 8)) == 1
    for _ in range(4):
        weight = w.clone().requires_grad_()
        got, expected = f(x, weight, b, 8), normed(x, weight, b, 8)
        assert_same([got.detach()], [expected.detach()], 4)
        gradients = [torch.autograd.grad(y.sum(), weight)[0] for y in (got, expected)]
        assert_same(gradients[:1], gradients[1:], 4)


def test_branches_that_ask_for_none_are_in_a_group() -> None:
    """The presence of arguments selects the definition; values of numbers and profiles do not."""

    def maybe(
        x: torch.Tensor, y: torch.Tensor | None, scale: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        z = x * 2
        z = z * y + 1 if y is not None else z + 2
        if scale is not None:
            z = z * scale
        return z.relu(), z + 1

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    f = warmed(maybe, x, None, None)
    unfused = fallbacks()
    for other in (y, None, torch.randn(8), torch.randn(4, 8, dtype=torch.float64)):
        for scale in (None, 2.5):
            assert_same(f(x, other, scale), maybe(x, other, scale), 2)
    before = torchscript.counters()["definitions"]
    for scale in (0.5, 3.25, -7.0):
        assert_same(f(x, y, scale), maybe(x, y, scale), 2)
    assert torchscript.counters()["definitions"] == before
    assert fallbacks() == unfused
    graph = f.graph_for(x, y, 2.5)
    assert groups(graph) == 1
    assert not {n.kind() for n in graph.nodes()} & {"aten::add", "aten::mul", "aten::relu"}
    weight = y.clone().requires_grad_()
    for _ in range(4):
        got, expected = f(x, weight, 2.5)[0], maybe(x, weight, 2.5)[0]
        gradients = [torch.autograd.grad(r.sum(), weight)[0] for r in (got, expected)]
        assert_same([got.detach(), gradients[0]], [expected.detach(), gradients[1]], 4)


def test_a_branch_that_gives_back_an_optional_argument() -> None:
    def default(x: torch.Tensor, y: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        z = x * 2 + 1
        out = z.relu()
        if y is not None:
            out = y
        return out, (z * 3).tanh()

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    f = warmed(default, x, y)
    for other in (y, None):
        assert_same(f(x, other), default(x, other))
    assert f(x, y)[0] is y


def test_a_branch_that_gives_back_what_it_was_given() -> None:
    """A branch that returns its argument must not be fused, because a group would return a copy;
    ops before and after it are fused."""

    def either(x: torch.Tensor, y: torch.Tensor, grow: bool) -> tuple[torch.Tensor, torch.Tensor]:
        z = (x * 2 + 1).relu()
        out = y
        if grow:
            out = (z + y).tanh()
        rows = z
        if not grow:
            rows = (z + 1) * 2
        return out, (rows * 3 + y).relu()

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    f = warmed(either, x, y, True)
    unfused = fallbacks()
    for grow in (True, False):
        assert_same(f(x, y, grow), either(x, y, grow))
    assert f(x, y, False)[0] is y
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, y, True)) >= 1


def test_branches_one_after_another_are_one_group() -> None:
    """Consecutive branches form one group, also if the first may return an argument, because only
    ops read it."""

    def steps(x: torch.Tensor, scale: bool, shift: bool) -> torch.Tensor:
        y = x
        if scale:
            y = y * 2
        if shift:
            y = y + 1
        return y.relu() * 3

    x = torch.randn(4, 8)
    f = warmed(steps, x, True, True)
    unfused = fallbacks()
    for scale in (True, False):
        for shift in (True, False):
            assert_same([f(x, scale, shift)], [steps(x, scale, shift)])
    assert fallbacks() == unfused
    graph = f.graph_for(x, True, True)
    assert groups(graph) == 1
    assert not [n for n in graph.nodes() if n.kind().startswith("aten::")]


@pytest.mark.parametrize("op", ["F.dropout(x, 0.5, training=False)", "x.type_as(y)"])
def test_what_an_op_without_effect_gives_back(op: str) -> None:
    result = "(F.dropout(y, 0.0) * z).relu()"
    source = f"def f(x: Tensor, y: Tensor):\n    z = {op}\n    return z, {result}\n"
    source = source.replace("F.", "torch.nn.functional.")
    kept = eager(source)

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    f = torch.jit.CompilationUnit(source).f
    for _ in range(3):
        f(x, y)
    assert f(x, y)[0].data_ptr() == x.data_ptr()
    assert_same(f(x, y), kept(x, y))
    assert groups(f.graph_for(x, y)) == 1


def test_a_branch_of_several_ops_is_a_group() -> None:
    def either(x: torch.Tensor, scale: bool) -> torch.Tensor:
        return (x * 2 + 1).relu() if scale else x

    x = torch.randn(4, 8)
    f = warmed(either, x, True)
    for scale in (True, False):
        assert_same([f(x, scale)], [either(x, scale)])
    assert groups(f.graph_for(x, True)) == 1


@pytest.mark.parametrize("wanted", ["wb", "xwb", "b", "xb"])
def test_a_gradient_that_nobody_wants_leaves_the_others_fused(wanted: str) -> None:
    """In a layer norm at the input of a network, the input needs no gradient; the remaining
    gradients are fused."""

    def front(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.layer_norm(x, [8], w, b)) * 2

    f = torch.jit.script(front)
    for _ in range(4):
        tensors = [
            torch.randn(s, requires_grad=n in wanted)
            for n, s in [("x", (4, 8)), ("w", 8), ("b", 8)]
        ]
        assert_same(with_gradients(f, tensors), with_gradients(front, tensors), 8)
    assert groups(last_graph()) == 1


def test_gradients_of_optional_tensors_are_one_group() -> None:
    def maybe(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        y = x * 2
        if b is not None:
            y = y + b
        return F.layer_norm(y.tanh(), [8], w, b) * 1.5

    f = torch.jit.script(maybe)

    def tensors() -> list[torch.Tensor]:
        return [torch.randn(s, requires_grad=True) for s in [(4, 8), (8,), (8,)]]

    for _ in range(5):
        given = tensors()
        assert_same(with_gradients(f, given), with_gradients(maybe, given), 8)
    assert groups(last_graph()) == 1
    for left in ((True, False), (False, True), (False, False), (True, True)):
        x, *others = tensors()
        kept = [x, *(t for t, there in zip(others, left, strict=True) if there)]

        def run(function: Any, *tensors: torch.Tensor, there: Any = left) -> torch.Tensor:
            rest = iter(tensors[1:])
            return function(tensors[0], *(next(rest) if t else None for t in there))

        got = with_gradients(lambda *t: run(f, *t), kept)
        assert_same(got, with_gradients(lambda *t: run(maybe, *t), kept), 8)


@pytest.mark.parametrize(
    "lines",
    [
        "z = F.dropout(x, 0.0); z.clamp_(min=0); return x * 2 + z",
        "y = x + 1; z = F.dropout(y, 0.5, training=False); y.relu_(); return (z * 2).tanh() + y",
        "y = x + 1; z = y.type_as(x); z.relu_(); return (y * 2).tanh() + z",
        "y = x + 1; y.relu_(); z = F.dropout(y, 0.5, training=False); return (z * 2).tanh()",
    ],
)
def test_a_write_to_what_was_given_back_is_seen(lines: str) -> None:
    """A write to an aliased tensor is visible. The last case writes before aliasing, and is fused.
    Torch itself removes dead ops."""
    body = "".join(f"    {line.strip()}\n" for line in lines.split(";"))
    source = f"def f(x: Tensor):\n{body}".replace("F.", "torch.nn.functional.")
    f, kept = torch.jit.CompilationUnit(source).f, eager(source)
    for _ in range(3):
        x, y = (torch.linspace(-2, 2, 32).view(4, 8) for _ in "xy")
        assert_same([f(x), x], [kept(y), y])
    assert groups(f.graph_for(x)) == ("y.relu_(); z" in lines)


def test_lists_of_operands_in_a_branch_are_in_the_group() -> None:
    source = """\
def f(x: Tensor, y: Tensor, z: Tensor, stacked: bool):
    a, b, c = x * 2, y * 2, z * 2
    if stacked:
        return torch.stack([a, b, c], dim=-1)
    return torch.cat([a + b, x + y + z])
"""
    f, plain = compiled(source), eager(source)
    unfused = fallbacks()
    for shape in [(4, 8)] * 3 + [(3, 8), (5, 1)]:
        given = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        for stacked in (True, False):
            assert_same(with_gradients(f, given, stacked), with_gradients(plain, given, stacked))
    with torch.no_grad():
        f = compiled(source)
        for _ in range(3):
            assert_same([f(*given, True)], [plain(*given, True)])
        assert groups(f.graph_for(*given, True)) == 1
        assert_same([f(*given, False)], [plain(*given, False)])
    assert fallbacks() == unfused


@pytest.mark.parametrize("last", ["both[0].add_(1)", "both.append(b)"])
def test_a_list_in_a_branch_that_is_changed_stays_outside(last: str) -> None:
    source = f"""\
def f(x: Tensor, y: Tensor, deep: bool):
    a, b = x * 2, y * 2
    if deep:
        both = [a, b]
        {last}
        a = torch.cat(both)
    return a + 1
"""
    f, plain = compiled(source), eager(source)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    for deep in (True, True, True, False):
        assert_same([f(x, y, deep)], [plain(x, y, deep)])


@pytest.mark.parametrize(
    "views", ["expand(2, 3, 5)", "expand_as(y)", "t()", "view(15)", "unsqueeze(0)"]
)
def test_views_of_one_op_are_a_group_under_strict_fusion(views: str) -> None:
    """Views of one op form a group under strict_fusion; each result has its own memory."""
    body = f"x = x.relu()\n        a = x.{views}\n        b = x.expand_as(y)\n"
    source = "def f(x: Tensor, y: Tensor):\n    {}\n        " + body + "    return a, b\n"
    f = compiled(source.format("with torch.jit.strict_fusion():"))
    plain, loose = eager(source.format("if True:")), compiled(source.format("if True:"))
    for _ in range(4):
        x, y = torch.randn(3, 5), torch.randn(2, 3, 5)
        assert_same(f(x, y), plain(x, y))
        assert_same(loose(x, y), plain(x, y))
    assert groups(f.graph_for(x, y)) == 1
    assert groups(loose.graph_for(x, y)) == 0
