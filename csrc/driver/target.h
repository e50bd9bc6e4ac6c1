// Selection of the machine that kernels of a device are planned and built for.
//
// CPU tensors run CPU kernels (docs/design/cpu.md) or kernels of an emulated GPU. The option
// FUSER_HOST_ARCH decides, and kernels that no CPU scheduler accepts are emulated. Debug launches
// check kernels of GPUs, so FUSER_HOST_DEBUG selects the emulation.
#pragma once

#include <cstdint>

#include "codegen/cuda.h"
#include "schedule/device.h"
#include "schedulers/scheduler.h"

namespace fuser::driver {

// Machine that kernels are built for.
struct Target {
  schedule::Device::Kind kind = schedule::Device::Kind::Gpu;
  int arch = 0;        // Gpu: compute capability
  Isa isa{};           // Cpu: instruction set
  bool debug = false;  // Emulated: check every access
  bool operator==(const Target&) const = default;

  // Returns whether the C++ compiler builds its kernels.
  bool is_host() const { return kind != schedule::Device::Kind::Gpu; }
};

// Returns the kind of kernels that the options select for a device: a CUDA ordinal or cpu_device.
// Raises Unsupported "cpu-isa-2" if this CPU lacks the instruction set of FUSER_CPU_ISA.
schedule::Device::Kind kind_of(int device);
// Returns the device, and the options that kind_of() and planning_device() read. It is part of
// every key.
uint32_t device_key(int device);
// Returns the device that the plans of a scheduler are made for.
schedule::Device planning_device(int device, const schedulers::Scheduler& scheduler);
// Returns the target of a kernel.
Target target_of(int device, const codegen::KernelText& kernel);

}  // namespace fuser::driver
