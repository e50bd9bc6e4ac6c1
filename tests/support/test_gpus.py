"""tests/support/gpus: each worker starts at its own GPU."""

from pathlib import Path

import pytest

from tests.support.gpus import visible_devices


@pytest.mark.parametrize(
    ("worker", "chosen", "found", "expected"),
    [
        ("gw0", None, 4, "0,1,2,3"),
        ("gw5", None, 4, "1,2,3,0"),
        ("gw1", "GPU-a,GPU-b", 4, "GPU-b,GPU-a"),
        ("gw1", "2", 4, None),
        ("gw1", "", 4, None),
        ("gw1", None, 1, None),
        ("gw1", None, 0, None),
        ("", None, 4, None),
    ],
)
def test_first_gpu(
    worker: str, chosen: str | None, found: int, expected: str | None, tmp_path: Path
) -> None:
    for name in [*(f"nvidia{i}" for i in range(found)), "nvidiactl", "nvidia-uvm"]:
        (tmp_path / name).touch()
    environment = {"PYTEST_XDIST_WORKER": worker} if worker else {}
    if chosen is not None:
        environment["CUDA_VISIBLE_DEVICES"] = chosen
    assert visible_devices(environment, tmp_path) == expected
