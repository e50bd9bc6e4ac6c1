"""csrc/torch/script/lists: elements of lists that a script selects by a constant index."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.adapters.script_ops import eager
from tests.support.scripts import assert_same, fallbacks, fused, groups, warmed


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with fused():
        yield


@pytest.mark.parametrize(
    "parts",
    [
        "(x * 2).chunk(3, 1)[0] + x.chunk(3, 1)[2]",
        "(x * 2).split(4, 1)[1] + 1",
        "(x * 2).split([2, x.size(1) - 2], 1)[1] + 1",
        "(x * 2).unbind(1)[-1] + x.unbind(1)[0]",
    ],
)
def test_parts_are_in_the_group(parts: str) -> None:
    source = f"def f(x: Tensor):\n    return {parts}\n"
    f, expected, unfused = torch.jit.CompilationUnit(source).f, eager(source), fallbacks()
    for width in [6, 6, 6, 7, 5]:
        x = torch.randn(4, width)
        assert_same([f(x)], [expected(x)])
    assert groups(f.graph_for(x)) == 1
    assert fallbacks() == unfused


@pytest.mark.parametrize(
    ("part", "right", "wrong"), [("chunk(5, 0)[4]", 5, 6), ("split(2, 0)[2]", 6, 4)]
)
def test_a_part_that_there_is_not(part: str, right: int, wrong: int) -> None:
    """Six rows in five chunks yield only three chunks, so the index is out of range."""
    f = torch.jit.CompilationUnit(f"def f(x: Tensor):\n    return (x * 2).{part} + 1\n").f
    for _ in range(3):
        f(torch.randn(right, 3))
    with pytest.raises(Exception, match="list index out of range"):
        f(torch.randn(wrong, 3))


def test_a_part_that_is_returned_lies_in_its_tensor() -> None:
    source = """
def f(x: Tensor):
    part = x.chunk(2, 1)[1]
    return part, part * 2 + 1
"""
    f, x = torch.jit.CompilationUnit(source).f, torch.randn(4, 6)
    for _ in range(4):
        part, _ = f(x)
    part.zero_()
    assert not x[:, 3:].any()
    assert x[:, :3].any()


def test_a_list_that_several_ops_read_is_in_the_group() -> None:
    def joined(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        parts = [x * 2, y]
        return [torch.cat(parts, 1) + 1, torch.stack(parts) * 2, torch.cat([x * 2, y]) - 1]

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    f, unfused = warmed(joined, x, y), fallbacks()
    for got, expected in zip(f(x, y), joined(x, y), strict=True):
        assert_same([got], [expected])
    assert fallbacks() == unfused
    assert groups(f.graph_for(x, y)) == 1


def test_a_list_that_is_written_between_stays_one() -> None:
    """The tensor is modified between chunk() and the use of a chunk, so the list remains."""
    source = """
def f(x: Tensor):
    y = x * 2
    parts = y.chunk(2, 1)
    y.add_(1)
    return parts[0] * 3 + parts[1]
"""
    f, expected, x = torch.jit.CompilationUnit(source).f, eager(source), torch.randn(4, 6)
    for _ in range(4):
        assert_same([f(x)], [expected(x)])


@pytest.mark.parametrize("loss", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_a_loss_that_broadcasts_its_operands(loss: str) -> None:
    source = f"def f(x: Tensor, y: Tensor):\n    return torch.nn.functional.{loss}(x * 2, y) + 1\n"
    f, expected, unfused = torch.jit.CompilationUnit(source).f, eager(source), fallbacks()
    for rows in [4, 4, 4, 5]:
        x, y = torch.randn(rows, 6), torch.randn(rows, 6)
        assert_same([f(x, y)], [expected(x, y)], 2)
    assert groups(f.graph_for(x, y)) == 1
    assert fallbacks() == unfused
