"""csrc/ir/verify: each rule is violated once, and the message names the statement."""

import pytest

from fuser import _core
from fuser.errors import InternalError, Unsupported

GOOD = """\
kernel k threads 256 min_blocks 0 index 32 {
  buffer g_in bf16 read restrict
  buffer g_out bf16 written restrict
  param p0 : i32 int size(0, 0)
  param p1 : i32 divisor size(0, 1)
  param p2 : f32 scalar 0
  array r_in bf16 8
  array r_out bf16 8
  axes [a0] extents [size(0, 0)] index v0
  blocks size(0, 0)
  v0 = block * 256 + thread
  v1 = v0 < p0
  load r_in[0] width 8 g_in[v0 / p1] in v1 count p0 - v0
  for v2 < 8 {
    v3 : f32 = mul(f32(r_in[v2]), p2)
    r_out[v2] = bf16(v3)
  }
  write g_out[v0 % p1] width 8 r_out[0] in v1
}
"""


def error_of(text: str) -> str:
    with pytest.raises(InternalError) as caught:
        _core.parse_kernel(text).verify()
    assert caught.value.rule == "internal"
    return str(caught.value)


def check_verifies(text: str) -> None:
    """Assert that verification raises no error."""
    _core.parse_kernel(text).verify()


def test_good() -> None:
    check_verifies(GOOD)


