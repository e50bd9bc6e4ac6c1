"""Which GPU a worker of pytest-xdist calls its first: tests use device 0, and many on one GPU would
run out of its memory.
"""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["visible_devices"]


def visible_devices(environment: Mapping[str, str], devices: Path = Path("/dev")) -> str | None:
    """CUDA_VISIBLE_DEVICES for this worker: the same GPUs, from another one on. None: as it is."""
    worker = environment.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    count = len(list(devices.glob("nvidia[0-9]*")))
    gpus = [str(i) for i in range(count)] if chosen is None else chosen.split(",")
    if not worker.isdigit() or len(gpus) < 2:
        return None
    first = int(worker) % len(gpus)
    return ",".join(gpus[first:] + gpus[:first])
