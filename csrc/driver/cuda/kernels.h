// Loaded kernels by text. Each text is compiled once in the process and stored once on disk.
//
// The compilers are Python functions (NVRTC through cuda-python, the system's C++ compiler), and
// reach C++ as a Toolchain. A caller waits on a future for a kernel that another caller is
// building. No lock is held while compiling or waiting.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "codegen/cuda.h"
#include "driver/cuda/binary.h"
#include "driver/cuda/cuda_api.h"
#include "driver/target.h"
#include "host/module.h"

namespace fuser::driver {

struct Toolchain {
  // Result of a compilation: code, or the compiler's permanent rejection of the text.
  using Outcome = std::variant<Binary, std::exception_ptr>;
  using Deliver = std::function<void(size_t index, Outcome outcome)>;

  // Returns compiler, version and flags as bytes: part of the key on disk.
  std::function<std::string(const Target&)> fingerprint;
  // Delivers each kernel as soon as it is built, on this thread. Kernels of one host batch share
  // their payload. Raises errors that concern no single text.
  std::function<void(const Target&, std::span<const codegen::KernelText>, const Deliver&)> build;
  // Runs `wait` without holding the interpreter lock, which the builder needs.
  std::function<void(const std::function<void()>& wait)> while_waiting;
};
void set_toolchain(Toolchain toolchain);

// A kernel that can be launched.
struct LoadedKernel {
  codegen::KernelText source;
  Target target;
  CudaKernel cuda;
  host::HostKernel host;
  int registers = 0, local_bytes = 0;
  double build_seconds = 0.0;  // 0 if it was loaded from disk
};
using LoadedKernelRef = std::shared_ptr<const LoadedKernel>;

enum class Purpose : uint8_t {
  Call,            // a caller waits for it
  Specialization,  // built in the background; counted by the requester
};

// Returns one kernel per text, in order. A kernel that was built under another name keeps that
// name. `device` is the CUDA ordinal to load for, or cpu_device; texts of a CPU may have two
// targets.
//
// Kernels that are neither in memory nor on disk are built in one batch. Other callers get a kernel
// of the batch as soon as it is built. Raises the compiler's error. The rejection of a text is
// cached and raised again without another attempt; any other failure leaves no trace.
std::vector<LoadedKernelRef> load_kernels(int device, std::span<const codegen::KernelText> texts,
                                          Purpose purpose = Purpose::Call);

struct KernelCounters {
  int64_t compiled = 0, from_disk = 0;
  double compile_seconds = 0.0;
};
KernelCounters kernel_counters();
// Drops every kernel in memory, and on disk if requested. Kernels in use stay valid.
void clear_kernels(bool disk);

}  // namespace fuser::driver
