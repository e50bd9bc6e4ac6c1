"""csrc/fusion/build/define_random.cpp: the seed and offset of definitions, and their text."""

import pytest
import torch

from fuser import DataType, FusionDefinition, UserError, evaluate


def rebuilt(fd: FusionDefinition) -> FusionDefinition:
    names: dict[str, object] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), names)
    again = FusionDefinition()
    names["nvfuser_fusion"](again)  # type: ignore[operator]
    return again


def test_ops_follow_each_other_at_distances_of_4() -> None:
    fd = FusionDefinition()
    seed, first = fd.random_state()
    again, second = fd.random_state(2)
    _, last = fd.random_state()
    assert seed.is_same(again)
    assert second.is_same(first + 4)
    assert last.is_same(first + 12)
    assert fd.fusion.records()["random"] == (0, 1, 4)
    assert fd.fusion.inputs() == []


def test_the_text_keeps_the_place_among_the_scalars() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        a = fd.define_scalar(DataType.Double)
        y = fd.ops.mul(fd.ops.rand_like(x), a)
        b = fd.define_scalar(DataType.Double)
        fd.add_output(fd.ops.add(fd.ops.mul(y, fd.ops.randn_like(x)), b))
    assert "S1, S2 = fd.random_state(2)" in repr(fd)
    assert repr(rebuilt(fd)) == repr(fd)
    assert rebuilt(fd).fusion == fd.fusion


def test_a_state_without_use_stays() -> None:
    fd = FusionDefinition()
    fd.define_tensor([-1])
    fd.random_state(3)
    assert "fd.random_state(3)" in repr(fd)
    assert rebuilt(fd).fusion == fd.fusion
    assert FusionDefinition().fusion != fd.fusion


def test_seed_and_offset_are_scalars() -> None:
    """Seed and offset may be used in arithmetic, with equal values in evaluate()."""
    with FusionDefinition() as fd:
        seed, offset = fd.random_state()
        both = [fd.ops.full([], s, DataType.Int) for s in (seed, offset)]
        for t in both:
            fd.add_output(t)
    expected = [t.item() for t in evaluate(fd, [])]
    device = "cuda" if torch.cuda.is_available() else "cpu"  # as in evaluate()
    assert [t.item() for t in fd.execute([], device=device)] == expected


def test_random_1() -> None:
    with pytest.raises(UserError, match="random_state") as caught:
        FusionDefinition().random_state(0)
    assert caught.value.rule == "random-1"
