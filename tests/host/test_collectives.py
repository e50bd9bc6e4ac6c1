"""Threads as fibers: barriers, shuffles, votes, clusters and grids give the GPU's results."""

import numpy as np
import pytest

from fuser.errors import InternalError
from tests.host.kernels import Built, build

BLOCK_SUM = """KERNEL(256) void block_sum(const f32* x, f32* out) {
  f32* s = (f32*)shared_memory();
  const i32 t = thread_x(), n = block_dim_x();
  s[t] = get(x + block_x() * n + t);
  sync_block();
  for (i32 d = n / 2; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    sync_block();
  }
  if (t == 0) put(out + block_x(), s[0]);
}"""
SHUFFLES = """
struct Pair { double a; i64 b; };
KERNEL(96) void shuffles(i32* out, i32 n) {
  const i32 t = thread_x();
  put(out + 0 * n + t, shuffle(t, 5));
  put(out + 1 * n + t, shuffle_up(t, 3));
  put(out + 2 * n + t, shuffle_down(t, 3));
  put(out + 3 * n + t, shuffle_xor(t, 9));
  const Pair p = shuffle_xor(Pair{t * 0.5, (i64)t << 33}, 1);
  put(out + 4 * n + t, (i32)(p.a * 2));
  put(out + 5 * n + t, (i32)(p.b >> 33));
  put(out + 6 * n + t, (i32)vote_ballot(t % 3 == 0));
  put(out + 7 * n + t, (i32)vote_any(t == 40));
  put(out + 8 * n + t, (i32)vote_all(t < 40));
  put(out + 9 * n + t, lane() + 100 * warp());
}"""
SHORT_WARP = """KERNEL(40) void short_warp(i32* out) {
  const i32 t = thread_x();
  i32 v = shuffle_xor(t, 1);
  v += 100 * (i32)vote_all(true) + 1000 * (i32)__builtin_popcount(vote_ballot(true));
  put(out + t, v);
}"""
CLUSTER = """KERNEL(32) void cluster(const i32* x, i32* out) {
  i32* s = (i32*)shared_memory();
  const i32 b = block_x() + grid_dim_x() * block_y(), t = thread_x();
  i32 v = get(x + b * 32 + t);
  for (i32 d = 16; d > 0; d /= 2) v += shuffle_xor(v, d);
  if (t == 0) *s = v;
  sync_cluster();
  i32 total = 0;
  for (i32 r = 0; r < cluster_size(); ++r) total = total * 3 + get(map_shared_rank(s, r));
  sync_cluster();
  if (t == 0) { put(out + 2 * b, total); put(out + 2 * b + 1, cluster_rank()); }
}"""
GRID = """KERNEL(64) void grid(i32* x, i32 steps) {
  const i32 n = grid_dim_x() * 64, i = block_x() * 64 + thread_x();
  for (i32 s = 0; s < steps; ++s) {
    const i32 next = get(x + (i + 1) % n);
    sync_grid();
    put(x + i, next + 1);
    sync_grid();
  }
}"""
UNEVEN = """KERNEL(64) void uneven(i32* out) {
  if (thread_x() != 7) sync_block();
  put(out + thread_x(), 1);
}"""
CROSSED = """KERNEL(64) void crossed(i32* out) {
  if (thread_x() < 8) sync_warp(); else out[thread_x()] = shuffle(1, 0);
}"""
ESCAPES = """KERNEL(32) void escapes(i32* out) {
  *map_shared_rank((i32*)shared_memory(), 1) = 1;
}"""
KERNELS = (
    ("block_sum", BLOCK_SUM, True),
    ("shuffles", SHUFFLES, True),
    ("short_warp", SHORT_WARP, True),
    ("cluster", CLUSTER, True),
    ("grid", GRID, True),
    ("uneven", UNEVEN, True),
    ("crossed", CROSSED, True),
    ("escapes", ESCAPES, True),
)


@pytest.fixture(scope="module", params=[False, True], ids=["release", "debug"])
def built(request: pytest.FixtureRequest) -> Built:
    return build(*KERNELS, debug=request.param)


