"""fuser/adapters/graph/donation.py: large results in the memory of dead tensors (donated
buffers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuser.adapters import compile_graph, dynamo
from fuser.adapters.graph import donation, pipeline
from fuser.adapters.graph.donation import DONOR
from fuser.adapters.wrapper_codegen import program
from tests.adapters.training import Attention, tokens

Marks = list[tuple[str, str]]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Marks:
    """(result, operand whose memory it reuses) in each compiled graph, for results of any size."""
    found: Marks = []

    def seen(module, parts, *rest):
        found.extend((n.name, n.meta[DONOR].name) for n in module.graph.nodes if DONOR in n.meta)
        return program(module, parts, *rest)

    monkeypatch.setattr(compile_graph, "program", seen)
    monkeypatch.setattr(donation, "SMALL", 1)
    torch._dynamo.reset()
    torch.manual_seed(0)
    return found


LABELS = torch.arange(16)


def scores_of_rows(x: Tensor, w: Tensor) -> Tensor:
    return F.cross_entropy(x.tanh() @ w, LABELS)


def scores_reshaped(x: Tensor, w: Tensor) -> Tensor:
    return F.cross_entropy((x.view(2, 8, 8).tanh() @ w).float().view(-1, 40), LABELS)


def leaves(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    shapes = (16, 8), (8, 40)
    x, w = (torch.randn(shape).to(dtype).requires_grad_() for shape in shapes)
    return x, w


def gradients(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """Gradients computed in float64."""
    wide = [t.detach().double().requires_grad_() for t in inputs]
    return list(torch.autograd.grad(function(*wide), wide))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [scores_of_rows, scores_reshaped])
def test_a_gradient_takes_the_memory_of_the_scores(taken: Marks, function, dtype) -> None:
    """The gradient overwrites the scores in each step, except if the caller retains the graph."""
    inputs = leaves(dtype)
    expected = gradients(function, *inputs)
    run = torch.compile(function, backend=dynamo.backend)
    found = [torch.autograd.grad(run(*inputs), inputs)]
    assert len(taken) == 1
    loss = run(*inputs)
    found += [
        torch.autograd.grad(loss, inputs, retain_graph=again) for again in (True, True, False)
    ]
    for result in found:
        assert all(map(torch.equal, result, found[0]))
    for got, want in zip(found[0], expected, strict=True):
        distance = (got.double() - want).norm() / want.norm()
        assert distance < (1e-5 if dtype == torch.float32 else 2e-2)
    assert len(taken) == 1


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 24), nn.SiLU()
        )
        self.head = nn.Linear(24, 40, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.layers(x)).tanh() * 5, labels)


def _steps(model: nn.Module, inputs: tuple[Tensor, ...], **autocast: Any) -> list[Tensor]:
    """Losses, and gradients of three backward passes; the last two share one graph."""
    run, found = torch.compile(model, backend=dynamo.backend), []
    for keeps in (False, True):  # torch would compile without donation
        with torch.autocast(inputs[0].device.type, torch.bfloat16, **autocast):
            loss = run(*inputs)
        found += [loss.detach(), *torch.autograd.grad(loss, model.parameters(), retain_graph=keeps)]
    return [*found, *torch.autograd.grad(loss, model.parameters())]


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu, id="on the GPU")]
)
@pytest.mark.parametrize(
    ("network", "autocast"), [("attention", False), ("classifier", False), ("classifier", True)]
)
def test_the_same_bits_without_donation(
    taken: Marks, monkeypatch: pytest.MonkeyPatch, network: str, autocast: bool, device: str
) -> None:
    if network == "attention":
        model, inputs = Attention(32).to(device), tokens(17, 3, device)
    else:
        model = Classifier().to(device)
        inputs = torch.randn(16, 8, device=device), LABELS.to(device)
    found = _steps(model, inputs, enabled=autocast)
    assert taken
    taken.clear()
    torch._dynamo.reset()
    monkeypatch.setattr(pipeline, "take_memory", lambda *_: None)
    expected = _steps(model, inputs, enabled=autocast)
    assert not taken
    assert [torch.equal(a, b) for a, b in zip(found, expected, strict=True)] == [True] * len(found)


@pytest.mark.gpu
def test_large_scores_are_overwritten_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Donation of scores of realistic size leaves the results unchanged bit for bit, and saves
    their memory."""
    words, width, classes = 2048, 64, 50_000
    w = torch.randn(width, classes, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(words, width, device="cuda", dtype=torch.bfloat16).requires_grad_()
    labels = torch.randint(0, classes, (words,), device="cuda")
    found, peaks = [], []
    for donates in (True, False):
        if not donates:
            monkeypatch.setattr(pipeline, "take_memory", lambda *_: None)
        torch._dynamo.reset()
        run = torch.compile(lambda: F.cross_entropy(x @ w, labels), backend=dynamo.backend)
        for _ in range(2):
            loss = run()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            found.append(torch.autograd.grad(loss, x)[0])
            peaks.append(torch.cuda.max_memory_allocated() - before)
    assert all(torch.equal(g, found[0]) for g in found)
    scores = 2 * words * classes
    assert peaks[1] <= peaks[3] - 0.9 * scores, peaks


def test_it_is_stored_without_a_copy(taken: Marks) -> None:
    from fuser import explain
    from fuser.adapters import report

    with report.recording(keeps_runs=True) as seen:
        for function in (scores_of_rows, scores_reshaped):
            inputs = leaves(torch.bfloat16)
            torch.compile(function, backend=dynamo.backend)(*inputs).backward()
    runs = [r for r in seen.runs if any(a >= 0 for _, a in r.fd.fusion.records()["outputs"])]
    assert len(runs) == len(taken) == 2
    for run in runs:
        assert "copy" not in explain(run.fd, run.inputs).text()


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda y: y.sin() * 2, id="the result goes out"),
        pytest.param(lambda y: ((y.sin() * 2) @ y).sum(), id="the operand is read later"),
        pytest.param(lambda y: ((y.sin() + y.T) @ y.detach().T).sum(), id="others are read"),
        pytest.param(lambda y: (y.sin() * 2).float() @ torch.ones(8, 8), id="another type"),
        pytest.param(lambda y: (y - y.sum(0)) @ torch.ones(8, 8).half(), id="it is reduced"),
    ],
)
def test_memory_that_is_not_taken(taken: Marks, function) -> None:
    x = torch.randn(8, 8).half()
    with torch.no_grad():
        result = torch.compile(lambda x: function(x @ x), backend=dynamo.backend)(x)
    assert not taken
    torch.testing.assert_close(result, function(x @ x), rtol=2e-2, atol=2e-2)


def test_a_temporary_between_products_is_overwritten(taken: Marks) -> None:
    x = torch.randn(8, 8)
    with torch.no_grad():
        result = torch.compile(lambda x: ((x @ x).sin() * 2) @ x, backend=dynamo.backend)(x)
    assert taken == [("mul", "mm")]
    torch.testing.assert_close(result, ((x @ x).sin() * 2) @ x, rtol=1e-5, atol=1e-5)


def test_inputs_are_not_overwritten(taken: Marks) -> None:
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    before = x.clone()
    with torch.no_grad():
        torch.compile(lambda x, y: (x.sin() * 2) @ y, backend=dynamo.backend)(x, y)
    assert not taken
    assert torch.equal(x, before)


def test_one_memory_is_taken_once(taken: Marks) -> None:
    """A buffer with two views is donated once."""

    def f(x: Tensor) -> Tensor:
        y = x @ x
        return (y.sin() * 2) @ x + ((y.view(8, 8).cos() + 1) @ x)

    x = torch.randn(8, 8)
    with torch.no_grad():
        result = torch.compile(f, backend=dynamo.backend)(x)
    assert len(taken) <= 1
    torch.testing.assert_close(result, f(x), rtol=1e-5, atol=1e-5)
