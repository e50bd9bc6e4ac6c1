"""Scripts on the GPU: the ops of groups, training, autocast, the tutorial's functions, models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from benchmarks.tutorial import VARIANTS, Variant
from fuser.adapters import torchscript
from tests.adapters.random_scripts import SCRIPTS, check_random_script
from tests.adapters.script_models import (
    MODELS,
    WAYS,
    check_model,
    check_threads_and_forks,
)
from tests.adapters.script_ops import BATCHES, WITH_GRADIENTS, check_batch, check_gradients
from tests.adapters.script_programs import check_script, script_program
from tests.support.sampling import rotated
from tests.support.scripts import assert_same, fused, groups, with_gradients

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
OPS = [(batch, dtype) for place, batch in enumerate(BATCHES) for dtype in rotated(DTYPES, place, 1)]


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused(cpu=False):
        yield


@pytest.mark.parametrize(("batch", "dtype"), OPS, ids=str)
def test_ops(batch: str, dtype: torch.dtype, device: torch.device) -> None:
    check_batch(batch, dtype, device)


@pytest.mark.parametrize("batch", WITH_GRADIENTS)
def test_gradients(batch: str, device: torch.device) -> None:
    check_gradients(batch, device)


@pytest.mark.parametrize("number", range(SCRIPTS))
def test_random_scripts(number: int, device: torch.device) -> None:
    check_random_script(number, device)


@pytest.mark.parametrize("first", range(4))
def test_scripts_do_what_eager_does(first: int, device: torch.device) -> None:
    scripts = [p for p in map(script_program, range(first, 40, 4)) if p is not None]
    found = [(p, check_script(p, device.type)[0]) for p in scripts]
    assert not [f"{fault}\n{p.text()}" for p, fault in found if fault]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_the_tutorial_without_dropout(variant: Variant, device: torch.device) -> None:
    """Results and gradients agree, with one group per direction; new shapes create no
    definitions."""
    f = torch.jit.script(variant.function)
    rest = (variant.rest[0], 0.0, *variant.rest[2:])

    def tensors(rows: tuple[int, int]) -> list[torch.Tensor]:
        shapes = [(*rows, 1024)] * 2 + [(1024,)] * variant.vectors
        return [torch.rand(s, device=device, requires_grad=True) for s in shapes]

    for _ in range(4):
        with_gradients(f, tensors((64, 128)), *rest)
    before = torchscript.counters()
    for rows in [(64, 128), (62, 130), (63, 127)]:
        given = tensors(rows)
        wide = [t.detach().double().requires_grad_() for t in given]
        got = with_gradients(f, given, *rest)
        for a, b in zip(got, with_gradients(variant.function, wide, *rest), strict=True):
            # Gradients of parameters are sums over 8,000 elements of both signs.
            bound = 2e-5 if a.ndim > 1 else 1e-3
            assert (a - b).abs().max() <= bound * max(1.0, b.abs().max().item())
    after = torchscript.counters()
    # Graphs of the backward pass belong to another thread, so last_graph() does not show them.
    assert after["runs"] - before["runs"] == 3 * 2
    assert after["definitions"] == before["definitions"]
    assert after["fallbacks"] == before["fallbacks"]


def test_dropout_in_training(device: torch.device) -> None:
    @torch.jit.script
    def dropped(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.dropout(x + b, 0.25, training=True) * 2.0

    results = []
    for _ in range(5):
        x = torch.ones(256, 512, device=device, requires_grad=True)
        y = dropped(x, torch.ones(512, device=device))
        y.sum().backward()
        assert x.grad is not None
        assert_same([x.grad], [torch.where(y.detach() == 0, 0.0, 2.0 / 0.75)])
        assert abs((y == 0).float().mean().item() - 0.25) < 0.01
        results.append(y.detach())
    assert not torch.equal(results[-1], results[-2])


def test_tensors_of_the_cpu_without_dims(device: torch.device) -> None:
    """CPU tensors without dims combine with GPU tensors like numbers; results of CPU tensors alone
    stay on the CPU."""

    def scaled(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t = s * 2
        return torch.where(x > s, (x * s + 1).relu(), t), t

    x, f = torch.randn(4, 8, device=device), torch.jit.script(scaled)
    for value in (0.5, 0.5, 0.5, 1.25):
        got = f(x, torch.tensor(value))
        expected = scaled(x, torch.tensor(value))
        assert [t.device for t in got] == [t.device for t in expected]
        assert_same(got, expected)
    assert groups(f.graph_for(x, torch.tensor(0.5))) == 1


def mixed(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = F.gelu(F.linear(x, w) + b)
    return F.layer_norm(y, [y.size(-1)]) * 2.0 + x


def test_autocast(device: torch.device) -> None:
    f = torch.jit.script(mixed)
    tensors = [torch.randn(s, device=device, requires_grad=True) for s in [(64, 64), (64, 64), 64]]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        expected = with_gradients(mixed, tensors)
        for _ in range(4):
            got = with_gradients(f, tensors)
    assert [t.dtype for t in got] == [t.dtype for t in expected]
    for a, b in zip(got, expected, strict=True):
        assert (a - b).abs().max() <= 0.02 * b.abs().max()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", WAYS)
def test_models(name: str, how: str, device: torch.device) -> None:
    check_model(name, how, device)


def test_threads_and_forks(device: torch.device) -> None:
    check_threads_and_forks(device)
