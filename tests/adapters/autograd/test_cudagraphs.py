"""fuser/adapters/autograd/cudagraphs.py on the CPU; tests/gpu/test_adapters.py tests captured
graphs.
"""

from __future__ import annotations

import pytest
import torch

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
