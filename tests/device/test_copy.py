"""Asynchronous copies of csrc/device/copy.cuh."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import _core
from fuser.errors import InternalError
from tests.device.launch import MEETING, Kernels, meeting_on_host
from tests.device.programs import Program

# (type, elements per copy): 4, 8 and 16 bytes.
COPIES = [
    ("u8", 4),
    ("bool", 8),
    ("bf16", 8),
    ("i16", 2),
    ("f32", 1),
    ("f32", 2),
    ("f32", 4),
    ("f64", 1),
    ("c64", 2),
    ("c128", 1),
]
SIZE = {"u8": 1, "bool": 1, "bf16": 2, "i16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16}
STEPS = 11

# A ring of three slots: step i arrives while the copies of steps i + 1 and i + 2 are in flight. A
# thread stores the elements that its left neighbour copied; only the first `limit` copies of a step
# exist.
RING = """
template <class T, i32 N>
DEVICE void ring_of(i32 limit, const void* x, void* out) {
  const i32 t = thread_x(), left = (t + 63) % 64;
  T* places = (T*)shared_memory();
  for (i32 step = 0; step < 2; ++step) {
    copy_async<N>(places + (step * 64 + t) * N, (const T*)x + (step * 64 + t) * N, t < limit);
    commit_copies();
  }
  for (i32 step = 0; step < STEPS; ++step) {
    const i32 ahead = step + 2;
    if (ahead < STEPS) {
      copy_async<N>(places + (ahead % 3 * 64 + t) * N, (const T*)x + (ahead * 64 + t) * N,
                    t < limit);
    }
    commit_copies();
    wait_copies<2>();
    sync_block();
    T r[N];
    load<N>(r, (const T*)places + (step % 3 * 64 + left) * N);
    store((T*)out + (step * 64 + t) * N, r);
    sync_block();
  }
}
KERNEL(64) void ring(i32 which, i32 limit, const void* x, void* out) {
  switch (which) {
CASES
  }
}""".replace("STEPS", str(STEPS))

# Values that a thread sees of its two copy groups of one word: immediately, after waiting for the
# older one, for the committed one, for all.
EARLY = """KERNEL(32) void early(const u32* x, u32* out) {
  const i32 t = thread_x();
  u32* mine = (u32*)shared_memory() + 4 * t;
  const u32* from = x + 4 * t;
  for (i32 i = 0; i < 4; ++i) mine[i] = 7;
  copy_async<1>(mine, from, true);
  commit_copies();
  copy_async<1>(mine + 1, from + 1, true);
  copy_async<1>(mine + 2, from + 2, false);
  commit_copies();
  copy_async<1>(mine + 3, from + 3, true);
  u32* to = out + 16 * t;
  for (i32 i = 0; i < 4; ++i) to[i] = mine[i];
  wait_copies<1>();
  for (i32 i = 0; i < 4; ++i) to[4 + i] = mine[i];
  wait_copies<0>();
  for (i32 i = 0; i < 4; ++i) to[8 + i] = mine[i];
  commit_copies();
  wait_copies<0>();
  for (i32 i = 0; i < 4; ++i) to[12 + i] = mine[i];
}"""

# More copies in flight than a debug build records.
MANY = """KERNEL(32) void many(const u32* x, u32* out) {
  u32* s = (u32*)shared_memory();
  for (i32 i = thread_x(); i < 10000; i += 32) copy_async<1>(s + i, x + i, true);
  commit_copies();
  wait_copies<0>();
  sync_block();
  for (i32 i = thread_x(); i < 10000; i += 32) out[i] = s[9999 - i];
}"""

STRAY = """KERNEL(32) void stray(const u32* x, u32* out) {
  copy_async<4>((u32*)shared_memory() + 4 * thread_x(), x + 4 * thread_x() + (i32)out[0], true);
  commit_copies();
  wait_copies<0>();
}"""


def program(name: str, text: str) -> Program:
    return Program(name, _core.device_text(text) + text, [])


def programs() -> list[Program]:
    cases = "".join(
        f"    case {i}: ring_of<{device}, {n}>(limit, x, out); break;\n"
        for i, (device, n) in enumerate(COPIES)
    )
    return [program("ring", RING.replace("CASES\n", cases)), program("many", MANY)]


@pytest.fixture(scope="module", params=MEETING)
def run(request: pytest.FixtureRequest) -> Kernels:
    kernels: Kernels = request.param(programs())
    return kernels


@pytest.fixture(scope="module")
def debug() -> Kernels:
    return meeting_on_host([program("early", EARLY), program("stray", STRAY)], debug=True)


@pytest.mark.parametrize("which", range(len(COPIES)), ids=lambda i: "x".join(map(str, COPIES[i])))
@pytest.mark.parametrize("limit", [64, 37, 0])
def test_ring(run: Kernels, which: int, limit: int, rng: np.random.Generator) -> None:
    device, n = COPIES[which]
    size = n * SIZE[device]
    x = rng.integers(0, 256, (STEPS, 64, size)).astype(np.uint8)
    if device == "bool":
        x &= 1
    out = np.full_like(x, 0xEE)
    given = x.copy()
    run("ring", 1, 64, which, limit, given, out, shared=3 * 64 * size)
    x[:, limit:] = 0
    assert (out == np.roll(x, 1, axis=1)).all()


def test_many_copies(run: Kernels, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**32, 10000, dtype=np.uint32)
    out = np.zeros_like(x)
    run("many", 1, 32, x, out, shared=40000)
    assert (out == x[::-1]).all()


def test_copies_land_at_the_wait_in_debug_builds(debug: Kernels) -> None:
    x = np.arange(128, dtype=np.uint32).reshape(32, 4)
    out = np.zeros((32, 4, 4), np.uint32)
    debug("early", 1, 32, x, out, shared=512)
    poison = 0xFFFFFFFF
    assert (out[:, 0] == poison).all()
    assert (out[:, 1, 0] == x[:, 0]).all()
    assert (out[:, 1, 1:] == poison).all()
    assert (out[:, 2, 1] == x[:, 1]).all()
    assert (out[:, 2, 2] == 0).all()
    assert (out[:, 2, 3] == poison).all()
    assert (out[:, 3] == np.where(np.arange(4) == 2, 0, x)).all()


@pytest.mark.parametrize(
    ("length", "offset", "rule"), [(128, 4, "debug-bounds"), (132, 1, "debug-align")]
)
def test_stray_copies_are_faults(debug: Kernels, length: int, offset: int, rule: str) -> None:
    x, out = np.zeros(length + 3, np.uint32), np.full(1, offset, np.uint32)
    x = x[(-x.ctypes.data // 4) % 4 :][:length]  # aligned to 16 bytes
    with pytest.raises(InternalError) as raised:
        debug("stray", 1, 32, x, out, shared=512)
    assert raised.value.rule == rule
