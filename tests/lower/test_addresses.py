"""Offsets over axes become offsets over the indices of the index map."""

from tests.lower.passes import after, text

BUFFERS = """
  buffer g_in0 f32 read restrict
  buffer g_out0 f32 written restrict
  array r_in0 f32 4
  array r_out0 f32 4
"""


def walked(rank: int, index: str, body: str) -> str:
    """Apply the pass to a body with blocks of 256 threads, v0, and all axes as one index."""
    sizes = [f"size(0, {d})" for d in range(rank)]
    axes = " ".join(f"a{d}" for d in range(rank))
    declared = f"axes [{axes}] extents [{', '.join(sizes)}] index {index}"
    blocks = f"blocks {' * '.join(sizes)}\n"
    body = "v0 = block * 256 + thread" + body
    return after("addresses", f"{BUFFERS}{declared}\n{blocks}", body)


def statements(kernel: str) -> str:
    return kernel[kernel.index("v0 =") :]


def test_an_offset_linear_in_the_walk_is_its_index() -> None:
    got = walked(
        2,
        "v0 * 4 vector",
        """
      load r_in0[0] width 4 g_in0[size(0, 1) * a0 + a1]
      write g_out0[size(0, 1) * a0 + a1] width 4 r_in0[0]
    """,
    )
    assert "axes" not in got
    assert statements(got) == text("""
        v0 = block * 256 + thread
        load r_in0[0] width 4 g_in0[v0 * 4]
        write g_out0[v0 * 4] width 4 r_in0[0]
    """)


def test_other_offsets_divide_the_index() -> None:
    got = walked(
        2,
        "v0",
        """
      load r_in0[0] width 1 g_in0[a1 * size(0, 0) + a0]
    """,
    )
    assert statements(got) == text("""
        v0 = block * 256 + thread
        load r_in0[0] width 1 g_in0[v0 % size(0, 1) * size(0, 0) + v0 / size(0, 1)]
    """)


def test_axes_that_nest_are_divided_as_one() -> None:
    """Axes that nest are divided as one: an access by channel last to an image by channel first,
    whose rows and columns combine."""
    got = walked(
        3,
        "v0",
        """
      load r_in0[0] width 1 g_in0[a2 * stride(0, 2) + a0 * size(0, 1) + a1]
      load r_in0[1] width 1 g_in0[a1 * size(0, 2) + a2]
    """,
    )
    assert statements(got) == text("""
        v0 = block * 256 + thread
        load r_in0[0] width 1 g_in0[v0 % size(0, 2) * stride(0, 2) + v0 / size(0, 2)]
        load r_in0[1] width 1 g_in0[v0 % (size(0, 1) * size(0, 2))]
    """)


def test_axes_of_several_dims() -> None:
    got = after(
        "addresses",
        BUFFERS
        + """
      axes [a0] extents [size(0, 0)] index v0 / size(0, 1)
      axes [a1] extents [size(0, 1)] index v0 % size(0, 1)
      blocks size(0, 0) * size(0, 1)
    """,
        """
      v0 = block * 256 + thread
      load r_in0[0] width 1 g_in0[a0 * stride(0, 0) + a1]
      load r_in0[1] width 1 g_in0[a0]
    """,
    )
    assert statements(got) == text("""
        v0 = block * 256 + thread
        load r_in0[0] width 1 g_in0[v0 / size(0, 1) * stride(0, 0) + v0 % size(0, 1)]
        load r_in0[1] width 1 g_in0[v0 / size(0, 1)]
    """)


def test_a_lane_moves_the_index() -> None:
    got = walked(
        1,
        "v0 * 4 vector",
        """
      for v1 < 4 {
        load r_in0[v1] width 1 g_in0[a0 * stride(0, 0)] count size(0, 0) - v0 * 4 - v1
      }
    """,
    )
    assert "g_in0[(v0 * 4 + v1) * stride(0, 0)]" in got


def test_lanes_along_rows_leave_their_loop() -> None:
    """A repeated row needs one division per vector, and a jump at the end of the row."""
    got = walked(
        2,
        "v0 * 4 vector",
        """
      for v1 < 4 {
        load r_in0[v1] width 1 g_in0[a1] count size(0, 0) * size(0, 1) - v0 * 4 - v1
      }
    """,
    )
    assert statements(got) == text("""
        v0 = block * 256 + thread
        load r_in0[0] width 4 g_in0[v0 * 4 % size(0, 1)] count size(0, 0) * size(0, 1) - v0 * 4 \
column v0 * 4 % size(0, 1) of size(0, 1) jump 0 - size(0, 1)
    """)


