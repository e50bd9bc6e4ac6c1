// Extern ops of a record, computed by torch. No other file maps ops of ir/library.def to torch
// functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "driver/launch.h"

namespace fuser::bridge {

// Returns the results of an op on these operands, on torch's current stream. Operands after the
// required ones may be absent.
std::vector<at::Tensor> call_library(ir::LibraryOp op, const std::vector<at::Tensor>& args,
                                     const std::vector<int64_t>& attributes);

// Runs a call of a record. Takes operands from inputs and outputs, and numbers from the scalars of
// the run; stores its results in `outputs`.
void run_library(const fusion::LibraryCall& call, const driver::Record& record,
                 std::span<const at::Tensor> inputs, std::span<const ir::Number> scalars,
                 int device, std::span<at::Tensor> outputs);

}  // namespace fuser::bridge
