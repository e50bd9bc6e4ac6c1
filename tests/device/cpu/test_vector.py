"""Rows of the op table on vectors, in every compute dtype and instruction set, compared with
fuser.ops.reference; and which blocks a CPU kernel contains.

Run with -s to print the largest error of each op.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest
import torch

from csrc.device.embed import read_blocks
from fuser import _core
from tests.device.cpu.programs import ISAS, Functions, build, op_program, run, runnable
from tests.device.programs import COMPUTE, result_dtype
from tests.ops.accuracy import check
from tests.ops.cases import cases

DEVICE = Path(__file__).parents[3] / "csrc" / "device"

DENSE = 1 << 17  # samples per op of floats, over its domain and over all bit patterns

# Vectors of one register, of several, and of a fraction of one. The widest instruction set runs
# every dtype, the others the ones with vector forms.
WIDEST = runnable()[0]
LANES = {"avx512": 16, "avx2": 16, "generic": 4, "aarch64": 8}
BUILDS = [
    (isa, dtype)
    for isa in runnable()
    for dtype in COMPUTE
    if isa == WIDEST or dtype in {torch.bool, torch.int32, torch.float32, torch.float64}
]


@pytest.fixture(scope="module", params=BUILDS, ids=lambda key: f"{key[0]}-{COMPUTE[key[1]]}")
def built(request: pytest.FixtureRequest) -> tuple[torch.dtype, list[object], Functions]:
    isa, dtype = request.param
    program = op_program(dtype, LANES[isa])
    return dtype, program.rows, build(program.text, isa)


def patterns(dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Floats of all binades: random bits."""
    bits = torch.randint(-(2**31), 2**31, (DENSE * dtype.itemsize // 4,), generator=generator)
    return bits.to(torch.int32).view(dtype)


# One test for all rows: a row takes milliseconds.
def test_ops(
    built: tuple[torch.dtype, list[object], Functions], request: pytest.FixtureRequest
) -> None:
    dtype, rows, library = built
    seed = request.config.option.seed
    print(f"seed {seed}: repeat with --seed={seed}")
    for row in rows:
        generator = torch.Generator().manual_seed(seed + zlib.crc32(row.name.encode()))
        name, result = f"{row.name}_{COMPUTE[dtype]}", result_dtype(row, dtype)
        samples = [cases(row.name, dtype, generator)]
        if dtype.is_floating_point and row.rule != "Condition":
            samples.append(tuple(patterns(dtype, generator) for _ in range(row.arity)))
            samples.append(cases(row.name, dtype, generator, DENSE))
        worst = 0.0
        for inputs in samples:
            got = run(library, name, inputs, torch.empty(len(inputs[0]), dtype=result))
            worst = max(worst, check(row, inputs, got, dtype))
        print(f"{name}: largest error {worst:.3g} ULP, stated {row.ulp:g}")


def test_every_instruction_set_compiles_here_or_is_known() -> None:
    """Compiling for another instruction set needs no processor that has it."""
    program = op_program(torch.float32, 8, lambda row: row.name in {"add", "exp", "where"})
    for isa in ISAS:
        build(program.text, isa)


def test_a_kernel_contains_what_it_names() -> None:
    text = _core.cpu_text("Vec<f32, 8> f(Vec<f32, 8> x) { return exp_(x); }")
    assert "exp_(Vec<" in text
    for other in ("lgamma_", "bf16", "__shfl", "thread_x"):
        assert other not in text


def test_blocks_name_the_types_that_others_use() -> None:
    """A kernel contains a block only if it names the block's names."""
    blocks = [block for block in read_blocks(DEVICE) if block.machines != "Gpu"]
    named = {name for block in blocks for name in block.names.split()}
    for block in blocks:
        for name in (
            set(re.findall(r"^struct (?:alignas\(\d+\) )?(\w+)", block.text, re.MULTILINE)) - named
        ):
            users = [b.names for b in blocks if re.search(rf"\b{name}\b", b.text)]
            assert users == [block.names], f"{name} of the block {block.names} is used by {users}"


def test_kernels_of_gpus_contain_no_vectors() -> None:
    assert "Vec" not in _core.device_text("maximum_(to<f32>(x), load_access_(where_(a, b, c)))")


# ---- scalars beside vectors


def test_scalars_spread_over_lanes() -> None:
    """A scalar operand of an op counts as a vector of equal lanes."""
    expressions = {
        "add_left": "2.0f + x",
        "divide": "1 / x",
        "maximum": "maximum_(x, 0.5f)",
        "minimum": "minimum_(0.5f, x)",
        "clamp": "clamp_(x, -1.0f, 1.0f)",
        "fma": "fma_rn(x, 2.0f, 0.25f)",
        "where_one": "where_(x < 0.0f, x, 0.0f)",
        "where_both": "where_(x < 0.0f, -1.0f, 1.0f)",
        "pow": "pow_(x, 2.0f)",
    }
    functions = "".join(
        f'extern "C" void {name}_f32(i64 n, const f32* a, const void*, const void*, f32* out) {{\n'
        f"  for (i64 i = 0; i < n; i += 8) {{\n"
        f"    const Vec<f32, 8> x = load<f32, 8>(a + i);\n"
        f"    store(out + i, {text});\n  }}\n}}\n"
        for name, text in expressions.items()
    )
    library = build(functions, WIDEST)
    x = torch.linspace(-3, 3, 64)
    expected = {
        "add_left": 2 + x,
        "divide": 1 / x,
        "maximum": x.clamp(min=0.5),
        "minimum": x.clamp(max=0.5),
        "clamp": x.clamp(-1, 1),
        "fma": (2 * x.double() + 0.25).float(),
        "where_one": torch.where(x < 0, x, 0.0),
        "where_both": torch.where(x < 0, -1.0, 1.0),
        "pow": x**2,
    }
    for name, wanted in expected.items():
        got = run(library, f"{name}_f32", [x], torch.empty_like(x))
        tolerance = 1e-6 if name == "pow" else 0
        torch.testing.assert_close(got, wanted, rtol=tolerance, atol=0)


def test_iota_and_splat() -> None:
    functions = """
extern "C" void count(i64, const void*, const void*, const void*, i64* out) {
  store(out, iota<i64, 16>(5, 3));
  store(out + 16, splat<16>((i64)7));
}
"""
    library = build(functions, WIDEST)
    got = run(library, "count", [torch.zeros(1)], torch.empty(32, dtype=torch.int64))
    assert got.tolist() == [*range(5, 53, 3), *[7] * 16]
