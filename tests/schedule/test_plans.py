"""csrc/schedule/plans: the table of plan fields, and what is made from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuser import FusionDefinition, Plan, UserError, _core
from fuser.plan import RENAMED
from tests.support import planning

FIELDS = {name: (kind, unit, meaning) for name, kind, unit, meaning in _core.plan_fields()}
RANGES: dict[str, list[tuple[str, str, int, int]]] = _core.plan_ranges()
GPU = {name for name in RANGES if not name.startswith("cpu_")}


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


def check(plan: dict[str, Any]) -> None:
    """Assert that a plan has the fields of its rows, in order, and values of their ranges."""
    rows = RANGES[plan["scheduler"]]
    assert list(plan) == ["scheduler", *(name for name, *_ in rows)]
    for name, values, least, most in rows:
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


def test_plans_of_gpus_are_rows_of_the_table(kernels: list[Any]) -> None:
    for kernel in kernels:
        check(kernel.plan)
    assert {kernel.plan["scheduler"] for kernel in kernels} == GPU


def test_plans_of_the_cpu_are_rows_of_the_table(set_option: Callable[..., None]) -> None:
    set_option("FUSER_HOST_ARCH", 0)
    seen = set()
    for make in (
        lambda fd, x: [fd.ops.relu(x)],
        lambda fd, x: [fd.ops.sum(x, 1)],
        lambda fd, x: [fd.ops.sum(x, 0)],
        lambda fd, x: [fd.ops.sum(x, 1), fd.ops.sum(x, 0)],
    ):
        fd = FusionDefinition()
        for output in make(fd, fd.define_tensor([-1, -1])):
            fd.add_output(output)
        x = torch.randn(64, 300)
        plan = fd.plan([x])
        assert isinstance(plan, Plan)
        check(dict(plan))
        seen.add(plan.scheduler)
        with pytest.raises(UserError, match="lanes=3 is not allowed; expected a power") as caught:
            fd.execute([x], plan=plan.replace(lanes=3))
        assert caught.value.rule == "plan-1"
    assert seen == set(RANGES) - GPU


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
