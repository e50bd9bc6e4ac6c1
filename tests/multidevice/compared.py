"""Sharded runs on the ranks of a mesh, compared with the whole definition in float64."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import fuser
from fuser import FusionDefinition
from fuser.debug.interpreter import interpret_exactly
from fuser.multidevice import plan
from fuser.multidevice.run import executor_of

Build = Callable[..., Sequence[Any]]  # (fd, *tensors) to outputs

R = Replicate()
P = Partial()


def S(axis: int) -> Shard:
    """Shard(axis)."""
    return Shard(axis)


def device() -> str:
    """Type of the devices of the group."""
    return "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"


@functools.cache
def mesh_of(*shape: int) -> DeviceMesh:
    """The mesh of the first ranks. All ranks create it, also those outside of it."""
    return DeviceMesh(device(), torch.arange(math.prod(shape)).reshape(shape))


def define(build: Build, inputs: Sequence[torch.Tensor]) -> FusionDefinition:
    """The definition with the outputs of `build`, at symbolic sizes."""
    fd = FusionDefinition()
    for output in build(fd, *(fd.from_pytorch(x) for x in inputs)):
        fd.add_output(output)
    return fd


def distributed(x: torch.Tensor, mesh: DeviceMesh, placements: Sequence[Any]) -> DTensor:
    """The DTensor of a tensor that all ranks have. A partial sum has a share on each rank."""
    if not any(p.is_partial() for p in placements):
        return distribute_tensor(x, mesh, placements)
    whole = [R if p.is_partial() else p for p in placements]
    local = distribute_tensor(x, mesh, whole).to_local().clone()
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    for p, parts, index in zip(placements, mesh.shape, coordinate, strict=True):
        if p.is_partial("sum"):  # shares 1, 2, ... and the rest
            shares = parts * (parts + 1) // 2
            local = local / shares * (index + 1)
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=x.shape, stride=x.stride()
    )


@contextmanager
def interpreted() -> Iterator[None]:
    """Local definitions are computed op by op in float64, without kernels."""
    local = plan._local

    def exact(*args: Any) -> Any:
        found = local(*args)

        def execute(inputs: Sequence[Any], device: Any) -> list[torch.Tensor]:
            values = [value.value for value in interpret_exactly(found.fusion, inputs, False)]
            types = [t.dtype() for t in found.fusion.outputs()]
            return [
                v.to(getattr(torch, t.torch_name)).clone()
                for v, t in zip(values, types, strict=True)
            ]

        return plan.LocalDefinition(found.fusion, execute, found.arguments)

    with mock.patch.object(plan, "_local", exact):
        yield


def errors(
    build: Build,
    shape: Sequence[int],
    inputs: Sequence[torch.Tensor],
    placements: Sequence[Sequence[Any]],
    wanted: Sequence[Any] | None = None,
) -> dict[str, Any] | None:
    """Differences between a sharded run and the whole definition, relative to the largest value,
    with the placements of the results and the collectives. None outside of the mesh.
    """
    mesh = mesh_of(*shape)
    if mesh.get_coordinate() is None:
        return None
    inputs = [x.to(device()) for x in inputs]
    fd = define(build, inputs)
    given = [distributed(x, mesh, p) for x, p in zip(inputs, placements, strict=True)]
    found = fd.execute_with_dtensors(given, wanted)
    assert all(isinstance(y, DTensor) for y in found)
    expected = fuser.evaluate(define(build, inputs), inputs)
    (made,) = (call.plan for call in executor_of(fd)._prepared.values())
    return {
        "errors": [
            _difference(y.full_tensor(), e)  # type: ignore[attr-defined]
            for y, e in zip(found, expected, strict=True)
        ],
        "placements": [y.placements for y in found],  # type: ignore[attr-defined]
        "collectives": [
            made.graph.nodes[c].step.kind  # type: ignore[union-attr]
            for piece in made.pieces
            for c in piece.issued
        ],
        "pieces": sum(local is not None for local in made.local),
    }


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference, relative to the largest expected value; infinite for other shapes, and
    for a NaN that is not at its place.
    """
    found = found.cpu()
    if found.shape != expected.shape or not found.isnan().equal(expected.isnan()):
        return math.inf
    if not expected.numel():
        return 0.0
    kind = torch.complex128 if expected.is_complex() else torch.float64
    a, b = found.to(kind).nan_to_num(), expected.to(kind).nan_to_num()
    return float((a - b).abs().max() / b.abs().max().clamp(min=1.0))
