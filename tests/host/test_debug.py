"""Debug builds: each violation raises its rule, names its location, and does not end the
process."""

import numpy as np
import pytest

from fuser.errors import InternalError
from tests.host.kernels import Built, build, read_only

COPY = """KERNEL(32) void copy(const i32* x, i32* y, i32 shift) {
  const i32 i = block_x() * 32 + thread_x();
  put(y + i, get(x + i + shift));
}"""
WRITES_INPUT = """KERNEL(32) void writes_input(i32* x) { put(x + thread_x(), 1); }"""
MISALIGNED = """KERNEL(32) void misaligned(const f32* x, f32* y, i32 shift) {
  debug_access(x + shift, 16, 16, false);
  put(y + thread_x(), x[shift]);
}"""
INDEX = """KERNEL(32) void index(i32* y, i32 n) {
  debug_index(thread_x(), n, 0);
  put(y + thread_x(), 1);
}"""
WILD = """KERNEL(32) void wild(const i32* x, i32* y) {
  put(y, get((const i32*)0) + get(x + (1ll << 40)));
}"""
WILD_FIBER = """KERNEL(32) void wild_fiber(const i32* x, i32* y) {
  sync_block();
  if (thread_x() == 3) put(y + (1 << 28), 1);
  sync_block();
}"""
ORDER = """KERNEL(32) void order(i32* count, i32* y) {
  put(y + block_x() * 32 + thread_x(), atomic_add(count, 1));
}"""
UNWRITTEN = """KERNEL(32) void unwritten(i32* y) {
  u32* s = (u32*)shared_memory();
  put(y + thread_x(), (i32)get(s + thread_x()));
}"""
UNSHARED = """KERNEL(32) void unshared(i32* y) {
  put(y, get((i32*)shared_memory() + thread_x()));
}"""
RACE = """KERNEL(64) void race(const i32* x, i32* y) {
  i32* s = (i32*)shared_memory();
  put(s + thread_x(), get(x + thread_x()));
  put(y + thread_x(), get(s + (thread_x() + 1) % 64));
  sync_block();
}"""
SCRATCH = """KERNEL(32) void scratch(const f32* x, f32* y) {
  put(y + thread_x(), get(x + thread_x()));
}"""


@pytest.fixture(scope="module")
def built() -> Built:
    return build(
        ("copy", COPY, False),
        ("writes_input", WRITES_INPUT, False),
        ("misaligned", MISALIGNED, False),
        ("index", INDEX, False),
        ("wild", WILD, False),
        ("wild_fiber", WILD_FIBER, True),
        ("order", ORDER, False),
        ("order_fibers", ORDER.replace("order(", "order_fibers("), True),
        ("unwritten", UNWRITTEN, False),
        ("unwritten_fibers", UNWRITTEN.replace("unwritten(", "unwritten_fibers("), True),
        ("unshared", UNSHARED, True),
        ("race", RACE, True),
        ("scratch", SCRATCH, False),
        debug=True,
    )


def test_a_right_kernel_passes(built: Built, rng: np.random.Generator) -> None:
    x, y = rng.integers(0, 99, 320).astype(np.int32), np.zeros(320, np.int32)
    built("copy", 10, 32, read_only(x), y, 0, seed=int(x[0]))
    assert (x == y).all()


def test_a_load_past_the_end_names_kernel_thread_and_offset(built: Built) -> None:
    x, y = np.zeros(64, np.int32), np.zeros(64, np.int32)
    with pytest.raises(InternalError) as raised:
        built("copy", 2, 32, x, y, 1, seed=5)
    assert raised.value.rule == "debug-bounds"
    text = str(raised.value)
    assert "kernel copy, block (1, 0, 0), thread (31, 0, 0)" in text
    assert "load of 4 bytes out of bounds, at offset 256 of t0 (256 bytes)" in text
    assert "order seed 5" in text


def test_a_load_before_the_start(built: Built) -> None:
    x, y = np.zeros(64, np.int32), np.zeros(64, np.int32)
    with pytest.raises(InternalError, match="load of 4 bytes out of bounds") as raised:
        built("copy", 1, 32, x[32:], y, -33)
    assert raised.value.rule == "debug-bounds"


