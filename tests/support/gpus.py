"""Assignment of GPUs to workers of pytest-xdist. Tests use device 0; all workers on one GPU would
exceed its memory."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["visible_devices"]


def visible_devices(environment: Mapping[str, str], devices: Path = Path("/dev")) -> str | None:
    """CUDA_VISIBLE_DEVICES for this worker: all GPUs, rotated by the worker's number; None if
    unchanged."""
    worker = environment.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    count = len(list(devices.glob("nvidia[0-9]*")))
    gpus = [str(i) for i in range(count)] if chosen is None else chosen.split(",")
    if not worker.isdigit() or len(gpus) < 2:
        return None
    first = int(worker) % len(gpus)
    return ",".join(gpus[first:] + gpus[:first])
