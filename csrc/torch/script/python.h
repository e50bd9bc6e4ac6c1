// Python functions of the TorchScript fuser: graphs as data, and the writer of definitions.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "torch/script/group.h"

namespace fuser::script {

// Returns the definition of `graph` for these arguments, written by fuser.adapters.torchscript. Its
// results have the given layouts; results without one follow the operands. Takes the interpreter's
// lock. Raises Python's exception, mostly Unsupported, as std::runtime_error.
Specialization write_definition(const torch::jit::Graph& graph,
                                const std::vector<ArgumentRole>& roles,
                                c10::ArrayRef<c10::IValue> arguments,
                                const std::vector<Places>& results_as);

// Releases definitions that no run uses. Does not wait for the interpreter's lock: they are freed
// when it is held the next time.
void release_definitions(const std::vector<const bridge::TorchExecutor*>& executors);

// Tells the user, once per group, that it runs eagerly, with a program that repeats the error on
// these arguments. The program uses the definition, or the graph if `executor` is nullptr. Returns
// whether to raise the error instead (FUSER_STRICT).
bool report_fallback(const torch::jit::Graph& graph, const bridge::TorchExecutor* executor,
                     const std::vector<ArgumentRole>& roles, c10::ArrayRef<c10::IValue> arguments,
                     const std::string& error);

}  // namespace fuser::script
