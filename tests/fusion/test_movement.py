"""csrc/fusion/movement: every movement op of csrc/ir/movement.h, through all that reads its fields
and rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuser
from fuser import FusionDefinition, _core
from fuser.ops.reference import MOVEMENTS

OPS: dict[str, list[str]] = _core.ir_testing.movement_ops()

# By op: sizes of an operand, the call, and torch's function.
Calls = list[tuple[list[int], dict[str, Any], Callable[[torch.Tensor], torch.Tensor]]]
CALLS: dict[str, Calls] = {
    "broadcast": [
        ([3, 4], {"is_broadcast_dim": [False, True, False]}, lambda x: x[:, None]),
        ([], {"is_broadcast_dim": [True]}, lambda x: x[None]),
    ],
    "expand": [
        ([1, 4], {"shape": [3, -1]}, lambda x: x.expand(3, 4)),
        ([4], {"shape": [2, 4]}, lambda x: x.expand(2, 4)),
    ],
    "squeeze": [([1, 3, 1], {"dims": [2, 0]}, lambda x: x[0, :, 0])],
    "permute": [([2, 3, 4], {"dims": [2, 0, -2]}, lambda x: x.permute(2, 0, 1))],
    "stride_order": [([2, 3], {"stride_order": [0, 1]}, lambda x: x)],
    "split_dim": [
        ([2, 12], {"dim": 1, "sizes": [3, -1]}, lambda x: x.reshape(2, 3, 4)),
        ([12, 2], {"dim": -2, "sizes": [2, 6]}, lambda x: x.reshape(2, 6, 2)),
    ],
    "merge_dims": [([2, 3, 4], {"dim": 1}, lambda x: x.reshape(2, 12))],
    "slice": [
        (
            [7, 9],
            {"start_indices": [1, -8], "end_indices": [6, 9], "strides": [2, 3]},
            lambda x: x[1:6:2, -8:9:3],
        )
    ],
    "flip": [([3, 4], {"dims": [-1]}, lambda x: x.flip(1))],
}
SAMPLES = [(name, *call) for name, calls in CALLS.items() for call in calls]


def define(name: str, sizes: list[int], given: dict[str, Any]) -> FusionDefinition:
    """A definition whose kernel computes: results alone may be views."""
    fd = FusionDefinition()
    x = fd.define_tensor([n if n == 1 else -1 for n in sizes])
    moved = getattr(fd.ops, name)(x, **given)
    fd.add_output(moved)
    fd.add_output(fd.ops.neg(moved))
    return fd


def test_every_op_is_complete() -> None:
    """Each op has a reference, a method of fd.ops, and a call in this file."""
    assert set(OPS) == set(MOVEMENTS) == set(CALLS)
    for name, calls in CALLS.items():
        assert hasattr(FusionDefinition().ops, name)
        for _, given, _ in calls:
            assert set(given) <= set(OPS[name])


@pytest.mark.parametrize(("name", "sizes", "given", "expected"), SAMPLES)
def test_value(
    name: str, sizes: list[int], given: dict[str, Any], expected: Callable[..., torch.Tensor]
) -> None:
    """Kernels and the reference give the elements that torch gives."""
    fd = define(name, sizes, given)
    x = torch.randn(sizes)
    want = expected(x)
    moved, negated = fd.execute([x])
    assert torch.equal(moved, want)
    assert torch.equal(negated, -want)
    assert torch.equal(fuser.evaluate(fd, [x])[0], want.double())


@pytest.mark.parametrize(("name", "sizes", "given", "expected"), SAMPLES)
def test_text(
    name: str, sizes: list[int], given: dict[str, Any], expected: Callable[..., torch.Tensor]
) -> None:
    """The Python text of an op gives the definition again, and so does the rebuild."""
    del expected
    fd = define(name, sizes, given)
    text = repr(fd.fusion)
    assert f"fd.ops.{name}(T" in text
    names: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": fuser.DataType}
    exec(text, names)
    again = FusionDefinition()
    names["nvfuser_fusion"](again)
    assert again.fusion.structure() == fd.fusion.structure()
    rebuilt = _core.specialize(fd.fusion.builder, [[n == 1 for n in sizes]])
    lines = [rebuilt.to_python().splitlines(), text.splitlines()]
    calls = [next(line for line in found if f"fd.ops.{name}(" in line) for found in lines]
    if name not in ("expand", "split_dim"):  # the sizes of a rule have one name
        assert calls[0] == calls[1]
