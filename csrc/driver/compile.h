// The top-level functions of compilation: from a Fusion and the classes of its arguments to a
// Program of kernels.
//
// specialize_fusion() depends on layouts only, once per level-2 key. Variants of a kernel differ by
// answers to guards and index width. A launch record adds exact sizes. See signature.h.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "driver/cuda/kernels.h"
#include "driver/signature.h"
#include "ir/kernel.h"
#include "program/program.h"
#include "program/views.h"
#include "schedulers/scheduler.h"

namespace fuser::driver {

// One way to run one kernel of a specialized fusion.
struct Variant {
  bool fission = false;  // True if the kernels of Group::fission run instead; no other field is set
  schedule::Plan plan;
  schedule::Schedule schedule;
  ir::KernelIR ir;
  codegen::KernelText text;
  ir::IntProgram sizes;           // integer parameters, elements of buffers, blocks
  std::vector<int> param_slots;   // slot of `sizes` by parameter; -1: not an integer
  std::vector<int> buffer_slots;  // slot of the element count by buffer; -1: not scratch
  int blocks_slot = 0, shared_slot = 0;

  // Loaded kernels, so that a new shape need not look them up by text. Protected by the lock of the
  // executor's records.
  mutable LoadedKernelRef loaded, loaded_horizontal;  // kernel of one set of arguments, and of a
                                                      // horizontal fusion
};

// A group of outputs that one kernel computes.
struct Group {
  fusion::Problem problem;
  const schedulers::Scheduler* scheduler = nullptr;
  fusion::GuardSizes guards;                               // extents, and sizes that guards ask for
  std::vector<int> extent_slots;                           // by axis
  std::vector<fusion::AxisSet> store_axes;                 // by store
  std::map<Key, std::shared_ptr<const Variant>> variants;  // by plan, device and index width
  // Variants by the answers to guards, for a device and index width. A new size with known answers
  // needs no planning.
  std::map<Key, fusion::GuardTree<std::shared_ptr<const Variant>>> by_answers;
  // Kernels of the group's fission, as indices into Specialized::groups. They exchange temporaries,
  // and run instead of the group's kernel if the scheduler decides so (UseFission). Empty if
  // `fission_kind` is None. One of them may have a fission itself.
  std::vector<int> fission;
  fusion::Fission fission_kind = fusion::Fission::None;
};

struct Specialized {
  ir::Fusion fusion;
  std::vector<fusion::LayoutClass> layouts;
  std::vector<bool> in_place;  // by output: stored straight into its alias input
  std::deque<Group> groups;    // groups of a fission come after the group that they replace
  program::Program program;    // steps of the groups that belong to no fission
  Constraints constraints;
  ir::IntProgram shapes;                           // sizes of the outputs
  std::vector<std::vector<int>> shape_slots;       // slots of `shapes` by output and dim
  std::vector<program::ViewSlots> views;           // slots of `shapes` by output
  std::vector<fusion::FusionBreak> fusion_breaks;  // ops that were not fused, for the user
};

// Returns the fusion specialized to these layouts. overlapping[i]: tensor input i is written in
// place and another argument shares its memory. kind: a CPU scheduler takes each group that one
// accepts if it is Cpu. known: result of learn_sizes().
std::unique_ptr<Specialized> specialize_fusion(const ir::Fusion& fusion,
                                               std::vector<fusion::LayoutClass> layouts,
                                               const std::vector<bool>& overlapping,
                                               schedule::Device::Kind kind,
                                               const fusion::KnownSizes& known = {});

// Sizes that select a group's variant.
struct GroupSizes {
  std::vector<int64_t> extents;  // by axis
  fusion::CallSizes sizes;       // values that guards read
  bool index64 = false;          // indices need 64 bits
  bool empty = false;            // the group has nothing to store
};
// Returns the sizes of a group in this call. largest: result of largest_size().
GroupSizes group_sizes(const Group& group, const Arguments& arguments, int64_t largest);
// Returns the hints that the group's scheduler plans with. They refer to all three arguments.
fusion::SizeHints hints_for(Group& group, GroupSizes& sizes, const Arguments& arguments);

// Returns the variant for these sizes, planned and lowered but not yet loaded. `wanted` is the
// user's plan or nullptr; it is ignored if the group's values are computed by fission. `prefer`:
// use this variant for all sizes with these answers from now on.
std::shared_ptr<const Variant> find_variant(Group& group, GroupSizes& sizes,
                                            const Arguments& arguments,
                                            const schedule::Plan* wanted, bool prefer);
// Returns the plan of a decision with the fields that the user changed. Raises UserError "plan-1"
// if the scheduler does not allow a change, and "plan-2" if it has no such field.
schedule::Plan changed_plan(const Group& group, const schedulers::Decision& decision,
                            const schedule::Plan& wanted);
// Returns the schedule of a plan: the one written by hand if the plan has one. Raises UserError
// "schedule-1" to "schedule-4" for an illegal one.
schedule::Schedule scheduled(Group& group, const schedulers::Decision& decision,
                             const schedule::Plan& plan);

}  // namespace fuser::driver
