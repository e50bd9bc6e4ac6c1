"""fuser/multidevice/placements.py: definitions that place their tensors themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuser
from fuser import FusionDefinition, ParallelType, Unsupported, UserError
from fuser.multidevice import DeviceMesh, set_placements
from fuser.multidevice.placements import placed_tensors
from tests.multidevice.compared import P, R, S, interpreted, mesh_of
from tests.multidevice.ranks import Ranks

GRID = DeviceMesh([[0, 1], [2, 3]])


def tensor(rank: int = 2) -> tuple[FusionDefinition, Any]:
    fd = FusionDefinition()
    return fd, fd.define_tensor([-1] * rank, dtype=fuser.DataType.Double)


def placed(fd: FusionDefinition) -> Any:
    _, found = placed_tensors(fd.fusion.builder)
    return found


def test_outer_splits_on_a_mesh() -> None:
    """mesh_x is the last dim of the mesh; tensors without parallel axes are replicated."""
    fd, x = tensor()
    y, z = x + 1.0, x + 2.0
    for t in (x, y, z):
        t.set_device_mesh(GRID)
    x.outer_split(1, 2)
    x.axis(1).parallelize(ParallelType.mesh_x)
    y.outer_split(0, 2)
    y.outer_split(1, 2)
    y.axis(0).parallelize(ParallelType.mesh_y)
    y.axis(1).parallelize(ParallelType.mesh_x)
    assert placed(fd) == {x.id: (R, S(1)), y.id: (S(0), S(0)), z.id: (R, R)}


def test_a_whole_axis_and_the_older_primitives() -> None:
    fd, x = tensor()
    fd.sched._set_device_mesh(x, GRID)
    fd.sched.parallelize(x, 0, ParallelType.mesh_y)
    assert placed(fd) == {x.id: (S(0), R)}


def test_placements_of_torch() -> None:
    fd, x = tensor()
    set_placements(x, GRID, [S(-1), R])
    assert placed(fd) == {x.id: (S(1), R)}


def _inner(x: Any) -> None:
    x.inner_split(0, 2)
    x.axis(1).parallelize(ParallelType.mesh_x)


def _turned(x: Any) -> None:
    x.outer_split(0, 2)
    x.outer_split(1, 2)
    x.axis(0).parallelize(ParallelType.mesh_x)
    x.axis(1).parallelize(ParallelType.mesh_y)


@pytest.mark.parametrize(
    ("bind", "rule"),
    [
        (_inner, "sharded-axis-1"),
        (_turned, "sharded-axis-1"),
        (lambda x: x.axis(0).parallelize(ParallelType.mesh_z), "sharded-axis-1"),
        (lambda x: x.set_device_mesh([0, 1]), "sharded-mesh-1"),
        (lambda x: set_placements(x, GRID, [S(0)]), "sharded-placement-1"),
        (lambda x: set_placements(x, GRID, [S(2), R]), "sharded-placement-1"),
        (lambda x: (x + 1.0).set_device_mesh(DeviceMesh([0])), "sharded-mesh-2"),
    ],
)
def test_refusals(bind: Callable[[Any], Any], rule: str) -> None:
    fd, x = tensor()
    x.set_device_mesh(GRID)
    with pytest.raises((UserError, Unsupported), match="expected") as caught:
        (bind(x), placed(fd))
    assert caught.value.rule == rule  # type: ignore[union-attr]


class OnMesh(FusionDefinition):
    """An MLP whose tensors multidevice_schedule() places."""

    def definition(self) -> None:
        double = fuser.DataType.Double
        self.x, self.w, self.v = (self.define_tensor([-1, -1], dtype=double) for _ in range(3))
        self.h = self.ops.relu(self.ops.linear(self.x, self.w))
        self.y = self.ops.linear(self.h, self.v)
        self.add_output(self.y)

    def multidevice_schedule(self) -> None:
        mesh = DeviceMesh([0, 1, 2, 3])
        for t, axis in ((self.x, None), (self.w, 0), (self.h, 1), (self.v, 1), (self.y, None)):
            t.set_device_mesh(mesh)
            if axis is not None:
                t.outer_split(axis, 4)
                t.axis(axis).parallelize(ParallelType.mesh_x)


def local_shards() -> Any:
    """The MLP on local shards, as programs of nvFuser call it."""
    x, w, v = (torch.linspace(-1, 1, m * n).double().sin().reshape(m, n) for m, n in SIZES)
    rank = torch.distributed.get_rank()
    with interpreted():
        (y,) = OnMesh().execute([x, w.chunk(4, 0)[rank], v.chunk(4, 1)[rank]])
    assert type(y) is torch.Tensor
    expected = torch.relu(x @ w.T) @ v.T
    return float((y - expected).abs().max())


SIZES = [(3, 8), (12, 8), (8, 12)]


def test_local_shards_of_a_definition_on_a_mesh(four: Ranks) -> None:
    assert max(four.run(local_shards)) < 1e-12


def mistakes() -> list[str]:
    """Rules of wrong calls, on all ranks."""
    mesh, pair = mesh_of(4), mesh_of(2)
    from torch.distributed.tensor import DTensor

    def of(mesh: Any, placements: Any) -> Any:
        return DTensor.from_local(torch.ones(2, 2), mesh, placements, run_check=False)

    fd = FusionDefinition()
    x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    fd.add_output(x + y)
    on_mesh = FusionDefinition()
    x, y = on_mesh.define_tensor([-1, -1]), on_mesh.define_tensor([-1, -1])
    on_mesh.add_output(x + y)
    for t in (x, y):
        set_placements(t, mesh, [S(0)])
    whole = of(mesh, [R])
    sizes = {"shape": torch.Size((9, 2)), "stride": (2, 1)}  # chunks of 3, 3, 3 and 0 rows
    rows = [3, 3, 2, 0][torch.distributed.get_rank()]  # wrong on one rank
    short = DTensor.from_local(torch.ones(rows, 2), mesh, [S(0)], run_check=False, **sizes)
    outside = torch.distributed.get_rank() >= 2
    calls = [
        lambda: fd.execute_with_dtensors([torch.ones(2, 2), torch.ones(2, 2)]),
        lambda: fd.execute([whole, torch.ones(2, 2)]),
        lambda: fd.execute([whole, of(pair, [R])]),
        lambda: fd.execute([whole, of(mesh, [fuser_partial()])]),
        lambda: fd.execute_with_dtensors([whole, whole], [[R], [R]]),
        lambda: fd.execute_with_dtensors([whole, whole], [[S(3)]]),
        lambda: fd.execute([whole, whole], plan=fd.plan([torch.ones(2, 2)] * 2)),
        lambda: fd.execute([whole]),
        lambda: fd.execute([short] * 2),
        lambda: on_mesh.execute([torch.ones(1 + torch.distributed.get_rank() // 3, 2)] * 2),
        lambda: fd.execute([of(pair, [R])] * 2) if outside else refuse_as_outside(),
    ]
    found = []
    for call in calls:
        try:
            call()
            found.append("nothing raised")
        except UserError as error:
            found.append(error.rule)
    return found


def refuse_as_outside() -> None:
    raise UserError("the rank is in the mesh", rule="sharded-rank-1")


def fuser_partial() -> Any:
    from torch.distributed.tensor import Partial

    return Partial("avg")


def test_wrong_calls(four: Ranks) -> None:
    rules = [
        *("sharded-mesh-3", "sharded-mixed-1", "sharded-mesh-2", "sharded-placement-1"),
        *("sharded-results-1", "sharded-placement-1", "sharded-plan-1", "argument-count"),
        *("sharded-sizes-1", "sharded-sizes-1", "sharded-rank-1"),
    ]
    for found in four.run(mistakes):
        assert found == rules
    assert P.is_partial()