LOAD = "load r_in[0] width 8 g_in[v0 / p1] in v1 count p0 - v0"
LET = "v3 : f32 = mul(f32(r_in[v2]), p2)"


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        # Variables.
        (LET, "v3 : f32 = f32(v4)", "v3 : f32 = f32(v4): v4 is not defined here"),
        ("v1 = v0 < p0", "v1 = v1 < p0", "v1 = v1 < p0: v1 is not defined here"),
        ("g_out[v0 % p1]", "g_out[v2]", "v2 is not defined here"),  # outside its loop
        ("g_out[v0 % p1]", "g_out[i64(v3)]", "v3 is not defined here"),  # a Let of the loop
        ("v1 = v0 < p0", "v0 = thread", "v0 = thread: v0 is defined twice"),
        ("for v2 < 8", "for v0 < 8", "for v0 < 8: v0 is defined twice"),
        ("index 32 {", "index 32 vars 3 {", "v3, but 3 variables are declared"),
        # Element and width.
        ("r_in[v2]", "r_in[8]", "elements 8 to 8 of r_in, which has 8"),
        ("r_in[v2]", "r_in[-1]", "elements -1 to -1 of r_in, which has 8"),
        ("r_out[v2] =", "r_out[9] =", "r_out[9] = bf16(v3): elements 9 to 9 of r_out"),
        ("load r_in[0]", "load r_in[1]", "elements 1 to 8 of r_in, which has 8"),
        ("width 8 r_out", "width 9 r_out", "elements 0 to 8 of r_out, which has 8"),
        ("width 8 r_out[0]", "width 9 r_out[v0]", "elements 0 to 8 of r_out, which has 8"),
        ("width 8 g_in", "width 0 g_in", "width 0, expected at least 1"),
        ("r_in[v2]", "r_in[p2]", "the index into r_in has dtype f32, expected i64"),
        ("load r_in[0]", "load r_in[p2]", "the array's index has dtype f32, expected i64"),
        # Buffers.
        ("g_in bf16 read", "g_in bf16 written", f"{LOAD}: g_in is not declared as read"),
        ("g_out bf16 written", "g_out bf16 read", "g_out is not declared as written"),
        ("g_in bf16", "g_in f16", "r_in has dtype bf16 and g_in has f16"),
        ("g_in[v0 / p1]", "g_in[p2]", "the offset has dtype f32, expected i64"),
        ("in v1 count", "in v0 count", "the predicate has dtype i64, expected bool"),
        ("count p0 - v0", "count p2", "the count has dtype f32, expected i64"),
        # Values.
        ("bf16(v3)", "v3", "r_out[v2] = v3: the value has dtype f32, expected bf16"),
        (LET, "v3 = mul(f32(r_in[v2]), p2)", "an index has dtype f32, expected i64 or bool"),
        (LET, "v3 : f32 = f32(neg(300:i8))", "constant 300 is out of range for i8"),
        # Ops.
        (LET, "v3 : f32 = mul(p2, 1.0:f64)", "mul has operands of f32, f64, expected one dtype"),
        (LET, "v3 : f32 = f32(mul(r_in[0], r_in[1]))", "mul is not computed in bf16"),
        (LET, "v3 : f32 = f32(exp(v0))", "exp is not computed in i64"),
        (LET, "v3 : f32 = f32(sub(v1, v1))", "sub is not computed in bool"),
        (LET, "v3 : f32 = where(v0, p2, p2)", "where has a condition of dtype i64"),
        (LET, "v3 : f32 = where(v1, p2, f64(p2))", "where has operands of f32, f64"),
        # Parameters.
        ("g_in[v0 / p1]", "g_in[v0 * p1]", "divisor p1 is used in v0 * p1"),
        ("g_in[v0 / p1]", "g_in[p1 / v0]", "divisor p1 is used in p1 / v0"),
        ("g_in[v0 / p1]", "g_in[p1]", "the offset is the divisor p1"),
        (LET, "v3 : f32 = f32(p1)", "divisor p1 is used in f32(p1)"),
        ("int size(0, 0)", "int v0", "v0 is not defined here"),
        ("int size(0, 0)", "int thread", "the value of p0 depends on thread, expected sizes"),
        ("p1 : i32", "p1 : f32", "p1 has dtype f32, expected i32 or i64"),
        ("int size(0, 0)", "int f32(size(0, 0))", "the value of p0 has dtype f32, expected i64"),
        # Declarations.
        ("blocks size(0, 0)", "blocks block", "the number of blocks depends on block"),
        ("axes [a0]", "axes [a0 a0]", "2 axes have 1 extents"),
        ("[a0] extents [size(0, 0)]", "[a0 a0] extents [1, 1]", "a0 is declared twice"),
        ("extents [size(0, 0)]", "extents [thread]", "the extent of an axis depends on thread"),
        (" index v0\n", "\n", "a group of axes has no index of dtype i64"),
        ("g_in[v0 / p1]", "g_in[a1]", "a1 is not among the declared axes"),
        ("threads 256", "threads 2048", "2048 threads, expected 1 to 1024"),
        ("threads 256", "threads 0", "0 threads, expected 1 to 1024"),
        ("array r_out bf16 8", "array r_out bf16 0", "array r_out has extent 0"),
        ("buffer g_in bf16 read restrict\n", "buffer r_in bf16 read\n  buffer g_in bf16 read\n",
         "r_in is declared twice"),
        ("for v2 < 8", "for v2 < 0", "for v2 < 0: extent 0, expected at least 1"),
    ],
)  # fmt: skip
def test_each_rule(good: str, bad: str, message: str) -> None:
    assert GOOD.count(good) >= 1
    found = error_of(GOOD.replace(good, bad, 1))
    assert "kernel k: " in found
    assert message in found


REDUCTIONS = """\
kernel k threads 256 min_blocks 0 index 32 cluster 2 cooperative {
  buffer g_in bf16 read restrict
  buffer g_out f32 written restrict
  buffer g_partial f32 state sum workspace size(0, 0) read written
  buffer g_counters i32 counters size(0, 0) read written
  buffer s_in bf16 shared 4096 read written restrict
  buffer s_sum f32 state sum shared 8 read written restrict
  buffer s_blocks f32 state sum shared 16 read written restrict
  buffer s_rows f32 state sum shared 512 read written restrict
  buffer s_last i32 shared 1 read written restrict
  buffer s_a i64 shared 2 read written restrict
  param p0 : f32 real size(0, 1)
  array q_in bf16 2 chunk 8
  array r_in bf16 8
  array r_out f32 1
  array r_sum f32 2 state sum
  array r_partial f32 1 state sum
  array r_argmax f32 1 state argmax
  blocks size(0, 0) * 2
  v0 = block / 2
  v1 = thread
  arrive_cluster s_a
  wait_cluster
  init_state r_sum
  async_copy s_in[v1 * 8] width 8 g_in[v1] in v1 < 7
  async_commit
  async_wait 0
  serial v2 < size(0, 1) {
    load q_in[1] width 8 g_in[v2] in v2 < 4
    unpack r_in q_in[1]
    assert_index 0 v2 of size(0, 0) in v1 < 5
    if v1 < 3 {
      accumulate r_sum[1] (f32(r_in[0])) in v1 < 2
      accumulate r_argmax[0] (p0, v2)
    }
    merge r_sum[0] r_partial[0]
    thread_reduce r_sum
    block_reduce (r_sum) group 256 slots (s_sum) cluster (s_blocks) parity v2 % 2 arrival s_a[0] turn v0
  }
  block_reduce_columns (r_sum) threads_y 8 threads_x 32 slots (s_rows)
  write g_partial[v0] width 1 r_sum[0] in eq(v1, 0)
  barrier
  v3 = is_last_block g_counters[v0] of size(0, 0) slot s_last
  if uniform v3 {
    load r_partial[0] width 1 g_partial[v0]
    r_out[0] = r_sum[0]
    write g_out[r_argmax[0].f1] width 1 r_out[0]
    sync_grid g_counters
  }
}
"""  # noqa: E501

