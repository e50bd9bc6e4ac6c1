"""csrc/ir/parse: text -> kernel -> equal text, and errors with location and reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser import _core
from fuser.errors import UserError

# Every declaration, statement and kind of expression.
EVERYTHING = """\
kernel everything threads 256 min_blocks 3 index 32 vars 12 {
  buffer g_in0 bf16 read restrict
  buffer g_in1 c64 read written
  buffer g_out0 bf16 written restrict
  param p0 : i32 int size(0, 0) * stride(0, 1) + scalar(2)
  param p1 : i32 divisor size(0, 1)
  param p2 : f32 scalar 0
  param p3 : bf16 value 2
  array r_in0 bf16 8
  array r_in1 c64 1
  array r_out0 bf16 8
  axes [a0 a1] extents [size(0, 0), size(0, 1) * 4] index v0 * 8 vector
  axes [a2] extents [7] index v1
  axes [] extents [] index 0
  blocks size(0, 0) * size(0, 1)
  v0 = block * 256 + thread
  v1 = v0 / p1 % 7
  v2 = v0 < p0
  load r_in0[0] width 8 g_in0[v0 * 8] in v2 count p0 - v0 * 8
  load r_in1[0] width 1 g_in1[stride(1, 0) * a0 + a2] count 1
  v3 : c64 = add(r_in1[0], {1.5, -inf}:c64)
  v4 : i64 = v0 - 3
  for v5 < 8 {
    v6 : f32 = fma(f32(r_in0[v5]), p2, -0.0:f32)
    for v7 < 2 {
      v8 : bool = logical_and(lt(v6, nan:f32), true:bool)
      v9 : f32 = where(v8, v6, f32(p3))
      r_out0[v5] = bf16(add(v9, real(v3)))
    }
    v10 : i32 = bitwise_and(i32(v4), 255:i32)
    v11 : f64 = mul(f64(scalar(1):i32), f64(value(0):f32))
  }
  write g_out0[v0 * 8] width 8 r_out0[0] in v2 count p0 - v0 * 8
  write g_in1[v0] width 1 r_in1[0] in v0 < p0
  barrier
}
"""

# Statements and expressions of kernels with reductions.
REDUCTIONS = """\
kernel reductions threads 256 min_blocks 0 index 64 cluster 2 cooperative {
  buffer g_in0 bf16 read restrict
  buffer g_out0 f32 written restrict
  buffer g_partial0 f32 state welford workspace size(0, 0) * 4 read written
  buffer g_counters i32 counters (size(0, 0) + 7) / 8 read written
  buffer g_barrier i32 counters 3 read written
  buffer s_in0 bf16 shared 4096 read written restrict
  buffer s_sum0 f32 state sum shared 16 read written restrict
  buffer s_w1 f32 state welford shared 16 read written restrict
  buffer s_sum2 f32 state sum shared 4 read written restrict
  buffer s_w3 f32 state welford shared 4 read written restrict
  buffer s_arrivals i64 shared 3 read written restrict
  buffer s_sum4 f32 state sum shared 512 read written restrict
  buffer s_last i32 shared 1 read written restrict
  param p0 : f32 real size(0, 1)
  param p1 : f32 inverse size(0, 1)
  array q_in0 bf16 2 chunk 8
  array r_in0 bf16 8
  array r_sum1 f32 2 state sum
  array r_welford2 f32 1 state welford
  array r_argmax3 f32 1 state argmax
  array r_partial f32 4 state welford
  array r_turned bf16 256
  axes [a0] extents [size(0, 0)] index v0
  axes [a1] extents [size(0, 1)] index thread * 8 vector whole
  blocks size(0, 0) * 2
  v0 = block / 2
  arrive_cluster s_arrivals
  wait_cluster
  init_state r_sum1
  init_state r_welford2
  async_copy s_in0[thread * 8] width 8 g_in0[a0 * size(0, 1) + a1] in v0 < 7
  async_commit
  async_wait 0
  serial v1 < (size(0, 1) + 2047) / 2048 {
    load q_in0[0] width 8 g_in0[v1] in v1 < size(0, 1) streaming
    unpack r_in0 q_in0[0]
    assert_index 0 v1 of size(0, 1)
    assert_index 1 i32(v1) of size(0, 0) in v1 < 5
    v2 = v1 < 5
    if v2 {
      for v3 < 8 {
        v4 : f32 = f32(r_in0[v3])
        accumulate r_sum1[0] (v4)
        accumulate r_welford2[0] (mul(v4, p1)) in lt(v4, p0)
        accumulate r_argmax3[0] (v4, v1) in v2
      }
    }
    merge r_welford2[0] r_partial[2]
    thread_reduce r_sum1
    lane_reduce r_welford2 r_partial
    lane_transpose r_turned
    block_reduce (r_sum1, r_welford2) group 256 slots (s_sum0, s_w1) cluster (s_sum2, s_w3) parity v1
    block_reduce (r_sum1) group 256 cluster (s_sum2) arrival s_arrivals[v1 + 1] turn v1 / 2 % 2
  }
  block_reduce (r_sum1) group 8
  block_reduce_columns (r_sum1) threads_y 8 threads_x 32 slots (s_sum4)
  block_reduce_columns (r_sum1) threads_y 1 threads_x 256
  barrier
  v5 = is_last_block g_counters[v0] of size(0, 0) slot s_last
  if uniform v5 {
    load r_partial[1] width 1 g_partial0[v0] in v0 < 3
    write g_partial0[v0] width 1 r_welford2[0] in eq(thread, 0)
    v6 : f32 = add(r_welford2[0].f0, r_welford2[0].f1)
    v7 : f32 = div(v6, r_welford2[0].f2)
    v8 = r_argmax3[0].f1
    write g_out0[v8] width 4 r_sum1[0] column v8 of size(0, 1) jump 9
    load r_in0[0] width 8 g_in0[v8] unaligned
    load r_in0[0] width 8 g_in0[v8] unaligned by 2
    barrier
  }
  sync_grid g_barrier
}
"""  # noqa: E501

HEAD = "kernel k threads 32 min_blocks 0 index 32 {\n"


def test_everything_reads_back() -> None:
    text = EVERYTHING.replace(" vars 12", "")
    kernel = _core.parse_kernel(text)
    assert kernel.text() == text
    kernel.verify()
    assert kernel.vars == 12


def test_reductions_read_back() -> None:
    kernel = _core.parse_kernel(REDUCTIONS)
    again = _core.parse_kernel(kernel.text())
    assert again.text() == kernel.text()
    # Already in normal form, except for a product and a negative number.
    changed = [
        (a, b)
        for a, b in zip(REDUCTIONS.splitlines(), kernel.text().splitlines(), strict=True)
        if a != b
    ]
    assert len(changed) == 1, changed
    assert changed[0][1].lstrip().startswith("async_copy s_in0[thread * 8] width 8 g_in0[")
    assert (again.collectives(), again.threads, again.index64, again.vars) == (True, 256, True, 9)


@pytest.mark.parametrize("count", [0, 3, 12, 40])
def test_vars_are_restored(count: int) -> None:
    kernel = _core.parse_kernel(EVERYTHING.replace("vars 12", f"vars {count}"))
    assert kernel.vars == count
    assert _core.parse_kernel(kernel.text()).vars == count
    assert (" vars " in kernel.text()) == (count != 12)


def test_smallest_kernel() -> None:
    kernel = _core.parse_kernel(HEAD + "}\n")
    assert kernel.text() == HEAD + "}\n"
    kernel.verify()
    assert (kernel.name, kernel.threads, kernel.min_blocks) == ("k", 32, 0)
    assert (kernel.index64, kernel.vars, kernel.statements()) == (False, 0, [])


# ---- Errors

BODY = "  array r f32 4\n  buffer g f32 read\n  array s f32 1 state welford\n"


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("v0 : f33 = 1", 8, "expected a dtype, e.g. f32 or bf16, got 'f33'"),
        ("v0 : f32 = 1", 3, "expected a value of dtype f32, as v0 states (it is i64)"),
        ("q[0] = 1.0:f32", 3, "expected a declared array, got 'q'"),
        ("load r[0] g[0]", 13, "expected 'width', got 'g'"),
        ("load r[0] width 1 h[0]", 21, "expected a declared buffer, got 'h'"),
        ("load g[0] width 1 g[0]", 8, "expected a declared array, got 'g'"),
        ("for v0 < thread {", 12, "expected the number of iterations, got 'thread'"),
        ("for v0 < 4", 13, "expected '{', got the end of the line"),
        ("array t f32 4", 3, "expected a statement, got 'array'"),
        ("barrier 1", 11, "expected the end of the line, got '1'"),
        ("serial v0 < {", 15, "expected an expression, got '{'"),
        ("serial v0 < 4", 16, "expected '{', got the end of the line"),
        ("if {", 6, "expected an expression, got '{'"),
        ("if uniform {", 14, "expected an expression, got '{'"),
        ("init_state g", 14, "expected a declared array, got 'g'"),
        ("thread_reduce", 16, "expected a declared array, got the end of the line"),
        ("accumulate s[0] 1", 19, "expected '(', got '1'"),
        ("accumulate s[0] ()", 20, "expected an expression, got ')'"),
        ("merge s[0] g[0]", 14, "expected a declared array, got 'g'"),
        ("block_reduce s group 8", 16, "expected '(', got 's'"),
        ("block_reduce () group 8", 17, "expected a declared array, got ')'"),
        ("block_reduce (s, r group 8", 22, "expected ')', got 'group'"),
        ("block_reduce (s) 8", 20, "expected 'group', got '8'"),
        ("block_reduce (s) group 64 slots (r)", 36, "expected a declared buffer, got 'r'"),
        ("block_reduce_columns (s) threads_x 2", 28, "expected 'threads_y', got 'threads_x'"),
        ("v0 = is_last_block r[0] of 1 slot g", 22, "expected a declared buffer, got 'r'"),
        ("v0 = is_last_block g[0] slot g", 27, "expected 'of', got 'slot'"),
        ("v0 = is_last_block g[0] of 1", 31, "expected 'slot', got the end of the line"),
        ("async_copy r[0] width 1 g[0]", 14, "expected a declared buffer, got 'r'"),
        ("unpack r s 0", 14, "expected '[', got '0'"),
        ("async_wait", 13, "expected the number of pending groups, got the end of the line"),
        ("sync_grid 3", 13, "expected a declared buffer, got '3'"),
    ],
)
def test_parse_1(line: str, column: int, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        _core.parse_kernel(HEAD + BODY + "  barrier\n  " + line + "\n}\n")
    assert caught.value.rule == "parse-1"
    assert str(caught.value).startswith(f"kernel text, line 6, column {column}: {expected}")


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("buffer g f32 read", 10, "expected the name of a buffer that is not defined yet, got 'g'"),
        ("buffer 5 f32", 10, "expected the name of a buffer, got '5'"),
        ("buffer h f32 written read", 24, "expected the end of the line, got 'read'"),
        ("array r f32 4", 9, "expected the name of an array that is not defined yet, got 'r'"),
        ("array t f32", 14, "expected the extent of the array, got the end of the line"),
        (
            "array t f32 4 state mean",
            23,
            "expected the name of a reduction, e.g. sum, got 'mean'",
        ),
        ("array t f32 4 chunk", 22, "expected the elements of a chunk, got the end of the line"),
        ("buffer t f32 shared", 22, "expected an expression, got the end of the line"),
        ("buffer t f32 counters read", 25, "expected an expression, got 'read'"),
        ("param p1 : i32 int 4", 9, "expected p0, got 'p1'"),
        ("param p0 int 4", 12, "expected ':', got 'int'"),
        (
            "param p0 : i32 4",
            18,
            "expected int, divisor, real, inverse, scalar, rng_offset or value, got '4'",
        ),
        ("axes [a0, a1] extents [1, 2]", 11, "expected an axis, e.g. a0, or ']', got ','"),
        ("axes [a0] extents 4", 21, "expected '[', got '4'"),
    ],
)
def test_parse_1_of_declarations(line: str, column: int, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        _core.parse_kernel(HEAD + BODY + "  " + line + "\n}\n")
    assert caught.value.rule == "parse-1"
    assert str(caught.value) == f"kernel text, line 5, column {column}: {expected}"


def test_index_is_32_or_64() -> None:
    with pytest.raises(UserError, match="expected 32 or 64, got '16'"):
        _core.parse_kernel(HEAD.replace("index 32", "index 16") + "}\n")


def test_nothing_follows_the_kernel() -> None:
    with pytest.raises(UserError, match="line 3, column 1: expected the end of the text, got '}'"):
        _core.parse_kernel(HEAD + "}\n}\n")


def test_loops_nest_to_a_bound() -> None:
    def nested(depth: int) -> str:
        opening = "".join(f"for v{i} < 2 {{\n" for i in range(depth))
        return HEAD + opening + "}\n" * depth + "}\n"

    kernel = _core.parse_kernel(nested(100))
    assert _core.parse_kernel(kernel.text()).text() == kernel.text()
    with pytest.raises(UserError, match="line 102, column 1: expected at most 100 nested loops"):
        _core.parse_kernel(nested(101))


def test_names_may_be_those_of_statements() -> None:
    """A word followed by a bracket is an array, even if it is the name of a statement."""
    words = ["if", "serial", "for", "init_state", "merge", "block_reduce", "is_last_block", "load"]
    text = HEAD + "".join(f"  array {w} f32 1\n" for w in words)
    text += "".join(f"  {w}[0] = 1.0:f32\n" for w in words)
    text += "  v0 : f32 = add(is_last_block[0], if[0])\n  load load[0] width 1 "
    text = text.rpartition("\n")[0] + "\n}\n"
    assert _core.parse_kernel(text).text() == text


@given(st.data())
def test_damaged_text_is_an_error_or_a_kernel(data: st.DataObject) -> None:
    """For arbitrarily damaged text the parser returns a kernel or raises parse-1."""
    whole = data.draw(st.sampled_from([EVERYTHING, REDUCTIONS]))
    start = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, 30))
    put = data.draw(st.text(alphabet="av09 +-*/%<()[]{}:,.\n#", max_size=6))
    text = whole[:start] + put + whole[start + length :]
    try:
        kernel = _core.parse_kernel(text)
    except UserError as error:
        kernel, rule = None, error.rule
    if kernel is None:
        assert rule == "parse-1"
    else:
        assert _core.parse_kernel(kernel.text()).text() == kernel.text()
