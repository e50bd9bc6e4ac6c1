// The hot path. A launch record holds all data of a call that depends on sizes. A hit is a key, a
// look-up, the allocation of outputs and a launch: no Python, no IR, no strings.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "driver/cuda/kernels.h"
#include "driver/scratch.h"
#include "driver/signature.h"

namespace fuser::driver {

struct Group;    // driver/compile.h
struct Variant;  // driver/compile.h

// An output to allocate: a result, or a temporary between kernels or of an in-place output.
struct OutputSpec {
  ir::DType dtype{};
  std::vector<int64_t> sizes, strides;
  int alias = -1;        // tensor input that it is written into, or -1
  bool temp = false;     // temporary: passed from one kernel to another, not to the caller
  bool library = false;  // a library call allocates and returns it, row-major
  bool allocate = true;  // false for outputs stored straight into an input, views, and temporaries
                         // of no kernel here
  int view = -1;         // tensor input that it is a view of, or -1
  int view_of_output = -1;  // output of a library call that it is a view of, or -1
  int64_t offset = 0;       // offset of a view in elements from the first element of its base
};

// A buffer of a kernel that is no tensor, in bytes from the start of the launch's workspaces or
// counters.
struct ScratchSpec {
  std::string name;
  bool counters = false;
  int64_t offset = 0, bytes = 0;
};

// Source of a launch argument. Its position in the block of argument bytes is fixed.
struct Patch {
  enum class Kind : uint8_t { Input, Output, Scalar, RngOffset, Value, Scratch };
  Kind kind{};
  ir::DType dtype{};    // Scalar, Value: type of the kernel parameter
  ir::DType given{};    // Scalar: type in the definition
  uint16_t index = 0;   // index of the input, output, scalar or scratch buffer
  uint16_t offset = 0;  // offset in the argument bytes
};

struct LaunchRecord {
  LoadedKernelRef kernel;
  LaunchShape shape;
  std::vector<char> bytes;  // sizes and divisors are set, pointers and scalars are to be patched
  std::vector<uint16_t> offsets;  // offset of each argument in `bytes`
  std::vector<Patch> patches;
  std::vector<ScratchSpec> scratch;
  int64_t workspace_bytes = 0, counters = 0;  // bytes of all workspaces, and number of all counters
  std::shared_ptr<const Variant> variant;     // origin of the launch, for the user
};
// Makes the launch of a group's kernel for arguments of these sizes; pointers and scalars are left
// to be patched. Raises Unsupported "grid-1".
LaunchRecord make_launch(const Group& group, std::shared_ptr<const Variant> made_for,
                         LoadedKernelRef kernel, const ir::Fusion& fusion,
                         const Arguments& arguments);
// Adds one workspace, or counters, to a launch.
void add_scratch(LaunchRecord& launch, std::string name, bool counters, int64_t elements,
                 int element_bytes);
struct CopyRecord {
  int output = 0;  // temporary to copy into its alias input
};
using StepRecord = std::variant<LaunchRecord, fusion::LibraryCall, CopyRecord>;

// Steps of one exact key, immutable once published.
struct Record {
  std::shared_ptr<const std::string> name;  // for profilers: "fuser definition at train.py:41"
  std::vector<OutputSpec> outputs;
  std::vector<StepRecord> steps;
  // Outputs by step. allocated: outputs to allocate before the step; behind the last step, outputs
  // that no step uses. released: outputs that are no results and that no later step uses.
  std::vector<std::vector<int>> allocated, released;
  // The host executor runs it faster than releasing and reacquiring the interpreter's lock would
  // take.
  bool keeps_gil = false;
};
using RecordRef = std::shared_ptr<const Record>;
// Sets Record::allocated and Record::released: memory lives from the first step that uses it to the
// last, or to the end if it is a result.
void set_lifetimes(Record& record);

// Queues one launch on `stream` (CUDA), or runs it (host executor). outputs[i]: memory of output i.
// Memory from `scratch` may be freed when it returns.
void run_launch(const LaunchRecord& launch, const Arguments& arguments,
                std::span<char* const> outputs, const Record& record, CuStream stream,
                const ScratchSource& scratch);

}  // namespace fuser::driver
