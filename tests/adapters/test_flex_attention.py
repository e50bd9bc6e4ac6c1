"""fuser/adapters/flex_attention.py: torch's kernel of flex attention inside of fuser's graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from fuser import Unsupported
from fuser.adapters import flex_attention as ours
from fuser.adapters.flex_attention import is_flex_attention, kernel_of


def _attended(score: Any, mask: Any, device: str) -> Callable[..., torch.Tensor]:
    """Attention between ops that fuse."""
    blocks = create_block_mask(mask, 1, 2, 64, 64, device=device) if mask else None

    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = flex_attention(q.sin() * 2, k, v, score_mod=score, block_mask=blocks)
        return (y.relu() + 1) * y

    return program


def _heads(device: str = "cpu") -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, 2, 64, 16, device=device) for _ in "qkv"]


def _causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def _biased(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return score + (i - j) * 0.1


@pytest.fixture
def no_dense_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's product of all queries and keys is an error during a run of a compiled graph."""

    def dense(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("torch computes all products of queries and keys")

    kernel_of_node = ours._compiled

    def compiled(node: Any) -> Any:
        assert is_flex_attention(node)
        return kernel_of_node(node)

    monkeypatch.setattr(ours, "_compiled", compiled)
    monkeypatch.setattr(ours, "note_fallback", dense)


def _check(device: str, gradients: bool) -> None:
    torch._dynamo.reset()
    program, inputs = _attended(_biased, _causal, device), _heads(device)
    exact_inputs = [t.double() for t in inputs]
    if gradients:
        for t in (*inputs, *exact_inputs):
            t.requires_grad_()
    got = torch.compile(program, backend="fuser", fullgraph=True)(*inputs)
    exact = program(*exact_inputs)
    torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=1e-4)
    if gradients:
        found = torch.autograd.grad(got.sum(), inputs)
        wanted = torch.autograd.grad(exact.sum(), exact_inputs)
        for mine, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("no_dense_product")
def test_score_and_mask_on_the_cpu(set_option: Callable[[str, object], None]) -> None:
    """Torch has no gradients of flex attention on the CPU."""
    set_option("FUSER_STRICT", 1)
    _check("cpu", gradients=False)


@pytest.mark.gpu
@pytest.mark.usefixtures("no_dense_product")
def test_score_and_mask_with_gradients(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_STRICT", 1)
    _check("cuda", gradients=True)


def _failing(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("no compiler\nsecond line")


def test_failure_of_inductor_is_logged(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    set_option: Callable[[str, object], None],
) -> None:
    """Torch's op runs, after one line of log."""
    torch._dynamo.reset()
    set_option("FUSER_STRICT", 0)
    monkeypatch.setattr(ours, "compile_by_inductor", _failing)
    program, inputs = _attended(_biased, None, "cpu"), _heads()
    got = torch.compile(program, backend="fuser")(*inputs)
    torch.testing.assert_close(got, program(*inputs), rtol=1e-5, atol=1e-5)
    (line,) = [x for x in capfd.readouterr().err.splitlines() if "Inductor" in x]
    assert line.endswith("torch computes all products of queries and keys: no compiler")


def test_failure_of_inductor_raises_if_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """flex-attention."""
    monkeypatch.setattr(ours, "_compiled", _failing)
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.higher_order.flex_attention)
    assert is_flex_attention(node)
    assert not is_flex_attention(graph.call_function(torch.relu))
    with pytest.raises(Unsupported, match="Inductor compiled no kernel") as error:
        kernel_of(node, strict=True)
    assert error.value.rule == "flex-attention"