@pytest.mark.parametrize(("blocks", "threads"), [(1, 2), (1, 256), (37, 128), (3, 1024)])
def test_barriers_make_a_block_sum(
    built: Built, rng: np.random.Generator, blocks: int, threads: int
) -> None:
    x = rng.integers(-100, 100, (blocks, threads)).astype(np.float32)
    out = np.zeros(blocks, np.float32)
    built("block_sum", blocks, threads, x, out, shared=4 * threads, seed=int(x[0, 0]) + 100)
    assert (out == x.sum(1)).all()


def test_shuffles_and_votes(built: Built) -> None:
    n = 96
    out = np.zeros((10, n), np.int32)
    built("shuffles", 1, n, out, n)
    t = np.arange(n)
    lane, base = t % 32, t - t % 32
    assert (out[0] == base + 5).all()
    assert (out[1] == np.where(lane >= 3, t - 3, t)).all()
    assert (out[2] == np.where(lane + 3 < 32, t + 3, t)).all()
    assert (out[3] == base + (lane ^ 9)).all()
    assert (out[4] == (t ^ 1)).all()
    assert (out[5] == (t ^ 1)).all()
    ballots = [sum(1 << i for i in range(32) if (w * 32 + i) % 3 == 0) for w in range(3)]
    assert (out[6].view(np.uint32) == np.repeat(np.array(ballots, np.uint32), 32)).all()
    assert (out[7] == (t // 32 == 1)).all()
    assert (out[8] == (t < 32)).all()
    assert (out[9] == lane + 100 * (t // 32)).all()


def test_a_last_warp_may_be_shorter(built: Built) -> None:
    out = np.zeros(40, np.int32)
    built("short_warp", 1, 40, out)
    t = np.arange(40)
    assert (out == (t ^ 1) + 100 + 1000 * np.where(t < 32, 32, 8)).all()


@pytest.mark.parametrize("shape", [[1, 1, 1], [2, 1, 1], [4, 2, 1], [8, 2, 1]])
def test_clusters_read_each_other(built: Built, rng: np.random.Generator, shape) -> None:
    width, height = 16, 4
    x = rng.integers(0, 9, (height, width, 32)).astype(np.int32)
    out = np.zeros((height, width, 2), np.int32)
    built("cluster", (width, height), 32, x, out, shared=4, cluster=shape)
    sums = x.sum(2)
    for y in range(height):
        for col in range(width):
            y0, x0 = y - y % shape[1], col - col % shape[0]
            total = 0
            for part in sums[y0 : y0 + shape[1], x0 : x0 + shape[0]].reshape(-1):
                total = total * 3 + int(part)
            assert out[y, col, 0] == np.int64(total).astype(np.int32)
            assert out[y, col, 1] == (y - y0) * shape[0] + col - x0


def test_a_cooperative_grid_meets(built: Built) -> None:
    n, steps = 5 * 64, 9
    x = np.arange(n, dtype=np.int32)
    built("grid", 5, 64, x, steps, cooperative=True)
    assert (x == (np.arange(n) + steps) % n + steps).all()


def test_sync_grid_needs_a_cooperative_launch(built: Built) -> None:
    with pytest.raises(InternalError, match="not cooperative") as raised:
        built("grid", 5, 64, np.zeros(320, np.int32), 1)
    assert raised.value.rule == "debug-converge"


def test_a_barrier_that_not_all_reach_is_a_fault_and_no_hang(built: Built) -> None:
    with pytest.raises(InternalError, match=r"uneven.*waits in sync_block.*1 of 64") as raised:
        built("uneven", 3, 64, np.zeros(64, np.int32))
    assert raised.value.rule == "debug-converge"


def test_two_collectives_at_once_are_a_fault(built: Built) -> None:
    with pytest.raises(InternalError, match="sync_warp") as raised:
        built("crossed", 1, 64, np.zeros(64, np.int32))
    assert raised.value.rule == "debug-converge"


def test_a_rank_outside_the_cluster_is_a_fault(built: Built) -> None:
    with pytest.raises(InternalError, match="to rank 1 of a cluster of 1") as raised:
        built("escapes", 1, 32, np.zeros(1, np.int32), shared=4)
    assert raised.value.rule == "debug-bounds"


def test_a_launch_after_a_fault_is_right(built: Built) -> None:
    for _ in range(20):
        with pytest.raises(InternalError):
            built("uneven", 50, 64, np.zeros(64, np.int32))
    x, out = np.ones((8, 64), np.float32), np.zeros(8, np.float32)
    built("block_sum", 8, 64, x, out, shared=256)
    assert (out == 64).all()
