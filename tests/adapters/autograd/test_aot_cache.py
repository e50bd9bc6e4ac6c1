"""fuser/adapters/autograd/aot_cache.py: loading a graph that another process has traced."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import compilation_time_metrics, counters
from torch._functorch import config
from torch.utils.checkpoint import checkpoint

import fuser
from fuser.adapters import dynamo, report
from fuser.adapters.autograd import cudagraphs
from tests.adapters.autograd.test_aot_bypass import is_wrapped
from tests.adapters.training import Attention, ConvNet, tokens

ROOT = Path(__file__).resolve().parents[3]
TRACING = {"aot_collect_metadata", "aot_trace_joint_graph"}


@pytest.fixture(autouse=True)
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with config.patch(strict_autograd_cache=True):  # unreadable cache entries raise
        yield
    torch._dynamo.reset()


def fresh() -> None:
    """Reset torch to the state of a new process, except for imports."""
    torch._dynamo.reset()
    counters.clear()
    compilation_time_metrics.clear()
    torch.manual_seed(0)


def counted() -> tuple[int, int]:
    """Hits and entries written."""
    found = counters["aot_autograd"]
    return found["autograd_cache_hit"], found["autograd_cache_saved"]


def step(run: Callable[..., Any], *inputs: Any) -> list[torch.Tensor]:
    """Results and gradients."""
    inputs = tuple(t.clone().detach().requires_grad_(t.requires_grad) for t in inputs)
    given = run(*inputs)
    results = list(given) if isinstance(given, tuple) else [given]
    wanted = [t for t in inputs if t.requires_grad]
    used = [t for t in results if t.requires_grad]
    seeds = [torch.linspace(-1, 1, t.numel()).view(t.shape).to(t.dtype) for t in used]
    gradients = torch.autograd.grad(used, wanted, seeds) if wanted else ()
    return [t.detach() for t in (*results, *gradients, *inputs)]


def texts(seen: report.ModelReport) -> list[Any]:
    return [(g.name, g.regions, sorted(g.left.items()), g.kept) for g in seen.graphs]


def twice(function: Callable[..., Any], *inputs: Any, **options: Any) -> None:
    """Assert that the second compilation is a hit with equal regions and equal results bit for
    bit."""
    found = []
    for hits, written in ((0, 1), (1, 0)):
        fresh()
        run = torch.compile(copy.deepcopy(function), backend="fuser", **options)
        with report.recording() as seen:
            found.append((texts(seen), step(run, *inputs)))
        found[-1] = (texts(seen), found[-1][1])
        assert counted() == (hits, written), dict(counters["aot_autograd"])
    assert found[0][0] == found[1][0]
    same(found[0][1], found[1][1])
    assert not TRACING & compilation_time_metrics.keys()


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(0.1, 2, torch.Size(shape).numel()).reshape(shape).requires_grad_()


PROGRAM = """
import sys, torch, fuser
from torch._dynamo.utils import compilation_time_metrics, counters
from tests.adapters.training import ConvNet
torch.manual_seed(0)
model = ConvNet().to(memory_format=torch.channels_last)
x = torch.randn(4, 3, 6, 6).to(memory_format=torch.channels_last)
run = torch.compile(model, backend="fuser")
loss = run(x, torch.tensor([0, 1, 2, 3]))
loss.backward()
with torch.no_grad():
    other = run(x, torch.tensor([0, 1, 2, 3]))
found = counters["aot_autograd"]
traced = {"aot_collect_metadata", "aot_trace_joint_graph"} & compilation_time_metrics.keys()
print(found["autograd_cache_hit"], found["autograd_cache_saved"], len(traced))
print(fuser.cache_info().kernels_compiled)
gradients = [p.grad for p in model.parameters()]
torch.save([loss.detach(), other, *gradients, *model.buffers()], sys.argv[1])
"""


def test_a_second_process(tmp_path: Path) -> None:
    """A second process loads forward, backward and inference graphs: AOTAutograd traces no graph,
    no kernel is compiled, and results are equal bit for bit."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FUSER_CACHE_DIR": str(tmp_path / "own")}
    found = []
    for name in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / name],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.append((*map(int, done.stdout.split()), torch.load(tmp_path / name)))
    assert found[0][:3] == (0, 2, 2)
    assert found[0][3] > 0
    assert found[1][:4] == (2, 0, 0, 0)
    same(found[0][4], found[1][4])


