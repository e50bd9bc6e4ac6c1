"""Index arithmetic that repeats is computed once, where its variables are known."""

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
    got = after("share", DECLARATIONS, body)
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
