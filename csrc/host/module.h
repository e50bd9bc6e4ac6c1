// Shared objects full of kernels. A module is never unloaded: kernels in it may run on leaked
// threads at exit.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "device/host_abi.h"

namespace fuser {

struct HostModule {
  void* handle = nullptr;  // from dlopen
  std::string origin;      // for messages
};

struct HostKernel {
  const HostEntry* entry = nullptr;
};

// Both raise Launch "host-module" with the loader's own words.
HostModule load_host_file(const std::string& path);
HostModule load_host_bytes(std::span<const char> bytes);

// Kernel `index` of the module. Raises Launch "host-module" when there is none, or when it was
// built by another version of host_abi.h.
HostKernel find(const HostModule& module, uint32_t index);

}  // namespace fuser
