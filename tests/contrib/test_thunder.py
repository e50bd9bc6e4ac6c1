"""fuser/contrib/thunder.py: Lightning Thunder's nvFuser executor, run by fuser."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fuser
import fuser.contrib.thunder
from fuser.contrib.thunder import NAMES, enable

EXECUTOR = "thunder.executors.nvfuserex"
IMPL = f"{EXECUTOR}_impl"

# Ops and types that the executor of Thunder 0.2.6 names.
OPS = """
abs acos acosh add argsort asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not
bitwise_or bitwise_right_shift bitwise_xor broadcast_in_dim cast cat ceil cos cosh cumsum div
embedding_fwd eq erf erfc erfcinv erfinv exp expm1 floor fmod full ge grouped_mm gt imag
index_select iota isfinite le lerp lgamma linear log log10 log1p log2 lt matmul max maximum min
minimum mul ne neg nextafter pad permute pow prod real reciprocal remainder reshape round
rsqrt scatter sdpfa_bwd sdpfa_fwd set sign signbit sin sinh size slice sqrt squeeze stride_order
sub sum take_along_axis tan tanh topk triu trunc uniform var var_mean where
"""
TYPES = """
BFloat16 Bool ComplexDouble ComplexFloat Double Float Float4_e2m1fn_x2 Float8_e4m3fn Float8_e5m2
Half Int Int32 Null UInt64
"""


@pytest.fixture
def no_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has imported neither nvFuser nor Thunder, and cannot import Thunder."""
    for name in (*NAMES, EXECUTOR, IMPL):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)  # restored after the test
    monkeypatch.setitem(sys.modules, "thunder", None)
    yield monkeypatch
    for name in NAMES:
        sys.modules.pop(name, None)


# ---- without Thunder


def test_absent_thunder_is_refused(no_names: pytest.MonkeyPatch) -> None:
    """thunder-1, with a hint."""
    with pytest.raises(fuser.Unsupported, match="pip install lightning-thunder") as error:
        enable()
    assert error.value.rule == "thunder-1"


def test_running_nvfuser_is_kept(no_names: pytest.MonkeyPatch) -> None:
    """thunder-2: Thunder's executor holds another nvFuser."""
    running = ModuleType(IMPL)
    running.nvfuser = ModuleType("nvfuser")  # type: ignore[attr-defined]
    no_names.setitem(sys.modules, IMPL, running)
    with pytest.raises(fuser.UserError, match="before `import thunder`") as error:
        enable()
    assert error.value.rule == "thunder-2"
    assert not any(name in sys.modules for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_nvfuser(no_names: pytest.MonkeyPatch, name: str) -> None:
    """Imports as Thunder writes them; the version passes its gates."""
    with pytest.raises(fuser.Unsupported):
        enable()
    found: Any = import_module(name)
    assert importlib.util.find_spec(name) is not None
    assert found.FusionDefinition is fuser.FusionDefinition
    assert found._C.Scalar is fuser.Scalar
    assert found.version() >= "0.2.34"
    descriptor = found.compute_tensor_descriptor((2, 3), (3, 1))
    assert [*map(list, descriptor)] == [[True, True], [1, 0]]
    for needed in ("multidevice", "ParallelType", "execute_with_dtensors", "FusionCache"):
        assert hasattr(found, needed), needed
    with pytest.raises(AttributeError):
        found.no_such_name  # noqa: B018


def test_ops_of_the_executor() -> None:
    with fuser.FusionDefinition() as fd:
        absent = [name for name in OPS.split() if not callable(getattr(fd.ops, name, None))]
        fd.add_output(fd.ops.neg(fd.define_tensor([2], [True])))
    assert absent == []
    assert [name for name in TYPES.split() if not hasattr(fuser.DataType, name)] == []


# ---- with Thunder


@pytest.fixture(scope="module")
def thunder() -> Any:
    if importlib.util.find_spec("thunder") is None:
        pytest.skip("needs lightning-thunder")
    enable(cpu=True)
    return import_module("thunder")


def agrees(thunder: Any, model: Any, *inputs: torch.Tensor, **options: Any) -> str:
    """Compares results and gradients with float64. Returns the last trace of the forward pass."""
    exact_model = model if not isinstance(model, nn.Module) else _double(model)
    exact_inputs = [t.detach().double() if t.is_floating_point() else t for t in inputs]
    sources = [*exact_inputs]
    for t, given in zip(exact_inputs, inputs, strict=True):
        t.requires_grad_(given.requires_grad)
    if isinstance(model, nn.Module):
        inputs_of_gradients = [*model.parameters()]
        sources = [*exact_model.parameters()]
    else:
        inputs_of_gradients = [t for t in inputs if t.requires_grad]
        sources = [t for t in sources if t.requires_grad]
    jitted = thunder.jit(model, **options)
    result, exact = jitted(*inputs), exact_model(*exact_inputs)
    torch.testing.assert_close(result, exact.to(result.dtype), rtol=1e-5, atol=1e-5)
    if sources:
        weights = torch.linspace(-1, 1, exact.numel(), dtype=torch.float64).view(exact.shape)
        found = torch.autograd.grad((result * weights.to(result.dtype)).sum(), inputs_of_gradients)
        wanted = torch.autograd.grad((exact * weights).sum(), sources)
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=1e-4, atol=1e-4)
    return str(thunder.last_traces(jitted)[-1])


