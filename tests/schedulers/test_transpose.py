"""Tensors with different innermost axes: plans, and values equal to torch's bit for bit."""

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
from tests.support.reducing import kernels_for
from tests.support.transposing import Sample, check_values, define

BF16, F32, F64, I8 = torch.bfloat16, torch.float32, torch.float64, torch.int8
BOOL, I64, C64 = torch.bool, torch.int64, torch.complex64


def row_major(fd: FusionDefinition, t: Any, rank: int = 2) -> Any:
    return fd.ops.stride_order(t, list(reversed(range(rank))))


def permuted(*dims: int, output: torch.dtype | None = None) -> Callable[..., Any]:
    def build(fd: FusionDefinition, x: Any) -> Any:
        y = fd.ops.permute(x, dims)
        return row_major(fd, fd.ops.cast(y, as_dtype(output)) if output else y, len(dims))

    return build


def plan_of(
    build: Callable[..., Any], shapes: list[tuple[int, ...]], *dtypes: torch.dtype, **how: Any
) -> dict[str, Any]:
    fd = define(build, [len(shape) for shape in shapes], *dtypes)
    (kernel,) = kernels_for(fd, shapes, **how)
    plan: dict[str, Any] = kernel["plan"]
    return plan


TRANSPOSED = permuted(1, 0)


