"""csrc/driver/launch: arguments as the kernel receives them, sizes that launch no kernel."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fuser
from fuser import DataType, FusionDefinition, InternalError, _core, _core_testing
from fuser.ops import as_dtype
from tests.host.kernels import build
from tests.support.definitions import gained, scaled, sum_of_two


def value_of(given: DataType, wanted: torch.dtype) -> FusionDefinition:
    """A tensor of 3 elements, each the scalar input cast to a dtype."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([3], fd.define_scalar(given), as_dtype(wanted)))
    return fd


INT = [0, -1, 2**31, 2**53 + 1, -(2**63), 2**63 - 1]
PYTHON_TYPE = {float: torch.float64, complex: torch.complex128}
FLOAT = [0.1, -0.0, 1e-310, 1e300, math.inf, math.nan, 16777217.0]


@pytest.mark.parametrize(
    ("given", "wanted", "values"),
    [
        (DataType.Int, torch.int64, INT),
        (DataType.Int, torch.float64, INT),
        (DataType.Int, torch.float32, [*INT, 16777217, 2**24 + 3, (1 << 54) + (1 << 30) + 1]),
        (DataType.Int, torch.bool, [0, 1, 256, 2**40]),
        (DataType.Int32, torch.int32, [0, -1, 2**31 - 1, -(2**31)]),
        (DataType.Double, torch.float64, FLOAT),
        (DataType.Double, torch.float32, FLOAT),
        (DataType.Double, torch.bfloat16, [0.1, -0.0, 1e39, math.nan]),
        (DataType.Float, torch.float32, [0.1, 1e39, -math.inf]),
        (DataType.Float, torch.float64, [0.1]),
        (DataType.Bool, torch.bool, [False, True]),
        (DataType.Bool, torch.float32, [False, True]),
        (DataType.ComplexDouble, torch.complex128, [0.1 - 1e300j, complex(-0.0, math.inf)]),
        (DataType.ComplexDouble, torch.complex64, [0.1 - 0.3j, complex(-0.0, 1e39)]),
        (DataType.ComplexFloat, torch.complex64, [0.1 + 0.7j]),
    ],
    ids=lambda v: v.torch_name if isinstance(v, DataType) else str(v).removeprefix("torch.")[:10],
)
def test_scalars(given: DataType, wanted: torch.dtype, values: list[complex]) -> None:
    fd = value_of(given, wanted)
    own = getattr(torch, given.torch_name)
    before = fuser.cache_info()
    for value in values:
        (result,) = fd.execute([value], device="cpu")
        exact = torch.tensor(value, dtype=PYTHON_TYPE.get(type(value)))
        expected = exact.to(own).to(wanted)
        assert bits(result).equal(bits(expected.expand(3).contiguous())), (value, result, expected)
    assert gained(before).plans == 1, "no value is compiled into a kernel"


def bits(x: torch.Tensor) -> torch.Tensor:
    if x.is_complex():
        return bits(torch.view_as_real(x))
    if x.is_floating_point():
        x = torch.where(x.isnan(), torch.full_like(x, math.nan), x)  # all NaNs are equal
    return x.contiguous().view(-1).view(torch.uint8)


def test_an_int64_is_rounded_once() -> None:
    """2^54 + 2^30 + 1 is above the midpoint of two floats; rounded to double first it is the
    midpoint."""
    value = (1 << 54) + (1 << 30) + 1
    (result,) = value_of(DataType.Int, torch.float32).execute([value], device="cpu")
    assert int(result[0].item()) == (1 << 54) + (1 << 31)


