// Conversion between at::Tensor and driver arguments, and runs of records on torch tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "driver/executor.h"

namespace fuser::bridge {

// Arguments of one call, and the tensors that keep their memory alive.
struct TorchArguments {
  c10::SmallVector<at::Tensor, 8> tensors;
  c10::SmallVector<driver::TensorView, 8> views;
  c10::SmallVector<ir::Number, 4> scalars;
  std::vector<const int64_t*> added{};  // Arguments::added
  int device = driver::cpu_device;

  driver::Arguments view() const {
    return {.tensors = views, .scalars = scalars, .device = device, .added = added};
  }
};

// Returns whether the tensor is a Python subclass that intercepts each op, for instance a fake
// tensor, or a wrapper of torch.func. These report a device, but have no memory there.
bool is_wrapper(const at::Tensor& tensor);

// Returns whether it is a strided tensor in CPU or CUDA memory. Sparse, nested, fake and meta
// tensors are not, nor are tensors of torch.func's transforms.
bool has_memory(const at::Tensor& tensor);

// Returns whether the tensor's values differ from its memory. Lazy conjugation and negation are
// bits besides the memory, and torch's zero tensors (gradients of forward-mode AD) have no memory.
bool is_lazy(const at::Tensor& tensor);

// Returns a tensor with these values in memory; the tensor itself unless it is lazy.
at::Tensor resolved(const at::Tensor& tensor);

// Describes a tensor that is not lazy. Raises UserError if has_memory() is false, and DTypeError
// for a dtype outside the table.
driver::TensorView view_of(const at::Tensor& tensor, size_t position);

c10::ScalarType to_torch(ir::DType dtype);

// Returns torch's current stream of a CUDA device, through the C function that libtorch_cuda
// exports for compiled models. So one binary serves CPU and CUDA builds of torch.
driver::CuStream current_stream(int device);

// Runs a record. Allocates the outputs from torch's allocator, and queues the steps on torch's
// current stream of the device. Returns the results in output order, without in-place outputs.
using Results = c10::SmallVector<at::Tensor, 8>;
Results run(const driver::Record& record, const TorchArguments& arguments);

}  // namespace fuser::bridge
