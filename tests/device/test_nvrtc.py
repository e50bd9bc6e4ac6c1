"""The device blocks compile for every GPU, and generate the intended instructions."""

import re

import pytest
from cuda.bindings import nvrtc

from fuser.runtime.cubin import cubin_info
from tests.device import reductions, test_collective, test_copy
from tests.device.launch import compile_cuda
from tests.device.programs import COMPUTE, Program, convert_program, move_program, op_program
from tests.support.nvrtc12 import needs_nvrtc_12, run_under_nvrtc_12

# Kernels with cooperating threads; they must compile without spills.
MEETING = [
    *reductions.all_programs(),
    *test_collective.programs(),
    *test_copy.programs(),
]
PROGRAMS = [*map(op_program, COMPUTE), convert_program(), move_program(), *MEETING]
CLUSTERS = {"clusters", "ranks"}  # requires sm_90


def by_name(program: Program) -> str:
    return program.name


@pytest.mark.parametrize("program", PROGRAMS, ids=by_name)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_compiles(program: Program, architecture: str) -> None:
    if program.name in CLUSTERS and int(architecture[3:]) < 90:
        return
    cubin = compile_cuda(program.text, architecture, nvrtc)
    assert cubin[:4] == b"\x7fELF"
    if program in MEETING:
        assert cubin_info(cubin)[program.name].local_bytes == 0


def for_volta() -> list[Program]:
    return [program for program in PROGRAMS if program.name not in CLUSTERS]


@needs_nvrtc_12
def test_compiles_for_volta() -> None:
    code = """
from cuda.bindings import nvrtc
from tests.device.launch import compile_cuda
from tests.device.test_nvrtc import MEETING, cubin_info, for_volta
for program in for_volta():
    cubin = compile_cuda(program.text, "sm_70", nvrtc)
    assert cubin[:4] == b"\\x7fELF"
    assert program not in MEETING or cubin_info(cubin)[program.name].local_bytes == 0, program.name
    print(program.name)
"""
    assert run_under_nvrtc_12(code).split() == [program.name for program in for_volta()]


def ptx_of(body: str) -> str:
    """PTX for sm_90 of a kernel text, including the device blocks that it uses."""
    from fuser import _core

    error, program = nvrtc.nvrtcCreateProgram(
        (_core.device_text(body) + body).encode(), b"k.cu", 0, [], []
    )
    assert int(error) == 0
    flags = [b"--gpu-architecture=compute_90", b"--std=c++17", b"--fmad=false", b"-default-device"]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    assert int(error) == 0
    ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.decode()


@pytest.mark.parametrize(
    ("device", "count"),
    [("bf16", 8), ("f32", 4), ("f64", 2), ("u8", 16), ("bool", 16), ("c64", 2), ("c128", 1)],
)
def test_moves_sixteen_bytes_at_once(device: str, count: int) -> None:
    ptx = ptx_of(
        f"KERNEL(128) void k(const {device}* __restrict__ a, {device}* __restrict__ out) {{\n"
        f"  const i64 i = ((i64)block_x() * 128 + thread_x()) * {count};\n"
        f"  {device} r[{count}];\n  load<{count}>(r, a + i);\n  store(out + i, r);\n}}\n"
    )
    loads = re.findall(r"ld\.global\.nc\.\S+", ptx)
    stores = re.findall(r"st\.global\.\S+", ptx)
    assert len(loads) == len(stores) == 1, ptx
    assert re.search(r"v4\.\w32|v2\.\w64", loads[0]), loads
    assert re.search(r"v8\.\w16|v4\.\w32|v2\.\w64", stores[0]), stores


