"""csrc/driver/cuda/cuda_api: without a driver, with a fake one, and (marked gpu) with a real
one.
"""

import struct
from pathlib import Path

import pytest

from fuser import _core
from fuser.errors import LaunchError
from fuser.runtime import toolkit
from tests.driver.conftest import Run, in_new_process

REASON = (
    "print(_core.cuda_available(), _core.cuda_device_count(), _core.cuda_unavailable_reason())\n"
)


def test_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An invalid library, so that the test also works with a driver installed.
    (tmp_path / "libcuda.so.1").write_text("")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    out = in_new_process(
        REASON
        + """
assert _core.cuda_driver_version() == 0
calls = [(_core.cuda_device, 0), (_core.load_kernel, b"", "k"), (_core.stream_id, 0)]
for call, *arguments in calls:
    try:
        call(*arguments)
    except LaunchError as error:
        print(error.rule, error)
"""
    )
    first, *others = out.splitlines()
    assert first.startswith("False 0 no NVIDIA driver was found (")
    assert "libcuda.so.1" in first
    assert others == [f"cuda-unavailable no usable GPU: {first.removeprefix('False 0 ')}"] * 3


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"FAKE_VERSION": 11080},
            "the NVIDIA driver supports CUDA 11.8; CUDA 12.1 or newer is needed: update the driver "
            "to 530 or newer",
        ),
        ({"FAKE_COUNT": 0}, "the NVIDIA driver reports no GPU (is CUDA_VISIBLE_DEVICES empty?)"),
        ({"FAKE_INIT": 999}, "cuInit: unknown error (CUDA_ERROR_UNKNOWN)"),
        ({"FAKE_INIT": 998}, "cuInit: unknown error (998)"),
        (
            {"FAKE_MISSING": "cuLaunchKernelEx"},
            "the NVIDIA driver lacks cuLaunchKernelEx: its installation is incomplete",
        ),
    ],
    ids=["old", "no-gpu", "init", "init-unnamed", "missing"],
)
def test_driver_that_cannot_be_used(run: Run, settings: dict[str, object], reason: str) -> None:
    assert run(REASON, **settings) == f"False 0 {reason}\n"


def test_oldest_driver(run: Run) -> None:
    assert run(REASON, FAKE_VERSION=12010) == "True 2 \n"


def test_device(run: Run) -> None:
    out = run("""
a, b = _core.cuda_device(0), _core.cuda_device(1)
print(_core.cuda_driver_version(), a, b.name, b.ordinal, a == b)
print(a.threads_per_sm, a.blocks_per_sm, a.registers_per_sm, a.clusters)
print(a.shared_per_sm, a.shared_per_block, a.bandwidth, a.cooperative, a.emulated)
""")
    assert out.splitlines() == [
        "12080 NVIDIA Fake 0 (sm_90, 132 SMs, 60 MB L2, 4916 GB/s) NVIDIA Fake 1 1 True",
        "2048 32 65536 True",
        "233472 232448 4916736000000 True False",
    ]


def test_device_that_hides_its_memory_clock(run: Run) -> None:
    out = run("print(_core.cuda_device(0).bandwidth)", FAKE_CLOCK=0)
    assert int(out) == _core.known_device(90).bandwidth


def test_clusters_that_a_device_holds(run: Run) -> None:
    """The driver is queried for resident clusters; without an answer there is a default, without
    cluster support the numbers are 0."""
    code = "print(_core.cuda_device_for_plans(0).resident_clusters)"
    assert run(code).splitlines()[-1] == "[62, 31, 15, 7]"
    guess = str(_core.known_device(90).resident_clusters)
    assert run(code, FAKE_PTX=0).splitlines()[-1] == guess
    assert run(code, FAKE_CLUSTERS=0).splitlines()[-1] == "[0, 0, 0, 0]"


def test_device_that_does_not_exist(run: Run) -> None:
    out = run("""
for ordinal in (2, -1):
    try:
        _core.cuda_device(ordinal)
    except LaunchError as error:
        print(error.rule, error)
""")
    assert out.splitlines() == [
        "cuda-device there is no device 2: the driver reports 2 GPUs",
        "cuda-device there is no device -1: the driver reports 2 GPUs",
    ]


ARGUMENTS = 'import struct\narguments = [struct.pack("i", 42), struct.pack("d", 2.5)]\n'


