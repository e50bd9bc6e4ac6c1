#include "program/in_place.h"

#include <algorithm>
#include <iterator>

namespace fuser::program {

using namespace fusion;
using namespace ir;

namespace {

// Returns whether value `v` is an operand, directly or not, of a value of `group` that varies along
// axes outside `kept`, or of a reduction.
bool reaches_rows(const Refined& group, ValueId v, AxisSet kept) {
  std::vector<bool> from(group.values.size(), false);
  from[v] = true;
  for (size_t i = static_cast<size_t>(v) + 1; i < group.values.size(); ++i) {
    const Value& value = group.values[i];
    bool found = false;
    visit_operands(value, [&](ValueId operand) { found |= from[operand]; });
    if (!found) continue;
    if ((value.axes & ~kept) || std::holds_alternative<Reduced>(value.how)) return true;
    from[i] = true;
  }
  return false;
}

const Store* store_of(const Refined& group, int output) {
  for (const Store& s : group.stores)
    if (s.output == output) return &s;
  return nullptr;
}

bool is_read_of(const Value& v, const Tensor* input) {
  const auto* read = std::get_if<Read>(&v.how);
  return read && read->output < 0 && v.tensor == input;
}

bool reads(const Refined& group, const Tensor* t) {
  return std::any_of(group.values.begin(), group.values.end(),
                     [&](const Value& v) { return is_read_of(v, t); });
}

// Returns whether each thread reads only the elements of `target` that it stores itself, and reads
// them before its store. This holds at equal coordinates, in a group with reductions for reads
// - over all axes: every phase maps a thread to the same elements, and the store is in the last
//   phase;
// - over kept axes alone, unless a value over the reduced axes depends on the read. All threads of
//   a row would read the element, and one of them may store it while the other threads need it.
bool reads_own_elements(const Refined& group, const Store& store, const Tensor* target) {
  const AxisSet all = (group.axes.size() < 64 ? AxisSet{1} << group.axes.size() : 0) - 1;
  const ReductionSets sets = reduction_sets(group).value();
  const AxisSet reduced = sets.rows ? sets.rows : sets.columns;
  for (size_t i = 0; i < group.values.size(); ++i) {
    const Value& v = group.values[i];
    if (!is_read_of(v, target)) continue;
    if (v.at != store.at) return false;
    if (!reduced || v.axes == all) continue;
    if (v.axes != (all & ~reduced)) return false;
    if (reaches_rows(group, static_cast<ValueId>(i), v.axes)) return false;
  }
  return true;
}

// Calls f(input, output) for all memory that this step reads; one of the two is -1.
template <class F>
void visit_reads(const Step& step, const std::vector<GroupKernels>& kernels, const F& f) {
  if (const auto* call = std::get_if<LibraryCall>(&step)) {
    for (const LibraryCall::Source& s : call->args) f(s.input, s.output);
    return;
  }
  for (const Value& v : kernels[std::get<KernelStep>(step).group].whole.values) {
    const auto* read = std::get_if<Read>(&v.how);
    if (!read) continue;
    const auto* input = std::get_if<Input>(&v.tensor->definition);
    f(read->output < 0 && input ? input->index : -1, read->output);
  }
}

// Returns the last step that reads each tensor input, or -1.
std::vector<int> last_reads(const Program& program, const Fusion& fusion,
                            const std::vector<GroupKernels>& kernels) {
  std::vector<int> out(fusion.inputs.size(), -1);
  for (size_t i = 0; i < program.steps.size(); ++i)
    visit_reads(program.steps[i], kernels, [&](int input, int) {
      if (input >= 0) out[input] = static_cast<int>(i);
    });
  return out;
}

}  // namespace

void write_after_reads(Program& program, const Fusion& fusion,
                       const std::vector<GroupKernels>& kernels) {
  const std::vector<int> last = last_reads(program, fusion, kernels);
  std::vector<bool> read(fusion.outputs.size(), false);
  for (const Step& step : program.steps)
    visit_reads(step, kernels, [&](int, int output) {
      if (output >= 0) read[output] = true;
    });
  std::vector<Step> early, late;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const auto* kernel = std::get_if<KernelStep>(&program.steps[i]);
    bool overwrites = false, gives = false;
    if (kernel) {
      for (const Store& s : kernels[kernel->group].whole.stores) {
        const int input = fusion.outputs[s.output].alias;
        overwrites |= input >= 0 && last[input] > static_cast<int>(i);
        gives |= read[s.output];
      }
    }
    (overwrites && !gives ? late : early).push_back(std::move(program.steps[i]));
  }
  std::move(late.begin(), late.end(), std::back_inserter(early));
  program.steps = std::move(early);
}

namespace {

// Returns whether `kernels`, which run as step `at`, may store output `output` into its alias
// input. That requires that no later step reads this memory. GroupKernels of the same fission may
// read it before the store.
bool may_store_in_place(const Fusion& fusion, const GroupKernels& kernels, int output, int at,
                        const std::vector<int>& last_read, const std::vector<bool>& overlapping) {
  const int input = fusion.outputs[output].alias;
  if (input < 0 || overlapping[input] || last_read[input] > at) return false;
  const Tensor* target = fusion.inputs[input];
  if (!reads_own_elements(kernels.whole, *store_of(kernels.whole, output), target)) return false;
  bool stored = false;
  for (const Refined& kernel : kernels.fission) {
    const Store* here = store_of(kernel, output);
    if (stored && reads(kernel, target)) return false;
    if (here && !reads_own_elements(kernel, *here, target)) return false;
    stored |= here != nullptr;
  }
  return true;
}

}  // namespace

std::vector<bool> find_in_place(const Program& program, const Fusion& fusion,
                                const std::vector<GroupKernels>& kernels,
                                const std::vector<bool>& overlapping) {
  const std::vector<int> last = last_reads(program, fusion, kernels);
  std::vector<bool> out(fusion.outputs.size(), false);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const auto* kernel = std::get_if<KernelStep>(&program.steps[i]);
    if (!kernel) continue;
    const GroupKernels& k = kernels[kernel->group];
    for (const Store& s : k.whole.stores)
      out[s.output] =
          may_store_in_place(fusion, k, s.output, static_cast<int>(i), last, overlapping);
  }
  return out;
}

}  // namespace fuser::program
