"""Reductions with transposed operands: their tiles are staged through shared memory, or a
transposing kernel copies them, if profitable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuser import FusionDefinition, Plan, UserError, _core, explain, testing
from fuser.ops import as_dtype
from fuser.runtime import toolkit
from fuser.runtime.cubin import cubin_info
from tests.support.reducing import kernels_for

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
Build = Callable[..., list[Any]]

LARGE, SMALL = (64, 196, 768), (4, 196, 768)
# Rows in which only single 2-byte elements are adjacent, and rows too long for a staging tile.
ODD, LONG = (64, 197, 768), (16, 196, 8192)


def turned(fd: FusionDefinition, t: Any) -> Any:
    return fd.ops.permute(t, [0, 2, 1])


def rows(fd: FusionDefinition, t: Any, dtype: torch.dtype) -> Any:
    return fd.ops.stride_order(fd.ops.cast(t, as_dtype(dtype)), [2, 1, 0])


def normal(fd: FusionDefinition, x: Any) -> Any:
    centred = x - fd.ops.mean(x, [2], keepdim=True)
    return centred * fd.ops.rsqrt(fd.ops.mean(centred * centred, [2], keepdim=True) + 1e-5)


def reads(fd: FusionDefinition, dtype: torch.dtype, x: Any, y: Any) -> list[Any]:
    total = x + turned(fd, y)
    return [rows(fd, total, dtype), rows(fd, normal(fd, total), dtype)]


def reads_exact(x: Tensor, y: Tensor) -> list[Tensor]:
    total = x + y.transpose(1, 2)
    return [total, normal_exact(total)]


def normal_exact(x: Tensor) -> Tensor:
    centred = x - x.mean(2, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(2, keepdim=True) + 1e-5)


def stores(fd: FusionDefinition, dtype: torch.dtype, x: Any, y: Any) -> list[Any]:
    return [rows(fd, turned(fd, normal(fd, x + y)), dtype)]


def stores_both(fd: FusionDefinition, dtype: torch.dtype, x: Any, y: Any) -> list[Any]:
    y = normal(fd, x + y)
    return [rows(fd, y, dtype), rows(fd, turned(fd, y), dtype)]


def columns(fd: FusionDefinition, dtype: torch.dtype, x: Any, y: Any) -> list[Any]:
    """A gradient: row reductions with a transposed operand, and column sums."""
    y = turned(fd, y)
    slope = fd.ops.mean(x * y, [2], keepdim=True)
    return [rows(fd, x - y * slope, dtype), fd.ops.sum(x * y, [0, 1])]


def columns_exact(x: Tensor, y: Tensor) -> list[Tensor]:
    y = y.transpose(1, 2)
    return [x - y * (x * y).mean(2, keepdim=True), (x * y).sum((0, 1))]


def turns(fd: FusionDefinition, dtype: torch.dtype, x: Any, y: Any) -> list[Any]:
    """All operands are transposed, as after a convolution."""
    return [rows(fd, normal(fd, turned(fd, x) * turned(fd, y)), dtype)]


# Definition, transposed operands, float64 reference, schedulers of the kernels if operands are
# copied.
Case = tuple[Build, tuple[bool, bool], Callable[..., list[Tensor]], list[str]]
CASES: dict[str, Case] = {
    "reads": (reads, (False, True), reads_exact, ["transpose", "inner"]),
    "turns": (
        turns,
        (True, True),
        lambda x, y: [normal_exact((x * y).transpose(1, 2))],
        ["outer", "transpose"],
    ),
    "stores": (
        stores,
        (False, False),
        lambda x, y: [normal_exact(x + y).transpose(1, 2)],
        ["inner", "transpose"],
    ),
    "stores both": (
        stores_both,
        (False, False),
        lambda x, y: [normal_exact(x + y), normal_exact(x + y).transpose(1, 2)],
        ["inner", "transpose"],
    ),
    "columns": (columns, (False, True), columns_exact, ["transpose", "inner_outer"]),
}


def define(name: str, dtype: torch.dtype) -> FusionDefinition:
    fd = FusionDefinition()
    x, y = (fd.define_tensor([-1] * 3, dtype=as_dtype(dtype)) for _ in range(2))
    for result in CASES[name][0](fd, dtype, x, y):
        fd.add_output(result)
    return fd


def shapes(name: str, shape: tuple[int, int, int]) -> list[tuple[int, ...]]:
    b, t, c = shape
    return [(b, c, t) if across else shape for across in CASES[name][1]]


def kernels(
    name: str, shape: tuple[int, int, int], arch: int = 90, dtype: torch.dtype = BF16
) -> list[dict[str, Any]]:
    return kernels_for(define(name, dtype), shapes(name, shape), arch, text=True)


@pytest.mark.parametrize("arch", [70, 80, 90])
@pytest.mark.parametrize("name", ["reads", "stores", "stores both"])
def test_large_ones_cross_shared_memory(name: str, arch: int) -> None:
    (kernel,) = kernels(name, LARGE, arch)
    plan = kernel["plan"]
    assert plan["scheduler"] == "inner"
    assert plan["staged"].bit_count() == 1
    assert plan["rows_per_vector"] == 4, "196 is a multiple of four elements"
    assert plan["threads_x"] <= 32, "no row waits for another warp"
    assert plan["threads_y"] * plan["rows_per_thread"] * plan["rows_per_vector"] % 16 == 0


def test_results_tell_how_rows_lie() -> None:
    """A norm over channels between two layouts stages one transposed operand through a tile; with
    two of them it reduces along the columns."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1] * 3, dtype=as_dtype(BF16))
    fd.add_output(rows(fd, normal(fd, turned(fd, x)), BF16))
    (kernel,) = kernels_for(fd, [(64, 768, 196)])
    assert (kernel["plan"]["scheduler"], kernel["plan"]["staged"]) == ("inner", 1)
    found = [k["plan"]["scheduler"] for k in kernels("turns", LARGE)]
    assert found == ["outer", "transpose"]


