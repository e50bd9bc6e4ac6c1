"""launch(): grids in parallel, several callers at once, forks, and rejected shapes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fuser import _core
from fuser.errors import CompileError, LaunchError
from tests.host.kernels import Built, build

INDEX = """KERNEL(1024) void index(i32* out) {
  const i32 b = block_x() + grid_dim_x() * (block_y() + grid_dim_y() * block_z());
  const i32 n = block_dim_x() * block_dim_y() * block_dim_z();
  const i32 t = thread_x() + block_dim_x() * (thread_y() + block_dim_y() * thread_z());
  put(out + b * n + t, b * n + t + 1);
}"""
TYPES = """KERNEL(1) void types(i32* out, i32 a, f32 b, double c, i64 d) {
  out[0] = a; out[1] = (i32)b; out[2] = (i32)c; out[3] = (i32)d;
}"""
SHARED = """KERNEL(64) void shared(i32* out) {
  i32* s = (i32*)shared_memory();
  s[thread_x()] = block_x() * 64 + thread_x();
  out[block_x() * 64 + thread_x()] = s[thread_x()];
}"""
DEEP = """KERNEL(32) void deep(i32* out, i32 n) {
  volatile i32 big[10000];
  for (i32 i = 0; i < 10000; ++i) big[i] = i ^ thread_x();
  sync_block();
  i32 sum = 0;
  for (i32 i = 0; i < n; ++i) sum += big[i];
  out[thread_x()] = sum;
}"""
LAST_BLOCK = """KERNEL(64) void last_block(const i32* x, i32* partial, u32* counter, i32* out) {
  const i32 b = block_x(), t = thread_x();
  i32 sum = x[b * 64 + t];
  for (i32 d = 16; d > 0; d /= 2) sum += shuffle_xor(sum, d);
  i32* s = (i32*)shared_memory();
  if (lane() == 0) s[warp()] = sum;
  sync_block();
  if (t == 0) {
    partial[b] = s[0] + s[1];
    fence_device();
    s[2] = atomic_inc(counter, grid_dim_x() - 1) == (u32)grid_dim_x() - 1;
  }
  sync_block();
  if (s[2] && t == 0) {
    i32 total = 0;
    for (i32 i = 0; i < grid_dim_x(); ++i) total += partial[i];
    out[0] = total;
  }
}"""


@pytest.fixture(scope="module")
def built() -> Built:
    return build(
        ("index", INDEX, False),
        ("types", TYPES, False),
        ("shared", SHARED, False),
        ("deep", DEEP, True),
        ("last_block", LAST_BLOCK, True),
    )


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("grid", "block"),
    [((1,), (1,)), ((7,), (33,)), ((3, 5, 2), (5, 3, 2)), ((1009,), (64,)), ((1, 1, 77), (1, 96))],
)
def test_every_thread_of_every_block_runs_once(built: Built, grid, block, threads: int) -> None:
    count = int(np.prod(grid) * np.prod(block))
    out = np.zeros(count, np.int32)
    built("index", grid, block, out, threads=threads)
    assert (out == np.arange(1, count + 1)).all()


def test_arguments_of_every_size_arrive(built: Built) -> None:
    out = np.zeros(4, np.int32)
    built("types", 1, 1, out, 3, 4.5, np.float64(5.5), np.int64(6))
    assert out.tolist() == [3, 4, 5, 6]


def test_an_empty_grid_launches_nothing(built: Built) -> None:
    out = np.zeros(4, np.int32)
    built("index", (0, 3), 4, out)
    assert out.tolist() == [0, 0, 0, 0]


def test_plain_kernels_have_shared_memory(built: Built) -> None:
    out = np.zeros(64 * 100, np.int32)
    built("shared", 100, 64, out, shared=256)
    assert (out == np.arange(6400)).all()


def test_stacks_are_as_large_as_asked(built: Built) -> None:
    for stack_bytes in (128 << 10, 1 << 20):
        out = np.zeros(32, np.int32)
        built("deep", 1, 32, out, 10000, stack_bytes=stack_bytes)
        expected = [int((np.arange(10000) ^ t).sum()) for t in range(32)]
        assert out.tolist() == expected


# A frame of 34 KB on stacks of 16 KB, accessed only at its far end: beyond the guard page, in the
# stack of the previous thread, where the overflow would be undetected.
FAR = """__attribute__((noinline)) i32 sum_of(i32 n) {
  volatile i32 big[8500];
  i32 sum = 0;
  for (i32 i = 0; i < n; ++i) big[i] = i;
  for (i32 i = 0; i < n; ++i) sum += big[i];
  return sum;
}
KERNEL(32) void far(i32* out, i32 n) {
  if (thread_x() > 1) out[thread_x()] = sum_of(n);
  sync_block();
}"""
OVERFLOW = """
import numpy as np
from tests.host.kernels import build
from tests.host.test_executor import FAR
print("launching", flush=True)
build(("far", FAR, True))("far", 1, 32, np.zeros(32, np.int32), 10, stack_bytes=16 << 10)
print("went on")
"""


def test_an_overflow_ends_the_process_at_the_guard_page() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-X", "faulthandler=0", "-c", OVERFLOW]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "launching\n"), done.stderr


def test_a_frame_that_no_stack_holds_does_not_compile() -> None:
    ints = _core.host_frame_bytes // 4 + 100
    large = DEEP.replace("10000", str(ints)).replace("deep", "large")
    with pytest.raises(CompileError, match="frame") as raised:
        build(("large", large, True))
    assert raised.value.rule == "host-compile"


@pytest.mark.parametrize("blocks", [1, 2, 100])
def test_the_last_block_finishes(built: Built, rng: np.random.Generator, blocks: int) -> None:
    x = rng.integers(-1000, 1000, blocks * 64).astype(np.int32)
    partial, counter, out = (
        np.zeros(blocks, np.int32),
        np.zeros(1, np.uint32),
        np.zeros(1, np.int32),
    )
    for _ in range(3):  # the counter resets itself
        built("last_block", blocks, 64, x, partial, counter, out, shared=16)
        assert out[0] == x.sum()
        assert counter[0] == 0


def test_many_callers_at_once(built: Built, rng: np.random.Generator) -> None:
    x = rng.integers(-1000, 1000, 50 * 64).astype(np.int32)
    wrong: list[object] = []

    def call() -> None:
        partial, counter, out = (
            np.zeros(50, np.int32),
            np.zeros(1, np.uint32),
            np.zeros(1, np.int32),
        )
        plain = np.zeros(64 * 100, np.int32)
        for _ in range(20):
            built("last_block", 50, 64, x, partial, counter, out, shared=16)
            built("index", 100, 64, plain)
            if out[0] != x.sum() or (plain != np.arange(1, 6401)).any():
                wrong.append((out[0], plain))

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_forked_child_launches(built: Built) -> None:
    out = np.zeros(64 * 200, np.int32)
    built("index", 200, 64, out, threads=4)  # starts the parent's worker threads
    child = os.fork()
    if child == 0:
        status = 1
        try:
            out[:] = 0
            built("index", 200, 64, out, threads=4)
            deep = np.zeros(32, np.int32)
            built("deep", 1, 32, deep, 1, stack_bytes=128 << 10)
            status = 0 if (out == np.arange(1, 12801)).all() and deep[5] == 5 else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0), "the child hung or computed something else"


@pytest.mark.parametrize(
    ("grid", "block", "options"),
    [
        (1, 1025, {}),
        (1, (0, 1, 1), {}),
        ((1, 70000), 32, {}),
        (6, 32, {"cluster": [4, 1, 1]}),
        (64, 32, {"cluster": [32, 1, 1]}),
        (4, 32, {"cluster": [0, 1, 1]}),
        (1, 32, {"shared": 1 << 21}),
    ],
)
def test_shapes_that_no_device_takes_are_refused(built: Built, grid, block, options) -> None:
    out = np.zeros(1, np.int32)
    with pytest.raises(LaunchError, match="kernel index") as raised:
        built("index", grid, block, out, **options)
    assert raised.value.rule == "host-launch"
