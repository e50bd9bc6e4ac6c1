// Checks of debug builds, and the messages of kernel faults.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "device/host_abi.h"

namespace fuser::host {

// Returns a fault of the running kernel: "kernel NAME, block (x, y, z), thread (x, y, z): MESSAGE
// (order seed N)".
Fault kernel_fault(const HostLaunch& launch, const HostPosition& at, const char* rule,
                   const std::string& message);

// Returns the user's error for an index out of range. names: KernelIR::checked
Fault index_fault(const IndexStatus& status, std::span<const std::string> names);

// Implement HostRuntime::check_access and check_index: return, or throw through the kernel.
void check_access(const HostLaunch* launch, const HostPosition* position, const void* address,
                  int64_t bytes, int64_t align, uint32_t store);
void check_index(const HostLaunch* launch, const HostPosition* position, int64_t index,
                 int64_t size, int32_t number);

// Random numbers for orders: small, seeded, equal on every machine (splitmix64).
struct OrderRandom {
  uint64_t state;

  uint64_t below(uint64_t bound) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % bound;
  }
};

template <class T>
void shuffle_order(T* items, uint64_t count, OrderRandom& random) {
  for (uint64_t i = count; i > 1; --i) {
    const uint64_t j = random.below(i);
    const T kept = items[i - 1];
    items[i - 1] = items[j];
    items[j] = kept;
  }
}

}  // namespace fuser::host