IN_IF = "if uniform v3 {"


def test_good_reductions() -> None:
    check_verifies(REDUCTIONS)


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        # Convergence: collectives that not all threads of the block reach.
        (IN_IF, "if v3 {", "sync_grid g_counters: a barrier in divergent control flow"),
        *(
            (
                "accumulate r_argmax[0] (p0, v2)",
                collective,
                f"{collective}: a barrier in divergent control flow",
            )
            for collective in (
                "barrier",
                "wait_cluster",
                "sync_grid g_counters",
                "block_reduce (r_sum) group 32 cluster (s_blocks) arrival s_a[0] turn 0",
                "block_reduce_columns (r_sum) threads_y 8 threads_x 32 slots (s_rows)",
                "v4 = is_last_block g_counters[0] of 1 slot s_last",
            )
        ),
        *(
            (
                "v2 < size(0, 1)",
                f"v2 < {count}",
                "arrival s_a[0] turn v0: a barrier in divergent control flow",
            )
            for count in ("v1", "thread / 2", "i64(r_sum[0])")
        ),
        ("v2 < size(0, 1)", "v2 < p0", "the trip count has dtype f32, expected i64"),
        ("if v1 < 3 {", "if v1 {", "the condition has dtype i64, expected bool"),
        # States of reductions.
        (
            "init_state r_sum",
            "init_state r_out",
            "init_state r_out: r_out holds no partial results",
        ),
        ("thread_reduce r_sum", "thread_reduce r_out", "r_out holds no partial results"),
        *(
            (
                "thread_reduce r_sum",
                f"lane_reduce r_sum {other}",
                f"r_sum and {other} are not two arrays of one reduction",
            )
            for other in ("r_sum", "r_argmax")
        ),
        ("thread_reduce r_sum", "lane_transpose r_out", "r_out has "),
        ("merge r_sum[0]", "merge r_out[0]", "r_out holds no partial results"),
        (
            "merge r_sum[0] r_partial",
            "merge r_sum[0] r_argmax",
            "r_sum and r_argmax are partial results of different reductions",
        ),
        ("merge r_sum[0]", "merge r_sum[2]", "elements 2 to 2 of r_sum, which has 2"),
        ("r_sum[1] (", "r_sum[2] (", "elements 2 to 2 of r_sum, which has 2"),
        ("(p0, v2)", "(p0)", "1 values, argmax takes 2"),
        ("(f32(r_in[0]))", "(f32(r_in[0]), v2, v2)", "3 values, sum takes 1"),
        ("(p0, v2)", "(p0, p0)", "the value has dtype f32, expected i64"),
        ("(f32(r_in[0]))", "(r_in[0])", "the value has dtype bf16, expected f32"),
        (") in v1 < 2", ") in v1", "the predicate has dtype i64, expected bool"),
        (
            "write g_partial[v0] width 1 r_sum[0]",
            "write g_partial[v0] width 1 r_out[0]",
            "r_out and g_partial do not hold partial results of one reduction",
        ),
        (
            "write g_partial[v0] width 1 r_sum[0]",
            "write g_out[v0] width 1 r_sum[0]",
            "r_sum and g_out do not hold partial results of one reduction",
        ),
        (
            "write g_partial[v0] width 1 r_sum[0]",
            "write g_partial[v0] width 1 r_argmax[0]",
            "r_argmax and g_partial do not hold partial results of one reduction",
        ),
        # Slots.
        (
            "block_reduce (r_sum) group 256",
            "block_reduce (r_out) group 256",
            "r_out holds no partial results",
        ),
        ("group 256", "group 96", "96 of 256 threads"),
        ("group 256", "group 512", "512 of 256 threads"),
        (
            "s_blocks f32 state sum shared 16",
            "s_blocks f32 state sum shared 15",
            "s_blocks is too small for 16 partial results of r_sum",
        ),
        (
            "s_rows f32 state sum shared 512",
            "s_rows f32 state sum shared 511",
            "s_rows is too small for 512 partial results of r_sum",
        ),
        (" cluster (s_blocks)", "", "0 slots for 1 partial results"),
        (" slots (s_rows)", "", "0 slots for 1 partial results"),
        ("parity v2 % 2", "parity p0", "the parity has dtype f32, expected i64"),
        ("s_a[0]", "s_blocks[p0]", "the arrival has dtype f32, expected i64"),
        ("turn v0", "turn p0", "the turn has dtype f32, expected i64"),
        (" arrival s_a[0] turn v0", "", "expected an arrival if and only if"),
        ("arrive_cluster s_a", "arrive_cluster g_in", "g_in has another kind of memory"),
        ("threads_y 8 threads_x", "threads_y 4 threads_x", "4 x 32 of 256 threads"),
        (
            "is_last_block g_counters",
            "is_last_block g_partial",
            "g_partial has another kind of memory",
        ),
        ("slot s_last", "slot g_counters", "g_counters has another kind of memory"),
        (
            "is_last_block g_counters[v0]",
            "is_last_block g_counters[p0]",
            "the counter's index has dtype f32",
        ),
        ("of size(0, 0) slot", "of p0 slot", "the count has dtype f32, expected i64"),
        ("sync_grid g_counters", "sync_grid g_in", "g_in has another kind of memory"),
        (" cooperative {", " {", "sync_grid g_counters: in a kernel that is not cooperative"),
        # Copies and chunks.
        (
            "async_copy s_in",
            "async_copy s_last",
            "a copy from g_in to s_last, expected equal dtypes",
        ),
        ("async_copy s_in", "async_copy g_in", "g_in has another kind of memory"),
        ("8 g_in[v1]", "8 s_in[v1]", "s_in has another kind of memory"),
        ("width 8 g_in[v1]", "width 1 g_in[v1]", "a copy of 2 bytes, expected 4, 8 or 16"),
        ("width 8 g_in[v1]", "width 16 g_in[v1]", "a copy of 32 bytes, expected 4, 8 or 16"),
        ("in v1 < 7", "in v1", "the predicate has dtype i64, expected bool"),
        (
            "async_copy s_in[v1 * 8]",
            "async_copy s_in[p0]",
            "the element has dtype f32, expected i64",
        ),
        ("width 8 g_in[v2]", "width 4 g_in[v2]", "width 4 of chunks of 8"),
        ("load q_in[1]", "load q_in[2]", "elements 2 to 2 of q_in, which has 2"),
        ("in v2 < 4", "count 4", "a partial access to a chunk"),
        ("assert_index 0 v2", "assert_index 0 f32(r_in[0])", "an index of dtype f32"),
        ("of size(0, 0) in v1", "of v1 < 5 in v1", "the extent"),
        ("unpack r_in q_in[1]", "unpack r_in q_in[2]", "elements 2 to 2 of q_in, which has 2"),
        ("unpack r_in q_in", "unpack r_out q_in", "chunks of 8 elements become 1"),
        ("unpack r_in q_in", "unpack r_in r_in", "chunks of 0 elements become 8"),
        ("f32(r_in[0])", "f32(q_in[0])", "q_in holds packed chunks, expected unpacked elements"),
        # Declarations.
        ("p0 : f32 real", "p0 : bf16 real", "p0 has dtype bf16, expected f32 or f64"),
        ("real size(0, 1)", "real thread", "the value of p0 depends on thread"),
        ("shared 4096", "shared size(0, 0)", "s_in is in shared memory and has no size"),
        (
            "workspace size(0, 0)",
            "workspace thread",
            "the size of scratch memory depends on thread",
        ),
        ("cluster 2 cooperative", "cluster 32 cooperative", "clusters of 32 blocks"),
        ("cluster 2 cooperative", "cluster 0 cooperative", "clusters of 0 blocks"),
    ],
)
def test_each_rule_of_reductions(good: str, bad: str, message: str) -> None:
    assert REDUCTIONS.count(good) >= 1
    found = error_of(REDUCTIONS.replace(good, bad, 1))
    assert "kernel k: " in found
    assert message in found


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        (
            "s_sum f32 state sum shared 8",
            "s_sum f32 state sum shared 7",
            "s_sum is too small for 8 partial results of r_sum",
        ),
        (
            "s_sum f32 state sum",
            "s_sum f32 state max",
            "s_sum is too small for 8 partial results of r_sum",
        ),
        ("slots (s_sum)", "slots (g_partial)", "g_partial has another kind of memory"),
        (" slots (s_sum)", "", "0 slots for 1 partial results"),
    ],
)
def test_slots_of_a_block_without_a_cluster(good: str, bad: str, message: str) -> None:
    alone = REDUCTIONS.replace(" cluster 2 cooperative", " cooperative")
    alone = alone.replace(" cluster (s_blocks)", "").replace("  wait_cluster\n", "")
    alone = alone.replace(" arrival s_a[0] turn v0", "")
    assert message in error_of(alone.replace(good, bad, 1))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        # Uniform conditions, from blocks, parameters and other loops, are accepted.
        ("v2 < size(0, 1)", "v2 < v0"),
        ("if v1 < 3 {", "if uniform v0 < 3 {"),
    ],
)
def test_what_converges(good: str, bad: str) -> None:
    text = REDUCTIONS.replace(good, bad, 1)
    assert text != REDUCTIONS
    _core.parse_kernel(text).verify()


