"""fuser/multidevice/run.py: sharded definitions on gloo processes, with kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.multidevice.compared import R, S, errors
from tests.multidevice.ranks import Ranks


def pointwise(fd: Any, x: Any, bias: Any) -> Sequence[Any]:
    return [fd.ops.gelu(x + bias) * 2.0]


def softmax(fd: Any, x: Any) -> Sequence[Any]:
    return [fd.ops.softmax(x, 1)]


def column_wise(fd: Any, x: Any, w: Any, b: Any) -> Sequence[Any]:
    return [fd.ops.relu(fd.ops.linear(x, w, b))]


def row_wise(fd: Any, x: Any, w: Any, b: Any) -> Sequence[Any]:
    return [fd.ops.relu(fd.ops.linear(x, w, b))]


X = [torch.linspace(-2, 2, 96).reshape(8, 12), torch.linspace(-1, 1, 12)]
W = [X[0], torch.linspace(-1, 1, 16 * 12).reshape(16, 12).sin(), torch.linspace(-1, 1, 16)]

CASES: dict[str, tuple[Any, ...]] = {
    "pointwise": (pointwise, X, [[S(1)], [R]], []),
    "softmax": (softmax, X[:1], [[S(1)]], ["all_reduce", "all_reduce"]),
    "linear column-wise": (column_wise, W, [[R], [S(0)], [S(0)]], []),
    "linear row-wise": (row_wise, W, [[S(1)], [S(1)], [R]], ["all_reduce"]),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels(four: Ranks, case: str) -> None:
    build, inputs, placements, collectives = CASES[case]
    for found in four.run(errors, build, (2,), inputs, placements)[:2]:
        assert max(found["errors"]) < 1e-6
        assert found["collectives"] == collectives
