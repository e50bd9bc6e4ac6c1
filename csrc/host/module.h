// Shared objects with kernels. A module is never unloaded, because its kernels may run on leaked
// threads at exit.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "device/host_abi.h"

namespace fuser::host {

struct HostModule {
  void* handle = nullptr;  // from dlopen
  std::string origin;      // path of the shared object, for messages
};

struct HostKernel {
  const HostEntry* entry = nullptr;
};

// Load a shared object. Raise Launch "host-module" with the loader's message.
HostModule load_host_file(const std::string& path);
HostModule load_host_bytes(std::span<const char> bytes);

// Returns kernel `index` of the module. Raises Launch "host-module" if it does not exist, or was
// built by another version of host_abi.h.
HostKernel find(const HostModule& module, uint32_t index);

}  // namespace fuser::host
