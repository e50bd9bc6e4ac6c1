"""Graphs and pieces of definitions, without processes: a plan depends on sizes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fuser.debug.interpreter import sizes_of
from fuser.multidevice.emit import Place
from fuser.multidevice.plan import Plan, make_plan
from fuser.multidevice.propagate import Sizes
from tests.multidevice.compared import Build, define


def planned(
    build: Build,
    inputs: Sequence[torch.Tensor],
    placements: Sequence[Sequence[Any]],
    mesh: tuple[int, ...] = (2,),
    wanted: Sequence[Any] | None = None,
    coordinate: tuple[int, ...] | None = None,
) -> Plan:
    """The plan of one rank, by default the first."""
    records = define(build, inputs).fusion.records()
    tensors = [at for is_tensor, at, _ in records["arguments"] if is_tensor]
    shapes, number = sizes_of(
        records, {(True, at): x for at, x in zip(tensors, inputs, strict=True)}
    )
    given = {at: tuple(p) for at, p in zip(tensors, placements, strict=True)}
    place = Place(mesh, coordinate or (0,) * len(mesh))
    asked = list(wanted) if wanted else [None] * len(records["outputs"])
    return make_plan(Sizes(records, shapes, number), place, given, asked, {})


def kinds(plan: Plan) -> list[str]:
    """The collectives in the order in which they begin."""
    nodes = plan.graph.nodes
    return [nodes[c].step.kind for piece in plan.pieces for c in piece.issued]  # type: ignore[union-attr]


def results(plan: Plan) -> list[tuple[Any, ...]]:
    """Placements of the outputs."""
    return [plan.graph.nodes[n].placements for n in plan.graph.outputs]