@pytest.mark.parametrize("shape", [ODD, LONG], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_others_are_copied(name: str, shape: tuple[int, int, int]) -> None:
    found = [k["plan"]["scheduler"] for k in kernels(name, shape)]
    if shape == ODD or name not in ("columns", "turns"):
        assert found == CASES[name][3]


def test_single_elements_of_four_bytes_cross_as_well() -> None:
    (kernel,) = kernels("reads", ODD, dtype=F32)
    assert (kernel["plan"]["staged"], kernel["plan"]["rows_per_vector"]) == (2, 1)


@pytest.mark.parametrize("shape", [LARGE, ODD], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_rows_are_moved_by_vectors_then(name: str, shape: tuple[int, int, int]) -> None:
    """All accesses are vectorized, except for tensors with one element per row."""
    for kernel in kernels(name, shape):
        plan = kernel["plan"]
        if plan["scheduler"] == "transpose":
            assert (plan["vector_x"] * plan["vector_y"], plan["vectorized"]) == (
                32,
                3,
            ) or shape == ODD
        elif plan["scheduler"] != "outer":
            assert plan["vector"] == 8
            assert "load1(" not in kernel["cuda"].text.partition("KERNEL")[2]


def test_short_rows_share_larger_tiles() -> None:
    """Vectors cover 16 bytes; tiles have 24 KB for short rows and 32 rows for long ones."""
    tiles = {96: 128, 192: 64, 384: 32, 768: 32, 1024: 32}
    for length, wanted in tiles.items():
        (kernel,) = kernels("reads", (128, 3136, length))
        plan = kernel["plan"]
        assert (plan["threads_y"] * plan["rows_per_thread"], plan["rows_per_vector"]) == (
            wanted,
            8,
        ), length


@pytest.mark.parametrize("name", [n for n in CASES if n != "turns"])
def test_small_ones_are_one_kernel(name: str) -> None:
    shape = SMALL if any(CASES[name][1]) else (1, 196, 768)
    (kernel,) = kernels(name, shape)
    assert not kernel["plan"].get("staged", 0)


def test_neighbours_in_a_sector_are_read_together() -> None:
    """If four rows are adjacent in memory, reads of single elements use complete sectors, so no
    tile is staged."""
    (kernel,) = kernels("reads", (64 * 49, 4, 768))
    assert not kernel["plan"]["staged"]


def test_what_is_stored_in_both_layouts_is_copied_from_there() -> None:
    """A result stored in both layouts is materialized, and its transposed copy read from there:
    three results, one read. Without the second layout a temporary is materialized instead. A
    staging tile stores both layouts."""
    for shape, traffic in {(16, 97, 768): (5, 5), (16, 96, 512): (4, 3)}.items():
        inputs = [torch.zeros(shape, dtype=BF16) for _ in range(2)]
        size = inputs[0].nbytes
        assert explain(define("stores both", BF16), inputs).bytes == traffic[0] * size
        assert explain(define("stores", BF16), inputs).bytes == traffic[1] * size


def test_changed_plans(rng: np.random.Generator) -> None:
    """Plans with other numbers of threads and rows give equal results bit for bit; plans that
    violate a tile's constraints are rejected."""
    fd = define("reads", BF16)
    inputs = [torch.from_numpy(rng.normal(size=s)).to(BF16) for s in shapes("reads", (64, 40, 512))]
    plan = fd.plan(inputs)
    assert (
        plan.staged,
        plan.rows_per_vector,
        plan.threads_x,
        plan.threads_y,
        plan.rows_per_thread,
    ) == (2, 8, 16, 16, 1)
    want = fd.execute(inputs)
    for changes in ({"threads_y": 8, "rows_per_thread": 2}, {"threads_y": 8}):
        got = fd.execute(inputs, plan=plan.replace(**changes))
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    for changes in (
        {"rows_per_vector": 16},
        {"rows_per_thread": 2},
        {"threads_y": 4},
        {"staged": 1},
    ):
        with pytest.raises(UserError, match="is not allowed"):
            fd.execute(inputs, plan=plan.replace(**changes))


@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64], ids=str)
@pytest.mark.parametrize(
    "shape", [(5, 211, 1030), (16, 96, 768), (33, 76, 424), (8, 1030, 128), (701, 49, 32)], ids=str
)
def test_values(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    rng: np.random.Generator,
    set_option: Callable[[str, Any], None],
) -> None:
    """Values compared with float64: error bounds for sums of a thousand products plus one rounding
    of the result."""
    set_option("FUSER_HOST_DEBUG", 1)
    tolerance = max(2e-5 if dtype != F64 else 1e-12, 2 * torch.finfo(dtype).eps)
    made = []
    for name in CASES:
        inputs = [torch.from_numpy(rng.normal(size=s)).to(dtype) for s in shapes(name, shape)]
        made.append((name, define(name, dtype), inputs))
    testing.compile_batch((fd, inputs) for _, fd, inputs in made)
    for name, fd, inputs in made:
        assert len(fd.execute(inputs)) == len(CASES[name][2](*inputs))
        for got, want in zip(
            fd.execute(inputs), CASES[name][2](*(x.double() for x in inputs)), strict=True
        ):
            scale = float(want.abs().max())
            assert got.shape == want.shape
            assert float((got.double() - want).abs().max()) <= tolerance * scale, name


