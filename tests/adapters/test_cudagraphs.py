"""fuser/adapters/cudagraphs.py; what is captured is tested in tests/gpu/test_adapters.py."""

from __future__ import annotations

import pytest
import torch

from fuser.adapters.dynamo import backend


def test_no_cuda_graph_of_cpu_tensors(caplog: pytest.LogCaptureFixture) -> None:
    """The option is taken, the log says why nothing is captured, and what runs is right."""
    x = torch.randn(3, 4, requires_grad=True)
    torch._dynamo.reset()
    run = torch.compile(lambda x: x.sin() * x, backend=backend, options={"cudagraphs": True})
    for _ in range(3):
        (g,) = torch.autograd.grad(run(x).sum(), x)
        torch.testing.assert_close(g, x.sin() + x * x.cos())
    said = [r.message for r in caplog.records if "no CUDA graph" in r.message]
    assert [m.split(":")[0] for m in said] == [
        "no CUDA graph of a forward graph",
        "no CUDA graph of a backward graph",
    ]
