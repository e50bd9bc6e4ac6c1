#include "driver/launch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/processor.h"
#include "driver/compile.h"
#include "host/debug.h"
#include "host/executor.h"
#include "host/tasks.h"
#include "ir/fast_div.h"

namespace fuser::driver {

using namespace codegen;
using namespace fusion;
using namespace host;
using namespace ir;
using namespace schedule;

namespace {

constexpr size_t max_argument_bytes = 4096, max_arguments = 512;

// Writes a scalar as the kernel's parameter. C++ conversions equal torch's for these types.
void write_scalar(char* at, DType wanted, const Number& n, DType given) {
  const bool integer = ir::kind_of(given) == Kind::Int || ir::kind_of(given) == Kind::Bool;
  const double real = integer ? static_cast<double>(n.integer) : n.real;
  const auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (wanted) {
    case DType::Bool:
      return put(static_cast<uint8_t>(n.integer != 0));
    case DType::Int32:
      return put(static_cast<int32_t>(n.integer));
    case DType::Int64:
      return put(n.integer);
    // Round an int64 once, without a conversion to double in between.
    case DType::Float32:
      return put(integer ? static_cast<float>(n.integer) : static_cast<float>(real));
    case DType::Float64:
      return put(real);
    case DType::Complex64:
      return put(std::array{static_cast<float>(real), static_cast<float>(n.imag)});
    case DType::Complex128:
      return put(std::array{real, n.imag});
    default:
      break;
  }
  throw Fault(FaultKind::Internal, "internal",
              text("a scalar parameter of dtype ", row(wanted).torch));
}

// Memory of the launch's workspaces, and of its counters.
struct ScratchMemory {
  char* workspaces = nullptr;
  char* counters = nullptr;
};

// Returns zeroed counters, or queues zeros before the launch.
ScratchMemory scratch_memory(const LaunchRecord& launch, CuStream stream,
                             const ScratchSource& source) {
  ScratchMemory out;
  const bool host = launch.kernel->target.is_host();
  bool shared = false;  // use the counters of the stream
  if (launch.counters > 0 && !host) {
    enter_device(launch.kernel->cuda.device);
    shared = !stream_is_capturing(stream);
  }
  // Counters of this launch alone follow the workspaces.
  const int64_t own = launch.counters > 0 && !shared ? launch.counters * counter_bytes : 0;
  if (launch.workspace_bytes + own > 0)
    out.workspaces = source.allocate(source.context, launch.workspace_bytes + own, false);
  if (launch.counters == 0) return out;
  if (shared) {
    out.counters = stream_counters(launch.kernel->cuda.device, stream, launch.counters, source);
    return out;
  }
  out.counters = out.workspaces + launch.workspace_bytes;
  if (host)
    std::memset(out.counters, 0, static_cast<size_t>(own));
  else
    zero_counters(out.counters, launch.counters, stream);
  return out;
}

char* place_of(const ScratchSpec& spec, const ScratchMemory& memory) {
  return (spec.counters ? memory.counters : memory.workspaces) + spec.offset;
}

// Returns the number of threads of a launch on the CPU.
int thread_count(const Arguments& arguments) {
  if (options().host_threads > 0) return static_cast<int>(options().host_threads);
  return arguments.threads > 0 ? arguments.threads : processor().cores;
}

void run_on_host(const LaunchRecord& launch, const Arguments& arguments,
                 std::span<char* const> outputs, const Record& record, const ScratchMemory& scratch,
                 void** parameters) {
  if (launch.kernel->target.kind == Device::Kind::Cpu) {
    IndexStatus status{}, *address = &status;
    parameters[launch.offsets.size()] = &address;
    run_tasks(launch.kernel->host, launch.shape.grid[0], parameters, thread_count(arguments),
              options().host_threads > 0 ? nullptr : arguments.team);
    if (status.failed) throw index_fault(status, launch.variant->ir.checked);
    return;
  }
  HostOptions host;
  host.threads = thread_count(arguments);
  for (size_t i = 0; i < 3; ++i) host.cluster[i] = static_cast<int32_t>(launch.shape.cluster[i]);
  host.cooperative = launch.shape.cooperative;
  std::vector<HostRange> ranges;
  if (launch.kernel->target.debug) {
    static std::atomic<uint64_t> seed{0};
    host.seed = ++seed;
    const auto add = [&](std::string name, char* data, int64_t span, DType dtype, bool writable) {
      ranges.push_back({.name = std::move(name),
                        .begin = data,
                        .end = data + span * size_of(dtype),
                        .writable = writable,
                        .scratch = false});
    };
    for (const Patch& p : launch.patches) {
      if (p.kind == Patch::Kind::Input) {
        const TensorView& t = arguments.tensors[p.index];
        bool written = false;
        for (const OutputSpec& o : record.outputs) written |= !o.allocate && o.alias == p.index;
        add(text("input ", p.index), t.data, t.span(), t.dtype, written);
      } else if (p.kind == Patch::Kind::Output) {
        const OutputSpec& o = record.outputs[p.index];
        const TensorView t{.data = outputs[p.index],
                           .sizes = o.sizes.data(),
                           .strides = o.strides.data(),
                           .rank = static_cast<int>(o.sizes.size()),
                           .dtype = o.dtype};
        add(text("output ", p.index), t.data, t.span(), t.dtype, true);
      } else if (p.kind == Patch::Kind::Scratch) {
        const ScratchSpec& s = launch.scratch[p.index];
        char* const begin = place_of(s, scratch);
        ranges.push_back({.name = s.name,
                          .begin = begin,
                          .end = begin + s.bytes,
                          .writable = true,
                          .scratch = !s.counters});
      }
    }
    host.ranges = ranges;
    if (launch.variant) host.checked = launch.variant->ir.checked;
  }
  host::launch(launch.kernel->host, launch.shape.grid.data(), launch.shape.block.data(),
               launch.shape.shared_bytes, parameters, host);
}

// Pads the argument bytes to a multiple of `align`. Returns the offset of the next value.
uint16_t aligned_end(std::vector<char>& bytes, size_t align) {
  bytes.resize((bytes.size() + align - 1) / align * align);
  return static_cast<uint16_t>(bytes.size());
}

// Appends a value at its natural alignment and returns its offset.
template <class T>
uint16_t append(std::vector<char>& bytes, const T& value, size_t align = sizeof(T)) {
  const uint16_t at = aligned_end(bytes, align);
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return at;
}

// ---- Launch arguments, in the order of the kernel's parameters

void append_pointer(LaunchRecord& out, Patch::Kind kind, size_t index) {
  const uint16_t at = append(out.bytes, static_cast<char*>(nullptr));
  out.offsets.push_back(at);
  out.patches.push_back({.kind = kind,
                         .dtype = {},
                         .given = {},
                         .index = static_cast<uint16_t>(index),
                         .offset = at});
}

void append_integer(LaunchRecord& out, DType dtype, int64_t value) {
  out.offsets.push_back(dtype == DType::Int64 ? append(out.bytes, value)
                                              : append(out.bytes, static_cast<int32_t>(value)));
}

void append_divisor(LaunchRecord& out, DType dtype, int64_t value) {
  value = std::max<int64_t>(1, value);  // the divisor of an empty axis is never used
  if (dtype == DType::Int64) return append_integer(out, dtype, value);
  out.offsets.push_back(append(out.bytes, make_fast_div(static_cast<uint32_t>(value)), 4));
}

void append_real(LaunchRecord& out, const Param& p, int64_t value) {
  const auto whole = static_cast<double>(value);
  const double real = p.inverse ? 1.0 / whole : whole;
  out.offsets.push_back(p.dtype == DType::Float64 ? append(out.bytes, real)
                                                  : append(out.bytes, static_cast<float>(real)));
}

// Appends a number of the random generator, and the address of the addend that a CUDA graph reads
// when it runs.
void append_drawn(LaunchRecord& out, const Param& p) {
  const uint16_t at = append(out.bytes, int64_t{0});
  append(out.bytes, static_cast<const int64_t*>(nullptr));
  out.offsets.push_back(at);
  out.patches.push_back({.kind = Patch::Kind::RngOffset,
                         .dtype = p.dtype,
                         .given = p.dtype,
                         .index = static_cast<uint16_t>(p.index),
                         .offset = at});
}

// Reserves bytes for a value of the call: a scalar, or the element of a tensor of no dims.
void append_scalar(LaunchRecord& out, Patch::Kind kind, const Param& p, DType given) {
  const auto size = static_cast<size_t>(size_of(p.dtype));
  const uint16_t at = aligned_end(out.bytes, size);
  out.bytes.resize(at + size);
  out.offsets.push_back(at);
  out.patches.push_back({.kind = kind,
                         .dtype = p.dtype,
                         .given = given,
                         .index = static_cast<uint16_t>(p.index),
                         .offset = at});
}

// Appends a parameter; `value` is set for parameters that follow from sizes.
void append_parameter(LaunchRecord& out, const Param& p, int64_t value, const Fusion& fusion) {
  switch (p.kind) {
    case Param::Kind::Int:
      return append_integer(out, p.dtype, value);
    case Param::Kind::Divisor:
      return append_divisor(out, p.dtype, value);
    case Param::Kind::Real:
      return append_real(out, p, value);
    case Param::Kind::RngOffset:
      return append_drawn(out, p);
    case Param::Kind::Scalar:
      return append_scalar(out, Patch::Kind::Scalar, p, fusion.scalars[p.index].dtype);
    case Param::Kind::Value:
      return append_scalar(out, Patch::Kind::Value, p, p.dtype);
  }
}

LaunchShape shape_of(const Variant& variant, const std::vector<int64_t>& values) {
  const KernelText& k = variant.text;
  // If a reduced axis is empty, the identity must still be stored, so launch at least one cluster.
  const int64_t blocks = std::max<int64_t>(k.cluster, values[variant.blocks_slot]);
  FUSER_CHECK(blocks <= INT32_MAX, Unsupported, "grid-1", "kernel ", k.name, " needs ", blocks,
              " blocks; a grid has at most ", INT32_MAX);
  const int64_t rows = k.shared_grows ? values[variant.shared_slot] : 0;
  return {.grid = {static_cast<uint32_t>(blocks), 1, 1},
          .block = {static_cast<uint32_t>(k.threads), 1, 1},
          .shared_bytes = static_cast<uint32_t>(k.shared_bytes + rows),
          .cluster = {static_cast<uint32_t>(k.cluster), 1, 1},
          .cooperative = k.cooperative};
}

}  // namespace

LaunchRecord make_launch(const Group& group, std::shared_ptr<const Variant> made_for,
                         LoadedKernelRef kernel, const Fusion& fusion, const Arguments& arguments) {
  const Variant& variant = *made_for;
  LaunchRecord out;
  out.kernel = std::move(kernel);
  out.variant = std::move(made_for);
  thread_local std::vector<int64_t> values;
  variant.sizes.run(SizeLeaf{arguments}, values);
  const size_t count = variant.ir.buffers.size() + variant.ir.params.size();
  out.offsets.reserve(count);
  out.patches.reserve(count);
  out.bytes.reserve(16 * count);
  size_t tensors = 0;
  for (size_t i = 0; i < variant.ir.buffers.size(); ++i) {
    const Buffer& buffer = variant.ir.buffers[i];
    if (buffer.kind == Buffer::Kind::Shared) continue;
    if (buffer.kind == Buffer::Kind::Tensor) {
      const BufferUse& use = group.problem.buffers[tensors++];
      if (use.input >= 0)
        append_pointer(out, Patch::Kind::Input, static_cast<size_t>(use.input));
      else
        append_pointer(out, Patch::Kind::Output, static_cast<size_t>(use.output));
      continue;
    }
    append_pointer(out, Patch::Kind::Scratch, out.scratch.size());
    const int bytes =
        buffer.state ? state_bytes(buffer.state->op, buffer.dtype) : size_of(buffer.dtype);
    add_scratch(out, buffer.name, buffer.kind == Buffer::Kind::Counters,
                values[variant.buffer_slots[i]], bytes);
  }
  for (size_t i = 0; i < variant.ir.params.size(); ++i) {
    const int slot = variant.param_slots[i];
    append_parameter(out, variant.ir.params[i], slot >= 0 ? values[slot] : 0, fusion);
  }
  out.shape = shape_of(variant, values);
  return out;
}

void add_scratch(LaunchRecord& launch, std::string name, bool counters, int64_t elements,
                 int element_bytes) {
  constexpr int64_t align = 256;  // alignment of every workspace in bytes, as in torch's allocators
  const int64_t count = std::max<int64_t>(0, elements);
  ScratchSpec spec{.name = std::move(name), .counters = counters, .offset = 0, .bytes = 0};
  if (counters) {
    spec.offset = launch.counters * counter_bytes;
    spec.bytes = count * counter_bytes;
    launch.counters += count;
  } else {
    spec.offset = launch.workspace_bytes;
    spec.bytes = count * element_bytes;
    launch.workspace_bytes += (spec.bytes + align - 1) / align * align;
  }
  launch.scratch.push_back(std::move(spec));
}

void run_launch(const LaunchRecord& launch, const Arguments& arguments,
                std::span<char* const> outputs, const Record& record, CuStream stream,
                const ScratchSource& scratch) {
  alignas(16) char bytes[max_argument_bytes];
  void* parameters[max_arguments + 1];
  FUSER_ASSERT(launch.bytes.size() <= max_argument_bytes && launch.offsets.size() <= max_arguments,
               "kernel ", launch.kernel->source.name, " has ", launch.offsets.size(),
               " arguments of ", launch.bytes.size(), " bytes");
  std::memcpy(bytes, launch.bytes.data(), launch.bytes.size());
  for (size_t i = 0; i < launch.offsets.size(); ++i) parameters[i] = bytes + launch.offsets[i];
  ScratchMemory memory;
  if (!launch.scratch.empty()) memory = scratch_memory(launch, stream, scratch);
  for (const Patch& p : launch.patches) {
    char* at = bytes + p.offset;
    switch (p.kind) {
      case Patch::Kind::Input:
        std::memcpy(at, &arguments.tensors[p.index].data, sizeof(char*));
        break;
      case Patch::Kind::Output:
        std::memcpy(at, &outputs[p.index], sizeof(char*));
        break;
      case Patch::Kind::Scalar:
        write_scalar(at, p.dtype, arguments.scalars[p.index], p.given);
        break;
      case Patch::Kind::RngOffset: {
        const int64_t* const added = arguments.added.empty() ? nullptr : arguments.added[p.index];
        std::memcpy(at, &arguments.scalars[p.index].integer, sizeof(int64_t));
        std::memcpy(at + sizeof(int64_t), &added, sizeof added);
        break;
      }
      case Patch::Kind::Value:
        std::memcpy(at, arguments.tensors[p.index].data, static_cast<size_t>(size_of(p.dtype)));
        break;
      case Patch::Kind::Scratch: {
        char* const data = place_of(launch.scratch[p.index], memory);
        std::memcpy(at, &data, sizeof data);
        break;
      }
    }
  }
  if (launch.kernel->target.is_host())
    return run_on_host(launch, arguments, outputs, record, memory, parameters);
  if (launch.counters == 0)
    return driver::launch(launch.kernel->cuda, launch.shape, stream, parameters);
  try {
    driver::launch(launch.kernel->cuda, launch.shape, stream, parameters);
  } catch (...) {
    invalidate_counters(launch.kernel->cuda.device, stream);
    throw;
  }
}

void set_lifetimes(Record& record) {
  const size_t steps = record.steps.size();
  record.allocated.resize(steps + 1);
  record.released.resize(steps);
  thread_local std::vector<size_t> first, last;
  first.assign(record.outputs.size(), steps);
  last.assign(record.outputs.size(), steps);
  for (size_t i = 0; i < steps; ++i) {
    const auto use = [&](int output) {
      first[output] = std::min(first[output], i);
      last[output] = i;
    };
    if (const auto* launch = std::get_if<LaunchRecord>(&record.steps[i])) {
      for (const Patch& p : launch->patches)
        if (p.kind == Patch::Kind::Output) use(p.index);
    } else if (const auto* call = std::get_if<LibraryCall>(&record.steps[i])) {
      for (const LibraryCall::Source& a : call->args)
        if (a.output >= 0) use(a.output);
      for (int o : call->outputs)
        if (o >= 0) use(o);
    } else {
      use(std::get<CopyRecord>(record.steps[i]).output);
    }
  }
  for (const OutputSpec& spec : record.outputs)
    if (spec.view_of_output >= 0) last[spec.view_of_output] = steps;
  for (size_t o = 0; o < record.outputs.size(); ++o) {
    const OutputSpec& spec = record.outputs[o];
    if (spec.allocate && !spec.library) record.allocated[first[o]].push_back(static_cast<int>(o));
    if ((spec.temp || spec.alias >= 0) && last[o] < steps)
      record.released[last[o]].push_back(static_cast<int>(o));
  }
}

}  // namespace fuser::driver
