"""The rules of a legal schedule: each is broken by one change of a schedule that holds them all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuser import FusionDefinition, UserError, _core
from tests.support import planning
from tests.support.reducing import PROGRAMS


def kernel_of(fd: FusionDefinition, *shapes: tuple[int, ...]) -> Any:
    case = planning.Case("", fd, [torch.empty(shape) for shape in shapes])
    (kernel,) = case.kernels(_core.known_device(90))
    return kernel


def pointwise() -> Any:
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([-1, -1]) * 2.0)
    return kernel_of(fd, (40, 64))


def softmax() -> Any:
    return kernel_of(PROGRAMS["softmax"].definition(), (40, 256))


def centered() -> Any:
    return kernel_of(PROGRAMS["centered"].definition(), (64, 256))


def transpose() -> Any:
    fd = FusionDefinition()
    fd.add_output(planning.turned(fd.ops, fd.define_tensor([-1, -1])))
    return kernel_of(fd, (64, 64))


KERNELS = {"pointwise": pointwise, "softmax": softmax, "centered": centered, "transpose": transpose}

# kernel, line of its schedule, replacement, message
BROKEN_2 = [
    ("pointwise", "[a0 a1]", "[a0]", "axis a1 is in 0 dims"),
    ("pointwise", "[a0 a1]", "[a0 a1 a0]", "axis a0 is in 2 dims"),
    ("pointwise", "[a0 a1]", "[a0 a1 a7]", "axis a7 of 2 axes"),
    ("pointwise", "[a0 a1]", "[a0 a1] lines(9, 32)", "lines of access 9 of 2"),
    ("pointwise", "[a0 a1]", "[a0 a1] lines(0, 33)", "lines of 33 elements"),
    ("pointwise", "d0 GridThread", "d1 GridThread", "a loop over d1 of 1 dims"),
    ("pointwise", "d0 Vector 4", "d0 Vector 4\n  d0 Unroll 2", "Vector loop is not innermost"),
    ("pointwise", "d0 Vector 4", "d0 Vector", "without an extent"),
    ("pointwise", "d0 Vector 4", "d0 Vector 3", "a vector of 3 elements"),
    ("pointwise", "d0 Vector 4", "d0 Vector 32", "a vector of 32 elements"),
    ("pointwise", "d0 Vector 4", "d0 Unroll 2 unroll(2)", "unroll of a loop that is not Serial"),
    ("pointwise", "d0 Vector 4", "lanes tail", "lanes of a nest without a Vector loop"),
    ("pointwise", "d0 Vector 4", "d0 Vector 8", "access 0 moves 4 elements; no Vector loop does"),
    ("pointwise", "computed 0-1", "computed 900", "value 900 of"),
    ("pointwise", "access 1 Aligned 4\n", "", "1 accesses; the kernel has 2"),
    ("pointwise", "access 1 Aligned 4", "access 1 Scalar 4", "scalar access 1 of 4 elements"),
    ("pointwise", "access 0 Aligned 4", "access 0 Strided 4", "and its window"),
    (
        "pointwise",
        "access 0 Aligned 4",
        "access 0 Strided 4 window(4, 1, 2, 0)",
        "lanes are inside",
    ),
    ("pointwise", "threads(128)", "threads(2048)", "2048 threads; expected at most 1024"),
    (
        "pointwise",
        "threads(128)",
        "threads(128) min_blocks_per_sm(99)",
        "min_blocks_per_sm(99) of the launch; expected 0 to 16",
    ),
    ("pointwise", "launch", "reduction d0 InTile\nlaunch", "1 reductions"),
    ("pointwise", "launch", "form single_pass\nlaunch", "the kernel has none"),
    ("pointwise", "nest", "", "line 3"),
    ("softmax", "staging access 0", "staging access 9", "a staging of access 9 of 2"),
    ("softmax", "Registers Row", "Reload Row", "access 0 is staged in no memory"),
    ("softmax", "Registers Row", "Registers Tile", "staged in registers; expected the shape Row"),
    (
        "softmax",
        "Registers Row",
        "Registers Row stages(99)",
        "stages(99) of the staging of access 0; expected 1 to 64",
    ),
    ("softmax", "launch", "staging access 0 Registers Row\nlaunch", "access 0 is staged twice"),
    ("softmax", "d1 ThreadX", "d0 ThreadY 2\n  d1 ThreadX", "threads in blocks of"),
    ("softmax", "reduction d1 InTile", "", "0 reductions"),
    ("softmax", "reduction d1", "reduction d0", "a reduction over d0; expected Cooperative"),
    ("centered", "Cooperative columns(8)", "Cooperative columns(9)", "columns that divide"),
    ("centered", "reduction d0 Cooperative columns(8)\n", "", "do not match those of the kernel"),
    ("transpose", "stores 0", "stores 4", "store 4 of 1"),
]
BROKEN_3 = [
    ("pointwise", "d0 GridThread", "d0 Grid", "expected a GridThread loop over d0"),
    ("pointwise", "launch", "staging access 0 Registers Row\nlaunch", "a staging between nests"),
    ("softmax", "d0 Grid", "d0 Grid\n  d0 Grid", "two Grid loops over a dim"),
    ("softmax", "d1 ThreadX", "d1 Unroll 2\n  d1 Unroll 2\n  d1 ThreadX", "two loops of a kind"),
    ("softmax", "d0 Grid", "d0 GridThread", "a GridThread loop beside a ThreadX loop"),
    (
        "softmax",
        "dim d0 [a0]\ndim d1 [a1]",
        "dim d0 [a1]\ndim d1 [a0]",
        "expected the reduced axes",
    ),
    ("softmax", "dim d1 [a1]", "dim d1 [a1]\ndim d2 []", "3 dims"),
    ("transpose", "d0 Grid", "d0 Serial", "a GridThread, Cluster or Serial loop in a tile"),
    ("transpose", "d1 Vector 4", "d1 Vector 2", "expected one tile in all nests"),
]


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return {name: make() for name, make in KERNELS.items()}


def refusal(kernel: Any, line: str, other: str) -> UserError:
    text = kernel.texts()["schedule"]
    assert line in text, text
    with pytest.raises(UserError) as caught:
        kernel.changed({"schedule": text.replace(line, other, 1)})
    return caught.value


@pytest.mark.parametrize(("name", "line", "other", "message"), BROKEN_2)
def test_schedule_2(
    kernels: dict[str, Any], name: str, line: str, other: str, message: str
) -> None:
    error = refusal(kernels[name], line, other)
    assert message in str(error)
    assert error.rule in ("schedule-2", "schedule-1")


@pytest.mark.parametrize(("name", "line", "other", "message"), BROKEN_3)
def test_schedule_3(
    kernels: dict[str, Any], name: str, line: str, other: str, message: str
) -> None:
    error = refusal(kernels[name], line, other)
    assert message in str(error)
    assert error.rule == "schedule-3"


def test_planned_schedules_are_legal_by_hand(kernels: dict[str, Any]) -> None:
    for kernel in kernels.values():
        planned = kernel.texts()
        made = kernel.changed({"schedule": planned["schedule"]})
        assert made["schedule"] == planned["schedule"]
        assert made["cuda"].text == planned["cuda"].text
