"""Values and their coordinates, and the assignment of outputs to kernels."""

from __future__ import annotations

import re

import pytest
import torch

from fuser import DataType, FusionDefinition, Tensor
from tests.support.groups import Grouped, check, values
from tests.support.stages import stage_text, stage_texts


def define(*ranks: int) -> tuple[FusionDefinition, list[Tensor]]:
    fd = FusionDefinition()
    return fd, [fd.define_tensor([-1] * rank) for rank in ranks]


def loads(kernel: str) -> list[str]:
    """The buffers that a kernel's loads read, in order."""
    return re.findall(r"load \S+ width \d+ (\w+)\[", kernel)


def test_one_tensor_at_two_coordinates_is_two_values() -> None:
    fd, (x,) = define(3)
    fd.add_output(x - fd.ops.permute(x, [1, 0, 2]))
    text = stage_text(fd, [torch.ones(6, 6, 5)], "build")
    assert loads(text) == ["g_in0", "g_in0"]
    assert "g_in0[size(0, 0) * size(0, 2) * a0 + size(0, 2) * a1 + a2]" in text
    assert "g_in0[size(0, 0) * size(0, 2) * a1 + size(0, 2) * a0 + a2]" in text


def test_cast_and_permuted_in_either_order_is_one_value() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    fd.add_output(fd.ops.cast(x * 1.5, DataType.Half))
    flipped = fd.ops.cast(fd.ops.permute(x * 1.5, [1, 0]), DataType.Half)
    fd.add_output(fd.ops.stride_order(flipped, [1, 0]))
    data = torch.randn(70, 33)
    (text,) = stage_texts(fd, [data], "build")
    assert (text.count("mul("), text.count("f16(")) == (1, 1), text
    rows, columns = fd.execute([data])
    assert torch.equal(rows, (data * 1.5).half())
    assert torch.equal(columns, (data * 1.5).half().t())


def test_alike_but_for_a_scalar_is_two_values() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.permute(x * 1.5, [1, 0]))
    fd.add_output(x * 1.25)
    data = torch.randn(7, 33)
    assert stage_text(fd, [data], "build").count("mul(") == 2
    columns, rows = fd.execute([data])
    assert torch.equal(columns, (data * 1.5).t())
    assert torch.equal(rows, data * 1.25)


def test_movement_leaves_no_value_behind() -> None:
    fd, (x,) = define(2)
    moved = fd.ops.permute(
        fd.ops.permute(fd.ops.broadcast(x, [True, False, False]), [2, 0, 1]), [1, 2, 0]
    )
    fd.add_output(x + fd.ops.squeeze(moved, [0]))
    assert loads(stage_text(fd, [torch.ones(4, 8)], "build")) == ["g_in0"]


@pytest.mark.parametrize("rows", [-1, 6])
def test_what_is_flipped_twice_is_read_where_it_stands(rows: int) -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([rows])
    fd.add_output(x + fd.ops.flip(fd.ops.flip(x, [0]), [0]))
    assert loads(stage_text(fd, [torch.ones(6)], "build")) == ["g_in0"]


def test_many_flips_are_two_places() -> None:
    """A chain of flips, each of the previous result, is one kernel: coordinates do not grow."""
    fd, (x,) = define(1)
    y = x
    data = torch.randn(64)
    expected = data.double()
    for _ in range(40):
        y = fd.ops.flip(y, [0]) * 0.5 + x
        expected = expected.flip(0) * 0.5 + data.double()
    fd.add_output(y)
    assert len(loads(stage_text(fd, [data], "build"))) == 2  # raises unless it is one kernel
    torch.testing.assert_close(fd.execute([data])[0], expected.float())


def test_a_flip_of_a_slice_of_a_flip() -> None:
    fd, (x,) = define(2)
    turned = fd.ops.slice(fd.ops.flip(x, [0, 1]), [1, 2], [5, 8], [1, 2])
    fd.add_output(fd.ops.flip(turned, [1, 0]) * 2.0)
    data = torch.arange(48.0).reshape(6, 8)
    assert torch.equal(fd.execute([data])[0], data.flip(0, 1)[1:5, 2::2].flip(0, 1) * 2)


def test_outputs_side_by_side_share_reads() -> None:
    fd, (x, y) = define(2, 2)
    fd.add_output(x + y)
    fd.add_output(x * y)
    fd.add_output(fd.ops.relu(x))
    text = stage_text(fd, [torch.ones(4, 8), torch.ones(4, 8)], "build")
    assert loads(text) == ["g_in0", "g_in1"]
    assert len(re.findall(r"write g_out\d\[", text)) == 3


