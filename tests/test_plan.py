"""fuser/plan.py: plans are values."""

import copy
import pickle
import re
from typing import Any

import pytest

from fuser import Plan, UserError
from fuser.plan import RENAMED

PLAN = Plan(scheduler="pointwise", threads=256, width=8)


def test_fields() -> None:
    assert PLAN.threads == PLAN["threads"] == 256
    assert list(PLAN) == ["scheduler", "threads", "width"]
    assert dict(PLAN) == {"scheduler": "pointwise", "threads": 256, "width": 8}
    assert repr(PLAN) == "Plan(scheduler='pointwise', threads=256, width=8)"
    assert eval(repr(PLAN), {"Plan": Plan}) == PLAN


def test_replace_makes_another() -> None:
    changed = PLAN.replace(threads=128)
    assert (changed.threads, changed.width) == (128, 8)
    assert PLAN.threads == 256
    assert changed != PLAN
    assert changed.replace(threads=256) == PLAN
    assert len({PLAN, changed, changed.replace(threads=256)}) == 2


def test_plan_1() -> None:
    with pytest.raises(UserError) as caught:
        PLAN.replace(thread=128)
    assert caught.value.rule == "plan-1"
    assert str(caught.value) == "plan: no field 'thread'; expected one of scheduler, threads, width"
    with pytest.raises(AttributeError, match="plan: no field 'thread'"):
        PLAN.thread  # noqa: B018


@pytest.mark.parametrize("value", ["128", None, 1.5, 2**70, [128]])
def test_a_value_of_another_type_is_refused_at_once(value: Any) -> None:
    with pytest.raises(UserError) as caught:
        PLAN.replace(threads=value)
    assert caught.value.rule == "plan-1"
    assert str(caught.value) == (
        f"plan: threads={value!r} has a wrong type: expected an int, like the planned 256"
    )
    with pytest.raises(UserError, match="expected a str, like the planned 'pointwise'"):
        PLAN.replace(scheduler=3)


def test_copies_and_pickles_are_equal_plans() -> None:
    for made in (copy.copy(PLAN), copy.deepcopy(PLAN), pickle.loads(pickle.dumps(PLAN))):
        assert type(made) is Plan
        assert made == PLAN


def test_immutable() -> None:
    with pytest.raises(AttributeError) as caught:
        PLAN.threads = 128
    assert str(caught.value) == "plan: plans are immutable; use plan.replace(threads=128)"


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_old_names_are_accepted_with_a_warning(old: str, new: str) -> None:
    plan = Plan(scheduler="inner", **{new: 2})
    said = re.escape(f"plan: field {old!r} was renamed to {new!r}")
    with pytest.warns(DeprecationWarning, match=said):
        assert Plan(scheduler="inner", **{old: 2}) == plan
    with pytest.warns(DeprecationWarning, match=said):
        assert getattr(plan, old) == 2
    with pytest.warns(DeprecationWarning, match=said):
        assert plan[old] == 2
    with pytest.warns(DeprecationWarning, match=said):
        assert plan.replace(**{old: 4}) == plan.replace(**{new: 4})
    assert list(plan) == ["scheduler", new]


def test_a_field_under_both_names_is_refused() -> None:
    with pytest.warns(DeprecationWarning, match="ring"), pytest.raises(UserError) as caught:
        Plan(num_stages=2, ring=2)
    assert caught.value.rule == "plan-1"
    assert str(caught.value) == "plan: field 'num_stages' is given twice, once under its old name"