def test_load_and_launch(run: Run) -> None:
    out = run(
        ARGUMENTS
        + """
kernel = _core.load_kernel(b"image", "k", 1, 100000)
print(kernel.name, kernel.device, kernel.registers, kernel.local_bytes, kernel.static_shared,
      kernel.dynamic_shared, kernel.max_threads, flush=True)
plain = _core.LaunchShape(grid=(5, 6, 7), block=(32, 4, 2))
rich = _core.LaunchShape(grid=(8, 1, 1), block=(256, 1, 1), shared_bytes=99000, cluster=(4, 1, 1),
                         cooperative=True)
_core.launch(kernel, plain, 0, arguments)
_core.launch(kernel, rich, 0x77, arguments)
print(kernel.resident_blocks(512, 0), kernel.resident_blocks(512, 4), flush=True)
print(_core.stream_id(6), _core.stream_is_capturing(5), _core.stream_is_capturing(6))
"""
    )
    # The C library and Python buffer separately: only the order within each is known.
    assert sorted(out.splitlines()) == sorted(
        [
            "retain 101",
            "attribute 8 = 100000 on 101",
            "k 1 40 16 512 100000 1024",
            # The thread had no context: the launch entered the device's.
            "launch in 1616: 5,6,7 x 32,4,2 shared 0 stream 0 arguments 42 2.5",
            "launch in 1616: 8,1,1 x 256,1,1 shared 99000 stream 119 [2: 1 0 0] [4: 4 1 1] "
            "arguments 42 2.5",
            "4 3",
            "1006 True False",
        ]
    )


def test_little_shared_memory_is_not_asked_for(run: Run) -> None:
    out = run('print(_core.load_kernel(b"image", "k", 0, 48640).dynamic_shared)')
    assert sorted(out.splitlines()) == ["48640", "retain 100"]


@pytest.mark.parametrize(
    ("call", "parts", "unloaded"),
    [
        ('b"nonsense", "k"', ["invalid argument (CUDA_ERROR_INVALID_VALUE)", "8 bytes"], False),
        ('b"image", "other"', ["finding kernel other"], True),
        (
            'b"image", "k", 0, 300000',
            ["needs 300000 bytes of dynamic shared memory", "512 static", "has at most 232448"],
            True,
        ),
    ],
    ids=["image", "name", "shared"],
)
def test_load_errors(run: Run, call: str, parts: list[str], unloaded: bool) -> None:
    out = run(f"""
try:
    _core.load_kernel({call})
except LaunchError as error:
    print(error.rule, error)
""")
    assert "cuda-load " in out
    for part in parts:
        assert part in out
    assert ("unload 7" in out) == unloaded


def test_clusters(run: Run) -> None:
    """Cluster sizes above 8 are requested from the driver; without cluster support the load is an
    error."""
    out = run('for n in (1, 8, 16): _core.load_kernel(b"image", "k", 0, 0, n)')
    assert sorted(out.splitlines()) == ["attribute 14 = 1 on 100", "retain 100"]
    load = """
_core.load_kernel(b"image", "k", 0, 0, 1)
try:
    _core.load_kernel(b"image", "k", 0, 0, 2)
except LaunchError as error:
    print(error.rule, error)
"""
    out = run(load, FAKE_CLUSTERS=0)
    assert "cuda-load kernel k needs clusters of 2 blocks; device 0 NVIDIA Fake 0" in out
    assert "supports no clusters" in out


LAUNCH = (
    ARGUMENTS
    + """
kernel = _core.load_kernel(b"image", "k")
try:
    shape = _core.LaunchShape(grid=(2, 1, 1), block=(4096, 1, 1), shared_bytes=64)
    _core.launch(kernel, shape, 0, arguments)
except LaunchError as error:
    print(error.rule, error)
"""
)


def test_refused_launch_names_the_shape_and_the_limits(run: Run) -> None:
    out = run(LAUNCH, FAKE_LAUNCH=1)
    for part in (
        "cuda-launch invalid argument (CUDA_ERROR_INVALID_VALUE): launch of k",
        "grid 2 x 1 x 1, block 4096 x 1 x 1, 64 bytes of dynamic shared memory",
        "at most 1024 threads per block and 48640 bytes",
        "40 registers per thread and 512 bytes",
        "NVIDIA Fake 0 (sm_90",
        "232448",
    ):
        assert part in out
    assert "hint" not in out


