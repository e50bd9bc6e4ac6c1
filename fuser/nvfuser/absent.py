"""Names of nvFuser for hand-written schedules and for several devices.

They can be imported and named, so that a program that never uses them runs unchanged. Their use
raises Unsupported with a hint about the alternative.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

from fuser._core import Tensor
from fuser.errors import Unsupported

BY_HAND = (
    "manual schedules are not supported: fuser schedules every definition\n"
    "  hint: fd.plan(inputs) gives the plan, "
    "fd.execute(inputs, plan=plan.replace(...)) runs a changed plan"
)
ONE_DEVICE = (
    "a definition runs on one device\n"
    "  hint: run one definition per device, and torch.distributed between them"
)
_TORCH_PROFILER = (
    "times of a call come from torch\n"
    "  hint: fd.execute(inputs, profile=True) and fd.profile(), or torch.profiler with step names"
)

ParallelType = Enum(
    "ParallelType",
    "device_x device_y device_z mesh_x mesh_y mesh_z grid_x grid_y grid_z block_x block_y block_z "
    "mma tma vectorize unroll unswitch group serial stream cluster_x",
)
MemoryType = Enum("MemoryType", "local shared global tensor symmetric")
SchedulerType = Enum(
    "SchedulerType",
    "none no_op pointwise matmul reduction inner_persistent inner_outer_persistent "
    "outer_persistent transpose expr_eval resize communication cutlass greedy",
)
LoadStoreOpType = Enum("LoadStoreOpType", "set segment_set ld_matrix cp_async tma")
CommunicatorBackend = Enum("CommunicatorBackend", "none nccl ucc cuda")
IdMappingMode = Enum("IdMappingMode", "exact almost_exact broadcast permissive loop")


def refuse(what: str, why: str, rule: str) -> NoReturn:
    """Raises Unsupported `rule`."""
    raise Unsupported(f"{what}: {why}", rule=rule)


class _Refused:
    """A class of nvFuser; its constructor raises Unsupported."""

    _why, _rule = BY_HAND, "by-hand-1"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse(f"{type(self).__name__}()", self._why, self._rule)


class KernelExecutor(_Refused):
    """One kernel of a hand-written schedule."""


class LaunchParams(_Refused):
    """Numbers of blocks and threads."""


class CompileParams(_Refused):
    """Compile options of a kernel of a hand-written schedule."""


class PointwiseParams(_Refused):
    """Parameters of a scheduler; see fuser.Plan."""


class ReductionParams(_Refused):
    """Parameters of a scheduler; see fuser.Plan."""


class MatmulParams(_Refused):
    """Parameters of a scheduler; torch multiplies matrices here."""


class DeviceMesh(_Refused):
    """Devices that share a tensor."""

    _why, _rule = ONE_DEVICE, "devices-1"


class Communicator(_Refused):
    """Devices that exchange tensors."""

    _why, _rule = ONE_DEVICE, "devices-1"


class PythonProfiler(_Refused):
    """Times of the code in a `with` block."""

    _why, _rule = _TORCH_PROFILER, "profiler-1"


class Namespace:
    """A module of nvFuser, or fd.sched: calling its attributes raises Unsupported, except names
    that fuser.nvfuser.absent defines.
    """

    def __init__(self, name: str, why: str, rule: str) -> None:
        self._name, self._why, self._rule = name, why, rule

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in NAMES:
            return globals()[name]

        def method(*args: Any, **kwargs: Any) -> NoReturn:
            refuse(f"{self._name}.{name}()", self._why, self._rule)

        return method


multidevice = Namespace("multidevice", ONE_DEVICE, "devices-1")
schedule = Namespace("schedule", BY_HAND, "by-hand-1")
idm = Namespace("idm", BY_HAND, "by-hand-1")


# Methods of nvFuser's TensorView that change or read a schedule.
_OF_SCHEDULES = (
    *("axis", "cache_after", "cache_before", "domain", "get_logical_domain", "get_loop_domain"),
    *("get_root_domain", "has_root", "inner_split", "merge", "outer_split", "reorder", "rfactor"),
    *("set_allocation_domain", "set_memory_type", "split", "swizzle", "swizzle1d"),
)


def _refused_method(name: str, why: str, rule: str) -> Callable[..., NoReturn]:
    def method(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(f"Tensor.{name}()", why, rule)

    return method


for _names, _why, _rule in [
    (_OF_SCHEDULES, BY_HAND, "by-hand-1"),
    (("set_device_mesh",), ONE_DEVICE, "devices-1"),
]:
    for _name in _names:
        setattr(Tensor, _name, _refused_method(_name, _why, _rule))


def execute_with_dtensors(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises Unsupported `devices-1`."""
    refuse("execute_with_dtensors()", ONE_DEVICE, "devices-1")


def get_fusion_profile(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises Unsupported `profiler-1`."""
    refuse("get_fusion_profile()", _TORCH_PROFILER, "profiler-1")


def reset_profiler(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises Unsupported `profiler-1`."""
    refuse("reset_profiler()", _TORCH_PROFILER, "profiler-1")


# Names of this module that `from fuser import ...` finds.
NAMES = (
    *("CommunicatorBackend", "IdMappingMode", "LoadStoreOpType", "MemoryType", "ParallelType"),
    *("SchedulerType", "CompileParams", "KernelExecutor", "LaunchParams", "MatmulParams"),
    *("PointwiseParams", "ReductionParams", "Communicator", "DeviceMesh", "PythonProfiler"),
    *("execute_with_dtensors", "get_fusion_profile", "idm", "multidevice", "reset_profiler"),
    "schedule",
)
