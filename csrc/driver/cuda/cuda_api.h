// The CUDA driver, loaded by name at the first use, so that one binary builds, loads and runs with
// or without a GPU.
//
// The declarations are our own and follow the driver's ABI as of CUDA 12.1 (kernels without a
// context, 32 KB of kernel parameters, stream ids). An older driver is rejected with a clear
// reason. Loaded code stays loaded: at exit the driver may be gone before our destructors run, so
// no destructor calls it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "schedule/device.h"

namespace fuser::driver {

// Handles of the driver. They are untyped pointers, so that handles of torch or of another library
// are usable without a cast.
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

// Driver functions. Each returns a CUresult: 0 is success. Devices are ordinals.
struct CudaApi {
#define FUSER_CUDA_FUNCTION(name, ...) int (*name)(__VA_ARGS__) = nullptr;
#include "driver/cuda/cuda_api.def"
#undef FUSER_CUDA_FUNCTION
};

// Returns whether there is a usable driver with at least one GPU. The first call initialises the
// driver; its answer is cached.
bool cuda_available();
// Returns why no GPU is available; empty if one is.
const std::string& cuda_unavailable_reason();
// Returns 12010 for CUDA 12.1, the newest version that the driver supports; 0 without a driver.
int cuda_driver_version();
// Raises Launch "cuda-unavailable", or "cuda-fork" in a child that was forked after the driver was
// initialised.
const CudaApi& cuda_api();

int cuda_device_count();
// Returns the device's attributes, which are read once. Raises Launch "cuda-device" if the ordinal
// does not exist.
const schedule::Device& cuda_device(int ordinal);

// Returns "invalid argument (CUDA_ERROR_INVALID_VALUE)".
std::string cuda_error_text(int result);
[[noreturn]] void raise_cuda_error(int result, const char* rule, const std::string& what);

// Raises Launch unless `result` is success. `what` names the operation; its text is built on
// failure only.
template <class... Parts>
void check_cuda(int result, const char* rule, const Parts&... what) {
  if (result != 0) [[unlikely]]
    raise_cuda_error(result, rule, text(what...));
}

// A kernel, loaded for one device.
struct CudaKernel {
  std::string name;
  int device = 0;
  CuFunction function = nullptr;  // the kernel in the device's primary context
  int registers = 0;              // registers per thread
  int local_bytes = 0;            // bytes of local memory per thread
  int static_shared = 0;          // bytes of static shared memory per block
  int dynamic_shared = 0;         // maximum bytes of dynamic shared memory per block
  int max_threads = 0;            // maximum threads per block
};

// Loads an image (cubin, or PTX ending in a zero byte) and resolves one kernel at once. No work is
// left for the first launch, which may be captured into a graph. The caller itself must not be
// capturing. Requests `dynamic_shared` bytes above the default of 48 KB, and `cluster` blocks above
// the portable 8, from the driver. The code is never unloaded. Raises Launch "cuda-load", also if
// the device has too little shared memory or no clusters.
CudaKernel load_kernel(std::string_view image, const std::string& name, int device,
                       int dynamic_shared, int cluster = 1);

struct LaunchShape {
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  uint32_t shared_bytes = 0;  // bytes of dynamic shared memory per block
  std::array<uint32_t, 3> cluster = {1, 1, 1};
  bool cooperative = false;
};

// Queues the kernel on the stream; `parameters` points at each argument. Never synchronizes. The
// stream must belong to the kernel's device. Raises Launch "cuda-launch" with the shape and the
// device's limits.
void launch(const CudaKernel& kernel, const LaunchShape& shape, CuStream stream, void** parameters);

// Returns the number of resident blocks of this shape per SM.
int resident_blocks(const CudaKernel& kernel, int threads, int shared_bytes);

// Returns the number of resident clusters of `cluster` blocks of this shape on the device.
int resident_clusters(const CudaKernel& kernel, int threads, int shared_bytes, int cluster);
// Returns cuda_device() with the driver's numbers of resident clusters, which are queried once.
schedule::Device cuda_device_for_plans(int ordinal);

// Makes the device's primary context current on a thread that has not called CUDA yet. Torch's
// guard sets no context for device 0.
void enter_device(int device);
// Returns whether the device is current on this thread. Cheap.
bool device_is_entered(int device);

// Returns the id of a stream, which is unique in the process. Unlike the handle, it is never
// reused. The default stream has the id of the stream of the thread's context.
uint64_t stream_id(CuStream stream);
bool stream_is_capturing(CuStream stream);

// Allocates memory that is never freed, outside of torch's pools, even while another thread
// captures. If the allocation fails, `make_room` may free memory before a second attempt. Raises
// Launch "cuda-launch".
char* allocate_for_good(int device, int64_t bytes, const std::function<void()>& make_room);

// While it lives, this thread may load code and allocate even if another thread captures a CUDA
// graph. Otherwise the capture of that thread would fail.
class BesideCaptures {
 public:
  BesideCaptures();
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;

 private:
  int mode_;  // capture mode of the thread to restore
};

}  // namespace fuser::driver