def test_scalars_beside_tensors() -> None:
    """Scalar arguments of every size, in an order that needs padding."""
    with FusionDefinition() as fd:
        flag = fd.define_scalar(DataType.Bool)
        x = fd.define_tensor([-1], dtype=DataType.Double)
        z = fd.define_scalar(DataType.ComplexDouble)
        n = fd.define_scalar(DataType.Int)
        y = fd.define_tensor([-1], dtype=DataType.Int)
        f = fd.define_scalar(DataType.Double)
        fd.add_output(fd.ops.where(flag, x * f, x))
        fd.add_output(fd.ops.add(x, z))
        fd.add_output(y + n)
    x, y = torch.arange(7.0).double(), torch.arange(7)
    for flag, z, n, f in [(True, 1 - 2j, 2**60, 0.1), (False, 3j, -1, 7.0)]:
        a, b, c = fd.execute([flag, x, z, n, y, f])
        assert a.equal(x * f if flag else x)
        assert b.equal(x + z)
        assert c.equal(y + n)


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    ],
    ids=lambda d: str(d).removeprefix("torch."),
)
def test_0_dim_tensors(dtype: torch.dtype) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([], dtype=as_dtype(dtype))
        for result in (x, fd.ops.broadcast_in_dim(x, [2, 3], [])):
            fd.add_output(fd.ops.cast(result, as_dtype(dtype)))
    x = torch.tensor(1.0).to(dtype)
    same, spread = fd.execute([x])
    assert same.shape == ()
    assert same.dtype == dtype
    assert bits(same).equal(bits(x))
    assert bits(spread).equal(bits(x.expand(2, 3).contiguous()))


def test_a_0_dim_tensor_of_a_slice() -> None:
    base = torch.arange(10.0)
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) + fd.define_tensor([]))
    (result,) = fd.execute([base, base[7]])
    assert result.equal(base + 7)


def test_promotion_of_0_dim_tensors_is_torch_s() -> None:
    x, y = torch.ones(3, dtype=torch.float16), torch.tensor(2.0, dtype=torch.float64)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.cast(fd.from_pytorch(x) * fd.from_pytorch(y), DataType.Half))
    assert fd.execute([x, y])[0].equal(x * y)


@pytest.mark.parametrize("sizes", [(0,), (0, 5), (5, 0), (3, 0, 4), (0, 0)], ids=str)
def test_empty_compiles_and_launches_nothing(sizes: tuple[int, ...]) -> None:
    fd = scaled(11.5, rank=len(sizes))
    x = torch.empty(sizes)
    before = fuser.cache_info()
    for _ in range(2):
        (result,) = fd.execute([x])
        assert result.shape == x.shape
        assert result.stride() == (x * 2).stride()
    assert fd.fec.executor.kernels() == []
    gain = gained(before)
    assert (gain.kernels_compiled, gain.kernels_from_disk, gain.plans) == (0, 0, 0)
    assert (gain.hits, gain.misses) == (1, 1)


def test_empty_by_broadcast() -> None:
    (result,) = sum_of_two().execute([torch.ones(1, 5), torch.empty(0, 5)])
    assert result.shape == (0, 5)


CHANNELS_LAST = torch.arange(2.0 * 3 * 4 * 5).view(2, 3, 4, 5)
LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: CHANNELS_LAST,
    "channels last": lambda: CHANNELS_LAST.to(memory_format=torch.channels_last),
    "permuted": lambda: CHANNELS_LAST.permute(3, 1, 0, 2),
    "one channel, last": lambda: CHANNELS_LAST[:, :1].to(memory_format=torch.channels_last),
    "size 1 inside": lambda: CHANNELS_LAST[:, :, :1],
    "size 1 outside": lambda: CHANNELS_LAST[:1],
    "all of size 1": lambda: CHANNELS_LAST[:1, :1, :1, :1],
    "a slice": lambda: CHANNELS_LAST[:, 1:, :, 1:4],
    "every other": lambda: CHANNELS_LAST[..., ::2],
    "a permuted slice": lambda: CHANNELS_LAST.permute(2, 3, 0, 1)[1:, :, :, ::2],
    "expanded": lambda: CHANNELS_LAST[:, :, :1].expand(2, 3, 4, 5),
    "expanded outside": lambda: CHANNELS_LAST[:1].expand(2, 3, 4, 5),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_strides_of_outputs_are_torch_s(name: str) -> None:
    x = LAYOUTS[name]()
    (result,) = scaled(2.0, rank=4).execute([x])
    expected = x * 2.0
    assert result.equal(expected)
    # torch's strides of dims of size 1 vary.
    assert result.stride() in (expected.stride(), (x + x).stride())
    assert result.is_contiguous() == expected.is_contiguous()
    channels_last = torch.channels_last
    assert result.is_contiguous(memory_format=channels_last) == expected.is_contiguous(
        memory_format=channels_last
    )


