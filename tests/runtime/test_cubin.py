"""fuser/runtime/cubin: registers, local and shared memory, compared with the log of ptxas."""

import re

import pytest

from fuser.runtime import toolkit
from fuser.runtime.cubin import KernelResources, architecture, cubin_info
from tests.support.nvrtc12 import needs_nvrtc_12, run_under_nvrtc_12

TEXT = """
extern "C" __global__ void plain(const float* a, float* b) {
  b[threadIdx.x] = a[threadIdx.x] + 1.0f;
}
extern "C" __global__ void stack(const float* a, float* b, int n) {
  volatile float t[64];
  for (int i = 0; i < 64; ++i) t[i] = a[i * n];
  for (int i = 0; i < 64; ++i) b[i] = t[(i * n) & 63];
}
extern "C" __global__ void shared(const float* a, float* b) {
  __shared__ float t[256];
  t[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = t[255 - threadIdx.x];
}
extern "C" __global__ void dynamic(const float* a, float* b) {
  extern __shared__ float t[];
  t[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = t[255 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spills(const float* a, float* b, int n) {
  float t[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) t[i] = a[i * n + threadIdx.x];
  __syncthreads();
  float s = 0;
#pragma unroll
  for (int i = 0; i < 96; ++i) {
    s = s * t[i] + t[i * 37 % 96];
    b[i * n + threadIdx.x] = s;
  }
}
__device__ __noinline__ float called(float x) {
  volatile float t[32];
  for (int i = 0; i < 32; ++i) t[i] = x * i;
  return t[int(x) & 31];
}
extern "C" __global__ void calls(float* a) { a[threadIdx.x] = called(a[threadIdx.x]); }
"""

VERBOSE = "--ptxas-options=--verbose"


def told_by_ptxas(log: str) -> dict[str, tuple[int, int, int]]:
    """Registers, stack and static shared bytes of each kernel, from the log of ptxas."""
    found = {}
    for entry in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'(\w+)'", entry)
        used = re.search(r"Used (\d+) registers(.*)", entry)
        assert name
        assert used
        stack = re.search(r"(\d+) bytes cumulative stack", used[2])
        shared = re.search(r"(\d+) bytes smem", used[2])
        found[name[1]] = (
            int(used[1]),
            int(stack[1]) if stack else 0,
            int(shared[1]) if shared else 0,
        )
    return found


def check(info: dict[str, KernelResources], log: str) -> None:
    told = told_by_ptxas(log)
    assert set(told) == set(info) == {"plain", "stack", "shared", "spills", "calls", "dynamic"}
    for name, (registers, stack, shared) in told.items():
        assert info[name].registers == registers
        assert info[name].local_bytes == stack
        assert info[name].shared_bytes == shared
        assert info[name].code_bytes > 0
    assert info["plain"].local_bytes == 0
    assert info["plain"].shared_bytes == 0
    assert info["stack"].local_bytes >= 256
    assert info["shared"].shared_bytes == 1024
    assert info["spills"].local_bytes > 0
    assert info["dynamic"].shared_bytes == 0
    assert info["calls"].local_bytes >= 128


@pytest.mark.parametrize("arch", toolkit.nvrtc().archs)
def test_figures_are_those_of_ptxas(arch: int) -> None:
    compiled = toolkit.compile("resources", TEXT, arch, [VERBOSE])
    assert architecture(compiled.cubin) == arch
    check(cubin_info(compiled.cubin), compiled.log)


@needs_nvrtc_12
@pytest.mark.parametrize("arch", [70, 75, 80, 90])
def test_figures_of_nvrtc_12(arch: int) -> None:
    out = run_under_nvrtc_12(f"""
from fuser.runtime import toolkit
from fuser.runtime.cubin import architecture, cubin_info
compiled = toolkit.compile("resources", {TEXT!r}, {arch}, [{VERBOSE!r}])
print(repr((architecture(compiled.cubin), cubin_info(compiled.cubin), compiled.log)))
""")
    found, info, log = eval(out, {"KernelResources": KernelResources})
    assert found == arch
    check(info, log)


@pytest.mark.parametrize("size", [0, 100, -1])
def test_cut_cubin(size: int) -> None:
    cubin = toolkit.compile("resources", TEXT, 90).cubin
    with pytest.raises(ValueError, match="ELF file"):
        cubin_info(cubin[:size])


def test_ptx_is_not_a_cubin() -> None:
    with pytest.raises(ValueError, match="ELF file"):
        cubin_info(toolkit.ptx(TEXT, 90).encode())