def test_networks() -> None:
    model = ConvNet().to(memory_format=torch.channels_last)
    x = torch.randn(4, 3, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    twice(model, x, torch.tensor([0, 1, 2, 3]))
    twice(Attention(), *tokens())


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.add_(1)
    return (x * y).exp()


def views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z = (x + y).sin()
    return z.t(), x[1:]


def stretched(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x.exp(), scale_factor=2.0).tanh()


CASES = {
    "writes": (writes, (leaf(4, 8), torch.ones(8))),
    "views": (views, (leaf(4, 8), leaf(8))),
    "dropout": (lambda x: F.dropout(x.sin(), 0.5) * 2, (leaf(16, 16),)),
    "numbers": (lambda x: x * torch.tensor([0.5, 2.0]) + torch.tensor(3), (leaf(4, 2),)),
    "noise": (lambda x: x * torch.rand_like(x) + torch.randn(8), (leaf(4, 8),)),
    "softmax": (lambda x, y: (x.softmax(-1) * y).sum(0), (leaf(4, 8), leaf(8))),
    "stretched": (stretched, (leaf(1, 2, 4, 4),)),
    "scores": (lambda x, y: F.gelu(x @ y).log_softmax(-1), (leaf(6, 8), leaf(8, 5))),
}


@pytest.mark.parametrize("name", CASES)
def test_functions(name: str) -> None:
    function, inputs = CASES[name]
    twice(function, *inputs)
    twice(function, *(t.detach() for t in inputs))


def test_random_numbers_that_are_drawn_again() -> None:
    """A checkpointed dropout saves the generator's state as one of the graph's values."""

    def again(x: torch.Tensor) -> torch.Tensor:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x.exp(), 0.5).sin()

        found: torch.Tensor = checkpoint(inner, x.sin(), use_reentrant=False)
        return found

    twice(again, leaf(16, 16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    """Autocast around the call is not part of the trace of Dynamo, so each autocast dtype has its
    own entry."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
    with torch.autocast("cpu", dtype):
        twice(model, leaf(4, 8))
    with torch.autocast("cpu", torch.bfloat16 if dtype == torch.float16 else torch.float16):
        twice(model, leaf(4, 8))
    twice(model, leaf(4, 8))


@pytest.mark.parametrize("trained", [False, True])
def test_other_sizes_of_dynamic_shapes(trained: bool) -> None:
    """A hit serves sizes that were not traced, with the guards of a miss."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.softmax(0) * x.shape[0]).reshape(-1).tanh()

    guards = []
    for length in (6, 9):
        fresh()
        run = torch.compile(f, backend="fuser")
        for size in (length, length + 4):
            x = leaf(size, 8).detach().requires_grad_(trained)
            torch._dynamo.mark_dynamic(x, 0)
            found = run(x)
            torch.testing.assert_close(found, f(x), rtol=1e-5, atol=1e-6)
            if trained:
                (expected,) = torch.autograd.grad(f(x).sin().sum(), x)
                (gradient,) = torch.autograd.grad(found.sin().sum(), x)
                torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)
        assert counted() == ((0, 1) if length == 6 else (1, 0))
        assert counters["stats"]["unique_graphs"] == 1
        entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(f.__code__)
        guards.append(sum(len(e.guard_manager.code_parts) for e in entries))
    assert guards[1] <= guards[0]


def test_no_wrappers_behind_a_hit() -> None:
    """After a hit, as after a miss, functions that do not need AOTAutograd's wrappers bypass
    them."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y).exp()

    for needs in (True, False):
        for _ in range(2):
            fresh()
            run = torch.compile(f, backend="fuser", dynamic=False)
            inputs = [leaf(4, 8).detach().requires_grad_(needs), leaf(8).detach()]
            run(*inputs)
            assert not is_wrapped(run, *inputs)
    assert counted() == (1, 0)


def test_what_makes_another_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(function: Callable[..., Any], **options: Any) -> tuple[int, int]:
        fresh()
        torch.compile(function, backend="fuser", **options)(leaf(4, 8).detach())
        return counted()

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.exp() + 1

    assert compiled(f) == (0, 1)
    assert compiled(f) == (1, 0)
    assert compiled(f, options={"min_nodes": 3}) == (0, 1)
    assert compiled(lambda x: x.exp() + 2) == (0, 1)
    torch.use_deterministic_algorithms(True)
    try:
        assert compiled(f) == (0, 1)
    finally:
        torch.use_deterministic_algorithms(False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert compiled(f) == (0, 1)
    monkeypatch.setattr(fuser, "__version__", "0.0.0")
    assert compiled(f) == (0, 1)


@pytest.mark.parametrize("harm", ["empty", "cut", "other"])
def test_files_that_are_no_graph(harm: str, tmp_path: Path) -> None:
    """Damaged files are ignored, and the graph is compiled."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.exp() + 1

    with config.patch(strict_autograd_cache=False):
        for _ in range(2):
            fresh()
            x = leaf(4, 8)
            found = torch.compile(f, backend="fuser")(x)
            torch.testing.assert_close(found, f(x))
            torch.testing.assert_close(torch.autograd.grad(found.sum(), x)[0], x.exp())
            assert counted()[0] == 0
            files = [p for p in (tmp_path / "aotautograd").rglob("*") if p.is_file()]
            assert files
            for path in files:
                content = path.read_bytes()
                cut = {"empty": b"", "cut": content[: len(content) // 2], "other": content[::-1]}
                path.write_bytes(cut[harm])


def test_a_graph_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch reads the file but not the graph in it, the graph is traced."""
    from fuser.adapters.autograd import aot_cache

    monkeypatch.setattr(aot_cache, "_written", lambda graph, inputs: b"nothing")
    with config.patch(strict_autograd_cache=False):
        for _ in range(2):
            fresh()
            x = leaf(4, 8)
            found = torch.compile(lambda x: x.exp() + 1, backend="fuser")(x)
            torch.testing.assert_close(found, x.exp() + 1)
            torch.testing.assert_close(torch.autograd.grad(found.sum(), x)[0], x.exp())
    assert counted() == (0, 0)
    assert counters["aot_autograd"]["autograd_cache_bypass"] == 1


def test_torchs_module_is_as_it_was_behind_an_error() -> None:
    from fuser.adapters.autograd import aot_cache

    module = ModuleType("module")
    module.__dict__.update(first=1)
    before = dict(vars(module))
    for names in ({"first": 2, "second": 3}, {}):
        inside = aot_cache._replaced(module, names)
        inside.__enter__()
        assert names.items() <= vars(module).items()
        error = ZeroDivisionError()
        assert not inside.__exit__(type(error), error, None)
        assert vars(module) == before


@torch.library.custom_op("fuser_saved::twice", mutates_args=())
def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


_twice.register_fake(torch.empty_like)


class Tagged(torch.Tensor):
    """A tensor subclass."""


def test_what_torchs_key_does_not_know_is_not_saved() -> None:
    """Graphs with custom ops, tensor subclasses, constant tensors, or inputs that share memory are
    not cached. No graph is cached if torch's cache is disabled."""

    def kept(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[int, int]:
        fresh()
        found = torch.compile(function, backend="fuser")(*inputs)
        torch.testing.assert_close(found, function(*inputs))
        return counted()

    x = leaf(4, 8).detach()
    assert kept(lambda x: torch.ops.fuser_saved.twice(x.exp()) + 1, x) == (0, 0)
    assert kept(lambda x: x.exp() + 1, x.as_subclass(Tagged)) == (0, 0)
    assert kept(lambda x, y: x.exp() + y, x[:2], x[2:]) == (0, 0)
    assert kept(lambda x: x.to_sparse().to_dense() + 1, x)[0] == 0
    assert kept(lambda x: x.to_dense().exp(), x.to_sparse()) == (0, 0)
    with config.patch(strict_autograd_cache=False):  # contains subgraphs, which torch detects late
        assert kept(either, x) == (0, 0)
    constant = torch.fx.symbolic_trace(Constant())
    with config.patch(enable_autograd_cache=False):
        assert kept(lambda x: x.exp() + 3, x) == (0, 0)
    with torch.compiler.config.patch(force_disable_caches=True):
        assert kept(lambda x: x.exp() + 3, x) == (0, 0)
    with torch._inductor.config.patch(fx_graph_cache=False):
        assert kept(lambda x: x.exp() + 3, x) == (0, 0)
    fresh()
    torch.testing.assert_close(dynamo.backend(constant, [x])(x), constant(x))
    assert counted() == (0, 0)


def either(x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x.exp() * 2, lambda x: x.sin(), (x,))
    return found + 1


class Constant(nn.Module):
    """Has a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.tensor(3.0)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.exp() * self.scale,)


def test_without_torchs_parts_graphs_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are compiled if an import from torch fails, as in another version of torch."""
    monkeypatch.setitem(sys.modules, "fuser.adapters.autograd.aot_cache", None)
    monkeypatch.delattr(fuser.adapters.autograd, "aot_cache", raising=False)
    fresh()
    x = leaf(4, 8)
    found = torch.compile(lambda x: x.exp() + 1, backend="fuser")(x)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x)[0], x.exp())
    assert counted() == (0, 0)


def test_a_mode_is_part_of_the_key() -> None:
    """A graph cached under one mode is a miss under another."""
    for number, mode in enumerate(("default", "max-autotune-no-cudagraphs", "default")):
        fresh()
        run = torch.compile(lambda x: x.exp() * 2, backend="fuser", mode=mode)
        step(run, leaf(4, 8))
        assert counted() == ((0, 1) if number < 2 else (1, 0))


def test_replayed_graphs_know_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA graph is captured with equal parameters after a hit and after a miss."""
    seen: list[Any] = []

    def captured(call: Any, module: Any, name: str, facts: Any) -> Any:
        seen.append((name, cudagraphs._places_that_stay(module, name, facts)))
        return call

    monkeypatch.setattr(cudagraphs, "captured", captured)
    twice(nn.Linear(8, 8).requires_grad_(), leaf(4, 8), options={"cudagraphs": True})
    assert len(seen) == 4
    assert seen[:2] == seen[2:]
    assert seen[0][1]