def test_a_transposed_output_shares_the_reads_of_its_input() -> None:
    fd, (x,) = define(2)
    fd.add_output(x + 1.0)
    fd.add_output(fd.ops.permute(x * 2.0, [1, 0]))
    assert loads(stage_text(fd, [torch.ones(4, 8)], "build")) == ["g_in0"]


def test_what_is_computed_twice_is_computed_once() -> None:
    fd, (x,) = define(1)
    y = fd.ops.tanh(x)
    fd.add_output(y * y)
    fd.add_output(y + 1.0)
    assert stage_text(fd, [torch.ones(8)], "build").count("tanh(") == 1


def test_what_is_unused_is_not_computed() -> None:
    fd, (x, y) = define(1, 1)
    fd.ops.tanh(x)
    fd.add_output(y + 1.0)
    text = stage_text(fd, [torch.ones(8), torch.ones(8)], "build")
    assert "tanh" not in text
    assert loads(text) == ["g_in0"]


def test_a_definition_in_two_halves_is_two_kernels() -> None:
    fd, (x, y) = define(2, 1)
    fd.add_output(x + 1.0)
    fd.add_output(y * 2.0)
    inputs = [torch.randn(3, 5), torch.randn(7)]
    first, second = fd.execute(inputs)
    assert torch.equal(first, inputs[0] + 1)
    assert torch.equal(second, inputs[1] * 2)
    assert len(fd.fec.executor.kernels(None)) == 2


def test_outputs_of_different_spaces_are_two_kernels() -> None:
    fd, (x,) = define(1)
    column, row = fd.ops.broadcast(x, [False, True]), fd.ops.broadcast(x, [True, False])
    fd.add_output(column - row)
    fd.add_output(x * 2.0)
    assert len(stage_texts(fd, [torch.ones(5)], "build")) == 2


def test_sizes_that_must_be_equal_are_one() -> None:
    """Sizes of t1 are replaced by sizes of t0, so guards and addresses use common symbols."""
    fd, (x, y) = define(2, 2)
    fd.add_output(x + y)
    assert "size(1" not in stage_text(fd, [torch.ones(3, 5), torch.ones(3, 5)], "build")


def test_a_dim_of_size_1_broadcasts() -> None:
    fd, (x, y) = define(2, 2)
    fd.add_output(x + y)
    text = stage_text(fd, [torch.ones(3, 8), torch.ones(1, 8)], "build")
    assert "g_in1[a1]" in text


def test_many_outputs_become_several_kernels() -> None:
    fd, (x,) = define(1)
    for i in range(150):
        fd.add_output(x * float(i))
    inputs = [torch.randn(9)]
    for i, got in enumerate(fd.execute(inputs)):
        assert torch.equal(got, inputs[0] * i)
    assert 2 <= len(fd.fec.executor.kernels(None)) <= 6


def test_more_inputs_than_a_kernel_takes() -> None:
    fd, tensors = define(*[1] * 120)
    total = tensors[0]
    for t in tensors[1:]:
        total = total + t
    fd.add_output(total)
    (got,) = fd.execute([torch.ones(4)] * 120)
    assert torch.equal(got, torch.full([4], 120.0))
    assert len(fd.fec.executor.kernels(None)) == 2


def test_full_and_scalars_read_nothing() -> None:
    fd = FusionDefinition()
    n = fd.define_scalar(DataType.Int)
    fd.add_output(fd.ops.full([n, 4], 2.5, DataType.Float))
    (got,) = fd.execute([3], device="cpu")
    assert torch.equal(got, torch.full((3, 4), 2.5))
    assert loads(fd.fec.executor.kernels(None)[0].ir) == []


def test_a_reduction_is_over_the_axes_of_what_is_read() -> None:
    fd, (x,) = define(3)
    fd.add_output(fd.ops.softmax(x, 1))
    (group,) = check(fd, [torch.randn(3, 5, 4)], lambda x: x.softmax(1)).groups
    assert (len(group["axes"]), group["rows"], group["columns"]) == (3, [1], [])
    reductions = {v["how"]: (v["over"], v["axes"], v["at"]) for v in values(group, "reduce")}
    assert reductions == {
        "reduce max": ([1], [0, 2], ["a0", "a2"]),
        "reduce sum": ([1], [0, 2], ["a0", "a2"]),
    }


