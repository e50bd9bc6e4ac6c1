"""fuser/adapters/graph/padding.py: padding of large matrix products to sizes for which GPU
libraries are fast.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fuser import Unsupported
from fuser.adapters import compile_graph, dynamo, region
from fuser.adapters.graph.padding import pad_products, take_strides
from fuser.adapters.partition import partition
from fuser.adapters.wrapper_codegen import program
from tests.adapters.graphs import Written, names, traced

WORDS = 1001


@pytest.fixture(autouse=True)
def _every_product_counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch._dynamo.reset()
    for name, value in (("_LARGE", 1), ("_INTENSE", 0), ("_DEVICES", {"cpu"})):
        monkeypatch.setattr(f"fuser.adapters.graph.gemm_padding.{name}", value)
    yield
    torch._dynamo.reset()


def padded(function, *inputs: torch.Tensor, kept: bool = False, strict: bool = True):
    """The ops left to torch in the padded graph, including added copies, and the compiled graph."""
    module = traced(function, *inputs)
    graph = module.graph
    parts = partition(graph)
    inside = {n for nodes in parts.regions for n in nodes}
    copies = pad_products(graph, inside, list(graph.nodes)[-1].args[0] if kept else ())
    parts.regions += [[copy] for copy in copies]
    outside = [n for n in graph.nodes if n.op == "call_function" and n not in inside]
    called = [getattr(n.target, "__name__", "").split(".")[0] for n in outside]
    return called, program(module, parts, strict)[0]


def halves(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]


def close(found, expected) -> None:
    """Assert equality up to two roundings to bfloat16 of sums of up to 64 products."""
    torch.testing.assert_close(list(found), list(expected), rtol=2e-2, atol=6e-2)


def test_a_region_writes_what_a_product_reads() -> None:
    """A region stores its result padded with zero rows and columns, without a copy."""

    def f(a, b):
        z = a.sin() + 1
        return (z.mm(b), z.t().mm(a) / 8 + 1)

    inputs = halves((12, 62), (62, 16))
    called, call = padded(f, *inputs)
    assert called.count("mm") == 2
    assert called.count("clone") == 2  # one of each input
    results, expected = call(list(inputs)), f(*inputs)
    close(results, expected)
    assert [t.stride() for t in results] == [t.stride() for t in expected]


def test_small_products_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuser.adapters.graph.gemm_padding._LARGE", 1 << 40)
    called, _ = padded(lambda a, b: a.mm(b).sin(), *halves((12, 62), (62, 17)))
    assert called.count("mm") == 1
    assert "clone" not in called


def test_a_gradient_is_copied_once() -> None:
    """Both products of a backward graph read a padded copy of an input, one of them transposed."""

    def f(g, weight, x):
        rows = g.view(-1, 63)
        return (rows.mm(weight), rows.t().mm(x))

    inputs = halves((4, 3, 63), (63, 16), (12, 16))
    called, call = padded(f, *inputs)
    assert called.count("clone") == 3  # one of each input
    close(call(list(inputs)), f(*inputs))


@pytest.mark.parametrize("kept", [False, True])
def test_what_the_user_sees_lies_as_torch_has_it(kept: bool) -> None:
    def f(a, b):
        return [a.mm(b)]

    inputs = halves((8, 8), (8, 63))
    called, call = padded(f, *inputs, kept=kept)
    assert called.count("clone") == 2 - kept  # of an input and of the result
    (result,) = call(list(inputs))
    assert result.stride() == ((64, 1) if kept else (63, 1))
    close([result], f(*inputs))


def test_a_view_across_rows_gets_dense_ones() -> None:
    def f(a, b):
        return (a.mm(b).view(-1).sin() + 1,)

    inputs = halves((8, 8), (8, 63))
    called, call = padded(f, *inputs)
    assert called.count("clone") == 2
    close(call(list(inputs)), f(*inputs))


def test_batches_and_a_bias() -> None:
    def f(a, b, c, d):
        return (a.bmm(b).sin() * 2, torch.addmm(d, c, b[0]))

    inputs = halves((3, 8, 10), (3, 10, 16), (12, 10), (16,))
    called, call = padded(f, *inputs)
    assert {"bmm", "addmm", "clone"} <= set(called)
    close(call(list(inputs)), f(*inputs))


def test_torch_in_place_of_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a region falls back, at definition or at run time, its result is padded with zeros too."""

    def f(a, b):
        return ((a.sin() + 1).mm(b),)

    def refuse(*_):
        raise Unsupported("not today")

    inputs = halves((8, 62), (62, 16))
    with monkeypatch.context() as patch:
        patch.setattr("fuser.adapters.wrapper_codegen.Definition", refuse)
        _, defined = padded(f, *inputs, strict=False)
    _, run = padded(f, *inputs, strict=False)
    monkeypatch.setattr(region.FusionDefinition, "execute", refuse)
    _, broken = padded(f, *inputs, strict=False)
    # Uninitialized memory is filled with NaN, so that a product which reads it is NaN.
    torch.use_deterministic_algorithms(True)
    try:
        found = [call(list(inputs)) for call in (defined, run, broken)]
    finally:
        torch.use_deterministic_algorithms(False)
    for results in found:
        assert results[0].shape == (8, 16)
        close(results, f(*inputs))


