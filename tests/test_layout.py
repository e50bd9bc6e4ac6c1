"""fuser/layout.py: contiguity and stride order for define_tensor()."""

import itertools

import numpy as np
import pytest
import torch

from fuser import ShapeError, compute_tensor_descriptor


@pytest.mark.parametrize(
    ("sizes", "strides", "contiguity", "order"),
    [
        ([], [], [], []),
        ([5], [1], [True], [0]),
        ([5], [2], [False], [0]),
        ([2, 3], [3, 1], [True, True], [1, 0]),
        ([2, 3], [1, 2], [True, True], [0, 1]),
        ([2, 3], [4, 1], [False, True], [1, 0]),
        ([2, 3], [8, 2], [False, False], [1, 0]),
        ([2, 1, 3], [3, 3, 1], [True, None, True], [2, 1, 0]),
        ([2, 3], [0, 1], [None, True], [1, 0]),
        ([2, 3], [1, 0], [True, None], [1, 0]),
        ([2, 3], [0, 0], [None, None], [1, 0]),
        ([2, 3, 4], [4, 0, 1], [True, None, True], [2, 1, 0]),
        ([2, 3, 4], [1, 0, 2], [True, None, True], [0, 1, 2]),
        ([5, 2, 3, 4], [0, 1, 8, 2], [None, True, True, True], [3, 0, 2, 1]),
        ([2, 3, 4], [12, 4, 2], [True, False, False], [2, 1, 0]),
        ([2, 1, 3], [3, 7, 1], [None, True, True], [1, 2, 0]),
        ([1], [0], [None], [0]),
        ([3, 0], [1, 3], [True, True], [0, 1]),
        ([3, 4], [2, 1], [False, True], [1, 0]),
        ([2, 3, 4, 5], [60, 1, 15, 3], [True, True, True, True], [3, 0, 2, 1]),
        ([1, 1], [1, 1], [None, None], [1, 0]),
        ([0, 3], [3, 1], [True, True], [1, 0]),
    ],
)
def test_table(
    sizes: list[int], strides: list[int], contiguity: list[bool | None], order: list[int]
) -> None:
    assert compute_tensor_descriptor(sizes, strides) == (contiguity, order)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_permutations_of_dense_tensors_are_dense(rank: int, rng: np.random.Generator) -> None:
    for dims in itertools.permutations(range(rank)):
        sizes = [int(n) for n in rng.integers(2, 6, rank)]
        t = torch.empty(sizes).permute(dims)
        contiguity, order = compute_tensor_descriptor(t.shape, t.stride())
        assert contiguity == [True] * rank
        # order[i] is the position of dim i, counted from the innermost.
        assert order == [rank - 1 - d for d in dims]


def test_layout_1() -> None:
    with pytest.raises(ShapeError) as caught:
        compute_tensor_descriptor([2, 3], [1])
    assert caught.value.rule == "layout-1"
    assert str(caught.value) == (
        "compute_tensor_descriptor(): 2 sizes [2, 3] against 1 strides [1]; "
        "expected one stride a dim"
    )


def test_layout_2() -> None:
    with pytest.raises(ShapeError) as caught:
        compute_tensor_descriptor([2, -1], [1, 1])
    assert caught.value.rule == "layout-2"
    assert str(caught.value) == (
        "compute_tensor_descriptor(): expected sizes and strides of at least 0, "
        "got sizes [2, -1], strides [1, 1]"
    )
