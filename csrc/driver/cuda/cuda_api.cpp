#include "driver/cuda/cuda_api.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <deque>
#include <mutex>

#include "base/log.h"

namespace fuser::driver {

using namespace schedule;

namespace {

constexpr int kOldestDriver = 12010;

// CUdevice_attribute
enum DeviceAttribute {
  kMemoryClockKhz = 36,
  kMemoryBusBits = 37,
  kSms = 16,
  kL2Bytes = 38,
  kThreadsPerSm = 39,
  kMajor = 75,
  kMinor = 76,
  kSharedPerSm = 81,
  kRegistersPerSm = 82,
  kCooperative = 95,
  kSharedPerBlockOptIn = 97,
  kBlocksPerSm = 106,
  kClusters = 120,
};

// CUfunction_attribute
enum FunctionAttribute {
  kMaxThreads = 0,
  kStaticShared = 1,
  kLocalBytes = 3,
  kRegisters = 4,
  kMaxDynamicShared = 8,
  kLargeClusters = 14,
};

constexpr int kPortableCluster = 8;  // blocks that every device with clusters supports

// CUresult
constexpr int kOutOfMemory = 2;
constexpr int kInvalidContext = 201;
constexpr int kFirstFaultOfKernel = 700;  // illegal address, timeout, trap ...: 700 to 719
constexpr int kLastFaultOfKernel = 719;

struct DeviceState {
  std::once_flag described, retained, asked;
  Device device;
  std::array<int, 4> clusters = {};
  CuContext context = nullptr;
};

struct Driver {
  CudaApi api;
  int version = 0;
  std::string reason;               // why the driver cannot be used; empty if it can
  std::deque<DeviceState> devices;  // by ordinal
};

std::atomic<bool> forked = false;

std::string error_text(const CudaApi& api, int result) {
  const char *name = nullptr, *meaning = nullptr;
  api.cuGetErrorName(result, &name);
  api.cuGetErrorString(result, &meaning);
  return text(meaning != nullptr ? meaning : "unknown error", " (",
              name != nullptr ? name : std::to_string(result), ")");
}

// Fills in `driver`. Returns why it cannot be used, or an empty string.
std::string open_driver(Driver& driver) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return text("no NVIDIA driver was found (", ::dlerror(), ")");
  using Version = int (*)(int*);
  using Lookup = int (*)(const char*, void**, int, uint64_t, int*);
  const auto version = reinterpret_cast<Version>(::dlsym(library, "cuDriverGetVersion"));
  if (version == nullptr || version(&driver.version) != 0)
    return "libcuda.so.1 reports no version: it is not an NVIDIA driver, or a broken one";
  const auto lookup = reinterpret_cast<Lookup>(::dlsym(library, "cuGetProcAddress_v2"));
  if (driver.version < kOldestDriver || lookup == nullptr)
    return text("the NVIDIA driver supports CUDA ", driver.version / 1000, ".",
                driver.version % 1000 / 10,
                "; CUDA 12.1 or newer is needed: update the driver to 530 or newer");
  const auto find = [&](const char* name, auto& function) {
    void* address = nullptr;
    if (lookup(name, &address, kOldestDriver, 0, nullptr) != 0) address = nullptr;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    return address != nullptr;
  };
#define FUSER_CUDA_FUNCTION(name, ...) \
  if (!find(#name, driver.api.name))   \
    return "the NVIDIA driver lacks " #name ": its installation is incomplete";
#include "driver/cuda/cuda_api.def"
#undef FUSER_CUDA_FUNCTION
  if (const int result = driver.api.cuInit(0); result != 0)
    return "cuInit: " + error_text(driver.api, result);
  ::pthread_atfork(nullptr, nullptr, [] { forked = true; });
  int count = 0;
  if (const int result = driver.api.cuDeviceGetCount(&count); result != 0)
    return "cuDeviceGetCount: " + error_text(driver.api, result);
  if (count == 0) return "the NVIDIA driver reports no GPU (is CUDA_VISIBLE_DEVICES empty?)";
  driver.devices.resize(size_t(count));
  return "";
}

// Returns the driver, which is never destroyed: see the header.
Driver& driver() {
  static Driver& instance = *[] {
    auto* fresh = new Driver;
    fresh->reason = open_driver(*fresh);
    return fresh;
  }();
  return instance;
}

DeviceState& device_state(int ordinal) {
  cuda_api();
  auto& devices = driver().devices;
  FUSER_CHECK(ordinal >= 0 && size_t(ordinal) < devices.size(), Launch, "cuda-device",
              "there is no device ", ordinal, ": the driver reports ", devices.size(), " GPUs");
  return devices[size_t(ordinal)];
}

Device describe(int ordinal) {
  const CudaApi& api = cuda_api();
  int handle = 0;
  check_cuda(api.cuDeviceGet(&handle, ordinal), "cuda-device", "opening device ", ordinal);
  const auto attribute = [&](DeviceAttribute which) {
    int value = 0;
    check_cuda(api.cuDeviceGetAttribute(&value, which, handle), "cuda-device", "attribute ",
               int(which), " of device ", ordinal);
    return value;
  };
  std::array<char, 256> name = {};
  check_cuda(api.cuDeviceGetName(name.data(), int(name.size()) - 1, handle), "cuda-device",
             "name of device ", ordinal);
  Device device;
  device.arch = 10 * attribute(kMajor) + attribute(kMinor);
  device.sms = attribute(kSms);
  device.threads_per_sm = attribute(kThreadsPerSm);
  device.blocks_per_sm = attribute(kBlocksPerSm);
  device.registers_per_sm = attribute(kRegistersPerSm);
  device.shared_per_sm = attribute(kSharedPerSm);
  device.shared_per_block = attribute(kSharedPerBlockOptIn);
  device.l2_bytes = attribute(kL2Bytes);
  // Memory transfers twice per clock.
  device.bandwidth = int64_t(attribute(kMemoryClockKhz)) * 1000 * 2 * attribute(kMemoryBusBits) / 8;
  device.clusters = attribute(kClusters) != 0;
  if (device.clusters) device.resident_clusters = likely_clusters(device.sms);
  device.cooperative = attribute(kCooperative) != 0;
  device.ordinal = ordinal;
  device.name = name.data();
  // Some boards and virtual GPUs hide the memory clock.
  if (device.bandwidth == 0) device.bandwidth = nearest_known_device(device.arch).bandwidth;
  return device;
}

// Returns the device's primary context, which is never released. Torch uses it too, so its streams
// and memory are valid here.
CuContext primary_context(int ordinal) {
  DeviceState& state = device_state(ordinal);
  std::call_once(state.retained, [&] {
    const CudaApi& api = cuda_api();
    int handle = 0;
    check_cuda(api.cuDeviceGet(&handle, ordinal), "cuda-device", "opening device ", ordinal);
    check_cuda(api.cuDevicePrimaryCtxRetain(&state.context, handle), "cuda-device",
               "context of device ", ordinal);
  });
  return state.context;
}

// Makes a device's primary context current on this thread for its lifetime.
struct ContextScope {
  explicit ContextScope(int ordinal) {
    check_cuda(cuda_api().cuCtxPushCurrent(primary_context(ordinal)), "cuda-device",
               "entering device ", ordinal);
  }
  ContextScope(const ContextScope&) = delete;
  ~ContextScope() {
    CuContext popped = nullptr;
    cuda_api().cuCtxPopCurrent(&popped);
  }
};

std::string sizes(const std::array<uint32_t, 3>& size) { return joined(size, " x "); }

std::string describe_launch(const CudaKernel& kernel, const LaunchShape& shape) {
  return text(
      "launch of ", kernel.name, "\n  grid ", sizes(shape.grid), ", block ", sizes(shape.block),
      ", ", shape.shared_bytes, " bytes of dynamic shared memory, cluster ", sizes(shape.cluster),
      shape.cooperative ? ", cooperative" : "", "\n  the kernel allows at most ",
      kernel.max_threads, " threads per block and ", kernel.dynamic_shared,
      " bytes of dynamic shared memory; it uses ", kernel.registers, " registers per thread and ",
      kernel.static_shared, " bytes of static shared memory\n  device ", kernel.device, " ",
      to_string(cuda_device(kernel.device)), " allows at most ",
      cuda_device(kernel.device).shared_per_block,
      " bytes of shared memory per block and a grid of 2147483647 x 65535 x 65535 blocks");
}

}  // namespace

bool cuda_available() { return cuda_unavailable_reason().empty(); }

const std::string& cuda_unavailable_reason() { return driver().reason; }

int cuda_driver_version() { return driver().version; }

const CudaApi& cuda_api() {
  const Driver& d = driver();
  FUSER_CHECK(d.reason.empty(), Launch, "cuda-unavailable", "no usable GPU: ", d.reason);
  FUSER_CHECK(!forked.load(std::memory_order_relaxed), Launch, "cuda-fork",
              "this process was forked after CUDA was initialised, and a child process cannot use "
              "CUDA\n  hint: start workers with the \"spawn\" method");
  return d.api;
}

int cuda_device_count() { return cuda_available() ? int(driver().devices.size()) : 0; }

const Device& cuda_device(int ordinal) {
  DeviceState& state = device_state(ordinal);
  std::call_once(state.described, [&] { state.device = describe(ordinal); });
  return state.device;
}

std::string cuda_error_text(int result) { return error_text(cuda_api(), result); }

void raise_cuda_error(int result, const char* rule, const std::string& what) {
  const bool earlier = result >= kFirstFaultOfKernel && result <= kLastFaultOfKernel;
  throw Fault(
      FaultKind::Launch, rule,
      text(cuda_error_text(result), ": ", what,
           earlier
               ? "\n  hint: a kernel that ran before this call failed, not necessarily this one; "
                 "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which"
               : ""));
}

CudaKernel load_kernel(std::string_view image, const std::string& name, int device,
                       int dynamic_shared, int cluster) {
  const CudaApi& api = cuda_api();
  const ContextScope scope(device);
  CuLibrary library = nullptr;
  check_cuda(
      api.cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      "cuda-load", "loading ", image.size(), " bytes of code for kernel ", name, " on device ",
      device, " ", to_string(cuda_device(device)));
  CudaKernel kernel;
  kernel.name = name;
  kernel.device = device;
  try {
    CuKernel handle = nullptr;
    check_cuda(api.cuLibraryGetKernel(&handle, library, name.c_str()), "cuda-load",
               "finding kernel ", name);
    check_cuda(api.cuKernelGetFunction(&kernel.function, handle), "cuda-load", "finding kernel ",
               name, " on device ", device);
    // With lazy loading, this query brings the code to the device.
    const auto attribute = [&](FunctionAttribute which) {
      int value = 0;
      check_cuda(api.cuFuncGetAttribute(&value, which, kernel.function), "cuda-load", "attribute ",
                 int(which), " of kernel ", name);
      return value;
    };
    kernel.registers = attribute(kRegisters);
    kernel.local_bytes = attribute(kLocalBytes);
    kernel.static_shared = attribute(kStaticShared);
    kernel.max_threads = attribute(kMaxThreads);
    kernel.dynamic_shared = attribute(kMaxDynamicShared);
    const Device& described = cuda_device(device);
    int device_handle = 0;
    check_cuda(api.cuDeviceGet(&device_handle, device), "cuda-device", "opening device ", device);
    const auto ask = [&](FunctionAttribute which, int value, const std::string& what) {
      check_cuda(api.cuKernelSetAttribute(which, value, handle, device_handle), "cuda-load",
                 "asking for ", what, " for kernel ", name, " on device ", device, " ",
                 to_string(described));
    };
    FUSER_CHECK(dynamic_shared + kernel.static_shared <= described.shared_per_block, Launch,
                "cuda-load", "kernel ", name, " needs ", dynamic_shared,
                " bytes of dynamic shared memory and ", kernel.static_shared,
                " static bytes; a block on device ", device, " ", to_string(described),
                " has at most ", described.shared_per_block);
    FUSER_CHECK(cluster == 1 || described.clusters, Launch, "cuda-load", "kernel ", name,
                " needs clusters of ", cluster, " blocks; device ", device, " ",
                to_string(described), " supports no clusters");
    if (dynamic_shared > kernel.dynamic_shared) {
      ask(kMaxDynamicShared, dynamic_shared,
          text(dynamic_shared, " bytes of dynamic shared memory"));
      kernel.dynamic_shared = dynamic_shared;
    }
    if (cluster > kPortableCluster)
      ask(kLargeClusters, 1, text("clusters of ", cluster, " blocks"));
  } catch (...) {
    api.cuLibraryUnload(library);
    throw;
  }
  return kernel;
}

void launch(const CudaKernel& kernel, const LaunchShape& shape, CuStream stream,
            void** parameters) {
  const CudaApi& api = cuda_api();
  std::array<CuLaunchAttribute, 2> attributes;
  uint32_t count = 0;
  if (shape.cooperative) {
    attributes[count].id = CuLaunchAttribute::Cooperative;
    attributes[count++].cooperative = 1;
  }
  if (shape.cluster != std::array<uint32_t, 3>{1, 1, 1}) {
    attributes[count].id = CuLaunchAttribute::ClusterDimension;
    attributes[count++].cluster = shape.cluster;
  }
  const CuLaunchConfig config = {shape.grid, shape.block,       shape.shared_bytes,
                                 stream,     attributes.data(), count};
  int result = api.cuLaunchKernelEx(&config, kernel.function, parameters, nullptr);
  if (result == kInvalidContext) [[unlikely]] {
    enter_device(kernel.device);
    result = api.cuLaunchKernelEx(&config, kernel.function, parameters, nullptr);
  }
  if (result != 0) [[unlikely]]
    raise_cuda_error(result, "cuda-launch", describe_launch(kernel, shape));
}

int resident_blocks(const CudaKernel& kernel, int threads, int shared_bytes) {
  const ContextScope scope(kernel.device);
  int blocks = 0;
  check_cuda(cuda_api().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function,
                                                                    threads, size_t(shared_bytes)),
             "cuda-load", "occupancy of kernel ", kernel.name, " with ", threads, " threads and ",
             shared_bytes, " bytes of shared memory");
  return blocks;
}

int resident_clusters(const CudaKernel& kernel, int threads, int shared_bytes, int cluster) {
  const ContextScope scope(kernel.device);
  CuLaunchAttribute shape;
  shape.id = CuLaunchAttribute::ClusterDimension;
  shape.cluster = {uint32_t(cluster), 1, 1};
  const CuLaunchConfig config = {{uint32_t(cluster), 1, 1},
                                 {uint32_t(threads), 1, 1},
                                 uint32_t(shared_bytes),
                                 nullptr,
                                 &shape,
                                 1};
  int clusters = 0;
  check_cuda(cuda_api().cuOccupancyMaxActiveClusters(&clusters, kernel.function, &config),
             "cuda-load", "clusters of ", cluster, " blocks of kernel ", kernel.name, " with ",
             threads, " threads and ", shared_bytes, " bytes of shared memory");
  return clusters;
}

void enter_device(int device) {
  const CudaApi& api = cuda_api();
  CuContext current = nullptr;
  if (api.cuCtxGetCurrent(&current) == 0 && current == nullptr)
    check_cuda(api.cuCtxSetCurrent(primary_context(device)), "cuda-launch", "entering device ",
               device);
}

bool device_is_entered(int device) {
  CuContext current = nullptr;
  return cuda_api().cuCtxGetCurrent(&current) == 0 && current == primary_context(device);
}

uint64_t stream_id(CuStream stream) {
  unsigned long long id = 0;
  check_cuda(cuda_api().cuStreamGetId(stream, &id), "cuda-launch", "the id of a stream");
  return id;
}

bool stream_is_capturing(CuStream stream) {
  int status = 0;
  check_cuda(cuda_api().cuStreamIsCapturing(stream, &status), "cuda-launch",
             "the capture state of a stream");
  return status != 0;
}

BesideCaptures::BesideCaptures() : mode_(2) {  // CU_STREAM_CAPTURE_MODE_RELAXED
  check_cuda(cuda_api().cuThreadExchangeStreamCaptureMode(&mode_), "cuda-load",
             "setting the capture mode of a thread");
}

char* allocate_for_good(int device, int64_t bytes, const std::function<void()>& make_room) {
  const ContextScope scope(device);
  const BesideCaptures captures;
  uint64_t address = 0;
  const auto allocate = [&] { return cuda_api().cuMemAlloc(&address, static_cast<size_t>(bytes)); };
  int result = allocate();
  if (result == kOutOfMemory) {
    make_room();
    result = allocate();
  }
  check_cuda(result, "cuda-launch", "allocating ", bytes, " bytes for good on device ", device);
  return reinterpret_cast<char*>(address);
}

BesideCaptures::~BesideCaptures() { cuda_api().cuThreadExchangeStreamCaptureMode(&mode_); }

namespace {

// Returns the driver's number of resident clusters of each size, for kernels of which an SM holds
// one block. Falls back to the numbers of `device`.
std::array<int, 4> held_clusters(const Device& device) {
  std::array<int, 4> held = device.resident_clusters;
  constexpr std::string_view nothing =
      ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n";
  // More than half of an SM's shared memory. The driver reserves a kilobyte of each block
  // (cudaDeviceProp::reservedSharedMemPerBlock).
  const int shared = device.shared_per_block - 1024;
  const BesideCaptures captures;
  try {
    const int largest = 1 << held.size();
    const CudaKernel kernel = load_kernel(nothing, "nothing", device.ordinal, shared, largest);
    for (size_t i = 0; i < held.size(); ++i)
      held[i] = resident_clusters(kernel, 128, shared, 2 << i);
  } catch (const Fault& fault) {  // a driver without its PTX compiler
    log(text("device ", device.ordinal, ": resident clusters: ", fault.what()));
  }
  return held;
}

}  // namespace

Device cuda_device_for_plans(int ordinal) {
  Device device = cuda_device(ordinal);
  if (!device.clusters) return device;
  DeviceState& state = device_state(ordinal);
  std::call_once(state.asked, [&] { state.clusters = held_clusters(device); });
  device.resident_clusters = state.clusters;
  return device;
}

}  // namespace fuser::driver
