"""csrc/fusion/segment/issue_slots.cpp: issue slots of kernels, tested through fuser.explain."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import fuser
from fuser import DataType, FusionDefinition, Tensor, _core

COST = {row.name: row.cost for row in _core.op_rows()}
ROWS, COLUMNS = 8, 64
ELEMENTS = ROWS * COLUMNS


@pytest.mark.parametrize(
    ("write", "slots"),
    [
        # A load, the op, a store.
        (lambda fd, x: fd.ops.exp(x), ELEMENTS * (COST["exp"] + 2)),
        (lambda fd, x: fd.ops.cast(x, DataType.Half), ELEMENTS * 3),
        # A load and an addition per element, a store and a square root per row.
        (
            lambda fd, x: fd.ops.sqrt(fd.ops.sum(x, [1])),
            ELEMENTS * 2 + ROWS * (COST["sqrt"] + 1),
        ),
    ],
    ids=["exp", "cast", "sum"],
)
def test_slots(write: Callable[[FusionDefinition, Tensor], Tensor], slots: float) -> None:
    with FusionDefinition() as fd:
        fd.add_output(write(fd, fd.define_tensor([-1, -1])))
    (step,) = fuser.explain(fd, torch.zeros(ROWS, COLUMNS)).steps
    assert step.slots == slots
