"""fuser/adapters/graph/borders.py: views that become part of a region."""

from __future__ import annotations

import pytest
import torch

from fuser.adapters.partition import partition
from tests.adapters.graphs import regions, traced


def test_views_at_the_borders_stay_outside() -> None:
    assert regions(lambda x: (x.t().sin() + 1).t().view(-1), torch.ones(4, 3)) == [["sin", "add"]]
    assert regions(lambda x: x.t()[1:].t(), torch.ones(4, 3)) == []


def rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1) * 0.5 + x


@pytest.mark.parametrize(
    ("function", "operands"),
    [
        (rotated, 1),
        (lambda x: x[:, 1:].relu() * x[:, :-1], 1),
        (lambda x: x.relu() * x.t(), 1),
        (lambda x: x[:, :2].relu() * x[:, 2:], 2),  # each element is read once
        (lambda x: x[:, ::2].relu() * x[:, 1::2], 1),  # two regions would leave gaps
        (lambda x: (x.relu() * x.t(), x.t().mm(x)), 1),  # two views, one read by torch
        (lambda x: [x.relu() * (y := x.t()), y.mm(x)], 2),  # torch needs the view anyway
    ],
)
def test_what_is_read_twice_is_one_operand(function, operands: int) -> None:
    (nodes,) = partition(traced(function, torch.ones(4, 4)).graph).regions
    outside = {n for node in nodes for n in node.all_input_nodes if n not in nodes}
    assert len(outside) == operands


@pytest.mark.parametrize(
    ("function", "operands"),
    [
        (lambda x: [t * 2 for t in x.unbind()], 1),
        (lambda x: [t * 2 for t in x.view(4, 2, 2, 5).permute(2, 0, 3, 1).unbind()], 1),
        (lambda x: x[0].relu() * x[1], 2),  # they are in one kernel anyway
        (lambda x: [(x[0] * 2).relu(), x[1:].sum()], 1),
        (lambda x: [t * 2 for t in x.view(10, 8).unbind()], 10),  # too many for vectorization
        (lambda x: [x[0] * 2, (y := x[1]) * 2, y.mm(y.t())], 2),  # torch reads one of them
    ],
)
def test_parts_that_go_apart_are_one_operand(function, operands: int) -> None:
    (nodes,) = partition(traced(function, torch.ones(4, 4, 5)).graph).regions
    outside = {n for node in nodes for n in node.all_input_nodes if n not in nodes}
    assert len(outside) == operands
