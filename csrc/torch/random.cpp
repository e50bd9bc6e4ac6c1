#include "torch/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

#include "base/error.h"
#include "driver/cuda_api.h"
#include "torch/bridge.h"

namespace fuser {

RandomPosition take_random_position(int device, int64_t ops) {
  if (device == cpu_device) {
    at::Generator generator = at::globalContext().defaultGenerator(at::Device(at::kCPU));
    const std::lock_guard<std::mutex> lock(generator.mutex());
    auto* const cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    const uint64_t seed = cpu->random64();
    for (int64_t i = 1; i < ops; ++i) (void)cpu->random64();
    return {.seed = static_cast<int64_t>(seed)};
  }
  // A replay of the graph must not repeat its numbers; torch passes pointers to such kernels.
  FUSER_CHECK(!stream_is_capturing(current_stream(device)), Unsupported, "rng-capture-1",
              "execute(): the definition takes random numbers from torch's generator, which a CUDA "
              "graph cannot capture\n  hint: pass rng_seed and rng_offset as scalar inputs");
  at::Generator generator = at::globalContext().defaultGenerator(
      at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const uint64_t offset = generator.get_offset();
  generator.set_offset(offset + 4 * static_cast<uint64_t>(ops));
  return {.seed = static_cast<int64_t>(generator.current_seed()),
          .offset = static_cast<int64_t>(offset)};
}

}  // namespace fuser
