#include "torch/bridge.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include "base/error.h"
#include "torch/library.h"
#include "torch/profile.h"
#include "torch/team.h"

namespace fuser::bridge {

using namespace driver;
using namespace fusion;
using namespace ir;

c10::ScalarType to_torch(DType d) {
  switch (d) {
    case DType::Bool:
      return at::kBool;
    case DType::UInt8:
      return at::kByte;
    case DType::Int8:
      return at::kChar;
    case DType::Int16:
      return at::kShort;
    case DType::Int32:
      return at::kInt;
    case DType::Int64:
      return at::kLong;
    case DType::UInt16:
      return at::kUInt16;
    case DType::UInt32:
      return at::kUInt32;
    case DType::UInt64:
      return at::kUInt64;
    case DType::Float8E4M3:
      return at::kFloat8_e4m3fn;
    case DType::Float8E5M2:
      return at::kFloat8_e5m2;
    case DType::Float16:
      return at::kHalf;
    case DType::BFloat16:
      return at::kBFloat16;
    case DType::Float32:
      return at::kFloat;
    case DType::Float64:
      return at::kDouble;
    case DType::Complex64:
      return at::kComplexFloat;
    case DType::Complex128:
      return at::kComplexDouble;
  }
  return at::kFloat;
}

namespace {

DType from_torch(c10::ScalarType s, size_t position) {
  switch (s) {
    case at::kBool:
      return DType::Bool;
    case at::kByte:
      return DType::UInt8;
    case at::kChar:
      return DType::Int8;
    case at::kShort:
      return DType::Int16;
    case at::kInt:
      return DType::Int32;
    case at::kLong:
      return DType::Int64;
    case at::kUInt16:
      return DType::UInt16;
    case at::kUInt32:
      return DType::UInt32;
    case at::kUInt64:
      return DType::UInt64;
    case at::kFloat8_e4m3fn:
      return DType::Float8E4M3;
    case at::kFloat8_e5m2:
      return DType::Float8E5M2;
    case at::kHalf:
      return DType::Float16;
    case at::kBFloat16:
      return DType::BFloat16;
    case at::kFloat:
      return DType::Float32;
    case at::kDouble:
      return DType::Float64;
    case at::kComplexFloat:
      return DType::Complex64;
    case at::kComplexDouble:
      return DType::Complex128;
    default:
      break;
  }
  throw Fault(FaultKind::DType, "argument-dtype",
              text("execute(): argument ", position, " is of dtype ", c10::toString(s),
                   ", expected a dtype of DataType"));
}

// Returns torch's caching allocator of CUDA memory if it is registered, else nullptr.
c10::Allocator* cuda_allocator() {
  static c10::Allocator* const allocator = []() -> c10::Allocator* {
    try {
      return c10::GetAllocator(c10::DeviceType::CUDA);
    } catch (const c10::Error&) {
      return nullptr;
    }
  }();
  return allocator;
}

// Asks for huge pages in a large block. The C library takes such a block from the system for each
// result, and the first access to each page costs more than the kernel's own work on it.
void use_huge_pages(char* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr size_t page = 2 << 20, least = 4 * page;  // bytes
  if (bytes < least) return;
  const size_t skipped = (page - reinterpret_cast<uintptr_t>(data) % page) % page;
  // A system without huge pages refuses, which changes nothing.
  madvise(data + skipped, (bytes - skipped) / page * page, MADV_HUGEPAGE);
#endif
}

at::Tensor allocate(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype,
                    int device) {
  if (device == cpu_device) {
    at::Tensor made(
        at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(c10::DeviceType::CPU),
                                          c10::DispatchKeySet(c10::DispatchKey::CPU), dtype));
    use_huge_pages(static_cast<char*>(made.data_ptr()), made.storage().nbytes());
    return made;
  }
  if (c10::Allocator* allocator = cuda_allocator())
    return at::Tensor(at::detail::empty_strided_generic(
        sizes, strides, allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype));
  return at::empty_strided(sizes, strides,
                           at::TensorOptions().dtype(dtype).device(
                               c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
}

// Allocates memory that is never freed, not from torch's allocator. Its current pool may belong to
// a CUDA graph or a user, and the memory would keep that pool alive.
char* keep_memory(int device, int64_t bytes) {
  return allocate_for_good(device, bytes, [] {
    if (auto* torchs = dynamic_cast<c10::DeviceAllocator*>(cuda_allocator())) torchs->emptyCache();
  });
}

// Scratch memory of the launches of one call.
struct Scratch {
  int device = cpu_device;
  c10::SmallVector<at::Tensor, 2> held;

  // Implements ScratchSource::allocate.
  static char* allocate_bytes(void* context, int64_t bytes, bool keep) {
    auto& self = *static_cast<Scratch*>(context);
    if (keep) return keep_memory(self.device, bytes);
    at::Tensor& memory = self.held.emplace_back(allocate({bytes}, {1}, at::kByte, self.device));
    return static_cast<char*>(memory.data_ptr());
  }
};

}  // namespace

CuStream current_stream(int device) {
  using Function = int32_t (*)(int32_t, void**);
  static const Function function = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library
               ? reinterpret_cast<Function>(dlsym(library, "aoti_torch_get_current_cuda_stream"))
               : nullptr;
  }();
  FUSER_CHECK(function, Launch, "torch-cuda",
              "this build of torch has no CUDA; install a CUDA build of torch");
  // The function switches devices twice, so avoid it for the default stream.
  const c10::Device here(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
  if (c10::impl::getDeviceGuardImpl(here.type())->getStream(here) ==
      c10::Stream(c10::Stream::DEFAULT, here))
    return nullptr;
  void* stream = nullptr;
  FUSER_CHECK(function(device, &stream) == 0, Launch, "torch-cuda",
              "torch gave no current stream for cuda:", device);
  return stream;
}

bool is_wrapper(const at::Tensor& t) {
  using enum c10::DispatchKey;
  constexpr c10::DispatchKeySet wrapping(
      {Python, FuncTorchBatched, FuncTorchGradWrapper, Functionalize});
  return t.key_set().has_any(wrapping);
}

bool has_memory(const at::Tensor& t) {
  return (t.is_cpu() || t.is_cuda()) && t.layout() == c10::kStrided && t.has_storage() &&
         !t.is_nested() && !is_wrapper(t);
}

bool is_lazy(const at::Tensor& t) { return t.is_conj() || t.is_neg() || t._is_zerotensor(); }

at::Tensor resolved(const at::Tensor& t) {
  if (t._is_zerotensor()) return at::zeros(t.sizes(), t.options());
  return t.resolve_conj().resolve_neg();
}

TensorView view_of(const at::Tensor& t, size_t position) {
  FUSER_CHECK(has_memory(t), User, "argument-tensor", "execute(): argument ", position, " is a ",
              is_wrapper(t) ? "tensor of a Python subclass or of torch.func" : t.toString(),
              "; expected a strided CPU or CUDA tensor with memory\n  hint: pass .to_dense(), or a "
              "tensor with data instead of a fake or meta tensor");
  const at::IntArrayRef sizes = t.sizes(), strides = t.strides();
  return {.data = static_cast<char*>(t.data_ptr()),
          .sizes = sizes.data(),
          .strides = strides.data(),
          .rank = static_cast<int>(sizes.size()),
          .dtype = from_torch(t.scalar_type(), position),
          .device = t.is_cpu() ? cpu_device : static_cast<int>(t.get_device())};
}

Results run(const Record& record, const TorchArguments& arguments) {
  const bool profiled = profiler_listens();
  const ProfilerRange whole(profiled ? *record.name : std::string());
  const bool cuda = arguments.device != cpu_device;
  c10::OptionalDeviceGuard guard;
  CuStream stream = nullptr;
  if (cuda) {
    // A guard calls the driver several times, and is mostly not needed.
    const c10::Device here(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(arguments.device));
    const bool entered = device_is_entered(arguments.device) &&
                         c10::impl::getDeviceGuardImpl(here.type())->getDevice() == here;
    if (!entered) guard.reset_device(here);
    stream = current_stream(arguments.device);
  }
  c10::SmallVector<at::Tensor, 8> outputs(record.outputs.size());
  c10::SmallVector<char*, 8> memory(record.outputs.size(), nullptr);
  const auto allocate_before = [&](size_t step) {
    for (int o : record.allocated[step]) {
      const OutputSpec& spec = record.outputs[o];
      outputs[o] = allocate(spec.sizes, spec.strides, to_torch(spec.dtype), arguments.device);
      memory[o] = static_cast<char*>(outputs[o].data_ptr());
    }
  };
  const auto make_view = [&](size_t o, const at::Tensor& base) {
    const OutputSpec& spec = record.outputs[o];
    outputs[o] =
        base.detach().as_strided(spec.sizes, spec.strides, base.storage_offset() + spec.offset);
  };
  for (size_t o = 0; o < outputs.size(); ++o)
    if (const int base = record.outputs[o].view; base >= 0) make_view(o, arguments.tensors[base]);
  Arguments view = arguments.view();
  if (arguments.device == cpu_device) {
    view.threads = at::get_num_threads();
    view.team = team();
  }
  Scratch scratch{.device = arguments.device, .held = {}};
  const ScratchSource source{.context = &scratch, .allocate = &Scratch::allocate_bytes};
  for (size_t i = 0; i < record.steps.size(); ++i) {
    const StepRecord& step = record.steps[i];
    allocate_before(i);
    const ProfilerRange range(profiled ? profiler_name(step) : std::string());
    if (const auto* launch = std::get_if<LaunchRecord>(&step)) {
      run_launch(*launch, view, memory, record, stream, source);
      scratch.held.clear();  // the next launch on the stream may reuse it
    } else if (const auto* call = std::get_if<LibraryCall>(&step)) {
      run_library(*call, record, arguments.tensors, view.scalars, arguments.device, outputs);
      for (int o : call->outputs)
        if (o >= 0) memory[o] = static_cast<char*>(outputs[o].data_ptr());
    } else {
      const int o = std::get<CopyRecord>(step).output;
      arguments.tensors[record.outputs[o].alias].detach().copy_(outputs[o]);
    }
    for (int o : record.released[i]) outputs[o].reset();  // the next step may reuse the memory
  }
  allocate_before(record.steps.size());
  for (size_t o = 0; o < outputs.size(); ++o)
    if (const int base = record.outputs[o].view_of_output; base >= 0) make_view(o, outputs[base]);
  Results results;
  results.reserve(outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    const OutputSpec& spec = record.outputs[o];
    const int alias = spec.alias;
    if (alias < 0) {
      if (!spec.temp) results.push_back(std::move(outputs[o]));
    } else if (!spec.allocate && !arguments.tensors[alias].is_inference()) {
      // Tell autograd that a saved tensor was overwritten; copy_ above does so itself.
      arguments.tensors[alias].unsafeGetTensorImpl()->bump_version();
    }
  }
  return results;
}

}  // namespace fuser::bridge