def test_what_is_reduced_twice_alike_is_reduced_once() -> None:
    fd, (x,) = define(2)
    for name in ("var", "std"):
        fd.add_output(getattr(fd.ops, name)(x, 1))
    fd.add_output(fd.ops.mean(fd.ops.cast(x, DataType.Double), 1))
    fd.add_output(fd.ops.mean(fd.ops.cast(x, DataType.Double), 1))
    (group,) = check(fd, [torch.randn(4, 6)]).groups
    assert [v["how"] for v in values(group, "reduce")] == ["reduce sum"] * 3


def test_a_dim_of_size_1_is_no_reduction() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.sum(x, 1))
    fd.add_output(fd.ops.argmax(x, 1))
    (group,) = check(fd, [torch.randn(4, 1)], lambda x: (x.sum(1), x.argmax(1))).groups
    assert not values(group, "reduce")
    assert group["rows"] == []


def test_positions_count_along_the_reduced_dims() -> None:
    fd, (x,) = define(3)
    fd.add_output(fd.ops.argmax(x, 1))
    assert not check(fd, [torch.randn(4, 5, 6)], lambda x: x.argmax(1)).temps
    fd, (x,) = define(3)
    fd.add_output(fd.ops.argmin(x))
    (group,) = check(fd, [torch.randn(4, 5, 6)], lambda x: x.argmin()).groups
    (position,) = values(group, "coordinate")
    assert position["axes"] == [0, 1, 2]
    ties = torch.tensor([[2.0, 7.0, 7.0], [7.0, 1.0, 2.0]])
    fd, (x,) = define(2)
    fd.add_output(fd.ops.argmax(x))
    fd.add_output(fd.ops.argmax(fd.ops.permute(x, [1, 0])))
    check(fd, [ties], lambda x: (x.argmax(), x.T.argmax()))


def test_a_coordinate_is_a_value() -> None:
    fd, (x,) = define(2)
    place = fd.ops.iota(x.size(1))
    fd.add_output(fd.ops.where(place < 3, x, 0.0))
    (group,) = check(fd, [torch.randn(4, 6)]).groups
    assert [v["axes"] for v in values(group, "coordinate")] == [[1]]


def test_an_index_wraps_once_and_stays_in_range() -> None:
    fd, (x,) = define(2)
    index = fd.define_tensor([-1, -1], dtype=DataType.Int)
    fd.add_output(fd.ops.take_along_axis(x, index, 1))
    fd.add_output(fd.ops.take_along_axis(x * 2.0, index, 1))
    indices = torch.tensor([[0, 5, -1], [-6, 2, 3], [9, -40, 1]])
    grouped = check(fd, [torch.randn(3, 6), indices])
    (group,) = grouped.groups
    loaded = [v for v in group["values"] if v["how"] == "read" and v["tensor"] == 0]
    assert len(loaded) == 1  # 2x is rematerialized
    assert loaded[0]["axes"] == [0, 1]
    assert len(values(group, "maximum")) == 1  # both indices are one value
    (problem,) = grouped.problems()
    irregular = [a for a in problem["accesses"] if a["strides"] is None]
    assert [group["values"][a["index"]]["tensor"] for a in irregular] == [0]


def test_an_index_may_come_from_a_reduction() -> None:
    fd, (x, y) = define(2, 2)
    place = fd.ops.argmax(x, 1, True)
    fd.add_output(fd.ops.take_along_axis(y, place, 1))
    got = check(
        fd,
        [torch.randn(4, 6), torch.randn(4, 6)],
        lambda x, y: y.take_along_dim(x.argmax(1, True), 1),
    )
    assert len(got.groups) == 1


def test_a_row_that_is_looked_up_is_reduced_by_a_kernel_before() -> None:
    fd, (x,) = define(2)
    index = fd.define_tensor([-1], dtype=DataType.Int)
    fd.add_output(fd.ops.take_along_axis(fd.ops.sum(x, 1), index, 0))
    got = check(fd, [torch.randn(6, 4), torch.tensor([5, 0, -1])])
    assert len(got.groups) == 2
    assert len(got.temps) == 1


