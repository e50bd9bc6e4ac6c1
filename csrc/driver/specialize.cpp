#include "driver/specialize.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "codegen/cpp.h"
#include "driver/compile.h"
#include "ir/fast_div.h"

namespace fuser::driver {

using namespace codegen;
using namespace ir;

namespace {

template <class T>
T read_as(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Returns the value of a parameter in a launch; nullopt if it does not follow from sizes alone.
std::optional<Number> constant(const Param& p, const char* at) {
  switch (p.kind) {
    case Param::Kind::Int:
      return Number{.integer =
                        p.dtype == DType::Int64 ? read_as<int64_t>(at) : read_as<int32_t>(at)};
    case Param::Kind::Divisor:
      return Number{.integer = p.dtype == DType::Int64 ? read_as<int64_t>(at)
                                                       : read_as<FastDiv>(at).divisor};
    case Param::Kind::Real:
      return Number{.real = p.dtype == DType::Float64 ? read_as<double>(at) : read_as<float>(at)};
    case Param::Kind::Scalar:
    case Param::Kind::Value:
    case Param::Kind::RngOffset:
      break;
  }
  return std::nullopt;
}

// Returns the values by parameter. The arguments of a launch are its buffers, then its parameters.
Constants constants_of(const LaunchRecord& launch) {
  const std::vector<Param>& params = launch.variant->ir.params;
  const size_t buffers = launch.offsets.size() - params.size();
  Constants out;
  for (size_t i = 0; i < params.size(); ++i)
    out.push_back(constant(params[i], launch.bytes.data() + launch.offsets[buffers + i]));
  return out;
}

// Removes the offsets of constant arguments. The argument bytes stay unchanged.
void drop_arguments(LaunchRecord& launch, const Constants& constants) {
  const size_t buffers = launch.offsets.size() - constants.size();
  std::vector<uint16_t> kept(launch.offsets.begin(), launch.offsets.begin() + buffers);
  for (size_t i = 0; i < constants.size(); ++i)
    if (!constants[i]) kept.push_back(launch.offsets[buffers + i]);
  launch.offsets = std::move(kept);
}

}  // namespace

RecordRef with_constant_sizes(const Record& record) {
  auto out = std::make_shared<Record>(record);
  struct Change {
    LaunchRecord* launch;
    Constants constants;
  };
  std::vector<Change> changes;
  std::vector<KernelText> texts;
  for (StepRecord& step : out->steps) {
    auto* launch = std::get_if<LaunchRecord>(&step);
    // A horizontal fusion has the arguments of its kernels in a table.
    if (!launch || launch->kernel->source.digest != launch->variant->text.digest) continue;
    Constants constants = constants_of(*launch);
    if (std::none_of(constants.begin(), constants.end(), [](const auto& c) { return c; })) continue;
    const Variant& variant = *launch->variant;
    texts.push_back(variant.text.for_cpu ? print_cpp(variant.ir, constants)
                                         : print_cuda(variant.ir, constants));
    changes.push_back({launch, std::move(constants)});
  }
  if (changes.empty()) return nullptr;
  const LoadedKernel& first = *changes[0].launch->kernel;
  const int device = first.target.is_host() ? cpu_device : first.cuda.device;
  std::optional<BesideCaptures> beside;
  if (!first.target.is_host()) beside.emplace();
  const std::vector<LoadedKernelRef> loaded = load_kernels(device, texts, Purpose::Specialization);
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i].launch->kernel = loaded[i];
    drop_arguments(*changes[i].launch, changes[i].constants);
  }
  specialization_counters().kernels += static_cast<int64_t>(changes.size());
  return out;
}

SpecializationCounters& specialization_counters() {
  static auto* counters = new SpecializationCounters;
  return *counters;
}

}  // namespace fuser::driver
