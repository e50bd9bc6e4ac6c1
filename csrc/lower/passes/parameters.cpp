#include <map>
#include <unordered_map>

#include "base/error.h"
#include "lower/passes.h"

namespace fuser::lower {

using namespace ir;

namespace {

// Dtypes to which the launch converts a scalar's value. The kernel converts to other dtypes.
bool host_converts(DType d) {
  return d == DType::Bool || d == DType::Int32 || d == DType::Int64 || d == DType::Float32 ||
         d == DType::Float64 || d == DType::Complex64 || d == DType::Complex128;
}

struct Parameters {
  KernelIR& kernel;
  std::map<std::tuple<Param::Kind, DType, uint32_t, bool>, int> known;

  Expr make(Param::Kind kind, DType dtype, Expr value, int index, bool inverse = false) {
    const uint32_t id = value ? value->id : static_cast<uint32_t>(index);
    const auto [it, fresh] =
        known.try_emplace({kind, dtype, id, inverse}, static_cast<int>(kernel.params.size()));
    if (fresh)
      kernel.params.push_back(
          {.kind = kind, .dtype = dtype, .value = value, .index = index, .inverse = inverse});
    const bool integer = kind == Param::Kind::Int || kind == Param::Kind::Divisor;
    return kernel.exprs.symbol(Symbol::Param, it->second, 0, integer ? DType::Int64 : dtype);
  }

  // An integer expression that is converted to a float, and whether 1 is divided by it. `integer`
  // is nullptr if the expression is neither form.
  struct Real {
    Expr integer = nullptr;
    bool inverse = false;
  };
  static Real real(Expr e) {
    bool inverse = false;
    for (;;) {
      if (e->kind == ExprNode::Kind::Cast) {
        e = e->args[0];
        if (e->dtype == DType::Int64) return {e, inverse};
        continue;
      }
      const bool division = e->kind == ExprNode::Kind::Apply && e->op == Op::truediv &&
                            e->args[0]->is_constant() && e->args[0]->value.real == 1.0;
      const bool reciprocal = e->kind == ExprNode::Kind::Apply && e->op == Op::reciprocal;
      if (inverse || (!division && !reciprocal)) return {};
      inverse = true;
      e = e->args[division ? 1 : 0];
    }
  }

  // Replaces subexpressions that are uniform across threads by parameters. In index arithmetic the
  // value of a scalar input may be folded into an integer, which makes it part of the launch
  // record's key. In arithmetic on values it stays a parameter of its own.
  Expr convert(Expr root, bool index) {
    const DType index_type = kernel.index64 ? DType::Int64 : DType::Int32;
    std::unordered_map<Expr, bool> same;  // integer and uniform across threads, but no constant
    visit(root, [&](Expr e) {
      bool s = false;
      if (e->is_symbol(Symbol::Size) || e->is_symbol(Symbol::Stride))
        s = true;
      else if (e->is_symbol(Symbol::Scalar))
        s = index;
      else if (e->kind == ExprNode::Kind::Apply || e->kind == ExprNode::Kind::Cast) {
        bool all = true, any = false;
        for (Expr a : e->operands()) {
          all &= same[a] || a->is_constant();
          any |= same[a];
        }
        s = all && any && e->dtype == DType::Int64;
      }
      same[e] = s;
    });
    return rewrite(kernel.exprs, root, [&](Expr e) -> Expr {
      if (same[e]) return make(Param::Kind::Int, index ? index_type : DType::Int64, e, 0);
      if (e->dtype == DType::Float32 || e->dtype == DType::Float64)
        if (const Real r = real(e); r.integer && same[r.integer])
          return make(Param::Kind::Real, e->dtype, r.integer, 0, r.inverse);
      if (e->is_symbol(Symbol::Value)) return make(Param::Kind::Value, e->dtype, nullptr, e->a);
      if (e->is_symbol(Symbol::RngOffset))
        return make(Param::Kind::RngOffset, e->dtype, nullptr, e->a);
      if (e->is_symbol(Symbol::Scalar)) {
        if (host_converts(e->dtype)) return make(Param::Kind::Scalar, e->dtype, nullptr, e->a);
        const DType wide = kind_of(e->dtype) == Kind::Float ? DType::Float64 : DType::Int64;
        return kernel.exprs.cast(e->dtype, make(Param::Kind::Scalar, wide, nullptr, e->a));
      }
      if (e->kind == ExprNode::Kind::Cast && e->args[0]->is_symbol(Symbol::Scalar) &&
          host_converts(e->dtype) && (kind_of(e->args[0]->dtype) <= kind_of(e->dtype)))
        return make(Param::Kind::Scalar, e->dtype, nullptr, e->args[0]->a);
      if (index && e->kind == ExprNode::Kind::Apply && (e->op == Op::div || e->op == Op::mod) &&
          same[e->args[1]])
        return kernel.exprs.apply(e->op, {convert(e->args[0], true),
                                          make(Param::Kind::Divisor, index_type, e->args[1], 0)});
      if (index && e->kind == ExprNode::Kind::Apply && e->op == Op::mul) {
        // Fold the uniform factors of a product into one parameter.
        Expr all = nullptr, others = nullptr;
        const auto times = [&](Expr product, Expr factor) {
          return product ? kernel.exprs.mul(product, factor) : factor;
        };
        int count = 0;
        for (Expr factor : factors(e)) {
          count += same[factor];
          Expr& into = same[factor] ? all : others;
          into = times(into, factor);
        }
        if (count > 1 && others)
          return kernel.exprs.mul(convert(others, true),
                                  make(Param::Kind::Int, index_type, all, 0));
      }
      return nullptr;
    });
  }
};

}  // namespace

void parameters(KernelIR& kernel) {
  Parameters p{.kernel = kernel, .known = {}};
  visit(kernel.body, [&](Stmt& s) {
    for (Expr* field : index_fields(s)) *field = p.convert(*field, true);
    for (Expr* field : value_fields(s)) *field = p.convert(*field, false);
  });
}

}  // namespace fuser::lower
