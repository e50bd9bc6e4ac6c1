#include "driver/target.h"

#include "base/error.h"
#include "base/options.h"
#include "driver/cuda/cuda_api.h"
#include "driver/signature.h"

namespace fuser::driver {

using namespace codegen;
using namespace schedule;
using namespace schedulers;

namespace {

// Returns the instruction set of CPU kernels.
Isa selected_isa() {
  const std::string& selected = options().cpu_isa;
  return selected.empty() ? processor().isa : isa_named(selected);
}

// Returns the architecture to emulate. CPU schedulers reject some kernels, which need one too.
int emulated_arch() {
  constexpr int default_arch = 80;
  const auto selected = static_cast<int>(options().host_arch);
  return selected > 0 ? selected : default_arch;
}

}  // namespace

Device::Kind kind_of(int device) {
  if (device != cpu_device) return Device::Kind::Gpu;
  if (options().host_arch != 0 || options().host_debug) return Device::Kind::Emulated;
  const Isa isa = selected_isa();
  FUSER_CHECK(can_run(isa), Unsupported, "cpu-isa-2", "FUSER_CPU_ISA=", to_string(isa),
              ": this CPU has no such instructions; expected generic or ",
              to_string(processor().isa), ", or an empty value");
  return Device::Kind::Cpu;
}

uint32_t device_key(int device) {
  if (device != cpu_device) return static_cast<uint32_t>(device);
  const auto isa = static_cast<uint32_t>(selected_isa());
  const auto arch = static_cast<uint32_t>(options().host_arch);
  return uint32_t{1} << 31 | uint32_t{options().host_debug} << 16 | isa << 8 | arch;
}

Device planning_device(int device, const Scheduler& scheduler) {
  if (device != cpu_device) return cuda_device_for_plans(device);
  return scheduler.for_cpu ? native_device(selected_isa()) : host_device(emulated_arch());
}

Target target_of(int device, const KernelText& kernel) {
  if (device != cpu_device) return {.kind = Device::Kind::Gpu, .arch = cuda_device(device).arch};
  if (kernel.for_cpu) return {.kind = Device::Kind::Cpu, .isa = selected_isa()};
  return {.kind = Device::Kind::Emulated, .debug = options().host_debug};
}

}  // namespace fuser::driver
