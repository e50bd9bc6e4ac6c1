"""Kernels run concurrently on several streams, in CUDA graphs and in threads, and while their
specialized version is compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fuser
from benchmarks.case import Case, Data
from benchmarks.families import TABLES
from fuser import DataType, FusionDefinition, _core
from tests.support.threads import turns_of_another_thread

pytestmark = pytest.mark.gpu

ROUNDS = 10_000


def total() -> FusionDefinition:
    """The sum of all elements: one row, split over the grid."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1], True, DataType.Float)
    fd.add_output(fd.ops.sum(x, [0]))
    return fd


def captured(fd: FusionDefinition, inputs: list[Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (result,) = fd.execute(inputs)
    return graph, result


def test_a_grid_reduction_on_two_streams_and_in_a_graph(device: torch.device) -> None:
    """Each stream and graph has its own counters for the last block; common counters would mix
    their sums."""
    fd = total()
    inputs = [torch.randn(1 << 18, device=device) for _ in range(3)]
    expected = [fd.execute([x])[0].clone() for x in inputs]
    (kernel,) = fd.fec.executor.kernels()
    assert kernel.grid > 1
    graph, replayed = captured(fd, [inputs[2]])
    streams = [torch.cuda.Stream() for _ in range(3)]
    wrong = torch.zeros(3, dtype=torch.int64, device=device)
    torch.cuda.synchronize()
    for _ in range(ROUNDS):
        for place in range(2):
            with torch.cuda.stream(streams[place]):
                wrong[place] += fd.execute([inputs[place]])[0] != expected[place]
        with torch.cuda.stream(streams[2]):
            graph.replay()
            wrong[2] += replayed != expected[2]
    torch.cuda.synchronize()
    assert wrong.tolist() == [0, 0, 0]


def test_a_hit_keeps_the_interpreter_lock(device: torch.device) -> None:
    fd, x = total(), torch.randn(1 << 18, device=device)
    kept = [fd.execute([x])]
    assert turns_of_another_thread(lambda: kept.append(fd.execute([x]))) == 0


def test_threads_of_mixed_shapes(device: torch.device) -> None:
    """8 threads with 1,000 calls each get the results and use the kernels of a single thread."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], True, DataType.Float)
    fd.add_output(x - fd.ops.mean(x, [1], True))
    inputs = [torch.randn(1 + n % 5, 1 + n % 13, device=device) for n in range(40)]
    expected = [fd.execute([x])[0] for x in inputs]
    before = fuser.cache_info()
    failures: list[object] = []

    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for call in range(1000):
                place = (call * (2 * number + 1)) % len(inputs)
                (result,) = fd.execute([inputs[place]])
                if call % 50 == 0 and not bool((result == expected[place]).all()):
                    failures.append((number, call))

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    after = fuser.cache_info()
    assert (after.hits - before.hits, after.misses) == (8000, before.misses)
    assert after.kernels_compiled == before.kernels_compiled


def bits(t: Tensor) -> Tensor:
    return t.contiguous().flatten().view(torch.uint8)


CASES = [
    pytest.param(row.small(odd), id=f"{family}-{'odd' if odd else 'even'}")
    for family, table in TABLES.items()
    for row in [row for row in table if row.main][:1]
    for odd in (False, True)
]


@pytest.mark.parametrize("case", CASES)
def test_specialized_kernels_give_the_same_bits(
    case: Case, device: torch.device, set_option: Callable[[str, object], None]
) -> None:
    inputs = case.make(Data(device))
    fd = case.definition(inputs)
    before = fuser.cache_info().kernels_specialized
    expected = case.results(lambda *t: fd.execute(t), inputs)
    set_option("FUSER_SPECIALIZE_AFTER", 1)
    fd.execute([t.clone() for t in inputs])
    _core.wait_for_background()
    results = case.results(lambda *t: fd.execute(t), inputs)
    assert fuser.cache_info().kernels_specialized > before
    for result, wanted in zip(results, expected, strict=True):
        assert bool((bits(result) == bits(wanted)).all())


def test_capture_while_a_kernel_is_specialized(
    device: torch.device, set_option: Callable[[str, object], None]
) -> None:
    """Loading a kernel in the background must not invalidate a capture of the caller."""
    set_option("FUSER_SPECIALIZE_AFTER", 1)
    fd = total()
    inputs = [torch.ones(n << 10, device=device) for n in range(1, 9)]
    for x in inputs:
        fd.execute([x])
    before = fuser.cache_info().kernels_specialized
    for x in inputs:  # compiled and loaded in the background, meanwhile:
        fd.execute([x])
    while fuser.cache_info().kernels_specialized - before < len(inputs):
        graph, result = captured(fd, [inputs[0]])
        graph.replay()
        torch.cuda.synchronize()
        assert result.item() == inputs[0].numel()
        if fuser.cache_info().specializations_failed:
            break
    _core.wait_for_background()
    assert fuser.cache_info().kernels_specialized - before == len(inputs)


def test_random_numbers_in_a_thread_that_was_on_no_gpu_before(device: torch.device) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1], True, DataType.Float)
    fd.add_output(fd.ops.dropout(x, 0.5)[0])
    data, found = torch.ones(1000, device=device), []
    fd.execute([data])  # compiling here does not need a thread's context
    torch.cuda.synchronize()
    thread = threading.Thread(target=lambda: found.extend(fd.execute([data])))
    thread.start()
    thread.join()
    assert found[0].unique().tolist() == [0.0, 2.0]
