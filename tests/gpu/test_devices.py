"""Several GPUs in one process: fuser uses the inputs' device instead of the current one."""

from __future__ import annotations

import threading

import pytest
import torch

from fuser import DataType, FusionDefinition, UserError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]


def definition() -> FusionDefinition:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
    bias = fd.define_tensor([-1], dtype=DataType.BFloat16)
    y = fd.ops.relu(x + bias)
    fd.add_output(fd.ops.cast(y, DataType.BFloat16))
    return fd


def check(fd: FusionDefinition, device: str, rows: int = 64) -> None:
    x = torch.randn(rows, 256, device=device).bfloat16()
    bias = torch.randn(256, device=device).bfloat16()
    (got,) = fd.execute([x, bias])
    assert got.device == x.device
    assert torch.equal(got, (x + bias).relu())


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_runs_where_the_inputs_are(device: str, current: int) -> None:
    with torch.cuda.device(current):
        check(definition(), device)
        assert torch.cuda.current_device() == current


def test_a_stream_of_the_other_device() -> None:
    with torch.cuda.stream(torch.cuda.Stream(device=1)):
        check(definition(), "cuda:1")


def test_threads_on_both_devices() -> None:
    fd, failures = definition(), []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                check(fd, f"cuda:{number % 2}", 64 + number)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_inputs_on_two_devices() -> None:
    x = torch.zeros(4, 256, device="cuda:0").bfloat16()
    bias = torch.zeros(256, device="cuda:1").bfloat16()
    with pytest.raises(UserError, match="on another device") as raised:
        definition().execute([x, bias])
    assert raised.value.rule == "argument-device"
