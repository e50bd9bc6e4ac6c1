"""Transposes of types smaller than a word whose rows are not multiples of a word: they are stored
as words, with values equal to torch's bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuser import FusionDefinition, Plan, UserError
from fuser.ops import as_dtype
from fuser.runtime import toolkit
from fuser.runtime.cubin import cubin_info
from tests.schedulers.test_transpose import (
    BF16,
    BOOL,
    F32,
    I8,
    TRANSPOSED,
    copied,
    flipped,
    permuted,
    plan_of,
    row_major,
    with_both_layouts,
)
from tests.support.reducing import kernels_for
from tests.support.transposing import Sample, check_values, define


def with_columns(fd: FusionDefinition, x: Any, y: Any) -> Any:
    """A vector per column of the stored rows, multiplied by the transposed values."""
    return row_major(fd, fd.ops.cast(flipped(fd, x) * y, as_dtype(BF16)))


def with_rows(fd: FusionDefinition, x: Any, y: Any) -> Any:
    """A number for each stored row."""
    rows = fd.ops.broadcast(y, [False, True])
    return row_major(fd, fd.ops.cast(flipped(fd, x) * rows, as_dtype(BF16)))


def with_sums(fd: FusionDefinition, x: Any, y: Any) -> Any:
    return row_major(fd, flipped(fd, fd.ops.cast(x + y, as_dtype(BF16))))


def with_places(fd: FusionDefinition, x: Any) -> Any:
    """The column index of the stored rows, as in with_columns."""
    columns = fd.ops.iota(fd.ops.size(x, 0), 0, 1)
    return row_major(fd, fd.ops.cast(flipped(fd, x) + columns, as_dtype(BF16)))


def test_less_than_a_word_is_stored_as_words_of_odd_rows() -> None:
    """Words are stored from a line boundary on in each row. Exceptions: the stored value depends on
    its column, is read along the row, has another output, or its memory is unaligned."""
    for dtype, shape, vector in (
        (BF16, (8191, 8193), 2),
        (BF16, (8191, 8192), 2),
        (torch.float16, (197, 768), 2),
        (I8, (8191, 8193), 4),
        (I8, (8190, 8193), 4),
        (BOOL, (8191, 8193), 4),
    ):
        plan = plan_of(TRANSPOSED, [shape], dtype)
        line = min(128 // dtype.itemsize, plan["tile_y"])
        assert (plan["vector_y"], plan["store_line_x"], plan["store_line_y"]) == (vector, 0, line)
    for dtype, shape in ((BF16, (8190, 8193)), (BF16, (8192, 8193)), (F32, (8191, 8193))):
        plan = plan_of(TRANSPOSED, [shape], dtype)
        assert (plan["store_line_x"], plan["store_line_y"]) == (0, 0), (dtype, shape)
    plan = plan_of(permuted(1, 0, output=BF16), [(8191, 8193)], F32)
    assert (plan["vector_x"], plan["vector_y"], plan["store_line_y"]) == (1, 2, 64)

    def two(fd: FusionDefinition, x: Any) -> Any:
        return [
            row_major(fd, flipped(fd, x)),
            row_major(fd, flipped(fd, fd.ops.cast(x, as_dtype(I8)))),
        ]

    plan = plan_of(two, [(8191, 8193)], BF16)
    assert {plan["store_line_x"], plan["store_line_y"]} == {0, 128}, "words of the smaller one"
    square = [(8191, 8191)] * 2
    for build, shapes, dtypes, line in (
        (lambda fd, x, y: fd.ops.cast(x + flipped(fd, y), as_dtype(BF16)), square, (BF16, BF16), 0),
        (with_both_layouts, square, (BF16, BF16), 0),
        (with_sums, square, (BF16, BF16), 0),
        (with_columns, [(8191, 8193), (8191,)], (I8, F32), 0),
        (with_columns, [(8191, 8193), (8191,)], (BF16, F32), 64),
        (with_places, [(8191, 8193)], (I8,), 0),
        (with_places, [(8191, 8193)], (BF16,), 64),
    ):
        plan = plan_of(build, shapes, *dtypes)
        assert max(plan["store_line_x"], plan["store_line_y"]) == line, (build, dtypes)


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("dtype", [torch.float16, BF16, I8, torch.uint8, BOOL], ids=str)
def test_words_are_stored_without_spills(dtype: torch.dtype, arch: int) -> None:
    """Kernels store words of four bytes, and single elements at the ends of rows, without
    spills."""
    fd = define(TRANSPOSED, [2], dtype)
    (kernel,) = kernels_for(fd, [(8191, 8193)], arch, text=True)
    name, text = kernel["cuda"].name, kernel["cuda"].text
    stores = re.findall(r"store\w*\(g_out0 \+ .*, (r_out0\w*|part<\d+>)", text)
    assert stores == [f"part<{4 // dtype.itemsize}>", "r_out0_stage2"]
    used = cubin_info(toolkit.compile(name, text, arch).cubin)[name]
    assert (used.registers <= 48, used.local_bytes) == (True, 0)


def test_words_beyond_32_bits_compile() -> None:
    (kernel,) = kernels_for(define(TRANSPOSED, [2], I8), [(70_001, 70_001)], text=True)
    assert kernel["plan"]["store_line_y"]
    assert "const i64" in kernel["cuda"].text
    toolkit.compile(kernel["cuda"].name, kernel["cuda"].text, 90)


SAMPLES: dict[str, Sample] = {
    **{
        f"words {d} {s}": copied(s, d)
        for d in (torch.float16, torch.int16, BOOL, torch.uint8)
        for s in [(33, 65), (129, 72), (1031, 261), (1285, 33)]
    },
    "words of even rows": copied((1030, 67), I8),
    "words of images": copied((3, 197, 40), BF16, 0, 2, 1),
    **{f"words of large images {d}": copied((2, 197, 136), d, 0, 2, 1) for d in (I8, BF16)},
    "words, batch inside": copied((131, 3, 35), BF16, 2, 1, 0),
    "words, f32 to bf16": copied((259, 67), F32, to=BF16),
    "words, bf16 to f32": copied((67, 259), BF16, to=F32),
    "words, f32 to i8": copied((259, 67), F32, to=I8),
    "words, relu": Sample(
        lambda fd, x: row_major(
            fd, fd.ops.cast(fd.ops.relu(flipped(fd, x) + 1.5), as_dtype(torch.float16))
        ),
        lambda x: (x.float().t() + 1.5).relu().half(),
        ((1029, 35),),
        (torch.float16,),
    ),
    "words of two outputs": Sample(
        lambda fd, x: [
            row_major(fd, flipped(fd, x)),
            row_major(fd, flipped(fd, fd.ops.cast(x, as_dtype(I8)))),
        ],
        lambda x: [x.t().contiguous(), x.to(I8).t().contiguous()],
        ((263, 69),),
        (BF16,),
    ),
    **{
        f"words and rows {d}": Sample(
            with_rows,
            lambda x, y: (x.float().t() * y[:, None]).to(BF16),
            ((263, 69), (69,)),
            (d, F32),
        )
        for d in (I8, BF16)
    },
    **{
        f"words and {build.__name__} {d}": Sample(
            build,
            lambda x, *y: (x.float().t() * y[0] if y else x.t().float() + torch.arange(263)).to(
                BF16
            ),
            ((263, 69), (263,))[: 2 if build is with_columns else 1],
            (d, F32)[: 2 if build is with_columns else 1],
        )
        for build in (with_columns, with_places)
        for d in (I8, BF16)
    },
}


def test_values(rng: np.random.Generator, set_option: Callable[[str, Any], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    check_values(SAMPLES, rng)


@pytest.mark.parametrize("dtype", [BF16, I8], ids=str)
def test_changed_plans_of_words_run(
    dtype: torch.dtype, rng: np.random.Generator, set_option: Callable[[str, Any], None]
) -> None:
    """Plans with other vectors, lines, tiles and threads run correctly; with line 0, vectors start
    at tiles."""
    set_option("FUSER_HOST_DEBUG", 1)
    fd = define(TRANSPOSED, [2], dtype)
    x = torch.from_numpy(rng.integers(-99, 99, size=(1087, 77))).to(dtype)
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    assert plan["store_line_y"] > 0
    word = 4 // dtype.itemsize
    for changes in (
        *({"vector_y": v} for v in (1, 2 * word, 4 * word)),
        *({"store_line_y": line} for line in (word, 4 * word)),
        {"store_line_y": 0, "threads": 128},
        {"tile_y": 512, "threads": 512},
        {"tile_y": 64, "store_line_y": 64, "threads": 64},
        {"tile_x": 64, "vector_y": 4 * word},
        {"vector_x": 1, "threads": 128},
    ):
        (got,) = fd.execute([x], plan=plan.replace(**changes))
        assert torch.equal(got, x.t()), changes
    for changes in (
        {"store_line_y": 3},
        {"store_line_y": 2 * plan["store_line_y"]},
        {"store_line_y": 1},
        {"vector_y": 32},
    ):
        with pytest.raises(UserError, match="is not allowed; expected") as caught:
            fd.execute([x], plan=plan.replace(**changes))
        assert caught.value.rule == "plan-1"


@pytest.mark.parametrize("dtype", [BF16, torch.uint8], ids=str)
def test_words_of_rows_inside_other_memory(
    dtype: torch.dtype, rng: np.random.Generator, set_option: Callable[[str, Any], None]
) -> None:
    """Stores into slices: odd row strides, rows that end with their tiles, unaligned memory, or
    every second element. Elements outside the slice are unchanged."""
    set_option("FUSER_HOST_DEBUG", 1)
    for rows, columns, start, pitch, step in (
        (256, 40, 0, 259, 1),
        (131, 40, 0, 133, 1),
        (131, 40, 16, 151, 1),
        (131, 40, 3, 137, 1),
        (131, 40, 0, 263, 2),
    ):
        x = torch.from_numpy(rng.integers(0, 99, size=(rows, columns))).to(dtype)
        memory = torch.full((columns * pitch + start + 8,), 77, dtype=dtype)
        place = memory.as_strided((columns, rows), (pitch, step), start)
        fd = FusionDefinition()
        source, kept = fd.from_pytorch(x), fd.from_pytorch(place)
        fd.add_output(flipped(fd, source), kept)
        want = memory.clone()
        want.as_strided((columns, rows), (pitch, step), start).copy_(x.t())
        fd.execute([x, place])
        assert torch.equal(memory, want), (rows, start, pitch, step)
