// Names of kernels that read like what they do: "softmax_fwd", "add_gelu", "transpose_add".
//
// A name follows from a definition alone, so it is the same in every run. It is bounded, a valid
// identifier, and not unique: codegen adds the digest of the text.
#pragma once

#include <string>

#include "fusion/access.h"

namespace fuser {

// What a tensor's definition is called in a program: the composite that recorded it, else its op.
std::string op_of(const Tensor& tensor);

// The ops on which most of the kernel's work is, in order. An op is the composite that recorded the
// statements (Tensor::composite), else the row of the table. moves: what is done beside them.
std::string kernel_name(const Refined& refined, const std::string& moves);

}  // namespace fuser
