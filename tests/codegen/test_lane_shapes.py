"""csrc/codegen/lane_shapes: conditions that hold in a range of lanes, and lanes at constant
offsets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fuser import FusionDefinition
from tests.codegen.test_cpp import statements

SetOption = Callable[[str, object], None]


@pytest.fixture(autouse=True)
def on_cpu(set_option: SetOption) -> None:
    set_option("FUSER_HOST_ARCH", 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("width", [6, 34, 128, 200])
def test_pairs_of_lanes_are_shuffled(dtype: torch.dtype, width: int) -> None:
    """Rotary embeddings of neighbours: lane i reads the elements i / 2 * 2 and i / 2 * 2 + 1."""
    x = torch.randn(3, 5, width, dtype=dtype)
    turn = torch.randn(width // 2, dtype=dtype)
    fd = FusionDefinition()
    t, by = fd.from_pytorch(x), fd.from_pytorch(turn)
    first, second = (fd.ops.slice(t, [0, 0, start], [3, 5, width], [1, 1, 2]) for start in (0, 1))
    by = fd.ops.broadcast(by, [True, True, False])
    turned = fd.ops.stack([first * by, fd.ops.maximum(second, by)], 3)
    fd.add_output(fd.ops.cast(fd.ops.merge_dims(turned, 2), t.dtype()))
    text = statements(fd, [x, turn])
    if width > 32:  # shorter rows share a vector, so that lane 0 is anywhere in a row
        assert "load_pattern(g_in0 + " in text
        assert "gather" not in text
    exact = torch.stack(
        [x[..., ::2] * turn, torch.maximum(x[..., 1::2], turn.expand_as(x[..., 1::2]))], -1
    )
    assert torch.equal(fd.execute([x, turn])[0], exact.flatten(-2))


def test_conditions_on_lanes_are_ranges() -> None:
    """A pad inside of a cat: three conditions, and lanes of both operands in one vector."""
    for width in (3, 40, 100):
        x, y = torch.randn(7, width), torch.randn(7, 5)
        fd = FusionDefinition()
        a, b = fd.from_pytorch(x), fd.from_pytorch(y)
        fd.add_output(fd.ops.cat([fd.ops.pad(a, [2, 1], 0.25), b], 1) + 1.0)
        text = statements(fd, [x, y])
        if width > 32:  # shorter rows share a vector, so that the lanes of a condition do not
            assert "LaneRange<" in text
            assert "load_where" not in text
        exact = torch.cat([torch.nn.functional.pad(x, [2, 1], value=0.25), y], 1) + 1.0
        assert torch.equal(fd.execute([x, y])[0], exact)


def test_a_condition_on_indices_may_be_a_value() -> None:
    """A triangle: the condition is a range of lanes, and an operand of other ops too."""
    x = torch.randn(37, 50)
    fd = FusionDefinition()
    t = fd.from_pytorch(x)
    fd.add_output(fd.ops.triu(t, 1) - fd.ops.tril(t, -2))
    exact = torch.triu(x, 1) - torch.tril(x, -2)
    assert torch.equal(fd.execute([x])[0], exact)


def test_lanes_that_cross_rows_are_gathered() -> None:
    """The offset of the first lane is unknown modulo the length of a row."""
    x = torch.randn(6, 4, 3)
    fd = FusionDefinition()
    t = fd.from_pytorch(x)
    fd.add_output(fd.ops.reshape(fd.ops.permute(t, [0, 2, 1]), [6, 12]) * 2.0)
    assert torch.equal(fd.execute([x])[0], x.permute(0, 2, 1).reshape(6, 12) * 2.0)


@pytest.mark.parametrize("before", [1, 5, 32, 33, 64])
def test_a_vector_may_begin_in_front_of_a_divided_coordinate(before: int) -> None:
    """Lane 0 has a negative coordinate, whose quotient C++ rounds towards zero."""
    x, y = torch.randn(7, 65), torch.randn(7, before)
    fd = FusionDefinition()
    a, b = fd.from_pytorch(x, True), fd.from_pytorch(y, True)
    four = fd.ops.expand(fd.ops.broadcast(a, [False, False, True]), [7, 65, 4])
    fd.add_output(-fd.ops.cat([b, fd.ops.merge_dims(four, 1)], 1))
    exact = -torch.cat([y, x[:, :, None].expand(7, 65, 4).flatten(1)], 1)
    assert torch.equal(fd.execute([x, y])[0], exact)