def test_lanes_are_written_along_rows_too() -> None:
    """Rows with gaps are stored by vectors too; the jump is the gap."""
    got = walked(
        2,
        "v0 * 4 vector",
        """
      for v1 < 4 {
        write g_out0[a0 * stride(0, 0) + a1] width 1 r_out0[v1]
      }
    """,
    )
    assert "for" not in statements(got)
    assert "width 4 r_out0[0] column v0 * 4 % size(0, 1) of size(0, 1) jump " in got


def test_lanes_that_were_loaded_stay_in_the_loop() -> None:
    """If a coordinate was loaded, the access follows that load and stays in the loop over lanes."""
    got = walked(
        2,
        "v0 * 4 vector",
        """
      for v1 < 4 {
        v2 = v1 * 2
        load r_in0[v1] width 1 g_in0[a1 + v2]
        load r_in0[v1] width 1 g_in0[a1] in a1 < 3
      }
    """,
    )
    assert got.count("load r_in0[v1] width 1") == 2


def test_columns_stay_in_the_loop() -> None:
    got = walked(
        2,
        "v0 * 4 vector",
        """
      for v1 < 4 {
        load r_in0[v1] width 1 g_in0[a0]
      }
    """,
    )
    assert "g_in0[(v0 * 4 + v1) / size(0, 1)]" in got


RANDOM = """
      for v1 < 4 {
        v2 = size(0, 1) * a0 + a1
        v3 : i64 = v2
        v4 : i64 = random32(v3, scalar(0), scalar(1))
        r_out0[v1] = f32(v4)
      }
"""


def test_the_first_of_neighbours_that_draw_is_a_multiple() -> None:
    """The first random number of a vector is a multiple of the vector length in two cases: rows
    consist of complete vectors, or the index is linear over all axes."""
    for walk in (
        "axes [a0] extents [size(0, 0)] index v0 / 8\n"
        "axes [a1] extents [size(0, 1)] index v0 % 8 * 4 vector whole",
        "axes [a0 a1] extents [size(0, 0), size(0, 1)] index v0 * 4 vector",
    ):
        head = BUFFERS + walk + "\nblocks size(0, 0) * size(0, 1)\n"
        got = after("addresses", head, "v0 = block * 256 + thread\n" + RANDOM)
        assert "bitwise_and(" in got, got
        assert "-4" in got
        got = after(
            "addresses",
            head.replace(" whole", "").replace("[a0 a1]", "[a1 a0]"),
            "v0 = block * 256 + thread\n" + RANDOM,
        )
        assert "bitwise_and(" not in got, got


def test_neighbours_that_draw_may_straddle_rows_or_begin_between() -> None:
    """If the first random number of a vector is not a multiple, its lanes must not use a common
    call."""
    walk = "axes [a0 a1] extents [size(0, 0), size(0, 1)] index v0 * 4 vector"
    head = BUFFERS + walk + "\nblocks size(0, 0) * size(0, 1)\n"

    def shares(number: str) -> bool:
        body = RANDOM.replace("size(0, 1) * a0 + a1", number)
        return "bitwise_and(" in after("addresses", head, "v0 = block * 256 + thread\n" + body)

    assert shares("size(0, 1) * a0 + a1 + 8")
    assert not shares("size(0, 1) * a0 + a1 + 2")
    assert not shares("8 * a0 + a1")  # a vector may exceed these rows


def test_where_vectors_stay_within_rows_only_the_last_axis_has_lanes() -> None:
    """If vectors stay within rows, only the last axis varies per lane; other axes are computed from
    the start of the vector."""
    got = walked(
        3,
        "v0 * 4 vector whole",
        """
      for v1 < 4 {
        load r_in0[v1] width 1 g_in0[a0 * stride(0, 0) + a2]
        load r_in0[v1] width 1 g_in0[a1 * stride(0, 0) + a2]
      }
    """,
    )
    assert "axes" not in got
    lane = "v0 * 4 + v1 - v0 * 4"
    row = "v0 * 4 / (size(0, 1) * size(0, 2))"
    middle = "v0 * 4 / size(0, 2) % size(0, 1)"
    for outer in (row, middle):
        assert f"g_in0[{lane} + {outer} * stride(0, 0) + v0 * 4 % size(0, 2)]" in got


def test_where_vectors_cross_rows_each_lane_is_divided() -> None:
    got = walked(
        2,
        "v0 * 4 vector",
        """
      for v1 < 4 {
        load r_in0[v1] width 1 g_in0[a1 * size(0, 0) + a0]
      }
    """,
    )
    lane = "(v0 * 4 + v1)"
    assert f"g_in0[{lane} % size(0, 1) * size(0, 0) + {lane} / size(0, 1)]" in got
