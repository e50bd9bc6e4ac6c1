"""Layouts of inputs and outputs, in-place outputs and large index spaces, on the host executor."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fuser
from fuser import DataType, FusionDefinition, ShapeError, compute_tensor_descriptor, testing
from fuser.ops import as_dtype


@pytest.fixture(autouse=True)
def checked(set_option: Callable[[str, object], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)


def define(*inputs: Tensor) -> tuple[FusionDefinition, list[fuser.Tensor]]:
    fd = FusionDefinition()
    return fd, [fd.define_tensor([-1] * t.dim(), dtype=as_dtype(t.dtype)) for t in inputs]


@pytest.mark.parametrize("n", [1, 7, 64, 65])
def test_a_matrix_less_its_transpose(n: int) -> None:
    x = torch.randn(n, n)
    fd, (t,) = define(x)
    fd.add_output(t - fd.ops.permute(t, [1, 0]))
    assert torch.equal(fd.execute([x])[0], x - x.T)


def test_differences_of_all_pairs() -> None:
    x = torch.randn(37)
    fd, (t,) = define(x)
    column, row = fd.ops.broadcast(t, [False, True]), fd.ops.broadcast(t, [True, False])
    fd.add_output(column - row)
    assert torch.equal(fd.execute([x])[0], x[:, None] - x[None, :])


MEMORY_FORMATS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "permuted": lambda x: x.permute(2, 0, 3, 1),
    "sliced": lambda x: x[:, :, ::2, 1:],
    "channels_last_sliced": lambda x: x.contiguous(memory_format=torch.channels_last)[:, :, 1:],
    "expanded": lambda x: x[:, :1].expand(-1, 5, -1, -1),
}


@pytest.mark.parametrize("other", [None, "scalar", "row", "contiguous", "channels_last"])
@pytest.mark.parametrize("layout", MEMORY_FORMATS)
def test_strides_of_outputs_are_torchs(layout: str, other: str | None) -> None:
    x = MEMORY_FORMATS[layout](torch.randn(3, 4, 6, 8))
    others = {
        "scalar": torch.tensor(2.0),
        "row": torch.randn(x.shape[-1]),
        "contiguous": torch.randn(x.shape),
        "channels_last": torch.randn(x.shape).contiguous(memory_format=torch.channels_last),
    }
    inputs = [x] if other is None else [x, others[other]]
    fd, tensors = define(*inputs)
    fd.add_output(fd.ops.abs(tensors[0]) if other is None else tensors[0] + tensors[1])
    expected = x.abs() if other is None else x + inputs[1]
    (got,) = fd.execute(inputs)
    assert torch.equal(got, expected)
    assert got.stride() == expected.stride()


MEMORY = torch.arange(48.0)
# Layouts of tensors given to from_pytorch().
TENSORS = {
    "no dims": torch.tensor(2.5),
    "one element": MEMORY[:1],
    "a 1 of any stride": MEMORY.as_strided((3, 1, 2), (2, 17, 1)),
    "ones alone": MEMORY.as_strided((1, 1), (5, 3)),
    "nothing": MEMORY[:0],
    "nothing beside sizes": MEMORY[:0].view(3, 0, 2),
    "expanded at the end": MEMORY[:3, None].expand(3, 4),
    "expanded at the front": MEMORY[:3].expand(4, 3),
    "expanded between": MEMORY[:12].view(3, 1, 4).expand(3, 5, 4),
    "expanded alone": torch.tensor(1.5).expand(2, 3),
    "windows that overlap": MEMORY[:7].unfold(0, 3, 2),
    "rows that overlap": MEMORY.as_strided((4, 3), (1, 1)),
    "steps": MEMORY.view(6, 8)[::2, 1::3],
    "gaps": MEMORY.as_strided((2, 3), (20, 3)),
    "a storage offset": MEMORY[5:17].view(3, 4),
    "transposed": MEMORY[:12].view(3, 4).T,
    "permuted": MEMORY.view(2, 4, 6).permute(2, 0, 1),
    "channels last": MEMORY.view(2, 2, 3, 4).contiguous(memory_format=torch.channels_last),
    "one channel last": MEMORY[:24].view(2, 1, 3, 4).to(memory_format=torch.channels_last),
    "channels last in 3d": MEMORY.view(1, 2, 3, 2, 4).to(memory_format=torch.channels_last_3d),
}


def test_inputs_from_pytorch() -> None:
    """Inputs are declared as compute_tensor_descriptor() says, and read and written as in torch: 20
    layouts, with static and symbolic sizes. An input that is an output is returned itself. Strides
    of dims of size 1 are arbitrary."""
    runs = []
    for x, static in itertools.product(TENSORS.values(), (False, True)):
        fd = FusionDefinition()
        t = fd.from_pytorch(x, static_sizes=static)
        contiguity, order = compute_tensor_descriptor(x.shape, x.stride())
        shown = repr(fd)
        assert f"contiguity={contiguity}" in shown
        row_major = order == list(range(x.ndim))[::-1]
        assert row_major != (f"stride_order={order}" in shown)
        fd.add_output(fd.ops.mul(t, 2.0))
        fd.add_output(t)
        runs.append((fd, [x]))
    testing.compile_batch(runs)
    for (fd, inputs), (name, x) in zip(
        runs, [n for n in TENSORS.items() for _ in "01"], strict=True
    ):
        double, same = fd.execute(inputs)
        assert torch.equal(double, x * 2), name
        long = [d for d in range(x.ndim) if x.shape[d] > 1]
        assert [double.stride(d) for d in long] == [(x * 2).stride(d) for d in long], name
        assert (same.data_ptr(), same.shape) == (x.data_ptr(), x.shape), name
        assert [same.stride(d) for d in long] == [x.stride(d) for d in long], name


def test_a_repeated_input_dim_is_squeezed_where_asked() -> None:
    """squeeze_expanded squeezes a dim that define_tensor() declares as expanded, in any order of
    strides, and rejects other dims."""
    x = TENSORS["expanded between"].permute(2, 0, 1)
    fd = FusionDefinition()
    t = fd.from_pytorch(x)
    fd.add_output(fd.ops.squeeze(t * 2.0, [-1], squeeze_expanded=True))
    fd.add_output(fd.ops.squeeze(fd.ops.cast(t, DataType.Int), [2], True))
    double, whole = fd.execute([x])
    assert torch.equal(double, x[..., 0] * 2)
    assert torch.equal(whole, x[..., 0].long())
    for dim in (0, 1):
        fd = FusionDefinition()
        fd.add_output(fd.ops.squeeze(fd.from_pytorch(x), [dim], squeeze_expanded=True))
        for run in (fd.execute, functools.partial(fuser.evaluate, fd)):
            with pytest.raises(ShapeError) as caught:
                run([x])
            assert caught.value.rule == "squeeze-2"


def test_strides_of_an_output_by_stride_order() -> None:
    x = torch.randn(2, 3, 4, 5)
    fd, (t,) = define(x)
    fd.add_output(fd.ops.stride_order(t * 2.0, [3, 0, 2, 1]))
    (got,) = fd.execute([x])
    assert torch.equal(got, x * 2)
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("sizes", [(0,), (4, 0), (0, 3, 0), (2, 0, 5)])
def test_empty_tensors_need_no_kernel(sizes: tuple[int, ...]) -> None:
    x = torch.randn(sizes)
    fd, (t,) = define(x)
    fd.add_output(t + 1.0)
    (got,) = fd.execute([x])
    assert got.shape == x.shape
    assert got.stride() == (x + 1).stride()
    assert fd.fec.executor.kernels([x]) == []


# ---- in place


def test_in_place() -> None:
    x = torch.randn(5, 9)
    expected = x * 2 + 1
    fd, (t,) = define(x)
    fd.add_output(t * 2.0 + 1.0, t)
    assert fd.execute([x]) == []
    torch.testing.assert_close(x, expected)
    assert x._version == 1


def test_in_place_beside_a_result_that_reads_the_old_values() -> None:
    x = torch.randn(5, 9)
    old = x.clone()
    fd, (t,) = define(x)
    fd.add_output(t * 2.0, t)
    fd.add_output(t * 3.0)
    (got,) = fd.execute([x])
    assert torch.equal(x, old * 2)
    assert torch.equal(got, old * 3)


def test_a_transpose_in_place() -> None:
    """A transpose in place uses a temporary, because other threads read the overwritten
    elements."""
    x = torch.randn(33, 33)
    old = x.clone()
    fd, (t,) = define(x)
    fd.add_output(fd.ops.permute(t, [1, 0]), t)
    fd.execute([x])
    assert torch.equal(x, old.T)


def test_in_place_read_by_another_kernel() -> None:
    x, y = torch.randn(6, 7), torch.randn(7)
    old = x.clone()
    fd, (t, u) = define(x, y)
    fd.add_output(t + 1.0, t)
    fd.add_output(fd.ops.broadcast(u, [False, True]) * 2.0)
    fd.add_output(fd.ops.permute(t, [1, 0]) + fd.ops.broadcast(u, [False, True]))
    second, third = fd.execute([x, y])
    assert torch.equal(x, old + 1)
    assert torch.equal(second, y[:, None] * 2)
    assert torch.equal(third, old.T + y[:, None])


@pytest.mark.parametrize("shift", [-1, 1, 40])
def test_in_place_with_an_input_that_overlaps(shift: int) -> None:
    base = torch.randn(1000)
    x, y = base[50:850], base[50 + shift : 850 + shift]
    expected = x + y
    fd, (t, u) = define(x, y)
    fd.add_output(t + u, t)
    fd.execute([x, y])
    assert torch.equal(x, expected)


def test_in_place_with_the_same_tensor_twice() -> None:
    x = torch.randn(100)
    expected = x + x
    fd, (t, u) = define(x, x)
    fd.add_output(t + u, t)
    fd.execute([x, x])
    assert torch.equal(x, expected)


def test_two_inputs_change_places() -> None:
    x, y = torch.randn(50), torch.randn(50)
    old_x, old_y = x.clone(), y.clone()
    fd, (t, u) = define(x, y)
    fd.add_output(fd.ops.set(u), t)
    fd.add_output(fd.ops.set(t), u)
    fd.execute([x, y])
    assert torch.equal(x, old_y)
    assert torch.equal(y, old_x)


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[:, ::2], lambda x: x[1:, 3:]])
def test_in_place_into_a_view(view: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(12, 16)
    expected = x.clone()
    view(expected).mul_(3)
    fd, (t,) = define(x)
    fd.add_output(t * 3.0, t)
    fd.execute([view(x)])
    assert torch.equal(x, expected)  # including elements between the view's elements


# ---- large


def test_more_than_2_to_31_elements() -> None:
    """A stride-0 input of 2^32 elements with a smaller result needs no memory."""
    x = torch.randn(1).expand(2**32)
    fd, (t,) = define(x)
    fd.add_output(fd.ops.set(t))
    assert "index64" in fd.signature([x])
    small = x[:1000]
    assert "index32" in fd.signature([small])


def test_offsets_beyond_32_bits() -> None:
    """Elements more than 2^31 apart, in memory that is reserved but mostly untouched."""
    base = torch.empty(2**32 + 64, dtype=torch.uint8)
    x = base.as_strided((2, 33), (2**32, 1))
    x.copy_(torch.arange(66).reshape(2, 33))
    fd, (t,) = define(x)
    fd.add_output(fd.ops.cast(t, DataType.Int) * 2)
    assert "index64" in fd.signature([x])
    assert torch.equal(fd.execute([x])[0], torch.arange(66).reshape(2, 33) * 2)
