"""csrc/ir/kernel: visiting and rewriting statements, argument bytes, collectives."""

import pytest

from fuser import _core, _core_testing

ir = _core_testing.ir
HEAD = "kernel k threads 32 min_blocks 0 index 32 {\n"

EVERY_FIELD = """\
  buffer g f32 read written
  array r f32 4
  v0 = thread
  v1 = v0 + 1
  v2 : i64 = mul(v0, 2)
  load r[v0 % 2] width 1 g[v0 * 3] in v0 < 4 count v0 - 5
  for v3 < 2 {
    for v4 < 2 {
      r[v0 / 2] = f32(v0 * 6)
    }
    write g[v0 * 7] width 1 r[v0 % 4] in v0 < 8 count v0 - 9
  }
  barrier
}
"""


def test_visit_is_outer_before_inner() -> None:
    statements = _core.parse_kernel(HEAD + EVERY_FIELD).statements()
    assert [s.split()[0] for s in statements] == [
        *("v0", "v1", "v2", "load", "for", "for", "r[v0", "write", "barrier")
    ]


def test_map_expressions_reaches_every_field() -> None:
    text = ir.substitute(HEAD + EVERY_FIELD, 0, 10).text()
    assert (
        text
        == HEAD
        + """\
  buffer g f32 read written
  array r f32 4
  v0 = thread
  v1 = 11
  v2 : i64 = 20
  load r[0] width 1 g[30] in 10 < 4 count 5
  for v3 < 2 {
    for v4 < 2 {
      r[5] = 60.0:f32
    }
    write g[70] width 1 r[2] in 10 < 8 count 1
  }
  barrier
}
"""
    )


EVERY_FIELD_OF_REDUCTIONS = """\
  buffer g f32 read written
  buffer g_partial f32 state sum workspace 9 read written
  buffer g_counters i32 counters 9 read written
  buffer s f32 shared 64 read written
  buffer s_last i32 shared 1 read written
  array q f32 2 chunk 4
  array r f32 4
  array r_sum f32 4 state sum
  array r_more f32 4 state sum
  v0 = thread
  serial v1 < v0 + 1 {
    if v0 < 11 {
      accumulate r_sum[v0 % 3] (f32(v0)) in v0 < 12
    }
    merge r_sum[v0 % 4] r_more[v0 % 3]
    block_reduce (r_sum) group 32 parity v0 % 2
  }
  async_copy s[v0] width 4 g[v0 * 2] in v0 < 13
  load q[v0 % 2] width 4 g[v0 * 3] in v0 < 7
  unpack r q[v0 / 9]
  v2 = is_last_block g_counters[v0 - 5] of v0 * 4 slot s_last
}
"""


def test_map_expressions_reaches_every_field_of_reductions() -> None:
    text = ir.substitute(HEAD + EVERY_FIELD_OF_REDUCTIONS, 0, 10).text()
    assert (
        text.partition("  v0 = thread\n")[2]
        == """\
  serial v1 < 11 {
    if 10 < 11 {
      accumulate r_sum[1] (10.0:f32) in 10 < 12
    }
    merge r_sum[2] r_more[1]
    block_reduce (r_sum) group 32 parity 0
  }
  async_copy s[10] width 4 g[20] in 10 < 13
  load q[0] width 4 g[30] in 10 < 7
  unpack r q[1]
  v2 = is_last_block g_counters[5] of 40 slot s_last
}
"""
    )


def test_rewriting_restores_the_normal_form() -> None:
    text = HEAD + "  v0 = thread\n  v1 = block\n  v2 = v0 * 4 + v1 * 3 + 1\n}\n"
    assert ir.substitute(text, 0, 5).statements()[2] == "v2 = v1 * 3 + 21"
    assert ir.substitute(text, 1, -7).statements()[2] == "v2 = v0 * 4 + -20"


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("", False),
        ("  v0 = thread\n", False),
        ("  barrier\n", True),
        ("  for v0 < 2 {\n    for v1 < 2 {\n      barrier\n    }\n  }\n", True),
        ("  array r f32 1 state sum\n  init_state r\n  thread_reduce r\n", False),
        ("  array r f32 1 state sum\n  block_reduce (r) group 2\n", True),
        ("  array r f32 1 state sum\n  array q f32 1 state sum\n  lane_reduce r q\n", True),
        ("  array r f32 32\n  lane_transpose r\n", True),
        ("  array r f32 1 state sum\n  block_reduce_columns (r) threads_y 2 threads_x 16\n", True),
        (
            "  buffer c i32 counters 1\n  buffer s i32 shared 1\n"
            "  v0 = is_last_block c[0] of 1 slot s\n",
            True,
        ),
        ("  buffer c i32 counters 1\n  sync_grid c\n", True),
        ("  wait_cluster\n", True),
        ("  if true:bool {\n    serial v0 < 2 {\n      wait_cluster\n    }\n  }\n", True),
        ("  async_commit\n  async_wait 0\n", False),
    ],
)
def test_collectives(statements: str, expected: bool) -> None:
    assert _core.parse_kernel(HEAD + statements + "}\n").collectives() is expected


BUFFER = "  buffer g{} f32 read\n"


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ([], 16),
        (["i32 int 1"], 20),
        (["i64 int 1"], 24),
        (["i32 divisor 1"], 28),  # FastDiv: three words
        (["i64 divisor 1"], 24),
        (["i32 int 1", "i64 int 2"], 32),  # aligned to 8
        (["i32 int 1", "i32 divisor 2"], 32),
        (["bf16 value 0", "bf16 value 1", "f32 scalar 0"], 24),
        (["bool scalar 0", "c128 scalar 1"], 48),
        (["c64 scalar 0", "f64 scalar 1"], 32),
        (["f32 real 1", "f32 inverse 1", "f64 inverse 1"], 32),
    ],
)
def test_argument_bytes(params: list[str], expected: int) -> None:
    """Two pointers and the parameters in order, each aligned to its size."""
    lines = "".join(f"  param p{i} : {p}\n" for i, p in enumerate(params))
    text = HEAD + BUFFER.format(0) + BUFFER.format(1) + lines + "}\n"
    assert _core.parse_kernel(text).argument_bytes() == expected


def test_scratch_is_an_argument_and_shared_memory_is_none() -> None:
    scratch = "  buffer w f32 state welford workspace 8\n  buffer c i32 counters 1\n"
    shared = "  buffer a bf16 shared 5\n  buffer b f32 state welford shared 3\n"
    kernel = _core.parse_kernel(HEAD + BUFFER.format(0) + scratch + shared + "}\n")
    assert kernel.argument_bytes() == 3 * 8
    assert kernel.shared_bytes() == 16 + 3 * 12, "each starts at a multiple of 16"


def test_vars_counts_what_is_mentioned() -> None:
    text = HEAD + "  axes [a0] extents [4] index v7\n  for v3 < 2 {\n    v1 = v2\n  }\n}\n"
    assert _core.parse_kernel(text).vars == 8
