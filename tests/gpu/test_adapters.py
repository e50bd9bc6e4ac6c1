"""Networks and functions through torch.compile and memory_efficient_fusion on the GPU, compared
with eager and float64, forward and backward."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import fuser
from fuser.adapters import compile_graph, report
from fuser.adapters.dynamo import backend
from tests.adapters.test_functorch import arguments, compare, composite, primitive, rms
from tests.adapters.training import Attention, ConvNet, agree, near, tokens

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Reset torch between tests, compute float32 products in float32, and assert that no graph
    falls back."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with report.recording() as seen:
        yield
    assert [f for graph in seen.graphs for f in graph.fallbacks] == []


def compiled(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=backend, **kwargs)


# ---- networks


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=str)
def test_a_convolutional_net(layout: Any, autocast: Any, device: torch.device) -> None:
    model = ConvNet(32).to(device, memory_format=layout)
    x = torch.randn(8, 3, 14, 14, device=device).to(memory_format=layout)
    labels = torch.randint(0, 4, (8,), device=device)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        agree(model, (x, labels), backend=backend, autocast=autocast, slack=3e-5)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=str)
def test_a_transformer(autocast: Any, dynamic: bool, device: torch.device) -> None:
    model = Attention(64, 50).to(device)
    agree(
        model,
        tokens(17, 3, device, 50),
        backend=backend,
        dynamic=dynamic,
        autocast=autocast,
        slack=3e-5,
    )


def test_training_in_half_precision(device: torch.device) -> None:
    """Training under float16 autocast with GradScaler and AdamW: losses agree with eager's within
    1%."""
    model = Attention(64, 50).to(device)
    losses = []
    for run in (copy.deepcopy(model), model):
        step = compiled(run) if run is model else run
        optimizer = torch.optim.AdamW(run.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cuda")
        torch.manual_seed(1)
        losses.append([])
        for _ in range(6):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = step(*tokens(16, 4, device, 50))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses[-1].append(float(loss))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-2, atol=1e-3)


def test_new_lengths_compile_once(device: torch.device) -> None:
    """The second length makes sizes symbolic; later lengths compile no graph."""
    model = Attention(32, 50).to(device)
    step = compiled(model)
    with report.recording() as seen:
        for length in (5, 7, 9, 64, 33, 12):
            batch = tokens(length, 2, device, 50)
            expected = model(*batch)
            torch.testing.assert_close(step(*batch), expected, rtol=1e-4, atol=1e-4)
    assert len(seen.graphs) <= 4


# ---- functions


@pytest.mark.parametrize("function", [composite, primitive, rms], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_tutorial(function: Callable[..., Any], dynamic: bool, device: torch.device) -> None:
    inputs = [t.detach().to(device).requires_grad_() for t in arguments(16)]
    compare(fuser.memory_efficient_fusion(function, dynamic=dynamic), function, inputs)


def gated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y.sigmoid() + x.tanh()


def normalized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.softmax(x + y, -1) * F.layer_norm(x, x.shape[-1:]) - (x * y).mean(0)


def moved(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    parts = torch.cat([x.flip(0), y], 1).chunk(2, 1)
    return F.pad(parts[0] * parts[1].roll(1, 0), (1, 2)) * 2


def losses(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.kl_div(x, y.softmax(-1))


@pytest.mark.parametrize("function", [gated, normalized, moved, losses], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(64, 128), (33, 37)], ids=str)
def test_functions(function: Any, dtype: Any, shape: Any, device: torch.device) -> None:
    inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(2)]
    wide = [t.detach().double().requires_grad_() for t in inputs]
    found, eager, true = compiled(function)(*inputs), function(*inputs), function(*wide)
    seed = torch.randn(true.shape, device=device, dtype=dtype)
    gradients = [torch.autograd.grad(y, inputs, seed) for y in (found, eager)]
    expected = torch.autograd.grad(true, wide, seed.double())
    for a, b, c in zip(
        (found, *gradients[0]), (eager, *gradients[1]), (true, *expected), strict=True
    ):
        near(a, b, c, {torch.float32: 2e-5, torch.float16: 2e-3}.get(dtype, 1e-2))


def test_aliases_and_mutation(device: torch.device) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1.0)
        z = (x * 2 + y).relu()
        y.mul_(z.sum(1, keepdim=True))
        return z, x.view(-1), x[1:], z.t()

    mine = [torch.randn(64, 128, device=device) for _ in range(2)]
    theirs = [t.clone() for t in mine]
    results, expected = compiled(f)(*mine), f(*theirs)
    for a, b in zip((*results, *mine), (*expected, *theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)
        assert a.stride() == b.stride()
    assert results[1].data_ptr() == mine[0].data_ptr()


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 0.01, capturable=True)


def _momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.01, momentum=0.9)


@pytest.mark.parametrize("cudagraphs", [False, True])
@pytest.mark.parametrize("make", [_adamw, _momentum])
def test_the_step_of_an_optimizer(
    make: Callable[..., Any], cudagraphs: bool, device: torch.device
) -> None:
    """Optimizer steps agree with float64; parameters and moments are updated in place by few
    launches."""
    shapes = [(64, 33), (1000,), (3, 5, 7), ()] * 10
    wide = [nn.Parameter(torch.randn(s, dtype=torch.float64, device=device)) for s in shapes]
    mine = [nn.Parameter(p.detach().float()) for p in wide]
    optimizers = make(mine), make(wide)
    options = {"cudagraphs": True} if cudagraphs else None
    step = torch.compile(lambda: optimizers[0].step(), backend=backend, options=options)
    gradients = [[torch.randn_like(p) for p in wide] for _ in range(6)]
    for a, b in zip(mine, wide, strict=True):
        a.grad, b.grad = torch.zeros_like(a), torch.zeros_like(b)
    addresses = [p.data_ptr() for p in mine]
    for one in gradients:
        for a, b, g in zip(mine, wide, one, strict=True):
            a.grad.copy_(g)
            b.grad = g
        step()
        optimizers[1].step()
    assert [p.data_ptr() for p in mine] == addresses
    for a, b in zip(mine, wide, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
    if not cudagraphs:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            step()
            torch.cuda.synchronize()
        kernels = [e.name for e in seen.events() if e.device_type.name == "CUDA"]
        assert not any("Memcpy" in name or "copy" in name for name in kernels)
        assert len(kernels) <= 8


@pytest.mark.parametrize("options", [None, {"cudagraphs": True}], ids=str)
def test_running_statistics(options: Any, device: torch.device) -> None:
    def network() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.BatchNorm2d(8), nn.Tanh(), nn.BatchNorm2d(8)).to(device)

    mine, theirs = network(), network().double()
    run = torch.compile(mine, backend=backend, options=options)
    for x in torch.randn(5, 16, 8, 9, 9, device=device):
        for model, given in ((run, x), (theirs, x.double())):
            model(given).square().mean().backward()
    for a, b in zip(mine.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-4, atol=1e-5)
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-3, atol=1e-4)


def test_the_backward_graph_gets_what_was_overwritten(device: torch.device) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x.clone() * 2).sin() * w
        with torch.no_grad():
            x.add_(1)
        return y

    x, w = torch.randn(64, 96, device=device), torch.ones(64, 96, device=device).requires_grad_()
    mine = x.clone()
    (g,) = torch.autograd.grad(compiled(f)(mine, w).sum(), w)
    assert mine.equal(x + 1)
    torch.testing.assert_close(g.double(), (x.double() * 2).sin(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=lambda m: m.__name__)
def test_inference(mode: Any, device: torch.device) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Dropout(0.5))
    model = model.to(device).eval()
    x = torch.randn(3, 3, 9, 9, device=device)
    with mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-4, atol=1e-5)


def test_dropout(device: torch.device) -> None:
    """The dropped fraction, repetition with the seed, and the same mask in the backward pass."""
    f = compiled(lambda x: F.dropout(x, 0.25) * 2)
    x = torch.ones(256, 512, device=device, requires_grad=True)
    torch.manual_seed(3)
    first, second = f(x), f(x)
    torch.manual_seed(3)
    assert torch.equal(first, f(x))
    assert not torch.equal(first, second)
    assert abs(float((first == 0).float().mean()) - 0.25) < 0.01
    first.sum().backward()
    assert torch.equal(x.grad == 0, first == 0)


def test_checkpointing_repeats_the_mask(device: torch.device) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda t: F.dropout(t.sin() + 2, 0.5) * 3, x, use_reentrant=False)

    x = torch.randn(64, 64, device=device, requires_grad=True)
    result = compiled(f)(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(gradient == 0, result == 0)


def test_on_another_stream(device: torch.device) -> None:
    """Launches on a user's stream are correct, and torch may reuse their memory."""
    f = compiled(lambda x: (x.sin() * x).softmax(-1))
    stream = torch.cuda.Stream()
    x = torch.randn(512, 1024, device=device)
    expected = (x.sin() * x).softmax(-1)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(10):
            result = f(x)
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def test_numbers_on_the_host(device: torch.device) -> None:
    """CPU tensors without dims combine with GPU tensors."""

    def f(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (x * scale + 1).relu() / scale

    x, scale = torch.randn(8, 8, device=device), torch.tensor(2.5)
    torch.testing.assert_close(compiled(f)(x, scale), f(x, scale))


def test_memory_is_freed_at_its_last_use(device: torch.device) -> None:
    """In a chain of products and pointwise ops, peak memory is at most eager's, and all memory is
    freed."""

    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = F.gelu(x @ x) * 0.01 + 1
        return x

    x = torch.randn(1024, 1024, device=device)
    step = compiled(f)
    peaks = []
    with torch.no_grad():
        for run in (f, step):
            run(x)
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            run(x)
            peaks.append(torch.cuda.max_memory_allocated() - before)
            assert torch.cuda.memory_allocated() == before
    assert peaks[1] <= peaks[0]


# ---- CUDA graphs


@pytest.mark.parametrize("dynamic", [False, True])
def test_cuda_graphs_train_as_eager_does(dynamic: bool, device: torch.device) -> None:
    """With CUDA graphs training agrees with eager: inputs move between steps, parameters change in
    place, sizes recur."""
    model = Attention(64, 50).to(device)
    eager = copy.deepcopy(model)
    run = compiled(model, dynamic=dynamic, options={"cudagraphs": True})
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, eager)]
    kept = []
    for length in (16, 16, 16, 16, 24, 24, 24, 16, 24, 16):
        batch = tokens(length, 4, device, 50)
        kept.append(batch)
        for f, optimizer in zip((run, eager), optimizers, strict=True):
            loss = f(*batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(loss.detach().clone())
        torch.testing.assert_close(kept[-2], kept[-1], rtol=1e-4, atol=1e-5)
    for a, b in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_cuda_graphs_are_replayed(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph's function runs three times, the last time for the capture; each replay draws new
    random numbers."""
    calls = 0
    program = compile_graph.program

    def counted(*args: Any) -> Any:
        call, definitions = program(*args)

        def run(arguments: list[Any]) -> Any:
            nonlocal calls
            calls += 1
            return call(arguments)

        return run, definitions

    monkeypatch.setattr(compile_graph, "program", counted)

    run = compiled(lambda x: F.dropout(x.sin(), 0.5) + 2, options={"cudagraphs": True})
    x = torch.rand(64, 64, device=device) + 0.5
    dropped = []
    for i in range(6):
        given = x + i / 4
        y = run(given).clone()
        dropped.append(y == 2)
        expected = torch.where(dropped[-1], 2, 2 * given.sin() + 2)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    assert calls == 3
    assert all((a != b).any() for a, b in itertools.pairwise(dropped))


def test_cuda_graphs_with_constants_of_the_cpu(
    device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    """Tensors made of numbers in the program stay on the CPU, and the graph is captured."""

    def program(x: torch.Tensor) -> torch.Tensor:
        scaled = (x @ x) / torch.sqrt(torch.tensor(x.shape[1] * 2.0))
        return torch.where(x > 0, scaled, torch.tensor(3.0)).softmax(1)

    run = compiled(program, options={"cudagraphs": True})
    for i in range(6):
        x = torch.randn(64, 64, device=device) + i / 4
        expected = program(x.double())
        torch.testing.assert_close(run(x).clone().double(), expected, rtol=1e-3, atol=1e-4)
    assert not [r.message for r in caplog.records if "without CUDA graphs" in r.message]
