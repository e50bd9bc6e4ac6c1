// The CUDA driver: loaded by name at the first use, so that one binary builds, loads and runs with
// or without a GPU.
//
// The declarations are our own and follow the driver's ABI as of CUDA 12.1 (kernels that belong to
// no context, 32 KB of kernel parameters, stream ids); an older driver is refused with a clear
// reason. What is loaded stays loaded: at exit the driver may be gone before our destructors run,
// so none of them calls it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "schedule/device.h"

namespace fuser {

// Handles of the driver. Pointers without a type, so that a handle of torch or of another library
// fits as it is.
using CuContext = void*;
using CuLibrary = void*;
using CuKernel = void*;
using CuFunction = void*;
using CuStream = void*;

// CUlaunchAttribute: 64 bytes of value behind an id padded to 8 bytes.
struct CuLaunchAttribute {
  enum Id : uint32_t { Cooperative = 2, ClusterDimension = 4, ProgrammaticSerialization = 6 };
  Id id;
  uint32_t padding = 0;
  union {
    std::array<uint32_t, 16> words = {};
    int32_t cooperative;
    std::array<uint32_t, 3> cluster;
    int32_t programmatic_serialization;
  };
};
static_assert(sizeof(CuLaunchAttribute) == 72);

// CUlaunchConfig.
struct CuLaunchConfig {
  std::array<uint32_t, 3> grid;
  std::array<uint32_t, 3> block;
  uint32_t shared_bytes;
  CuStream stream;
  CuLaunchAttribute* attributes;
  uint32_t attribute_count;
};
static_assert(sizeof(CuLaunchConfig) == 56);

// Every function returns a CUresult: 0 is success. Devices are ordinals.
struct CudaApi {
#define FUSER_CUDA_FUNCTION(name, ...) int (*name)(__VA_ARGS__) = nullptr;
#include "driver/cuda_api.def"
#undef FUSER_CUDA_FUNCTION
};

// Is there a driver that we can use, with at least one GPU? Asked once; it initialises the driver.
bool cuda_available();
// Why not; empty when it is available.
const std::string& cuda_unavailable_reason();
// 12010 for CUDA 12.1, the newest version that the driver supports; 0 when there is no driver.
int cuda_driver_version();
// Raises Launch "cuda-unavailable", or "cuda-fork" in a child forked after the driver was
// initialised.
const CudaApi& cuda_api();

int cuda_device_count();
// Attributes are read once per device. Raises Launch "cuda-device" for an ordinal that does not
// exist.
const Device& cuda_device(int ordinal);

// "invalid argument (CUDA_ERROR_INVALID_VALUE)".
std::string cuda_error_text(int result);
[[noreturn]] void raise_cuda_error(int result, const char* rule, const std::string& what);

// Raise Launch unless `result` is success; `what` names the operation and is built on failure only.
template <class... Parts>
void check_cuda(int result, const char* rule, const Parts&... what) {
  if (result != 0) [[unlikely]]
    raise_cuda_error(result, rule, text(what...));
}

// One kernel, loaded for one device.
struct CudaKernel {
  std::string name;
  int device = 0;
  CuFunction function = nullptr;  // the kernel in the device's primary context
  int registers = 0;              // per thread
  int local_bytes = 0;            // per thread
  int static_shared = 0;          // bytes per block
  int dynamic_shared = 0;         // bytes per block that a launch may ask for
  int max_threads = 0;            // per block
};

// Loads an image (cubin, or PTX ending in a zero byte) and resolves one kernel at once: nothing is
// left for the first launch, which may be captured into a graph. Must itself not run inside a
// capture. `dynamic_shared` bytes above the default of 48 KB and `cluster` blocks above the
// portable 8 are asked of the driver here. The code is never unloaded. Raises Launch "cuda-load",
// also where the device has too little shared memory, or no clusters.
CudaKernel load_kernel(std::string_view image, const std::string& name, int device,
                       int dynamic_shared, int cluster = 1);

struct LaunchShape {
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  uint32_t shared_bytes = 0;  // dynamic
  std::array<uint32_t, 3> cluster = {1, 1, 1};
  bool cooperative = false;
};

// Queues the kernel on the stream; `parameters` points at each argument. Never synchronizes. The
// stream must belong to the kernel's device. Raises Launch "cuda-launch", with the shape and the
// device's limits.
void launch(const CudaKernel& kernel, const LaunchShape& shape, CuStream stream, void** parameters);

// Blocks of this shape that one processor holds at once.
int resident_blocks(const CudaKernel& kernel, int threads, int shared_bytes);

// Clusters of so many blocks of this shape that the device holds at once.
int resident_clusters(const CudaKernel& kernel, int threads, int shared_bytes, int cluster);
// cuda_device() with the clusters that it said it holds, asked once.
Device cuda_device_for_plans(int ordinal);

// Gives a thread that has not called CUDA yet the device's primary context; torch's guard leaves it
// without one while the device is number 0.
void enter_device(int device);
// Is it current on this thread already? Cheap.
bool device_is_entered(int device);

// Identifies a stream among all of the process; unlike the handle it is never used again. The
// default stream is that of the thread's context.
uint64_t stream_id(CuStream stream);
bool stream_is_capturing(CuStream stream);

// Memory of the driver's own that stays for good, outside of every pool of torch's, also beside
// captures. Where none is left, `make_room` may give some back before it is asked for once more.
// Raises Launch "cuda-launch".
char* allocate_for_good(int device, int64_t bytes, const std::function<void()>& make_room);

// While it lives, this thread may load code and allocate although another thread captures a CUDA
// graph: the capture of that thread, which knows nothing of us, would fail otherwise.
class BesideCaptures {
 public:
  BesideCaptures();
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;

 private:
  int mode_;  // of the thread; the other one while this lives
};

}  // namespace fuser
