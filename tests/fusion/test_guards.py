"""csrc/fusion/kernel/guards: questions that planning asks, and the tree of their answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fuser
from fuser import DataType, FusionDefinition, InternalError, _core, _core_testing
from tests.support.definitions import bias_gelu, gained

H100 = _core.known_device(90)


def planned(fd: FusionDefinition, *shapes: tuple[int, ...]) -> Any:
    """The only kernel of a definition, for contiguous inputs."""
    inputs = [(list(s), list(torch.empty(s, device="meta").stride()), 0) for s in shapes]
    (kernel,) = _core_testing.plan.Segmented(fd._builder, inputs).planned(H100)
    return kernel


def softmax() -> FusionDefinition:
    fd = FusionDefinition()
    fd.add_output(fd.ops.softmax(fd.define_tensor([-1, -1], dtype=DataType.BFloat16), 1))
    return fd


def test_a_guard_is_asked_once_and_in_order() -> None:
    guards = planned(bias_gelu(), (512, 64), (64,)).guards
    assert guards == [
        "buffer 0 is aligned: yes",
        "8 divides size(t0, 1): yes",
        "buffer 1 is aligned: yes",
        "one wave: no",
    ]
    assert len(set(guards)) == len(guards)


def test_answers_decide_the_next_question() -> None:
    """Odd rows collapse with the next dim, so that the product of both sizes counts."""
    for rows, answer in ((512, "yes"), (511, "no")):
        guards = planned(bias_gelu(), (rows, 63), (63,)).guards
        assert guards == [
            "buffer 0 is aligned: yes",
            "8 divides size(t0, 1): no",
            "buffer 1 is aligned: yes",
            "one wave: no",
            f"8 divides size(t0, 0) * size(t0, 1): {answer}",
        ]


def test_constant_sizes_are_no_guards() -> None:
    fd = FusionDefinition()
    fd.add_output(fd.ops.softmax(fd.define_tensor([128, 1024], dtype=DataType.BFloat16), 1))
    assert planned(fd, (128, 1024)).guards == ["buffer 0 is aligned: yes"]


def test_extents_are_asked_for_as_buckets() -> None:
    guards = planned(softmax(), (4096, 1000)).guards
    assert guards[:2] == ["size(t0, 1) is at most 1024", "size(t0, 0) is at most 4096"]
    same = planned(softmax(), (4000, 1024 - 8)).guards
    assert same == guards
    assert planned(softmax(), (4096, 1032)).guards != guards


def test_planning_leaves_the_problem_unchanged() -> None:
    """Expressions of questions, schedules and kernels are in arenas of their own."""
    inputs = [([4096, 1023], [1023, 1], 0)]
    definition = _core_testing.plan.Segmented(softmax()._builder, inputs)
    before = definition.expressions()
    first = definition.planned(H100)
    assert definition.expressions() == before
    again = definition.planned(H100)
    assert [k.plan for k in again] == [k.plan for k in first]
    assert [k.guards for k in again] == [k.guards for k in first]
    assert "exp" in first[0].texts()["ir"]
    assert definition.expressions() == before  # neither do schedules and lowering


def test_sizes_with_equal_answers_share_a_plan() -> None:
    """Calls whose sizes differ in facts that nobody asked for plan and compile nothing."""
    fd, x = softmax(), torch.randn(64, 1000).bfloat16()
    before = fuser.cache_info()
    fd.execute([x])
    assert gained(before).plans == 1
    for rows in (57, 60, 63):
        fd.execute([x[:rows]])
    gain = gained(before)
    assert (gain.plans, gain.misses) == (1, 4)


# ---- the tree


def test_the_tree_returns_what_was_stored_for_equal_answers() -> None:
    tree = _core_testing.plan.GuardTree()
    assert tree.find([8, 8]) is None
    # slot, divisor, answer
    tree.insert([(0, 8, 1), (1, 4, 1)], 10)
    tree.insert([(0, 8, 1), (1, 4, 0)], 11)
    tree.insert([(0, 8, 0), (0, 2, 1)], 12)
    assert [tree.find([16, n]) for n in (4, 8, 6)] == [10, 10, 11]
    assert tree.find([6, 3]) == 12
    assert tree.find([7, 3]) is None
    tree.insert([(0, 8, 1), (1, 4, 1)], 13)
    assert tree.find([16, 4]) == 13


def test_a_tree_without_guards_has_one_plan() -> None:
    tree = _core_testing.plan.GuardTree()
    tree.insert([], 1)
    assert tree.find([]) == 1


@pytest.mark.parametrize(
    "answers",
    [[(0, 4, 1)], [(0, 8, 1), (1, 2, 1)], [(0, 8, 1)], [], [(0, 8, 1), (1, 4, 1), (1, 8, 1)]],
    ids=str,
)
def test_planning_must_be_deterministic(answers: list[tuple[int, int, int]]) -> None:
    """A different, missing or further question after equal answers is a defect."""
    tree = _core_testing.plan.GuardTree()
    tree.insert([(0, 8, 1), (1, 4, 1)], 1)
    with pytest.raises(InternalError, match="questions after equal answers"):
        tree.insert(answers, 2)
