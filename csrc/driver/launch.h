// The hot path: a launch record holds everything a call needs that depends on sizes, so that a hit
// is a key, a look-up, the allocation of outputs and a launch. No Python, no IR, no strings.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "driver/kernels.h"
#include "driver/signature.h"

namespace fuser {

struct Variant;  // driver/compile.h

// An output to allocate: a result, or the temporary of an in-place output.
struct OutputSpec {
  DType dtype{};
  std::vector<int64_t> sizes, strides;
  int alias = -1;       // tensor input it belongs to, or -1: a result
  bool direct = false;  // stored straight into the input: nothing to allocate
};

// Where an argument of a launch comes from; its place in the block of argument bytes is fixed.
struct Patch {
  enum class Kind : uint8_t { Input, Output, Scalar, Value };
  Kind kind{};
  DType dtype{};        // Scalar, Value: as the kernel takes it
  DType given{};        // Scalar: as the definition declares it
  uint16_t index = 0;   // of the input, output or scalar
  uint16_t offset = 0;  // in the argument bytes
};

struct LaunchRecord {
  LoadedKernelRef kernel;
  uint32_t grid = 1;
  std::vector<char> bytes;        // sizes and divisors in place, pointers and scalars to be patched
  std::vector<uint16_t> offsets;  // of each argument
  std::vector<Patch> patches;
  std::shared_ptr<const Variant> variant;  // how it came about, for people
};
struct CopyRecord {
  int output = 0;  // temporary -> its alias input
};
using StepRecord = std::variant<LaunchRecord, CopyRecord>;

// Immutable once published.
struct Record {
  std::vector<OutputSpec> outputs;
  std::vector<StepRecord> steps;
};
using RecordRef = std::shared_ptr<const Record>;

// Queues one launch on `stream` (CUDA), or runs it (host executor). outputs[i]: memory of output i.
void run_launch(const LaunchRecord& launch, const Arguments& arguments,
                std::span<char* const> outputs, const Record& record, CuStream stream);

}  // namespace fuser
