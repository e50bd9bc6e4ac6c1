"""A problem and its schedule become loops over registers: loads, arithmetic, stores."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest
import torch

from fuser import DataType, FusionDefinition
from tests.support.stages import stage_text, statements


def test_rows() -> None:
    fd = FusionDefinition()
    x, bias = fd.define_tensor([-1, -1]), fd.define_tensor([-1])
    fd.add_output(x * bias + 1.0)
    text = stage_text(fd, [torch.ones(6, 8), torch.ones(8)], "build")
    threads = re.search(r"threads (\d+)", text)
    assert threads
    text = text.replace(threads[1], "T")
    points = "(size(0, 1) + 3) / 4 * size(0, 0)"
    assert text == dedent(f"""\
        kernel add threads T min_blocks 0 index 32 {{
          buffer g_in0 f32 read restrict
          buffer g_in1 f32 read restrict
          buffer g_out0 f32 written restrict
          array r_in0 f32 4
          array r_in1 f32 4
          array r_out0 f32 4
          axes [a0] extents [size(0, 0)] index v0 / ((size(0, 1) + 3) / 4)
          axes [a1] extents [size(0, 1)] index v0 % ((size(0, 1) + 3) / 4) * 4 vector whole
          blocks ({points} + {int(threads[1]) - 1}) / T
          v0 = block * T + thread
          if v0 < {points} {{
            load r_in0[0] width 4 g_in0[size(0, 1) * a0 + a1]
            load r_in1[0] width 4 g_in1[a1]
            for v1 < 4 {{
              v2 : f32 = fma(r_in0[v1], r_in1[v1], 1.0:f32)
              r_out0[v1] = v2
            }}
            write g_out0[size(0, 1) * a0 + a1] width 4 r_out0[0]
          }}
        }}
        """)


def body(fd: FusionDefinition, *inputs: torch.Tensor) -> str:
    return statements(stage_text(fd, inputs, "build"))


def test_all_loads_stand_before_arithmetic_and_that_before_all_stores() -> None:
    fd = FusionDefinition()
    x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
    fd.add_output(fd.ops.exp(x))
    fd.add_output(fd.ops.sin(y) + x)
    text = body(fd, torch.ones(8), torch.ones(8))
    kinds = re.findall(r"load|exp|sin|write", text)
    assert kinds == ["load", "load", "exp", "sin", "write", "write"]


def test_a_tail_counts() -> None:
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([-1]) * 2.0)
    assert "count size(0, 0) - v0 * 4" in body(fd, torch.ones(7))


def test_what_does_not_vary_with_the_lane_is_computed_once() -> None:
    """exp of a column is computed outside the loop over a row's elements."""
    fd = FusionDefinition()
    x, column = fd.define_tensor([-1, -1]), fd.define_tensor([-1, 1])
    fd.add_output(x * fd.ops.exp(column))
    text = body(fd, torch.ones(4, 8), torch.ones(4, 1))
    assert text.index("exp(") < text.index("for ")
    assert "load r_in1[0] width 1 g_in1[a0]" in text


def test_one_load_for_one_coordinate() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(x * x + fd.ops.tanh(x))
    assert body(fd, torch.ones(8)).count("load") == 1


def test_in_place_outputs_write_the_input() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(x * 2.0, x)
    text = stage_text(fd, [torch.ones(8)], "build")
    assert "buffer g_in0 f32 read written\n" in text  # not restrict
    assert "write g_in0[a0] width 4" in text
    assert "g_out" not in text


def test_results_are_converted_once() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.cast(x * 2.0, DataType.BFloat16))
    text = body(fd, torch.ones(8).bfloat16())
    assert text.count("bf16(") == 1
    assert text.count("f32(r_in0") == 1


def test_0_dim() -> None:
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([]) * 2.0)
    text = body(fd, torch.tensor(1.0))
    assert "for " not in text
    assert "if v0 < 1 {\n  load r_in0[0] width 1 g_in0[0]\n" in text


@pytest.mark.parametrize("width", [1, 2, 4])
def test_lanes_follow_the_plan(width: int) -> None:
    fd = FusionDefinition()
    fd.add_output(fd.define_tensor([-1]) * 2.0)
    x = torch.randn(8)
    plan = fd.plan([x])
    assert torch.equal(fd.execute([x], plan=plan.replace(vector=width))[0], x * 2)
    (info,) = fd.fec.executor.kernels(None)
    assert f"array r_in0 f32 {width}\n" in info.ir
