#include "driver/signature.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "driver/cuda/kernel_name.h"
#include "driver/target.h"
#include "fusion/build/define.h"

namespace fuser::driver {

using namespace fusion;
using namespace ir;

int64_t TensorView::numel() const {
  int64_t n = 1;
  for (int d = 0; d < rank; ++d) n *= sizes[d];
  return n;
}

int64_t TensorView::span() const {
  int64_t last = 0;
  for (int d = 0; d < rank; ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return last + 1;
}

uint64_t hash_of(const Key& key) {
  uint64_t h = 0x243f6a8885a308d3ull ^ key.size();
  for (uint64_t v : key) {
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
  }
  return h;
}

KeyRules key_rules(const Fusion& fusion) {
  KeyRules rules;
  std::unordered_set<int> scalars;
  const auto collect = [&](Expr root) {
    visit(root, [&](Expr e) {
      if (e->is_symbol(Symbol::Scalar)) scalars.insert(e->a);
    });
  };
  for (const Tensor& t : fusion.tensors)
    for (Expr e : t.shape) collect(e);
  for (const Constraint& c : fusion.constraints) {
    collect(c.left);
    collect(c.right);
  }
  rules.shape_scalars.assign(scalars.begin(), scalars.end());
  std::sort(rules.shape_scalars.begin(), rules.shape_scalars.end());
  rules.written.resize(fusion.inputs.size());
  for (const Output& o : fusion.outputs) {
    if (o.alias < 0) continue;
    rules.written[o.alias] = rules.in_place = true;
  }
  return rules;
}

void find_overlaps(const Arguments& arguments, const KeyRules& rules, std::vector<Overlap>& out) {
  struct Extent {
    const char *begin, *end;
    uint32_t tensor;
  };
  thread_local std::vector<Extent> extents;
  extents.clear();
  out.clear();
  for (uint32_t i = 0; i < arguments.tensors.size(); ++i) {
    const TensorView& t = arguments.tensors[i];
    const int64_t bytes = t.span() * size_of(t.dtype);
    if (bytes > 0) extents.push_back({t.data, t.data + bytes, i});
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t a = 0; a < extents.size(); ++a) {
    for (size_t b = a + 1; b < extents.size() && extents[b].begin < extents[a].end; ++b) {
      const uint32_t i = extents[a].tensor, j = extents[b].tensor;
      if (arguments.tensors[i].device != arguments.tensors[j].device) continue;
      if (rules.written[i]) out.push_back({i, j});
      if (rules.written[j]) out.push_back({j, i});
    }
  }
  std::sort(out.begin(), out.end());
}

bool writable(const TensorView& t) {
  // Sorted by stride, each dim must start past all elements of the inner dims.
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (int d = 0; d < t.rank; ++d) {
    if (t.sizes[d] == 0) return true;
    if (t.sizes[d] > 1) dims.emplace_back(t.strides[d], t.sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

void exact_key(const Arguments& arguments, const KeyRules& rules, Key& key) {
  key.push_back(uint64_t{device_key(arguments.device)} | uint64_t{arguments.tensors.size()} << 32 |
                uint64_t{arguments.scalars.size()} << 48);
  for (const TensorView& t : arguments.tensors) {
    key.push_back(static_cast<uint64_t>(t.dtype) | static_cast<uint64_t>(t.rank) << 8 |
                  static_cast<uint64_t>(reinterpret_cast<uintptr_t>(t.data) % 16 == 0) << 16 |
                  static_cast<uint64_t>(static_cast<uint32_t>(t.device)) << 32);
    for (int d = 0; d < t.rank; ++d) key.push_back(static_cast<uint64_t>(t.sizes[d]));
    // The stride of a dim of size 1 is never used.
    for (int d = 0; d < t.rank; ++d)
      key.push_back(t.sizes[d] == 1 ? 0 : static_cast<uint64_t>(t.strides[d]));
  }
  for (int s : rules.shape_scalars)
    key.push_back(static_cast<uint64_t>(arguments.scalars[s].integer));
  if (!rules.in_place) return;
  thread_local std::vector<Overlap> overlaps;
  find_overlaps(arguments, rules, overlaps);
  key.push_back(overlaps.size());
  for (const Overlap& o : overlaps) key.push_back(uint64_t{o.written} << 32 | o.other);
}

std::vector<LayoutClass> layout_classes(const Arguments& arguments) {
  std::vector<LayoutClass> out;
  for (const TensorView& t : arguments.tensors) {
    out.push_back(layout_class({t.sizes, static_cast<size_t>(t.rank)},
                               {t.strides, static_cast<size_t>(t.rank)}));
    out.back().on_cpu_scalar = arguments.device != cpu_device && t.device == cpu_device;
  }
  return out;
}

Key layout_key(const std::vector<LayoutClass>& layouts, const Arguments& arguments) {
  Key key;
  key.push_back(device_key(arguments.device));
  for (const LayoutClass& l : layouts) append_key(l, key);
  return key;
}

void append_layout_key(const Arguments& arguments, Key& key) {
  key.push_back(device_key(arguments.device));
  for (const TensorView& t : arguments.tensors) {
    const bool by_value = arguments.device != cpu_device && t.device == cpu_device;
    uint64_t one = by_value ? uint64_t{1} << 63 : 0, expanded = 0, contiguous = 0;
    const size_t at = key.size();
    key.resize(at + 3);
    for (int d = 0; d < t.rank; ++d) {
      if (t.sizes[d] == 1) {
        one |= uint64_t{1} << d;
      } else if (t.strides[d] == 0) {
        expanded |= uint64_t{1} << d;
      } else {
        // Insert behind all dims of larger or equal strides.
        key.push_back(static_cast<uint64_t>(d));
        for (size_t i = key.size() - 1; i > at + 3 && t.strides[key[i - 1]] < t.strides[d]; --i)
          std::swap(key[i], key[i - 1]);
      }
    }
    int64_t expected = 1;
    for (size_t i = key.size(); i-- > at + 3;) {
      const uint64_t d = key[i];
      contiguous |= uint64_t{t.strides[d] == expected} << (i - at - 3);
      expected = t.strides[d] * t.sizes[d];
    }
    key[at] = one, key[at + 1] = expanded, key[at + 2] = contiguous;
  }
}

std::string describe(const TensorView& t) {
  return text(row(t.dtype).torch, "[", joined(std::span(t.sizes, t.rank)), "] strides [",
              joined(std::span(t.strides, t.rank)), "] ",
              t.device == cpu_device ? "cpu" : text("cuda:", t.device));
}

namespace {

std::string defined(const Tensor& t) {
  return text("t", t.id, ": ", ir::describe(t),
              t.location.empty() ? "" : "  defined at " + t.location);
}

}  // namespace

void check_arguments(const Fusion& fusion, const Arguments& arguments) {
  for (size_t i = 0; i < fusion.inputs.size(); ++i) {
    const Tensor& t = *fusion.inputs[i];
    const TensorView& v = arguments.tensors[i];
    const auto where = [&] { return text("\n  ", defined(t), "\n  given: ", describe(v)); };
    FUSER_CHECK(v.rank == t.rank(), Shape, "argument-rank", "execute(): tensor input ", i,
                " has rank ", v.rank, ", expected ", t.rank(), where());
    FUSER_CHECK(v.dtype == t.dtype, DType, "argument-dtype", "execute(): tensor input ", i, " is ",
                row(v.dtype).torch, ", expected ", row(t.dtype).torch, where(),
                "\n  hint: convert it with .to(torch.", row(t.dtype).torch, ")");
    for (int d = 0; d < t.rank(); ++d)
      FUSER_CHECK(!t.shape[d]->is_constant() || t.shape[d]->value.integer == v.sizes[d], Shape,
                  "argument-size", "execute(): tensor input ", i, ", axis ", d,
                  ": the definition fixes size ", to_string(t.shape[d]), ", got ", v.sizes[d],
                  where(), "\n  hint: define the axis with -1 for sizes that vary");
    const bool cpu_scalar = v.device == cpu_device && v.rank == 0;
    FUSER_CHECK(
        v.device == arguments.device || cpu_scalar, User, "argument-device",
        "execute(): tensor input ", i, " is on another device than the other inputs (",
        arguments.device == cpu_device ? std::string("cpu") : text("cuda:", arguments.device), ")",
        where(),
        "\n  hint: move it with .to(device); only CPU tensors of rank 0 can be combined with CUDA "
        "tensors");
  }
  for (const Output& o : fusion.outputs) {
    if (o.alias < 0) continue;
    const TensorView& v = arguments.tensors[o.alias];
    FUSER_CHECK(writable(v), User, "argument-in-place", "execute(): tensor input ", o.alias,
                " is written in place, but several of its elements share one address\n  given: ",
                describe(v), "\n  hint: pass a contiguous copy");
    FUSER_CHECK(
        v.device == arguments.device, User, "argument-device", "execute(): tensor input ", o.alias,
        " is written in place and must be on the device of the call\n  given: ", describe(v));
  }
}

int64_t SizeLeaf::operator()(Symbol s, int a, int b) const {
  if (s == Symbol::Size) return arguments.tensors[a].sizes[b];
  if (s == Symbol::Stride) return arguments.tensors[a].strides[b];
  FUSER_ASSERT(s == Symbol::Scalar, "a size depends on a symbol of the kernel");
  return arguments.scalars[a].integer;
}

Constraints constraints_of(Fusion& fusion) {
  Constraints out;
  for (const Constraint& c : fusion.constraints)
    out.equal.emplace_back(out.program.add(c.left), out.program.add(c.right));
  for (const NonEmpty& n : fusion.nonempty) out.nonempty.push_back(out.program.add(n.extent));
  std::unordered_set<Expr> seen;
  for (const Tensor& t : fusion.tensors)
    for (int d = 0; d < t.rank(); ++d) {
      const Expr e = t.shape[d];
      if (e->is_constant())
        out.constant = std::max(out.constant, e->value.integer);
      else if (!e->is_symbol(Symbol::Size) && seen.insert(e).second)
        out.computed.push_back({.slot = out.program.add(e), .dim = d, .tensor = &t});
    }
  out.nestings = open_nestings(fusion);
  for (const Nesting& n : out.nestings)
    out.nesting_slots.emplace_back(out.program.add(n.left), out.program.add(n.right));
  return out;
}

int64_t largest_size(const Constraints& constraints, const Arguments& arguments,
                     const SizeValues& values) {
  int64_t largest = constraints.constant;
  for (const TensorView& t : arguments.tensors)
    for (int d = 0; d < t.rank; ++d) largest = std::max(largest, t.sizes[d]);
  for (const Constraints::Size& s : constraints.computed)
    largest = std::max(largest, values[s.slot]);
  return largest;
}

namespace {

// Returns the dims that must broadcast for the first violated constraint; empty if all hold.
BroadcastDims check_constraints(const Fusion& fusion, const Constraints& constraints,
                                const SizeValues& values) {
  for (size_t i = 0; i < constraints.equal.size(); ++i) {
    const auto [left_slot, right_slot] = constraints.equal[i];
    const int64_t left = values[left_slot], right = values[right_slot];
    if (left == right) continue;
    const Constraint& c = fusion.constraints[i];
    if (c.left_dim >= 0 && left == 1) return dims_of_size(c, false);
    if (c.right_dim >= 0 && right == 1) return dims_of_size(c, true);
    const bool same = c.left_tensor == c.right_tensor;
    throw Fault(FaultKind::Shape, c.law.rule,
                text(c.op, ": ", c.law.broken, "\n  ", defined(*c.left_tensor),
                     same ? std::string() : "\n  " + defined(*c.right_tensor), "\n  axis ", c.axis,
                     ": ", left, " against ", right, "; expected ", c.law.expected,
                     left < 0 || right < 0 ? "\n  hint: -1 is inferred only if it is a number in "
                                             "the definition, not a scalar input"
                                           : ""));
  }
  for (size_t i = 0; i < constraints.nonempty.size(); ++i)
    if (values[constraints.nonempty[i]] == 0) raise_empty(fusion.nonempty[i]);
  for (const Constraints::Size& s : constraints.computed)
    FUSER_CHECK(values[s.slot] >= 0, Shape, "size-1", op_of(*s.tensor), "(): axis ", s.dim,
                " has a computed size of ", values[s.slot], "; expected at least 0\n  ",
                defined(*s.tensor));
  return {};
}

bool add_nesting(const Nesting& nesting, KnownSizes& known) {
  if (const auto* parts = std::get_if<Nesting::Parts>(&nesting.known))
    return known.parts.try_emplace(parts->tensor, parts->outer, parts->inner).second;
  const auto& size = std::get<Nesting::Size>(nesting.known);
  return known.sizes.try_emplace({size.input, size.dim}, size.is).second;
}

}  // namespace

bool learn_sizes(const Fusion& fusion, const Constraints& constraints, const SizeValues& values,
                 KnownSizes& known, Key& key) {
  const BroadcastDims ones = check_constraints(fusion, constraints, values);
  for (const auto& [tensor, dim] : ones) {
    const bool fresh = known.ones.insert({tensor, dim}).second;
    FUSER_ASSERT(fresh, "dim ", dim, " of t", tensor, " does not broadcast");
    key.push_back(static_cast<uint64_t>(tensor) << 32 | static_cast<uint64_t>(dim));
  }
  if (!ones.empty()) return true;
  const size_t before = key.size();
  for (size_t i = 0; i < constraints.nestings.size(); ++i) {
    const auto [left, right] = constraints.nesting_slots[i];
    if (values[left] == 0 || values[left] != values[right]) continue;
    // distinguishes a nesting from a dim that broadcasts
    constexpr uint64_t mark = uint64_t{1} << 63;
    if (add_nesting(constraints.nestings[i], known)) key.push_back(mark | i);
  }
  return key.size() > before;
}

}  // namespace fuser::driver
