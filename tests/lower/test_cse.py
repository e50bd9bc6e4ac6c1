"""csrc/lower/passes/cse: common subexpressions are computed once, in a scope with their
variables.
"""

import pytest
import torch

from fuser import DataType, FusionDefinition, Scalar
from tests.lower.passes import after, text

DECLARATIONS = """
  buffer g_in0 f32 read restrict
  buffer g_in1 f32 read restrict
  buffer g_out0 f32 written restrict
  param p0 : i32 divisor size(0, 1)
  param p1 : i32 int stride(0, 0)
  array r_in0 f32 4
  array r_in1 f32 4
  array r_out0 f32 4
  blocks size(0, 0)
"""


def share(body: str) -> str:
    got = after("cse", DECLARATIONS, body)
    return got[got.index("v0 =") :]


def test_what_repeats_between_statements() -> None:
    assert share("""
      v0 = block * 256 + thread
      load r_in0[0] width 4 g_in0[v0 / p0 * p1] in v0 < p1
      load r_in1[0] width 4 g_in1[v0 / p0 * p1 + 4] in v0 < p1
    """) == text("""
        v0 = block * 256 + thread
        v1 = v0 / p0 * p1
        v2 = v0 < p1
        load r_in0[0] width 4 g_in0[v1] in v2
        load r_in1[0] width 4 g_in1[v1 + 4] in v2
    """)


def test_a_part_of_two_expressions() -> None:
    assert share("""
      v0 = block * 256 + thread
      load r_in0[0] width 4 g_in0[v0 / p0 * 4]
      load r_in1[0] width 4 g_in1[v0 / p0 * 8]
    """) == text("""
        v0 = block * 256 + thread
        v1 = v0 / p0
        load r_in0[0] width 4 g_in0[v1 * 4]
        load r_in1[0] width 4 g_in1[v1 * 8]
    """)


def test_what_occurs_once_stays() -> None:
    body = text("""
        v0 = block * 256 + thread
        load r_in0[0] width 4 g_in0[v0 / p0 * 4]
        write g_out0[v0 % p0] width 4 r_in0[0]
    """)
    assert share(body) == body


def test_what_does_not_vary_with_a_loop_stands_before_it() -> None:
    assert share("""
      v0 = block * 256 + thread
      for v1 < 4 {
        load r_in0[v1] width 1 g_in0[v0 / p0 * p1 + v1]
      }
    """) == text("""
        v0 = block * 256 + thread
        v2 = v0 / p0 * p1
        for v1 < 4 {
          load r_in0[v1] width 1 g_in0[v1 + v2]
        }
    """)


def test_what_varies_with_a_loop_is_named_inside_and_not_known_outside() -> None:
    got = share("""
      v0 = block * 256 + thread
      for v1 < 4 {
        load r_in0[v1] width 1 g_in0[(v0 + v1) / p0 * 2]
        load r_in1[v1] width 1 g_in1[(v0 + v1) / p0 * 3]
      }
      for v2 < 4 {
        write g_out0[(v0 + v2) / p0] width 1 r_in0[v2]
      }
    """)
    assert got == text("""
        v0 = block * 256 + thread
        for v1 < 4 {
          v3 = (v0 + v1) / p0
          load r_in0[v1] width 1 g_in0[v3 * 2]
          load r_in1[v1] width 1 g_in1[v3 * 3]
        }
        for v2 < 4 {
          write g_out0[(v0 + v2) / p0] width 1 r_in0[v2]
        }
    """)


def test_what_is_named_under_a_condition_is_not_known_behind_it() -> None:
    assert share("""
      v0 = block * 256 + thread
      if v0 < p1 {
        load r_in0[0] width 4 g_in0[v0 / p0 * 2]
        load r_in1[0] width 4 g_in1[v0 / p0 * 3]
      }
      write g_out0[v0 / p0] width 4 r_in0[0]
    """) == text("""
        v0 = block * 256 + thread
        if v0 < p1 {
          v1 = v0 / p0
          load r_in0[0] width 4 g_in0[v1 * 2]
          load r_in1[0] width 4 g_in1[v1 * 3]
        }
        v2 = v0 / p0
        write g_out0[v2] width 4 r_in0[0]
    """)