@pytest.mark.parametrize("arch", [70, 80, 90, 100])
@pytest.mark.parametrize("dtype", [I8, BF16, F32, F64], ids=str)
def test_16_bytes_on_both_sides(dtype: torch.dtype, arch: int) -> None:
    plan = plan_of(TRANSPOSED, [(4096, 4096)], dtype, arch=arch)
    assert plan["scheduler"] == "transpose"
    # For bytes one vector has 8 elements: 16 x 16 bytes would exceed the registers.
    assert plan["vector_x"] * plan["vector_y"] == min(128, (16 // dtype.itemsize) ** 2)
    assert plan["vectorized"] == 3
    assert plan["tile_x"] * plan["tile_y"] * dtype.itemsize <= 64 << 10


def test_each_side_by_its_own_width() -> None:
    """Each layout group has vectors of its own width; X is the group that moves more bytes."""
    plan = plan_of(permuted(1, 0, output=F32), [(4096, 4096)], BF16)
    assert (plan["vector_x"], plan["vector_y"]) == (4, 8)
    plan = plan_of(permuted(1, 0, output=BF16), [(4096, 4096)], F32)
    assert (plan["vector_x"], plan["vector_y"]) == (4, 8)


def test_odd_sizes_and_addresses() -> None:
    """For rows that are not 16-byte aligned, threads access single adjacent elements."""
    plan = plan_of(TRANSPOSED, [(999, 4096)], F32)
    assert (plan["vector_x"], plan["vector_y"], plan["vectorized"]) == (4, 1, 1)
    plan = plan_of(TRANSPOSED, [(4096, 4095)], F32)
    assert (plan["vector_x"], plan["vector_y"], plan["vectorized"]) == (1, 4, 2)
    plan = plan_of(TRANSPOSED, [(4096, 4096)], F32, address=4)
    assert (plan["vector_x"], plan["vector_y"], plan["vectorized"]) == (1, 4, 2)


@pytest.mark.parametrize("arch", [70, 80, 90])
@pytest.mark.parametrize(
    ("dtype", "run"), [(I8, 256), (BF16, 256), (F32, 256), (F64, 128)], ids=str
)
def test_odd_rows_are_stored_in_long_runs(dtype: torch.dtype, run: int, arch: int) -> None:
    """For odd rows, a tile has at most 1 KiB of a row in the layout of Y; it stores words, of
    single or several elements."""
    for shape, exact in (((8191, 8193), 0), ((8193, 8192), 1)):
        plan = plan_of(TRANSPOSED, [shape], dtype, arch=arch)
        assert (plan["tile_x"], plan["tile_y"], plan["threads"]) == (32, run, 256)
        words = max(1, 4 // dtype.itemsize)
        assert (plan["divides_x"], plan["divides_y"], plan["vector_y"]) == (exact, 0, words)
        if dtype.itemsize >= 4:
            assert (plan["vector_x"], plan["vectorized"], plan["unaligned"], plan["tail"]) == (
                1,
                0,
                0,
                0,
            )


def test_halves_of_odd_rows_are_read_by_shifted_vectors() -> None:
    """Half-type elements of odd rows are loaded by unaligned vectors, if that group has no stores
    and no other kind of load."""
    for shape, vectors, tail in (((8191, 8193), (8, 2), 1), ((8192, 8193), (8, 8), 1)):
        plan = plan_of(TRANSPOSED, [shape], BF16)
        assert ((plan["vector_x"], plan["vector_y"]), plan["tail"]) == (vectors, tail)
        assert plan["unaligned"] == 1
    assert plan_of(TRANSPOSED, [(8193, 8193)], I8)["unaligned"] == 1
    plan = plan_of(lambda fd, x, y: x + flipped(fd, y), [(8191, 8191)] * 2, BF16, BF16)
    assert (plan["vector_x"], plan["unaligned"]) == (1, 2), "X is stored along"
    for plan in (
        plan_of(with_both_layouts, [(8191, 8191)] * 2, BF16, BF16),
        plan_of(TRANSPOSED, [(8191, 8193)], F32),
        plan_of(TRANSPOSED, [(8191, 8193)], BF16, address=2),
    ):
        assert plan["unaligned"] == 0


def test_no_runs_of_vectors_or_short_rows() -> None:
    """Exceptions: complete vectors are stored, rows are short, or both groups store."""
    plan = plan_of(TRANSPOSED, [(8192, 8193)], F32)
    assert (plan["vector_x"], plan["vector_y"], plan["tile_y"]) == (1, 4, 64)
    for size, tile in ((999, (128, 128)), (1025, (32, 256))):
        plan = plan_of(TRANSPOSED, [(size, 999)], BF16)
        assert (plan["tile_x"], plan["tile_y"]) == tile
    plan = plan_of(with_both_layouts, [(8191, 8191)] * 2, BF16, BF16)
    assert (plan["tile_x"], plan["tile_y"]) == (128, 128)


def test_runs_lie_along_what_is_stored() -> None:
    """X is the group that moves more bytes: here the group of the output and of an input."""
    plan = plan_of(lambda fd, x, y: x + flipped(fd, y), [(8191, 8191)] * 2, BF16, BF16)
    assert (plan["tile_x"], plan["tile_y"], plan["threads"]) == (256, 32, 256)


def test_runs_are_as_long_for_several_outputs() -> None:
    def three(fd: FusionDefinition, x: Any) -> Any:
        return [row_major(fd, flipped(fd, x) * factor) for factor in (2.0, 3.0, 5.0)]

    plan = plan_of(three, [(8191, 8193)], F32)
    assert {plan["tile_x"], plan["tile_y"]} == {32, 256}


def test_the_widest_vectors_that_divide_a_row() -> None:
    """Vectors are the widest that divide a row: 196 tokens are 49 vectors of four half-type
    elements."""
    for size, vector in ((200, 8), (196, 4), (198, 2), (199, 1)):
        plan = plan_of(permuted(0, 2, 1), [(64, 768, size)], BF16, address=0 if vector > 1 else 2)
        assert {plan["vector_x"], plan["vector_y"]} == {8, vector}
        assert plan["vectorized"] == (3 if vector > 1 else 2)


def test_one_plan_for_many_sizes() -> None:
    sizes = [(128, 256), (4096, 4096), (1000, 72), (8, 1 << 20)]
    plans = [plan_of(TRANSPOSED, [size], BF16) for size in sizes[:3]]
    assert plans[0] == plans[1]
    assert plans[2]["vector_y"] == 8


def test_axes_that_both_sides_walk_as_one() -> None:
    fd = define(permuted(0, 2, 3, 1), [4], BF16)
    (kernel,) = kernels_for(fd, [(8, 64, 56, 56)], text=True)
    assert re.findall(r"\[.*\]", kernel["schedule"]) == ["[a0]", "[a3]", "[a1 a2]"]


def test_tiles_fit_the_axes() -> None:
    """64 channels in bfloat16 are half of a tile's row, processed by half of the threads; with 32
    channels the tile is longer instead."""
    for channels, wanted in ((64, (128, 64, 128)), (32, (512, 32, 256))):
        plan = plan_of(permuted(0, 2, 1), [(8, channels, 12544)], BF16)
        assert (plan["tile_x"], plan["tile_y"], plan["threads"]) == wanted


@pytest.mark.parametrize("arch", [70, 80, 90])
def test_halves_of_tiles_end_with_their_axis(arch: int) -> None:
    """Tiles are halved if they then end with their axis: 3136 positions are 24.5 tiles of bfloat16,
    or 49 halves."""
    plan = plan_of(permuted(0, 2, 1), [(64, 3136, 256)], BF16, arch=arch)
    assert (plan["tile_x"], plan["divides_x"]) == (128, 1)
    assert (plan["tile_y"], plan["divides_y"], plan["threads"]) == (64, 1, 128)
    plan = plan_of(permuted(0, 2, 1), [(64, 3136 + 32, 256)], BF16, arch=arch)
    assert (plan["tile_y"], plan["divides_y"], plan["threads"]) == (128, 0, 256)
    plan = plan_of(permuted(0, 2, 1), [(64, 3136, 256)], BF16, arch=arch, address=4)
    assert plan["tile_x"] == 128, "elements that move one by one have long rows"


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_a_stored_row_that_ends_inside_its_last_tile_has_one(dtype: torch.dtype) -> None:
    """A stored row that ends within its last tile has a tile of its own length. Exceptions: tiles
    or half tiles end with the row, or the row is longer."""
    for rows, tile in ((100, (64, 128)), (196, (32, 256)), (250, (32, 256))):
        plan = plan_of(permuted(0, 2, 1), [(64, rows, 768)], dtype)
        assert (plan["tile_x"], plan["tile_y"], plan["divides_y"]) == (*tile, 0)
    for rows in (192, 256, 300):
        plan = plan_of(permuted(0, 2, 1), [(64, rows, 768)], dtype)
        assert plan["tile_y"] <= 128


def test_half_tiles_ask_for_one_block() -> None:
    for rows, blocks in ((3136, 1), (4096, 0)):
        plan = plan_of(permuted(0, 2, 1), [(64, rows, 256)], BF16)
        assert plan["min_blocks_per_sm"] == blocks


@pytest.mark.parametrize(
    ("build", "dtypes", "wanted"),
    [
        (TRANSPOSED, (BF16,), "  d1 Grid\n  d0 Grid"),  # X has the input's layout, Y the output's
        (permuted(1, 0, output=F32), (BF16,), "  d0 Grid\n  d1 Grid"),  # X is the wider output
        (permuted(1, 0, output=BF16), (F32,), "  d1 Grid\n  d0 Grid"),
        (lambda fd, x, y: x + flipped(fd, y), (BF16, BF16), "  d0 Grid\n  d1 Grid"),
        (lambda fd, x, y: with_both_layouts(fd, x, y), (BF16, BF16), "  d0 Grid\n  d1 Grid"),
    ],
    ids=["copy", "widened", "narrowed", "sum", "both"],
)
def test_blocks_follow_rows_that_are_stored(build: Any, dtypes: Any, wanted: str) -> None:
    for size in (4096, 4099):
        fd = define(build, [2] * len(dtypes), *dtypes)
        (kernel,) = kernels_for(fd, [(size, size)] * len(dtypes), text=True)
        nests = re.split("nest.*\n", kernel["schedule"])[1:]
        assert len(nests) >= 2
        assert all(nest.startswith(wanted) for nest in nests), kernel["schedule"]


def test_registers_where_few_elements_are_turned() -> None:
    """Short transposes limit registers to 48 for five blocks per SM; long ops are not limited."""

    def gelu(fd: FusionDefinition, x: Any) -> Any:
        y = fd.ops.gelu(flipped(fd, x))
        return row_major(fd, fd.ops.cast(y, as_dtype(BF16)))

    for build, blocks, most in ((permuted(1, 0, output=BF16), 5, 48), (gelu, 0, 128)):
        (kernel,) = kernels_for(define(build, [2], F32), [(8192, 8192)], text=True)
        assert kernel["plan"]["min_blocks_per_sm"] == blocks
        name = kernel["cuda"].name
        used = cubin_info(toolkit.compile(name, kernel["cuda"].text, 90).cubin)[name]
        assert (used.registers <= most, used.local_bytes) == (True, 0)
    for dtype in (BF16, I8, F32):
        assert plan_of(TRANSPOSED, [(8192, 8192)], dtype)["min_blocks_per_sm"] == 0


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_kernels_of_several_tensors_ask_for_one_block(dtype: torch.dtype) -> None:
    """Kernels of several tensors request one block per SM, so that the compiler has registers for
    all loads and does not spill."""
    fd = define(with_biases, [2, 1, 1], dtype, F32, F32)
    (kernel,) = kernels_for(fd, [(4096, 4096), (4096,), (4096,)], text=True)
    assert kernel["plan"]["min_blocks_per_sm"] == 1
    name = kernel["cuda"].name
    cubin = toolkit.compile(name, kernel["cuda"].text, 90).cubin
    assert cubin_info(cubin)[name].local_bytes == 0


@pytest.mark.parametrize(("shape", "merged"), [((1 << 20, 3), 1), ((3, 1 << 20), 2)])
def test_short_rows(shape: tuple[int, int], merged: int) -> None:
    """Three channels are too few for a tile: loops follow the stored order with 16-byte stores."""
    plan = plan_of(TRANSPOSED, [shape], F32)
    assert plan["scheduler"] == "pointwise"
    assert (plan["vector"], plan["collapsed"], plan["vectorized"]) == (4, merged, 2)


@pytest.mark.parametrize("shape", [(1 << 20, 12), (12, 1 << 20)])
def test_narrow_tiles(shape: tuple[int, int]) -> None:
    """Tiles are as narrow as the shape, and all threads have work."""
    plan = plan_of(TRANSPOSED, [shape], F32)
    assert min(plan["tile_x"], plan["tile_y"]) == 16
    assert plan["threads"] == 256


def test_exact_tiles() -> None:
    """Tiles that end with their axes need no bounds checks."""
    fd = define(TRANSPOSED, [2], BF16)
    for shape, exact in (((512, 384), (1, 1)), ((512, 264), (0, 1)), ((264, 264), (0, 0))):
        (kernel,) = kernels_for(fd, [shape], text=True)
        assert (kernel["plan"]["divides_x"], kernel["plan"]["divides_y"]) == exact
        own = kernel["cuda"].text.partition("KERNEL(256)")[2]
        assert ("load_if" in own) == (exact != (1, 1))


def outer(fd: FusionDefinition, x: Any, y: Any) -> Any:
    return fd.ops.broadcast(x, [False, True]) + fd.ops.broadcast(y, [True, False])


REFUSED: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "one layout": (lambda fd, x, y: x + y, [2, 2]),
    "rows and a row": (lambda fd, x, y: x + y, [2, 1]),
    "outer": (outer, [1, 1]),
    "heads": (lambda fd, x, y: row_major(fd, fd.ops.permute(x + y, [1, 0, 2]), 3), [3, 3]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_leaves_to_others(name: str) -> None:
    build, ranks = REFUSED[name]
    plan = plan_of(build, [(64,) * rank for rank in ranks], F32, F32)
    assert plan["scheduler"] == "pointwise"


def test_the_fewest_bytes_cross() -> None:
    """The narrowest value is staged: the sum or its operand."""

    def of(build: Callable[..., Any], *dtypes: torch.dtype) -> str:
        fd = define(build, [2] * len(dtypes), *dtypes)
        (kernel,) = kernels_for(fd, [(256, 256)] * len(dtypes), text=True)
        tiles = [line for line in kernel["ir"].splitlines() if "shared" in line]
        (tile,) = tiles
        return str(tile.split()[2])

    assert of(lambda fd, x, y: row_major(fd, fd.ops.permute(x + y, [1, 0])), F32, F32) == "f32"
    assert of(permuted(1, 0, output=F64), BF16) == "bf16"
    assert of(permuted(1, 0, output=BF16), F64) == "bf16"

    def two(fd: FusionDefinition, x: Any) -> Any:
        y = fd.ops.permute(x, [1, 0])
        return [row_major(fd, y * 2.0), row_major(fd, fd.ops.exp(y))]

    assert of(two, F32) == "f32"


# ---- Values: results equal torch's bit for bit.


def copied(shape: tuple[int, ...], dtype: torch.dtype, *dims: int, to: Any = None) -> Sample:
    order = dims or (1, 0)
    return Sample(
        permuted(*order, output=to),
        lambda x: x.permute(order).contiguous().to(to or dtype),
        (shape,),
        (dtype,),
    )


def flipped(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.permute(x, [1, 0])


def with_both_layouts(fd: FusionDefinition, x: Any, y: Any) -> Any:
    return [x + flipped(fd, y), row_major(fd, flipped(fd, x) * 2.0 - y)]


def with_biases(fd: FusionDefinition, x: Any, a: Any, b: Any) -> Any:
    return row_major(fd, flipped(fd, x + a) * 2.0 + b)


def chain(fd: FusionDefinition, x: Any) -> Any:
    y = fd.ops.relu(x) * 2.0
    return [y, row_major(fd, flipped(fd, y)), row_major(fd, flipped(fd, y - x))]


def padded(fd: FusionDefinition, x: Any) -> Any:
    return row_major(fd, flipped(fd, fd.ops.pad(x, [2, 3, 1, 4])))


def sliced(fd: FusionDefinition, x: Any) -> Any:
    return row_major(fd, flipped(fd, fd.ops.slice(x, [3, 5], [60, 77], [1, 2])))


SIZES = [(128, 256), (40, 72), (33, 65), (129, 130), (8, 300), (3, 75), (75, 3), (0, 40)]
SAMPLES: dict[str, Sample] = {
    **{f"{d} {s}": copied(s, d) for d in (BF16, F32, I8) for s in SIZES},
    **{f"{d}": copied((34, 50), d) for d in (F64, BOOL, I64, C64, torch.int16)},
    **{f"runs {d}": copied((1029, 35), d) for d in (I8, BF16, F32, F64)},
    "runs of a multiple": copied((1025, 64), BF16),
    "runs, both loaded": Sample(
        lambda fd, x, y: x + flipped(fd, y),
        lambda x, y: x + y.t(),
        ((37, 1029), (1029, 37)),
        (F32, F32),
    ),
    "bf16 to f32": copied((136, 72), BF16, to=F32),
    "f32 to bf16": copied((136, 72), F32, to=BF16),
    "i8 to f64": copied((65, 48), I8, to=F64),
    "batch": copied((3, 24, 40), BF16, 0, 2, 1),
    "batch inside": copied((24, 3, 40), BF16, 2, 1, 0),
    "heads": copied((2, 40, 3, 16), F32, 0, 2, 3, 1),
    "channels last": copied((2, 24, 7, 9), BF16, 0, 2, 3, 1),
    "channels first": copied((2, 8, 8, 24), BF16, 0, 3, 1, 2),
    "reversed": copied((9, 10, 11, 12), F32, 3, 2, 1, 0),
    "add": Sample(
        lambda fd, x, y: x + flipped(fd, y),
        lambda x, y: x + y.t(),
        ((72, 72), (72, 72)),
        (F32, F32),
    ),
    "antisymmetric": Sample(
        lambda fd, x: x - flipped(fd, x), lambda x: x - x.t(), ((131, 131),), (F32,)
    ),
    "both layouts": Sample(
        with_both_layouts,
        lambda x, y: [x + y.t(), (x.t() * 2 - y).contiguous()],
        ((68, 68), (68, 68)),
        (F32, F32),
    ),
    "chain": Sample(
        chain,
        lambda x: [x.relu() * 2, (x.relu() * 2).t(), (x.relu() * 2 - x).t()],
        ((70, 90),),
        (F32,),
    ),
    "biases": Sample(
        with_biases,
        lambda x, a, b: (x + a).t() * 2 + b,
        ((72, 40), (40,), (72,)),
        (F32, F32, F32),
    ),
    "pad": Sample(
        padded, lambda x: torch.nn.functional.pad(x, (2, 3, 1, 4)).t(), ((64, 80),), (F32,)
    ),
    "slice": Sample(sliced, lambda x: x[3:60, 5:77:2].t(), ((64, 80),), (F32,)),
}


def test_values(rng: np.random.Generator, set_option: Callable[[str, Any], None]) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    for name, plan in check_values(SAMPLES, rng).items():
        short = any(min(shape) <= 8 for shape in SAMPLES[name].shapes)
        assert short or (isinstance(plan, Plan) and plan.scheduler == "transpose"), name


def test_views(rng: np.random.Generator) -> None:
    """Padded rows, an unaligned address, every second element, and an in-place output."""
    base = torch.from_numpy(rng.normal(size=(140, 308))).to(F32)
    fd = define(TRANSPOSED, [2], F32)
    for view in (base[:128, :256], base[1:, 3:203], base[:, ::2], base[::2, 4:]):
        fd = FusionDefinition()
        fd.add_output(row_major(fd, flipped(fd, fd.from_pytorch(view))))
        (got,) = fd.execute([view])
        assert torch.equal(got, view.t()), view.stride()


@pytest.mark.parametrize("same", [False, True], ids=["of another", "of itself"])
def test_in_place(same: bool, rng: np.random.Generator) -> None:
    """Values read by other threads than their writers go through a temporary."""
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1, -1], contiguity=True) for _ in range(2))
    fd.add_output(x + flipped(fd, x if same else y), x)
    inputs = [torch.from_numpy(rng.normal(size=(70, 70))).to(F32) for _ in range(2)]
    want = inputs[0] + inputs[not same].t()
    fd.execute(inputs)
    assert torch.equal(inputs[0], want)


@pytest.mark.parametrize(
    "changes",
    [
        {"threads": 64},
        {"tile_x": 128, "threads": 512},
        {"tile_y": 16, "threads": 64},
        {"vector_x": 1},
        {"min_blocks_per_sm": 2},
        {"tail": 1},
        {"divides_x": 0},
    ],
    ids=str,
)
def test_changed_plans_run(changes: dict[str, int], rng: np.random.Generator) -> None:
    fd = define(TRANSPOSED, [2], F32)
    x = torch.from_numpy(rng.normal(size=(100, 200))).to(F32)
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    (got,) = fd.execute([x], plan=plan.replace(**changes))
    assert torch.equal(got, x.t())


@pytest.mark.parametrize(
    "changes",
    [{"threads": 2048}, {"tile_x": 48}, {"vector_x": 8}, {"vectorized": 1}, {"tile_x": 1}],
)
def test_plan_1(changes: dict[str, int]) -> None:
    fd = define(TRANSPOSED, [2], F32)
    x = torch.ones(64, 64)
    plan = fd.plan([x])
    assert isinstance(plan, Plan)
    with pytest.raises(UserError, match="is not allowed; expected") as caught:
        fd.execute([x], plan=plan.replace(**changes))
    assert caught.value.rule == "plan-1"


# ---- More than two layouts


@pytest.mark.parametrize("channels_last", [0, 1])
def test_what_neither_side_holds(channels_last: int, rng: np.random.Generator) -> None:
    """An enlarged image varies along the rows of both layout groups, but not along the innermost
    axis of both: its accesses use the vectors of the stage along that axis."""

    def build(fd: FusionDefinition, x: Any, y: Any) -> Any:
        ops = fd.ops
        large = ops.broadcast(x, [False, False, False, True, False, True])
        large = ops.expand(large, [2, 32, 16, 2, 16, 2])
        large = ops.merge_dims(ops.merge_dims(large, 2), 3)
        return ops.stride_order(ops.cat([large, y], 1), [3, 0, 2, 1])

    x, y = (
        torch.from_numpy(rng.normal(size=s)).float() for s in [(2, 32, 16, 16), (2, 16, 32, 32)]
    )
    x = x.contiguous(memory_format=torch.channels_last)
    if channels_last:
        y = y.contiguous(memory_format=torch.channels_last)
    fd = define(build, [4, 4], F32, F32)
    (got,) = fd.execute([x, y])
    assert torch.equal(got, torch.cat([torch.nn.functional.interpolate(x, scale_factor=2.0), y], 1))


def norm_backward(fd: FusionDefinition, x: Any, g: Any, mean: Any, rstd: Any) -> Any:
    """The gradient of a layer norm over the last of four dims."""
    ops, last = fd.ops, [False, False, False, True]
    mean, rstd = (ops.broadcast(t, last) for t in (mean, rstd))
    normal = (x - mean) * rstd
    average, slope = (ops.broadcast(ops.mean(t, 3), last) for t in (g, g * normal))
    return (g - average - normal * slope) * rstd


@pytest.mark.parametrize("dims", [(0, 1, 2, 3), (0, 2, 3, 1)], ids=str)
@pytest.mark.parametrize("known", [False, True], ids=["any sizes", "known sizes"])
def test_norm_backward_of_what_is_permuted(
    dims: tuple[int, ...], known: bool, rng: np.random.Generator
) -> None:
    """The input is stored as [n, h, c, w], its gradient in the order of `dims`."""
    sizes = (2, 3, 4, 8)
    x, g, mean, rstd = (torch.from_numpy(rng.normal(size=sizes[:n])).to(F32) for n in (4, 4, 3, 3))
    stored = x.permute(0, 2, 3, 1).contiguous()
    inputs = [stored, g, mean, rstd]
    fd = FusionDefinition()
    tensors = [fd.define_tensor(list(t.shape) if known else [-1] * t.dim()) for t in inputs]
    dx = norm_backward(fd, fd.ops.permute(tensors[0], [0, 3, 1, 2]), *tensors[1:])
    fd.add_output(row_major(fd, fd.ops.permute(dx, dims), 4))
    (got,) = fd.execute(inputs)
    mean, rstd = mean.double()[..., None], rstd.double()[..., None]
    normal = (x.double() - mean) * rstd
    average, slope = (t.mean(3, keepdim=True) for t in (g.double(), g.double() * normal))
    want = ((g.double() - average - normal * slope) * rstd).permute(dims)
    assert torch.allclose(got.double(), want, rtol=1e-5, atol=1e-5)


def random_graph(
    rng: np.random.Generator, fd: FusionDefinition, sizes: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """Random definitions of tensors with any order of dims, some with fewer dims; sums, products
    and reductions of them; outputs with any order. Returns the shapes of the inputs."""
    rank, shapes, values = len(sizes), [], []
    for _ in range(rng.integers(1, 5)):
        kept = sorted(rng.permutation(rank)[: rng.integers(max(1, rank - 2), rank + 1)])
        order = [kept[i] for i in rng.permutation(len(kept))]
        shapes.append(tuple(sizes[d] for d in order))
        t = fd.ops.permute(fd.define_tensor([-1] * len(order)), [order.index(d) for d in kept])
        values.append(fd.ops.broadcast(t, [d not in kept for d in range(rank)]))
    for _ in range(rng.integers(1, 7)):
        a, b = (values[rng.integers(len(values))] for _ in range(2))
        axes = [int(d) for d in rng.permutation(rank)[: rng.integers(1, rank)]]
        made = (
            lambda a=a, b=b: a + b,
            lambda a=a, b=b: a * b,
            lambda a=a, b=b, axes=axes: (
                fd.ops.broadcast(fd.ops.sum(a, axes), [d in axes for d in range(rank)]) + b
            ),
        )
        values.append(made[rng.integers(3)]())
    for value in values[-2:]:
        order = [int(d) for d in rng.permutation(rank)]
        fd.add_output(row_major(fd, fd.ops.permute(value + values[0], order), rank))
    return shapes


def test_any_mix_of_layouts_is_planned() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        fd = FusionDefinition()
        sizes = tuple(int(n) for n in rng.choice([1, 2, 3, 8, 16, 33], size=rng.integers(2, 6)))
        assert kernels_for(fd, random_graph(rng, fd, sizes)), seed