def test_inputs_with_other_strides_than_traced() -> None:
    """If inputs have other strides than traced, views that would need a copy become reshapes."""

    def f(x):
        return (x.view(2, 2, 63).sin(), x.view(-1).cos())

    module = traced(f, torch.ones(4, 63))
    given = torch.randn(4, 64)[:, :63]
    take_strides(module.graph, [given])
    assert names([n for n in module.graph.nodes if n.op == "call_function"]).count("reshape") == 1
    module.recompile()
    torch.testing.assert_close(module(given), f(given.contiguous()))


class Words(nn.Module):
    """A loss over words; the matrix of the last product is the embedding's (tied weights)."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS, bias=bias)
        self.last.weight = self.embedding.weight

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = self.last(F.gelu(self.embedding(words)))
        return F.cross_entropy(scores.view(-1, WORDS), labels.view(-1))


def _step(module: nn.Module, run, batch: list[torch.Tensor]) -> list[torch.Tensor]:
    with torch.autocast("cpu", torch.bfloat16, module.last.weight.dtype != torch.float64):
        loss = run(*batch)
    loss.backward()
    return [loss.detach(), *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("bias", [False, True])
def test_a_loss_over_words(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits saved for the backward graph, and their gradient, are padded; the error from float64
    is at most twice eager's."""
    texts: list[str] = []

    def seen(*args):
        made = program(*args)
        texts.append(made[0].text)
        return made

    monkeypatch.setattr(compile_graph, "program", seen)
    module = Words(bias)
    wide, eager = copy.deepcopy(module).double(), copy.deepcopy(module)
    batch = [torch.randint(0, WORDS, (4, 16)) for _ in range(2)]
    found = _step(module, torch.compile(module, backend=dynamo.backend), batch)
    for a, b, c in zip(found, _step(eager, eager, batch), _step(wide, wide, batch), strict=True):
        assert (a - c).norm() <= 2 * (b - c).norm() + 1e-3 * c.norm()
    forward, backward = texts
    assert f"[64, {WORDS}], [1008, 1]" in forward
    assert "[64, 1008], [1008, 1]" in backward


def test_strides_reach_views_of_views() -> None:
    """New strides of an input propagate through chains of views and splits to their readers."""
    made = Written()
    x = made.input(4, 6)
    last = made.views(x, 2000)
    made.finished(last)
    take_strides(made.graph, [torch.empty_strided((4, 6), (12, 1))])
    first = next(iter(x.users))  # rows with gaps cannot be viewed as a vector
    assert first.target is torch.ops.aten.reshape.default
    assert last.meta["val"].stride() == (6, 1)

    graph = traced(lambda x: [part.t() for part in x.split([1, 3])], torch.empty(4, 6)).graph
    take_strides(graph, [torch.empty_strided((4, 6), (12, 1))])
    results = list(graph.nodes)[-1].args[0]
    assert [n.meta["val"].stride() for n in results] == [(1, 12), (1, 12)]
