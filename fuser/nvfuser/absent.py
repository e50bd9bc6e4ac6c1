"""Names of nvFuser for its profiler and for analyses of axes.

They can be imported and named, so that a program that never uses them runs unchanged. Their use
raises Unsupported with a hint about the alternative.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

from fuser.errors import Unsupported

ONE_SCHEDULE = (
    "a definition is cut into kernels and scheduled by execute()\n"
    "  hint: fuser.explain(fd, inputs) shows the kernels, tensor.get_loop_domain() the axes"
)
_TORCH_PROFILER = (
    "times of a call come from torch\n"
    "  hint: fd.execute(inputs, profile=True) and fd.profile(), or torch.profiler with step names"
)

IdMappingMode = Enum("IdMappingMode", "exact almost_exact broadcast permissive loop")


def refuse(what: str, why: str, rule: str) -> NoReturn:
    """Raises Unsupported `rule`."""
    raise Unsupported(f"{what}: {why}", rule=rule)


class PythonProfiler:
    """Times of the code in a `with` block; its constructor raises Unsupported `profiler-1`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse("PythonProfiler()", _TORCH_PROFILER, "profiler-1")


class Namespace:
    """A module of nvFuser: calling its attributes raises Unsupported, except names that
    fuser.nvfuser.absent defines.
    """

    def __init__(self, name: str, why: str, rule: str) -> None:
        self._name, self._why, self._rule = name, why, rule

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in globals():
            return globals()[name]

        def method(*args: Any, **kwargs: Any) -> NoReturn:
            refuse(f"{self._name}.{name}()", self._why, self._rule)

        return method


idm = Namespace("idm", ONE_SCHEDULE, "by-hand-1")


def get_fusion_profile(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises Unsupported `profiler-1`."""
    refuse("get_fusion_profile()", _TORCH_PROFILER, "profiler-1")


def reset_profiler(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises Unsupported `profiler-1`."""
    refuse("reset_profiler()", _TORCH_PROFILER, "profiler-1")
