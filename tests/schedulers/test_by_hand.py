"""Schedules written by hand: changed texts run correctly or are refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fuser import FusionDefinition, Plan, UserError, _core, testing
from tests.support import planning

RULES = {"schedule-1", "schedule-2", "schedule-3", "schedule-4", "plan-1"}
FLAGS = ["tail", "uniform_select", "split_at_rows", "streaming", "reverse_grid", "divides"]


def doubled(fd: FusionDefinition) -> FusionDefinition:
    fd.add_output(fd.define_tensor([-1, -1]) * 2.0)
    return fd


def test_a_changed_schedule_runs() -> None:
    fd = doubled(FusionDefinition())
    x = torch.arange(40 * 64.0).reshape(40, 64)
    (text,) = fd.schedules([x])
    changed = text.replace("threads(128)", "threads(256) reverse_grid")
    assert changed != text
    (got,) = fd.execute([x], schedules=[changed])
    assert torch.equal(got, x * 2)
    plan = Plan(schedule=changed)
    assert fd.schedules([x], plan) == [changed]
    (kernel,) = fd.fec.executor.kernels([x], None, dict(plan))
    assert kernel.schedule == changed
    assert "threads(256)" not in fd.schedules([x])[0]  # the next run is as planned


def test_axes_may_be_grouped_anew() -> None:
    fd = doubled(FusionDefinition())
    x = torch.arange(12.0).reshape(3, 4)
    (text,) = fd.schedules([x])
    by_row = (
        "dim d0 [a0]\ndim d1 [a1]\nnest\n  d0 GridThread\n  d1 GridThread\n  d1 Vector 2\n"
        "  lanes tail\n"
        + text[text.index("  computed") : text.index("access")]
        + "access 0 Scalar\n"
        "access 1 Scalar\nlaunch threads(32)\n"
    )
    (got,) = fd.execute([x], schedules=[by_row])
    assert torch.equal(got, x * 2)


def test_a_changed_schedule_of_a_plan() -> None:
    fd = doubled(FusionDefinition())
    x = torch.ones(40, 64)
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    plan = plan.replace(vector=2)
    (text,) = fd.schedules([x], plan)
    assert "Vector 2" in text
    (got,) = fd.execute([x], plan=plan, schedules=[text.replace("threads(128)", "threads(64)")])
    assert torch.equal(got, x * 2)


def test_schedule_4_vectors_longer_than_known() -> None:
    fd = doubled(FusionDefinition())
    x = torch.ones(3, 7)  # 21 elements: no vector is known to be complete
    (text,) = fd.schedules([x])
    assert "lanes tail" in text
    with pytest.raises(UserError, match="the last vector may be incomplete") as caught:
        fd.execute([x], schedules=[text.replace("  lanes tail\n", "")])
    assert caught.value.rule == "schedule-4"
    assert "hint: fd.schedules(inputs) has the facts" in str(caught.value)


def flags_of_lanes() -> list[str]:
    table = Path(__file__).parents[2] / "csrc/schedule/attributes.def"
    return re.findall(r"^FUSER_LANES_FLAG\((\w+),", table.read_text(), re.MULTILINE)


@pytest.mark.parametrize("flag", [flag for flag in flags_of_lanes() if flag != "tail"])
def test_a_fact_of_vectors_is_not_added(flag: str) -> None:
    """Every flag of vectors but `tail` states a fact of sizes."""
    fd = doubled(FusionDefinition())
    x = torch.ones(3, 7)
    (text,) = fd.schedules([x])
    with pytest.raises(UserError, match=f"lanes with {flag}; expected a plan with it") as caught:
        fd.execute([x], schedules=[text.replace("lanes tail", f"lanes tail {flag}")])
    assert caught.value.rule == "schedule-4"


@pytest.mark.parametrize(
    ("schedules", "rule"),
    [("text", "argument-kind-1"), ([1], "argument-kind-1"), (["a", "b"], "schedule-5")],
)
def test_one_text_per_plan(schedules: Any, rule: str) -> None:
    fd = doubled(FusionDefinition())
    x = torch.ones(4, 4)
    with pytest.raises(UserError) as caught:
        fd.execute([x], plan=fd.plan([x]), schedules=schedules)
    assert caught.value.rule == rule


def test_too_many_schedules_are_refused() -> None:
    fd = doubled(FusionDefinition())
    x = torch.ones(4, 4)
    text = fd.schedules([x])
    with pytest.raises(UserError) as caught:
        fd.execute([x], schedules=text * 2)
    assert caught.value.rule == "plan-3"


# ---- Random changes


def changed_text(text: str, rng: np.random.Generator) -> str:
    """A text with one or two random changes, most of which keep it readable."""
    lines = text.splitlines()
    for _ in range(int(rng.integers(1, 3))):
        i = int(rng.integers(len(lines)))
        match int(rng.integers(6)):
            case 0:  # another number
                numbers = list(re.finditer(r"(?<![ad\w])\d+", lines[i]))
                if numbers:
                    at = numbers[int(rng.integers(len(numbers)))]
                    old = int(at[0])
                    new = int(rng.choice([0, 1, old // 2, 2 * old, 3, old + 1, 64]))
                    lines[i] = lines[i][: at.start()] + str(new) + lines[i][at.end() :]
            case 1:
                lines.insert(i, lines.pop(int(rng.integers(len(lines)))))
            case 2:
                del lines[i]
            case 3:
                lines[i] += f" {rng.choice(FLAGS)}"
            case 4:
                lines[i] = re.sub(rf" ({'|'.join(FLAGS)})", "", lines[i], count=1)
            case 5:
                lines[i] = re.sub(r"(access \d+) (\w+) \d+", r"\1 Scalar", lines[i])
    return "\n".join(lines) + "\n"


def other_threads(text: str, rng: np.random.Generator) -> str:
    """A text whose loops have other extents, with as many threads as they multiply to."""
    threads = 1

    def extent(found: re.Match[str]) -> str:
        nonlocal threads
        n = int(found[2])
        if rng.random() < 0.5:
            n = int(rng.choice([1, 2, 4, 8, 16, 32, 64, 3 * n, 2 * n, max(1, n // 2)]))
        threads *= n if found[1].startswith("Thread") else 1
        return f"{found[1]} {n}"

    text = re.sub(r"(ThreadX|ThreadY|Unroll) (\d+)", extent, text)
    return re.sub(r"threads\(\d+\)", f"threads({threads})", text) if "ThreadX" in text else text


@pytest.mark.parametrize("arch", [80, 90])
def test_changed_schedules_are_right_or_refused(
    arch: int,
    rng: np.random.Generator,
    set_option: Callable[..., None],
    request: pytest.FixtureRequest,
) -> None:
    """Accesses, registers and the order of threads are checked by FUSER_HOST_DEBUG."""
    set_option("FUSER_HOST_DEBUG", 1)
    set_option("FUSER_HOST_ARCH", arch)
    device = _core.host_device(arch)
    accepted: list[tuple[planning.Case, int, str]] = []
    by_scheduler, refused = Counter[str](), Counter[str]()
    for case in planning.cases(rng):
        for place, kernel in enumerate(case.kernels(device)):
            planned = kernel.texts()
            texts = {planned["cuda"].text}
            for n in range(request.config.option.fuzz or 40):
                make = other_threads if n % 3 == 0 else changed_text
                text = make(planned["schedule"], rng)
                try:
                    made = kernel.changed({"schedule": text})
                except UserError as error:
                    refused[error.rule] += 1
                    continue
                except Exception as error:
                    raise AssertionError(f"{case.name}, kernel {place}:\n{text}") from error
                if made["cuda"].text not in texts:
                    texts.add(made["cuda"].text)
                    accepted.append((case, place, text))
                    by_scheduler[kernel.plan["scheduler"]] += 1
    assert set(refused) <= RULES
    assert min(refused[f"schedule-{n}"] for n in (1, 2, 3, 4)) >= 20, refused
    assert min(by_scheduler.values()) >= 5, by_scheduler
    assert len(by_scheduler) == 7, by_scheduler
    chosen = [accepted[i] for i in rng.permutation(len(accepted))[:60]]
    calls = []
    for case, place, text in chosen:
        planned = case.fd.plan(case.inputs)
        plans = list(planned) if isinstance(planned, tuple) else [planned]
        plans[place] = Plan(**plans[place], schedule=text)
        try:
            case.fd.schedules(case.inputs, tuple(plans))
        except UserError:  # these sizes exceed shared memory
            continue
        calls.append((case, tuple(plans), text))
    testing.compile_batch((case.fd, case.inputs) for case, _, _ in calls)
    testing.compile_batch((case.fd, case.inputs, changed) for case, changed, _ in calls)
    assert len(calls) > 30
    for case, changed, text in calls:
        got = case.fd.execute(case.inputs, plan=changed)
        for g, w in zip(got, case.fd.execute(case.inputs), strict=True):
            wide = (x.double() if x.dtype == planning.F8 else x for x in (g, w))
            try:
                torch.testing.assert_close(*wide, equal_nan=True)
            except AssertionError as error:
                raise AssertionError(f"{case.name}: {error}\n{text}") from None


def test_schedules_of_the_document_are_those_of_their_definitions() -> None:
    """Both texts with remarks in docs/design/schedules.md, the sum first."""
    page = (Path(__file__).parents[2] / "docs/design/schedules.md").read_text()
    shown = [block for block in page.split("```\n") if block.startswith("dim d0")]
    texts = [re.sub(r"(?<=\S)  +.*", "", block) for block in shown]
    found = []
    for op, shape in (("sum", (1 << 16, 256)), ("softmax", (4096, 1024))):
        fd = FusionDefinition()
        fd.add_output(getattr(fd.ops, op)(fd.define_tensor([-1, -1], True), 1))
        case = planning.Case(op, fd, [torch.empty(shape, device="meta")])
        (kernel,) = case.kernels(_core.known_device(90))
        found.append(kernel.texts()["schedule"])
    assert texts == found


def test_the_softmax_of_the_document() -> None:
    """The changes that docs/design/schedules.md shows, and the refusal that it describes."""
    fd = FusionDefinition()
    fd.add_output(fd.ops.softmax(fd.define_tensor([-1, -1]), 1))
    case = planning.Case("softmax", fd, [torch.empty(4096, 1024)])
    (kernel,) = case.kernels(_core.known_device(90))
    planned = kernel.texts()
    text = planned["schedule"]
    rows = text.replace("ThreadY 1", "ThreadY 2").replace("ThreadX 128", "ThreadX 64")
    assert "KERNEL(128)" in kernel.changed({"schedule": rows.replace("l 2", "l 4")})["cuda"].text
    with pytest.raises(UserError, match="covers 512 elements along d1; expected at least 1024"):
        kernel.changed({"schedule": rows})
    reread = kernel.changed({"schedule": text.replace("staging access 0 Registers Row\n", "")})
    assert reread["cuda"].text.count("g_in0 + ") == 3 * planned["cuda"].text.count("g_in0 + ")
