"""Kernels for the reductions of csrc/device/reduce.cuh, and the expected states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import _core
from tests.device.programs import Program

Array = np.ndarray[Any, Any]

# Compute dtypes: name in kernel text -> numpy dtype.
NUMPY = {
    "bool": np.dtype(np.bool_),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
REAL = [name for name, dtype in NUMPY.items() if dtype.kind != "c"]
FLOAT = ["f32", "f64"]

DTYPES = {
    **{tag: list(NUMPY) for tag in ("Sum", "Prod", "Any", "All")},
    **{tag: REAL for tag in ("Max", "Min", "ArgMax", "ArgMin")},
    **{tag: FLOAT for tag in ("Welford", "OnlineSoftmax")},
}

LAST = np.iinfo(np.int64).max  # index of an empty reduction


@dataclass(frozen=True)
class Reduction:
    """A reduction tag and the dtype of the elements."""

    tag: str
    device: str

    @property
    def name(self) -> str:
        return f"{self.tag}-{self.device}"

    @property
    def dtype(self) -> np.dtype[Any]:
        return NUMPY[self.device]

    @property
    def indexed(self) -> bool:
        return self.tag in {"ArgMax", "ArgMin"}

    @property
    def state_text(self) -> str:
        if self.indexed:
            return f"ArgState<{self.device}>"
        if self.tag == "Welford":
            return f"WelfordState<{self.device}>"
        if self.tag == "OnlineSoftmax":
            return f"OnlineState<{self.device}>"
        return "bool" if self.tag in {"Any", "All"} else self.device

    @property
    def state(self) -> np.dtype[Any]:
        if self.indexed:
            return np.dtype([("f0", self.dtype), ("f1", np.int64)], align=True)
        if self.tag == "Welford":
            return np.dtype([(f, self.dtype) for f in ("f0", "f1", "f2")])
        if self.tag == "OnlineSoftmax":
            return np.dtype([(f, self.dtype) for f in ("f0", "f1")])
        return NUMPY[self.state_text]


ALL = [Reduction(tag, device) for tag, devices in DTYPES.items() for device in devices]
# States of every size, with and without fields, with cheap and expensive merges.
SOME = [
    Reduction("Sum", "f32"),
    Reduction("Sum", "u8"),
    Reduction("Prod", "c128"),
    Reduction("Max", "i64"),
    Reduction("Min", "f64"),
    Reduction("Any", "bool"),
    Reduction("ArgMax", "f32"),
    Reduction("ArgMin", "u8"),
    Reduction("Welford", "f32"),
    Reduction("Welford", "f64"),
    Reduction("OnlineSoftmax", "f32"),
]


def program(name: str, threads: int, parameters: str, helpers: str, cases: list[str]) -> Program:
    """A kernel of (which, parameters...) that runs case number `which`."""
    body = "\n".join(f"    case {i}: {{ {case} break; }}" for i, case in enumerate(cases))
    kernel = f"""{helpers}
KERNEL({threads}) void {name}(i32 which, {parameters}) {{
  switch (which) {{
{body}
  }}
}}
"""
    return Program(name, _core.device_text(kernel) + kernel, [])


def arguments(r: Reduction) -> str:
    return f"{r.tag}, {r.device}, {r.state_text}"


# Reduces `count` elements of x into r; this thread takes every step-th element from `first` on.
THREAD_ROW = """
template <class R, class T, class S>
DEVICE S thread_row(const T* x, i32 count, i32 first, i32 step) {
  S r[3];
  reset<R>(r);
  for (i32 i = first; i < count; i += 3 * step) {
    UNROLL for (i32 k = 0; k < 3; ++k) {
      const i32 at = i + k * step;
      if (at < count) {
        if constexpr (sizeof(S) == sizeof(ArgState<T>) && is_arg(R{})) {
          accumulate_(R{}, r[k], load1(x + at), at);
        } else {
          accumulate_(R{}, r[k], load1(x + at));
        }
      }
    }
  }
  fold<R>(r);
  return r[0];
}
"""
IS_ARG = """
template <class R> DEVICE static constexpr bool is_arg(R) { return false; }
DEVICE static constexpr bool is_arg(ArgMax) { return true; }
DEVICE static constexpr bool is_arg(ArgMin) { return true; }
"""
THREAD_ROW = IS_ARG + THREAD_ROW.replace("sizeof(S) == sizeof(ArgState<T>) && ", "")


def block_program(tag: str) -> Program:
    """Block b of 256 threads reduces row b of x; every thread stores the state."""
    helper = (
        THREAD_ROW
        + """
