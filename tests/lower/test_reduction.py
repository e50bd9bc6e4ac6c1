"""Kernels with reductions: every code path of csrc/lower/build/reduction, run with all checks of
the host executor's debug mode, compared with float64.

The code path depends on the shape and the GPU generation that the host executor emulates. Each case
states the expected plan fields, so that no code path is lost.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from fuser import FusionDefinition, _core
from fuser.ops import as_dtype
from fuser.testing import compile_batch
from tests.support.reducing import (
    PROGRAMS,
    REGISTERS,
    RELOAD,
    SHARED,
    Inputs,
    assert_close,
    kernels_for,
    random_inputs,
)

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16


@dataclass(frozen=True)
class Case:
    program: str
    shape: tuple[int, ...]
    arch: int = 80
    dtype: torch.dtype = F32
    plan: dict[str, int] = field(default_factory=dict, hash=False)  # of the first kernel
    scheduler: str = "inner"
    kernels: int = 1

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"{self.program}-{size}-{str(self.dtype).removeprefix('torch.')}-sm_{self.arch}"


def case(program: str, *shape: int, **fields: Any) -> Case:
    own = {k: fields.pop(k) for k in tuple(fields) if k in Case.__dataclass_fields__}
    return Case(program, shape, plan=fields, **own)


NORM_BACKWARD = {"scheduler": "inner_outer"}
COLUMNS = {"scheduler": "outer"}

CASES = [
    # Rows in registers, reduced by at most a warp or by a block. Short odd rows: packed rows.
    case("softmax", 37, 8, persistent_in=REGISTERS, vector=4),
    case("softmax", 5, 256, persistent_in=REGISTERS, vector=4),
    case("softmax", 9, 7, persistent_in=SHARED, vector=1, packed=3),
    case("softmax", 3, 1, scheduler="pointwise"),
    case("layer_norm", 7, 1000, persistent_in=REGISTERS, vector=4),
    case("layer_norm", 7, 1000, dtype=BF16, persistent_in=REGISTERS, vector=8),
    case("rms_norm", 4, 96, dtype=F16, persistent_in=REGISTERS, vector=8),
    case("softmax", 6, 130, dtype=F64, persistent_in=REGISTERS, vector=2),
    case("softmax", 6, 129, dtype=F64, persistent_in=SHARED, vector=1, packed=3),
    case("over_norm", 3, 500, persistent_in=REGISTERS),
    case("layer_norm", 3, 4000, persistent_in=REGISTERS, threads_x=512, unroll=2),
    # For row lengths that are not a multiple of a vector, loops start at the first aligned element
    # (peel).
    case("softmax", 6, 1021, persistent_in=REGISTERS, peel=1),
    case("rms_norm", 5, 1539, dtype=BF16, persistent_in=REGISTERS, peel=1),
    # Rows in shared memory.
    case("softmax", 3, 9000, dtype=BF16, persistent_in=SHARED, cluster_size=1),
    case("layer_norm", 3, 9000, dtype=BF16, persistent_in=SHARED, cluster_size=1),
    case("softmax", 5, 4001, persistent_in=REGISTERS, peel=1),
    case("layer_norm", 3, 7003, dtype=BF16, persistent_in=REGISTERS, peel=1),
    # Rows that start at every offset within a vector: weights are read unaligned by that offset.
    case("layer_norm", 8, 4097, dtype=BF16, persistent_in=REGISTERS, peel=1),
    case("layer_norm", 8, 4103, dtype=F16, persistent_in=REGISTERS, peel=1),
    case("layer_norm", 4, 4099, persistent_in=REGISTERS, peel=1),
    case("rms_norm", 2, 4095, dtype=F64, peel=1),
    # Rows that start at every offset within a cache line: loops start at the first aligned vector.
    case("rms_norm", 66, 1539, dtype=BF16, persistent_in=REGISTERS, peel=1),
    case("max_rows", 66, 2115, dtype=torch.uint8, peel=1),
    case("layer_norm", 3, 9000, dtype=F16, arch=70, persistent_in=SHARED),
    # Rows reduced by a cluster.
    case("softmax", 2, 33000, arch=90, persistent_in=REGISTERS, cluster_size=8, single_pass=1),
    case("layer_norm", 2, 33001, arch=90, persistent_in=SHARED, cluster_size=8, peel=1),
    case("over_norm", 3, 33000, arch=90, persistent_in=REGISTERS, cluster_size=8),
    # One resident block per SM.
    case("over_norm", 2, 20000, persistent_in=REGISTERS, threads_x=1024),
    # The weights exceed L1, so accesses to the rows are streaming.
    case(
        "layer_norm",
        2,
        20000,
        persistent_in=REGISTERS,
        threads_x=1024,
        streaming=0b1001,
        single_pass=0,
    ),
    case("softmax", 2, 20001, dtype=BF16, persistent_in=REGISTERS, threads_x=512, peel=1),
    # Rows loaded again in each phase, in single-pass form if there is one.
    case("softmax", 2, 33000, persistent_in=RELOAD, single_pass=1),
    case("layer_norm", 2, 33001, persistent_in=RELOAD, single_pass=1, peel=1),
    case("over_norm", 3, 33000, persistent_in=RELOAD, single_pass=0),
    case("layer_norm", 2, 20000, arch=70, dtype=BF16),
    # Pure reductions.
    case("sum_rows", 9, 100, persistent_in=RELOAD, grid_blocks=0),
    case("sum_rows", 3, 999, persistent_in=RELOAD, peel=1),
    case("sum_rows", 300, 1, scheduler="pointwise"),
    case("var_rows", 5, 777),
    case("max_rows", 5, 777, dtype=torch.int32),
    case("argmax_rows", 5, 1234),
    case("argmax_rows", 70, 3, dtype=torch.uint8),
    case("logsumexp", 4, 3000),
    # One long row: many blocks, finished by the last one.
    case("sum_rows", 1, 100_000, grid_blocks=8),
    case("sum_rows", 1, 99_999, grid_blocks=8, peel=1),
    case("logsumexp", 1, 50_001, grid_blocks=8, single_pass=1),
    case("argmax_rows", 1, 50_000, grid_blocks=8),
    case("sum_all", 33, 777, grid_blocks=8),
    case("sum_all", 8, 8, grid_blocks=0),
    case("sum_all", 3, 5, dtype=F64),
    # Values over the row that use the result need a second kernel.
    case("softmax", 1, 100_000, kernels=2, grid_blocks=8),
    # Columns: reduced over threads_y, the grid, and by its last block.
    case("sum_columns", 50, 300, **COLUMNS, grid_blocks=0, vector=4),
    case("sum_columns", 3, 37, **COLUMNS, vector=1),
    case("sum_columns", 5000, 24, **COLUMNS, grid_blocks=8, vector=4),
    case("sum_columns", 5001, 7, **COLUMNS, grid_blocks=8, vector=1),
    case("sum_columns", 3000, 56, dtype=BF16, **COLUMNS, grid_blocks=8, vector=8),
    case("var_columns", 3001, 70, **COLUMNS, kernels=1),
    case("softmax_columns", 50, 300, **COLUMNS, persistent_in=REGISTERS),
    case("softmax_columns", 11, 7, **COLUMNS, persistent_in=REGISTERS),
    case("softmax_columns", 300, 600, **COLUMNS, persistent_in=RELOAD, single_pass=1),
    case("softmax_columns", 300, 40, **COLUMNS, kernels=2, grid_blocks=8),
    case("softmax_columns", 300, 70, **COLUMNS, single_pass=1),
    # Rows and columns in one kernel: a cooperative grid, with prefetched rows since sm_80.
    case("centered", 19, 2048, **NORM_BACKWARD, num_stages=2),
    case("centered", 3, 2004, **NORM_BACKWARD, num_stages=2),
    case("centered", 8, 4096, dtype=BF16, **NORM_BACKWARD, num_stages=2),
    case("centered", 19, 2048, arch=70, **NORM_BACKWARD, num_stages=0),
    case("norm_backward", 40, 256, **NORM_BACKWARD, threads_y=8),
    case("norm_backward", 40, 256, arch=70, **NORM_BACKWARD),
    case("norm_backward", 9, 1000, dtype=BF16, **NORM_BACKWARD),
    case("norm_backward", 37, 33, **NORM_BACKWARD, vector=1),
    case("norm_backward", 1, 64, scheduler="inner"),
    case("norm_backward", 5, 4099, **NORM_BACKWARD, num_stages=0),
    case("norm_backward", 3, 20_000, arch=90, **NORM_BACKWARD, cluster_size=4),
    case("norm_backward", 5, 18_000, dtype=BF16, arch=90, **NORM_BACKWARD, cluster_size=4),
    # Batch norm: one kernel if a channel fits, otherwise fission.
    case("batch_norm", 4, 3, 20, 20),
    case("batch_norm", 3, 5, 7, 3),
    case("batch_norm", 2, 1, 200, 200, kernels=2, grid_blocks=8),
]


@dataclass
class Run:
    fd: FusionDefinition
    inputs: Inputs


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[dict[Case, Run]]:
    """Definitions and inputs of every case, compiled in one batch per GPU generation."""
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    made = {}
    for c in CASES:
        rng = np.random.default_rng([seed, zlib.crc32(str(c).encode())])
        made[c] = Run(
            PROGRAMS[c.program].definition(c.dtype),
            random_inputs(c.program, c.shape, c.dtype, rng),
        )
    before = {n: _core.get_option(n) for n in ("FUSER_HOST_ARCH", "FUSER_HOST_DEBUG")}
    _core.set_option("FUSER_HOST_DEBUG", "1")
    for arch in (70, 80, 90):
        _core.set_option("FUSER_HOST_ARCH", str(arch))
        compile_batch([(r.fd, r.inputs) for c, r in made.items() if c.arch == arch])
    yield made
    for name, value in before.items():
        _core.set_option(name, value)


@pytest.mark.parametrize("c", CASES, ids=str)
def test_paths(c: Case, runs: dict[Case, Run], set_option: Any) -> None:
    set_option("FUSER_HOST_ARCH", c.arch)
    fd, inputs = runs[c].fd, runs[c].inputs
    plans = fd.plan(inputs)
    plans = plans if isinstance(plans, tuple) else (plans,)
    assert len(plans) == c.kernels, plans
    assert plans[0]["scheduler"] == c.scheduler
    assert {name: plans[0][name] for name in c.plan} == c.plan, plans[0]
    exact = PROGRAMS[c.program].exact(inputs)
    got = fd.execute([x.clone() for x in inputs])
    for one, expected in zip(got, exact, strict=True):
        assert_close(one, expected.reshape(one.shape), c.dtype)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("length", [2, 33, 700])
def test_a_single_row_in_place(length: int, dtype: torch.dtype, set_option: Any) -> None:
    """For a single row, threads without a row do not store, so an in-place update is correct."""
    set_option("FUSER_HOST_DEBUG", 1)
    fd = FusionDefinition()
    x = fd.define_tensor([-1], dtype=as_dtype(dtype))
    total = fd.ops.broadcast(fd.ops.sum(x, [0]), [True])
    fd.add_output(fd.ops.cast(x + total, as_dtype(dtype)), x)
    given = torch.arange(length).remainder(3).sub(1).to(dtype)
    exact = given.double() + given.double().sum()
    fd.execute([given])
    assert torch.equal(given.double(), exact)


@pytest.mark.parametrize("length", [4099, 20_001])
def test_vectors_beyond_a_row(length: int, set_option: Any, rng: np.random.Generator) -> None:
    """Vectors beyond a row mask elements between odd rows, and do not read beyond the tensor, as
    checked in debug mode."""
    set_option("FUSER_HOST_ARCH", 90)
    set_option("FUSER_HOST_DEBUG", 1)
    program = PROGRAMS["layer_norm"]
    x, *weights = random_inputs("layer_norm", (3, length), BF16, rng)
    wide = torch.full((3, length + 2), torch.nan, dtype=BF16)
    wide[:, :length] = x
    fd = program.definition(BF16)
    (plan,) = [fd.plan([wide[:, :length], *weights])]
    assert plan["peel"] == 1
    got = fd.execute([wide[:, :length], *weights])
    for one, expected in zip(got, program.exact([x, *weights]), strict=True):
        assert_close(one, expected, BF16)


@pytest.mark.parametrize(("length", "cluster"), [(9001, 2), (33_001, 8)])
def test_rows_of_a_constant_length_lie_in_shared_memory_once(
    length: int, cluster: int, set_option: Any, rng: np.random.Generator
) -> None:
    """Two rows take as much shared memory with a constant length as with a length known at launch
    only, except for the alignment of the latter."""
    set_option("FUSER_HOST_ARCH", 90)
    set_option("FUSER_HOST_DEBUG", 1)
    x, y = (torch.from_numpy(rng.standard_normal((3, length))).to(BF16) for _ in range(2))
    shared = []
    for sizes in ([-1, -1], [3, length]):
        fd = FusionDefinition()
        a, b = (
            fd.ops.cast(fd.define_tensor(sizes, dtype=as_dtype(BF16)), as_dtype(F32)) for _ in "ab"
        )
        var, mean = fd.ops.var_mean(a, [1], keepdim=True)
        centered = (a - mean) * fd.ops.rsqrt(var + 1e-5)
        fd.add_output(fd.ops.cast(centered * fd.ops.max(b, [1], keepdim=True) + b, as_dtype(BF16)))
        (plan,) = [fd.plan([x, y])]
        assert (plan["persistent_in"], plan["cluster_size"]) == (SHARED, cluster)
        (got,) = fd.execute([x, y])
        wide, other = x.double(), y.double()
        spread, middle = torch.var_mean(wide, 1, keepdim=True)
        exact = (wide - middle) / (spread + 1e-5).sqrt() * other.max(1, keepdim=True).values
        assert_close(got, exact + other, BF16)
        (kernel,) = fd.fec.executor.kernels([x, y])
        shared.append(kernel.shared_bytes)
    unknown, known = shared
    assert 0 <= unknown - known < 128, "rows of unknown length start at a line behind the rest"


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "blocks"),
    [
        ("softmax", (4096, 4096), BF16, 0),  # the compiler's choice
        ("softmax_columns", (4096, 4096), F64, 1),  # two registers per number: it would spill
        ("norm_backward", (4096, 1024), F32, 2),  # given by the plan
    ],
)
def test_a_bound_is_stated_where_registers_are_short(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, blocks: int
) -> None:
    program = PROGRAMS[name]
    kernel = kernels_for(program.definition(dtype), program.shapes(*shape), text=True)[0]
    assert f" min_blocks {blocks} " in kernel["ir"]


# ---- Long sums


def long_sums() -> dict[str, tuple[FusionDefinition, list[torch.Tensor], torch.Tensor]]:
    """Sums of 2^20 and more equal values by all code paths: the definition, its inputs, and the
    result in float64."""
    value = torch.tensor(-0.4893736)
    made = {}

    def add(name: str, x: torch.Tensor, dims: list[int], op: str = "sum", wide: int = 0) -> None:
        fd = FusionDefinition()
        t = fd.from_pytorch(x)
        if wide:
            t = fd.ops.broadcast_in_dim(t, [wide], [])
        fd.add_output(getattr(fd.ops, op)(t, dims=dims))
        whole = x.double().expand(wide) if wide else x.double()
        expected = {
            "sum": lambda: whole.sum(dims),
            "mean": lambda: whole.mean(dims),
            "norm": lambda: whole.square().sum(dims).sqrt(),
            "logsumexp": lambda: whole.logsumexp(dims),
        }[op]()
        made[name] = (fd, [x], expected)

    row, column = value.repeat(2, 1 << 20), value.repeat(1 << 20, 2)
    add("everything", value.repeat(1 << 22), [0])
    add("everything, odd", value.repeat((1 << 22) - 77), [0])
    add("everything of a matrix", value.repeat(2048, 2048), [0, 1])
    add("of one value", value, [0], wide=1 << 22)
    for op in ("sum", "mean", "norm", "logsumexp"):
        add(f"rows, {op}", row, [1], op)
        add(f"columns, {op}", column, [0], op)
    add("columns, many", value.repeat(1 << 15, 64), [0])
    add("columns, odd", value.repeat(1 << 15, 33), [0])
    for dtype in (BF16, F16):
        add(f"rows, {dtype}", row.to(dtype), [1], "norm")
        add(f"columns, {dtype}", column.to(dtype), [0], "norm")
    add("rows, float64", row.double() / 3, [1])
    return made


def test_long_sums_of_equal_values_keep_their_digits() -> None:
    """In 19 sums of equal values, additions round in the same direction, so that errors add up.
    Chains are limited: 64 terms, and the sums of 64 terms of a thread."""
    made = long_sums()
    compile_batch((fd, inputs) for fd, inputs, _ in made.values())
    for name, (fd, inputs, expected) in made.items():
        (got,) = fd.execute(inputs)
        exact = 2.0**-8 if got.dtype == BF16 else 2.0**-11 if got.dtype == F16 else 1.3e-6
        bound = 1e-14 if got.dtype == F64 else exact
        error = ((got.double() - expected) / expected).abs().max().item()
        assert error <= bound, (name, error)
