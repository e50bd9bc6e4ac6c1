"""csrc/ir/verify: each rule is broken once, and the message names the statement."""

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
  work size(0, 0)
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


def test_good() -> None:
    _core.parse_kernel(GOOD).verify()


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
        ("index 32 {", "index 32 vars 3 {", "v3, but 3 variables are numbered so far"),
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
        (LET, "v3 : f32 = f32(neg(300:i8))", "constant 300 does not fit i8"),
        # Ops.
        (LET, "v3 : f32 = mul(p2, 1.0:f64)", "mul has operands of f32, f64, expected one dtype"),
        (LET, "v3 : f32 = f32(mul(r_in[0], r_in[1]))", "mul is not computed in bf16"),
        (LET, "v3 : f32 = f32(exp(v0))", "exp is not computed in i64"),
        (LET, "v3 : f32 = f32(sub(v1, v1))", "sub is not computed in bool"),
        (LET, "v3 : f32 = where(v0, p2, p2)", "where chooses by a value of dtype i64"),
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
        ("work size(0, 0)", "work block", "the work depends on block"),
        ("axes [a0]", "axes [a0 a0]", "2 axes have 1 extents"),
        ("[a0] extents [size(0, 0)]", "[a0 a0] extents [1, 1]", "a0 is walked twice"),
        ("extents [size(0, 0)]", "extents [thread]", "the extent of an axis depends on thread"),
        (" index v0\n", "\n", "a run of axes has no index of dtype i64"),
        ("g_in[v0 / p1]", "g_in[a1]", "a1 is walked by none of the declared axes"),
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


def test_message_names_the_statement() -> None:
    found = error_of(GOOD.replace(LET, "v3 : f32 = mul(p2, f64(p2))"))
    assert found.endswith(
        "kernel k: v3 : f32 = mul(p2, f64(p2)): mul has operands of f32, f64, expected one dtype"
    )


def test_variables_of_a_loop_may_be_used_inside_it() -> None:
    inner = "    for v4 < 2 {\n      r_out[v4] = bf16(mul(v3, f32(v2)))\n    }\n"
    text = GOOD.replace("    r_out[v2] = bf16(v3)\n", inner)
    _core.parse_kernel(text).verify()


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
    _core.parse_kernel(GOOD.replace("g_in[v0 / p1]", f"g_in[{deep}]")).verify()