@pytest.mark.parametrize(
    "load",
    [
        "load_if(r[k], x + 8 * i, i < n);",
        "UNROLL for (i32 v = 0; v < 8; ++v) r[k][v] = load1_if(x + 8 * i + v, i < n - v);",
    ],
)
def test_nothing_moves_into_the_branch_of_a_load(load: str) -> None:
    """A masked load contains no dependent arithmetic in its branch. The compiler could fold x * 1.5
    - 0.25 of the zero that a masked element yields, and would then move it there for every load."""
    ptx = ptx_of(
        "KERNEL(128) void k(const bf16* __restrict__ x, bf16* __restrict__ out, i32 n) {\n"
        "  bf16 r[4][8];\n"
        "  UNROLL for (i32 k = 0; k < 4; ++k) {\n"
        f"    const i32 i = k * 128 + thread_x();\n    {load}\n  }}\n"
        "  UNROLL for (i32 k = 0; k < 4; ++k) {\n"
        "    UNROLL for (i32 v = 0; v < 8; ++v)\n"
        "      r[k][v] = to<bf16>(to<f32>(r[k][v]) * 1.5f - 0.25f);\n"
        "    store(out + (k * 128 + thread_x()) * 8, r[k]);\n  }\n}\n"
    )
    blocks = [b for b in re.split(r"^\$L\w+:|\bbra\b", ptx, flags=re.M) if "ld.global" in b]
    assert len(re.findall(r"ld\.global", ptx)) in (4, 32)
    assert blocks
    for block in blocks[1:]:
        assert not re.search(r"(mul|sub|add|fma)\S*\.f32|cvt\S*\.bf16", block), block


@pytest.mark.parametrize(
    ("text", "instructions"),
    [
        ("relu_(x)", ["max.NaN.f32"]),
        ("clamp_(x, -1.0f, 2.0f)", ["max.NaN.f32", "min.NaN.f32"]),
        ("sigmoid_half_(x)", ["ex2.approx.ftz.f32", "rcp.approx.ftz.f32"]),
        ("wide_(to<bf16>(x))", ["cvt.rn.bf16.f32"]),
        ("fma_rn(x, x, x)", ["fma.rn.f32"]),
    ],
)
def test_instructions(text: str, instructions: list[str]) -> None:
    body = (
        "KERNEL(128) void k(const f32* a, f32* out) {\n"
        f"  const f32 x = a[thread_x()];\n  out[thread_x()] = {text};\n}}\n"
    )
    if "bf16" in text:
        body = body.replace("const f32 x", "bf16 unused; const f32 x")
    ptx = ptx_of(body)
    for instruction in instructions:
        assert ptx.count(instruction) == 1, f"{instruction} in\n{ptx}"


@pytest.mark.parametrize(
    ("tag", "state", "words"),
    [
        ("Sum", "f32", 1),
        ("Any", "bool", 1),
        ("Max", "f64", 2),
        ("ArgMax", "ArgState<f32>", 3),
        ("Welford", "WelfordState<f32>", 3),
        ("OnlineSoftmax", "OnlineState<f32>", 2),
    ],
)
def test_reduce_lanes_shuffles_only_what_the_state_holds(tag: str, state: str, words: int) -> None:
    ptx = ptx_of(
        f"KERNEL(128) void k(const {state}* a, {state}* out) {{\n"
        f"  {state} s = a[thread_x()];\n  out[thread_x()] = reduce_lanes<{tag}, 32>(s);\n}}\n"
    )
    assert ptx.count("shfl.sync.bfly.b32") == 5 * words


@pytest.mark.parametrize(
    ("device", "count", "instruction"),
    [
        ("f32", 4, "cp.async.cg.shared.global"),
        ("bf16", 8, "cp.async.cg.shared.global"),
        ("f32", 2, "cp.async.ca.shared.global"),
        ("u8", 4, "cp.async.ca.shared.global"),
    ],
)
def test_copies(device: str, count: int, instruction: str) -> None:
    ptx = ptx_of(
        f"KERNEL(128) void k(const {device}* a) {{\n"
        f"  copy_async<{count}>(({device}*)shared_memory() + thread_x() * {count}, a, true);\n"
        "  commit_copies();\n  wait_copies<1>();\n}\n"
    )
    for expected in (instruction, "cp.async.commit_group", "cp.async.wait_group 1"):
        assert ptx.count(expected) == 1, ptx


def test_partials_are_read_past_l1_by_words() -> None:
    ptx = ptx_of(
        "KERNEL(128) void k(WelfordState<f32>* p, ArgState<f32>* q) {\n"
        "  store_partial(p, load_partial(p + 1));\n"
        "  store_partial(q, load_partial(q + 1));\n}\n"
    )
    assert len(re.findall(r"ld\.global\.cg\.\w32", ptx)) == 3, ptx
    assert len(re.findall(r"ld\.global\.cg\.\w64", ptx)) == 2, ptx
