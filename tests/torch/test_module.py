"""csrc/torch/module: the Python interface of executors: arguments, devices, plans, the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch

import fuser
from fuser import DataType, FusionDefinition, LaunchError, UserError, _core
from fuser._native import load_torch
from fuser.testing import compile_batch
from tests.support.definitions import scaled

X = torch.arange(64.0)


def test_any_sequence_of_arguments() -> None:
    fd = scaled(2.0)
    for inputs in ([X], (X,)):
        assert fd.execute(inputs)[0].equal(X * 2)


@pytest.mark.parametrize(
    "inputs", [None, 3, {0: X}, iter([X])], ids=["None", "int", "dict", "iter"]
)
def test_no_sequence(inputs: object) -> None:
    with pytest.raises((TypeError, UserError), match=r"expected (a|one) list"):
        scaled(2.0).execute(inputs)  # type: ignore[arg-type]


def test_a_tensor_is_no_sequence_of_arguments() -> None:
    """fd.execute(x) instead of fd.execute([x]) is an error, rather than an iteration over the rows
    of x."""
    with pytest.raises((TypeError, UserError)):
        scaled(2.0).execute(torch.ones(3, 4))  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")], ids=str)
def test_device(device: object) -> None:
    assert scaled(2.0).execute([X], device=device)[0].equal(X * 2)


@pytest.mark.skipif(_core.cuda_available(), reason="asks for a GPU where there is none")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda")], ids=str)
def test_device_of_a_gpu_that_is_not_there(device: object) -> None:
    """A missing GPU raises fuser's error, also for a torch without CUDA, which would raise an
    AssertionError."""
    with pytest.raises(UserError, match="device=cuda:0, but the inputs are on cpu"):
        scaled(2.0).execute([torch.ones(3)], device=device)
    numbers = FusionDefinition()
    numbers.add_output(numbers.ops.iota(5))
    with pytest.raises(LaunchError, match="no usable GPU"):
        numbers.execute([], device=device)


def test_device_of_scalars_alone() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([2], fd.define_scalar(), DataType.Float))
    assert fd.execute([4.0], device="cpu")[0].tolist() == [4.0, 4.0]


class Index:
    """An object that Python accepts as an integer."""

    def __index__(self) -> int:
        return 5


class Real:
    """An object that Python accepts as a float."""

    def __float__(self) -> float:
        return 0.5


def test_numbers_by_protocol() -> None:
    numpy = pytest.importorskip("numpy")
    with FusionDefinition() as fd:
        n, f, z = (fd.define_scalar(t) for t in (DataType.Int, DataType.Double,
                                                 DataType.ComplexDouble))  # fmt: skip
        for value in (n, f, z):
            fd.add_output(fd.ops.full([1], value, DataType.ComplexDouble))
    for given, expected in [
        ((Index(), Real(), 2), (5, 0.5, 2)),
        ((True, 3, 1.5), (1, 3, 1.5)),
        ((numpy.int64(7), numpy.float32(0.25), numpy.complex128(1j)), (7, 0.25, 1j)),
    ]:
        results = fd.execute(list(given), device="cpu")
        assert [r.item() for r in results] == list(expected)


def test_an_error_of_a_protocol_method() -> None:
    class Broken:
        def __float__(self) -> float:
            raise RuntimeError("no")

    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) * fd.define_scalar())
    with pytest.raises(UserError, match="argument 1 is a Broken"):
        fd.execute([X, Broken()])


@pytest.mark.usefixtures("gpu_plans")
def test_plans_as_mappings() -> None:
    executor = scaled(2.0).fec.executor
    (plan,) = executor.plans([X])
    assert plan["scheduler"] == "pointwise"
    for given in (plan, [plan], (plan,), None):
        assert executor.execute([X], None, given)[0].equal(X * 2)


def test_compile_batch_runs_nothing() -> None:
    fd = scaled(12.25)
    before = fuser.cache_info()
    assert compile_batch([(fd, [X])]) == 1
    assert compile_batch([]) == 0
    assert compile_batch([(fd, [torch.empty(0)])]) == 0
    assert fuser.cache_info().misses == before.misses
    assert not fd.fec.is_compiled([X])
    built = fuser.cache_info()
    assert fd.execute([X])[0].equal(X * 12.25)
    assert fuser.cache_info().kernels_compiled == built.kernels_compiled


def test_compile_batch_that_fails_builds_nothing() -> None:
    before = fuser.cache_info()
    with pytest.raises(UserError):
        compile_batch([(scaled(13.25), [X]), (scaled(14.25), [])])
    assert fuser.cache_info().kernels_compiled == before.kernels_compiled


@pytest.mark.usefixtures("gpu_plans")
def test_log(capfd: pytest.CaptureFixture[str], set_option: Callable[[str, object], None]) -> None:
    fd = scaled(2.0)
    fd.execute([X])
    assert capfd.readouterr().err == ""
    set_option("FUSER_LOG", 1)
    fd.execute([X])
    (line,) = [
        line for line in capfd.readouterr().err.splitlines() if line.startswith("fuser: launch ")
    ]
    assert "fuser: launch mul_" in line
    assert " grid 1 " in line
    assert "pointwise(threads=" in line


def test_other_threads_go_on_while_a_kernel_runs() -> None:
    """The host executor releases the interpreter lock."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=DataType.Double)
        for _ in range(8):
            x = fd.ops.sin(x)
        fd.add_output(x)
    data = torch.ones(1 << 22, dtype=torch.float64)
    fd.execute([data])
    running = threading.Event()
    ticks = []

    def tick() -> None:
        while not running.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    fd.execute([data])
    end = time.perf_counter()
    running.set()
    thread.join()
    assert sum(start < t < end for t in ticks) >= 2, "the thread stood still"


def test_an_executor_keeps_its_definition() -> None:
    executor = scaled(2.0).fec.executor
    assert executor.execute([X], None, None)[0].equal(X * 2)


def test_cache_info_is_a_plain_dict() -> None:
    assert load_torch().cache_info().keys() == set(fuser.CacheInfo._fields)