template <class R, class T, class S>
DEVICE void block_row(i32 count, const void* x, void* out) {
  S s = thread_row<R, T, S>((const T*)x + (i64)block_x() * count, count, thread_x(), 256);
  S* slots = (S*)shared_memory();
  publish_warp(slots, reduce_lanes<R, 32>(s));
  sync_block();
  s = collect_warps<R, 8>((const S*)slots);
  put_state_((S*)out + block_x() * 256 + thread_x(), s);
}
"""
    )
    cases = [
        f"block_row<{arguments(Reduction(tag, device))}>(count, x, out);" for device in DTYPES[tag]
    ]
    return program(f"block_{tag}", 256, "i32 count, const void* x, void* out", helper, cases)


def merge_program() -> Program:
    """out[i] = merge(a[i], b[i]), out[n + i] = merge(b[i], a[i]), out[2n + i] = merge(a[i], empty
    state)."""
    helper = """
template <class R, class S>
DEVICE void merge_all(i32 n, const void* a, const void* b, void* out) {
  const i32 i = block_x() * 64 + thread_x();
  if (i < n) {
    const S x = get_state_((const S*)a + i), y = get_state_((const S*)b + i);
    S none[1];
    reset<R>(none);
    put_state_((S*)out + i, merge_(R{}, x, y));
    put_state_((S*)out + n + i, merge_(R{}, y, x));
    put_state_((S*)out + 2 * n + i, merge_(R{}, x, none[0]));
  }
}
"""
    cases = [f"merge_all<{r.tag}, {r.state_text}>(n, a, b, out);" for r in ALL]
    return program("merge", 64, "i32 n, const void* a, const void* b, void* out", helper, cases)


WIDTHS = (1, 2, 4, 8, 16, 32)
# All widths for states of one and of four words, two widths for the rest. float64's Welford is
# omitted: its divisions make ptxas spill in this kernel of many cases.
LANES = [
    (r, w)
    for i, r in enumerate(SOME)
    for j, w in enumerate(WIDTHS)
    if r.name != "Welford-f64" and (i in (0, 6) or i % 3 == j % 3)
]


def lanes_program() -> Program:
    """Reductions over groups of threads of a warp, or over warps, with one element per thread, for
    the cases of LANES."""
    helper = """
template <class R, i32 W, class T, class S>
DEVICE void group(i32 warps, const void* x, void* out) {
  S s[1];
  reset<R>(s);
  const i32 i = block_x() * block_dim_x() + thread_x();
  if constexpr (is_arg(R{})) accumulate_(R{}, s[0], load1((const T*)x + i), i);
  else accumulate_(R{}, s[0], load1((const T*)x + i));
  S* slots = (S*)shared_memory();
  if (warps) {
    publish_warp(slots, reduce_lanes<R, 32>(s[0]));
    sync_block();
    s[0] = collect_warps<R, W>((const S*)slots);
  } else {
    s[0] = reduce_lanes<R, W>(s[0]);
  }
  put_state_((S*)out + i, s[0]);
}
"""
    cases = [f"group<{r.tag}, {w}, {r.device}, {r.state_text}>(warps, x, out);" for r, w in LANES]
    return program("lanes", 1024, "i32 warps, const void* x, void* out", IS_ARG + helper, cases)


# (rows, columns, states per thread)
TILES = [
    (1, 64, 2),
    (2, 32, 1),
    (8, 32, 3),
    (5, 64, 2),
    (3, 96, 1),
    (32, 1, 2),
    (64, 1, 3),
    (16, 8, 4),
    (4, 8, 2),
    (13, 16, 1),
    (6, 24, 2),
    (43, 3, 2),
    (7, 128, 4),
]
# All tiles for one reduction, one or two for the rest.
ROWS = [
    (r, tile)
    for i, r in enumerate(SOME)
    for j, tile in enumerate(TILES)
    if i == 0 or (i + j) % 11 == 0
]


def tile_threads(rows: int, columns: int) -> int:
    return -(-rows * columns // 32) * 32


def rows_program() -> Program:
    """A block reduces x[block][rows][n][columns] over rows, `turns` times, in reverse order in odd
    turns, into out[turn][block][y][n][columns]. `turns` is a parameter, so that no compiler unrolls
    the loop."""
    helper = """
