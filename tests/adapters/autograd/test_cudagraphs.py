"""fuser/adapters/autograd/cudagraphs.py on the CPU; tests/gpu/test_adapters.py tests captured
graphs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fuser.adapters.autograd import cudagraphs
from fuser.adapters.dynamo import backend


def test_no_cuda_graph_of_cpu_tensors(caplog: pytest.LogCaptureFixture) -> None:
    """The option is accepted, the log gives the reason for not capturing, and results are
    correct."""
    x = torch.randn(3, 4, requires_grad=True)
    torch._dynamo.reset()
    run = torch.compile(lambda x: x.sin() * x, backend=backend, options={"cudagraphs": True})
    for _ in range(3):
        (g,) = torch.autograd.grad(run(x).sum(), x)
        torch.testing.assert_close(g, x.sin() + x * x.cos())
    said = [r.message for r in caplog.records if "without CUDA graphs" in r.message]
    assert [m.split(":")[0] for m in said] == [
        "the forward graph runs without CUDA graphs",
        "the backward graph runs without CUDA graphs",
    ]


def _on_gpu(function: Callable[..., torch.Tensor], *elsewhere: str) -> fx.GraphModule:
    """The graph of a function of one tensor, with its tensors on a GPU except constants, what is
    computed from them, and nodes of the names `elsewhere`."""
    module = make_fx(function)(torch.randn(3, 4))
    mode = FakeTensorMode()
    for node in module.graph.nodes:
        if node.op == "output":
            continue
        value = node.meta["val"] if "val" in node.meta else getattr(module, node.target, None)
        if value is None:
            value = node.meta["tensor_meta"]
        small = not len(value.shape) and node.op != "placeholder"
        device = "cpu" if small or node.name in elsewhere else "cuda:0"
        empty = torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")
        node.meta["val"] = FakeTensor(mode, empty, torch.device(device))
    return module


def test_constants_of_the_cpu_can_be_captured() -> None:
    """As in a scaled attention with torch.sqrt(torch.tensor(size)), or a fill with a constant."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt(torch.tensor(64.0) * 2) + torch.ops.aten.fill(x, torch.tensor(2.0))

    module = _on_gpu(program)
    on_cpu = [
        n for n in module.graph.nodes if n.meta.get("val", torch.ones(1)).device.type == "cpu"
    ]
    assert len(on_cpu) > 3
    assert cudagraphs._why_not(module, []) is None


def test_copies_from_the_cpu_are_not_captured() -> None:
    """A copy of pageable memory cannot be part of a CUDA graph; nor can tensors with dims."""

    def copied(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.tensor(2.0), torch.tensor(3.0)]).sum() + x

    def computed(x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(4.0)

    found = cudagraphs._why_not(_on_gpu(copied), [])
    assert found is not None
    assert "cpu" in found
    found = cudagraphs._why_not(_on_gpu(computed, "arange"), [])
    assert found is not None
    assert "cpu" in found


def test_random_numbers_of_the_cpu_are_not_captured() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand(())

    found = cudagraphs._why_not(_on_gpu(program), [])
    assert found is not None
    assert "cpu" in found
