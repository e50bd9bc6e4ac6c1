"""fuser/nvfuser/schedule/graph.py: the tensors of a definition, their domains and their edges."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fuser import DataType, FusionDefinition, MemoryType, UserError
from fuser.nvfuser.schedule.graph import ScheduledFusion, recent, schedule_of, view_of


def defined(shape: list[int], op: Any) -> tuple[FusionDefinition, Any, Any]:
    fd = FusionDefinition()
    x = fd.define_tensor(shape, contiguity=True)
    result = op(fd, x)
    fd.add_output(result)
    return fd, x, result


@pytest.mark.parametrize(
    ("shape", "op", "expected"),
    [
        ([4, 1], lambda fd, x: fd.ops.squeeze(x, [1]), ["logical domain : (iS2{4})"]),
        ([4, 1], lambda fd, x: fd.ops.expand(x, [4, 7]), ["logical domain : (iS2{4}, bS3{7})"]),
        (
            [4, 5],
            lambda fd, x: fd.ops.permute(x, [1, 0]),
            ["root domain : (iS2{4}, iS3{5})", "logical domain : (iS3{5}, iS2{4})"],
        ),
        (
            [4, 6],
            lambda fd, x: fd.ops.reshape(x, [4, 2, 3]),
            [
                "root domain : (iS2{4}, iS3{6})",
                " Split: iS3{6} by factor 3 -> iS4{2}rf, iS5{3}rf",
                "logical domain : (iS2{4}, iS4{2}rf, iS5{3}rf)",
            ],
        ),
        (
            [4, 6],
            lambda fd, x: fd.ops.reshape(x, [24]),
            [
                "root domain : (iS2{4}, iS3{6})",
                " Merge: iS2{4} and iS3{6} -> iS4{24}rf",
                "logical domain : (iS4{24}rf)",
            ],
        ),
        (
            [4, 6],
            lambda fd, x: fd.ops.slice(x, [0, 1], [4, 3]),
            [
                "root domain : (iS2{4}, iS3{6})",
                " Resize: iS3{6} -> iS4{2}rf",
                "logical domain : (iS2{4}, iS4{2}rf)",
            ],
        ),
        ([4, 6], lambda fd, x: fd.ops.max(x, [0, 1]), ["logical domain : (rS2{4}, rS3{6})"]),
        (
            [4, 6],
            lambda fd, x: fd.ops.matmul(x, x.t()),
            ["logical domain : (iS4{4}, iS5{4}, rS6{6})"],
        ),
        ([], lambda fd, x: fd.ops.exp(x), ["logical domain : ()"]),
    ],
    ids=["squeeze", "expand", "permute", "split", "merge", "slice", "max", "matmul", "rank 0"],
)
def test_domains_of_ops(shape: list[int], op: Any, expected: list[str]) -> None:
    fd, _, result = defined(shape, op)
    view = view_of(result)
    lines = view.transforms_text().splitlines()[1:-1]
    assert [line.removeprefix(" ") for line in lines] == expected
    assert view.loop == view.logical
    assert len(view.kept()) == len(fd.fusion.outputs()[0].shape)


def test_every_op_of_a_large_definition_has_domains() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    index = fd.define_tensor([-1, -1], dtype=DataType.Int)
    s = fd.define_tensor([])
    results = [
        *(fd.ops.take_along_axis(x, index, 1), x + s, *fd.ops.topk(x, 3), *fd.ops.welford(x, [1])),
        *(fd.ops.pad(x, [1, 1, 0, 0]), fd.ops.flip(x, [0]), fd.ops.iota(5), fd.ops.argmax(x, 1)),
        *(fd.ops.cat([x, x], 0), fd.ops.uniform(0.0, 1.0, [3]), fd.ops.cumsum(x, 1)),
    ]
    for result in results:
        fd.add_output(result)
    fusion = schedule_of(fd.fusion.builder)
    assert [view.tensor for view in fusion.views] == list(range(len(fusion.views)))
    for view, tensor in zip(fusion.views, fd.fusion.vals(), strict=True):
        assert len(view.kept()) == len(tensor.shape)
        for edge in view.operands:
            for p, c in edge.dims:
                assert edge.producer.kept()[p] is not view.get_root_domain()[c]
    take, gathered = (view_of(results[0]).operands[i].dims for i in (0, 1))
    assert (take, gathered) == (((0, 0),), ((0, 0), (1, 1)))


@pytest.mark.parametrize(
    ("op", "shapes", "expected"),
    [
        ("matmul", [(4, 6), (6, 8)], [((0, 0), (1, 2)), ((0, 2), (1, 1))]),
        ("matmul", [(6,), (6, 8)], [((0, 1),), ((0, 1), (1, 0))]),
        ("matmul", [(4, 6), (6,)], [((0, 0), (1, 1)), ((0, 1),)]),
        (
            *("matmul", [(3, 4, 6), (2, 3, 6, 8)]),
            [((0, 1), (1, 2), (2, 4)), ((0, 0), (1, 1), (2, 4), (3, 3))],
        ),
        (
            *("linear", [(2, 3, 6), (8, 6), (8,)]),
            [((0, 0), (1, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 2),)],
        ),
    ],
)
def test_dims_of_matrix_products(op: str, shapes: list[tuple[int, ...]], expected: Any) -> None:
    fd = FusionDefinition()
    operands = [fd.define_tensor(list(shape), contiguity=True) for shape in shapes]
    product = view_of(getattr(fd.ops, op)(*operands))
    assert [edge.dims for edge in product.operands] == expected
    assert product.has_reduction()
    axes = product.get_root_domain()
    for edge in product.operands:
        for p, c in edge.dims:
            extents = [edge.producer.kept()[p].extent(), axes[c].extent()]
            assert extents[0] == extents[1]


def test_a_schedule_follows_a_growing_definition() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], contiguity=True)
    x.split(0, 4)
    y = fd.ops.exp(x)
    assert view_of(y).memory is MemoryType.local
    y.merge(0)
    fd.add_output(y)
    assert view_of(y).memory is MemoryType["global"]
    assert view_of(y).is_output
    assert view_of(x).is_input
    assert [view.name for view in fd.sched.tensors()] == ["T0", "T1"]
    assert [str(p) for p in schedule_of(fd.fusion.builder).primitives] == [
        "T0.split(axis=0, factor=4, inner_split=True)",
        "T1.merge(axis_o=0, axis_i=1)",
    ]


def test_other_values_than_tensors_are_refused() -> None:
    fd, x, _ = defined([2], lambda fd, x: fd.ops.exp(x))
    other, y, _ = defined([2], lambda fd, x: fd.ops.exp(x))
    for wrong in (y, 3, None, ScheduledFusion(other.fusion.builder).views[0]):
        with pytest.raises(UserError, match="expected a tensor of this definition") as caught:
            fd.sched.split(wrong, 0, 2)
        assert caught.value.rule == "by-hand-tensor"
    with pytest.raises(UserError) as caught:
        view_of("T0")
    assert caught.value.rule == "by-hand-tensor"
    assert view_of(view_of(x)) is view_of(x)


def test_the_recent_definition_is_that_of_the_thread() -> None:
    fd, x, _ = defined([2, 3], lambda fd, x: fd.ops.exp(x))
    x.merge(0)
    assert recent() is schedule_of(fd.fusion.builder)
    caught: list[UserError] = []

    def other_thread() -> None:
        try:
            recent()
        except UserError as error:
            caught.append(error)

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert [error.rule for error in caught] == ["by-hand-tensor"]
