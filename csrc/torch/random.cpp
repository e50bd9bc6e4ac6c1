#include "torch/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <dlfcn.h>

#include <ATen/cuda/detail/PhiloxCudaStateRaw.cuh>
#include <mutex>

#include "base/error.h"
#include "driver/cuda/cuda_api.h"
#include "torch/bridge.h"

namespace fuser::bridge {

using namespace driver;

namespace {

// Returns the position during capture. A graph must not repeat its numbers at each replay, so
// torch's generator keeps seed and offset of each replay in GPU memory. The function that returns
// their addresses is a class member, which only a build with CUDA's headers could call by name.
RandomPosition captured_position(const at::Generator& generator, uint64_t taken) {
  using Function = at::PhiloxCudaState (*)(c10::GeneratorImpl*, uint64_t);
  static const Function function = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library ? reinterpret_cast<Function>(
                         dlsym(library, "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm"))
                   : nullptr;
  }();
  FUSER_CHECK(
      function, Unsupported, "rng-capture-1",
      "execute(): this version of torch does not expose its generator's state inside a CUDA graph\n"
      "  hint: pass rng_seed and rng_offset as scalar inputs");
  const at::PhiloxCudaState state = function(generator.unsafeGetGeneratorImpl(), taken);
  FUSER_ASSERT(state.captured_, "torch's generator is not in capture mode");
  return {.seed = 0,
          .offset = static_cast<int64_t>(state.offset_intragraph_),
          .seed_at = state.seed_.ptr,
          .offset_at = state.offset_.ptr};
}

}  // namespace

RandomPosition take_random_position(int device, int64_t ops) {
  if (device == cpu_device) {
    at::Generator generator = at::globalContext().defaultGenerator(at::Device(at::kCPU));
    const std::lock_guard<std::mutex> lock(generator.mutex());
    auto* const cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    const uint64_t seed = cpu->random64();
    for (int64_t i = 1; i < ops; ++i) (void)cpu->random64();
    return {.seed = static_cast<int64_t>(seed)};
  }
  at::Generator generator = at::globalContext().defaultGenerator(
      at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const uint64_t taken = 4 * static_cast<uint64_t>(ops);
  enter_device(device);  // streams of a thread can be queried only after it entered a device
  if (stream_is_capturing(current_stream(device))) return captured_position(generator, taken);
  const uint64_t offset = generator.get_offset();
  generator.set_offset(offset + taken);
  return {.seed = static_cast<int64_t>(generator.current_seed()),
          .offset = static_cast<int64_t>(offset)};
}

}  // namespace fuser::bridge
