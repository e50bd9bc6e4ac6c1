"""Placements that a definition gives its tensors: set_placements(), or a mesh and parallel axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from fuser._core import Builder, Tensor
from fuser.errors import Unsupported, UserError
from fuser.multidevice.mesh import Mesh, as_mesh
from fuser.multidevice.shards import REPLICATE, Placements
from fuser.nvfuser.schedule.domains import IterDomain, Split
from fuser.nvfuser.schedule.graph import schedule_of, view_of
from fuser.nvfuser.schedule.types import DEVICES
from fuser.nvfuser.schedule.views import View

PARTIALS = ("sum", "product", "max", "min")


def checked_placements(placements: Any, rank: int, dims: int, whose: str) -> Placements:
    """The placements, with axes from 0. Raises UserError `sharded-placement-1` for another number
    than one for each dim of the mesh, for one that no rule knows, or for an axis out of range.
    """
    found: list[Placement] = []
    for p in placements:
        if type(p) is Replicate or (type(p) is Partial and p.reduce_op in PARTIALS):
            found.append(p)
        elif type(p) is Shard and -rank <= p.dim < rank:
            found.append(Shard(p.dim % rank))
    if len(found) != len(placements) or len(found) != dims:
        raise UserError(
            f"{whose}: expected {dims} placements (one a dim of the mesh), each Replicate(), "
            f"Shard(axis) with an axis below {rank}, or Partial() of {', '.join(PARTIALS)}; got "
            f"{list(placements)}\n  hint: x.redistribute(placements=...) before the call",
            rule="sharded-placement-1",
        )
    return tuple(found)


def set_placements(tensor: Tensor, mesh: Any, placements: Sequence[Any]) -> None:
    """Places a tensor of a definition: an input, an output, or one between, on a mesh.

    placements  torch's Replicate(), Shard(axis) or Partial(op) for each dim of the mesh

    Raises UserError `sharded-mesh-1` for something else than a mesh, `sharded-placement-1` for
    unsuitable placements.
    """
    dims = len(as_mesh(mesh).shape)
    placed = checked_placements(placements, tensor.ndim, dims, f"set_placements({tensor})")
    tensor.set_device_mesh(mesh)
    view_of(tensor).placements = placed


def placed_tensors(builder: Builder) -> tuple[Mesh | None, dict[int, Placements]]:
    """The mesh of a definition, and the placements of the tensors that have the mesh. Raises
    UserError `sharded-mesh-2` for two meshes.
    """
    mesh: Mesh | None = None
    found: dict[int, Placements] = {}
    for view in schedule_of(builder).views:
        if view.mesh is None:
            continue
        if mesh is not None and not _same(mesh, view.mesh):
            raise UserError(
                f"{view.name} is on {view.mesh}, an earlier tensor on {mesh}; expected one mesh",
                rule="sharded-mesh-2",
            )
        mesh = mesh or view.mesh
        found[view.tensor] = view.placements or _of_axes(view, len(mesh.shape))
    return mesh, found


def _same(a: Mesh, b: Mesh) -> bool:
    if a is b:
        return True
    ranks = [mesh.mesh if hasattr(mesh, "mesh") else mesh.ranks for mesh in (a, b)]
    return bool(ranks[0].equal(ranks[1]))


def _of_axes(view: View, dims: int) -> Placements:
    """Placements of a tensor whose loop axes are bound to dims of the mesh. Other dims replicate.
    Reduced axes say how a sum is computed, which follows from its operands.
    """
    found: list[Placement] = [REPLICATE] * dims
    seen: dict[int, int] = {}  # the last dim of the mesh that divides an axis
    kept = view.kept()
    for axis in view.loop:
        if axis.parallel.name not in DEVICES or axis.is_reduction():
            continue
        dim = dims - 1 - "xyz".index(axis.parallel.name[-1])
        source = _divided(view, axis)
        if dim < 0 or source not in kept or seen.get(kept.index(source), -1) > dim:
            raise Unsupported(
                f"{view.name}: {axis} of {view.domain()} on {axis.parallel.name} of a mesh with "
                f"{dims} dims: expected the outer part of an axis of the tensor, outer parts on "
                "earlier dims of the mesh, mesh_x being the last\n"
                "  hint: tensor.outer_split(axis, n), then tensor.axis(axis).parallelize(...)",
                rule="sharded-axis-1",
            )
        place = kept.index(source)
        found[dim], seen[place] = Shard(place), dim
    return tuple(found)


def _divided(view: View, axis: IterDomain) -> IterDomain:
    """The axis of which `axis` is the outer part, also behind parts on other dims of the mesh."""
    for transform in reversed(view.transforms):
        if isinstance(transform, Split) and axis is transform.outer:
            axis = transform.source
        elif isinstance(transform, Split) and axis is transform.inner:
            if transform.outer.parallel.name not in DEVICES:
                return axis
            axis = transform.source
        elif axis in transform.results:
            return axis
    return axis
