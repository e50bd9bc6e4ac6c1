"""Shuffles, votes and atomics of csrc/device/collective.cuh, and clusters of cluster.cuh, give
equal results on the host and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import _core
from tests.device.launch import MEETING, Kernels
from tests.device.programs import Program

# Types of 1 to 24 bytes, with numpy dtypes.
TYPES = {
    "bool": np.dtype(np.bool_),
    "u8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "f32": np.dtype(np.float32),
    "i64": np.dtype(np.int64),
    "c128": np.dtype(np.complex128),
    "WelfordState<f32>": np.dtype((np.uint8, 12)),
    "WelfordState<f64>": np.dtype((np.uint8, 24)),
}

SHUFFLES = """
template <class T>
DEVICE void shuffles_of(const void* x, void* out) {
  const T* from = (const T*)x;
  T* to = (T*)out;
  const i32 t = thread_x(), n = block_dim_x();
  const T mine = from[t];
  to[t] = shuffle(mine, t / 32 * 3 + 5);
  to[n + t] = shuffle_up(mine, 3);
  to[2 * n + t] = shuffle_down(mine, 3);
  to[3 * n + t] = shuffle_xor(mine, 9);
}
KERNEL(96) void shuffles(i32 which, const void* x, void* out) {
  switch (which) {
CASES
  }
}"""

VOTES = """KERNEL(96) void votes(u32* out) {
  const i32 t = thread_x(), n = block_dim_x();
  sync_warp();
  out[t] = vote_ballot(t % 3 == 0);
  out[n + t] = vote_any(t == 40);
  out[2 * n + t] = vote_all(t < 40);
}"""

# Every thread draws a ticket; the sums are over the i-th tickets of rounds of 7.
ATOMICS = """KERNEL(64) void atomics(u32* ticket, u32* seen, i32* sum, u64* wide, u32* last) {
  const i32 i = block_x() * 64 + thread_x();
  const u32 mine = atomic_inc(ticket, 6);
  atomic_add(seen + mine, 1u);
  atomic_add(sum, i - 100);
  atomic_add(wide, (u64)i << 30);
  fence_block();
  fence_device();
  atomic_exchange(last, mine + 1);
}"""

CLUSTER = """KERNEL(64) void ranks(const i32* x, i32* out) {
  i32* s = (i32*)shared_memory();
  const i32 i = block_x() * 64 + thread_x();
  arrive_cluster();
  const i32 mine = x[i];
  wait_cluster();
  const i32 next = (cluster_rank() + 1) % cluster_size();
  map_shared_rank(s, next)[thread_x()] = mine;
  sync_cluster();
  out[2 * i] = s[thread_x()];
  out[2 * i + 1] = cluster_rank() + 100 * cluster_size();
}"""


def programs() -> list[Program]:
    cases = "".join(
        f"    case {i}: shuffles_of<{device}>(x, out); break;\n" for i, device in enumerate(TYPES)
    )
    texts = {
        "shuffles": SHUFFLES.replace("CASES\n", cases),
        "votes": VOTES,
        "atomics": ATOMICS,
        "ranks": CLUSTER,
    }
    return [Program(name, _core.device_text(text) + text, []) for name, text in texts.items()]


@pytest.fixture(scope="module", params=MEETING)
def run(request: pytest.FixtureRequest) -> Kernels:
    kernels: Kernels = request.param(programs())
    return kernels


@pytest.mark.parametrize("device", TYPES)
def test_shuffles(run: Kernels, device: str, rng: np.random.Generator) -> None:
    dtype = TYPES[device]
    bits = rng.integers(0, 256, (96, dtype.itemsize)).astype(np.uint8)
    if device == "bool":
        bits &= 1
    out = np.zeros((4, 96, dtype.itemsize), np.uint8)
    run("shuffles", 1, 96, list(TYPES).index(device), bits, out)
    t = np.arange(96)
    lane, base = t % 32, t - t % 32
    assert (out[0] == bits[base + t // 32 * 3 + 5]).all()
    assert (out[1] == bits[np.where(lane >= 3, t - 3, t)]).all()
    assert (out[2] == bits[np.where(lane + 3 < 32, t + 3, t)]).all()
    assert (out[3] == bits[base + (lane ^ 9)]).all()


def test_votes(run: Kernels) -> None:
    out = np.zeros((3, 96), np.uint32)
    run("votes", 1, 96, out)
    t = np.arange(96)
    for first in (0, 32, 64):
        ballot = sum(1 << i for i in range(32) if (first + i) % 3 == 0)
        assert (out[0, first : first + 32] == ballot).all()
    assert (out[1] == ((t >= 32) & (t < 64))).all()
    assert (out[2] == (t < 32)).all()


def test_atomics(run: Kernels) -> None:
    ticket, seen, last = np.zeros(1, np.uint32), np.zeros(7, np.uint32), np.zeros(1, np.uint32)
    total, wide = np.zeros(1, np.int32), np.zeros(1, np.uint64)
    blocks = 70  # 64 * 70 threads: 640 full rounds of 7
    run("atomics", blocks, 64, ticket, seen, total, wide, last)
    i = np.arange(64 * blocks)
    assert ticket[0] == 0
    assert (seen == 640).all()
    assert total[0] == (i - 100).sum()
    assert wide[0] == i.sum() << 30
    assert 1 <= last[0] <= 7


@pytest.mark.parametrize("size", [2, 4, 8])
def test_cluster(run: Kernels, size: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 1000, (3, size, 64)).astype(np.int32)
    out = np.zeros((3, size, 64, 2), np.int32)
    run("ranks", 3 * size, 64, x, out, shared=256, cluster=size)
    assert (out[..., 0] == np.roll(x, 1, axis=1)).all()
    assert (out[..., 1] == np.arange(size)[:, None] + 100 * size).all()