@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", ["contiguous", "channels last", "permuted"])
def test_strides_of_two_inputs(first: str, second: str) -> None:
    a, b = LAYOUTS[first](), LAYOUTS[second]()
    try:
        expected = a + b
    except RuntimeError:
        return
    (result,) = sum_of_two(rank=4).execute([a, b])
    assert result.equal(expected)
    assert result.stride() == expected.stride()


def test_debug_mode_checks_the_ranges(set_option: Callable[[str, object], None]) -> None:
    """Accesses to strided, in-place and 0-dim arguments are within the ranges checked in debug
    mode."""
    set_option("FUSER_HOST_DEBUG", 1)
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1]), fd.define_tensor([])
        fd.add_output(x * y, x)
        fd.add_output(fd.ops.permute(x, [1, 0]) + y)
    base = torch.arange(200.0).view(10, 20)
    expected = base.clone()
    expected[1:9:2, 3:17].mul_(3)
    (result,) = fd.execute([base[1:9:2, 3:17], torch.tensor(3.0)])
    assert base.equal(expected)
    assert result.equal(torch.arange(200.0).view(10, 20)[1:9:2, 3:17].T + 3)


# ---- scratch memory and shapes of launches, with hand-written kernels

# out[0] += sum over blocks of (block index + 1), stored by the last block.
LAST = """KERNEL(64) void last(f32* out, f32* partial, u32* done) {
  i32* s = (i32*)shared_memory();
  if (thread_x() == 0) {
    put(partial + block_x(), (f32)(block_x() + 1));
    fence_device();
    s[0] = atomic_inc(done + 1, grid_dim_x() - 1) == (u32)grid_dim_x() - 1;
  }
  sync_block();
  if (s[0] && thread_x() == 0) {
    f32 total = get(out);
    for (i32 i = 0; i < grid_dim_x(); ++i) total += get(partial + i);
    put(out, total);
  }
}"""
# out[block] = value that the previous block of the cluster wrote into its shared memory.
CLUSTER = """KERNEL(1) void cluster(f32* out) {
  f32* s = (f32*)shared_memory();
  s[255] = (f32)block_x();
  sync_cluster();
  const i32 from = (cluster_rank() + cluster_size() - 1) % cluster_size();
  put(out + block_x(), map_shared_rank(s, from)[255]);
  sync_cluster();
}"""
# out[block] = value written by the block with the mirrored index.
GRID = """KERNEL(1) void grid(f32* out, f32* all) {
  put(all + block_x(), (f32)block_x());
  sync_grid();
  put(out + block_x(), get(all + grid_dim_x() - 1 - block_x()));
}"""
# out[0] = uninitialized memory.
UNWRITTEN = """KERNEL(1) void unwritten(f32* out, f32* a, f32* b) {
  put(out, get(a + 2)); put(out + 1, get(b));
}"""
BEHIND = "KERNEL(1) void behind(f32* out, f32* a, u32* b) { put(out, get(a + 3)); }"
BEFORE = "KERNEL(1) void before(f32* out, f32* a, u32* b) { put(b - 1, 1u); }"
SOURCES = [
    ("last", LAST, True),
    ("cluster", CLUSTER, True),
    ("grid", GRID, True),
    ("unwritten", UNWRITTEN, False),
    ("behind", BEHIND, False),
    ("before", BEFORE, False),
]


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return build(*SOURCES).kernels


@pytest.fixture(scope="module")
def debug() -> dict[str, Any]:
    return build(*SOURCES, debug=True).kernels


class Memory:
    """An allocator that records its allocations and fills them with ones."""

    def __init__(self) -> None:
        self.given: list[np.ndarray] = []

    def __call__(self, size: int, keep: bool) -> int:
        assert not keep, "the host has no streams: nothing outlives a launch"
        self.given.append(np.ones(size, np.uint8))
        return int(self.given[-1].ctypes.data)


def launch(
    kernel: Any, out: np.ndarray, scratch: list[Any], grid: int = 1, **shape: Any
) -> list[np.ndarray]:
    memory = Memory()
    rich = _core.LaunchShape(grid=(grid, 1, 1), **shape)
    _core_testing.driver.run_launch(kernel, rich, [(out.ctypes.data, out.size)], scratch, memory)
    return memory.given


def workspace(elements: int, name: str = "partial", element_bytes: int = 4) -> Any:
    return _core_testing.driver.ScratchWanted(name, elements=elements, element_bytes=element_bytes)


