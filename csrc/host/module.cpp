#include "host/module.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace fuser::host {
namespace {

// Returns a path to a descriptor that no earlier call returned. The loader identifies a module by
// its path, and descriptor numbers are reused. So bit i of a counter selects "//" or "/." in the
// path.
std::string descriptor_path(int descriptor) {
  static std::atomic<uint32_t> counter{0};
  std::string path = "/proc/self/fd";
  for (uint32_t bits = counter++, i = 0; i < 32; ++i, bits >>= 1) path += bits & 1 ? "/." : "//";
  return path + "/" + std::to_string(descriptor);
}

void write_all(int descriptor, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    FUSER_CHECK(written > 0, Launch, "host-module", "host module of ", bytes.size(),
                " bytes: cannot write a memory file: ", std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

struct Descriptor {
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  int number;
};

// Makes the C library's functions visible to modules, which are linked against no library.
void share_math_library() {
  static void* const library = dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL);
  (void)library;  // without one of that name, the program's own has to do
}

}  // namespace

HostModule load_host_file(const std::string& path) {
  share_math_library();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  FUSER_CHECK(handle != nullptr, Launch, "host-module", "host module does not load: ", dlerror());
  return {handle, path};
}

HostModule load_host_bytes(std::span<const char> bytes) {
  const Descriptor file{memfd_create("fuser-host-module", MFD_CLOEXEC)};
  FUSER_CHECK(file.number >= 0, Launch, "host-module",
              "host module: cannot create a memory file: ", std::strerror(errno));
  write_all(file.number, bytes);
  return load_host_file(descriptor_path(file.number));
}

HostKernel find(const HostModule& module, uint32_t index) {
  const std::string symbol = text("fuser_entry_", index);
  const auto* entry = static_cast<const HostEntry*>(dlsym(module.handle, symbol.c_str()));
  FUSER_CHECK(entry != nullptr, Launch, "host-module", "host module ", module.origin,
              " has no kernel ", index);
  FUSER_CHECK(entry->abi == kHostAbi, Launch, "host-module", "host module ", module.origin,
              ": built for host interface ", entry->abi, ", expected ", kHostAbi,
              "\n  hint: clear the disk cache");
  return {entry};
}

}  // namespace fuser::host
