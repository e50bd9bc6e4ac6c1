"""Sharded definitions: one definition over a mesh of devices, on torch.distributed.

DeviceMesh and Communicator have nvFuser's names; a torch DeviceMesh serves as well.
"""

import weakref
from importlib import import_module
from typing import Any

from fuser._core import Builder

# Definitions with a tensor on a mesh.
ON_MESHES: weakref.WeakSet[Builder] = weakref.WeakSet()

_MODULES = {
    "Communicator": "mesh",
    "CommunicatorBackend": "mesh",
    "DeviceMesh": "mesh",
    "execute_with_dtensors": "run",
    "set_placements": "placements",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fuser.multidevice' has no attribute {name!r}")
    return getattr(import_module(f"fuser.multidevice.{_MODULES[name]}"), name)