def test_dims_that_were_merged_are_walked_as_the_dims_they_are_made_of() -> None:
    fd, (x, w) = define(3, 1)
    y, mean, _ = fd.ops.group_norm(x, 2, w)
    fd.add_output(fd.ops.cast(y, DataType.BFloat16))
    fd.add_output(mean)
    grouped = check(
        fd,
        [torch.randn(3, 6, 5), torch.randn(6)],
        lambda x, w: (
            torch.nn.functional.group_norm(x, 2, w).bfloat16().double(),
            x.view(3, 2, -1).mean(2),
        ),
        tolerance=1e-2,
    )
    (group,) = grouped.groups
    assert (len(group["axes"]), group["rows"]) == (4, [2, 3])
    (problem,) = grouped.problems()
    assert all(a["strides"] is not None for a in problem["accesses"])


def test_a_merge_that_does_not_nest_divides() -> None:
    fd, (x,) = define(2)
    flat = fd.ops.merge_dims(x, 0)
    fd.add_output(fd.ops.split_dim(flat, 0, [8, 3]) * 2.0)
    check(fd, [torch.randn(6, 4)], lambda x: x.reshape(8, 3) * 2)


def reshaped(fd: FusionDefinition, x: Tensor, times: int) -> Tensor:
    """Repeated reshapes between two shapes whose dims do not nest."""
    for i in range(times):
        x = fd.ops.reshape(x, ([-1, 6, 4], [-1, 4, 6])[i % 2]) + 1.0
    return x


def test_what_is_reshaped_back_stands_where_it_stood() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, 4, 6])
    fd.add_output(reshaped(fd, x, 2) * x)
    data = torch.randn(5, 4, 6)
    check(fd, [data], lambda x: (x + 2) * x)
    text = stage_text(fd, [data], "build")
    assert loads(text) == ["g_in0"]
    assert "g_in0[a0 * 24 + a1 * 6 + a2]" in text


def test_quotient_and_remainder_of_different_coordinates_stay() -> None:
    """A quotient of one coordinate and a remainder of another one do not combine."""
    fd = FusionDefinition()
    x = fd.define_tensor([24, 4, 6])
    parts = fd.ops.permute(fd.ops.split_dim(x, 0, [6, 4]), [0, 2, 3, 1])
    merged = fd.ops.merge_dims(fd.ops.merge_dims(parts, 0), 1)
    fd.add_output(fd.ops.slice(merged, [1, 2], [24, 24], [1, 1]) * 2.0)
    check(
        fd,
        [torch.randn(24, 4, 6)],
        lambda x: x.view(6, 4, 4, 6).permute(0, 2, 3, 1).reshape(24, 24)[1:, 2:] * 2,
    )


def test_quotient_and_remainder_by_another_size_stay() -> None:
    """Quotient and remainder by different sizes (2 and 4) do not combine."""
    fd = FusionDefinition()
    halves = fd.ops.slice(fd.ops.split_dim(fd.define_tensor([24]), 0, [6, 4]), [0, 0], [6, 2])
    fd.add_output(fd.ops.slice(fd.ops.merge_dims(halves, 0), [1], [12]) * 2.0)
    check(fd, [torch.randn(24)], lambda x: x.view(6, 4)[:, :2].reshape(12)[1:] * 2)


def test_coordinates_do_not_grow_with_the_number_of_reshapes() -> None:
    texts = []
    for times in (3, 43):
        fd = FusionDefinition()
        y = reshaped(fd, fd.define_tensor([-1, 4, 6]), times)
        assert str(y).endswith("[size(t0, 0), 6, 4]")
        fd.add_output(y)
        texts.append(stage_text(fd, [torch.randn(5, 4, 6)], "build"))
    assert len({len(re.findall("[/%]", text)) for text in texts}) == 1


def test_a_product_that_is_summed_by_a_reduction_stays_a_product() -> None:
    fd, (x, y) = define(2, 2)
    fd.add_output(fd.ops.sum(x * y, 1) + 1.0)
    (group,) = check(fd, [torch.randn(3, 4), torch.randn(3, 4)]).groups
    assert [v["how"] for v in group["values"] if v["how"] != "read"] == ["mul", "reduce sum", "add"]


def test_what_is_reduced_takes_no_short_form() -> None:
    fd, (x,) = define(2)
    fd.add_output(fd.ops.cast(fd.ops.exp(fd.ops.sum(fd.ops.exp(x), 1)), DataType.Half))
    (group,) = Grouped(fd, [torch.randn(3, 4)]).groups
    assert [v["how"] for v in group["values"]] == [
        *("read", "exp", "reduce sum", "exp_half", "convert")
    ]
