"""csrc/fusion/build/define_shape.cpp: shapes, text and errors of slice, flip, pad and cat."""

import pytest
import torch

from fuser import DataType, DTypeError, FusionDefinition, ShapeError, Tensor, _core
from tests.support.refusals import Refusal, check_refused


def tensor(fd: FusionDefinition, *shape: int, dtype: DataType = DataType.Float) -> Tensor:
    return fd.define_tensor(shape=list(shape), dtype=dtype)


def sizes(t: Tensor) -> str:
    return str(t).partition("[")[2].removesuffix("]")


@pytest.fixture
def fd() -> FusionDefinition:
    return FusionDefinition()


BOUNDS = [0, 1, 3, 5, 7, 9, -1, -4, -7, -9, None]


@pytest.mark.parametrize("step", [1, 2, 5, 2**63 - 1])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_static_slices_have_the_sizes_of_python(fd: FusionDefinition, size: int, step: int) -> None:
    x = tensor(fd, size)
    for start in BOUNDS[:-1]:
        for end in BOUNDS:
            cut = fd.ops.slice(x, [start], [end], [step])
            assert sizes(cut) == str(len(range(size)[start:end:step])), (start, end)


def test_slices_of_symbolic_sizes(fd: FusionDefinition) -> None:
    """Bounds known from the definition are not checked at run time."""
    x = tensor(fd, -1, 8)
    assert sizes(fd.ops.slice(x, [0, 2], [None, 6])) == "size(t0, 0), 4"
    assert sizes(fd.ops.slice(x, [0, 0], [5, 8])) == "minimum(5, size(t0, 0)), 8"
    half = x.size(0) // 2
    halves = [fd.ops.slice(x, [0, 0], [half, 8]), fd.ops.slice(x, [half, 0], [None, 8])]
    assert all("max" not in sizes(h) for h in halves)


@pytest.mark.parametrize("start", [-9, -2, 0, 2, 9])
@pytest.mark.parametrize("end", [-9, -2, 0, 2, 9])
def test_bounds_that_are_scalars(fd: FusionDefinition, start: int, end: int) -> None:
    x = fd.define_tensor([-1])
    first, last = fd.define_scalar(DataType.Int), fd.define_scalar(DataType.Int)
    fd.add_output(fd.ops.slice(x, [first], [last]))
    given = torch.arange(5.0)
    (got,) = fd.execute([given, start, end])
    assert torch.equal(got, given[start:end])


def test_pads_and_cats_add_up(fd: FusionDefinition) -> None:
    x, y = tensor(fd, 2, -1), tensor(fd, 3, -1)
    assert sizes(fd.ops.pad(x, [1, -1])).startswith("2, ")
    assert sizes(fd.ops.pad(tensor(fd, 4, 6), [-1, -2, 3, 0])) == "7, 3"
    joined = fd.ops.cat([x, y], 0)
    assert sizes(joined) == "5, size(t0, 1)"


def test_text(fd: FusionDefinition) -> None:
    x = tensor(fd, 4, -1)
    fd.ops.slice(x, [1, 0], [3, -1], [2, 1])
    fd.ops.flip(x, [-1])
    fd.ops.pad(x, [1, 2], 0.5)
    fd.ops.cat([x, x], -1)
    lines = [line.strip() for line in repr(fd).splitlines() if line.startswith("    T")]
    assert lines[1:] == [
        "T1 = fd.ops.slice(T0, start_indices=[1, 0], end_indices=[3, -1], strides=[2, 1])",
        "T2 = fd.ops.flip(T0, dims=[1])",
        "T3 = fd.ops.pad(T0, pad_widths=[1, 2, 0, 0], value=0.5)",
        "T4 = fd.ops.cat([T0, T0], dim=1)",
    ]


