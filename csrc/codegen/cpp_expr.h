// Printer of expressions of CPU kernels. The threads of a block are lanes: an expression that is
// equal in all lanes prints as a scalar, any other as a vector.
#pragma once

#include <vector>

#include "codegen/cuda_expr.h"

namespace fuser::codegen {

// An integer that is `residue` modulo `modulus`. Modulus 0: it equals `residue`.
struct Congruence {
  int64_t modulus = 1, residue = 0;
};

// How a value varies over lanes.
struct LaneShape {
  // Linear: lane 0 has the printed scalar, and each further lane `step` more. Pattern: lane i has
  // offsets[i] more than the printed scalar. Range: a condition that holds in neighbouring lanes.
  enum Kind { Uniform, Linear, Pattern, Range, Varying } kind = Uniform;
  ir::Expr step = nullptr;
  std::vector<int64_t> offsets = {};  // by lane; of a condition with constant lanes: 0 and 1
  Congruence first = {};              // of lane 0

  // Returns whether the scalar of lane 0 stands for all lanes.
  bool is_scalar() const { return kind != Range && kind != Varying; }
};

// Returns "Order_<0, 0, 1, 1>".
std::string order_of(const std::vector<int64_t>& offsets);

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

  // Returns the text of lane 0 of an index expression whose shape is_scalar().
  std::string first(ir::Expr e);
  // Returns the text of a condition that is uniform or a range of lanes.
  std::string range_text(ir::Expr e);
  // Returns the text of an index expression or a value: a vector unless it is uniform.
  std::string lane_index(ir::Expr e) { return text_of(e, true); }
  std::string lane_value(ir::Expr e) { return text_of(e, false); }
  // Returns the text as a vector of `dtype`, also if it is uniform.
  std::string vector_value(ir::Expr e);
  std::string vector_index(ir::Expr e);
  std::string vector_type(const std::string& element) const;
  // Returns the offsets of the lanes of an index from lane 0; empty if they are not constant.
  std::vector<int64_t> offsets_of(const LaneShape& s) const;

 private:
  ir::Expr copy(ir::Expr e);
  LaneShape index_shape(ir::Expr e, const std::vector<LaneShape>& operands);
  bool collect(const ir::Body& body);  // returns whether a shape changed
  bool become(int array, bool vary);
  std::string text_of(ir::Expr root, bool is_index);
  std::string leaf(ir::Expr e, bool is_index);
  std::string value_op(ir::Expr e, std::span<const std::string> args);
  std::string lane_op(ir::Expr e, std::span<const std::string> args);
  std::string varying_index_op(ir::Expr e, std::span<const std::string> args);
};

}  // namespace fuser::codegen
