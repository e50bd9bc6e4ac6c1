"""fuser/adapters/graph/index_vectors.py: indices that are known at compile time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fuser.adapters.graph.index_vectors import Constants, Vector, repetitions
from tests.adapters.graphs import traced

Indexed = Callable[[Tensor], Tensor]


def vectors(function: Indexed) -> dict[int, Vector] | None:
    x = torch.zeros(3, 4, 5)
    graph = traced(function, x).graph
    node = next(n for n in graph.nodes if "index.Tensor" in str(n.target))
    source, indices = node.args
    return Constants().index_vectors(source.meta["val"].shape, indices)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x[torch.arange(2) + 1], {0: (1, 2)}),
        (lambda x: x[:, torch.arange(4) // 2], {1: (0, 0, 1, 1)}),
        (lambda x: x[:, torch.arange(2)[:, None], torch.arange(3)], {1: (0, 1), 2: (0, 1, 2)}),
        (lambda x: x[:, :, torch.arange(2) - 2], {2: (3, 4)}),
        (lambda x: x[torch.arange(3), torch.arange(3)], None),  # a diagonal
        (lambda x: x[torch.arange(2), :, torch.arange(2)[:, None]], None),  # not adjacent
        (lambda x: x[:, x[0, 0].long()], None),  # data
        (lambda x: torch.ops.aten._unsafe_index(x, [torch.arange(4)]), None),  # outside
    ],
)
def test_index_vectors(function: Indexed, expected: dict[int, Vector] | None) -> None:
    assert vectors(function) == expected


@pytest.mark.parametrize(
    ("vector", "size", "times"),
    [((0, 1, 2), 3, 1), ((0, 0, 1, 1), 2, 2), ((0, 1, 1), 2, None), ((0, 0), 2, None)],
)
def test_repetitions(vector: Vector, size: int, times: int | None) -> None:
    assert repetitions(vector, size) == times
