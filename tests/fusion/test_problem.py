"""Layout classes of inputs, layouts of outputs, and the guards of a kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fuser import FusionDefinition
from fuser.ops import as_dtype
from tests.support.groups import Grouped
from tests.support.stages import stage_text


def copy_of(rank: int, dtype: torch.dtype = torch.float32) -> FusionDefinition:
    fd = FusionDefinition()
    fd.add_output(fd.ops.set(fd.define_tensor([-1] * rank, dtype=as_dtype(dtype))))
    return fd


X = torch.arange(4096.0)

LAYOUTS: dict[str, tuple[Callable[[], Tensor], str]] = {
    "rows": (lambda: X[:24].view(4, 6), "[0c 1c]"),
    "columns": (lambda: X[:24].view(4, 6).T, "[1c 0c]"),
    "padded rows": (lambda: X.as_strided((4, 6), (10, 1)), "[0s 1c]"),
    "every second": (lambda: X.as_strided((4, 6), (12, 2)), "[0c 1s]"),
    "expanded": (lambda: X[:6].expand(4, 6), "[0 0c]"),
    "one row": (lambda: X[:6].view(1, 6), "[1 0c]"),
    "one row, any stride": (lambda: X.as_strided((1, 6), (999, 1)), "[1 0c]"),
    "overlapping": (lambda: X.as_strided((4, 6), (1, 1)), "[0s 1c]"),
    "one element": (lambda: X[:1].view(1, 1), "[1 1]"),
    "empty": (lambda: X[:0].view(0, 6), "[0c 1c]"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_classes(layout: str) -> None:
    make, expected = LAYOUTS[layout]
    assert f"float32{expected}" in copy_of(2).signature([make()])


def test_strides_that_follow_from_sizes_are_no_parameters() -> None:
    dense = stage_text(copy_of(2), [X[:24].view(4, 6)], "build")
    assert "stride(" not in dense
    padded = stage_text(copy_of(2), [X.as_strided((4, 6), (10, 1))], "build")
    assert set(re.findall(r"stride\(\d, \d\)", padded)) == {"stride(0, 0)"}


def test_an_expanded_dim_is_not_walked_in_memory() -> None:
    text = stage_text(copy_of(2), [X[:8].expand(4, 8)], "build")
    assert "g_in0[a1]" in text


def test_alignment_is_part_of_the_signature() -> None:
    fd = copy_of(1)
    assert "16B" in fd.signature([X[:64]])
    assert "element" in fd.signature([X[1:65]])
    assert fd.plan([X[:64]])["vector"] == 4
    assert fd.plan([X[1:65]])["vectorized"] != fd.plan([X[:64]])["vectorized"]


def test_sizes_count_by_what_divides_them_only() -> None:
    fd = copy_of(2)
    padded = [X.as_strided((5, n), (n + 4, 1)) for n in (8, 12, 400)]
    assert len({fd.signature([x]) for x in padded}) == 1
    odd = [X.as_strided((5, n), (n + 4, 1)) for n in (7, 9, 401)]
    assert len({fd.signature([x]) for x in odd}) == 1
    assert fd.signature(odd[:1]) != fd.signature(padded[:1])


def test_the_first_operand_that_tells_decides_the_layout_of_a_result() -> None:
    fd = FusionDefinition()
    x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1, -1])
    fd.add_output(x + y)
    rows, columns = X[:24].view(4, 6), X[24:48].view(6, 4).T
    for inputs in ([rows, columns], [columns, rows], [rows[:1], columns]):
        (got,) = fd.execute(inputs)
        assert got.stride() == (inputs[0] + inputs[1]).stride()


def test_reduced_axes_are_ordered_as_they_lie_in_memory() -> None:
    def order(x: Tensor, dims: list[int]) -> tuple[list[int], list[int], list[int]]:
        fd = FusionDefinition()
        fd.add_output(fd.ops.sum(fd.define_tensor([-1] * x.dim()), dims))
        (problem,) = Grouped(fd, [x]).problems()
        reads = [a for a in problem["accesses"] if not a["store"]]
        strides = reads[0]["strides"]
        assert strides[problem["order"][-1]] == "1"
        return problem["order"], problem["reduced"], problem["output_order"][0]

    x = X[:24].view(2, 3, 4)
    # Axes of the output have the lowest numbers.
    assert order(x, [2]) == ([0, 1, 2], [2], [0, 1])
    assert order(x, [0]) == ([2, 0, 1], [2], [0, 1])
    assert order(x, [0, 2]) == ([1, 0, 2], [1, 2], [0])
    assert order(x.transpose(1, 2), [1]) == ([0, 1, 2], [2], [0, 1])
    assert order(x.permute(2, 1, 0), [2]) == ([2, 1, 0], [2], [0, 1])
    assert order(x, [0, 1, 2]) == ([0, 1, 2], [0, 1, 2], [])


def test_images_that_grow_or_are_joined_are_ordered_as_they_lie_in_memory() -> None:
    """Channels-last images whose channels are joined, sliced or repeated along rows and columns:
    the channels are innermost."""
    last = torch.channels_last
    x = X[:64].view(1, 4, 4, 4).contiguous(memory_format=last)

    def innermost(write: Callable[[Any, Any, Any], Any], other: Tensor) -> str:
        fd = FusionDefinition()
        t, u = fd.from_pytorch(x), fd.from_pytorch(other)
        fd.add_output(write(fd.ops, t, u), stride_order=[3, 0, 2, 1])
        (problem,) = Grouped(fd, [x, other]).problems()
        (store,) = [a for a in problem["accesses"] if a["store"]]
        return str(store["strides"][problem["order"][-1]])

    def twice(ops: Any, t: Any) -> Any:
        wide = ops.expand(ops.reshape(t, [1, 4, 4, 1, 4, 1]), [1, 4, 4, 2, 4, 2])
        return ops.reshape(wide, [1, 4, 8, 8])

    large = X[:256].view(1, 4, 8, 8).contiguous(memory_format=last)
    assert innermost(lambda ops, t, u: ops.cat([t, u], 1), x) == "1"
    assert innermost(lambda ops, t, u: twice(ops, t * u), x) == "1"
    assert innermost(lambda ops, t, u: ops.cat([twice(ops, t), u], 1), large) == "1"
    assert innermost(lambda ops, t, u: ops.slice(t * u, [0, 1, 0, 1], [1, 4, 3, 4]), x) == "1"


def test_small_operands_do_not_decide_how_a_row_is_walked() -> None:
    fd = FusionDefinition()
    w, x = fd.define_tensor([-1, -1, -1]), fd.define_tensor([-1, -1, -1])
    fd.add_output(fd.ops.softmax(w * x, 2))
    transposed = X[:6].view(1, 3, 2).transpose(1, 2)
    (problem,) = Grouped(fd, [transposed, X[:12].view(2, 2, 3)]).problems()
    assert problem["order"] == [0, 1, 2]


def test_what_one_kernel_hands_to_another_is_read_as_it_was_stored() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1, -1])
    fd.add_output(fd.ops.max(x - fd.ops.mean(x, 0, True), 2))
    first, second = Grouped(fd, [X[:24].view(2, 3, 4).permute(0, 2, 1)]).problems()
    (stored,) = [b for b in first["buffers"] if b[4]]
    read = [b for b in second["buffers"] if b[3] and b[2] >= 0]
    assert [b[2] for b in read] == [stored[2]]
    assert first["output_order"] == [[0, 2, 1]]  # the mean, with its dim of size 1
    access = next(
        a
        for a in second["accesses"]
        if not a["store"] and second["buffers"][a["buffer"]][2] == stored[2]
    )
    strides = {a: access["strides"][a] for a in second["order"]}
    assert sorted(strides.values()) == ["0", "1", "size(0, 1)"] or "1" in strides.values()


def test_outputs_over_some_axes_have_layouts_of_their_own() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1, -1])
    fd.add_output(fd.ops.sum(x, 1))
    fd.add_output(x * 2.0)
    inputs = [X[:24].view(2, 3, 4).permute(2, 1, 0)]
    (problem,) = Grouped(fd, inputs).problems()
    assert problem["output_order"] == [[0, 1], [2, 1, 0]]
    assert (inputs[0] * 2).stride() == (1, 4, 12)


def test_single_passes_and_pieces_keep_the_layout_of_outputs() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1])
    y, mean, rstd = fd.ops.layer_norm(x, [x.size(1)])
    for t in (y, mean, rstd):
        fd.add_output(t)
    (problem,) = Grouped(fd, [X[:24].view(6, 4).T]).problems()
    assert problem["output_order"] == [[1, 0], [0, 1], [0, 1]]
    assert problem["single_pass"]["output_order"] == problem["output_order"]
    assert problem["single_pass"]["order"] == problem["order"]
