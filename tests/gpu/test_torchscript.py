"""Scripts on the GPU: the ops of groups, training, autocast, the tutorial's functions, models."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

from benchmarks.tutorial import VARIANTS, Variant
from fuser.adapters import torchscript
from tests.adapters.script_ops import BATCHES, WITH_GRADIENTS, check_batch, check_gradients
from tests.sampling import rotated
from tests.scripts import assert_same, fused, groups, with_gradients

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


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_the_tutorial_without_dropout(variant: Variant, device: torch.device) -> None:
    """Results and gradients, one group in each direction, no definition for new shapes."""
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
    # Graphs of the backward pass are another thread's, which last_graph() does not show.
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
    """They stand beside others like numbers; what is computed of them alone stays on the CPU."""

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


class Block(torch.nn.Module):
    """A residual block of a convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + x)


class Cell(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = torch.nn.Linear(32, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x
        for _ in range(3):
            i, f, g, o = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.wide, self.back = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.norm1, self.norm2 = torch.nn.LayerNorm(32), torch.nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, 4, h // 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(-2, -1) * 0.35, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, s, h))
        return x + self.back(F.gelu(self.wide(self.norm2(x))))


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "residual": (Block, (4, 8, 16, 16)),
    "cell": (Cell, (8, 16)),
    "encoder": (Encoder, (4, 10, 32)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", ["script", "trace", "freeze", "optimize_for_inference"])
def test_models(name: str, how: str, device: torch.device) -> None:
    """Training (not the frozen ones) with all parameters and buffers; inference."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().to(device)
    trains = how in ("script", "trace")
    model.train(trains)
    other = make().to(device).train(trains)
    other.load_state_dict(model.state_dict())
    x = torch.randn(shape, device=device)
    compiled = torch.jit.trace(model, x) if how == "trace" else torch.jit.script(model)
    model.load_state_dict(other.state_dict())  # a trace has run the model
    if how == "freeze":
        compiled = torch.jit.freeze(compiled)
    elif how == "optimize_for_inference":
        compiled = torch.jit.optimize_for_inference(compiled)
    for _ in range(4):
        if not trains:
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), other(x), rtol=1e-4, atol=1e-4)
            continue
        results = []
        for each in (compiled, other):
            each.zero_grad()
            given = x.clone().requires_grad_()
            y = each(given)
            y.square().mean().backward()
            gradients = [p.grad for p in each.parameters()]
            results.append([y, given.grad, *gradients, *each.buffers()])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
