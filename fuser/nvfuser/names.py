"""Names of nvFuser that `from fuser import ...` finds, with the modules that define them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_SCHEDULE = "fuser.nvfuser.schedule"

MODULES = {
    **dict.fromkeys(
        ("CacheOp", "LoadStoreOpType", "MemoryType", "ParallelType", "SchedulerType"),
        f"{_SCHEDULE}.types",
    ),
    **dict.fromkeys(
        (
            *("CompileParams", "HeuristicParams", "LaunchParams", "MatmulParams"),
            *("PointwiseParams", "ReductionParams", "SchedulerHyperParameters"),
        ),
        f"{_SCHEDULE}.params",
    ),
    **dict.fromkeys(("IterDomain", "TensorDomain"), f"{_SCHEDULE}.domains"),
    "TensorView": f"{_SCHEDULE}.tensor_view",
    "KernelExecutor": f"{_SCHEDULE}.run",
    **dict.fromkeys(
        ("Communicator", "CommunicatorBackend", "DeviceMesh"), "fuser.multidevice.mesh"
    ),
    "execute_with_dtensors": "fuser.multidevice.run",
    **dict.fromkeys(
        (
            *("IdMappingMode", "PythonProfiler", "get_fusion_profile", "idm"),
            "reset_profiler",
        ),
        "fuser.nvfuser.absent",
    ),
}
NAMES = (*MODULES, "schedule")


def find(name: str) -> Any:
    """The class, function or module of that name, which is in NAMES."""
    if name == "schedule":
        return import_module(_SCHEDULE)
    return getattr(import_module(MODULES[name]), name)
