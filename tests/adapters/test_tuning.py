"""fuser/adapters/tuning.py: mode="max-autotune" times the plans of a region in its first run.

The test provides the times, because plans are not timed on the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fuser.adapters import compile_graph, tuning

AUTOTUNE = sys.modules["fuser.autotune"]  # `fuser.autotune` is the function of this name
MODE = "max-autotune-no-cudagraphs"


@pytest.fixture
def timed(
    monkeypatch: pytest.MonkeyPatch, set_option: Callable[[str, object], None], tmp_path: Path
) -> list[str]:
    """Timed plans; the fake time of a kernel is its number of threads."""
    seen: list[str] = []

    def timer(fd: Any, inputs: Any, device: Any) -> Callable[[list[dict[str, Any]]], float]:
        def time(plans: list[dict[str, Any]]) -> float:
            fd.execute([t.clone() for t in inputs])  # checks that the inputs are valid
            seen.append(repr(plans))
            return float(sum(fields.get("threads", 0) for fields in plans))

        return time

    torch._dynamo.reset()
    set_option("FUSER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(AUTOTUNE, "timer", timer)
    monkeypatch.setattr(tuning, "is_worth_timing", lambda inputs: True)
    return seen


def test_the_first_run_times_plans_forward_and_backward(timed: list[str]) -> None:
    run = torch.compile(lambda x: (x.sin() * x).exp(), backend="fuser", mode=MODE)
    x = torch.randn(64, 64, requires_grad=True)
    found = run(x)
    forward = len(timed)
    assert forward > 1
    found.sum().backward()
    backward = len(timed)
    assert backward > forward
    expected = (x.sin() * x).exp()
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(x.grad, gradient)
    run(x).sum().backward()
    assert len(timed) == backward


def test_equal_layers_are_timed_once(timed: list[str], set_option: Callable[..., None]) -> None:
    set_option("FUSER_CACHE", "0")
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(3)))
    x = torch.randn(4, 8)
    with torch.no_grad():
        found = torch.compile(layers, backend="fuser", mode=MODE)(x)
        torch.testing.assert_close(found, layers(x))
    assert timed.count(timed[0]) == 1


def test_a_function_under_two_modes_has_two_plans(
    timed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuned plan applies only to functions compiled with the tuning mode; results are equal."""
    made: list[Any] = []
    definition = compile_graph.program

    def seen(*args: Any) -> Any:
        call, definitions = definition(*args)
        made.extend(definitions)
        return call, definitions

    monkeypatch.setattr(compile_graph, "program", seen)
    x = torch.randn(64, 64)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2.0 + 1.0)

    tuned = torch.compile(function, backend="fuser", mode=MODE)
    plain = torch.compile(function, backend="fuser", mode="default")
    assert tuned(x).equal(function(x))
    assert plain(x).equal(function(x))
    assert tuned(x).equal(plain(x))
    ours, theirs = (d.fd.plan([x]).threads for d in made)
    assert [d.autotune for d in made] == [True, False]
    assert ours == theirs // 2


def test_what_is_written_into_keeps_its_values(timed: list[str]) -> None:
    """Timed runs use copies of in-place inputs."""
    x, count = torch.randn(64, 64), torch.zeros(64, 64)

    def step(x: torch.Tensor) -> torch.Tensor:
        count.add_(1.0)
        return x.mul_(2.0).sin()

    expected = x * 2.0
    found = torch.compile(step, backend="fuser", mode=MODE)(x)
    torch.testing.assert_close(found, expected.sin())
    assert x.equal(expected)
    assert count.eq(1.0).all()
    assert len(timed) > 1


def test_a_failure_of_a_timing_leaves_the_planned_kernels(
    timed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no memory for the timing")

    monkeypatch.setattr(AUTOTUNE, "timer", fails)
    x = torch.randn(65, 64)
    assert torch.compile(lambda x: x * 2 + 1, backend="fuser", mode=MODE)(x).equal(x * 2 + 1)


def test_plans_are_not_timed_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "autotune", None)
    torch._dynamo.reset()
    x = torch.randn(8)
    assert torch.compile(lambda x: x * 2 + 1, backend="fuser", mode=MODE)(x).equal(x * 2 + 1)
