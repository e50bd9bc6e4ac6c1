#include "schedule/machine.h"

#include <algorithm>
#include <set>

namespace fuser::schedule {

using namespace cost;

namespace {

constexpr int64_t largest_copy = 128 << 20;  // bytes of a copy that is timed, at most
constexpr int slot_bytes = 4;                // bytes of an element whose ops the model counts

}  // namespace

Machine machine_of(const Device& device, const std::function<double(int64_t)>& copy_bandwidth) {
  const bool cpu = device.kind == Device::Kind::Cpu;
  const int units = cpu ? device.cores * device.simd_bytes / slot_bytes : device.sms;
  Machine out{.slots = units * model::issued_per_clock.of(device.arch) *
                       model::clock_hz.of(device.arch) * model::issue_share.of(device.arch),
              .launch_us = model::launch_us.of(device.arch)};
  if (!cpu) {
    out.copy_bandwidth = static_cast<double>(device.bandwidth) * model::copy_share.of(device.arch);
    return out;
  }
  out.copy_bandwidth = copy_bandwidth(std::min<int64_t>(2 * device.l3_bytes, largest_copy));
  for (int64_t held : std::set<int64_t>{int64_t{device.l2_bytes} * device.cores, device.l3_bytes})
    out.caches.push_back({held, copy_bandwidth(held / 4)});
  return out;
}

}  // namespace fuser::schedule