def test_message_names_the_statement() -> None:
    found = error_of(GOOD.replace(LET, "v3 : f32 = mul(p2, f64(p2))"))
    assert found.endswith(
        "kernel k: v3 : f32 = mul(p2, f64(p2)): mul has operands of f32, f64, expected one dtype"
    )


def test_variables_of_a_loop_may_be_used_inside_it() -> None:
    inner = "    for v4 < 2 {\n      r_out[v4] = bf16(mul(v3, f32(v2)))\n    }\n"
    text = GOOD.replace("    r_out[v2] = bf16(v3)\n", inner)
    _core.parse_kernel(text).verify()
    outside = text.replace(inner, inner + "    r_out[v4] = bf16(v3)\n")
    assert error_of(outside).endswith("r_out[v4] = bf16(v3): v4 is not defined here")


@pytest.mark.parametrize(("buffers", "fits"), [(507, True), (508, True), (509, False)])
def test_kernel_size_3(buffers: int, fits: bool) -> None:
    declared = "".join(f"  buffer g{i} f32 read\n" for i in range(buffers))
    text = f"kernel k threads 32 min_blocks 0 index 64 {{\n{declared}"
    text += "".join(f"  param p{i} : i64 int {i}\n" for i in range(4)) + "}\n"
    kernel = _core.parse_kernel(text)
    assert kernel.argument_bytes() == 8 * (buffers + 4)
    if fits:
        kernel.verify()
        return
    with pytest.raises(Unsupported, match="takes 4104 bytes of arguments") as caught:
        kernel.verify()
    assert caught.value.rule == "kernel-size-3"


def test_deep_expressions() -> None:
    deep = "neg(" * 10_000 + "v0" + ")" * 10_000
    text = GOOD.replace("g_in[v0 / p1]", f"g_in[{deep}]")
    _core.parse_kernel(text).verify()
    assert error_of(text.replace("v0)))", "p2)))"))
