"""fuser/multidevice/shards.py: torch's chunk rule, and the steps between placements."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.distributed.tensor.placement_types import Placement

from fuser.multidevice.shards import chunk, shard, transitions
from tests.multidevice.compared import P, R, S

PLACEMENTS: list[Placement] = [R, S(0), S(1), P]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_chunks_are_those_of_torch(size: int, parts: int) -> None:
    expected = [list(part) for part in torch.arange(size).chunk(parts)]
    for index in range(parts):
        count, start = chunk(size, parts, index)
        found = list(range(start, start + count))
        assert found == (expected[index] if index < len(expected) else [])


@pytest.mark.parametrize("size", [4, 5, 7])
def test_later_dims_of_the_mesh_divide_the_shards_of_earlier_ones(size: int) -> None:
    covered = []
    for coordinate in itertools.product(range(2), range(3)):
        (count,), (start,) = shard([size], (S(0), S(0)), (2, 3), coordinate)
        covered += range(start, start + count)
    assert covered == list(range(size))


def test_one_step_between_placements_of_one_dim() -> None:
    kinds = {
        (S(0), R): ["all_gather"],
        (S(0), S(1)): ["all_to_all"],
        (P, R): ["all_reduce"],
        (P, S(1)): ["reduce_scatter"],
        (R, S(0)): ["slice"],
        (R, P): ["mask"],
        (R, R): [],
    }
    for (source, target), expected in kinds.items():
        assert [step.kind for step in transitions((source,), (target,))] == expected


@pytest.mark.parametrize("source", list(itertools.product(PLACEMENTS, repeat=2)), ids=str)
def test_steps_reach_the_target_without_holes(source: tuple[Placement, ...]) -> None:
    """An earlier dim of the mesh never enters or leaves an axis that a later one divides."""
    for target in itertools.product(PLACEMENTS, repeat=2):
        if any(t.is_partial() and not s.is_partial() for s, t in zip(source, target, strict=True)):
            continue
        current = list(source)
        for step in transitions(source, target):
            assert current[step.dim] == step.source
            current[step.dim] = step.target
            if step.dim == 0 and current[1] != R and not current[1].is_partial():
                assert current[1] not in (step.source, step.target), (source, target)
        assert tuple(current) == target
