"""csrc/schedule/plans: the table of plan fields, and what is made from it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fuser import Plan, UserError, _core
from fuser.plan import RENAMED
from tests.support import planning

FIELDS = {name: (kind, unit, meaning) for name, kind, unit, meaning in _core.plan_fields()}
RANGES: dict[str, list[tuple[str, str, int, int]]] = _core.plan_ranges()


@pytest.fixture(scope="module")
def kernels() -> list[Any]:
    """Planned kernels of the definitions of tests/support/planning.py, on two devices."""
    rng = np.random.default_rng(0)
    devices = [_core.host_device(90), _core.known_device(80)]
    return [k for case in planning.cases(rng) for d in devices for k in case.kernels(d)]


def test_every_field_is_in_a_plan() -> None:
    used = {name for rows in RANGES.values() for name, *_ in rows}
    assert used == set(FIELDS)
    assert all(meaning for _, _, meaning in FIELDS.values())
    assert set(RENAMED.values()) <= used


def test_plans_have_the_fields_of_their_row(kernels: list[Any]) -> None:
    seen = set()
    for kernel in kernels:
        scheduler, *names = kernel.plan
        assert scheduler == "scheduler"
        assert names == [name for name, *_ in RANGES[kernel.plan["scheduler"]]]
        seen.add(kernel.plan["scheduler"])
    assert seen == {name for name in RANGES if not name.startswith("cpu_")}  # tests/lower/test_cpu.py


def test_planned_values_are_in_their_ranges(kernels: list[Any]) -> None:
    for kernel in kernels:
        plan = kernel.plan
        for name, values, least, most in RANGES[plan["scheduler"]]:
            value = plan[name]
            assert value >= 0
            if FIELDS[name][0] == "Flag":
                assert value in (0, 1), (plan, name)
            if values in ("Any", "Multiple", "Divisor", "Power"):
                assert least <= value <= most, (plan, name)
            if values == "Multiple":
                assert value % least == 0, (plan, name)
            if values == "Divisor":
                assert most % value == 0, (plan, name)
            if values == "Power":
                assert value & (value - 1) == 0, (plan, name)


def test_values_outside_of_the_ranges_are_refused(kernels: list[Any]) -> None:
    refused = 0
    for kernel in kernels[::7]:
        plan = kernel.plan
        for name, values, least, most in RANGES[plan["scheduler"]]:
            if FIELDS[name][0] == "Accesses":
                continue
            outside = [most + 1, least - 1] if values != "Derived" else [plan[name] + 1]
            for value in outside:
                with pytest.raises(UserError, match=re.escape(f"{name}={value}")) as caught:
                    kernel.changed(plan | {name: value})
                assert caught.value.rule == "plan-1"
                refused += 1
    assert refused > 100


def test_the_documentation_lists_every_field() -> None:
    text = Plan.__doc__ or ""
    for name, (_, _, meaning) in FIELDS.items():
        words = r"\s+".join(map(re.escape, meaning.split()))
        assert re.search(rf"\n    {name}\s+(1: |mask of )?{words}\n", text), name
    for scheduler in RANGES:
        assert f"\n    {scheduler}: " in text
