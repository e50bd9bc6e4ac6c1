"""fuser/multidevice/mesh.py: nvFuser's names of meshes and processes."""

import torch

import fuser
from fuser.multidevice import Communicator, DeviceMesh
from tests.multidevice.ranks import Ranks


def test_meshes() -> None:
    mesh = DeviceMesh(torch.arange(6).reshape(2, 3))
    assert (mesh.size, mesh.shape) == (6, (2, 3))
    assert repr(DeviceMesh([0, 1])) == "DeviceMesh([0, 1])"
    assert fuser.DeviceMesh is DeviceMesh


def test_one_process_without_a_group() -> None:
    alone = Communicator.instance()
    assert not alone.is_available()
    assert (alone.size(), alone.rank(), alone.local_size(), alone.local_rank()) == (1, 0, 1, 0)
    alone.barrier()


def of_group() -> tuple[int, ...]:
    found = Communicator.instance()
    found.barrier()
    return found.size(), found.rank(), found.local_size(), found.local_rank()


def test_processes_of_a_group(four: Ranks) -> None:
    assert four.run(of_group) == [(4, rank, 4, rank) for rank in range(4)]
