"""Schedules as data: their text, and rejections by verify()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuser import FusionDefinition, InternalError, Plan, UserError, _core

s = _core.schedules


def schedule() -> Any:
    """Two axes as two dims, the inner one in vectors of 4."""
    made = s.Schedule()
    made.dims = [s.Dim([0]), s.Dim([1])]
    made.stages = [
        s.Stage(
            [
                s.Loop(0, 0, s.Bind.GridThread),
                s.Loop(1, 0, s.Bind.GridThread),
                s.Loop(1, 4, s.Bind.Vector),
            ]
        )
    ]
    made.widths = [4, 1]
    return made


def test_text() -> None:
    made = schedule()
    made.verify(axes=2)
    assert str(made) == (
        "dims [a0] [a1]; stage d0:GridThread d1:GridThread d1:Vector(4) computes 0; "
        "widths [4, 1]; tail 0; threads 256"
    )


def vector_outside(made: Any) -> None:
    made.stages = [s.Stage([s.Loop(1, 4, s.Bind.Vector), s.Loop(0, 0, s.Bind.GridThread)])]


def vector_of_any_size(made: Any) -> None:
    made.stages = [s.Stage([s.Loop(1, 0, s.Bind.Vector)])]


def no_such_dim(made: Any) -> None:
    made.stages = [s.Stage([s.Loop(2, 0, s.Bind.Serial)])]


BROKEN: dict[str, Callable[[Any], None]] = {
    "axis 1 is in 0 dims": lambda made: setattr(made, "dims", [s.Dim([0])]),
    "axis 0 is in 2 dims": lambda made: setattr(made, "dims", [s.Dim([0]), s.Dim([0, 1])]),
    "dim contains axis 7 of 2": lambda made: setattr(made, "dims", [s.Dim([0]), s.Dim([1, 7])]),
    "2048 threads per block": lambda made: setattr(made, "threads", 2048),
    "loop over dim 2": no_such_dim,
    "a vector loop is innermost and of constant extent": vector_outside,
    "of constant extent": vector_of_any_size,
}


@pytest.mark.parametrize("text", BROKEN)
def test_verify(text: str) -> None:
    made = schedule()
    BROKEN[text](made)
    with pytest.raises(InternalError, match=text):
        made.verify(axes=2)


def test_plans_as_text_and_by_name() -> None:
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([-1]) * 2.0)
    x = torch.ones(8)
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    (info,) = fd.fec.executor.kernels([x])
    assert info.plan == (
        f"pointwise(threads={plan['threads']}, vector=4, collapsed=1, tail=0, vectorized=3, "
        "strided=0, split_at_rows=0, uniform_select=0)"
    )
    with pytest.raises(UserError, match="no field colour") as caught:
        fd.fec.executor.execute([x], None, {**plan, "colour": 1})
    assert caught.value.rule == "plan-2"
