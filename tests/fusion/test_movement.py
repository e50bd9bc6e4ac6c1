"""csrc/fusion/movement: every movement op of csrc/ir/movement.h, through all that reads its fields
and rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fuser
from fuser import FusionDefinition, ShapeError, _core, _core_testing
from fuser.ops.reference import MOVEMENTS

OPS: dict[str, list[str]] = _core_testing.ir.movement_ops()

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
    "unfold": [
        ([9, 4], {"dim": 0, "size": 3, "step": 2}, lambda x: x.unfold(0, 3, 2)),
        ([2, 8], {"dim": -1, "size": 4, "step": 1}, lambda x: x.unfold(1, 4, 1)),
        ([5, 3], {"dim": 0, "size": 5, "step": 7}, lambda x: x.unfold(0, 5, 7)),
    ],
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


def test_expanded_dims_remain_expanded() -> None:
    """Other dims may move before the squeeze, but not the expanded dim (squeeze-2)."""
    fd = FusionDefinition()
    x = fd.define_tensor([4])
    wide = fd.ops.broadcast_in_dim(x, [4, 3], [0])
    moved = fd.ops.flip(fd.ops.slice(wide, [1, 0], [4, 3]), [0])
    fd.add_output(fd.ops.squeeze(moved, [1], squeeze_expanded=True) * 2.0)
    with pytest.raises(ShapeError) as caught:
        fd.ops.squeeze(fd.ops.flip(wide, [1]), [1], squeeze_expanded=True)
    assert caught.value.rule == "squeeze-2"
    data = torch.randn(4)
    assert torch.equal(fd.execute([data])[0], data[1:].flip(0) * 2)


X = torch.arange(48.0).reshape(6, 8)
WINDOWS: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "beside its operand's": (
        lambda o, x: o.unfold(x * 2.0, 1, 3, 2) - o.unfold(x, -1, 3, 2),
        lambda x: x.unfold(1, 3, 2),
    ),
    "of windows": (
        lambda o, x: -o.unfold(o.unfold(x, 0, 2, 2), 1, 4, 1),
        lambda x: -x.unfold(0, 2, 2).unfold(1, 4, 1),
    ),
    "largest": (
        lambda o, x: o.max(o.unfold(o.unfold(x, 0, 3, 1), 1, 2, 2), [2, 3]),
        lambda x: x.unfold(0, 3, 1).unfold(1, 2, 2).amax((2, 3)),
    ),
    "of a pad": (
        lambda o, x: o.sum(o.unfold(o.pad(x, [1, 1]), 1, 3), [-1]),
        lambda x: torch.nn.functional.pad(x, (1, 1)).unfold(1, 3, 1).sum(-1),
    ),
    "of sums": (
        lambda o, x: o.unfold(o.sum(x, [1]), 0, 2, 1) + 1.0,
        lambda x: x.sum(1).unfold(0, 2, 1) + 1,
    ),
    "less their means": (
        lambda o, x: o.sub(o.unfold(x, 1, 4, 4), o.mean(o.unfold(x, 1, 4, 4), [2], True)),
        lambda x: x.unfold(1, 4, 4) - x.unfold(1, 4, 4).mean(2, keepdim=True),
    ),
    "empty": (
        lambda o, x: o.sum(o.unfold(x, 1, 0), [-1]),
        lambda x: x.unfold(1, 0, 1).sum(-1),
    ),
}


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str, static: bool, set_option: Callable[[str, object], None]) -> None:
    """unfold() in one kernel with ops before and after it, with every access checked."""
    set_option("FUSER_HOST_DEBUG", 1)
    define_windows, by_torch = WINDOWS[name]
    fd = FusionDefinition()
    fd.add_output(define_windows(fd.ops, fd.from_pytorch(X, static_sizes=static)))
    (got,) = fd.execute([X])
    torch.testing.assert_close(got, by_torch(X), rtol=0, atol=0)
    fd.validate([X])


def test_windows_are_checked() -> None:
    """unfold-1, unfold-2 and unfold-3: in the definition if sizes are known, else in the run."""
    fd = FusionDefinition()
    x = fd.define_tensor([4, -1])
    wrong = {"unfold-1": (2, 1, 1), "unfold-2": (0, -1, 1), "unfold-3": (0, 5, 1)}
    for rule, given in wrong.items():
        with pytest.raises(ShapeError) as caught:
            fd.ops.unfold(x, *given)
        assert caught.value.rule == rule
    with pytest.raises(ShapeError) as caught:
        fd.ops.unfold(x, 1, 2, 0)
    assert caught.value.rule == "unfold-2"
    fd.add_output(-fd.ops.unfold(x, 1, 3))
    assert torch.equal(fd.execute([X[:4, :3]])[0], -X[:4, :3].unfold(1, 3, 1))
    with pytest.raises(ShapeError) as caught:
        fd.execute([X[:4, :2]])
    assert caught.value.rule == "unfold-3"
    with pytest.raises(ShapeError):
        fuser.evaluate(fd, [X[:4, :2]])
