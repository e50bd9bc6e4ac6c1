// Scalar expressions: extents, coordinates, predicates and the arithmetic of kernels.
//
// Nodes live in an arena (`Exprs`), are immutable and hash-consed: within one arena `a == b` is
// structural equality. Integer arithmetic on int64 (sizes, coordinates) is folded and put in a
// normal form on construction. So "stride of m == extent of n" is a comparison of pointers. All
// other expressions are kept as written. The normal form depends on structure alone, never on the
// order in which an arena was filled: texts made from it are cache keys.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/dtype.h"
#include "ir/ops.h"

namespace fuser::ir {

struct ExprNode;
using Expr = const ExprNode*;

// Meaning of a symbol; `a` and `b` are its indices.
enum class Symbol : uint8_t {
  Size,       // size of dim b of tensor input a
  Stride,     // stride in elements of dim b of tensor input a
  Scalar,     // scalar input a
  RngOffset,  // scalar input a, which each run takes from torch's generator (RandomState)
  Value,      // the one element of tensor input a, a CPU tensor that is passed by value
  Axis,       // refined axis a
  Var,        // variable a of a kernel: a loop index or a Let
  Param,      // parameter a of a kernel
  Thread,     // index of the thread in its block
  Block,      // index of the block in the grid
  Indirect,   // value a of a Refined: a gather index, a coordinate that was loaded from memory
  Extent,     // extent of dim b of tensor a of a definition; replaced once sizes of 1 are known
              // (rebuild)
};

// Set of symbol kinds, one bit each.
using Symbols = uint16_t;
constexpr Symbols bit(Symbol s) { return static_cast<Symbols>(1u << static_cast<int>(s)); }

struct Number {
  int64_t integer = 0;                   // Bool, Int
  double real = 0.0, imag = 0.0;         // Float, Complex
  bool operator==(const Number&) const;  // by bits: NaN equals itself, -0.0 differs from 0.0
};

struct ExprNode {
  enum class Kind : uint8_t {
    Constant,  // value
    Symbol,    // symbol, a, b
    Element,   // register array a at index args[0], field b
    Apply,     // op on args
    Cast,      // args[0] converted to dtype
  };
  Kind kind;
  DType dtype;
  uint8_t arity = 0;
  Op op{};
  Symbol symbol{};
  int a = 0, b = 0;
  Number value;
  std::array<Expr, 3> args{};
  uint32_t id = 0;      // creation order within the arena
  Symbols symbols = 0;  // kinds of symbols that occur in it

  std::span<const Expr> operands() const { return {args.data(), arity}; }
  bool is_constant() const { return kind == Kind::Constant; }
  bool is_constant(int64_t v) const {
    return is_constant() && dtype == DType::Int64 && value.integer == v;
  }
  bool is_symbol(Symbol s) const { return kind == Kind::Symbol && symbol == s; }
  bool has(Symbol s) const { return symbols & bit(s); }
};

class Exprs {
 public:
  Exprs() = default;
  Exprs(Exprs&&) = default;
  Exprs& operator=(Exprs&&) = default;
  Exprs(const Exprs&) = delete;
  // Returns an arena on top of `base`. It finds the nodes that `base` holds now, and adds new nodes
  // to itself, so that `base` stays unchanged. `base` must outlive it at the same address.
  static Exprs on_top_of(const Exprs& base);

  Expr constant(int64_t value) { return constant(DType::Int64, {.integer = value}); }
  Expr constant(DType dtype, Number value);
  Expr symbol(Symbol symbol, int a, int b = 0, DType dtype = DType::Int64);
  // `field` selects a field of a partial result.
  Expr element(int array, Expr index, DType dtype, int field = 0);
  // The op's row determines the result dtype. Operands must have the row's compute dtype already.
  Expr apply(Op op, std::span<const Expr> args);
  Expr apply(Op op, std::initializer_list<Expr> args) {
    return apply(op, std::span<const Expr>(args.begin(), args.size()));
  }
  Expr cast(DType dtype, Expr value);

