"""csrc/driver/scratch: counters that are zero whenever a kernel starts, on every stream."""

from __future__ import annotations

import re
import struct

import pytest
import torch

from fuser import _core, _core_testing
from fuser.errors import LaunchError
from fuser.runtime import toolkit
from tests.driver.conftest import Run

# allocate(bytes, keep): prints each allocation; the address is the sum of all previous sizes.
ALLOCATE = """
end = 1000
def allocate(bytes, keep):
    global end
    print("allocate", bytes, keep, "at", end, flush=True)
    end += bytes
    return end - bytes

def show(*values):
    print(*values, flush=True)

def counters(count, stream, device=0):
    show("counters at", _core_testing.driver.stream_counters(device, stream, count, allocate))
"""


def lines(out: str) -> tuple[list[str], list[str]]:
    """Lines printed by Python and lines of the driver; each has its own buffer."""
    found = [line for line in out.splitlines() if not line.startswith("retain")]
    driver = [line for line in found if line.startswith(("set", "launch"))]
    return [line for line in found if line not in driver], driver


def test_a_slab_is_made_once_per_stream_and_device(run: Run) -> None:
    ours, driver = lines(
        run(
            ALLOCATE
            + """
counters(1, 6)
counters(1024, 6)
counters(3, 7)
counters(3, 6, device=1)
counters(5, 6)
"""
        )
    )
    assert ours == [
        "allocate 4096 True at 1000",
        "counters at 1000",
        "counters at 1000",
        "allocate 4096 True at 5096",
        "counters at 5096",
        "allocate 4096 True at 9192",
        "counters at 9192",
        "counters at 1000",
    ]
    assert [line.rpartition(" in ")[0] for line in driver] == [
        "set 0 x 1024 at 1000 on stream 6",
        "set 0 x 1024 at 5096 on stream 7",
        "set 0 x 1024 at 9192 on stream 6",
    ]


def test_of_two_slabs_at_once_the_larger_stays(run: Run) -> None:
    """If two callers allocate slabs for one stream at once, the larger slab is kept."""
    ours, _ = lines(
        run(
            ALLOCATE
            + """
alone = allocate
def allocate(bytes, keep):
    global allocate
    allocate = alone
    counters(5000, 6)
    return alone(bytes, keep)

counters(10, 6)
counters(5000, 6)
"""
        )
    )
    assert ours == [
        "allocate 20000 True at 1000",
        "counters at 1000",
        "allocate 4096 True at 21000",
        "counters at 21000",
        "counters at 1000",
    ]


def test_a_slab_grows_at_least_twofold(run: Run) -> None:
    ours, driver = lines(run(ALLOCATE + "for n in (1, 1025, 2048, 10_000, 1): counters(n, 6)"))
    assert [line for line in ours if line.startswith("allocate")] == [
        "allocate 4096 True at 1000",
        "allocate 8192 True at 5096",
        "allocate 40000 True at 13288",
    ]
    assert ours[-1] == "counters at 13288"
    assert [line.split(" on ")[0] for line in driver] == [
        "set 0 x 1024 at 1000",
        "set 0 x 2048 at 5096",
        "set 0 x 10000 at 13288",
    ]


def test_threads_of_one_stream_share_a_slab_in_the_end(run: Run) -> None:
    """Two first callers may both allocate a slab, but all end up with one; counters are zeroed in
    any case."""
    out = run(
        ALLOCATE
        + """
import itertools, threading
start = threading.Barrier(8)
got = []
addresses = itertools.count(1000, 5000)
def allocate(bytes, keep):
    return next(addresses)
def work():
    start.wait()
    for _ in range(50):
        got.append(_core_testing.driver.stream_counters(0, 6, 10, allocate))
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
show("used", *sorted(set(got)), "last", got[-1], got[-8])
"""
    )
    ours, driver = lines(out)
    zeroed = {int(re.findall(r"at (\d+)", line)[0]) for line in driver}
    used, last = ours[-1].removeprefix("used ").split(" last ")
    assert {int(a) for a in used.split()} <= zeroed
    assert len(set(last.split())) == 1, "one of them stays"


LAUNCH = (
    ALLOCATE
    + """
kernel = _core.load_kernel(b"image", "k", 0)
shape = _core.LaunchShape(grid=(4, 1, 1), block=(32, 1, 1), shared_bytes=64, cluster=(2, 1, 1))
work = [_core_testing.driver.ScratchWanted("partial", elements=100, element_bytes=12),
        _core_testing.driver.ScratchWanted("more", elements=3, element_bytes=8)]
count = [_core_testing.driver.ScratchWanted("done", counters=True, elements=5),
         _core_testing.driver.ScratchWanted("again", counters=True, elements=2)]
def launch(scratch, stream):
    try:
        # The driver of the tests prints two arguments.
        outputs = [(64, 10), (72, 10)]
        _core_testing.driver.run_launch(kernel, shape, outputs, scratch, allocate, stream)
    except LaunchError as error:
        show(error.rule, str(error).splitlines()[0])
"""
)


def test_a_launch_takes_all_its_workspaces_at_once(run: Run) -> None:
    ours, driver = lines(run(LAUNCH + "launch(work, 6)\nlaunch([], 6)"))
    assert ours == ["allocate 1536 False at 1000"]  # 1200 and 24 bytes, each at a multiple of 256
    assert len(driver) == 2
    assert "4,1,1 x 32,1,1 shared 64 stream 6 [4: 2 1 1] arguments 64 " in driver[0]


