"""Uniform values become parameters; divisors become divisor parameters."""

from tests.lower.passes import after, text

BUFFERS = """
  buffer g_in0 f32 read restrict
  buffer g_out0 f32 written restrict
"""
ARRAYS = """
  array r_in0 f32 1
  array r_out0 f32 1
  blocks size(0, 0)
"""


def parameters(body: str, index: int = 32) -> tuple[str, str]:
    """Lines of parameters, and statements."""
    got = after("parameters", BUFFERS + ARRAYS, body, index).splitlines()
    kept = [line for line in got if line.startswith("param")]
    first = next(i for i, line in enumerate(got) if line.startswith("v0 ="))
    return "\n".join(kept), "\n".join(got[first:])


def test_the_largest_uniform_part() -> None:
    kept, body = parameters("""
      v0 = block * 256 + thread
      load r_in0[0] width 1 g_in0[v0 * stride(0, 0) + size(0, 0) * size(0, 1)] in v0 < size(0, 0)*4
    """)
    assert kept == text("""
        param p0 : i32 int stride(0, 0)
        param p1 : i32 int size(0, 0) * size(0, 1)
        param p2 : i32 int size(0, 0) * 4
    """)
    assert body == text("""
        v0 = block * 256 + thread
        load r_in0[0] width 1 g_in0[v0 * p0 + p1] in v0 < p2
    """)


def test_uniform_factors_are_one() -> None:
    """Uniform factors combine to one parameter in any order, e.g. the size of an image plane."""
    kept, body = parameters("""
      v0 = block * 256 + thread
      load r_in0[0] width 1 g_in0[(v0 % 3) * size(0, 0) * size(0, 1) + v0 * size(0, 0) * 4]
    """)
    assert kept == text("""
        param p0 : i32 int size(0, 0)
        param p1 : i32 int size(0, 0) * size(0, 1)
    """)
    assert body == text("""
        v0 = block * 256 + thread
        load r_in0[0] width 1 g_in0[v0 * p0 * 4 + v0 % 3 * p1]
    """)


def test_divisors() -> None:
    """A number used as divisor and as factor becomes two parameters."""
    kept, body = parameters("""
      v0 = block * 256 + thread
      load r_in0[0] width 1 g_in0[v0 / size(0, 1) * stride(0, 0) + v0 % size(0, 1) * size(0, 1)]
    """)
    assert kept == text("""
        param p0 : i32 int size(0, 1)
        param p1 : i32 divisor size(0, 1)
        param p2 : i32 int stride(0, 0)
    """)
    assert body.endswith("g_in0[v0 / p1 * p2 + v0 % p1 * p0]")


def test_constants_stay() -> None:
    kept, body = parameters("""
      v0 = block * 256 + thread
      load r_in0[0] width 1 g_in0[v0 / 3 * 7]
    """)
    assert kept == ""
    assert body.endswith("g_in0[v0 / 3 * 7]")


def test_64_bits() -> None:
    kept, _ = parameters(
        """
      v0 = block * 256 + thread
      load r_in0[0] width 1 g_in0[v0 / size(0, 1) * stride(0, 0)]
    """,
        index=64,
    )
    assert kept == text("""
        param p0 : i64 int stride(0, 0)
        param p1 : i64 divisor size(0, 1)
    """)


def test_scalars_in_arithmetic() -> None:
    """Conversions of scalars move to the launch if it supports them; the rest remain in the
    kernel."""
    kept, body = parameters("""
      v0 = block * 256 + thread
      v1 : f32 = add(f32(scalar(0):f64), r_in0[0])
      v2 : f32 = add(f32(scalar(1):f16), v1)
      v3 : f32 = add(f32(scalar(2)), v2)
      v4 : f32 = add(f32(value(3):f32), v3)
      v5 : i64 = mul(scalar(2), i64(v4))
      v6 : f16 = scalar(1):f16
      r_out0[0] = f32(v5)
    """)
    assert kept == text("""
        param p0 : f32 scalar 0
        param p1 : f32 scalar 1
        param p2 : f32 scalar 2
        param p3 : f32 value 3
        param p4 : i64 scalar 2
        param p5 : f64 scalar 1
    """)
    assert body == text("""
        v0 = block * 256 + thread
        v1 : f32 = add(p0, r_in0[0])
        v2 : f32 = add(p1, v1)
        v3 : f32 = add(p2, v2)
        v4 : f32 = add(p3, v3)
        v5 : i64 = i64(v4) * p4
        v6 : f16 = f16(p5)
        r_out0[0] = f32(v5)
    """)


def test_sizes_in_arithmetic_are_numbers() -> None:
    kept, _ = parameters("""
      v0 = block * 256 + thread
      r_out0[0] = f32(size(0, 0))
    """)
    assert kept == "param p0 : f32 real size(0, 0)"


def test_a_size_and_one_through_it_are_two_numbers() -> None:
    kept, body = parameters("""
      v0 = block * 256 + thread
      v1 : f32 = mul(f32(size(0, 0)), r_in0[0])
      r_out0[0] = mul(reciprocal(f32(size(0, 0))), v1)
    """)
    assert kept == text("""
        param p0 : f32 real size(0, 0)
        param p1 : f32 inverse size(0, 0)
    """)
    assert body == text("""
        v0 = block * 256 + thread
        v1 : f32 = mul(p0, r_in0[0])
        r_out0[0] = mul(p1, v1)
    """)


def test_factors_in_arithmetic_stay_apart() -> None:
    """Factors in int64 arithmetic remain separate parameters; factors of an index combine, in the
    index's width."""
    kept, body = parameters("""
      v0 = block * 256 + thread
      v1 : i64 = mul(mul(i64(r_in0[0]), size(0, 0)), size(0, 1))
      r_out0[0] = f32(v1)
    """)
    assert kept == text("""
        param p0 : i64 int size(0, 1)
        param p1 : i64 int size(0, 0)
    """)
    assert "v1 : i64 = i64(r_in0[0]) * p0 * p1" in body


def test_one_through_one_through_a_size_is_no_number() -> None:
    kept, body = parameters("""
      v0 = block * 256 + thread
      r_out0[0] = reciprocal(reciprocal(f32(size(0, 0))))
    """)
    assert kept == "param p0 : f32 inverse size(0, 0)"
    assert body.endswith("r_out0[0] = reciprocal(p0)")
