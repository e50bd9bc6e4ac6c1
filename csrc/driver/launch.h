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
#include "driver/scratch.h"
#include "driver/signature.h"

namespace fuser {

struct Group;    // driver/compile.h
struct Variant;  // driver/compile.h

// An output to allocate: a result, or a temporary between kernels or of an in-place output.
struct OutputSpec {
  DType dtype{};
  std::vector<int64_t> sizes, strides;
  int alias = -1;        // tensor input it belongs to, or -1
  bool temp = false;     // handed from one kernel to another, not to the caller
  bool library = false;  // a library call makes it, row-major; nobody else allocates it
  bool allocate =
      true;       // no: stored straight into the input, a view, a temporary of no kernel here
  int view = -1;  // tensor input that it is a view of, or -1
  int view_of_output = -1;  // or output, of a library call
  int64_t offset = 0;       // of a view: elements from the first one of what it is a view of
};

// A buffer of a kernel that is no tensor, in bytes from the start of the launch's workspaces or
// counters.
struct ScratchSpec {
  std::string name;
  bool counters = false;
  int64_t offset = 0, bytes = 0;
};

// Where an argument of a launch comes from; its place in the block of argument bytes is fixed.
struct Patch {
  enum class Kind : uint8_t { Input, Output, Scalar, Drawn, Value, Scratch };
  Kind kind{};
  DType dtype{};        // Scalar, Value: as the kernel takes it
  DType given{};        // Scalar: as the definition declares it
  uint16_t index = 0;   // of the input, output, scalar or scratch
  uint16_t offset = 0;  // in the argument bytes
};

struct LaunchRecord {
  LoadedKernelRef kernel;
  LaunchShape shape;
  std::vector<char> bytes;        // sizes and divisors in place, pointers and scalars to be patched
  std::vector<uint16_t> offsets;  // of each argument
  std::vector<Patch> patches;
  std::vector<ScratchSpec> scratch;
  int64_t workspace_bytes = 0, counters = 0;  // of all scratch
  std::shared_ptr<const Variant> variant;     // how it came about, for people
};
// The launch of one kernel of a group for arguments of these sizes; pointers and scalars are left
// to be patched. Raises Unsupported "grid-1".
LaunchRecord make_launch(const Group& group, std::shared_ptr<const Variant> made_for,
                         LoadedKernelRef kernel, const Fusion& fusion, const Arguments& arguments);
// Gives a launch one more workspace, or more counters.
void add_scratch(LaunchRecord& launch, std::string name, bool counters, int64_t elements,
                 int element_bytes);
struct CopyRecord {
  int output = 0;  // temporary -> its alias input
};
using StepRecord = std::variant<LaunchRecord, LibraryCall, CopyRecord>;

// Immutable once published.
struct Record {
  std::shared_ptr<const std::string> name;  // for profilers: "fuser definition at train.py:41"
  std::vector<OutputSpec> outputs;
  std::vector<StepRecord> steps;
  // Outputs by step: those to be allocated before it (behind the last step: those that none names),
  // and those that are no results and that nobody needs after it.
  std::vector<std::vector<int>> allocated, released;
  // The host executor runs it in less time than handing the interpreter's lock over and back takes.
  bool brief = false;
};
using RecordRef = std::shared_ptr<const Record>;
// Says when memory is needed: from the first step that names it, where it is no result to the last.
void set_lifetimes(Record& record);

// Queues one launch on `stream` (CUDA), or runs it (host executor). outputs[i]: memory of output i.
// What `scratch` gave may be taken back when it returns.
void run_launch(const LaunchRecord& launch, const Arguments& arguments,
                std::span<char* const> outputs, const Record& record, CuStream stream,
                const ScratchSource& scratch);

}  // namespace fuser
