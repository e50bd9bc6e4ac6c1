"""The rules of a legal schedule of a CPU kernel: each is broken by one change of a legal one."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from fuser import FusionDefinition, Plan, UserError
from tests.support import planning
from tests.support.reducing import PROGRAMS

Case = tuple[FusionDefinition, list[torch.Tensor]]


@pytest.fixture(autouse=True)
def on_cpu(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_ARCH", 0)
    set_option("FUSER_CPU_ISA", "generic")


def pointwise() -> Case:
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([-1, -1]) * 2.0)
    return fd, [torch.empty(40, 64)]


def transpose() -> Case:
    fd = FusionDefinition()
    fd.add_output(planning.turned(fd.ops, fd.define_tensor([-1, -1], contiguity=True)))
    return fd, [torch.empty(300, 200)]


def reduction(name: str, shape: tuple[int, ...]) -> Case:
    program = PROGRAMS[name]
    return program.definition(), [torch.empty(of) for of in program.shapes(*shape)]


CASES: dict[str, Callable[[], Case]] = {
    "pointwise": pointwise,
    "transpose": transpose,
    "softmax": lambda: reduction("softmax", (40, 256)),
    "rows": lambda: reduction("sum_rows", (4, 1_000_000)),
    "columns": lambda: reduction("sum_columns", (10_000, 1000)),
    "centered": lambda: reduction("centered", (64, 256)),
}

# kernel, line of its schedule, replacement, message
BROKEN_2 = [
    ("pointwise", "[a0 a1]", "[a0]", "axis a1 is in 0 dims"),
    ("pointwise", "[a0 a1]", "[a0 a1 a7]", "axis a7 of 2 axes"),
    ("pointwise", "dim d0 []", "dim d0 [] divides", "divides or lines of a dim"),
    ("pointwise", "computed 0-1", "computed 0", "values that the nest does not compute"),
    ("pointwise", "computed 0-1", "computed 0-1\n  stores 0", "stores, ends or lanes of a nest"),
    ("pointwise", "nest", "nest ends", "stores, ends or lanes of a nest"),
    ("pointwise", "computed", "lanes tail\n  computed", "stores, ends or lanes of a nest"),
    ("pointwise", "launch", "form single_pass\nlaunch", "form or reductions"),
    ("pointwise", "launch", "reduction d1 InTile\nlaunch", "form or reductions"),
    ("pointwise", "threads(8)", "threads(8) reverse_grid", "expected threads alone"),
    ("pointwise", "elements(16384)", "elements(2000000)", "a loop of 2000000 steps"),
    ("pointwise", "elements(16384)", "8 unroll(2)", "unroll of a loop"),
    ("pointwise", "d2 Grid", "d2 Grid elements(9)", "elements of a loop that is not Serial"),
    ("pointwise", "threads(8)", "threads(64)", "vectors of 8 elements and 64 threads"),
    ("pointwise", "ThreadX 8", "ThreadX 3", "vectors of 3 elements"),
    ("pointwise", "ThreadX 8", "ThreadX 256", "expected one power of two up to 128"),
    ("pointwise", "elements(16384)", "", "a Serial loop over d2 of 0 steps and 0 elements"),
    ("pointwise", "elements(16384)", "4 elements(16384)", "expected one of both"),
    (
        "pointwise",
        "Grid\n  d2 Serial elements(16384)",
        "Grid 9\n  d2 Serial 4",
        "at most 9 tasks over d2, whose Serial loop has a trip count",
    ),
    ("pointwise", "access 1 Scalar\n", "", "1 accesses; the kernel has 2"),
    ("pointwise", "access 0 Scalar", "access 0 Aligned 4", "access 0 is not Scalar"),
    ("pointwise", "access 0 Scalar", "access 0 Scalar streaming", "only a store is streaming"),
    ("transpose", "staging access 0", "staging access 9", "a staging of access 9 of 2"),
    ("transpose", "Registers Tile", "Shared Tile", "something else than Registers Tile"),
    ("transpose", "Registers Tile", "Registers Tile pad(1)", "something else than Registers Tile"),
    ("transpose", "launch", "staging access 0 Registers Tile\nlaunch", "access 0 is staged twice"),
    ("columns", "Unroll 8", "Unroll 65", "a block of 65 rows; expected 1 to 64"),
    ("columns", "d1 Grid 64", "d1 Grid", "a Grid loop of 1 to 64 blocks"),
    ("columns", "d1 Grid 64", "d1 Grid 65", "a Grid loop of 1 to 64 blocks"),
    ("centered", "d0 Serial 8", "d0 Serial 65", "a Serial loop over d0 of 1 to 64 steps"),
    ("centered", "d0 Grid\n  d0 Serial 8\n", "", "a Serial loop over d0 of 1 to 64 steps"),
]
ORDER = "loops in another order"
BROKEN_3 = [
    ("pointwise", "dim d2 [a0 a1]", "dim d2 [a0 a1]\ndim d3 []", "4 dims and 1 nests"),
    ("pointwise", "d2 ThreadX 8\n", "", ORDER),
    ("pointwise", "d2 ThreadX 8", "d2 ThreadX 8\n  d2 Unroll 2", ORDER),
    ("pointwise", "d2 Serial elements(16384)\n", "", ORDER),
    ("pointwise", "d2 Grid\n", "", ORDER),
    ("pointwise", "d2 Grid", "d2 GridThread", ORDER),
    (
        "pointwise",
        "dim d1 []\ndim d2 [a0 a1]",
        "dim d1 [a0]\ndim d2 [a1]",
        "axes in d1 of a kernel without reductions or tiles",
    ),
    (
        "transpose",
        "dim d1 [a0]\ndim d2 [a1]",
        "dim d1 []\ndim d2 [a0 a1]",
        "tiles without axes in d1",
    ),
    (
        "pointwise",
        "nest",
        "nest\n  d1 Grid\n  d1 Serial 1",
        "tasks over d1, which has no axis",
    ),
    ("pointwise", "nest", "nest\n  d1 Unroll 2", "a block of rows; expected one reduction"),
    ("softmax", "d2 ThreadX", "d2 Grid\n  d2 Serial 1\n  d2 ThreadX", "tasks divide rows"),
    ("softmax", "launch", "staging access 0 Registers Tile\nlaunch", "tiles of a kernel with"),
    (
        "softmax",
        "dim d0 [a0]\ndim d1 []\ndim d2 [a1]",
        "dim d0 []\ndim d1 []\ndim d2 [a0 a1]",
        "reduced and kept axes in d2",
    ),
    ("softmax", "dim d0 [a0]\ndim d1 []", "dim d0 []\ndim d1 [a0]", "a kept axis in d1"),
    ("softmax", "[a0]\ndim d1 []\ndim d2 [a1]", "[a0 a1]\ndim d1 []\ndim d2 []", "in d0; expected"),
    ("rows", "d2 Grid", "d1 Grid\n  d1 Serial 1\n  d2 Grid", "tasks over d1, which has no axis"),
    ("columns", "d1 Unroll 8\n", "", "tasks divide columns; expected an Unroll loop over d1"),
    ("centered", "d2 ThreadX", "d2 Grid\n  d2 Serial 9\n  d2 ThreadX", "expected tasks of rows"),
    (
        "centered",
        "dim d0 [a0]\ndim d1 []\ndim d2 [a1]",
        "dim d0 []\ndim d1 [a1]\ndim d2 [a0]",
        "kept axes in d2 of a kernel that reduces rows and columns",
    ),
]


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {name: make() for name, make in CASES.items()}


def refusal(case: Case, line: str, other: str) -> UserError:
    fd, inputs = case
    (text,) = fd.schedules(inputs)
    assert line in text, text
    assert fd.schedules(inputs, Plan(schedule=text)) == [text]
    with pytest.raises(UserError) as caught:
        fd.schedules(inputs, Plan(schedule=text.replace(line, other, 1)))
    return caught.value


@pytest.mark.parametrize(("name", "line", "other", "message"), BROKEN_2)
def test_schedule_2(cases: dict[str, Case], name: str, line: str, other: str, message: str) -> None:
    error = refusal(cases[name], line, other)
    assert error.rule == "schedule-2"
    assert message in str(error)


@pytest.mark.parametrize(("name", "line", "other", "message"), BROKEN_3)
def test_schedule_3(cases: dict[str, Case], name: str, line: str, other: str, message: str) -> None:
    error = refusal(cases[name], line, other)
    assert error.rule == "schedule-3"
    assert message in str(error)


def test_tasks_divide_rows_over_d1_if_it_has_axes(cases: dict[str, Case]) -> None:
    fd = FusionDefinition()
    fd.add_output(fd.ops.sum(fd.define_tensor([-1] * 3, contiguity=True), [0, 2]))
    x = torch.empty(300, 2, 4000)
    (text,) = fd.schedules([x])
    assert "dim d1 [a1]" in text
    loops = "d2 Grid\n  d2 Serial 64\n  d2 ThreadX"
    text = re.sub(r"  d1 (Grid|Serial).*\n", "", text).replace("d2 ThreadX", loops)
    with pytest.raises(UserError, match="tasks divide rows over d2; expected them over d1"):
        fd.schedules([x], Plan(schedule=text))