template <class R, i32 ROWS, i32 COLUMNS, i32 N, class T, class S>
DEVICE void tile(i32 turns, const void* x, void* out) {
  const i32 y = thread_x() / COLUMNS, column = thread_x() % COLUMNS;
  for (i32 turn = 0; turn < turns; ++turn) {
    S s[N];
    reset<R>(s);
    if (y < ROWS) {
      UNROLL for (i32 n = 0; n < N; ++n) {
        const i32 from = turn % 2 ? ROWS - 1 - y : y;
        const i32 at = ((block_x() * ROWS + from) * N + n) * COLUMNS + column;
        if constexpr (is_arg(R{})) accumulate_(R{}, s[n], load1((const T*)x + at), from);
        else accumulate_(R{}, s[n], load1((const T*)x + at));
      }
    }
    if (turn) sync_block();
    reduce_rows<R, ROWS, COLUMNS>(s, (S*)shared_memory());
    if (y < ROWS) {
      UNROLL for (i32 n = 0; n < N; ++n) {
        const i32 row = (turn * grid_dim_x() + block_x()) * ROWS + y;
        put_state_((S*)out + ((row * N + n) * COLUMNS + column), s[n]);
      }
    }
  }
}
"""
    cases = [
        f"tile<{r.tag}, {rows}, {columns}, {n}, {r.device}, {r.state_text}>(turns, x, out);"
        for r, (rows, columns, n) in ROWS
    ]
    return program("rows", 1024, "i32 turns, const void* x, void* out", IS_ARG + helper, cases)


CLUSTERS = (2, 4, 8)
# All sizes for states of one and of four words, one size for the rest.
CLUSTERED = [
    (r, n) for i, r in enumerate(SOME) for j, n in enumerate(CLUSTERS) if i in (0, 6) or i % 3 == j
]


def cluster_program() -> Program:
    """Each cluster of 64-thread blocks reduces a row of x, in odd turns only its first half, into
    out[turn][cluster][block][thread]. Turns alternate between two barriers with their slots, so
    blocks wait once in each turn."""
    helper = (
        THREAD_ROW
        + """
template <class R, i32 N, class T, class S>
DEVICE void cluster(i32 turns, i32 count, const void* x, void* out) {
  i64* arrivals = (i64*)shared_memory();
  S* slots = (S*)(arrivals + 2);
  const i32 states = 2 * N * ClusterSlot_<S>::STATES;
  begin_cluster<2>(arrivals);
  wait_cluster();
  for (i32 turn = 0; turn < turns; ++turn) {
    i64* arrival = arrivals + turn % 2;
    S* mine = slots + turn % 2 * states;
    const T* row = (const T*)x + (i64)(block_x() / N) * count;
    const i32 first = cluster_rank() * 64 + thread_x();
    S s = thread_row<R, T, S>(row, turn % 2 ? count / 2 : count, first, 64 * N);
    publish_cluster<N, 2>(mine, reduce_lanes<R, 32>(s), arrival);
    await_cluster(arrival, states * (i32)sizeof(S), turn / 2 % 2);
    s = collect_cluster<R, 2 * N>((const S*)mine);
    put_state_((S*)out + ((turn * grid_dim_x() + block_x()) * 64 + thread_x()), s);
  }
}
"""
    )
    cases = [
        f"cluster<{r.tag}, {n}, {r.device}, {r.state_text}>(turns, count, x, out);"
        for r, n in CLUSTERED
    ]
    return program("clusters", 64, "i32 turns, i32 count, const void* x, void* out", helper, cases)


def grid_program() -> Program:
    """The blocks of a grid of 64 threads reduce one row, each warp to a partial state. The last
    block merges the partial states in order, stores the result, and counts the last blocks."""
    helper = (
        THREAD_ROW
        + """
