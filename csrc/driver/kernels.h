// Kernels in memory: text in, something launchable out, each compiled once in the process and once
// on disk.
//
// The compilers are Python's (NVRTC through cuda-python, the system's C++ compiler); they reach C++
// as a Toolchain. A caller that finds a kernel under way waits for it on a future; nobody holds a
// lock while compiling or waiting.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "codegen/cuda.h"
#include "driver/binary.h"
#include "driver/cuda_api.h"
#include "host/module.h"

namespace fuser {

// What kernels are built for.
struct Target {
  bool host = false;
  int arch = 0;        // of the GPU
  bool debug = false;  // host executor: check every access
  bool operator==(const Target&) const = default;
};

struct Toolchain {
  // What became of a text: code, or why the compiler refuses it now and ever.
  using Outcome = std::variant<Binary, std::exception_ptr>;
  using Deliver = std::function<void(size_t index, Outcome outcome)>;

  // Compiler, version and flags as bytes: part of the key on disk.
  std::function<std::string(const Target&)> fingerprint;
  // Delivers each kernel as soon as it is there, on this thread; kernels of one host batch share
  // their payload. Raises what concerns no single text.
  std::function<void(const Target&, std::span<const KernelText>, const Deliver&)> build;
  // Blocks until ready() without holding what the builder needs (the interpreter lock).
  std::function<void(const std::function<void()>& wait)> while_waiting;
};
void set_toolchain(Toolchain toolchain);

// A kernel that can be launched.
struct LoadedKernel {
  KernelText source;
  Target target;
  CudaKernel cuda;
  HostKernel host;
  int registers = 0, local_bytes = 0;
  double build_seconds = 0.0;  // 0 when it came from disk
};
using LoadedKernelRef = std::shared_ptr<const LoadedKernel>;

enum class Purpose : uint8_t {
  Call,            // a caller waits for it
  Specialization,  // in the background; counted by who asked
};

// One per text, in the order given; where the same kernel was built under another name before, it
// has that one. `device` is the CUDA ordinal to load for (ignored for the host). What is neither in
// memory nor on disk is built in one batch; others who wait for a kernel of it get it as soon as it
// is there. Raises what the compiler raised. That it refused a text is remembered, and raised again
// without another try; any other failure is not, and leaves nothing behind.
std::vector<LoadedKernelRef> load_kernels(const Target& target, int device,
                                          std::span<const KernelText> texts,
                                          Purpose purpose = Purpose::Call);

struct KernelCounters {
  int64_t compiled = 0, from_disk = 0;
  double compile_seconds = 0.0;
};
KernelCounters kernel_counters();
// Forgets every kernel in memory, and on disk if asked; those in use live on.
void clear_kernels(bool disk);

}  // namespace fuser
