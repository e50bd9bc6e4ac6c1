// at::Tensor <-> driver arguments. The only code that knows torch's C++ API.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "driver/executor.h"

namespace fuser {

// The arguments of one call, and what keeps their memory alive.
struct TorchArguments {
  c10::SmallVector<at::Tensor, 8> tensors;
  c10::SmallVector<TensorView, 8> views;
  c10::SmallVector<Number, 4> scalars;
  std::vector<const int64_t*> added{};  // Arguments::added
  int device = cpu_device;

  Arguments view() const {
    return {.tensors = views, .scalars = scalars, .device = device, .added = added};
  }
};

// Is it one of Python's subclasses that see each op, a fake tensor for one, or of torch.func? They
// say that they are on a device, but have no memory there.
bool is_wrapper(const at::Tensor& tensor);

// Is it a strided tensor in memory of a CPU or of CUDA? Sparse, nested, fake and meta tensors are
// not, and neither are those of torch.func's transforms.
bool has_memory(const at::Tensor& tensor);

// Is what its memory holds not what it is? Lazy conjugation and negation are bits beside the
// memory, and torch's zero tensors (gradients of forward-mode AD) have none.
bool is_lazy(const at::Tensor& tensor);

// The same values in memory; the tensor itself unless it is lazy.
at::Tensor resolved(const at::Tensor& tensor);

// Describes a tensor that is not lazy. Raises UserError for what has no such memory, and DTypeError
// for a dtype outside the table.
TensorView view_of(const at::Tensor& tensor, size_t position);

c10::ScalarType to_torch(DType dtype);

// torch's current stream of a CUDA device, through the C function that libtorch_cuda exports for
// compiled models: the same binary then serves CPU and CUDA builds of torch.
CuStream current_stream(int device);

// Runs a record: allocates the outputs from torch's allocator, queues its steps on torch's current
// stream of the device, and returns the results in output order (outputs in place are not among
// them).
using Results = c10::SmallVector<at::Tensor, 8>;
Results run(const Record& record, const TorchArguments& arguments);

}  // namespace fuser