template <class R, class T, class S>
DEVICE void grid(i32 count, const void* x, void* partials, void* out, u32* counter, u32* lasts) {
  const i32 blocks = grid_dim_x(), t = thread_x();
  const S s = thread_row<R, T, S>((const T*)x, count, block_x() * 64 + t, blocks * 64);
  const S part = reduce_lanes<R, 32>(s);
  if (t % 32 == 0) store_partial((S*)partials + block_x() * 2 + t / 32, part);
  if (last_block(counter, (u32)blocks, (u32*)shared_memory())) {
    S whole[1];
    reset<R>(whole);
    for (i32 i = 0; i < 2 * blocks; ++i)
      whole[0] = merge_(R{}, whole[0], load_partial((const S*)partials + i));
    put_state_((S*)out + t, whole[0]);
    if (t == 0) atomic_add(lasts, 1u);
  }
}
"""
    )
    cases = [f"grid<{arguments(r)}>(count, x, partials, out, counter, lasts);" for r in SOME]
    return program(
        "grids",
        64,
        "i32 count, const void* x, void* partials, void* out, u32* counter, u32* lasts",
        helper,
        cases,
    )


def online_program() -> Program:
    """Each thread accumulates a row without any merge: OnlineSoftmax by single elements (even
    `which`) or by 5 elements at once."""
    helper = """
