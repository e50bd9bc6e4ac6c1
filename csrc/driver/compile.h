// THE top-level function: from a Fusion and the classes of its arguments to a Program of compiled
// kernels.
//
// specialize_fusion() depends on layouts only (one per level-2 key); variants within it differ by
// facts, alignment and index width, and a record adds exact sizes. See signature.h.
#pragma once

#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "driver/kernels.h"
#include "driver/signature.h"
#include "ir/kernel.h"
#include "schedulers/scheduler.h"

namespace fuser {

// One way to run one kernel of a specialized fusion. Where the plan is in pieces, nothing but it.
struct Variant {
  Plan plan;
  Schedule schedule;
  KernelIR ir;
  KernelText text;
  IntProgram sizes;               // integer parameters, elements of buffers, blocks
  std::vector<int> param_slots;   // by parameter; -1: not an integer
  std::vector<int> buffer_slots;  // elements, by buffer; -1: not scratch
  int blocks_slot = 0, shared_slot = 0;

  // The kernel once it was loaded, so that a new shape need not look for it by its text. Under
  // the lock of the executor's records.
  mutable LoadedKernelRef loaded, loaded_parts;  // of one set of arguments, of several
};

// The kernel-to-be of one group of outputs.
struct Group {
  Problem problem;
  const Scheduler* scheduler = nullptr;
  Verdict verdict;
  IntProgram sizes;                                        // extents, facts and buckets
  std::vector<int> extent_slots;                           // by axis
  std::vector<int> fact_slots;                             // by fact
  std::vector<int> bucket_slots;                           // by Verdict::extents
  std::vector<AxisSet> store_axes;                         // by store
  std::map<Key, std::shared_ptr<const Variant>> variants;  // by plan, device and index width
  // What the hints seen so far led to: a new size with known hints plans nothing.
  std::map<Key, std::shared_ptr<const Variant>> by_hints;
  // The same values as several kernels that hand over temporaries, by index into
  // Specialized::groups; run instead where the plan says so (`Plan::in_pieces`). Empty where
  // `pieces_are` None. One of them may be in pieces itself.
  std::vector<int> pieces;
  Pieces pieces_are = Pieces::None;
};

// Steps of a Program, in order.
struct KernelStep {
  int group = 0;
};
struct CopyStep {  // an in-place output that could not be stored directly: temporary -> input
  int output = 0;
};
using Step = std::variant<KernelStep, LibraryCall, CopyStep>;
struct Program {
  std::vector<Step> steps;
};

struct Specialized {
  Fusion fusion;
  std::vector<LayoutClass> layouts;
  std::vector<bool> in_place;  // by output: stored straight into its alias input
  std::vector<Group> groups;   // those that are pieces of another one stand behind it
  Program program;             // the steps of groups that are no pieces
  Constraints constraints;
  IntProgram shapes;                          // sizes of the outputs
  std::vector<std::vector<int>> shape_slots;  // by output and dim
  struct ViewSlots {
    int input = -1, output = -1;  // whose view the output is; -1: of none
    int offset = 0;
    std::vector<int> strides;
  };
  std::vector<ViewSlots> views;   // by output, in `shapes`
  std::vector<Parting> partings;  // for people: what was not fused
};

// overlapping[i]: tensor input i is written in place and another argument shares its memory. known:
// what learn_sizes() found.
std::unique_ptr<Specialized> specialize_fusion(const Fusion& fusion,
                                               std::vector<LayoutClass> layouts,
                                               const std::vector<bool>& overlapping,
                                               const KnownSizes& known = {});

// The device a plan is made for.
Device planning_device(int device);
Target target_of(int device);

// What a group's variant is chosen by: the answers of facts and buckets, the alignment of each
// buffer, the index width.
struct GroupSizes {
  std::vector<int64_t> extents;  // by axis
  Hints hints;                   // the questions are filled in when a plan is made
  bool empty = false;            // nothing to store
};
// largest: largest_size().
GroupSizes group_sizes(Group& group, const Arguments& arguments, int64_t largest);

// The variant for these sizes, planned and lowered but not yet loaded. `wanted`: the user's plan,
// or nullptr; it does not count where the group's values are computed in pieces. `prefer`: it is
// the one for all sizes with these hints from now on.
std::shared_ptr<const Variant> find_variant(Group& group, GroupSizes& sizes,
                                            const Arguments& arguments, const Plan* wanted,
                                            bool prefer);
// The plan with the fields that the user wants otherwise. Raises UserError "plan-1" where the
// scheduler does not allow it, "plan-2" for a field that it does not have.
Plan changed_plan(Group& group, const Plan& planned, const Plan& wanted);

}  // namespace fuser