REFUSALS = [
    Refusal(
        ShapeError,
        "slice-1",
        "slice(t0, ...): expected 2 start_indices (the rank of the operand), got 1",
        lambda fd, x, y: fd.ops.slice(x, [0], [1, 2]),
    ),
    Refusal(
        ShapeError,
        "slice-1",
        "slice(t0): expected 2 end_indices, one for each dim, got 1",
        lambda fd, x, y: fd.ops.slice(x, [0, 0], [1]),
    ),
    Refusal(
        ShapeError,
        "slice-2",
        "slice(t0, ...): expected strides of at least 1, got -1 in axis 1",
        lambda fd, x, y: fd.ops.slice(x, [0, 0], [1, 2], [1, -1]),
    ),
    Refusal(
        DTypeError,
        "slice-3",
        "slice(t0, ...): expected an integer, got 0.5",
        lambda fd, x, y: fd.ops.slice(x, [0.5, 0], [1, 2]),
    ),
    Refusal(
        ShapeError,
        "flip-1",
        "flip(t0, [2]): dim 2 is out of range for rank 2",
        lambda fd, x, y: fd.ops.flip(x, [2]),
    ),
    Refusal(
        ShapeError,
        "flip-2",
        "flip(t0, [1, -1]): a dim is given twice",
        lambda fd, x, y: fd.ops.flip(x, [1, -1]),
    ),
    Refusal(
        ShapeError,
        "pad-1",
        "pad(t0): expected two widths for each of at most 2 dims, got 3",
        lambda fd, x, y: fd.ops.pad(x, [1, 1, 1]),
    ),
    Refusal(
        ShapeError,
        "pad-1",
        "pad(t0): expected two widths for each of at most 2 dims, got 6",
        lambda fd, x, y: fd.ops.pad(x, [1] * 6),
    ),
    Refusal(
        DTypeError,
        "pad-2",
        "pad(t0, ...): expected an integer, got 1.5",
        lambda fd, x, y: fd.ops.pad(x, [1.5, 1]),
    ),
    Refusal(
        ShapeError,
        "pad-3",
        "pad(t0, ...): axis 1 has a computed size of -1; expected at least 0",
        lambda fd, x, y: fd.ops.pad(x, [-2, -2]),
    ),
    Refusal(
        ShapeError,
        "cat-1",
        "cat([]): expected at least one tensor",
        lambda fd, x, y: fd.ops.cat([]),
    ),
    Refusal(
        ShapeError,
        "cat-2",
        "cat(t0, t1): dim 2 is out of range for rank 2",
        lambda fd, x, y: fd.ops.cat([x, y], 2),
    ),
    Refusal(
        ShapeError,
        "cat-3",
        "expected operands of equal rank",
        lambda fd, x, y: fd.ops.cat([x, fd.ops.squeeze(fd.ops.slice(x, [0, 0], [1, 3]), [0])]),
    ),
    Refusal(
        ShapeError,
        "cat-5",
        "cat(t0, t1): axis 1 has sizes 3 and 4; expected equal sizes except in axis 0",
        lambda fd, x, y: fd.ops.cat([x, y], 0),
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: r.id)
def test_refusals(fd: FusionDefinition, refusal: Refusal) -> None:
    check_refused(refusal, fd, tensor(fd, 2, 3), tensor(fd, 2, 4))


def test_sizes_that_differ_when_it_runs(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.cat([x, y], 0))
    assert list(fd.execute([torch.ones(2, 3), torch.ones(4, 3)])[0].shape) == [6, 3]
    with pytest.raises(ShapeError):
        fd.execute([torch.ones(2, 3), torch.ones(2, 4)])


def test_a_size_below_zero_when_it_runs(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1])
    fd.add_output(fd.ops.pad(x, [-2, -2]))
    assert list(fd.execute([torch.ones(5)])[0].shape) == [1]
    with pytest.raises(ShapeError):
        fd.execute([torch.ones(3)])


def test_cat_4() -> None:
    fd = FusionDefinition()
    x, y = fd.define_tensor([2]), fd.define_tensor([2], dtype=DataType.Int)
    with pytest.raises(DTypeError, match="expected operands of one type") as caught:
        _core.cat(fd.ops._builder, [x, y], 0)  # fd.ops.cat casts the operands first
    assert caught.value.rule == "cat-4"
