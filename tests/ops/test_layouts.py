"""Layouts of inputs and outputs, in-place outputs and large index spaces, on the host executor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fuser
from fuser import DataType, FusionDefinition
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
