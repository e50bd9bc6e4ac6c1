// Merges two reduction loops into one if the second reduction needs the first only to shift its
// argument: the variance from the mean (Welford; Chan, Golub and LeVeque 1983) and the sum of
// exponentials from the maximum (Milakov and Gimelshein 2018).
//
// The results are equal up to rounding. The Fusion itself is not rewritten, because two loops over
// a persistent row cost nothing and are more accurate.
#include <algorithm>

#include "fusion/index/access.h"

namespace fuser::fusion {

using namespace ir;

namespace {

struct Matcher {
  const Refined& r;
  std::vector<Value> values;
  bool found = false;

  const Value& value(ValueId v) const { return values[v]; }

  // Returns the value of an access, skipping conversions that change nothing; -1 for a scalar or a
  // masked access.
  ValueId exact(const Access& a) const {
    if (!a.in.bounds.empty()) return -1;
    ValueId v = a.value;
    while (v >= 0) {
      const auto* c = std::get_if<Convert>(&value(v).how);
      if (!c || c->arg.value < 0 || !c->arg.in.bounds.empty()) break;
      const DType from = value(c->arg.value).dtype, to = value(v).dtype;
      const bool widens =
          kind_of(from) == Kind::Float && kind_of(to) == Kind::Float && size_of(from) < size_of(to);
      if (from != to && !widens) break;
      v = c->arg.value;
    }
    return v;
  }

  const Apply* applied(ValueId v, Op op, DType compute) const {
    const auto* a = v >= 0 ? std::get_if<Apply>(&value(v).how) : nullptr;
    return a && a->op == op && a->compute == compute ? a : nullptr;
  }

  const Reduced* reduced(ValueId v, ReduceOp op, const Reduced& like) const {
    const auto* x = v >= 0 ? std::get_if<Reduced>(&value(v).how) : nullptr;
    return x && x->op == op && x->over == like.over && x->compute == like.compute ? x : nullptr;
  }

  // Returns whether `e` is the number of reduced elements or, with `inverse`, its reciprocal.
  bool is_count(Expr e, AxisSet over, bool inverse) const {
    if (!e) return false;
    Exprs exprs;
    const auto copy = [&](Expr x) {
      return rewrite(exprs, x, [](Expr) -> Expr { return nullptr; });
    };
    Expr count = exprs.constant(1);
    for (size_t a = 0; a < r.axes.size(); ++a)
      if (over >> a & 1) count = exprs.mul(count, copy(r.axes[a].extent));
    const auto bare = [](Expr x) {
      while (x->kind == ExprNode::Kind::Cast) x = x->args[0];
      return x;
    };
    const auto is_number = [&](Expr x, double number) {
      if (!x->is_constant()) return false;
      const Kind kind = kind_of(x->dtype);
      return kind == Kind::Int ? static_cast<double>(x->value.integer) == number
                               : kind == Kind::Float && x->value.real == number;
    };
    e = bare(e);
    if (inverse) {
      if (count->is_constant()) {
        const double n = 1.0 / static_cast<double>(count->value.integer);
        if (is_number(e, n) || is_number(e, static_cast<float>(n))) return true;
      }
      if (e->kind != ExprNode::Kind::Apply) return false;
      if (e->op == Op::truediv && is_number(bare(e->args[0]), 1))
        e = bare(e->args[1]);
      else if (e->op == Op::reciprocal)
        e = bare(e->args[0]);
      else
        return false;
    }
    if (count->is_constant()) return is_number(e, static_cast<double>(count->value.integer));
    return copy(e) == count;
  }

  // Returns the sum of which `mean` is the mean; -1 if it is not a mean.
  ValueId summed(ValueId mean, const Reduced& like) const {
    const auto* a = mean >= 0 ? std::get_if<Apply>(&value(mean).how) : nullptr;
    if (!a || a->compute != like.compute || a->args.size() != 2) return -1;
    const bool divides = a->op == Op::truediv || a->op == Op::div;
    if (!divides && a->op != Op::mul) return -1;
    for (int i = 0; i < (divides ? 1 : 2); ++i) {
      const ValueId sum = exact(a->args[i]);
      if (reduced(sum, ReduceOp::sum, like) && a->args[1 - i].value < 0 &&
          is_count(a->args[1 - i].otherwise, like.over, !divides))
        return sum;
    }
    return -1;
  }

