"""An MLP and a transformer block, forward and backward, on meshes of two and three dims."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from tests.multidevice.compared import S, errors, interpreted
from tests.multidevice.networks import NETWORKS, placements
from tests.multidevice.planned import planned
from tests.multidevice.ranks import Ranks, ranks

MESHES: dict[tuple[int, ...], list[Any]] = {
    (4,): [],
    (2, 2): [S(0)],
    (2, 2, 2): [S(0), S(1)],
}


def exact(name: str, mesh: tuple[int, ...]) -> Any:
    build, inputs = NETWORKS[name]
    with interpreted():
        return errors(build, mesh, inputs(torch.float64), placements(name, MESHES[mesh]))


@pytest.mark.parametrize("mesh", [(4,), (2, 2)], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_values(four: Ranks, name: str, mesh: tuple[int, ...]) -> None:
    for found in four.run(exact, name, mesh):
        assert max(found["errors"]) < 1e-12


def test_three_dims() -> None:
    """Data, tokens and heads on a mesh of 2 x 2 x 2."""
    with ranks(8) as eight:
        for found in eight.run(exact, "block", (2, 2, 2)):
            assert max(found["errors"]) < 1e-12


def test_collectives() -> None:
    """Two sums over the heads' dim in each direction, and one for each gradient of a weight over
    the data's dim; gradients of divided weights need no other.
    """
    build, inputs = NETWORKS["block"]
    plan = planned(build, inputs(torch.float64), placements("block", [S(0)]), (2, 2))
    steps = [plan.graph.nodes[c].step for piece in plan.pieces for c in piece.issued]
    counts = Counter((step.kind, step.dim) for step in steps if step)
    assert counts == {("all_reduce", 1): 4, ("all_reduce", 0): 10}


def with_kernels(name: str) -> Any:
    build, inputs = NETWORKS[name]
    return errors(build, (2, 2), inputs(torch.float32), placements(name, [S(0)]))


@pytest.mark.parametrize("name", NETWORKS)
def test_kernels(four: Ranks, name: str) -> None:
    for found in four.run(with_kernels, name):
        assert max(found["errors"]) < 1e-5