def test_a_launch_takes_its_counters_from_the_stream(run: Run) -> None:
    ours, driver = lines(run(LAUNCH + "for _ in range(3): launch(count + work, 6)"))
    assert ours == [
        "allocate 1536 False at 1000",
        "allocate 4096 True at 2536",
        "allocate 1536 False at 6632",
        "allocate 1536 False at 8168",
    ]
    assert [line.split(" ")[0] for line in driver] == ["set", "launch", "launch", "launch"]
    assert driver[0].startswith("set 0 x 1024 at 2536 on stream 6 in 1600")


def test_a_capture_takes_counters_of_its_own_every_time(run: Run) -> None:
    """A capturing stream (5) gets memory of the graph, and a node that zeroes it."""
    ours, driver = lines(
        run(LAUNCH + "launch(count, 6)\nfor _ in range(2): launch(work + count, 5)")
    )
    assert ours == [
        "allocate 4096 True at 1000",
        "allocate 1564 False at 5096",
        "allocate 1564 False at 6660",
    ]
    assert [line.split(" in ")[0] for line in driver if line.startswith("set")] == [
        "set 0 x 1024 at 1000 on stream 6",
        "set 0 x 7 at 6632 on stream 5",
        "set 0 x 7 at 8196 on stream 5",
    ]


def test_after_a_failure_counters_are_zeroed_again(run: Run) -> None:
    ours, driver = lines(
        run(
            LAUNCH
            + """
import ctypes, os
setenv = ctypes.CDLL(None).setenv
launch(count, 6)
launch(count, 7)
setenv(b"FAKE_LAUNCH", b"1", 1)
launch(count, 6)
launch(work, 7)
setenv(b"FAKE_LAUNCH", b"0", 1)
launch(count, 7)
launch(count, 6)
launch(count, 6)
"""
        )
    )
    failed = "cuda-launch invalid argument (CUDA_ERROR_INVALID_VALUE): launch of k"
    assert ours.count(failed) == 2
    assert [line.split(" in ")[0] for line in driver if line.startswith("set")] == [
        "set 0 x 1024 at 1000 on stream 6",
        "set 0 x 1024 at 5096 on stream 7",
        "set 0 x 1024 at 1000 on stream 6",
    ]
    assert [line.startswith("set") for line in driver] == [
        *(True, False, True, False),
        *(False, True, False, False),
    ]


def test_zeros_that_cannot_be_queued(run: Run) -> None:
    ours, driver = lines(run(LAUNCH + "launch(count, 6)", FAKE_MEMSET=1))
    assert ours[1:] == [
        "cuda-launch invalid argument (CUDA_ERROR_INVALID_VALUE): zeroing 1024 counters"
    ]
    assert driver == []


def test_what_the_allocator_raises_passes(run: Run) -> None:
    ours, driver = lines(
        run(
            LAUNCH
            + """
def allocate(bytes, keep):
    raise MemoryError("none left")
for scratch in (work, count):
    try:
        _core_testing.driver.run_launch(kernel, shape, [], scratch, allocate, 6)
    except MemoryError as error:
        show(error)
"""
        )
    )
    assert ours == ["none left", "none left"]
    assert driver == []


COUNTING = """
typedef unsigned u32;
extern "C" __global__ void last_of(float* out, float* partial, u32* done) {
  partial[blockIdx.x] = blockIdx.x;
  __threadfence();
  if (atomicInc(done, gridDim.x - 1) != gridDim.x - 1) return;
  __threadfence();
  float sum = 0;
  for (int i = 0; i < gridDim.x; ++i) sum += ((volatile float*)partial)[i];
  *out += sum;
}
"""


# Slabs are never freed; the ones of this file last until the process exits.
KEPT: list[torch.Tensor] = []


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
def test_counters_come_back_to_zero_on_a_gpu(captured: bool) -> None:
    compiled = toolkit.compile("last_of", COUNTING, _core.cuda_device(0).arch)
    kernel = _core.load_kernel(compiled.cubin, "last_of", 0)

    def allocate(size: int, keep: bool) -> int:
        KEPT.append(torch.empty(size, dtype=torch.uint8, device="cuda").fill_(0xFF))
        return KEPT[-1].data_ptr()

    grid = 1000
    shape = _core.LaunchShape(grid=(grid, 1, 1))
    scratch = [
        _core_testing.driver.ScratchWanted("partial", elements=grid),
        _core_testing.driver.ScratchWanted("done", counters=True, elements=1),
    ]
    out = torch.zeros(1, device="cuda")
    runs = 20

    def launch() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        _core_testing.driver.run_launch(
            kernel, shape, [(out.data_ptr(), 1)], scratch, allocate, stream
        )

    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
            launch()
        for _ in range(runs // 2):
            graph.replay()
    else:
        for _ in range(runs):
            launch()
    torch.cuda.synchronize()
    assert out.item() == runs * grid * (grid - 1) / 2


def test_no_launch_without_a_driver() -> None:
    if _core.cuda_available():
        pytest.skip("there is one")
    with pytest.raises(LaunchError) as caught:
        _core_testing.driver.stream_counters(0, 0, 1, lambda size, keep: struct.calcsize("P"))
    assert caught.value.rule == "cuda-unavailable"