  // Returns whether only `user` reads `v`.
  bool only_for(ValueId v, ValueId user) const {
    bool only = std::none_of(r.stores.begin(), r.stores.end(),
                             [&](const Store& s) { return s.access.value == v; });
    for (size_t u = 0; u < values.size() && only; ++u)
      if (static_cast<ValueId>(u) != user)
        visit_operands(values[u], [&](ValueId a) { only = only && a != v; });
    return only;
  }

  // Rewrites sum((x - sum(x) / n)^2).
  void deviations(ValueId v) {
    const Reduced sum = std::get<Reduced>(value(v).how);
    const ValueId square = exact(sum.args[0]);
    ValueId distance = -1;
    if (const Apply* a = applied(square, Op::mul, sum.compute)) {
      if (exact(a->args[0]) == exact(a->args[1])) distance = exact(a->args[0]);
    } else if (const Apply* b = applied(square, Op::pow, sum.compute)) {
      const Expr e = b->args[1].value < 0 ? b->args[1].otherwise : nullptr;
      const bool two = e && e->is_constant() && (e->value.integer == 2 || e->value.real == 2.0);
      if (two) distance = exact(b->args[0]);
    }
    const Apply* minus = applied(distance, Op::sub, sum.compute);
    if (!minus) return;
    const ValueId mean = exact(minus->args[1]);
    const ValueId total = summed(mean, sum);
    if (total < 0) return;
    const Reduced& first = std::get<Reduced>(value(total).how);
    const ValueId x = exact(minus->args[0]);
    if (x < 0 || exact(first.args[0]) != x || value(mean).dtype != sum.compute ||
        !only_for(total, mean))
      return;
    Reduced both{
        .op = ReduceOp::welford, .compute = sum.compute, .args = first.args, .over = sum.over};
    values[mean].axes = value(total).axes;
    values[mean].how = std::move(both);
    values[v].how = Project{.reduced = mean, .result = 1};
    found = true;
  }

  // Rewrites sum(exp(x - max(x))).
  void exponentials(ValueId v) {
    const Reduced sum = std::get<Reduced>(value(v).how);
    const ValueId power = exact(sum.args[0]);
    const Apply* exp = applied(power, Op::exp, sum.compute);
    if (!exp) exp = applied(power, half_form(Op::exp), sum.compute);
    if (!exp) return;
    const Apply* minus = applied(exact(exp->args[0]), Op::sub, sum.compute);
    if (!minus) return;
    const ValueId most = exact(minus->args[1]), x = exact(minus->args[0]);
    const Reduced* first = reduced(most, ReduceOp::max, sum);
    // Rewritten for an earlier sum.
    if (!first) first = reduced(most, ReduceOp::online_softmax, sum);
    if (!first || x < 0 || exact(first->args[0]) != x) return;
    Reduced both{.op = ReduceOp::online_softmax,
                 .compute = sum.compute,
                 .args = first->args,
                 .over = sum.over};
    values[most].how = std::move(both);
    values[v].how = Project{.reduced = most, .result = 1};
    found = true;
  }
};

}  // namespace

std::optional<Refined> single_pass(const Refined& refined) {
  Matcher m{.r = refined, .values = refined.values};
  for (size_t v = 0; v < refined.values.size(); ++v) {
    const auto* sum = std::get_if<Reduced>(&m.values[v].how);
    if (!sum || sum->op != ReduceOp::sum || kind_of(sum->compute) != Kind::Float) continue;
    m.deviations(static_cast<ValueId>(v));
    if (std::holds_alternative<Reduced>(m.values[v].how)) m.exponentials(static_cast<ValueId>(v));
  }
  if (!m.found) return std::nullopt;
  std::vector<ValueId> image;
  return extract(refined.axes, m.values, refined.stores, image);
}

}  // namespace fuser::fusion
