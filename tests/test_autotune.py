"""fuser.autotune: the chosen plan, the calls that use it, and unchanged inputs and generator.

The test provides the times, except in the test that only checks results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fuser
from fuser import DataType, FusionDefinition, Plan

MODULE = sys.modules["fuser.autotune"]  # `fuser.autotune` is the function of this name


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_CACHE_DIR", str(tmp_path))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[list[Plan]]:
    """Timed plans in order; the fake time of a kernel is its number of threads."""
    seen: list[list[Plan]] = []

    def timer(*_: Any) -> Callable[[list[dict[str, Any]]], float]:
        def time(plans: list[dict[str, Any]]) -> float:
            seen.append([Plan(**fields) for fields in plans])
            return float(sum(fields["threads"] for fields in plans))

        return time

    monkeypatch.setattr(MODULE, "timer", timer)
    return seen


def scaled() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(fd.ops.relu(x * 2.0 + 1.0))
    return fd


def test_the_fastest_holds_for_all_inputs_of_its_kernel(timed: list[list[Plan]]) -> None:
    fd, x, larger = scaled(), torch.randn(64, 64), torch.randn(68, 64)
    planned = fd.plan([x])
    fd.execute([x])
    found = fuser.autotune(fd, [x])
    assert found == planned.replace(threads=planned.threads // 2)
    assert timed[0] == [planned]
    assert fd.plan([x]) == fd.plan([larger]) == found
    for inputs in ([x], [larger]):
        assert fd.execute(inputs)[0].equal(torch.relu(inputs[0] * 2.0 + 1.0))
    assert fd.fec._kernels(None, None)[0].threads == found.threads


def test_one_number_changes_at_a_time_and_only_as_allowed(timed: list[list[Plan]]) -> None:
    fd, x = scaled(), torch.randn(64, 64)
    planned = fd.plan([x])
    fuser.autotune(fd, [x])
    for (plan,) in timed[1:]:
        assert sum(plan[name] != planned[name] for name in plan) == 1
    assert {2 * planned.threads, planned.threads // 2} <= {plan.threads for (plan,) in timed}


def test_so_many_candidates_are_timed(timed: list[list[Plan]]) -> None:
    fuser.autotune(scaled(), [torch.randn(64, 64)], candidates=1)
    assert len(timed) == 2
    fuser.autotune(scaled(), [torch.randn(65, 64)], candidates=0)
    assert len(timed) == 3


def test_what_was_found_is_kept_on_disk(timed: list[list[Plan]]) -> None:
    x = torch.randn(64, 64)
    found = fuser.autotune(scaled(), [x])
    count = len(timed)
    again = scaled()
    assert fuser.autotune(again, [x]) == found == again.plan([x])
    assert fuser.autotune(again, [x]) == found
    assert len(timed) == count
    fuser.autotune(scaled(), [torch.randn(64, 128)])  # other sizes
    assert len(timed) > count


def test_without_a_cache_folder(
    timed: list[list[Plan]], set_option: Callable[[str, object], None]
) -> None:
    set_option("FUSER_CACHE", 0)
    x = torch.randn(64, 64)
    fuser.autotune(scaled(), [x])
    count = len(timed)
    fuser.autotune(scaled(), [x])
    assert len(timed) == 2 * count


def test_nothing_else_changes() -> None:
    """Autotuning leaves in-place inputs and the generator unchanged, and results stay correct."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(x + fd.ops.uniform(0.0, 1.0, x.shape()), alias_input=x)
        fd.add_output(fd.ops.sum(x, [1]))
    given = torch.randn(33, 48)
    x, state = given.clone(), torch.get_rng_state()
    plans = fuser.autotune(fd, [x], candidates=2)
    assert x.equal(given)
    assert torch.get_rng_state().equal(state)
    assert fd.plan([x]) == plans
    (total,) = fd.execute([x])
    torch.testing.assert_close(total, given.sum(1))
    assert ((x - given >= 0) & (x - given < 1.001)).all()
