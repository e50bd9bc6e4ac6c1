"""csrc/torch/script/torchscript: groups, guards, and their fallbacks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import fuser
from benchmarks.tutorial import composite, primitive, rms
from fuser.adapters import torchscript
from tests.adapters.script_ops import eager
from tests.support.scripts import (
    assert_same,
    fallbacks,
    fused,
    groups,
    last_graph,
    tutorial_inputs,
    warmed,
    with_gradients,
)


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused():
        yield


def gate(x: torch.Tensor, y: torch.Tensor, a: float) -> torch.Tensor:
    z = (x + y) * a
    return torch.sigmoid(z) + x


def test_a_pointwise_function_is_one_group_at_any_shape() -> None:
    f = warmed(gate, torch.randn(4, 8), torch.randn(8), 2.0)
    written, unfused = torchscript.counters()["definitions"], fallbacks()
    for rows, columns, a in [(4, 8, 2.0), (5, 8, 0.5), (3, 16, -1.0), (7, 9, 3.0)]:
        x, y = torch.randn(rows, columns), torch.randn(columns)
        assert_same([f(x, y, a)], [gate(x, y, a)])
    assert groups(f.graph_for(torch.randn(4, 8), torch.randn(8), 2.0)) == 1
    assert fallbacks() == unfused
    assert torchscript.counters()["definitions"] == written


def test_sizes_of_one_and_none_choose_definitions_of_their_own() -> None:
    f = warmed(gate, torch.randn(4, 8), torch.randn(8), 2.0)
    for x, y in [((4, 1), (8,)), ((1, 8), (1,)), ((0, 8), (8,)), ((4, 8), (1,))]:
        a, b = torch.randn(x), torch.randn(y)
        assert_same([f(a, b, 2.0)], [gate(a, b, 2.0)])


@pytest.mark.parametrize("change", ["dtype", "rank", "requires_grad", "strides"])
def test_a_failed_guard_runs_the_function_all_the_same(change: str) -> None:
    f = warmed(gate, torch.randn(4, 8), torch.randn(8), 2.0)
    x, y = torch.randn(4, 8), torch.randn(8)
    x = {
        "dtype": x.double(),
        "rank": x[None],
        "requires_grad": x.clone().requires_grad_(),
        "strides": torch.randn(8, 4).t(),
    }[change]
    for _ in range(4):
        assert_same(with_gradients(f, [x, y], 2.0), with_gradients(gate, [x, y], 2.0))


@pytest.mark.parametrize(
    ("function", "vectors", "rest", "backward"),
    [
        (composite, 3, (2, 0.0), 1),
        (primitive, 3, (2, 0.0, True), 2),
        (rms, 2, (2, 0.0, True), 2),
    ],
    ids=["composite", "primitive", "rms"],
)
def test_the_tutorial_trains_in_one_group_and_few_backward(
    function: Any, vectors: int, rest: Any, backward: int
) -> None:
    """Axis and keepdim are arguments of the group; new shapes create no definitions."""
    f = torch.jit.script(function)
    for _ in range(4):
        with_gradients(f, tutorial_inputs((4, 8), 16, vectors), *rest)
    assert 1 <= groups(last_graph()) <= backward
    before = torchscript.counters()
    for rows in [(4, 8), (5, 8), (6, 7), (3, 9)]:
        tensors = tutorial_inputs(rows, 16, vectors)
        expected = with_gradients(function, tensors, *rest)
        assert_same(with_gradients(f, tensors, *rest), expected, 4)
    after = torchscript.counters()
    assert after["definitions"] == before["definitions"]
    assert after["fallbacks"] == before["fallbacks"]
    assert groups(f.graph_for(*tensors, *rest)) == 1


def test_dropout_drops_its_share_and_scales_gradients_alike() -> None:
    def dropped(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.dropout(x + b, 0.25, training=True) * 2.0

    f = torch.jit.script(dropped)
    for _ in range(4):
        x = torch.ones(64, 128, requires_grad=True)
        y = f(x, torch.ones(128))
        y.sum().backward()
    share = (y == 0).float().mean().item()
    assert abs(share - 0.25) < 0.03
    assert x.grad is not None
    assert_same([x.grad], [torch.where(y.detach() == 0, 0.0, 2.0 / 0.75)])


def test_in_place_ops_on_fresh_tensors_are_fused() -> None:
    def activate(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y.mul_(2.0)
        y.relu_()
        return y

    x = torch.randn(4, 8)
    f = warmed(activate, x)
    assert_same([f(x)], [activate(x)])
    graph = f.graph_for(x)
    assert groups(graph) == 1
    assert "aten::relu_" not in str(graph).split("fallback")[0]


def test_in_place_ops_on_fresh_tensors_take_others() -> None:
    """An in-place op on a fresh tensor is fused if its other operands were profiled and the kind of
    its result is known."""

    def mix(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z.masked_fill_(mask, 0.5)
        z.add_(y)
        z.lerp_(y, 0.25)
        return z + 1

    x, y, mask = torch.randn(4, 8), torch.randn(4, 8), torch.rand(4, 8) > 0.5
    f = warmed(mix, x, y, mask)
    assert_same([f(x, y, mask)], [mix(x, y, mask)])
    graph = f.graph_for(x, y, mask)
    assert groups(graph) == 1
    inner = graph.findNode("prim::CudaFusionGroup").g("Subgraph")
    assert {n.kind() for n in inner.nodes()} >= {"aten::masked_fill", "aten::lerp"}
    assert not [n for n in graph.nodes() if n.kind().startswith("aten::")]


@pytest.mark.parametrize("op", ["add_(y)", "eq_(y)", "logical_not_()"])
def test_ops_in_place_keep_the_type_of_their_memory(op: str) -> None:
    source = f"def f(x: Tensor, y: Tensor):\n    z = x * 2\n    z.{op}\n    return (z + 1) * z\n"
    f, plain = torch.jit.CompilationUnit(source).f, eager(source)
    x, y = torch.randn(4, 8).bfloat16(), torch.randn(4, 8)
    for _ in range(3):
        assert_same([f(x, y)], [plain(x, y)])


def test_views_in_place_have_sizes_of_their_own() -> None:
    def turn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z.unsqueeze_(0)
        z.transpose_(1, 2)
        return z + y

    x, y = torch.randn(4, 8), torch.randn(8, 4)
    f = warmed(turn, x, y)
    assert_same([f(x, y)], [turn(x, y)])
    assert f(x, y).stride() == turn(x, y).stride()


def test_in_place_ops_on_arguments_change_them() -> None:
    def accumulate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = (x * y).sigmoid()
        x.add_(z)
        return (x + z) * 2.0

    f = torch.jit.script(accumulate)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    expected = x.clone()
    for _ in range(4):
        assert_same([f(x, y)], [accumulate(expected, y)])
        assert_same([x], [expected])


def test_views_stay_views_for_the_caller() -> None:
    def split(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x * 2).relu()
        return y, y.view(-1)

    x = torch.randn(4, 8)
    y, flat = warmed(split, x)(x)
    assert flat.data_ptr() == y.data_ptr()
    assert_same([flat], [(x * 2).relu().view(-1)])

    def first(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t = x.t()
        return t, (t + 1) * 2

    t, moved = warmed(first, x)(x)
    assert t.data_ptr() == x.data_ptr()
    assert_same([moved], [(x.t() + 1) * 2])


def test_views_and_parts_inside_a_group() -> None:
    def heads(x: torch.Tensor, n: int) -> torch.Tensor:
        b, s, h = x.shape
        y = (x + 1).view(b, s, n, h // n).transpose(1, 2)
        return torch.tanh(y) * 2.0

    x = torch.randn(2, 3, 8)
    f = warmed(heads, x, 2)
    for shape in [(2, 3, 8), (4, 5, 12)]:
        x = torch.randn(shape)
        assert_same([f(x, 2)], [heads(x, 2)])
    assert groups(f.graph_for(x, 2)) == 1

    def gated(x: torch.Tensor) -> torch.Tensor:
        a, b = (x * 2).chunk(2, dim=-1)
        return torch.cat([a.sigmoid() * b, b + 1], dim=0)

    f = warmed(gated, x)
    for shape in [(2, 3, 8), (4, 5, 12)]:
        x = torch.randn(shape)
        assert_same([f(x)], [gated(x)])
    assert groups(f.graph_for(x)) == 1


def test_autocast() -> None:
    def mixed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.mm(x, w)
        return (y * 2).relu() + y

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    f = torch.jit.script(mixed)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = mixed(x, w)
        for _ in range(3):
            got = f(x, w)
    assert_same([got.float()], [expected.float()], 2**16)


def test_batch_norm_keeps_its_running_statistics() -> None:
    def normed(
        x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, training: bool
    ) -> torch.Tensor:
        return F.batch_norm((x + 1) * 2, mean, var, None, None, training).relu() * 2

    x = torch.randn(4, 3, 5)
    for training in (True, False):
        f = torch.jit.script(normed)
        got, expected = ([torch.zeros(3), torch.ones(3)] for _ in range(2))
        for _ in range(4):
            assert_same([f(x, *got, training)], [normed(x, *expected, training)], 4)
            assert_same(got, expected, 4)
        assert groups(f.graph_for(x, *got, training)) == 1


def test_batch_norm_trains_with_running_statistics() -> None:
    def normed(
        x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, var: torch.Tensor
    ) -> torch.Tensor:
        return F.batch_norm(x * 2, mean, var, w, None, True).relu() + x

    f = torch.jit.script(normed)
    got, expected = ([torch.zeros(3), torch.ones(3)] for _ in range(2))
    for _ in range(4):
        x, w = torch.randn(4, 3, 5, requires_grad=True), torch.rand(3, requires_grad=True)

        def run(f: Any, x: torch.Tensor, w: torch.Tensor, statistics: Any) -> list[torch.Tensor]:
            return with_gradients(lambda x, w: f(x, w, *statistics), [x, w])

        assert_same(run(f, x, w, got), run(normed, x, w, expected), 8)
        assert_same(got, expected, 4)
    graph = f.graph_for(x, w, *got)
    assert groups(graph) == 1
    assert "batch_norm" not in str(graph).split("prim::CudaFusionGroup_0 = graph")[0]


def test_a_batch_norm_that_runs_twice_trains() -> None:
    """Torch updates running statistics without a new version, so the first gradient depends on the
    second update."""

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(self.norm(F.relu(self.norm(x)) * 2))

    model, other = Twice(), Twice()
    script = torch.jit.script(model)
    for _ in range(5):
        runs = torchscript.counters()["runs"]
        x = torch.randn(16, 8, requires_grad=True)
        assert_same(with_gradients(script, [x]), with_gradients(other, [x]), 256)
        assert_same(list(model.buffers()), list(other.buffers()), 16)
        assert [t._version for t in model.buffers()] == [t._version for t in other.buffers()]
    assert torchscript.counters()["runs"] > runs


STATISTICS = {
    "native_layer_norm": "torch.native_layer_norm(x * 2, [6], v, v, 1e-5)",
    "native_group_norm": "torch.native_group_norm(x * 2, w, w, 2, 4, 6, 2, 1e-5)",
    "native_batch_norm": "torch.native_batch_norm(x * 2, w, w, m, n, True, 0.1, 1e-5)",
    "native_batch_norm, given": "torch.native_batch_norm(x * 2, w, w, m, n, False, 0.1, 1e-5)",
}


@pytest.mark.parametrize("norm", STATISTICS)
@pytest.mark.parametrize("weights", [None, torch.bfloat16, torch.float32], ids=str)
def test_statistics_have_the_type_that_torch_gives_them(norm: str, weights: Any) -> None:
    """Statistics have torch's dtype, and so have values computed from them."""
    source = (
        "def f(x: Tensor, w: Optional[Tensor], v: Optional[Tensor], m: Tensor, n: Tensor):\n"
        f"    y, mean, rstd = {STATISTICS[norm]}\n    return y + 1, mean, rstd * 2\n"
    )
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    x = torch.randn(2, 4, 6, dtype=torch.bfloat16)
    w, v = (None if weights is None else torch.rand(n).to(weights) + 1 for n in (4, 6))
    unfused = fallbacks()
    for _ in range(3):
        ours, theirs = ([torch.ones(4, dtype=weights or x.dtype) for _ in "mn"] for _ in range(2))
        assert_same(f(x, w, v, *ours), expected(x, w, v, *theirs))
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, w, v, *ours)) == 1


