"""Meshes of ranks under nvFuser's names; torch.distributed has the processes and groups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeAlias

import torch
import torch.distributed
import torch.distributed.device_mesh

from fuser.errors import UserError

CommunicatorBackend = Enum("CommunicatorBackend", "none nccl ucc cuda")


class DeviceMesh:
    """Ranks that share tensors, in an array with as many dims as the mesh. mesh_x is its last dim,
    mesh_y the one before.

        DeviceMesh(torch.arange(4).reshape(2, 2))

    A mesh of torch (torch.distributed.device_mesh) serves in its place.
    """

    def __init__(self, ranks: Sequence[int] | torch.Tensor) -> None:
        self.ranks = torch.as_tensor(ranks, dtype=torch.int64)
        self._on: dict[str, torch.distributed.device_mesh.DeviceMesh] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of ranks along each dim."""
        return tuple(self.ranks.shape)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.ranks.numel()

    def on(self, device_type: str) -> torch.distributed.device_mesh.DeviceMesh:
        """The mesh of torch on a type of device. All ranks create it at the same call."""
        if device_type not in self._on:
            mesh = torch.distributed.device_mesh.DeviceMesh(device_type, self.ranks)
            self._on[device_type] = mesh
        return self._on[device_type]

    def __repr__(self) -> str:
        return f"DeviceMesh({self.ranks.tolist()})"


Mesh: TypeAlias = DeviceMesh | torch.distributed.device_mesh.DeviceMesh


def as_mesh(mesh: Any) -> Mesh:
    """The mesh. Raises UserError `sharded-mesh-1` for another value."""
    if not isinstance(mesh, DeviceMesh | torch.distributed.device_mesh.DeviceMesh):
        raise UserError(
            f"set_device_mesh(): expected a DeviceMesh, got {mesh!r:.80}\n"
            "  hint: torch.distributed.device_mesh.init_device_mesh, or "
            "fuser.multidevice.DeviceMesh([0, 1])",
            rule="sharded-mesh-1",
        )
    return mesh


class Communicator:
    """The processes of torch.distributed. Without a process group there is one."""

    @staticmethod
    def instance() -> Communicator:
        """The communicator; nvFuser has one for a process."""
        return Communicator()

    def is_available(self) -> bool:
        """True if torch has a process group."""
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def size(self) -> int:
        """Number of processes."""
        return torch.distributed.get_world_size() if self.is_available() else 1

    def rank(self) -> int:
        """Number of this process."""
        return torch.distributed.get_rank() if self.is_available() else 0

    def local_size(self) -> int:
        """Number of processes of this host, as torchrun says it."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.size()))

    def local_rank(self) -> int:
        """Number of this process on this host, as torchrun says it."""
        return int(os.environ.get("LOCAL_RANK", self.rank()))

    def barrier(self) -> None:
        """Waits for all processes."""
        if self.is_available():
            torch.distributed.barrier()
