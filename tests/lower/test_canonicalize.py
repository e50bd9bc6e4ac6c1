"""The canonical form: no unused definitions, numbers in order of appearance."""

from tests.lower.passes import after, text


def test_numbers_follow_the_text() -> None:
    assert after(
        "canonicalize",
        """
      buffer g_in0 f32 read restrict
      buffer g_out0 f32 written restrict
      param p0 : i32 int size(0, 3)
      param p1 : i32 int size(0, 1)
      param p2 : i32 int size(0, 0)
      array r_in0 f32 1
      blocks size(0, 0)
    """,
        """
      v7 = block * 256 + thread
      v3 = v7 * p2
      load r_in0[0] width 1 g_in0[v3] in v7 < p1
      write g_out0[v3] width 1 r_in0[0]
    """,
    ) == text("""
        buffer g_in0 f32 read restrict
        buffer g_out0 f32 written restrict
        param p0 : i32 int size(0, 0)
        param p1 : i32 int size(0, 1)
        array r_in0 f32 1
        blocks size(0, 0)
        v0 = block * 256 + thread
        v1 = v0 * p0
        load r_in0[0] width 1 g_in0[v1] in v0 < p1
        write g_out0[v1] width 1 r_in0[0]
    """)


def test_what_nothing_reads_goes_with_what_only_it_reads() -> None:
    got = after(
        "canonicalize",
        """
      buffer g_out0 f32 written restrict
      param p0 : i32 int size(0, 3)
      array r_out0 f32 1
      blocks size(0, 0)
    """,
        """
      v0 = block * 256 + thread
      v1 = v0 * p0
      v2 = v1 + 1
      r_out0[0] = 1.0:f32
      write g_out0[v0] width 1 r_out0[0]
    """,
    )
    assert "param" not in got
    assert got.endswith(
        text("""
        v0 = block * 256 + thread
        r_out0[0] = 1.0:f32
        write g_out0[v0] width 1 r_out0[0]
    """)
    )


def test_twice_is_once() -> None:
    declarations = """
      buffer g_out0 f32 written restrict
      param p5 : i32 int size(0, 3)
      array r_out0 f32 4
      blocks size(0, 0)
    """.replace("p5", "p0")
    body = """
      v4 = block * 256 + thread
      for v2 < 4 {
        v9 : f32 = f32(v2 + p0)
        r_out0[v2] = v9
      }
      write g_out0[v4 * 4] width 4 r_out0[0]
    """
    once = after("canonicalize", declarations, body)
    split = once.index("v0 =")
    assert after("canonicalize", once[:split], once[split:]) == once
