// Execution of a definition: its caches, from the exact key of a call down to compiled kernels.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/call.h"
#include "driver/explanation.h"
#include "driver/launch.h"

namespace fuser::driver {

// Description of one kernel of a call, for the user.
struct KernelInfo {
  std::string name, text, ir, plan, schedule;
  int registers = 0, local_bytes = 0;  // registers, and bytes of local memory per thread
  int grid = 0, threads = 0;           // blocks of the grid, threads of a block
  int shared_bytes = 0, cluster = 1;   // bytes of dynamic shared memory per block, blocks of a
                                       // cluster
  double build_seconds = 0.0;          // 0: loaded from disk
  std::string isa;                     // instruction set of a CPU kernel, else empty
};

class Executor {
 public:
  // Raises UserError for a definition without outputs. The fusion must outlive the executor.
  explicit Executor(const ir::Fusion& fusion);
  ~Executor();
  Executor(const Executor&) = delete;

  const ir::Fusion& fusion() const { return fusion_; }

  // Returns the launch record of a call. Plans, compiles and loads missing kernels. Thread-safe; no
  // lock is held while compiling. `plans`: the user's changes, one per kernel, or empty.
  RecordRef record(const Arguments& arguments, const std::vector<schedule::Plan>& plans);
  bool is_compiled(const Arguments& arguments);

  // Inspect a call: like record(), but they only plan and do not compile.
  std::vector<schedule::Plan> plans(const Arguments& arguments,
                                    const std::vector<schedule::Plan>& wanted = {});
  // Returns the texts of the schedules of these plans, one per kernel.
  std::vector<std::string> schedules(const Arguments& arguments,
                                     const std::vector<schedule::Plan>& wanted);
  std::string signature(const Arguments& arguments);
  Explanation explain(const Arguments& arguments);
  // Return the kernels of a record, and the record of the latest call or nullptr.
  static std::vector<KernelInfo> kernels(const Record& record);
  RecordRef last();
  // Appends the kernels of a call that are not in memory yet, so that they are built in one batch.
  void collect(const Arguments& arguments, const std::vector<schedule::Plan>& plans,
               std::vector<codegen::KernelText>& texts);

  // Makes these plans the default for calls with the same answers to guards as these arguments.
  void prefer(const Arguments& arguments, const std::vector<schedule::Plan>& plans);

  void clear();

 private:
  Call prepare(const Arguments& arguments, const std::vector<schedule::Plan>& plans,
               bool prefer = false);
  RecordRef build(Call& call, const Arguments& arguments);
  std::shared_ptr<Specialized> specialized_for(const Arguments& arguments,
                                               const std::vector<bool>& overlapping, Key& key,
                                               SizeValues& values);

  const ir::Fusion& fusion_;
  const KeyRules rules_;
  const std::shared_ptr<const std::string> name_;  // Record::name

  struct HashKey {
    size_t operator()(const Key& k) const { return hash_of(k); }
  };
  struct Entry {
    RecordRef record;
    uint64_t used = 0;
    int64_t runs = 0;
    bool specialized = false;  // specialized kernels exist or are being built
  };
  struct Records {
    std::mutex mutex;  // look-up, insertion and exchange only; also protects Variant::loaded
    std::unordered_map<Key, Entry, HashKey> entries;
    void clear();
    uint64_t clock = 0;
    int specialized = 0;
    RecordRef last;
  };
  static bool should_specialize(Records& records, Entry& entry);
  void specialize_in_background(const Key& key, const RecordRef& record);
  // Shared with background jobs, which may outlive the executor.
  const std::shared_ptr<Records> records_ = std::make_shared<Records>();

  // Protects planning and lowering, never compilation. A fork waits for it (lock_for_fork), so the
  // interpreter's lock must not be taken while it is held.
  std::mutex plan_mutex_;
  friend void lock_for_fork();
  friend void unlock_after_fork();
  std::unordered_map<Key, std::shared_ptr<Specialized>, HashKey> specialized_;
};

// Called around a fork. No thread plans or changes records meanwhile, so the child, which has only
// the forking thread, finds consistent data.
void lock_for_fork();
void unlock_after_fork();

struct CacheCounters {
  int64_t definitions = 0;                       // executors created
  int64_t plans = 0;                             // variants lowered
  int64_t hits = 0, misses = 0;                  // record look-ups
  int64_t specialized = 0, not_specialized = 0;  // specialized kernels; records whose specialized
                                                 // kernels failed to build
};
CacheCounters cache_counters();
// Empties the caches of every executor and resets the counters.
void clear_executors();

}  // namespace fuser::driver
