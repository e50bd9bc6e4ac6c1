"""csrc/fusion/segment/rematerialize.cpp: values rematerialized in each kernel, and values
materialized instead.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuser import DataType, FusionDefinition, Tensor
from tests.support.groups import Group, Grouped, check, values

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))


def define() -> tuple[FusionDefinition, Tensor]:
    fd = FusionDefinition()
    return fd, fd.define_tensor([-1, -1])


def alternating(fd: FusionDefinition, x: Tensor, length: int) -> Tensor:
    """Softmaxes, alternately along columns and rows."""
    for i in range(length):
        x = fd.ops.softmax(x * 2.0, i % 2)
    return x


def exponentials(group: Group) -> int:
    return len(values(group, "exp"))


def whole_temps(grouped: Grouped) -> int:
    """Number of temporaries over both dims."""
    stores = [store for group in grouped.groups for store in group["stores"]]
    temps = [store["at"] for store in stores if grouped.outputs[store["output"]][2]]
    return sum(len(at) == 2 and "0" not in at for at in temps)


@pytest.mark.parametrize("length", [2, 4, 10, 60])
def test_a_kernel_computes_no_more_than_two_softmaxes(length: int) -> None:
    """Each kernel computes at most two softmaxes: column statistics from a temporary, then two
    softmaxes whose result is materialized."""
    fd, x = define()
    fd.add_output(alternating(fd, x, length))
    got = check(fd, [X], tolerance=1e-6)
    assert length <= len(got.groups) <= length + 1
    assert max(exponentials(g) for g in got.groups) == 2
    assert whole_temps(got) == length // 2 - 1


def test_no_more_softmaxes_are_stored_where_there_are_many() -> None:
    """The rule holds for chains that exceed a kernel's limits and the number of phases."""
    fd, x = define()
    fd.add_output(alternating(fd, x, 400))
    got = Grouped(fd, [X])
    assert 400 <= len(got.groups) <= 401
    assert max(exponentials(g) for g in got.groups) == 2
    assert whole_temps(got) == 400 // 2 - 1


def test_what_is_cheap_is_computed_again() -> None:
    """A sigmoid takes less time than its memory traffic, so it is rematerialized; only the column
    mean is materialized."""
    fd, x = define()
    y = fd.ops.sigmoid(x)
    fd.add_output(fd.ops.softmax(y - fd.ops.mean(y, [0], True), 1))
    got = check(fd, [X])
    assert len(got.groups) == 2
    assert whole_temps(got) == 0


def expensive(fd: FusionDefinition, x: Tensor) -> Tensor:
    for _ in range(20):
        x = fd.ops.atan(fd.ops.sin(x))
    return x


def test_what_takes_longer_than_its_bytes_is_stored() -> None:
    fd, x = define()
    y = expensive(fd, x)
    fd.add_output(fd.ops.softmax(y - fd.ops.mean(y, [0], True), 1))
    got = check(fd, [X])
    assert sum(len(values(g, "sin")) for g in got.groups) == 20
    assert whole_temps(got) == 1


def test_of_values_that_lead_to_it_the_narrowest_is_stored() -> None:
    fd, x = define()
    y = fd.ops.cast(expensive(fd, x), DataType.BFloat16)
    shifted = y * 3.0
    fd.add_output(fd.ops.softmax(shifted - fd.ops.mean(shifted, [0], True), 1))
    got = check(fd, [X])
    assert DataType.BFloat16 in [got.records[t]["dtype"] for t in got.temps]


def test_a_kernel_alone_stores_nothing_for_itself() -> None:
    """A single kernel materializes no values, however expensive they are."""
    fd, x = define()
    fd.add_output(fd.ops.softmax(expensive(fd, x), 1))
    assert not check(fd, [X]).temps


def test_a_result_that_is_stored_anyway_is_read_from_there() -> None:
    fd, x = define()
    y = alternating(fd, x, 2)
    fd.add_output(y)
    fd.add_output(alternating(fd, y, 2))
    got = check(fd, [X], tolerance=1e-6)
    assert whole_temps(got) == 0
    assert len(got.groups) == 4


def test_a_tensor_at_other_places_is_not_stored_for_them() -> None:
    """Values at shifted windows are not a complete tensor, and are not materialized for them."""
    fd = FusionDefinition()
    x = fd.define_tensor([6, 8])

    def window(first: int) -> Any:
        return fd.ops.slice(x, [0, first], [6, first + 7])

    y = expensive(fd, window(0) + window(1))
    fd.add_output(fd.ops.softmax(y - fd.ops.mean(y, [0], True), 1))
    check(fd, [X])


def test_statistics_of_an_earlier_kernel_are_read() -> None:
    """The gradient of a global response norm: sums over pixels, then their mean over channels, then
    elements and sums over pixels of all images. The kernel of the elements reads the sums, so it
    does not compute them again and takes the last sums."""
    fd = FusionDefinition()
    x, g = (fd.define_tensor([-1, -1, -1, -1]) for _ in range(2))
    sums = fd.ops.sum(x * g, [1, 2], True)
    y = x * (sums - fd.ops.mean(sums * 2.0, [3], True)) + g
    fd.add_output(y)
    fd.add_output(fd.ops.sum(y, [0, 1, 2]))
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 3, 5, 4, generator=generator) for _ in range(2)]
    got = check(fd, inputs, tolerance=1e-5)
    # Sums of an image, their mean, a tensor of both; elements with sums of an image, sums of all.
    assert [len(values(group, "reduce")) for group in got.groups] == [1, 1, 0, 1, 1]
    assert len(got.stored()[3]) == 2
