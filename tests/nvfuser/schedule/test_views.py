"""fuser/nvfuser/schedule/views.py: domains of tensors, primitives that transform them, and their
text.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuser import (
    DataType,
    FusionDefinition,
    IterDomain,
    MemoryType,
    ParallelType,
    UserError,
)
from fuser.nvfuser.schedule.domains import Split
from fuser.nvfuser.schedule.graph import view_of
from fuser.nvfuser.tensor_methods import METHODS


def sum_of(shape: list[int], dims: list[int]) -> tuple[FusionDefinition, Any, Any]:
    """A definition, x, and sum(x) over dims. A schedule lives as long as its definition."""
    fd = FusionDefinition()
    x = fd.define_tensor(shape, contiguity=True)
    total = fd.ops.sum(x, dims)
    fd.add_output(total)
    return fd, x, total


def refused(rule: str, call: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as caught:
        call()
    assert caught.value.rule == rule
    return str(caught.value)


# ---- looking


def test_domains_are_printed_as_in_nvfuser() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([2, 4, 8], contiguity=True)
    y = fd.define_tensor([2, 4, 8], contiguity=True)
    z = x + y
    fd.add_output(z)
    assert str(x.domain()) == "[iS0{2}, iS1{4}, iS2{8}]"
    assert str(y.domain()) == "[iS3{2}, iS4{4}, iS5{8}]"
    assert str(z.domain()) == "[iS6{2}, iS7{4}, iS8{8}]"
    assert str(z.axis(-1)) == "iS8{8}"
    assert str(z.axis(0).extent()) == "2"
    assert int(z.axis(0).extent()) == 2
    assert str(view_of(z)) == "T2_g_float[iS6{2}, iS7{4}, iS8{8}]"
    assert z.get_logical_domain() == z.get_root_domain() == z.get_loop_domain()


def test_symbolic_extents_and_kinds() -> None:
    fd, _, total = sum_of([-1, -1], [1])
    wide = fd.ops.broadcast(total, [False, True])
    half = fd.ops.cast(wide, DataType.Half)
    fd.add_output(half)
    assert str(view_of(total)) == "T1_g_float[iS2{i0}, rS3{i1}]"
    assert str(view_of(wide)) == "T2_l_float[iS4{i0}, bS5{1}]"
    assert str(view_of(half)) == "T3_g___half[iS6{i0}, bS7{1}]"
    assert [axis.is_reduction() for axis in total.get_loop_domain()] == [False, True]
    assert wide.axis(1).is_broadcast()
    assert total.has_reduction()
    assert not half.has_reduction()
    with pytest.raises(ValueError, match="known at a run only"):
        int(total.axis(0).extent())


@pytest.mark.parametrize("name", METHODS)
def test_tensors_of_a_definition_have_the_methods(name: str) -> None:
    _fd, x, _ = sum_of([-1], [0])
    assert callable(getattr(x, name))
    assert getattr(type(x), name).__doc__


# ---- transforms


def test_split() -> None:
    _fd, _, total = sum_of([-1, 512], [1])
    view = total.split(1, 128)
    assert str(view.domain()) == "[iS2{i0}, rS4{4}, rS5{128}]"
    total.outer_split(1, 2)
    assert str(total.domain()) == "[iS2{i0}, rS6{2}, rS7{2}, rS5{128}]"
    total.split(0, 4).split(0, 8, inner_split=False)
    inner = "( ceilDiv(( ceilDiv(i0, 4) ), 8) )"
    expected = f"[iS10{{8}}, iS11{{{inner}}}, iS9{{4}}, rS6{{2}}, rS7{{2}}, rS5{{128}}]"
    assert str(total.domain()) == expected
    lines = view.transforms_text().splitlines()
    assert lines[1] == " logical domain : (iS2{i0}, rS3{512})"
    assert lines[2] == "  Split: rS3{512} by factor 128 -> rS4{4}, rS5{128}"
    assert lines[3] == "  Outer split: rS4{4} by factor 2 -> rS6{2}, rS7{2}"
    assert lines[-1] == f" loop domain : ({expected[1:-1]})"
    assert isinstance(view.transforms[0], Split)
    assert view.transforms[0].factor == 128


def test_merge_and_reorder() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 3, 1, 5], contiguity=True)
    fd.add_output(fd.ops.relu(x))
    view = view_of(x)
    x.merge(0)
    assert str(x.domain()) == "[iS8{( i0 * 3 )}, bS2{1}, iS3{5}]"
    x.merge(0, 2)
    assert str(x.domain()) == "[iS9{( ( i0 * 3 ) * 5 )}, bS2{1}]"
    x.merge(-2)  # with a broadcast axis: the extent stays
    assert str(x.domain()) == "[iS10{( ( i0 * 3 ) * 5 )}]"
    x.split(0, 2).split(0, 7).reorder({0: -1})
    assert [str(axis.extent()) for axis in view.loop[:2]] == ["7", "2"]
    x.reorder([2, 0, 1])
    assert [axis.extent().value for axis in view.loop] == [2, None, 7]
    assert [str(p) for p in view.fusion.primitives[-2:]] == [
        "T0.reorder(old2new={0: 2})",
        "T0.reorder(old2new={0: 2, 1: 0, 2: 1})",
    ]


def test_random_transforms_keep_every_element(rng: np.random.Generator) -> None:
    """The loop extents cover the dims, axes derive from them, and positions are a permutation."""
    for _ in range(50):
        sizes = [int(n) for n in rng.integers(1, 40, 3)]
        fd = FusionDefinition()
        x = fd.define_tensor(sizes, contiguity=True)
        fd.add_output(fd.ops.exp(x))
        view = view_of(x)
        for _ in range(8):
            rank = view.ndim
            match rng.integers(3):
                case 0:
                    x.split(int(rng.integers(rank)), int(rng.integers(1, 9)), bool(rng.integers(2)))
                case 1 if rank > 1:
                    x.merge(int(rng.integers(rank - 1)))
                case _:
                    x.reorder([int(place) for place in rng.permutation(rank)])
        extents = [int(axis.extent()) for axis in view.loop]
        assert len(set(view.loop)) == len(view.loop)
        assert np.prod(extents) >= np.prod(sizes)
        if not any(isinstance(transform, Split) for transform in view.transforms):
            assert np.prod(extents) == np.prod(sizes)
        made = [axis for transform in view.transforms for axis in transform.results]
        taken = [axis for transform in view.transforms for axis in transform.sources]
        assert {*view.logical, *made} - {*taken} == {*view.loop}


# ---- errors


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("by-hand-axis", lambda x: x.split(2, 4)),
        ("by-hand-axis", lambda x: x.split(-3, 4)),
        ("by-hand-axis", lambda x: x.axis(2)),
        ("by-hand-axis", lambda x: x.merge(5)),
        ("by-hand-axis", lambda x: x.reorder({0: 7})),
        ("by-hand-axis", lambda x: x.set_allocation_domain([1])),
        ("by-hand-factor", lambda x: x.split(0, 0)),
        ("by-hand-factor", lambda x: x.split(0, -4)),
        ("by-hand-factor", lambda x: x.split(0, True)),
        ("by-hand-merge", lambda x: x.merge(1)),
        ("by-hand-merge", lambda x: x.merge(0, 0)),
        ("by-hand-merge", lambda x: x.merge(0, 1)),
        ("by-hand-reorder", lambda x: x.reorder({0: 1, 1: -1})),
        ("by-hand-reorder", lambda x: x.reorder([0, 0])),
        ("by-hand-binding", lambda x: x.parallelize(0, "block_x")),
        ("by-hand-memory", lambda x: x.set_memory_type(MemoryType.shared)),
        ("by-hand-memory", lambda x: x.set_memory_type("shared")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_primitives_are_checked(rule: str, call: Callable[[Any], Any]) -> None:
    _fd, _, total = sum_of([-1, 8], [1])
    text = refused(rule, lambda: call(total))
    assert text.startswith("T1")
    assert "expected" in text or "neighbour" in text


def test_wrong_arguments_name_the_method() -> None:
    _fd, x, _ = sum_of([-1], [0])
    with pytest.raises(UserError, match=r"Tensor\.split\(\): .*factor") as caught:
        x.split(2)
    assert caught.value.rule == "argument-kind-1"


def test_the_split_of_torch_is_named() -> None:
    fd, x, _ = sum_of([-1, 8], [1])
    text = refused("by-hand-tensor", lambda: [*x.split(1, 2)])
    assert "torch.split(x, size, dim)" in text
    halves = torch.split(fd.define_tensor([4, 8]), 4, 1)
    assert [len(half.shape) for half in halves] == [2, 2]


def test_bindings_are_checked() -> None:
    _fd, x, total = sum_of([-1, 8], [1])
    total.axis(0).parallelize(ParallelType.block_x)
    text = refused("by-hand-binding", lambda: total.axis(1).parallelize(ParallelType.block_x))
    assert "ithreadIdx.x2{i0} is bound to it already" in text
    refused("by-hand-bound", lambda: total.split(0, 4))
    refused("by-hand-bound", lambda: total.merge(0))
    axis = x.axis(0)
    x.split(0, 2)
    refused("by-hand-binding", lambda: axis.parallelize(ParallelType.block_y))
    refused("by-hand-mesh", lambda: x.axis(0).parallelize(ParallelType.mesh_x))
    total.axis(0).parallelize(ParallelType.serial)
    total.split(0, 4).parallelize(0, ParallelType.grid_y).parallelize(1, ParallelType.unroll)
    assert str(total.domain()) == "[iblockIdx.y6{( ceilDiv(i0, 4) )}, iUR7{4}, rS3{8}]"


def test_inlined_axes_stay() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], contiguity=True)
    y = fd.ops.relu(fd.ops.exp(x))
    fd.add_output(y)
    y.inline_at(1)
    assert str(view_of(y)).endswith("ca_pos( 1 )")
    for call in (lambda: y.split(0, 2), lambda: y.merge(0), lambda: y.reorder({0: 1})):
        refused("by-hand-inlined", call)
    y.split(1, 2)


def test_swizzles_and_allocation_are_recorded() -> None:
    _fd, x, _ = sum_of([16, 32], [1])
    view = x.swizzle(0, 1)
    assert "Swizzle: iS0{16} , iS1{32} -> " in view.transforms_text()
    x.swizzle1d(0, ParallelType.device_x)
    x.set_allocation_domain(x.get_loop_domain()[::-1])
    assert " allocation domain : (iS5{32}, iS4{16})" in view.transforms_text()
    assert [p.name for p in view.fusion.primitives] == [
        *("swizzle", "swizzle1d", "set_allocation_domain"),
    ]
    assert all(isinstance(axis, IterDomain) for axis in view.loop)


def test_tensors_of_a_dropped_definition() -> None:
    fd, _, total = sum_of([-1, 8], [1])
    view = total.split(0, 2)
    del fd
    gc.collect()
    assert "is gone" in refused("by-hand-tensor", lambda: view.source())