def test_in_place(rng: np.random.Generator) -> None:
    """The sum overwrites its row-major operand, or its transposed operand."""
    for target, length in ((0, 768), (1, 768), (0, 256), (1, 256)):
        shape = (64, 96, length)
        fd = FusionDefinition()
        tensors = [fd.define_tensor([-1] * 3) for _ in range(2)]
        total = tensors[0] + turned(fd, tensors[1])
        fd.add_output(rows(fd, normal(fd, total), F32))
        fd.add_output(turned(fd, total) if target else total, tensors[target])
        inputs = [torch.from_numpy(rng.normal(size=s)).to(F32) for s in (shape, (64, length, 96))]
        want = reads_exact(*(x.double() for x in inputs))
        (got,) = fd.execute(inputs)
        assert torch.allclose(got.double(), want[1], rtol=0, atol=2e-5)
        stored = inputs[target].transpose(1, 2) if target else inputs[target]
        assert torch.allclose(stored.double(), want[0], rtol=0, atol=1e-6)


# ---- Gradients of norms: row reductions with transposed operands, and column sums


@dataclass(frozen=True)
class Gradient:
    """Gradient of a layer norm (centred) or RMS norm over the channels of [images, tokens,
    channels]. across: dy, x, dx are stored as [images, channels, tokens]. past: the residual's
    gradient is added to dx."""

    centred: bool = True
    across: tuple[bool, bool, bool] = (True, False, False)
    past: bool = False

    def shapes(self, shape: tuple[int, int, int]) -> list[tuple[int, ...]]:
        b, t, c = shape
        rows = [(b, c, t) if across else shape for across in self.across[:2]]
        return [*rows, (b, t, 1), (b, t, 1), (c,), *[shape] * self.past]

    def define(self, dtypes: Sequence[torch.dtype], into: int | None = None) -> FusionDefinition:
        """dtypes: of dy, x and the computation; `into`: the input that dx overwrites."""
        fd, wide = FusionDefinition(), as_dtype(dtypes[2])
        types = [*dtypes[:2], *[dtypes[2]] * 3, *[dtypes[1]] * self.past]
        ranks = [3, 3, 3, 3, 1, 3]
        tensors = [
            fd.define_tensor([-1] * rank, dtype=as_dtype(t))
            for rank, t in zip(ranks, types, strict=False)
        ]
        dy, x = (
            fd.ops.cast(turned(fd, t) if across else t, wide)
            for t, across in zip(tensors[:2], self.across[:2], strict=True)
        )
        mean, rstd, weight = tensors[2:5]
        scaled, hat = dy * weight, (x - mean if self.centred else x) * rstd
        dx = scaled - hat * fd.ops.mean(scaled * hat, [2], keepdim=True)
        dx = (dx - fd.ops.mean(scaled, [2], keepdim=True) if self.centred else dx) * rstd
        if self.past:
            dx = dx + fd.ops.cast(tensors[5], wide)
        dx = turned(fd, dx) if self.across[2] else dx
        if into is None:
            fd.add_output(rows(fd, dx, dtypes[1]))
        else:
            fd.add_output(dx, tensors[into])
        fd.add_output(fd.ops.sum(dy * hat, [0, 1]))
        if self.centred:
            fd.add_output(fd.ops.sum(dy, [0, 1]))
        return fd

    def inputs(
        self, shape: tuple[int, int, int], dtypes: Sequence[torch.dtype], rng: np.random.Generator
    ) -> list[Tensor]:
        dy, x, _, _, weight, *past = (
            torch.from_numpy(rng.normal(size=s)) for s in self.shapes(shape)
        )
        dy, x, past = dy.to(dtypes[0]), x.to(dtypes[1]), [t.to(dtypes[1]) for t in past]
        wide = (x.transpose(1, 2) if self.across[1] else x).double()
        mean = wide.mean(2, keepdim=True) if self.centred else torch.zeros_like(wide[..., :1])
        rstd = torch.rsqrt((wide - mean).square().mean(2, keepdim=True) + 1e-5)
        return [dy, x, *(t.to(dtypes[2]) for t in (mean, rstd, weight)), *past]

    def exact(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Gradients by autograd in float64."""
        dy, x = (
            (t.transpose(1, 2) if across else t).double()
            for t, across in zip(inputs[:2], self.across[:2], strict=True)
        )
        x = x.contiguous().requires_grad_()
        weight = inputs[4].double().requires_grad_()
        bias = torch.zeros_like(weight, requires_grad=True)
        if self.centred:
            y = torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)
        else:
            y = torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5)
        wanted = [x, weight, bias] if self.centred else [x, weight]
        dx, *columns = torch.autograd.grad(y, wanted, dy)
        if self.past:
            dx = dx + inputs[5].double()
        return [dx.transpose(1, 2) if self.across[2] else dx, *columns]

    def check(self, got: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        """Assert errors of a few float32 roundings relative to the largest result, including the
        saved statistics', plus one rounding of the stored result."""
        for value, want in zip(got, self.exact(inputs), strict=True):
            eps = 1e-12 if inputs[2].dtype == F64 else 2e-5
            tolerance = max(eps, 2 * torch.finfo(value.dtype).eps)
            assert value.shape == want.shape
            error = float((value.double() - want).abs().max())
            assert error <= tolerance * float(want.abs().max()), (self, want.shape)


GRADIENTS = [
    Gradient(),
    Gradient(past=True),
    Gradient(across=(False, True, False), past=True),
    Gradient(across=(False, False, True)),
    Gradient(across=(True, False, True), past=True),
    Gradient(centred=False),
    Gradient(centred=False, across=(False, True, True), past=True),
]


def made(dy: torch.dtype, x: torch.dtype) -> list[torch.dtype]:
    return [dy, x, F64 if F64 in (dy, x) else F32]


@pytest.mark.parametrize(
    ("shape", "dtypes"),
    [
        ((5, 212, 1032), (BF16, BF16)),
        ((16, 96, 768), (F16, F16)),
        ((33, 76, 424), (F32, F32)),
        ((8, 1030, 128), (F64, F64)),
        ((21, 196, 256), (F32, F16)),
        ((632, 52, 32), (BF16, F32)),
    ],
    ids=str,
)
def test_gradients(
    shape: tuple[int, int, int],
    dtypes: tuple[torch.dtype, torch.dtype],
    rng: np.random.Generator,
    set_option: Callable[[str, Any], None],
) -> None:
    """Shapes with incomplete vectors and incomplete tiles; repeated calls are equal bit for bit."""
    set_option("FUSER_HOST_DEBUG", 1)
    types = made(*dtypes)
    todo = [(g, g.define(types), g.inputs(shape, types, rng)) for g in GRADIENTS]
    testing.compile_batch((fd, inputs) for _, fd, inputs in todo)
    for gradient, fd, inputs in todo:
        got = fd.execute(inputs)
        gradient.check(got, inputs)
    assert all(torch.equal(a, b) for a, b in zip(fd.execute(inputs), got, strict=True))


@pytest.mark.parametrize("number", range(6))
def test_random_gradients(
    number: int, rng: np.random.Generator, set_option: Callable[[str, Any], None]
) -> None:
    set_option("FUSER_HOST_DEBUG", 1)
    length, tokens = int(rng.choice([32, 96, 160, 512])), int(rng.choice([33, 48, 98, 196, 1000]))
    images = (1 << 20) // (length * tokens) + int(rng.integers(1, 8))
    sides = rng.integers(1, 8)
    gradient = Gradient(
        centred=bool(rng.integers(2)),
        across=(bool(sides & 1), bool(sides & 2), bool(sides & 4)),
        past=bool(rng.integers(2)),
    )
    dtypes = [[BF16, F16, F32, F64][i] for i in rng.integers(4, size=2)]
    inputs = gradient.inputs((images, tokens, length), made(*dtypes), rng)
    gradient.check(gradient.define(made(*dtypes)).execute(inputs), inputs)


@pytest.mark.parametrize("arch", [75, 80, 90])
@pytest.mark.parametrize("dtype", [BF16, F32, F64], ids=str)
@pytest.mark.parametrize("length", [96, 768, 1024])
def test_gradients_are_one_kernel(length: int, dtype: torch.dtype, arch: int) -> None:
    """A gradient is one kernel without spills whose blocks are resident together."""
    device = _core.known_device(arch)
    for gradient in GRADIENTS if length == 768 else GRADIENTS[:2]:
        types = made(dtype, dtype)
        found = kernels_for(
            gradient.define(types), gradient.shapes((64, 196, length)), arch, text=True
        )
        if arch == 75 and length > 96:  # 64 KB of shared memory
            continue
        (kernel,) = found
        plan, cuda = kernel["plan"], kernel["cuda"]
        assert plan["scheduler"] == "inner_outer"
        assert plan["staged"].bit_count() == sum(gradient.across)
        assert plan["threads_x"] * plan["unroll"] * plan["vector"] >= length
        rows_of_tile = plan["threads_y"] * max(1, plan["rows_per_thread"])
        dtypes_of_tile = 1 if gradient.across[2] else sum(gradient.across)
        shared = cuda.shared_bytes + rows_of_tile * length * dtype.itemsize * dtypes_of_tile
        assert plan["min_blocks_per_sm"] * (shared + 1024) <= device.shared_per_sm
        assert plan["grid_blocks"] == device.sms * plan["min_blocks_per_sm"]
        compiled = toolkit.compile(cuda.name, cuda.text, arch)
        used = cubin_info(compiled.cubin)[cuda.name]
        assert used.local_bytes == 0
        threads = plan["threads_x"] * plan["threads_y"]
        assert used.registers * threads * plan["min_blocks_per_sm"] <= device.registers_per_sm


def test_changed_plans_of_gradients(rng: np.random.Generator) -> None:
    gradient, types = Gradient(past=True), made(BF16, F32)
    fd, inputs = gradient.define(types), gradient.inputs((632, 52, 32), types, rng)
    plan = fd.plan(inputs)
    assert isinstance(plan, Plan)
    fields = ("scheduler", "staged", "threads_x", "threads_y", "unroll", "rows_per_thread")
    assert tuple(plan[f] for f in fields) == ("inner_outer", 1, 8, 32, 1, 2)
    for changes in (
        {"num_stages": 0, "prefetch_tiles": 0},
        {"num_stages": 1, "prefetch_tiles": 1},
        {"num_stages": 2, "prefetch_tiles": 1},
        {"num_stages": 3, "prefetch_tiles": 1, "rows_per_thread": 1},
        {"num_stages": 0, "prefetch_tiles": 1, "threads_y": 16},
        {"rows_per_thread": 1},
        {"threads_y": 16, "rows_per_thread": 4},
        {"threads_x": 4, "unroll": 2},
        {"grid_blocks": 1},
    ):
        gradient.check(fd.execute(inputs, plan=plan.replace(**changes)), inputs)
    for changes in (
        {"rows_per_vector": 8},
        {"rows_per_thread": 4},
        {"rows_per_thread": 3},
        {"num_stages": 4},
        {"threads_y": 64},
        {"threads_x": 4},
        {"threads_y": 1, "rows_per_thread": 4},
        {"staged": 2},
    ):
        with pytest.raises(UserError, match="is not allowed"):
            fd.execute(inputs, plan=plan.replace(**changes))


@pytest.mark.parametrize("across", [False, True])
def test_gradients_in_place(across: bool, rng: np.random.Generator) -> None:
    """dx overwrites dy, which is transposed, or x."""
    gradient = Gradient(across=(across, False, across))
    fd = gradient.define(made(F32, F32), into=0 if across else 1)
    inputs = gradient.inputs((64, 96, 256), made(F32, F32), rng)
    before = [t.clone() for t in inputs]
    columns = fd.execute(inputs)
    gradient.check([inputs[0 if across else 1], *columns], before)


# Reductions along rows of a value over [images, tokens, channels] with a weight per channel, and
# their float64 references.
ROWS: dict[str, tuple[Callable[..., Any], Callable[[Tensor], Tensor]]] = {
    "softmax": (lambda ops, z: ops.softmax(z, 2), lambda z: z.softmax(2)),
    "max": (lambda ops, z: z - ops.max(z, [2], keepdim=True), lambda z: z - z.amax(2, True)),
    "var": (
        lambda ops, z: z * ops.rsqrt(ops.var(z, [2], correction=1, keepdim=True) + 1.0),
        lambda z: z * torch.rsqrt(z.var(2, correction=1, keepdim=True) + 1),
    ),
    "sum": (lambda ops, z: z + ops.sum(z, [2], keepdim=True), lambda z: z + z.sum(2, keepdim=True)),
}


@pytest.mark.parametrize("number", range(12))
def test_random_programs(
    number: int, rng: np.random.Generator, set_option: Callable[[str, Any], None]
) -> None:
    """Random programs with one to three operands of any dtype, some transposed, and one or two
    results. Compared with float64: sums of 512 in float32, relative to the largest result."""
    set_option("FUSER_HOST_DEBUG", 1)
    length, tokens = int(rng.choice([32, 96, 160, 512])), int(rng.choice([33, 48, 98, 196, 1000]))
    images = (1 << 20) // (length * tokens) + int(rng.integers(1, 8))
    fd, inputs, wide = FusionDefinition(), [], []
    total: Any = 0.0
    for i in range(rng.integers(1, 4)):
        dtype = [F16, BF16, F32, F64, torch.int8, torch.int32][rng.integers(6)]
        across = i == 0 or rng.random() < 0.5
        shape = (images, length, tokens) if across else (images, tokens, length)
        inputs.append(torch.from_numpy(rng.integers(-9, 9, shape) / 2).to(dtype))
        x = fd.define_tensor([-1] * 3, dtype=as_dtype(dtype))
        total = total + fd.ops.cast(turned(fd, x) if across else x, as_dtype(F32))
        wide.append((inputs[-1].transpose(1, 2) if across else inputs[-1]).double())
    name = list(ROWS)[rng.integers(len(ROWS))]
    z, want = total * 0.25, ROWS[name][1](sum(wide) * 0.25)
    turn = [bool(t) for t in rng.integers(2, size=2)]
    for result, across in zip((ROWS[name][0](fd.ops, z), z), turn, strict=True):
        fd.add_output(rows(fd, turned(fd, result) if across else result, F32))
    got = fd.execute(inputs)
    for value, exact, across in zip(got, (want, sum(wide) * 0.25), turn, strict=True):
        exact = exact.transpose(1, 2) if across else exact
        scale = max(1.0, float(exact.abs().max()))
        assert float((value.double() - exact).abs().max()) <= 1e-5 * scale, (name, inputs[0].shape)
