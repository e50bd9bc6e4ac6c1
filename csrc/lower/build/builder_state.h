// State of the builders of GPU kernels, and steps of all builders. A builder lists its steps in one
// table, in order. Emitting steps append statements to the kernel's body.
#pragma once

#include <optional>
#include <string>

#include "lower/build/values.h"

namespace fuser::lower {

struct BuilderState {
  const fusion::Problem& problem;
  const schedule::Schedule& schedule;
  ir::KernelIR kernel{};

  const std::vector<fusion::Value>& values() const { return problem.refined.values; }
  ir::Exprs& exprs() { return kernel.exprs; }
  ir::Expr constant(int64_t v) { return exprs().constant(v); }
  ir::Expr var(int v, ir::DType dtype = ir::DType::Int64) {
    return exprs().symbol(ir::Symbol::Var, v, 0, dtype);
  }
  int new_var() { return kernel.vars++; }
  // `chunk`: elements per chunk of a raw array.
  int new_array(std::string name, ir::DType dtype, int extent, std::optional<ir::State> state = {},
                int chunk = 0);
};

// The step before those of every builder.
// before: a Problem and its legal Schedule.
// does:   declares the memory of the problem, the threads of a block, the limit of their registers,
//         and the grid barrier.
// after:  Kernel IR without arrays and statements.
ir::KernelIR declare_kernel(const fusion::Problem& problem, const schedule::Schedule& schedule,
                            bool index64);

// A step of a builder, or of a part of its kernel: State is the part. Like a pass (passes.h), it
// states its precondition, its effect and its postcondition.
template <class Builder, class... State>
struct Step {
  const char* name;
  void (Builder::*run)(State&...);
  const char* before;
  const char* does;
  const char* after;
};

// Runs the steps in order.
template <class Builder, class... State, size_t n>
void run_steps(Builder& builder, const Step<Builder, State...> (&steps)[n], State&... state) {
  for (const Step<Builder, State...>& step : steps) (builder.*step.run)(state...);
}

}  // namespace fuser::lower