def test_failure_of_an_earlier_kernel_is_told_apart(run: Run) -> None:
    out = run(LAUNCH, FAKE_LAUNCH=700)
    assert "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)" in out
    assert "hint: a kernel that ran before this call failed" in out


def test_forked_child_is_refused(run: Run) -> None:
    out = run("""
import os
_core.cuda_device(0)
child = os.fork()
if child == 0:
    try:
        _core.cuda_device(0)
    except LaunchError as error:
        os.write(1, f"{error.rule} {error}".encode())
    os._exit(0)
os.waitpid(child, 0)
_core.cuda_device(0)
""")
    assert out.startswith("cuda-fork this process was forked after CUDA was initialised")
    assert "spawn" in out


MEMORY = """
import ctypes
def make_room():
    print("no room", flush=True)
    ctypes.CDLL(None).setenv(b"FAKE_ROOM", b"1", 1)
print(_core.allocate_for_good(1, 4096, make_room), flush=True)
"""


def test_memory_that_stays_is_the_drivers_own(run: Run) -> None:
    """Persistent memory is allocated by the driver in the device's context, in relaxed capture mode
    (2), so that captures of other threads stay valid."""
    out = [line for line in run(MEMORY).splitlines() if not line.startswith("retain")]
    assert out == ["memory 4096 in 1616 mode 2", "77000"]


def test_memory_that_stays_is_asked_for_twice(run: Run) -> None:
    out = [line for line in run(MEMORY, FAKE_ROOM=0).splitlines() if not line.startswith("retain")]
    asked = "memory 4096 in 1616 mode 2"
    assert out == [asked, "no room", asked, "77000"]


def test_no_memory_that_stays(run: Run) -> None:
    out = run(
        "try:\n    _core.allocate_for_good(0, 4096, lambda: None)\n"
        "except LaunchError as error:\n    print(error.rule, error)",
        FAKE_ROOM=0,
    )
    assert "cuda-launch" in out
    assert "allocating 4096 bytes for good on device 0" in out


KERNEL = """
extern "C" __global__ void scale(float* y, const float* x, float by, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i] * by;
}
"""


@pytest.mark.gpu
def test_real_kernel() -> None:
    import torch

    device = _core.cuda_device(0)
    properties = torch.cuda.get_device_properties(0)
    assert device.arch == 10 * properties.major + properties.minor
    assert device.sms == properties.multi_processor_count
    assert device.l2_bytes == properties.L2_cache_size
    assert device.name == properties.name

    compiled = toolkit.compile("scale", KERNEL, device.arch)
    kernel = _core.load_kernel(compiled.cubin, "scale", 0)
    assert kernel.registers > 0
    assert kernel.local_bytes == 0
    assert kernel.resident_blocks(256, 0) == device.threads_per_sm // 256
    n = 1000
    x = torch.arange(n, dtype=torch.float32, device="cuda")
    y = torch.zeros_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    assert _core.stream_id(stream.cuda_stream) != _core.stream_id(0)
    assert not _core.stream_is_capturing(stream.cuda_stream)
    arguments = [struct.pack("P", y.data_ptr()), struct.pack("P", x.data_ptr())]
    arguments += [struct.pack("f", 3.0), struct.pack("i", n)]
    shape = _core.LaunchShape(grid=(4, 1, 1), block=(256, 1, 1))
    _core.launch(kernel, shape, stream.cuda_stream, arguments)
    stream.synchronize()
    assert torch.equal(y, x * 3)

    graph = torch.cuda.CUDAGraph()
    fresh = _core.load_kernel(compiled.cubin, "scale", 0)
    with torch.cuda.graph(graph, stream=stream):
        assert _core.stream_is_capturing(stream.cuda_stream)
        _core.launch(fresh, shape, stream.cuda_stream, arguments)
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, x * 3)

    with pytest.raises(LaunchError, match="at most 1024 threads per block"):
        _core.launch(kernel, _core.LaunchShape(block=(2048, 1, 1)), 0, arguments)
    with pytest.raises(LaunchError, match="finding kernel other"):
        _core.load_kernel(compiled.cubin, "other", 0)


@pytest.mark.gpu
def test_real_kernel_from_ptx() -> None:
    arch = _core.cuda_device(0).arch
    text = toolkit.ptx(KERNEL, arch).encode() + b"\0"
    assert _core.load_kernel(text, "scale", 0).registers > 0
