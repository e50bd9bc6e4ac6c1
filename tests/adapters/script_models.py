"""Scripted and traced models: trained and frozen, saved and loaded, in threads and forked
processes."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

import torch
import torch.nn.functional as F

from tests.support.scripts import assert_same, fallbacks


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
WAYS = ["script", "trace", "saved", "freeze", "optimize_for_inference"]


def compiled(model: torch.nn.Module, x: torch.Tensor, how: str) -> torch.nn.Module:
    made = torch.jit.trace(model, x) if how == "trace" else torch.jit.script(model)
    if how == "saved":
        file = io.BytesIO()
        torch.jit.save(made, file)
        file.seek(0)
        made = torch.jit.load(file, map_location=x.device)
    elif how == "freeze":
        made = torch.jit.freeze(made)
    elif how == "optimize_for_inference":
        made = torch.jit.optimize_for_inference(made)
    return made


def check_model(name: str, how: str, device: torch.device) -> None:
    """Compare training of all parameters and buffers (unless frozen), and inference."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    trains = how in ("script", "trace", "saved")
    model, other = (make().to(device).train(trains) for _ in range(2))
    other.load_state_dict(model.state_dict())
    x = torch.randn(shape, device=device)
    script = compiled(model, x, how)
    if trains:
        script.load_state_dict(other.state_dict())  # tracing changed the model's buffers
    unfused = fallbacks()
    for _ in range(4):
        if not trains:
            with torch.no_grad():
                torch.testing.assert_close(script(x), other(x), rtol=1e-4, atol=1e-4)
            continue
        results = []
        for each in (script, other):
            each.zero_grad()
            given = x.clone().requires_grad_()
            y = each(given)
            y.square().mean().backward()
            gradients = [p.grad for p in each.parameters()]
            results.append([y, given.grad, *gradients, *each.buffers()])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert fallbacks() == unfused


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = (x + y) * 2.0
    return torch.sigmoid(z) + x


gate_script = torch.jit.script(gate)


def forked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = torch.jit.fork(gate_script, x, y)
    return torch.jit.wait(a) + gate_script(x, y)


def check_threads_and_forks(device: torch.device) -> None:
    x, y = torch.randn(16, 8, device=device), torch.randn(8, device=device)
    f, expected = torch.jit.script(gate), gate(x, y)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(5):
            if not torch.allclose(f(x, y), expected, atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    g = torch.jit.script(forked)
    for _ in range(3):
        assert_same([g(x, y)], [2 * gate(x, y)])
