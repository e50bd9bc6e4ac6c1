// The part of the TorchScript fuser that Python plays: graphs as data, the writer of definitions.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "torch/torchscript_group.h"

namespace fuser {

// The definition of `graph` for these arguments, written by fuser.adapters.torchscript; its results
// lie in memory as said, those without places as the operands do. Takes the interpreter's lock.
// Raises what Python raised, as std::runtime_error: Unsupported, mostly.
Specialization write_definition(const torch::jit::Graph& graph,
                                const std::vector<ArgumentRole>& roles,
                                c10::ArrayRef<c10::IValue> arguments,
                                const std::vector<Places>& results_as);

// Nobody runs these any more. Does not wait for the interpreter's lock: they are freed when it is
// held the next time.
void release_definitions(const std::vector<const TorchExecutor*>& executors);

// Tells the user, once for a group, that eager computes it, with a program that repeats the error
// on such arguments: of the definition that was written for them, or where there is none
// (`executor` is nullptr) of the graph. Returns whether the error is to be raised instead
// (FUSER_STRICT).
bool report_fallback(const torch::jit::Graph& graph, const TorchExecutor* executor,
                     const std::vector<ArgumentRole>& roles, c10::ArrayRef<c10::IValue> arguments,
                     const std::string& error);

}  // namespace fuser
