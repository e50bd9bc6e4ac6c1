// Printer of expressions of CPU kernels. The threads of a block are lanes: an expression that is
// equal in all lanes prints as a scalar, any other as a vector.
#pragma once

#include <vector>

#include "codegen/cuda_expr.h"

namespace fuser {

// How a value varies over lanes.
struct LaneShape {
  // Linear: lane 0 has the printed scalar, and each further lane `step` more.
  enum Kind { Uniform, Linear, Varying } kind = Uniform;
  Expr step = nullptr;
};

struct LanePrinter : ExprPrinter {
  Exprs scratch = {};  // images of the kernel's expressions
  Images images = {};
  std::vector<LaneShape> vars = {};  // by variable
  std::vector<bool> varying = {};    // by array: its elements are vectors

  explicit LanePrinter(const KernelIR& of);

  // Appends the shapes of all variables and arrays of the statements.
  void analyse(const Body& body);
  // `is_index`: index arithmetic, else arithmetic on values, which is never linear.
  LaneShape shape(Expr e, bool is_index);
  bool is_uniform(Expr e, bool is_index) { return shape(e, is_index).kind == LaneShape::Uniform; }

  // Returns the text of lane 0 of a uniform or linear index expression.
  std::string first(Expr e);
  // Returns the text of an index expression or a value: a vector unless it is uniform.
  std::string lane_index(Expr e) { return text_of(e, true); }
  std::string lane_value(Expr e) { return text_of(e, false); }
  // Returns the text as a vector of `dtype`, also if it is uniform.
  std::string vector_value(Expr e);
  std::string vector_index(Expr e);
  std::string vector_type(const std::string& element) const;

 private:
  Expr copy(Expr e);
  bool collect(const Body& body);  // returns whether a shape changed
  bool become(int array, bool vary);
  std::string text_of(Expr root, bool is_index);
  std::string leaf(Expr e, bool is_index);
  std::string value_op(Expr e, std::span<const std::string> args);
  std::string varying_index_op(Expr e, std::span<const std::string> args);
};

}  // namespace fuser