@pytest.mark.parametrize("constant", ["True", "1.5", "2"])
@pytest.mark.parametrize("op", ["x * 0.5 + t", "(x + 1) * t", "(x * 2).add(t, alpha=2)"])
def test_constants_without_dims(constant: str, op: str) -> None:
    source = f"def f(x: Tensor):\n    t = torch.tensor({constant})\n    return {op}\n"
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    for dtype in (torch.float32, torch.float32, torch.float32, torch.float64):
        x = torch.randn(4, 8).to(dtype)  # the last one fails the guard
        assert_same([f(x)], [expected(x)])
    assert groups(f.graph_for(x)) == 1


def test_a_string_chooses_the_definition() -> None:
    def divided(x: torch.Tensor, y: torch.Tensor, mode: str) -> torch.Tensor:
        return torch.div(x * 4, y, rounding_mode=mode) + 1

    x, y = torch.randn(4, 8), torch.rand(8) + 0.5
    f = warmed(divided, x, y, "floor")
    for mode in ("trunc", "floor", "trunc"):
        assert_same([f(x, y, mode)], [divided(x, y, mode)])
    assert groups(f.graph_for(x, y, "floor")) == 1


@pytest.mark.parametrize("norm", ["batch_norm", "instance_norm"])
def test_statistics_that_a_script_makes_are_its_own(norm: str) -> None:
    """A norm may update statistics that the script has created; a group updates its inputs only."""
    source = f"""
def f(x: Tensor, mean: Tensor, var: Tensor):
    m, v = mean * 1, (var + 1) * 2
    return torch.{norm}(x * 2, None, None, m, v, True, 0.1, 1e-5, False) + 1
"""
    f, expected = torch.jit.CompilationUnit(source).f, eager(source)
    given = [torch.randn(4, 3, 5), torch.randn(3), torch.rand(3)]
    unfused = fallbacks()
    for _ in range(3):
        assert_same([f(*given)], [expected(*given)], 4)
    assert fallbacks() == unfused


