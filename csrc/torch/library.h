// Library calls of a record, by torch. The only code that knows how torch names an op of
// ir/library.def.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "driver/launch.h"

namespace fuser {

// The results of an op on these operands, on torch's current stream. Those behind required ones may
// be missing.
std::vector<at::Tensor> call_library(LibraryOp op, const std::vector<at::Tensor>& args,
                                     const std::vector<int64_t>& attributes);

// Runs a call of a record: takes operands from inputs and outputs, numbers from the scalars of the
// run, and puts its results among the outputs.
void run_library(const LibraryCall& call, const Record& record, std::span<const at::Tensor> inputs,
                 std::span<const Number> scalars, int device, std::span<at::Tensor> outputs);

}  // namespace fuser
