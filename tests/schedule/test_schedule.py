"""Schedules as data: comparison, hash, and the plans that they are made from."""

from __future__ import annotations

import pytest
import torch

from fuser import FusionDefinition, Plan, UserError, _core

Schedule = _core.schedules.Schedule

TEXT = """dim d0 [a0]
dim d1 [a1]
nest
  d0 GridThread
  d1 GridThread
  d1 Vector 4
access 0 Aligned 4
access 1 Scalar
launch threads(128)
"""


def test_equal_schedules_compare_and_hash_equal() -> None:
    made = Schedule(TEXT)
    assert made == Schedule(TEXT)
    assert hash(made) == hash(Schedule(TEXT))


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("[a1]", "[a1] divides"),
        ("[a1]", "[a1] lines(0, 32)"),
        ("d1 Vector 4", "d1 Vector 2"),
        ("d1 Vector 4", "d1 Vector 4\n  lanes tail"),
        ("d1 Vector 4", "d1 Vector 4\n  computed 0"),
        ("access 0 Aligned 4", "access 0 Unaligned 4"),
        ("access 1 Scalar", "access 1 Scalar streaming"),
        ("launch", "staging access 0 Registers Row\nlaunch"),
        ("launch", "reduction d1 LastBlock\nlaunch"),
        ("threads(128)", "threads(256)"),
        ("threads(128)", "threads(128) reverse_grid"),
    ],
)
def test_every_field_makes_a_difference(line: str, other: str) -> None:
    made, changed = Schedule(TEXT), Schedule(TEXT.replace(line, other))
    assert made != changed
    assert hash(made) != hash(changed)
    assert str(made) != str(changed)


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
