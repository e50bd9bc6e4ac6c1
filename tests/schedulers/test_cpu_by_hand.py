"""Schedules by hand of CPU kernels: each primitive changes the kernel and keeps the values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fuser import FusionDefinition, Plan, UserError, testing
from tests.support import planning
from tests.support.reducing import PROGRAMS, assert_close, random_inputs

F32, BF16 = torch.float32, torch.bfloat16


Changes = list[tuple[str, str]]  # replacements in the text of a schedule


@pytest.fixture(autouse=True)
def on_cpu(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_ARCH", 0)


@pytest.fixture
def generic(set_option: Callable[[str, object], None]) -> None:
    """Vectors of 16 bytes, so that schedules are equal on all machines."""
    set_option("FUSER_CPU_ISA", "generic")


@dataclass(frozen=True)
class Case:
    """A definition that is one kernel, with inputs and their exact results in float64."""

    fd: FusionDefinition
    inputs: list[torch.Tensor]
    exact: Sequence[torch.Tensor]
    dtype: torch.dtype = F32

    @property
    def text(self) -> str:
        (text,) = self.fd.schedules(self.inputs)
        return text

    def kernel(self, text: str) -> str:
        plan = dict(Plan(schedule=text))
        (found,) = self.fd.fec.executor.kernels(self.inputs, None, plan)
        assert found.schedule == text
        return str(found.ir)

    def check(self, text: str) -> None:
        got = self.fd.execute(self.inputs, schedules=[text])
        for g, e in zip(got, self.exact, strict=True):
            assert_close(g, e, self.dtype, scale=8.0)


def program(
    name: str, shape: tuple[int, ...], rng: np.random.Generator, dtype: torch.dtype = F32
) -> Case:
    inputs = random_inputs(name, shape, dtype, rng)
    return Case(PROGRAMS[name].definition(dtype), inputs, PROGRAMS[name].exact(inputs), dtype)


def doubled(rng: np.random.Generator) -> Case:
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([-1, -1, -1]) * 2.0)
    x = torch.from_numpy(rng.normal(size=(30, 41, 100))).to(F32)[:, :40, :70]
    return Case(fd, [x], [x.double() * 2])


def transposed(rng: np.random.Generator, sides: tuple[int, int] = (300, 200)) -> Case:
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1], contiguity=True) for _ in range(2))
    fd.add_output(planning.turned(fd.ops, x) + planning.turned(fd.ops, y))
    a, b = (torch.from_numpy(rng.normal(size=sides)).to(F32) for _ in range(2))
    return Case(fd, [a, b], [(a.double() + b.double()).t()])


def alternating(rng: np.random.Generator) -> Case:
    fd = FusionDefinition()
    fd.add_output(fd.ops.sum(fd.define_tensor([-1] * 4, contiguity=True), [1, 3]))
    x = torch.from_numpy(rng.normal(size=(3, 50, 7, 66))).to(F32)
    return Case(fd, [x], [x.double().sum((1, 3))])


CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    "pointwise": doubled,
    "transpose": transposed,
    "softmax": lambda rng: program("softmax", (33, 1000), rng),
    "rows": lambda rng: program("sum_rows", (4, 300_000), rng),
    "alternating": alternating,
    "columns": lambda rng: program("sum_columns", (10_000, 100), rng),
    "centered": lambda rng: program("centered", (70, 300), rng),
}


def lanes(was: int, now: int) -> Changes:
    return [(f"ThreadX {was}", f"ThreadX {now}"), (f"threads({was})", f"threads({now})")]


# name of a primitive, kernel, replacements in its schedule
PRIMITIVES: list[tuple[str, str, Changes]] = [
    ("shorter vectors", "pointwise", lanes(8, 4)),
    ("longer vectors", "softmax", lanes(16, 128)),
    ("scalars", "softmax", lanes(16, 1)),
    ("elements of a task", "pointwise", [("elements(16384)", "elements(100)")]),
    ("trip count of a task", "softmax", [("elements(16384)", "5")]),
    ("limit of tasks", "pointwise", [("d0 Grid", "d0 Grid 7")]),
    ("tasks of the lanes", "pointwise", [("d2 Serial elements(16384)", "d2 Serial 1")]),
    ("one task", "softmax", [("  d0 Grid\n  d0 Serial elements(16384)\n", "")]),
    ("merge of dims", "pointwise", [("[a0 a1]", "[a0]"), ("[a2]", "[a1 a2]")]),
    ("split of a dim", "alternating", [("d1 [a2]", "d1 []"), ("[a3]", "[a2 a3]")]),
    ("streaming stores", "pointwise", [("access 1 Scalar", "access 1 Scalar streaming")]),
    ("sides of tiles", "transpose", [*lanes(16, 8), ("d1 Serial 1024", "d1 Serial 40")]),
    ("one tile less", "transpose", [("staging access 1 Registers Tile\n", "")]),
    (
        "rows inside of vectors",
        "transpose",
        [(f"staging access {i} Registers Tile\n", "") for i in (0, 1)],
    ),
    (
        "no tiles",
        "transpose",
        [
            ("staging access 0 Registers Tile\n", ""),
            ("staging access 1 Registers Tile\n", ""),
            ("dim d1 [a0]\ndim d2 [a1]", "dim d1 []\ndim d2 [a0 a1]"),
            ("  d1 Grid\n  d1 Serial 1024\n", ""),
        ],
    ),
    ("parts of rows", "rows", [("d2 Serial 4096", "d2 Serial 256")]),
    ("complete rows", "rows", [("  d2 Grid\n  d2 Serial 4096\n", "")]),
    ("rows of a block", "columns", [("Unroll 64", "Unroll 3")]),
    ("points", "columns", [("  d1 Grid 64\n  d1 Serial elements(65536)\n  d1 Unroll 64\n", "")]),
    ("parts of columns", "columns", [("d1 Grid 64", "d1 Grid 5")]),
    ("rows of a task", "centered", [("d0 Serial 8", "d0 Serial 3")]),
]


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    rng = np.random.default_rng(1)
    return {name: make(rng) for name, make in CASES.items()}


def changed(case: Case, changes: Changes) -> str:
    text = case.text
    for line, other in changes:
        assert line in text, text
        text = text.replace(line, other, 1)
    return text


@pytest.mark.usefixtures("generic")
def test_each_primitive_changes_the_kernel_and_no_value(cases: dict[str, Case]) -> None:
    texts = {name: case.text for name, case in cases.items()}
    made = [(primitive, cases[name], changed(cases[name], c)) for primitive, name, c in PRIMITIVES]
    testing.compile_batch((c.fd, c.inputs, Plan(schedule=text)) for _, c, text in made)
    for primitive, case, text in made:
        assert case.kernel(text) != case.kernel(case.text), primitive
        case.check(text)
    for name, case in cases.items():
        assert case.text == texts[name], "the next run is as planned"


# kernel, replacements, message
FACTS: list[tuple[str, Changes, str]] = [
    ("pointwise", [("[a0 a1]", "[a1 a0]")], "the axes are in another order"),
    (
        "alternating",
        [("dim d1 [a2]\ndim d2 [a3]", "dim d1 [a2 a3]\ndim d2 []")],
        "lanes along kept axes; expected reduced ones",
    ),
    ("transpose", [("launch", "staging access 2 Registers Tile\nlaunch")], "a tile of access 2"),
    ("transpose", lanes(16, 32), "at most the planned 16"),
    ("columns", lanes(8, 16), "at most the planned 8"),
    ("rows", [("d2 Serial 4096", "d2 Serial 255")], "tasks of 4080 elements of a row"),
    ("rows", [("d2 Serial 4096", "d2 Serial elements(4095)")], "expected at least 4096"),
]


@pytest.mark.usefixtures("generic")
@pytest.mark.parametrize(("name", "changes", "message"), FACTS)
def test_schedule_4_facts_of_the_plan(
    cases: dict[str, Case], name: str, changes: Changes, message: str
) -> None:
    case = cases[name]
    with pytest.raises(UserError) as caught:
        case.fd.schedules(case.inputs, Plan(schedule=changed(case, changes)))
    assert caught.value.rule == "schedule-4"
    assert message in str(caught.value)


def test_tiles_keep_their_dims(rng: np.random.Generator) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * 3, contiguity=True)
    fd.add_output(fd.ops.permute(x * 2.0, [2, 0, 1]), stride_order=[2, 1, 0])
    value = torch.from_numpy(rng.normal(size=(10, 20, 70))).to(F32)
    (text,) = fd.schedules([value])
    assert "dim d1 [a0]\ndim d2 [a1 a2]" in text
    assert "Tile" in text
    text = text.replace("[a0]", "[a0 a1]").replace("[a1 a2]", "[a2]")
    with pytest.raises(UserError, match="tiles over other axes; expected the planned dims"):
        fd.schedules([value], Plan(schedule=text))


# ---- Random schedules


def tasks(dim: int, rng: np.random.Generator) -> list[str]:
    """A division of a dim among tasks, or none."""
    match int(rng.integers(3)):
        case 0:
            return []
        case 1:
            return [f"d{dim} Grid", f"d{dim} Serial {rng.choice([1, 2, 3, 7, 64, 500])}"]
    most = rng.choice(["", " 3", " 64"])
    return [f"d{dim} Grid{most}", f"d{dim} Serial elements({rng.choice([1, 64, 5000, 70_000])})"]


def other_loops(text: str, rng: np.random.Generator) -> str:
    """A schedule with random dims, loops, stagings and policies. Most are refused."""
    dims = [re.findall(r"a\d+", line) for line in re.findall(r"dim d\d \[(.*)\]", text)]
    if rng.random() < 0.5:
        axes = [axis for dim in dims for axis in dim]
        i, j = sorted(rng.integers(0, len(axes) + 1, size=2))
        dims = [axes[:i], axes[i:j], axes[j:]]
    lanes = 2 ** int(rng.integers(8))
    loops = tasks(0, rng) + tasks(1, rng)
    if rng.random() < 0.3:
        loops.append(f"d1 Unroll {rng.choice([1, 2, 3, 8, 64])}")
    loops += [*tasks(2, rng), f"d2 ThreadX {lanes}"]
    rest = re.sub(r"threads\(\d+\)", f"threads({lanes})", text[text.index("  computed") :])
    if rng.random() < 0.3:
        store = int(rng.integers(rest.count("access")))
        rest = rest.replace(f"access {store} Scalar", f"access {store} Scalar streaming")
    if rng.random() < 0.2:
        rest = re.sub(r"staging.*\n", "", rest, count=int(rng.integers(1, 3)))
    lines = [f"dim d{d} [{' '.join(axes)}]" for d, axes in enumerate(dims)]
    return "\n".join([*lines, "nest", *(f"  {loop}" for loop in loops), rest])


SHAPES = [(1, 1), (3, 5), (40, 257), (2, 140_001), (140_001, 3), (513, 64), (3000, 200)]


def random_case(rng: np.random.Generator) -> Case:
    match int(rng.integers(4)):
        case 0:
            return transposed(rng, [(8, 9), (33, 64), (70, 100), (1030, 65)][rng.integers(4)])
        case 1:
            return alternating(rng)
    names = [n for n in PROGRAMS if n != "batch_norm"]
    name, shape = names[rng.integers(len(names))], SHAPES[rng.integers(len(SHAPES))]
    if name.startswith("var") and 1 in shape:
        shape = (7, 16)  # one element has no degrees of freedom
    return program(name, shape, rng, F32 if rng.random() < 0.5 else BF16)


def test_random_schedules_are_right_or_refused(
    rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    made: list[tuple[Case, str]] = []
    accepted, refused = Counter[str](), Counter[str]()
    for _ in range(request.config.option.fuzz or 25):
        case = random_case(rng)
        plan: Any = case.fd.plan(case.inputs)
        if isinstance(plan, tuple):
            continue
        for _ in range(40):
            text = other_loops(case.text, rng)
            try:
                case.fd.schedules(case.inputs, Plan(schedule=text))
            except UserError as error:
                refused[error.rule] += 1
                continue
            accepted[plan["scheduler"]] += 1
            made.append((case, text))
            break
    assert set(refused) <= {"schedule-2", "schedule-3", "schedule-4"}
    assert len(refused) == 3, refused
    assert len(accepted) >= 3, accepted
    testing.compile_batch((c.fd, c.inputs, Plan(schedule=text)) for c, text in made)
    for case, text in made:
        try:
            case.check(text)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{case.text}\n{text}") from None
