"""fuser/nvfuser/schedule/propagate.py: transforms, bindings and inlining from one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import FusionDefinition, ParallelType, UserError, schedule
from fuser.nvfuser.schedule.graph import view_of
from fuser.nvfuser.schedule.propagate import mappings_from

P = ParallelType


def extents(tensor: Any) -> list[str]:
    return [f"{axis.kind.value}{axis.extent()}" for axis in view_of(tensor).loop]


def bindings(tensor: Any) -> list[str]:
    return [axis.parallel.name for axis in view_of(tensor).loop]


def normalization() -> tuple[FusionDefinition, list[Any]]:
    """x / sum(x): x, its sum, the sum broadcast, the quotient."""
    fd = FusionDefinition()
    x = fd.define_tensor([6, 1000], contiguity=True)
    total = fd.ops.sum(x, [1])
    wide = fd.ops.broadcast(total, [False, True])
    y = fd.ops.truediv(x, wide)
    fd.add_output(y)
    return fd, [x, total, wide, y]


# ---- transform_like


def test_transforms_reach_every_tensor() -> None:
    _fd, tensors = normalization()
    y = tensors[-1].split(1, 128).split(0, 2)
    schedule.transform_like(y)
    assert extents(y) == ["i3", "i2", "i8", "i128"]
    assert [extents(t) for t in tensors[:3]] == [
        ["i3", "i2", "i8", "i128"],
        ["i3", "i2", "r8", "r128"],
        ["i3", "i2", "b1", "b128"],
    ]


def test_a_merge_with_a_missing_axis_changes_nothing() -> None:
    fd = FusionDefinition()
    x, row = (fd.define_tensor(shape, contiguity=True) for shape in ([6, 8], [8]))
    wide = fd.ops.broadcast(row, [True, False])
    y = x * wide
    fd.add_output(y)
    y.merge(0).split(0, 4)
    schedule.transform_like(y)
    assert extents(x) == ["i12", "i4"]
    assert extents(wide) == ["i2", "i4"]
    assert extents(row) == ["i2", "i4"]


def test_a_reduced_axis_follows_as_innermost_loop() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([6, 5, 8], contiguity=True)
    total = fd.ops.sum(x, [1])
    y = fd.ops.exp(total)
    fd.add_output(y)
    y.split(1, 2).reorder({0: -1})
    schedule.transform_like(y)
    assert extents(y) == ["i4", "i2", "i6"]
    assert extents(total) == ["i4", "i2", "i6", "r5"]
    assert extents(x) == ["i4", "i2", "i6", "i5"]


def test_transforms_pass_permutes_and_reshapes() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([6, 8], contiguity=True)
    turned = fd.ops.permute(x, [1, 0])
    flat = fd.ops.reshape(fd.ops.exp(turned), [48])
    fd.add_output(flat)
    flat.split(0, 16)
    schedule.transform_like(flat)
    # the reshape is a merge of the operand's axes too
    assert extents(turned) == ["i3", "i16"]
    assert extents(x) == ["i3", "i16"]
    assert str(view_of(x).transforms[0]).startswith("Merge: iS1{8} and iS0{6} -> ")
    fd = FusionDefinition()
    x = fd.define_tensor([6, 8], contiguity=True)
    y = fd.ops.exp(fd.ops.slice(x, [0, 2], [6, 8]))
    fd.add_output(y)
    y.split(1, 2).split(0, 3)
    schedule.transform_like(y)
    assert extents(x) == ["i2", "i3", "i8"], "the extent of a slice is its own"


def test_equal_transforms_are_reused_and_others_replaced() -> None:
    _fd, (x, total, _, y) = normalization()
    x.split(1, 128)
    x.axis(-1).parallelize(P.block_x)
    total.split(1, 7)
    y.split(1, 128)
    schedule.transform_like(y, [x, total])
    assert bindings(x) == ["serial", "serial", "block_x"]
    assert extents(total) == ["i6", "r8", "r128"]
    schedule.transform_like(y)
    assert bindings(x) == ["serial", "serial", "block_x"]
    assert len(view_of(x).transforms) == 1


def test_only_selected_tensors_are_reached() -> None:
    _fd, (x, total, wide, y) = normalization()
    y.split(1, 128)
    schedule.transform_like(y, [x])
    assert extents(x) == ["i6", "i8", "i128"]
    assert extents(total) == ["i6", "r1000"]
    schedule.transform_like(y, [total])  # no path within the selection
    assert extents(total) == ["i6", "r1000"]
    schedule.transform_like(y, [total, wide])  # a broadcast axis is not the reduced one
    assert extents(total) == ["i6", "r1000"]
    schedule.transform_like(y, [x, total])
    assert extents(total) == ["i6", "r8", "r128"]


def test_random_transforms_reach_every_tensor(rng: np.random.Generator) -> None:
    """After transform_like() pointwise neighbours have the loop nest of the reference."""
    for _ in range(25):
        fd = FusionDefinition()
        x = fd.define_tensor([int(n) for n in rng.integers(2, 30, 3)], contiguity=True)
        y = fd.ops.exp(fd.ops.sin(x))
        fd.add_output(y)
        for _ in range(6):
            rank = view_of(y).ndim
            place = int(rng.integers(rank))
            if rng.integers(2) and place + 1 < rank:
                y.merge(place)
            else:
                y.split(place, int(rng.integers(1, 9)), bool(rng.integers(2)))
            y.reorder([int(p) for p in rng.permutation(view_of(y).ndim)])
        schedule.transform_like(y)
        for tensor in fd.fusion.vals():
            assert extents(tensor) == extents(y)
        for view, mapping in mappings_from(view_of(y)):
            assert [mapping[axis] for axis in view_of(y).loop] == view.loop


# ---- bounded_transform_backward


def test_transforms_stop_at_a_boundary() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([6, 1000], contiguity=True)
    a = fd.ops.sin(x)
    b = fd.ops.exp(a)
    side = fd.ops.cos(a)
    y = fd.ops.sum(b, [1])
    fd.add_output(y)
    fd.add_output(side)
    y.split(0, 2).split(-1, 100)
    y.axis(0).parallelize(P.grid_x)
    schedule.bounded_transform_backward(y, -1, [a], propagate_parallel_type=True)
    assert extents(b) == extents(a) == ["i3", "i2", "i10", "i100"]
    assert bindings(b) == bindings(a) == ["grid_x", "serial", "serial", "serial"]
    assert extents(x) == extents(side) == ["i6", "i1000"]
    schedule.bounded_transform_backward(y, 2, [x])
    assert extents(x) == ["i3", "i2", "i1000"], "the inner split is behind the position"
    assert bindings(x) == ["serial"] * 3


# ---- parallelize_like


def test_bindings_reach_equal_axes() -> None:
    _fd, (x, total, wide, y) = normalization()
    y.split(1, 128)
    schedule.transform_like(y)
    y.axis(0).parallelize(P.grid_x)
    y.axis(2).parallelize(P.block_x)
    schedule.parallelize_like(y)
    assert bindings(x) == ["serial"] * 3, "inputs stay unbound"
    for tensor in (total, wide):
        assert bindings(tensor) == ["grid_x", "serial", "block_x"]
    y.axis(1).parallelize(P.block_y)
    schedule.parallelize_like(y, pos=1)
    assert bindings(total) == ["grid_x", "serial", "block_x"]
    schedule.parallelize_like(y, selected_parallel_types=[P.block_x])
    assert bindings(total) == ["grid_x", "serial", "block_x"]
    schedule.parallelize_like(y, selected_tensors=[total])
    assert bindings(total) == ["grid_x", "block_y", "block_x"]
    assert bindings(wide) == ["grid_x", "serial", "block_x"]


def test_a_binding_replaces_an_older_one() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([6, 8], contiguity=True)
    y = fd.ops.exp(fd.ops.sin(x))
    fd.add_output(y)
    middle = fd.fusion.vals()[1]
    middle.axis(0).parallelize(P.block_x)
    y.axis(1).parallelize(P.block_x)
    schedule.parallelize_like(y)
    assert bindings(middle) == ["serial", "block_x"]


# ---- inlining


def test_tensors_are_inlined_as_far_as_consumers_allow() -> None:
    _fd, (x, total, wide, y) = normalization()
    copy, before = x.cache_after(), y.cache_before()
    y.split(1, 128).split(2, 4)
    schedule.transform_like(y)
    copy.axis(-1).parallelize(P.vectorize)
    schedule.inline_most()
    views = {name: view_of(t) for name, t in [("x", x), ("total", total), ("wide", wide), ("y", y)]}
    assert views["x"].inlined == 0, "an input is in memory"
    assert copy.inlined == 3, "up to the vector"
    assert views["total"].inlined == 1, "up to the reduced axes"
    assert views["wide"].inlined == 4
    assert before.inlined == 4
    assert views["y"].produced == 4


def test_inline_at_a_position() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([6, 8, 4], contiguity=True)
    y = fd.ops.exp(fd.ops.sin(x))
    fd.add_output(y)
    middle = fd.fusion.vals()[1]
    schedule.inline_at(y, 2)
    assert view_of(middle).inlined == view_of(y).inlined == view_of(y).produced == 2
    _fd, (_, total, wide, y) = normalization()
    with pytest.raises(UserError, match="expected at most 1") as caught:
        schedule.inline_at(total, 2)
    assert caught.value.rule == "by-hand-inline"
    schedule.inline_at(total, 2, best_effort=True, selected_tensors=[total, wide])
    assert view_of(total).inlined == 1
    assert view_of(wide).inlined == 2
    assert view_of(y).inlined == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda y: schedule.inline_at(y, 3),
        lambda y: schedule.inline_at(y, -4),
        lambda y: schedule.parallelize_like(y, 9),
        lambda y: schedule.bounded_transform_backward(y, 5, [y]),
        lambda y: y.inline_at("all"),
    ],
)
def test_positions_are_checked(call: Callable[[Any], Any]) -> None:
    _fd, tensors = normalization()
    with pytest.raises(UserError, match="expected a number of loops from -3 to 2") as caught:
        call(tensors[-1])
    assert caught.value.rule == "by-hand-inline"