def test_an_index_that_has_a_name_is_used_by_it() -> None:
    assert share("""
      v0 = block * 256 + thread
      v1 = v0 * 4
      load r_in0[0] width 4 g_in0[v0 * 4]
    """) == text("""
        v0 = block * 256 + thread
        v1 = v0 * 4
        load r_in0[0] width 4 g_in0[v1]
    """)


def test_arithmetic_on_values_stays_as_it_is() -> None:
    body = text("""
        v0 = block * 256 + thread
        v1 : f32 = add(r_in0[0], r_in1[0])
        v2 : f32 = mul(add(r_in0[0], r_in1[0]), v1)
        r_out0[0] = v2
    """)
    assert share(body) == body


SCALARS = """
  buffer g_in0 f32 read restrict
  buffer g_out0 f32 written restrict
  param p0 : f32 scalar 0
  param p1 : f32 scalar 1
  array r_in0 f32 4
  array r_out0 f32 4
  blocks size(0, 0)
"""


def share_scalars(body: str) -> str:
    got = after("cse", SCALARS, body)
    return got.partition("blocks size(0, 0)")[2].strip()


def test_scalars_that_repeat_have_a_name_at_the_top() -> None:
    assert share_scalars("""
      v0 : f32 = mul(r_in0[0], add(p0, p1))
      for v1 < 4 {
        v2 : f32 = add(mul(add(p0, p1), add(p0, p1)), v0)
        r_out0[v1] = mul(v2, p0)
      }
    """) == text("""
        v3 : f32 = add(p0, p1)
        v0 : f32 = mul(r_in0[0], v3)
        for v1 < 4 {
          v2 : f32 = add(mul(v3, v3), v0)
          r_out0[v1] = mul(v2, p0)
        }
    """)


def test_scalars_that_occur_once_and_constants_stay() -> None:
    body = text("""
        v0 : f32 = mul(r_in0[0], add(p0, p1))
        v1 : f32 = add(v0, 2.5:f32)
        v2 : f32 = add(v1, 2.5:f32)
        r_out0[0] = v2
    """)
    assert share_scalars(body) == body


STEPS = {
    "once": lambda ops, v: ops.sin(v) + 1.0,
    "twice": lambda ops, v: v * v + 0.25,
    "thrice": lambda ops, v: ops.where(v > 3.0, v - 1.0, v + 2.0),
}


@pytest.mark.parametrize("how", STEPS)
def test_text_of_scalars_is_linear_and_shallow(how: str) -> None:
    """Chains of scalars that use the previous one twice yield text of linear size."""

    def kernel(steps: int) -> str:
        fd = FusionDefinition()
        value: Scalar = fd.define_scalar(DataType.Double)
        for _ in range(steps):
            value = STEPS[how](fd.ops, value)
        fd.add_output(fd.define_tensor([-1]) * value)
        return fd.cuda_code_for([0.5, torch.ones(1000)])

    few, many = kernel(40), kernel(400)
    assert len(many) < 11 * len(few)
    assert max(line.count("(") for line in many.splitlines()) < 150


def test_scalars_used_twice_in_each_of_many_steps() -> None:
    fd = FusionDefinition()
    value = fd.define_scalar(DataType.Double)
    for _ in range(60):
        value = value * value + 0.25
    fd.add_output(fd.define_tensor([-1], dtype=DataType.Double) * value)
    exact = 0.1
    for _ in range(60):
        exact = exact * exact + 0.25
    got = fd.execute([0.1, torch.ones(3, dtype=torch.float64)])[0]
    assert torch.allclose(got, torch.full((3,), exact, dtype=torch.float64), rtol=1e-12)