def test_the_kind_and_shape_of_another_tensor() -> None:
    def alike(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        z = x * 2
        return z.to(y) + y.view_as(x), z.view_as(y) * 3, (z + 1).reshape_as(y)

    f = warmed(alike, torch.randn(4, 6), torch.randn(8, 3, dtype=torch.float64))
    for shapes in [((4, 6), (8, 3)), ((2, 9), (6, 3)), ((1, 4), (2, 2))]:
        x, y = torch.randn(shapes[0]), torch.randn(shapes[1], dtype=torch.float64)
        assert_same(f(x, y), alike(x, y))
    assert groups(f.graph_for(x, y)) == 1


def test_parts_of_a_tensor_lie_in_it() -> None:
    def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        a, b = (x * 2).chunk(2, 1)
        return a + 1, b, (x + 3).unsqueeze(0).expand(2, -1, -1)

    f = warmed(parts, torch.randn(4, 8))
    for shape in [(4, 8), (3, 6)]:
        x = torch.randn(shape)
        got, expected = f(x), parts(x)
        assert_same(got, expected)
        assert [t.stride() for t in got] == [t.stride() for t in expected]
    assert groups(f.graph_for(x)) == 1


def test_what_a_growing_group_moves_behind_it_is_fused_too() -> None:
    def late(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        b = x * 2 / (y.abs() + 1)
        d = (b * y).sum([0])
        c = b.sum([1], True)
        return d.view(2, 4), c * b

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    f = warmed(late, x, y)
    assert_same(f(x, y), late(x, y), 4)
    assert groups(f.graph_for(x, y)) == 1


def test_parts_whose_number_the_script_says() -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        a, b = torch.split(x * 2, 5, -1)  # sizes 5 and 3
        c, d = (x + 1).unbind(0)
        return a.sum() + b.sum() + (c * d).sum()

    x = torch.randn(2, 8)
    f = warmed(parts, x)
    unfused = fallbacks()
    assert_same([f(x)], [parts(x)], 4)
    assert fallbacks() == unfused
    assert groups(f.graph_for(x)) == 1


@pytest.mark.parametrize(
    ("parts", "right", "wrong"),
    [
        ("torch.split(x * 2, 4, dim=1)", 8, 9),
        ("torch.split(x * 2, 4, dim=1)", 7, 4),
        ("torch.split(x * 2, [3, 5], dim=1)", 8, 9),
        ("(x * 2).unbind(1)", 2, 3),
        ("(x * 2).chunk(2, 1)", 8, 1),
        ("torch.split_copy(x * 2, 4, 1)", 8, 9),
        ("torch.unbind_copy(x * 2, 1)", 2, 3),
    ],
)
def test_another_number_of_parts_is_an_error(parts: str, right: int, wrong: int) -> None:
    """A wrong number of outputs raises torch's error; correct calls remain fused."""
    source = f"def f(x: Tensor):\n    a, b = {parts}\n    return a + 1, b * 2\n"
    f = torch.jit.CompilationUnit(source).f
    x = torch.randn(4, right)
    for _ in range(3):
        expected = f(x)
    unfused = fallbacks()
    with pytest.raises(RuntimeError):
        f(torch.randn(4, wrong))
    assert_same(f(x), expected)
    assert fallbacks() == unfused
    assert groups(f.graph_for(x)) == 1


def test_views_in_a_group_bear_the_names_of_copies() -> None:
    def moved(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 2).view(-1, 4).transpose(0, 1) + y

    x, y = torch.randn(4, 8), torch.randn(8)
    f = warmed(moved, x, y)
    graph = str(f.graph_for(x, y))
    assert "prim::view_copy" in graph
    assert "prim::transpose_copy" in graph
    copy = torch._C.parse_ir(
        "graph(%x : Tensor):\n  %n : int = prim::Constant[value=0]()\n"
        "  %y : Tensor = prim::unsqueeze_copy(%x, %n)\n  return (%y)"
    )
    alone = torch._C._create_function_from_graph("alone", copy)(x)
    assert_same([alone], [x.unsqueeze(0)])
    assert alone.data_ptr() != x.data_ptr()


def test_scripts_on_cpu_are_left_alone_by_default() -> None:
    def alone(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).relu() * 2

    with fuser.torchscript_fuser():
        x = torch.randn(4, 8)
        f = warmed(alone, x)
        assert groups(f.graph_for(x)) == 0


class Cell(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.line = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(self.line(self.norm(x)))
        return torch.tanh(y) * torch.sigmoid(x) + x


def test_modules_frozen_traced_saved_and_loaded() -> None:
    model = Cell().eval()
    x = torch.randn(4, 8)
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(model), buffer)
    buffer.seek(0)
    variants = [
        torch.jit.script(model),
        torch.jit.trace(model, x),
        torch.jit.freeze(torch.jit.script(model)),
        torch.jit.load(buffer),
    ]
    with torch.no_grad():
        for variant in variants:
            unfused = fallbacks()
            for _ in range(3):
                assert_same([variant(x)], [model(x)], 4)
            assert fallbacks() == unfused
            assert groups(variant.graph_for(x)) >= 1


@pytest.mark.parametrize("kind", ["tangent", "vmap", "fake"])
def test_tensors_of_other_transforms_run_unfused(kind: str) -> None:
    """Kernels would drop tangents, and wrapper tensors have no memory, so both run unfused."""

    def bend(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y + 1).sigmoid() * x

    x, y = torch.randn(3, 8), torch.randn(3, 8)
    f = warmed(bend, x, y)
    unfused = fallbacks()
    if kind == "tangent":
        got, expected = (torch.func.jvp(g, (x, y), (y, x)) for g in (f, bend))
        assert_same(got, expected)
    elif kind == "vmap":
        in_dims = (None, 0)
        several = torch.stack([y, y + 1])
        got, expected = (torch.func.vmap(g, in_dims)(x, several) for g in (f, bend))
        assert_same([got], [expected])
    else:
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(t) for t in (x, y)]
            assert isinstance(f(*fakes), FakeTensor)
    runs = torchscript.counters()["runs"]
    assert_same([f(x, y)], [bend(x, y)])
    assert torchscript.counters()["runs"] == runs + 1
    assert fallbacks() == unfused
