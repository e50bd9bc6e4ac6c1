"""Launches in applications: streams, threads, graph capture, a second process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch
from torch import Tensor

import fuser
from fuser import DataType, FusionDefinition
from tests.driver.test_horizontal import adam, step

pytestmark = pytest.mark.gpu


def affine(factor: float = 2.0) -> FusionDefinition:
    """factor * x + 1."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1], True, DataType.Float)
    fd.add_output(x * factor + 1.0)
    return fd


def test_runs_on_the_current_stream(device: torch.device) -> None:
    fd = affine()
    x = torch.zeros(1 << 20, device=device)
    fd.execute([x])
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # a launch on another stream would read x too early
        x.fill_(3.0)
        (y,) = fd.execute([x])
        z = y.clone()
    stream.synchronize()
    assert bool((z == 7.0).all())


def test_does_not_synchronize(device: torch.device) -> None:
    fd = affine()
    x = torch.ones(1024, device=device)
    fd.execute([x])
    torch.cuda.synchronize()
    torch.cuda._sleep(500_000_000)
    fd.execute([x])
    assert not torch.cuda.current_stream().query(), "execute() waited for the GPU"
    torch.cuda.synchronize()


def test_threads(device: torch.device) -> None:
    """Threads execute a common definition, and concurrently compile their own."""
    shared, failures = affine(), []

    def work(number: int) -> None:
        try:
            own = affine(3.0 + number)
            with torch.cuda.stream(torch.cuda.Stream()):
                for n in range(1, 40):
                    x = torch.full((n * 100,), float(n), device=device)
                    (a,), (b,) = shared.execute([x]), own.execute([x])
                    assert bool((a == 2.0 * n + 1).all())
                    assert bool((b == (3.0 + number) * n + 1).all())
        except BaseException as failure:  # a thread's failure must reach the test
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_graph_capture(device: torch.device) -> None:
    fd = affine()
    x = torch.zeros(4096, device=device)
    fd.execute([x])  # compiles and loads, which a capture does not allow
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (y,) = fd.execute([x])
        (z,) = fd.execute([y])
    for value in (1.0, -5.0):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert bool((z == 2 * (2 * value + 1) + 1).all())


def test_capture_of_an_unknown_shape(device: torch.device) -> None:
    """A cached kernel needs neither compiler nor loader for a new size, so a capture may use a new
    size."""
    fd = affine()
    fd.execute([torch.zeros(4096, device=device)])
    x = torch.ones(8192, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (y,) = fd.execute([x])
    graph.replay()
    torch.cuda.synchronize()
    assert bool((y == 3.0).all())


def test_an_optimizer_over_many_tensors(device: torch.device) -> None:
    """100 tensors of several sizes are updated by two launches, also in a graph."""
    fd = adam(100)
    given = [torch.rand(4 * (1 + 37 * i % 501)) for i in range(100) for _ in range(4)]
    exact = [t.double() for t in given]
    args = [0.1, *(t.to(device) for t in given)]
    fd.execute(args)
    assert len(fd.fec.executor.kernels()) == 2
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fd.execute(args)
    graph.replay()
    for _ in range(2):
        step(0.1, exact)
    for got, want in zip(args[1:], exact, strict=True):
        torch.testing.assert_close(got.cpu().double(), want, rtol=1e-5, atol=1e-6)


PROGRAM = """
import torch, fuser
fd = fuser.FusionDefinition()
x = fd.define_tensor([-1], True, fuser.DataType.Float)
fd.add_output(fd.ops.tanh(x) * 3.0)
x = torch.linspace(-1, 1, 1000, device="cuda")
(y,) = fd.execute([x])
torch.testing.assert_close(y, torch.tanh(x) * 3, rtol=1e-5, atol=1e-6)
print(fuser.cache_info().kernels_compiled, fuser.cache_info().kernels_from_disk)
"""


def test_a_second_process_compiles_nothing(tmp_path: object) -> None:
    import os

    environment = os.environ | {
        "FUSER_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert outputs == [["1", "0"], ["0", "1"]]


def test_results_are_repeatable(device: torch.device) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], True, DataType.BFloat16)
    fd.add_output(fd.ops.cast(fd.ops.gelu(x) * fd.ops.sigmoid(x), DataType.BFloat16))
    data = torch.randn(1000, 1000, device=device).bfloat16()
    results: list[Tensor] = [fd.execute([data])[0] for _ in range(5)]
    assert all(torch.equal(results[0], r) for r in results[1:])
    assert fuser.cache_info().hits >= 4
