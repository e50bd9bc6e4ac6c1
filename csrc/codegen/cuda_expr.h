// Expressions of Kernel IR as CUDA C: literals, symbols, ops.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "ir/kernel.h"

namespace fuser {

std::string literal(DType dtype, const Number& v);
// In parentheses where it cannot stand as an operand as it is.
std::string wrapped(const std::string& s);

// Values of an element: more than one in a partial result.
int fields_of(const std::optional<State>& state);
// A 32-bit divisor is passed with what makes division by it a multiplication.
bool is_fast_divisor(const Param& p);

struct ExprPrinter {
  const KernelIR& kernel;
  bool in_parts = false;  // the block is that of a part (print_parts)

  const char* index_type() const { return kernel.index64 ? "i64" : "i32"; }
  // Index expressions are kept in the kernel's index type and print as plain C; values by their
  // op's row.
  std::string index(Expr e) const { return expression(e, true); }
  std::string value(Expr e) const { return expression(e, false); }
  // "r_in0[v5]"
  std::string element(int array, Expr at) const;

 private:
  std::string expression(Expr root, bool index) const;
  std::string symbol(Expr e) const;
  std::string index_op(Expr e, std::span<const std::string> a) const;
  bool by_fast_divisor(Expr division) const;
};

}  // namespace fuser
