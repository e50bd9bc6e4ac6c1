// Guards: questions about the sizes of a call that a scheduler asks while it plans a kernel.
//
// The answers are all that a plan may know about sizes. SizeHints answers a guard from the sizes of
// one call and records it. Planning is deterministic: equal answers so far lead to the same next
// guard. The guards of a kernel therefore form a decision tree (GuardTree), whose leaves hold what
// was planned. A call with known answers walks the tree and needs no planning.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fusion/kernel/problem.h"
#include "ir/expr.h"

namespace fuser::fusion {

struct Guard {
  enum class Kind : uint8_t {
    Divides,  // True if `divisor` divides the size
    Bucket,   // bucket_of() the size
    Aligned,  // True if the address of the buffer is a multiple of 16 bytes
    OneWave,  // CallSizes::one_wave
  };
  Kind kind{};
  int subject = 0;          // slot of the size in GuardSizes::program, or buffer
  int64_t divisor = 1;      // of Divides
  ir::Expr size = nullptr;  // of Divides and Bucket, in GuardSizes::exprs
  bool operator==(const Guard&) const = default;
};

// A guard and its answer in one call: a bucket, or 0 or 1.
struct Answer {
  Guard guard;
  int value = 0;
};
// Returns "8 divides size(t0, 1): yes".
std::string to_string(const Answer& answer);

// The sizes that guards of one kernel ask for, in all calls.
struct GuardSizes {
  ir::Exprs exprs;         // arena of expressions that only guards need
  ir::IntProgram program;  // sizes by slot
};

// Sizes and addresses of one call, as guards read them.
struct CallSizes {
  std::vector<int64_t> values;  // by slot of GuardSizes::program
  std::vector<bool> aligned;    // by buffer: True if its address is a multiple of 16 bytes
  // True if the kernel has one to four elements per resident thread of a large GPU.
  bool one_wave = false;
};
int answer(const Guard& guard, const CallSizes& sizes);

// bucket_of() returns the bucket of a size, in steps of a quarter of an octave: the smallest bucket
// that contains `value`. bucket_limit() returns the largest size of a bucket.
int bucket_of(int64_t value);
int64_t bucket_limit(int bucket);

// Size hints: the sizes of one call as a scheduler sees them. Each question becomes a guard; a
// question with the same answer in all calls does not.
class SizeHints {
 public:
  // The arguments must outlive the hints. `leaf` reads the sizes of the call.
  SizeHints(const Problem& problem, Fission fission, GuardSizes& guards, CallSizes& sizes,
            ir::IntProgram::Leaf leaf);

  bool divides(ir::Expr value, int64_t divisor);
  // Returns the upper limit of the bucket of an extent.
  int64_t at_most(ir::Expr extent);
  // Returns whether the address of a buffer is a multiple of 16 bytes.
  bool aligned(int buffer);
  bool one_wave();

  // Arena for the expressions of questions. It contains the problem's expressions.
  ir::Exprs& exprs() { return guards_.exprs; }
  Fission fission() const { return fission_; }
  // The guards in the order in which they were asked first.
  const std::vector<Answer>& answers() const { return answers_; }

 private:
  int ask_size(Guard::Kind kind, ir::Expr size, int64_t divisor);
  int record(const Guard& guard);

  const Problem& problem_;
  const Fission fission_;  // kernels that can replace this kernel
  GuardSizes& guards_;
  CallSizes& sizes_;
  const ir::IntProgram::Leaf leaf_;
  std::vector<Answer> answers_;
  std::vector<size_t> of_sizes_;     // indices of the answers about sizes
  std::vector<bool> asked_aligned_;  // by buffer: True if Aligned is among the answers
  bool asked_one_wave_ = false;      // True if OneWave is
};

// Decision tree over the answers to guards.
template <class T>
class GuardTree {
 public:
  // Returns what insert() stored for the answers of this call, or nullptr.
  const T* find(const CallSizes& sizes) const {
    for (int at = nodes_.empty() ? -1 : 0; at >= 0;) {
      const Node& node = nodes_[at];
      if (node.branches.empty()) return &node.planned;
      at = branch(node, answer(node.guard, sizes));
    }
    return nullptr;
  }

  // Stores what was planned with these answers, and replaces what was stored for them before.
  void insert(const std::vector<Answer>& answers, T planned) {
    if (nodes_.empty()) nodes_.emplace_back();
    int at = 0;
    for (const Answer& a : answers) {
      const bool is_new = nodes_[at].branches.empty();
      FUSER_ASSERT(is_new ? !nodes_[at].planned : nodes_[at].guard == a.guard,
                   "planning asks different questions after equal answers");
      nodes_[at].guard = a.guard;
      int next = branch(nodes_[at], a.value);
      if (next < 0) {
        next = static_cast<int>(nodes_.size());
        nodes_[at].branches.emplace_back(a.value, next);
        nodes_.emplace_back();
      }
      at = next;
    }
    FUSER_ASSERT(nodes_[at].branches.empty(), "planning asks fewer questions after equal answers");
    nodes_[at].planned = std::move(planned);
  }

 private:
  struct Node {
    Guard guard;
    std::vector<std::pair<int, int>> branches;  // answers and the nodes that they lead to
    T planned{};                                // of a leaf
  };
  static int branch(const Node& node, int answer) {
    for (const auto& [value, next] : node.branches)
      if (value == answer) return next;
    return -1;
  }
  std::vector<Node> nodes_;  // the root first
};

}  // namespace fuser::fusion
