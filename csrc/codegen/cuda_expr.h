// Printer of Kernel IR expressions as CUDA C: literals, symbols, ops.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ir/kernel.h"

namespace fuser::codegen {

std::string literal(ir::DType dtype, const ir::Number& v);
// Returns the text in parentheses, if it cannot be an operand without them.
std::string wrapped(const std::string& s);

// Substitutes operands into an op's text.
std::string fill(std::string_view pattern, std::span<const std::string> args);

// Returns the number of fields of an element: more than one for some partial results.
int fields_of(const std::optional<ir::State>& state);
// Returns whether the parameter is a 32-bit divisor, which is passed with its multiplier and shift.
bool is_fast_divisor(const ir::Param& p);

struct ExprPrinter {
  const ir::KernelIR& kernel;
  bool in_parts = false;  // blocks are numbered within a set of arguments (print_horizontal)

  const char* index_type() const { return kernel.index64 ? "i64" : "i32"; }
  // Index expressions have the kernel's index type and print as plain C; values print by their op's
  // row.
  std::string index(ir::Expr e) const { return expression(e, true); }
  std::string value(ir::Expr e) const { return expression(e, false); }
  // "r_in0[v5]"
  std::string element(int array, ir::Expr at) const;

 protected:
  std::string expression(ir::Expr root, bool index) const;
  std::string symbol(ir::Expr e) const;
  std::string index_op(ir::Expr e, std::span<const std::string> a) const;
  bool by_fast_divisor(ir::Expr division) const;
};

}  // namespace fuser::codegen
