// Parser of expressions in a kernel's text, with the declarations read so far. Declarations and
// statements: parse.cpp.
//
//   expr
//       x + y   x - y   x * y   x / y   x % y   x < y     on int64; * / % bind tighter than + -,
//       then < OP(x, ...)   every op in every dtype: add(x, y) DTYPE(x)     a cast: f32(x) ARRAY[x]
//       ARRAY[x].f<i>   (x), where f<i> is a field of a partial result size(i, dim)   stride(i,
//       dim)   a<i>   v<i>   p<i>   thread   block scalar(i)   rng_offset(i)   value(i)
//       scalar(i):f32 value(i):bf16
//           an input, of int64 or of the given DTYPE
//       3   3:i32   1.5:f32   true:bool   {1.5, -2.0}:c64
//       inf:f32   -inf:f32   nan:f32   nan(0x7ff8000000000001):f32, the bits of a float64
#pragma once

#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/kernel.h"
#include "ir/tokens.h"

namespace fuser::ir {

struct ExprParser : TokenReader {
  using TokenReader::TokenReader;
  using Names = std::unordered_map<std::string_view, int>;

  KernelIR kernel;  // the kernel as read so far
  Names arrays, buffers;
  std::unordered_map<int, DType> var_types;  // of Lets; every other variable is int64

  int declared(const Names& table, const char* what);
  Expr expression();
  Expr subscript();

 private:
  struct Open;
  struct Stacks;

  DType constant_type() const;
  Expr constant();
  Expr leaf();
  Expr extent();
  Expr input();
  Expr parameter(int number);
  Expr variable(int number);
  Expr element(int number, Expr index);
  bool opens(Stacks& s);
  void reduce(Stacks& s, int level);
  void close(Stacks& s);
};

}  // namespace fuser::ir
