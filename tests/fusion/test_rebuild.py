"""csrc/fusion/build/rebuild.cpp: a definition specialized for known sizes."""

from __future__ import annotations

import pytest
import torch

from fuser import DataType, FusionDefinition, ShapeError, _core


def test_specialization_keeps_ids_and_dims() -> None:
    """A reduction over a size that becomes 1 remains a reduction, so that ids are unchanged."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        index = fd.define_tensor([-1, -1], dtype=DataType.Int)
        total = fd.ops.sum(x, [1])
        place = fd.ops.argmax(x, 0)
        taken = fd.ops.take_along_axis(x, index, 1)
        merged = fd.ops.merge_dims(fd.ops.split_dim(x, 1, [-1, 2]), 1, x.size(1))
        numbers = fd.ops.iota(x.size(0))
        for t in (total, place, taken, merged, numbers):
            fd.add_output(t)
    before = repr(fd)
    plain = _core.specialize(fd._builder, [[False, False], [False, False]])
    assert plain.to_python() == before
    ones = _core.specialize(fd._builder, [[True, False], [False, True]])
    records = ones.records()
    assert [r["kind"] for r in records["tensors"]] == [
        r["kind"] for r in fd.fusion.records()["tensors"]
    ]
    assert records["nonempty"] == [("take_along_axis(t0, t1)", 1, 0)]
    assert "fd.ops.iota(1)" in ones.to_python()


def test_specialization_finds_what_does_not_fit() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(fd.ops.split_dim(x, 0, [4, -1]))
    with pytest.raises(ShapeError) as caught:
        _core.specialize(fd._builder, [[True]])
    assert caught.value.rule == "split-dim-3"


@pytest.mark.parametrize(
    ("ones", "size"),
    [
        ([[True], [False]], "fd.ops.size(T1, 0)"),
        ([[False], [True]], "fd.ops.size(T0, 0)"),
        ([[False], [False]], "fd.ops.size(T0, 0)"),
        ([[True], [True]], "1"),
    ],
)
def test_a_size_of_a_tensor_is_that_of_the_operand_that_does_not_broadcast(
    ones: list[list[bool]], size: str
) -> None:
    fd = FusionDefinition()
    total = fd.define_tensor([-1]) + fd.define_tensor([-1])
    fd.add_output(fd.ops.full([total.size(0)], 1, DataType.Int))
    known = _core.specialize(fd._builder, ones).to_python()
    assert f"fd.ops.full(shape=[{size}]" in known


def test_a_size_that_is_1_by_the_name_of_another_broadcasts() -> None:
    """(2 + 1) // 2 is 1 if 2 is the size of another operand; the dim broadcasts together with a dim
    of size 1."""
    fd = FusionDefinition()
    x, y = fd.define_tensor([2, -1]), fd.define_tensor([-1, -1])
    fd.add_output(x + y)
    ends = [fd.ops.size(y, 0), fd.ops.size(y, 1)]
    fd.add_output(fd.ops.slice(y, [0, 0], ends, [2, 1]) + y)
    a, b = torch.ones(2, 1), torch.tensor([[3.0], [5.0]])
    first, second = fd.execute([a, b])
    assert first.tolist() == [[4.0], [6.0]]
    assert second.tolist() == [[6.0], [8.0]]
    with pytest.raises(ShapeError) as caught:
        fd.execute([a, torch.ones(3, 1)])
    assert caught.value.rule == "broadcast-1"


def test_a_size_that_has_to_be_1_is_still_checked() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.expand(x, [1, 4]))
    assert fd.execute([torch.ones(1, 1)])[0].tolist() == [[1.0] * 4]
    with pytest.raises(ShapeError):
        fd.execute([torch.ones(2, 1)])