def test_without_ranges_every_access_is_out_of_bounds(built: Built) -> None:
    x = np.zeros(64, np.int32)
    with pytest.raises(InternalError, match="no memory is given") as raised:
        built("copy", 1, 32, x, x, 0, ranges=[])
    assert raised.value.rule == "debug-bounds"


def test_a_store_to_an_input(built: Built) -> None:
    x = np.zeros(32, np.int32)
    with pytest.raises(InternalError, match="store of 4 bytes to an input") as raised:
        built("writes_input", 1, 32, read_only(x))
    assert raised.value.rule == "debug-readonly"
    assert (x == 0).all()


def test_a_misaligned_vector_access(built: Built) -> None:
    x = np.zeros(64, np.float32)
    aligned = x[(-x.ctypes.data // 4) % 4 :]
    y = np.zeros(32, np.float32)
    built("misaligned", 1, 32, aligned, y, 4)
    with pytest.raises(InternalError, match="expects alignment to 16") as raised:
        built("misaligned", 1, 32, aligned, y, 1)
    assert raised.value.rule == "debug-align"


def test_an_index_outside_its_bound(built: Built) -> None:
    y = np.zeros(32, np.int32)
    built("index", 1, 32, y, 32)
    expected = "index 31 is out of range for size 31; expected -31 to 30"
    with pytest.raises(InternalError, match=expected) as raised:
        built("index", 1, 32, y, 31)
    assert raised.value.rule == "index-range-1"


@pytest.mark.parametrize("name", ["wild", "wild_fiber"])
def test_wild_pointers_do_not_end_the_process(built: Built, name: str) -> None:
    x, y = np.zeros(32, np.int32), np.zeros(32, np.int32)
    for _ in range(10):
        with pytest.raises(InternalError) as raised:
            built(name, 4, 32, x, y)
        assert raised.value.rule == "debug-bounds"


@pytest.mark.parametrize("name", ["order", "order_fibers"])
def test_order_is_random_and_repeats_with_the_seed(built: Built, name: str) -> None:
    def order(seed: int) -> list[int]:
        count, y = np.zeros(1, np.int32), np.zeros(8 * 32, np.int32)
        built(name, 8, 32, count, y, seed=seed)
        assert sorted(y) == list(range(256))
        return y.tolist()

    first = order(1)
    assert first != list(range(256))
    assert [y // 32 for y in first[::32]] != list(range(8)), "the blocks run in grid order"
    assert [y % 32 for y in first[:32]] != list(range(32)), "the threads run in order"
    assert order(1) == first
    assert order(2) != first


@pytest.mark.parametrize("name", ["unwritten", "unwritten_fibers"])
def test_shared_memory_starts_poisoned(built: Built, name: str) -> None:
    y = np.zeros(32, np.int32)
    built(name, 2, 32, y, shared=128)
    assert (y == -1).all()


def test_shared_memory_has_bounds(built: Built) -> None:
    with pytest.raises(InternalError, match="load of 4 bytes out of bounds") as raised:
        built("unshared", 1, 32, np.zeros(1, np.int32), shared=124)
    assert raised.value.rule == "debug-bounds"


def test_scratch_is_poisoned(built: Built) -> None:
    from fuser import _core

    x, y = np.zeros(32, np.float32), np.zeros(32, np.float32)
    ranges = [
        _core.HostRange("scratch", x.ctypes.data, x.nbytes, scratch=True),
        _core.HostRange("out", y.ctypes.data, y.nbytes),
    ]
    built("scratch", 1, 32, x, y, ranges=ranges)
    assert np.isnan(y).all()


def test_a_missing_barrier_shows(built: Built) -> None:
    x = np.arange(64, dtype=np.int32)
    wrong = 0
    for seed in range(5):
        y = np.zeros(64, np.int32)
        built("race", 1, 64, x, y, shared=256, seed=seed)
        wrong += (y != np.roll(x, -1)).any()
    assert wrong == 5, "some thread reads what its neighbour has not written yet"
