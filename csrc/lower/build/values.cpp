#include "lower/build/values.h"

#include <algorithm>

#include "base/error.h"
#include "fusion/build/rules.h"

namespace fuser::lower {

using namespace fusion;
using namespace ir;
using namespace schedule;

Expr import(KernelIR& kernel, Expr e) {
  return rewrite(
      kernel.exprs, e, [](Expr) -> Expr { return nullptr; }, kernel.imported);
}

void declare_buffers(const Problem& problem, KernelIR& kernel) {
  int inputs = 0, outputs = 0;
  for (const BufferUse& b : problem.buffers) {
    const bool output_only = b.written && !b.read;
    kernel.buffers.push_back(
        {.name = output_only ? text("g_out", outputs++) : text("g_in", inputs++),
         .dtype = b.tensor->dtype,
         .read = b.read,
         .written = b.written,
         .restrict_ = !(b.read && b.written)});
  }
}

Expr operand(KernelIR& kernel, const Access& a, const std::vector<Expr>& known) {
  if (a.value < 0) return import(kernel, a.otherwise);
  FUSER_ASSERT(known[a.value], "value ", a.value, " is used before it is computed");
  return known[a.value];
}

Expr arithmetic(const Problem& problem, KernelIR& kernel, ValueId v,
                const std::vector<Expr>& known) {
  const Value& value = problem.refined.values[v];
  Exprs& exprs = kernel.exprs;
  return std::visit(
      [&](const auto& how) -> Expr {
        using H = std::decay_t<decltype(how)>;
        if constexpr (std::is_same_v<H, Apply>) {
          std::vector<Expr> args;
          for (size_t i = 0; i < how.args.size(); ++i) {
            const bool condition = row(how.op).rule == ResultRule::Condition && i == 0;
            args.push_back(exprs.cast(condition ? DType::Bool : how.compute,
                                      operand(kernel, how.args[i], known)));
          }
          return how.op == Op::set ? args[0] : exprs.apply(how.op, args);
        } else if constexpr (std::is_same_v<H, Convert>) {
          return exprs.cast(value.dtype, operand(kernel, how.arg, known));
        } else if constexpr (std::is_same_v<H, Splat>) {
          return import(kernel, how.scalar);
        } else {
          FUSER_ASSERT(false, "value ", v, " has another kind of definition than its operands");
        }
      },
      value.how);
}

Expr both(Exprs& exprs, Expr a, Expr b) {
  return !a ? b : !b ? a : exprs.apply(Op::logical_and, {a, b});
}

namespace {

// Replaces each Symbol::Indirect by the value that it names.
Expr resolved(Exprs& exprs, Expr e, const std::vector<Expr>& known) {
  if (!e->has(Symbol::Indirect)) return e;
  return rewrite(exprs, e,
                 [&](Expr n) { return n->is_symbol(Symbol::Indirect) ? known[n->a] : nullptr; });
}

}  // namespace

Expr within(KernelIR& kernel, const Pred& in, const std::vector<Expr>& known) {
  Exprs& exprs = kernel.exprs;
  Expr all = nullptr;
  for (const Pred::Bound& b : in.bounds) {
    const Expr at = resolved(exprs, import(kernel, b.coord), known);
    const bool is_place = b.coord->is_symbol(Symbol::Axis);  // an axis coordinate is never negative
    if (b.lo && !(is_place && b.lo->is_constant() && b.lo->value.integer <= 0)) {
      const Expr below = exprs.sub(import(kernel, b.lo), exprs.constant(1));
      all = both(exprs, all, exprs.apply(Op::lt, {below, at}));
    }
    if (b.hi) all = both(exprs, all, exprs.apply(Op::lt, {at, import(kernel, b.hi)}));
  }
  return all;
}

Expr coordinate(KernelIR& kernel, Body& body, const Coordinate& how, const std::vector<Expr>& known,
                const std::function<Expr(Expr)>& place) {
  const Expr at = place(resolved(kernel.exprs, import(kernel, how.at), known));
  const int index = kernel.vars++, wide = kernel.vars++;
  body.push_back({Let{.var = index, .value = at, .index = true}});
  body.push_back({Let{.var = wide, .value = kernel.exprs.symbol(Symbol::Var, index)}});
  return kernel.exprs.symbol(Symbol::Var, wide);
}

Expr selected(KernelIR& kernel, Body& body, const Select& how, DType dtype,
              const std::vector<Expr>& known, const std::function<Expr(Expr)>& place,
              Body* conditions) {
  Exprs& exprs = kernel.exprs;
  Expr out = nullptr;
  for (size_t i = how.args.size(); i-- > 0;) {
    const Expr mine = exprs.cast(dtype, operand(kernel, how.args[i], known));
    const Expr in = within(kernel, how.args[i].in, known);
    if (!in || !out) {
      out = mine;
      continue;
    }
    const int name = kernel.vars++;
    Body& where = conditions ? *conditions : body;
    where.push_back({Let{.var = name, .value = place(in), .index = true}});
    out = exprs.apply(Op::where, {exprs.symbol(Symbol::Var, name, 0, DType::Bool), mine, out});
  }
  return named(kernel, body, out);
}

namespace {

// Returns the bounds of `asked` that `in` does not imply.
Pred where_it_holds(Pred asked, const Pred& in) {
  std::erase_if(asked.bounds, [&](const Pred::Bound& b) {
    return std::find(in.bounds.begin(), in.bounds.end(), b) != in.bounds.end();
  });
  return asked;
}

// Returns the bounds of `asked` that are left if `in` fails. If `in` is a single upper bound, then
// its failure implies the matching lower bound.
Pred where_it_fails(Pred asked, const Pred& in) {
  if (in.bounds.size() != 1 || in.bounds[0].lo || !in.bounds[0].hi) return asked;
  for (Pred::Bound& b : asked.bounds)
    if (b.coord == in.bounds[0].coord && b.lo == in.bounds[0].hi) b.lo = nullptr;
  std::erase_if(asked.bounds, [](const Pred::Bound& b) { return !b.lo && !b.hi; });
  return asked;
}

}  // namespace

std::vector<SelectLoad> find_select_loads(const Problem& problem) {
  const std::vector<Value>& values = problem.refined.values;
  std::vector<int> users(values.size(), 0), access_of(values.size(), -1);
  for (const Value& v : values) visit_operands(v, [&](ValueId o) { ++users[o]; });
  for (const Store& s : problem.refined.stores)
    if (s.access.value >= 0) ++users[s.access.value];
  for (size_t i = 0; i < problem.accesses.size(); ++i)
    if (!problem.accesses[i].store) access_of[problem.accesses[i].index] = static_cast<int>(i);
  // Returns the read at the start of the chain of one-operand values that ends in `v`, if nothing
  // else uses that chain; else -1.
  const auto read_of = [&](ValueId v) {
    while (v >= 0 && users[v] == 1 && access_of[v] < 0) {
      ValueId only = -1;
      int operands = 0;
      visit_operands(values[v], [&](ValueId o) {
        only = o;
        ++operands;
      });
      v = operands == 1 ? only : -1;
    }
    return v >= 0 && users[v] == 1 ? access_of[v] : -1;
  };
  std::vector<SelectLoad> out;
  for (const Value& v : values) {
    const auto* select = std::get_if<Select>(&v.how);
    if (!select || select->args.size() != 2) continue;
    const int first = read_of(select->args[0].value), second = read_of(select->args[1].value);
    if (first < 0 || second < first) continue;  // the first access is loaded first
    const MemoryAccess &a = problem.accesses[first], &b = problem.accesses[second];
    const bool bounded = !a.in.bounds.empty() && !b.in.bounds.empty();
    if (bounded && a.buffer == b.buffer && a.strides && b.strides &&
        a.strides->coefficients == b.strides->coefficients && !is_loaded(a) && !is_loaded(b)) {
      SelectLoad e{.first = first, .second = second, .in = select->args[0].in};
      e.if_first = where_it_holds(a.in, e.in);
      e.if_second = where_it_fails(b.in, e.in);
      for (const Pred::Bound& bound : e.in.bounds) e.axes |= axes_of({bound.coord});
      out.push_back(std::move(e));
    }
  }
  return out;
}

Expr within(KernelIR& kernel, const SelectLoad& either, Expr here) {
  const Expr first = within(kernel, either.if_first, {});
  const Expr second = within(kernel, either.if_second, {});
  if (!first && !second) return nullptr;
  const Expr always = kernel.exprs.constant(DType::Bool, {.integer = 1});
  return kernel.exprs.apply(Op::where, {here, first ? first : always, second ? second : always});
}

CachePolicy cache_of(const schedule::Schedule& schedule, size_t access, int width, Expr count) {
  return width > 1 && !count ? schedule.accesses[access].cache : CachePolicy{};
}

Expr named(KernelIR& kernel, Body& body, Expr value) {
  if (value->kind != ExprNode::Kind::Apply && value->kind != ExprNode::Kind::Cast) return value;
  const int var = kernel.vars++;
  body.push_back({Let{.var = var, .value = value}});
  return kernel.exprs.symbol(Symbol::Var, var, 0, value->dtype);
}

Expr computed(const Problem& problem, KernelIR& kernel, Body& body, ValueId v,
              const std::vector<Expr>& known, const std::function<Expr(Expr)>& place,
              Body* conditions) {
  const Value& value = problem.refined.values[v];
  if (const auto* c = std::get_if<Coordinate>(&value.how))
    return coordinate(kernel, body, *c, known, place);
  if (const auto* c = std::get_if<Select>(&value.how))
    return selected(kernel, body, *c, value.dtype, known, place, conditions);
  if (std::holds_alternative<Read>(value.how)) return nullptr;
  return named(kernel, body, arithmetic(problem, kernel, v, known));
}

void check_indices(const Problem& problem, KernelIR& kernel, Body& body, const MemoryAccess& access,
                   Expr in, const std::vector<Expr>& known,
                   const std::function<Expr(Expr)>& place) {
  for (const GatherIndex& i : std::get<Read>(problem.refined.values[access.index].how).indices) {
    const auto& take = std::get<TakeAlongAxis>(i.op->definition);
    const Operand args[] = {{.tensor = take.arg}, {.tensor = take.index}};
    const std::string name = !i.op->composite.empty() ? i.op->composite
                             : take.same_sizes        ? "gather"
                                                      : "take_along_axis";
    const std::string words =
        text("execute(): ", rules::call(name, args), ", axis ", take.dim, rules::lines(args));
    auto& all = kernel.checked;
    const auto known_words = std::find(all.begin(), all.end(), words);
    const auto number = static_cast<int>(known_words - all.begin());
    if (known_words == all.end()) all.push_back(words);
    const Expr wanted = within(kernel, i.in, known);
    body.push_back({AssertIndex{.index = known[i.given],
                                .extent = import(kernel, i.size),
                                .in = both(kernel.exprs, in, wanted ? place(wanted) : nullptr),
                                .number = number}});
  }
}

Expr offset_of(KernelIR& kernel, const MemoryAccess& a, const std::vector<Expr>& known) {
  Exprs& exprs = kernel.exprs;
  Expr sum = exprs.constant(0);
  for (size_t d = 0; d < a.at.size(); ++d)
    sum = exprs.add(sum, exprs.mul(import(kernel, a.at[d]), import(kernel, a.tensor_strides[d])));
  return resolved(exprs, sum, known);
}

Expr line_origin(KernelIR& kernel, const Problem& problem, const Schedule& schedule, DimId dim) {
  const Dim& along = schedule.dims[dim];
  const MemoryAccess& access = problem.accesses[along.line.access];
  Exprs& exprs = kernel.exprs;
  Expr offset = import(kernel, access.strides->rest);
  for (AxisId a : problem.order) {
    if (std::find(along.axes.begin(), along.axes.end(), a) != along.axes.end()) continue;
    Expr stride = import(kernel, access.strides->coefficients[a]);
    offset = exprs.add(offset, exprs.mul(stride, exprs.symbol(Symbol::Axis, a)));
  }
  return offset;
}

}  // namespace fuser::lower
