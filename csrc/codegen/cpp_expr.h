// Printer of expressions of CPU kernels. The threads of a block are lanes: an expression that is
// equal in all lanes prints as a scalar, any other as a vector.
#pragma once

#include <vector>

#include "codegen/cuda_expr.h"

namespace fuser::codegen {

// How a value varies over lanes.
struct LaneShape {
  // Linear: lane 0 has the printed scalar, and each further lane `step` more.
  enum Kind { Uniform, Linear, Varying } kind = Uniform;
  ir::Expr step = nullptr;
};

struct LanePrinter : ExprPrinter {
  ir::Exprs scratch = {};  // images of the kernel's expressions
  ir::Images images = {};
  std::vector<LaneShape> vars = {};  // by variable
  std::vector<bool> varying = {};    // by array: its elements are vectors

  explicit LanePrinter(const ir::KernelIR& of);

  // Appends the shapes of all variables and arrays of the statements.
  void analyse(const ir::Body& body);
  // `is_index`: index arithmetic, else arithmetic on values, which is never linear.
  LaneShape shape(ir::Expr e, bool is_index);
  bool is_uniform(ir::Expr e, bool is_index) {
    return shape(e, is_index).kind == LaneShape::Uniform;
  }

  // Returns the text of lane 0 of a uniform or linear index expression.
  std::string first(ir::Expr e);
  // Returns the text of an index expression or a value: a vector unless it is uniform.
  std::string lane_index(ir::Expr e) { return text_of(e, true); }
  std::string lane_value(ir::Expr e) { return text_of(e, false); }
  // Returns the text as a vector of `dtype`, also if it is uniform.
  std::string vector_value(ir::Expr e);
  std::string vector_index(ir::Expr e);
  std::string vector_type(const std::string& element) const;

 private:
  ir::Expr copy(ir::Expr e);
  bool collect(const ir::Body& body);  // returns whether a shape changed
  bool become(int array, bool vary);
  std::string text_of(ir::Expr root, bool is_index);
  std::string leaf(ir::Expr e, bool is_index);
  std::string value_op(ir::Expr e, std::span<const std::string> args);
  std::string varying_index_op(ir::Expr e, std::span<const std::string> args);
};

}  // namespace fuser::codegen