def counters(elements: int, name: str = "done") -> Any:
    return _core_testing.driver.ScratchWanted(name, counters=True, elements=elements)


@pytest.mark.parametrize("kind", ["plain", "debug"])
@pytest.mark.parametrize("grid", [1, 2, 37])
def test_counters_start_at_zero(kind: str, grid: int, request: pytest.FixtureRequest) -> None:
    out = np.zeros(1, np.float32)
    kernel = request.getfixturevalue(kind)["last"]
    shape: dict[str, Any] = {"block": (64, 1, 1), "shared_bytes": 4}
    for _ in range(3):
        given = launch(kernel, out, [workspace(grid), counters(2)], grid, **shape)
    assert out[0] == 3 * grid * (grid + 1) / 2
    (memory,) = given
    assert memory[-8:].tolist() == [0] * 8, "they came back to 0, and none was touched beside them"


def test_concurrent_launches_do_not_share_counters(plain: dict[str, Any]) -> None:
    grid, results = 200, []
    start = threading.Barrier(6)

    def work() -> None:
        out = np.zeros(1, np.float32)
        start.wait()
        for _ in range(20):
            launch(plain["last"], out, [workspace(grid), counters(2)], grid, block=(64, 1, 1),
                   shared_bytes=4)  # fmt: skip
        results.append(out[0])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [20 * grid * (grid + 1) / 2] * 6


def test_workspaces_are_one_allocation_each_aligned(plain: dict[str, Any]) -> None:
    wanted = [workspace(3, element_bytes=12), workspace(0), workspace(300), counters(3)]
    out = np.zeros(2, np.float32)
    # The kernel takes the first two workspaces.
    given = launch(plain["unwritten"], out, wanted)
    assert [memory.size for memory in given] == [256 + 0 + 1280 + 12]
    assert launch(plain["unwritten"], out, [workspace(70), workspace(1)])[0].size == 512 + 256


def test_clusters_and_shared_memory(plain: dict[str, Any], debug: dict[str, Any]) -> None:
    for kernels in (plain, debug):
        out = np.zeros(8, np.float32)
        launch(kernels["cluster"], out, [], grid=8, cluster=(4, 1, 1), shared_bytes=1024)
        assert out.tolist() == [3, 0, 1, 2, 7, 4, 5, 6]


def test_cooperative(plain: dict[str, Any], debug: dict[str, Any]) -> None:
    for kernels in (plain, debug):
        out = np.zeros(50, np.float32)
        launch(kernels["grid"], out, [workspace(50)], grid=50, cooperative=True)
        assert out.tolist() == list(reversed(range(50)))


def test_a_debug_launch_poisons_workspaces(debug: dict[str, Any]) -> None:
    out = np.zeros(2, np.float32)
    launch(debug["unwritten"], out, [workspace(3), workspace(1)])
    assert np.isnan(out).all()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("behind", "load of 4 bytes out of bounds, at offset 12 of partial (12 bytes)"),
        ("before", "store of 4 bytes out of bounds, at offset -4 of done (8 bytes)"),
    ],
)
def test_a_debug_launch_checks_scratch(debug: dict[str, Any], name: str, place: str) -> None:
    with pytest.raises(InternalError) as caught:
        launch(debug[name], np.zeros(2, np.float32), [workspace(3), counters(2)])
    assert caught.value.rule == "debug-bounds"
    assert place in str(caught.value)


THREADS = """
import os, sys, torch
from fuser import FusionDefinition
torch.set_num_threads(int(sys.argv[1]))
with FusionDefinition() as fd:
    fd.add_output(fd.define_tensor([-1]) * 2)
x = torch.ones(1 << 20)
before = len(os.listdir("/proc/self/task"))
fd.execute([x])
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.parametrize(
    ("torch_threads", "option", "workers"), [(1, "0", 0), (3, "0", 2), (3, "1", 0), (1, "4", 3)]
)
def test_threads_of_a_call_on_the_cpu(torch_threads: int, option: str, workers: int) -> None:
    """FUSER_HOST_THREADS decides, else torch.set_num_threads. The caller is one of the threads."""
    environment = {**os.environ, "FUSER_HOST_THREADS": option}
    command = [sys.executable, "-c", THREADS, str(torch_threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{workers}\n"
