"""The read-only probe: the highest achievable read bandwidth, as the yardstick of sums.

A copy is no upper bound for a kernel without output: pure reads are slightly faster. So each sum is
compared with the fastest of three kernels that read equally many bytes: 16-byte loads with eight in
flight per thread; a ring of bulk copies into shared memory (sm_90 and newer), which keeps the
memory busy without registers; and torch.sum over the bytes as float32. The first two are
hand-written and sum 32-bit words, so that no load can be eliminated; their sum is compared with
torch's once.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

import torch

TILE = 32 << 10  # bytes: probes read a multiple of it

_LOADS = r"""
extern "C" __global__ void __launch_bounds__(256)
read_loads(const uint4* __restrict__ x, long long tiles, unsigned* out) {
  unsigned sum = 0;
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const uint4* p = x + tile * 2048 + threadIdx.x;
    uint4 v[8];
#pragma unroll
    for (int u = 0; u < 8; ++u)
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
                   : "=r"(v[u].x), "=r"(v[u].y), "=r"(v[u].z), "=r"(v[u].w)
                   : "l"(p + u * 256));
#pragma unroll
    for (int u = 0; u < 8; ++u) sum += v[u].x + v[u].y + v[u].z + v[u].w;
  }
  for (int lane = 16; lane; lane >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
"""

# Four stages of 16 KB with one barrier each, which counts the bytes that have arrived.
_RING = r"""
__device__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ void fetch(unsigned char* stage, const unsigned char* from, unsigned long long* full) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],16384;"
               ::"r"(shared_address(full)) : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],16384,[%2];"
      ::"r"(shared_address(stage)), "l"(from), "r"(shared_address(full)) : "memory");
}
__device__ void wait(unsigned long long* full, unsigned parity) {
  asm volatile(
      "{\n .reg .pred done;\n"
      "again_%=:\n mbarrier.try_wait.parity.shared::cta.b64 done,[%0],%1;\n"
      " @!done bra again_%=;\n}"
      ::"r"(shared_address(full)), "r"(parity) : "memory");
}
extern "C" __global__ void __launch_bounds__(256)
read_ring(const unsigned char* __restrict__ x, long long tiles, unsigned* out) {
  extern __shared__ __align__(128) unsigned char stages[];
  __shared__ unsigned long long full[4];
  const unsigned t = threadIdx.x;
  const long long step = gridDim.x;
  if (t == 0) {
    for (int s = 0; s < 4; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0],1;"
                   ::"r"(shared_address(full + s)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (int s = 0; s < 4; ++s)
      if (blockIdx.x + s * step < tiles)
        fetch(stages + s * 16384, x + (blockIdx.x + s * step) * 16384, full + s);
  }
  __syncthreads();
  unsigned sum = 0;
  long long round = 0;
  for (long long tile = blockIdx.x; tile < tiles; tile += step, ++round) {
    const int s = static_cast<int>(round % 4);
    wait(full + s, static_cast<unsigned>(round / 4) & 1u);
    const uint4* stage = reinterpret_cast<const uint4*>(stages + s * 16384);
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const uint4 v = stage[u * 256 + t];
      sum += v.x + v.y + v.z + v.w;
    }
    __syncthreads();  // the stage is read before it is filled again
    if (t == 0 && tile + 4 * step < tiles)
      fetch(stages + s * 16384, x + (tile + 4 * step) * 16384, full + s);
  }
  for (int lane = 16; lane; lane >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  if (t % 32 == 0) atomicAdd(out, sum);
}
"""

# By name: text, bytes per tile, blocks per SM, dynamic shared bytes, minimum architecture.
KERNELS = {
    "read_loads": (_LOADS, TILE, 4, 0, 70),
    "read_ring": (_RING, 16 << 10, 2, 64 << 10, 90),
}
_THREADS = 256
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def reads(total_bytes: int, device: torch.device) -> dict[str, Callable[[], object]]:
    """Calls by name that read `total_bytes`, rounded down to a multiple of TILE."""
    count = max(1, total_bytes // TILE) * TILE
    source = torch.randint(-(2**31), 2**31 - 1, (count // 4,), dtype=torch.int32, device=device)
    numbers = source.view(torch.float32)
    calls: dict[str, Callable[[], object]] = {"read torch": lambda: torch.sum(numbers)}
    if device.type != "cuda":
        return calls
    out = torch.zeros(1, dtype=torch.int32, device=device)
    expected = int(source.sum(dtype=torch.int64)) % 2**32
    for name, launch in _kernels(source.device.index).items():

        def call(launch: Callable[[torch.Tensor, torch.Tensor], None] = launch) -> None:
            launch(source, out)

        out.zero_()
        call()
        if int(out) % 2**32 != expected:
            raise AssertionError(f"{name} read {int(out) % 2**32:#x}, expected {expected:#x}")
        calls[name.replace("_", " ")] = call
    return calls


@functools.cache
def _kernels(device: int) -> dict[str, Callable[[torch.Tensor, torch.Tensor], None]]:
    """Launchers of the kernels that this GPU supports; empty if they cannot be compiled."""
    from fuser.runtime import toolkit

    properties = torch.cuda.get_device_properties(device)
    arch = properties.major * 10 + properties.minor
    launchers = {}
    for name, (text, tile, blocks, shared, oldest) in KERNELS.items():
        if arch < oldest:
            continue
        try:
            cubin = toolkit.compile(name, text, arch).cubin
            launchers[name] = _launcher(
                cubin, name, tile, blocks * properties.multi_processor_count, shared
            )
        except Exception as failure:
            print(f"the probe {name} is left out: {failure}", file=sys.stderr, flush=True)
    return launchers


def _launcher(
    cubin: bytes, name: str, tile: int, grid: int, shared: int
) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Returns launch(source, out) for a kernel (source, tiles, out), in torch's CUDA context."""
    torch.cuda.init()
    cuda = ctypes.CDLL("libcuda.so.1")

    def succeed(status: int, what: str) -> None:
        if status:
            raise RuntimeError(f"{what} of {name}: CUDA driver error {status}")

    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    succeed(cuda.cuModuleLoadData(ctypes.byref(module), cubin), "loading")
    succeed(cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()), "look-up")
    if shared:
        succeed(cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared), "shared memory")

    def launch(source: torch.Tensor, out: torch.Tensor) -> None:
        arguments = (
            ctypes.c_void_p(source.data_ptr()),
            ctypes.c_longlong(source.nbytes // tile),
            ctypes.c_void_p(out.data_ptr()),
        )
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(a) for a in arguments))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        sizes = (ctypes.c_uint(n) for n in (grid, 1, 1, _THREADS, 1, 1, shared))
        succeed(cuda.cuLaunchKernel(function, *sizes, stream, pointers, None), "launch")

    return launch