template <class T, bool AT_ONCE>
DEVICE void row_of(i32 count, const void* x, void* out) {
  OnlineState<T> s[1];
  reset<OnlineSoftmax>(s);
  const i32 row = block_x() * 32 + thread_x();
  for (i32 i = 0; i < count; i += 5) {
    T r[5];
    UNROLL for (i32 k = 0; k < 5; ++k) r[k] = load1((const T*)x + row * count + i + k);
    if constexpr (AT_ONCE) {
      accumulate_(OnlineSoftmax{}, s[0], r);
    } else {
      UNROLL for (i32 k = 0; k < 5; ++k) accumulate_(OnlineSoftmax{}, s[0], r[k]);
    }
  }
  put_state_((OnlineState<T>*)out + row, s[0]);
}
"""
    cases = [
        f"row_of<{device}, {at_once}>(count, x, out);"
        for device in FLOAT
        for at_once in ("false", "true")
    ]
    return program("online", 32, "i32 count, const void* x, void* out", helper, cases)


def all_programs() -> list[Program]:
    blocks = [block_program(tag) for tag in DTYPES]
    return [
        *blocks,
        merge_program(),
        lanes_program(),
        rows_program(),
        cluster_program(),
        grid_program(),
        online_program(),
    ]


# ---- expected states


def same_bits(a: Array, b: Array) -> bool:
    """Return True if the arrays are equal bit for bit, field by field for structs; all NaNs are
    equal."""
    if a.dtype.names:
        return all(same_bits(a[f], b[f]) for f in a.dtype.names)
    if a.dtype.kind == "c":
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    if a.dtype.kind == "f":
        bits = np.dtype(f"u{a.dtype.itemsize}")
        same = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
        return bool((same | (np.isnan(a) & np.isnan(b))).all())
    return bool((a == b).all())


def limit(r: Reduction) -> Any:
    """The extremum of an empty reduction."""
    least = r.tag.endswith("Max")
    if r.dtype.kind == "f":
        return -np.inf if least else np.inf
    if r.dtype.kind == "b":
        return not least
    info = np.iinfo(r.dtype)
    return info.min if least else info.max


def expected_place(r: Reduction, x: Array, index: Array) -> tuple[Any, int]:
    """(value, index) of the extremum: the lowest index among equal values or NaNs."""
    if x.size == 0:
        return limit(r), LAST
    nan = np.isnan(x) if r.dtype.kind == "f" else np.zeros(x.shape, np.bool_)
    if nan.any():
        return np.nan, int(index[nan].min())
    value = x.max() if r.tag == "ArgMax" else x.min()
    return value, int(index[x == value].min())


def close(got: Any, expected: Any, error: Any) -> bool:
    """Return True if values are within `error`, and infinities and NaNs are equal."""
    got, expected = np.asarray(got), np.asarray(expected)
    if expected.dtype.kind == "c":
        return close(got.real, expected.real, error) and close(got.imag, expected.imag, error)
    with np.errstate(invalid="ignore", over="ignore"):
        got = got.astype(np.float64)
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        return bool((same | (np.abs(got - expected) <= error)).all())


def check_state(r: Reduction, got: Any, x: Array, index: Array | None = None) -> None:
    """Check a state for the elements x with indices 0, 1, ... or `index`.

    Integers and extrema are exact. Floats are compared with float64. Error bounds: of a sum, (8 +
    n/128) eps times the sum of magnitudes; of a product, 2n eps; of a mean, 8 eps times the largest
    magnitude; of the squared deviations, the effect of the mean's error plus 32 eps; of the sum of
    exponentials, 32 eps.
    """
    shown = f"{r.name} of {x.size}: got {got}"
    with np.errstate(all="ignore"):
        if r.tag in {"Any", "All"}:
            assert bool(got) == bool(getattr(np, r.tag.lower())(x != 0)), shown
        elif r.indexed:
            value, place = expected_place(r, x, np.arange(x.size) if index is None else index)
            assert int(got["f1"]) == place, f"{shown}, not {value} at {place}"
            assert close(got["f0"], value, 0), f"{shown}, not {value} at {place}"
        elif r.tag in {"Max", "Min"}:
            value = getattr(x, r.tag.lower())() if x.size else limit(r)
            assert close(got, value, 0), f"{shown}, not {value}"
        elif r.tag in {"Sum", "Prod"}:
            check_total(r, got, x, shown)
        else:
            check_moments(r, got, x.astype(np.float64), shown)


def check_total(r: Reduction, got: Any, x: Array, shown: str) -> None:
    total = np.add if r.tag == "Sum" else np.multiply
    if r.dtype.kind in "iub":
        dtype = np.bool_ if r.dtype.kind == "b" else r.dtype
        assert got == total.reduce(x, dtype=dtype), shown
        return
    eps = np.finfo(r.dtype).eps
    exact = x.astype(np.complex128 if r.dtype.kind == "c" else np.float64)
    sizes = np.abs(exact)
    # A thread adds at most every 64th element, with an error of half an eps of its sum per
    # addition.
    steps = 8 + x.size / 128
    error = steps * eps * sizes.sum() if r.tag == "Sum" else 2 * x.size * eps * sizes.prod()
    value = total.reduce(exact)
    assert close(got, value, error), f"{shown}, not {value}"


def check_moments(r: Reduction, got: Any, x: Array, shown: str) -> None:
    eps = float(np.finfo(r.dtype).eps)
    if r.tag == "OnlineSoftmax":
        top = x.max() if x.size else -np.inf
        total = np.exp(x - top).sum() if top > -np.inf or np.isnan(top) else 0.0
        assert close(got["f0"], top, 0), f"{shown}, not {top}"
        assert close(got["f1"], total, 32 * eps * total), f"{shown}, not {top}, {total}"
        return
    assert got["f2"] == x.size, shown
    if not np.isfinite(x).all():
        assert np.isnan(got["f1"]), shown
        return
    mean = x.mean() if x.size else 0.0
    squares = ((x - mean) ** 2).sum()
    drift = 8 * eps * np.abs(x).max(initial=0)
    assert close(got["f0"], mean, drift), f"{shown}, not {mean}"
    error = 32 * eps * squares + 2 * drift * np.sqrt(x.size * squares) + x.size * drift**2
    assert close(got["f1"], squares, error), f"{shown}, not {squares}"
