// Descriptive names of kernels: "softmax_fwd", "add_gelu", "transpose_add".
//
// A name depends on a definition alone, so it is equal in every run. It is bounded, a valid
// identifier, and not unique: codegen adds the digest of the text.
#pragma once

#include <string>

#include "fusion/index/access.h"

namespace fuser::driver {

// Returns the name of a tensor's op in a program: the composite that recorded it, else its op.
std::string op_of(const ir::Tensor& tensor);

// Returns the ops with most of the kernel's work, in order. An op is the composite that recorded
// the statements (Tensor::composite), else the row of the op table. moves: data movement besides
// these ops.
std::string kernel_name(const fusion::Refined& refined, const std::string& moves);

}  // namespace fuser::driver
