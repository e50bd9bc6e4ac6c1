// State and steps of the builders of GPU kernels. A builder adds its own state to BuilderState, and
// lists its steps in one table, in order. Emitting steps append statements to the kernel's body.
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

// A step of a builder.
template <class Builder>
struct Step {
  const char* name;
  void (Builder::*run)();
  const char* after;  // result of the step
};

// Runs the steps in order and returns the kernel.
template <class Builder, size_t n>
ir::KernelIR run_steps(Builder& builder, const Step<Builder> (&steps)[n]) {
  for (const Step<Builder>& step : steps) (builder.*step.run)();
  return std::move(builder.kernel);
}

}  // namespace fuser::lower
