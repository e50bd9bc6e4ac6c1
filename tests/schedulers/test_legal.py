"""Changed plans run correctly or are rejected, for any integers.

The sweep has about 100 definitions, which together are planned by every scheduler. Some 10,000
plans differ from the planned ones in single fields, pairs and triples of fields.

- Each plan is either rejected with UserError `plan-1` whose text names a changed field and its
  value, or its kernel is lowered and printed. Kernel IR is verified between all passes, and so is
  the schedule (`schedule/schedule.h`). Other errors fail the test.
- 150 of the resulting distinct kernels are executed with the checks of FUSER_HOST_DEBUG (bounds,
  alignment, uninitialized registers, random order of threads), and compared with the results of
  the planned kernel. `--fuzz N` executes N of them, `--thorough` all, about 1000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fuser import Plan, UserError, _core, testing
from tests.support import planning, sampling

PLANS = 10_000
EXECUTED = 150
BATCH = 60  # kernels compiled together
SCHEDULERS = {"pointwise", "broadcast", "rows", "transpose", "inner", "outer", "inner_outer"}


@dataclass
class Taken:
    """A changed plan that was accepted."""

    case: planning.Case
    place: int  # index of the kernel
    change: dict[str, Any]


def refused(kernel: Any, change: dict[str, Any]) -> str | None:
    """The kernel's text if the plan is accepted, or None if it is rejected with a correct
    message."""
    try:
        return str(kernel.changed(kernel.plan | change)["cuda"])
    except UserError as error:
        said = error
    assert said.rule == "plan-1"
    assert any(name in str(said) for name in change), str(said)
    assert " is not allowed" in str(said) or " has a wrong type" in str(said)
    assert "expected " in str(said)
    return None


def swept(
    rng: np.random.Generator, device: Any, count: int
) -> tuple[list[Taken], int, Counter[str]]:
    """Accepted plans with distinct kernels, the number of all plans, and the number of accepted
    plans by scheduler."""
    found = list(planning.cases(rng))
    kernels = [(case, i, k) for case in found for i, k in enumerate(case.kernels(device))]
    taken: list[Taken] = []
    by_scheduler = Counter[str]()
    tried = 0
    planned = Counter(kernel.plan["scheduler"] for _, _, kernel in kernels)
    for case, place, kernel in kernels:
        plan = kernel.plan
        texts = {str(kernel.texts()["cuda"])}
        share = -(-count // (len(planned) * planned[plan["scheduler"]]))  # equal share each
        for change in planning.changes(plan, share, rng):
            tried += 1
            try:
                text = refused(kernel, change)
            except Exception as error:
                raise AssertionError(f"{case.name}, kernel {place}: {change} of {plan}") from error
            if text is None:
                continue
            by_scheduler[plan["scheduler"]] += 1
            if text not in texts:
                texts.add(text)
                taken.append(Taken(case, place, change))
    return taken, tried, by_scheduler


def run_taken(chosen: list[Taken]) -> list[str]:
    """Run accepted plans; return descriptions of wrong results."""
    wrong = []
    for begin in range(0, len(chosen), BATCH):
        batch = []
        for t in chosen[begin : begin + BATCH]:
            planned = t.case.fd.plan(t.case.inputs)
            plans = list(planned) if isinstance(planned, tuple) else [planned]
            try:
                plans[t.place] = plans[t.place].replace(**t.change)
                t.case.fd.fec.executor.plans(t.case.inputs, None, [dict(p) for p in plans])
            except UserError:  # these sizes exceed shared memory
                continue
            batch.append((t, tuple(plans)))
        testing.compile_batch((t.case.fd, t.case.inputs) for t, _ in batch)
        testing.compile_batch((t.case.fd, t.case.inputs, plans) for t, plans in batch)
        for t, plans in batch:
            said = f"{t.case.name}, kernel {t.place}: {t.change} of {plans[t.place]}"
            want = t.case.fd.execute(t.case.inputs)
            try:
                got = t.case.fd.execute(t.case.inputs, plan=plans)
            except Exception as error:
                wrong.append(f"{said}\n    {type(error).__name__}: {error}")
                continue
            for g, w in zip(got, want, strict=True):
                try:
                    torch.testing.assert_close(
                        g.double() if g.dtype == planning.F8 else g,
                        w.double() if w.dtype == planning.F8 else w,
                        equal_nan=True,
                    )
                except AssertionError as error:
                    wrong.append(f"{said}\n    {str(error).splitlines()[0]}")
                    break
    return wrong


@pytest.mark.parametrize("arch", [80, 90])
def test_changed_plans_are_right_or_refused(
    arch: int,
    rng: np.random.Generator,
    set_option: Callable[..., None],
    request: pytest.FixtureRequest,
) -> None:
    """Plans of a small device with the features of sm_80, and with clusters."""
    set_option("FUSER_HOST_DEBUG", 1)
    set_option("FUSER_HOST_ARCH", arch)
    taken, tried, by_scheduler = swept(rng, _core.host_device(arch), PLANS // 2)
    assert tried >= PLANS // 2
    assert set(by_scheduler) == SCHEDULERS
    # Many plans of each scheduler must be accepted, so that the sweep does not pass by rejecting
    # all.
    assert min(by_scheduler.values()) >= 20, by_scheduler
    count = len(taken) if sampling.thorough() else (request.config.option.fuzz or EXECUTED) // 2
    chosen = [taken[i] for i in rng.permutation(len(taken))[:count]]
    wrong = run_taken(chosen)
    assert not wrong, f"{len(wrong)} of {len(chosen)} run wrongly:\n" + "\n".join(wrong)


@pytest.mark.parametrize("arch", [70, 80, 90])
def test_changed_plans_on_gpus_are_lowered_or_refused(arch: int, rng: np.random.Generator) -> None:
    """Plans of GPUs, with more shared memory and SMs, are lowered or rejected, but not executed."""
    _, tried, by_scheduler = swept(rng, _core.known_device(arch), 2000)
    assert tried >= 2000
    assert set(by_scheduler) == SCHEDULERS


TURNED = "transpose (64, 64) torch.float32"
SHORT_ROWS = "sum_rows (300, 17) torch.float32"
WORDS = "transpose (33, 47) torch.bfloat16"


@pytest.fixture(scope="module")
def kernels() -> Callable[[str], Any]:
    """The kernel of a case of tests/support/planning.py, planned for the host executor as sm_90."""
    found = {case.name: case for case in planning.cases(np.random.default_rng(0))}
    return lambda name: found[name].kernels(_core.host_device(90))[0]


@pytest.mark.parametrize(
    ("case", "change", "expected"),
    [
        (TURNED, {"vector_y": 3}, "vector_y=3 is not allowed; expected a divisor of 4"),
        (TURNED, {"tile_x": 48}, "tile_x=48 is not allowed; expected a power of two from 1"),
        (
            TURNED,
            {"tile_x": 2, "threads": 32},
            "vector_x=4 is not allowed; expected a power of two that divides tile_x=2",
        ),
        (
            TURNED,
            {"tile_x": 512, "tile_y": 512, "threads": 1024, "divides_x": 0, "divides_y": 0},
            " bytes of shared memory per block, got 1048576",
        ),
        (TURNED, {"vectorized": 2**70}, f"vectorized={2**70} is not allowed; expected 3"),
        (
            WORDS,
            {"store_line_y": 3},
            "store_line_y=3 is not allowed; expected 0 or a power of two from 2 to",
        ),
        # Adjacent rows would skip some rows.
        (SHORT_ROWS, {"threads_y": 96}, "threads_y=96 is not allowed; expected a power of"),
        # A cluster combines all threads of its blocks, which would add different rows.
        (
            "centered (3, 20000) torch.float32",
            {"threads_y": 2},
            "threads_y=2 is not allowed; expected 1",
        ),
    ],
    ids=str,
)
def test_plan_1_says_what_is_possible(
    kernels: Callable[[str], Any], case: str, change: dict[str, Any], expected: str
) -> None:
    kernel = kernels(case)
    with pytest.raises(UserError) as caught:
        kernel.changed(kernel.plan | change)
    assert caught.value.rule == "plan-1"
    assert expected in str(caught.value)


def test_shared_memory_that_sizes_decide_is_asked_for(
    rng: np.random.Generator, set_option: Callable[..., None]
) -> None:
    """The shared memory of packed rows depends on their length, so the limit is checked for the
    actual sizes."""
    set_option("FUSER_HOST_ARCH", 70)
    refusals = []
    for length in (17, 501):
        x, y = (planning.values((600, length), torch.float32, rng) for _ in range(2))
        fd = planning.define(lambda ops, t: ops.softmax(t[0], 1) + t[1], [x, y])
        plan = fd.plan([x, y])
        assert isinstance(plan, Plan)
        assert plan.packed
        changed = plan.replace(
            threads_y=2 * plan.threads_y, rows_per_thread=2 * plan.rows_per_thread
        )
        try:
            (got,) = fd.execute([x, y], plan=changed)
            torch.testing.assert_close(got, torch.softmax(x, 1) + y)
        except UserError as error:
            refusals.append((length, error))
    ((length, refusal),) = refusals
    assert (length, refusal.rule) == (501, "plan-1")
    assert "bytes of shared memory per block" in str(refusal)