def _double(model: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(model).double()


class Llama(nn.Module):
    """RMS norm, rotary embedding, causal attention, gated linear units."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.Parameter(torch.rand(width) + 0.5) for _ in range(2))
        self.qkv, self.o = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.gate, self.up = nn.Linear(width, 32), nn.Linear(width, 32)
        self.down = nn.Linear(32, width)

    @staticmethod
    def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        angles = torch.outer(torch.arange(x.shape[-2]), 0.5 ** torch.arange(half)).to(x.dtype)
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in self.qkv(self.normed(x, self.norm1)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        h = self.normed(x, self.norm2)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Gpt(nn.Module):
    """Layer norm, embedding, GELU and a loss, as nanoGPT."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 11, bias=False)

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        x = x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def test_it_is_a_default_executor(thunder: Any) -> None:
    """Behind executors of single ops, as on a GPU; a second call changes nothing."""
    executor = enable(cpu=True)
    assert thunder.nvfuser_executor is executor
    assert thunder.get_default_executors()[-1] is executor
    assert thunder.get_default_executors().count(executor) == 1
    assert executor.version >= "0.2.34"


def test_pointwise_and_sums(thunder: Any) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (F.gelu(x + y) * torch.softmax(y, -1)).sum(-1) + x.var(-1)

    x, y = torch.randn(3, 4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    assert "nvFusion0" in agrees(thunder, program, x, y)
    assert "nvFusion0" in agrees(thunder, program, x.detach().transpose(0, 1), y.detach())


def test_fusions_can_be_examined(thunder: Any) -> None:
    """thunder.examine finds the fusions and their definitions."""
    examine = import_module("thunder.examine")
    jitted = thunder.jit(lambda x: x.sin() + 1)
    jitted(torch.randn(4))
    ((name, call),) = examine.get_fusions(thunder.last_traces(jitted)[-1])
    assert name == "nvFusion0"
    assert isinstance(call.last_used, fuser.FusionDefinition)


def test_factories(thunder: Any) -> None:
    """Tensors without operands are on the CPU."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.full((3,), 2.0) + torch.arange(3) * x

    assert "nvFusion0" in agrees(thunder, program, torch.randn(3, requires_grad=True))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nv_enable_linear": True, "nv_enable_matmul": True},
        {"nv_enable_shape_only_fusion": True, "nv_skip_cache": True},
        {"nv_store_fusion_inputs": True, "nv_save_fake_inputs": True},
        {"nv_enable_options": ["fuse_matmul"], "nv_disable_options": ["fallback"]},
    ],
    ids=lambda options: "-".join(options) or "default",
)
def test_llama_block(thunder: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    assert "nvFusion0" in agrees(thunder, Llama(), torch.randn(2, 5, 16), **options)


def test_attention(thunder: Any) -> None:
    """Forward and backward attention as library calls of a definition; Thunder asks for half
    types.
    """
    q, k, v = (torch.randn(1, 2, 8, 16, dtype=torch.bfloat16, requires_grad=True) for _ in "qkv")

    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1

    jitted = thunder.jit(program, executors=[enable(cpu=True)], nv_enable_sdpa=True)
    result, exact = jitted(q, k, v), program(q.double(), k.double(), v.double())
    found = torch.autograd.grad(result.sum(), (q, k, v))
    wanted = torch.autograd.grad(exact.sum(), (q, k, v))
    for ours, theirs in zip((result, *found), (exact, *wanted), strict=True):
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=2e-2, atol=2e-2)
    assert "nv_sdpfa_fwd" in str(thunder.last_traces(jitted)[-1])
    assert "nv_sdpfa_bwd" in str(thunder.last_backward_traces(jitted)[-1])


@pytest.mark.parametrize("embedding", [False, True])
def test_gpt(thunder: Any, embedding: bool) -> None:
    torch.manual_seed(0)
    words, labels = torch.randint(0, 11, (2, 2, 6))
    trace = agrees(
        thunder,
        Gpt(),
        words,
        labels,
        executors=[enable(cpu=True)],
        nv_enable_embedding=embedding,
    )
    assert "nvFusion0" in trace


def test_types(thunder: Any) -> None:
    """Casts round as torch's."""
    x = torch.randn(64)

    def program(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return (x * 3).to(dtype)

    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        jitted = thunder.jit(program)
        assert jitted(x, dtype).equal(program(x, dtype)), dtype
        assert "nvFusion0" in str(thunder.last_traces(jitted)[-1])