  // Integer arithmetic for sizes and coordinates. All operands are int64; operands of div and mod
  // are not negative.
  Expr add(Expr a, Expr b) { return apply(Op::add, {a, b}); }
  Expr sub(Expr a, Expr b) { return apply(Op::sub, {a, b}); }
  Expr mul(Expr a, Expr b) { return apply(Op::mul, {a, b}); }
  Expr div(Expr a, Expr b) { return apply(Op::div, {a, b}); }
  Expr mod(Expr a, Expr b) { return apply(Op::mod, {a, b}); }
  Expr ceil_div(Expr a, int64_t b);
  Expr product(std::span<const Expr> factors);

  size_t size() const { return nodes_.size(); }

 private:
  Expr find(const ExprNode& node) const;  // nullptr: no such node
  Expr intern(ExprNode node);
  Expr fold_integer(Op op, Expr a, Expr b);  // nullptr: nothing to fold
  Expr in_order(Op op, Expr a, Expr b);      // normal form of a sum or product

  struct Hash {
    size_t operator()(Expr e) const;
  };
  struct Equal {
    bool operator()(Expr x, Expr y) const;
  };
  std::deque<ExprNode> nodes_;
  std::unordered_set<Expr, Hash, Equal> table_;
  const Exprs* base_ = nullptr;
  uint32_t first_ = 0;  // id of the first node; nodes of the base have lower ids
};

// Returns the factors of a product, in order. An expression that is no product is its only factor.
std::vector<Expr> factors(Expr product);

// Returns the dtype in which an Apply is computed: the dtype of its operands (of `where`: of the
// two values).
DType compute_dtype(Expr apply);

// Rebuilds `root` in `target`, replacing a node by replace(node) unless that is nullptr. Iterative.
// `images` holds the rewritten nodes, also for later calls, because expressions share
// subexpressions.
using Images = std::unordered_map<Expr, Expr>;
Expr rewrite(Exprs& target, Expr root, const std::function<Expr(Expr)>& replace, Images& images);
inline Expr rewrite(Exprs& target, Expr root, const std::function<Expr(Expr)>& replace) {
  Images images;
  return rewrite(target, root, replace, images);
}
// Calls visit(node) once for each distinct node below and including the roots, operands first.
// Iterative. With `holding`, visits only nodes that contain one of these symbols. A search for the
// axes of a coordinate then skips the sizes that it contains.
void visit(std::span<const Expr> roots, const std::function<void(Expr)>& visit,
           std::optional<Symbols> holding = {});
inline void visit(Expr root, const std::function<void(Expr)>& f,
                  std::optional<Symbols> holding = {}) {
  visit(std::span<const Expr>(&root, 1), f, holding);
}

// Returns "size(t0, 1) * 4 + 2": for messages and for the Schedule's text (print.cpp).
std::string to_string(Expr expr);

// Integer expressions compiled to straight-line code. Evaluation neither recurses nor allocates
// beyond one buffer.
class IntProgram {
 public:
  // Returns the slot that holds the value of `expr` after run(). Values wrap to their dtype. Raises
  // Unsupported "size-arithmetic-1" if `expr` is no integer.
  int add(Expr expr);
  // leaf(symbol, a, b) returns the value of a leaf.
  using Leaf = std::function<int64_t(Symbol, int, int)>;
  void run(const Leaf& leaf, std::vector<int64_t>& values) const;
  // Appends the values of the slots that were added after run() or resume() filled `values`.
  void resume(const Leaf& leaf, std::vector<int64_t>& values) const;

 private:
  struct Step {
    ExprNode::Kind kind;
    DType dtype;
    Op op{};
    Symbol symbol{};
    int a = 0, b = 0;  // operands' slots, or the symbol's indices
    int64_t value = 0;
  };
  std::vector<Step> steps_;
  std::unordered_map<Expr, int> slots_;
};

}  // namespace fuser::ir
