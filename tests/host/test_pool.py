"""parallel_for, tested through grids: the distribution of blocks over threads."""

import threading

import numpy as np
import pytest

from tests.host.kernels import Built, build

WHO = """
static DEVICE u64 self() { return (u64)__builtin_thread_pointer(); }
KERNEL(64) void who(u64* out, i32 work) {
  volatile i32 sum = 0;
  for (i32 i = 0; i < work; ++i) sum = sum + i;
  out[block_x() * 64 + thread_x()] = self();
}""".replace("u64", "unsigned long long")
# Each of two blocks waits until the other has started, so the kernel ends only if two threads run
# them.
RENDEZVOUS = """KERNEL(1024) void rendezvous(i32* begun) {
  if (thread_x() != 0 || (block_x() != 0 && block_x() != grid_dim_x() - 1)) return;
  atomic_add(begun, 1);
  while (__atomic_load_n(begun, __ATOMIC_ACQUIRE) < 2) {
  }
}"""


@pytest.fixture(scope="module")
def built() -> Built:
    return build(("who", WHO, False), ("rendezvous", RENDEZVOUS, False))


def test_one_thread_is_the_caller(built: Built) -> None:
    out = np.zeros((500, 64), np.uint64)
    built("who", 500, 64, out, 10, threads=1)
    assert len(np.unique(out)) == 1


def test_no_more_threads_than_asked(built: Built) -> None:
    for threads in (2, 3):
        out = np.zeros((500, 64), np.uint64)
        built("who", 500, 64, out, 100, threads=threads)
        assert 1 <= len(np.unique(out)) <= threads


def test_a_small_grid_stays_on_its_caller(built: Built) -> None:
    out = np.zeros((4, 64), np.uint64)
    built("who", 4, 64, out, 10, threads=4)
    assert len(np.unique(out)) == 1


def test_workers_work(built: Built) -> None:
    begun = np.zeros(1, np.int32)
    caller = threading.Thread(
        target=built, args=("rendezvous", 16, 1024, begun), kwargs={"threads": 2}, daemon=True
    )
    caller.start()
    caller.join(60)
    if caller.is_alive():
        begun[0] = 2  # releases the block
    assert begun[0] == 2
    assert not caller.is_alive(), "the last block never ran beside the first one"
