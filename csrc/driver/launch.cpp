#include "driver/launch.h"

#include <array>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "host/executor.h"

namespace fuser {
namespace {

constexpr size_t max_argument_bytes = 4096, max_arguments = 512;

// The scalar as the kernel's parameter; conversions are those of C++, which for these are torch's.
void write_scalar(char* at, DType wanted, const Number& n, DType given) {
  const bool integer = kind_of(given) == Kind::Int || kind_of(given) == Kind::Bool;
  const double real = integer ? static_cast<double>(n.integer) : n.real;
  const auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (wanted) {
    case DType::Bool:
      return put(static_cast<uint8_t>(n.integer != 0));
    case DType::Int32:
      return put(static_cast<int32_t>(n.integer));
    case DType::Int64:
      return put(n.integer);
    // An int64 rounds once, not by way of double.
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

void run_on_host(const LaunchRecord& launch, const Arguments& arguments,
                 std::span<char* const> outputs, const Record& record, void* const* parameters) {
  HostOptions host;
  host.threads = static_cast<int>(options().host_threads);
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
        for (const OutputSpec& o : record.outputs) written |= o.direct && o.alias == p.index;
        add(text("input ", p.index), t.data, t.span(), t.dtype, written);
      } else if (p.kind == Patch::Kind::Output) {
        const OutputSpec& o = record.outputs[p.index];
        const TensorView t{.data = outputs[p.index],
                           .sizes = o.sizes.data(),
                           .strides = o.strides.data(),
                           .rank = static_cast<int>(o.sizes.size()),
                           .dtype = o.dtype};
        add(text("output ", p.index), t.data, t.span(), t.dtype, true);
      }
    }
    host.ranges = ranges;
  }
  const uint32_t grid[3] = {launch.grid, 1, 1};
  const uint32_t block[3] = {static_cast<uint32_t>(launch.kernel->source.threads), 1, 1};
  fuser::launch(launch.kernel->host, grid, block, 0, parameters, host);
}

}  // namespace

void run_launch(const LaunchRecord& launch, const Arguments& arguments,
                std::span<char* const> outputs, const Record& record, CuStream stream) {
  alignas(16) char bytes[max_argument_bytes];
  void* parameters[max_arguments];
  FUSER_ASSERT(launch.bytes.size() <= max_argument_bytes && launch.offsets.size() <= max_arguments,
               "kernel ", launch.kernel->source.name, " takes ", launch.offsets.size(),
               " arguments of ", launch.bytes.size(), " bytes");
  std::memcpy(bytes, launch.bytes.data(), launch.bytes.size());
  for (size_t i = 0; i < launch.offsets.size(); ++i) parameters[i] = bytes + launch.offsets[i];
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
      case Patch::Kind::Value:
        std::memcpy(at, arguments.tensors[p.index].data, static_cast<size_t>(size_of(p.dtype)));
        break;
    }
  }
  if (launch.kernel->target.host)
    return run_on_host(launch, arguments, outputs, record, parameters);
  fuser::launch(launch.kernel->cuda,
                {.grid = {launch.grid, 1, 1},
                 .block = {static_cast<uint32_t>(launch.kernel->source.threads), 1, 1}},
                stream, parameters);
}

}  // namespace fuser
