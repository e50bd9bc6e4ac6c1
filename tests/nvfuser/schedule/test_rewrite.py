"""fuser/nvfuser/schedule/rewrite.py: caches and rfactor, as methods of a TensorView."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuser import FusionDefinition, MemoryType, ParallelType, TensorView, UserError, schedule
from fuser.nvfuser.schedule.graph import view_of


def reduction(shape: list[int], dims: list[int]) -> tuple[FusionDefinition, Any, Any, Any]:
    """x, exp(x), and sum(exp(x)) over dims."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape, contiguity=True)
    y = fd.ops.exp(x)
    total = fd.ops.sum(y, dims)
    fd.add_output(total)
    return fd, x, y, total


def producers(tensor: Any) -> list[str]:
    return [edge.producer.name for edge in view_of(tensor).operands]


def test_cache_after() -> None:
    fd, x, y, _ = reduction([4, 6], [1])
    x.split(1, 2)
    copy = x.cache_after()
    assert isinstance(copy, TensorView)
    assert (copy.definition(), producers(y)) == ("set(T0)", ["T3"])
    assert str(copy) == "T3_l_float[iS8{4}, iS10{3}, iS11{2}]"
    assert [view.name for view in fd.sched.tensors()] == ["T0", "T3", "T1", "T2"]
    assert copy.dtype() == x.dtype()
    assert copy.source().id == x.id
    assert [str(n) for n in copy.shape()] == [str(n) for n in x.shape]
    again = copy.cache_after()
    assert producers(y) == [again.name]


def test_cache_after_for_some_consumers() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([4], contiguity=True)
    a, b = fd.ops.exp(x), fd.ops.sin(x)
    fd.add_output(a)
    fd.add_output(b)
    copy = x.cache_after(cached_uses=[b])
    assert (producers(a), producers(b)) == (["T0"], [copy.name])


def test_cache_before() -> None:
    fd, _, _, total = reduction([4, 6], [1])
    total.split(1, 2)
    partial = total.cache_before()
    assert str(partial) == "T3_l_float[iS8{4}, rS10{3}, rS11{2}]"
    assert str(view_of(total)) == "T2_g_float[iS12{4}]"
    assert (partial.definition(), producers(total)) == ("sum(T1)", ["T3"])
    assert view_of(total).is_output
    assert fd.sched.is_reduction(partial)
    assert not fd.sched.is_reduction(total)


def test_cache_fork() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([4], contiguity=True)
    y = fd.ops.exp(x)
    z = fd.ops.sin(y)
    fd.add_output(y)
    fd.add_output(z)
    fork = y.cache_fork()
    assert fork.is_output
    assert fork.memory is MemoryType["global"]
    assert view_of(y).memory is MemoryType.local
    assert (producers(fork), producers(z)) == (["T1"], ["T1"])
    y.set_memory_type(MemoryType.shared)
    assert str(view_of(y)).startswith("T1_s_float[")


def test_rfactor() -> None:
    _fd, x, _, total = reduction([4, 1024], [1])
    total.split(1, 128).split(0, 2)
    total.axis(0).parallelize(ParallelType.grid_x)
    total.axis(-1).parallelize(ParallelType.block_x)
    first = total.rfactor([-2])
    assert [str(axis.extent()) for axis in first.loop] == ["2", "2", "8", "128"]
    assert [axis.kind.value for axis in first.loop] == ["i", "i", "r", "i"]
    assert first.definition() == "sum(T1)"
    assert first.has_root()
    assert [str(axis.extent()) for axis in first.root or ()] == ["4", "1024"]
    split = "  Split: rS11{1024} by factor 128 -> rS12{8}rf, ithreadIdx.x13{128}rf"
    assert split in first.transforms_text().splitlines()
    second = view_of(total)
    assert [str(axis.extent()) for axis in second.loop] == ["2", "2", "128"]
    assert [axis.kind.value for axis in second.loop] == ["i", "i", "r"]
    assert [axis.parallel.name for axis in second.loop] == ["grid_x", "serial", "block_x"]
    assert [axis.parallel.name for axis in first.loop] == ["grid_x", "serial", "serial", "block_x"]
    assert producers(total) == [first.name]
    # the schedule of the first tensor reaches its operands over the reduced dim
    schedule.transform_like(first)
    assert [str(axis.extent()) for axis in view_of(x).loop] == ["2", "2", "8", "128"]


def test_rfactor_twice() -> None:
    _fd, _, _, total = reduction([2, 64], [0, 1])
    total.merge(0).split(0, 4).split(1, 2)
    first = total.rfactor([1])
    second = total.rfactor([0])
    assert [axis.kind.value for axis in first.loop] == ["i", "r", "i"]
    assert [axis.kind.value for axis in second.loop] == ["r", "i"]
    assert [axis.kind.value for axis in view_of(total).loop] == ["r"]
    assert (producers(total), producers(second)) == ([second.name], [first.name])


@pytest.mark.parametrize("axes", [[], [0], [1, 2], [1, 1], [0, 1]], ids=str)
def test_rfactor_takes_some_reduced_axes(axes: list[int]) -> None:
    _fd, _, _, total = reduction([4, 1024], [1])
    total.split(1, 128)
    with pytest.raises(UserError, match="reduced axes, but not all") as caught:
        total.rfactor(axes)
    assert caught.value.rule == "by-hand-rfactor"


def test_rfactor_of_other_tensors() -> None:
    _fd, _, y, total = reduction([4, 1024], [1])
    with pytest.raises(UserError, match=r"the reduced axes of .* are: none") as caught:
        y.rfactor([1])
    assert caught.value.rule == "by-hand-rfactor"
    with pytest.raises(UserError) as caught:
        total.rfactor([7])
    assert caught.value.rule == "by-hand-axis"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x, y, total: x.cache_before(), "expected a computed tensor"),
        (lambda x, y, total: total.cache_after(), "expected a tensor with consumers"),
        (lambda x, y, total: y.cache_fork(), "expected an output that other tensors read"),
        (lambda x, y, total: total.cache_fork(), "expected an output that other tensors read"),
    ],
    ids=["before", "after", "fork", "fork of a result"],
)
def test_caches_are_checked(call: Callable[..., Any], expected: str) -> None:
    _fd, x, y, total = reduction([4, 6], [1])
    with pytest.raises(UserError, match=expected) as caught:
        call(x, y, total)
    assert caught.value.rule == "by-hand-cache"


def test_inlined_tensors_stay_as_they_are() -> None:
    _fd, _, y, total = reduction([4, 6], [1])
    total.split(1, 2)
    schedule.inline_most([y, total])
    for call, rule in [
        (lambda: y.cache_before(), "by-hand-cache"),
        (lambda: y.cache_after(), "by-hand-cache"),
        (lambda: total.rfactor([1]), "by-hand-rfactor"),
    ]:
        with pytest.raises(UserError, match="expected a tensor without inlined axes") as caught:
            call()
        assert caught.value.rule == rule
