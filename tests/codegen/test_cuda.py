"""csrc/codegen/cuda: Kernel IR printed as CUDA C: golden kernels, statements, names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fuser import DataType, FusionDefinition, _core
from fuser.testing import compile_batch
from tests.support.definitions import bias_gelu, scaled, without_digest
from tests.support.reducing import PROGRAMS, kernels_for

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).resolve().parents[2]
HEAD = "kernel k threads 32 min_blocks 0 index 32 {\n"


def own_text(text: str) -> str:
    """The kernel's own text without device helpers."""
    return text[max(text.rfind("\nKERNEL("), text.rfind("\nKERNEL2(")) + 1 :]


def printed(body: str, index: int = 32) -> list[str]:
    """The statements of a kernel with this body, as CUDA C."""
    kernel = _core.parse_kernel(HEAD.replace("index 32", f"index {index}") + body + "}\n")
    lines = own_text(_core.print_cuda(kernel).text).splitlines()
    return [line.strip() for line in lines[1:-1]]


# ---- golden kernels


def halves(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes, dtype=torch.bfloat16)


CASES = {
    "bias_gelu_aligned": (64, 128),
    "bias_gelu_odd": (63, 127),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    rows, columns = CASES[name]
    text = bias_gelu().cuda_code_for([halves(rows, columns), halves(columns)])
    path = GOLDEN / f"{name}.cu"
    if request.config.option.update_golden:
        path.write_text(without_digest(text))
    assert without_digest(text) == path.read_text(), "pytest --update-golden, and read the diff"


# Kernels with reductions, planned for an H200: rows in registers, rows in shared memory, a
# reduction split over the grid, rows and columns reduced in one kernel.
REDUCTIONS = {
    "softmax_rows": ("softmax", (4096, 1024)),
    "layer_norm_odd_rows": ("layer_norm", (4096, 10_001)),
    "sum_columns": ("sum_columns", (1 << 20, 64)),
    "norm_backward": ("norm_backward", (4096, 4096)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_golden_reductions(name: str, request: pytest.FixtureRequest) -> None:
    program, shape = REDUCTIONS[name]
    fd = PROGRAMS[program].definition(torch.bfloat16)
    (kernel,) = kernels_for(fd, PROGRAMS[program].shapes(*shape), text=True)
    text = without_digest(own_text(kernel["cuda"].text))
    path = GOLDEN / f"{name}.cu"
    if request.config.option.update_golden:
        path.write_text(text)
    assert text == path.read_text(), "pytest --update-golden, and read the diff"


def test_golden_transpose(request: pytest.FixtureRequest) -> None:
    """relu(x).T stored row-major: a thread transposes 8 x 4 elements; rows of the tile are
    rotated."""
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.stride_order(fd.ops.permute(fd.ops.relu(x), [1, 0]), [1, 0]))
    (kernel,) = kernels_for(fd, [(4096, 1024)], text=True)
    text = without_digest(own_text(kernel["cuda"].text))
    path = GOLDEN / "transpose.cu"
    if request.config.option.update_golden:
        path.write_text(text)
    assert text == path.read_text(), "pytest --update-golden, and read the diff"


# ---- names


def test_a_name_ends_in_a_digest_of_the_text() -> None:
    aligned = bias_gelu().fec.executor.kernels([halves(64, 128), halves(128)])[0]
    again = bias_gelu().fec.executor.kernels([halves(32, 64), halves(64)])[0]
    odd = bias_gelu().fec.executor.kernels([halves(63, 127), halves(127)])[0]
    assert aligned.name == again.name
    assert aligned.text == again.text
    assert aligned.name != odd.name
    assert aligned.name[:-8] == odd.name[:-8]
    assert aligned.text.count(aligned.name) == 1


def test_names_are_unique() -> None:
    x = torch.ones(8)
    definitions = [scaled(0.25 * n) for n in range(1, 9)]
    compile_batch([(fd, [x]) for fd in definitions])
    names = [fd.fec.executor.kernels([x])[0].name for fd in definitions]
    assert len(set(names)) == len(definitions)


PROGRAM = """
import torch
from tests.codegen.test_cuda import halves
from tests.support.definitions import bias_gelu
print(bias_gelu().cuda_code_for([halves(63, 127), halves(127)], intrinsic_code=True), end="")
"""


def test_texts_are_equal_in_every_process() -> None:
    """Kernel texts are equal in every process, as the disk cache requires: they must not depend on
    addresses or hash order."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "12345"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    text = bias_gelu().cuda_code_for([halves(63, 127), halves(127)], intrinsic_code=True)
    assert done.stdout == text


# ---- statements

BUFFERS = """\
  buffer g f32 read written
  array r f32 4
  v0 = thread
"""


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("load r[0] width 4 g[v0 * 4]", "load(r, g + (v0 * 4));"),
        ("load r[0] width 4 g[0]", "load(r, g);"),
        ("load r[0] width 4 g[v0 * 4] in v0 < 8", "load_if(r, g + (v0 * 4), v0 < 8);"),
        ("load r[0] width 4 g[v0 * 4] count 9 - v0", "load_some(r, g + (v0 * 4), 9 - v0);"),
        ("load r[2] width 1 g[v0]", "r[2] = load1(g + v0);"),
        ("write g[v0 * 4] width 4 r[0]", "store(g + (v0 * 4), r);"),
        ("write g[v0 * 4] width 4 r[0] in v0 < 8", "store_if(g + (v0 * 4), r, v0 < 8);"),
        ("write g[v0] width 1 r[1]", "store1(g + v0, r[1]);"),
        ("write g[v0] width 1 r[1] in v0 < 8", "if (v0 < 8) store1(g + v0, r[1]);"),
        ("barrier", "sync_block();"),
        ("v1 : f32 = add(r[0], mul(r[1], 2.0:f32))", "const f32 v1 = r[0] + (r[1] * 2.0f);"),
        ("v1 : f32 = f32(v0)", "const f32 v1 = to<f32>(v0);"),
    ],
)
def test_statements(statement: str, text: str) -> None:
    lines = printed(BUFFERS + f"  {statement}\n")
    assert lines[:2] == ["f32 r[4];", "const i32 v0 = thread_x();"]
    assert lines[2:] == [text]


def test_a_predicated_element_is_0_elsewhere() -> None:
    lines = printed(BUFFERS + "  load r[2] width 1 g[v0] in v0 < 8\n")
    assert lines[2:] == ["r[2] = load1_if(g + v0, v0 < 8);"]


def test_loops_are_unrolled() -> None:
    body = "  for v1 < 4 {\n    r[v1] = 1.0:f32\n  }\n"
    assert printed(BUFFERS + body)[2:] == [
        "UNROLL for (i32 v1 = 0; v1 < 4; ++v1) {",
        "r[v1] = 1.0f;",
        "}",
    ]


def test_64_bit_indices() -> None:
    lines = printed(BUFFERS + "  load r[0] width 4 g[v0 * 4]\n", index=64)
    assert lines[1] == "const i64 v0 = (i64)thread_x();"


def test_the_parameters_of_a_kernel() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1]), fd.define_tensor([-1])
        s, flag = fd.define_scalar(DataType.Int), fd.define_scalar(DataType.Bool)
        fd.add_output(fd.ops.where(flag, x + y, x * s), x)
    text = fd.cuda_code_for([torch.ones(63, 127), torch.ones(127), 2, True])
    signature = text[text.index("(", text.index("void")) + 1 : text.index(") {")].split(", ")
    # Written buffers are not const; buffers that are read and written are not __restrict__.
    assert signature[0] == "f32* g_in0"
    assert signature[1] == "const f32* __restrict__ g_in1"
    assert {p.split()[0] for p in signature[2:]} == {"i32", "FastDiv", "f32", "bool"}
    assert [p.split()[1] for p in signature[2:]] == [f"p{i}" for i in range(len(signature) - 2)]


def test_a_barrier_makes_a_collective() -> None:
    plain = _core.parse_kernel(HEAD + "}\n")
    barrier = _core.parse_kernel(HEAD + "  barrier\n}\n")
    assert not _core.print_cuda(plain).collectives
    assert _core.print_cuda(barrier).collectives
    assert _core.print_cuda(barrier).threads == 32


def test_only_the_helpers_that_are_used() -> None:
    text = scaled(2.0).cuda_code_for([torch.ones(8)], intrinsic_code=True)
    assert "load_access_" in text
    assert "gelu" not in text
    assert "bf16" not in own_text(text)
    assert text.rstrip().endswith("}")
    assert text.count("KERNEL(") == 4, "its three definitions and the kernel"
