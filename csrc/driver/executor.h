// A definition that runs: its caches, from the exact key of a call down to compiled kernels.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/call.h"
#include "driver/explanation.h"
#include "driver/launch.h"

namespace fuser {

// One kernel of a call, for people.
struct KernelInfo {
  std::string name, text, ir, plan, schedule;
  int registers = 0, local_bytes = 0;  // per thread
  int grid = 0, threads = 0;           // blocks, threads of a block
  int shared_bytes = 0, cluster = 1;   // dynamic, per block; blocks of a cluster
  double build_seconds = 0.0;          // 0: it came from disk
};

class Executor {
 public:
  // Raises UserError for a definition without outputs. The fusion must outlive the executor.
  explicit Executor(const Fusion& fusion);
  ~Executor();
  Executor(const Executor&) = delete;

  const Fusion& fusion() const { return fusion_; }

  // The record of a call; plans, compiles and loads what is missing. Thread-safe; no lock is held
  // while compiling. `plans`: the user's changes, one per kernel, or empty.
  RecordRef record(const Arguments& arguments, const std::vector<Plan>& plans);
  bool is_compiled(const Arguments& arguments);

  // The same way down, for inspection; these compile nothing beyond planning.
  std::vector<Plan> plans(const Arguments& arguments, const std::vector<Plan>& wanted = {});
  std::string signature(const Arguments& arguments);
  Explanation explain(const Arguments& arguments);
  // The kernels of a record; last(): that of the latest call, or nullptr.
  static std::vector<KernelInfo> kernels(const Record& record);
  RecordRef last();
  // Kernels of a call that are not in memory yet are appended, to be built in one batch.
  void collect(const Arguments& arguments, const std::vector<Plan>& plans,
               std::vector<KernelText>& texts);

  // Calls whose sizes have the hints of these run these plans from now on.
  void prefer(const Arguments& arguments, const std::vector<Plan>& plans);

  void clear();

 private:
  Call prepare(const Arguments& arguments, const std::vector<Plan>& plans, bool prefer = false);
  RecordRef build(Call& call, const Arguments& arguments);
  std::shared_ptr<Specialized> specialized_for(const Arguments& arguments,
                                               const std::vector<bool>& overlapping, Key& key,
                                               SizeValues& values);

  const Fusion& fusion_;
  const KeyRules rules_;
  const std::shared_ptr<const std::string> name_;  // Record::name

  struct HashKey {
    size_t operator()(const Key& k) const { return hash_of(k); }
  };
  struct Entry {
    RecordRef record;
    uint64_t used = 0;
    int64_t runs = 0;
    bool specialized = false;  // or about to be
  };
  struct Records {
    std::mutex mutex;  // look-up, insertion and exchange only; of Variant::loaded too
    std::unordered_map<Key, Entry, HashKey> entries;
    void clear();
    uint64_t clock = 0;
    int specialized = 0;
    RecordRef last;
  };
  static bool should_specialize(Records& records, Entry& entry);
  void specialize_in_background(const Key& key, const RecordRef& record);
  // Shared with jobs in the background, which may outlive the executor.
  const std::shared_ptr<Records> records_ = std::make_shared<Records>();

  // Planning and lowering; never while compiling. A fork waits for it (hold_for_fork): nothing
  // under it takes the interpreter's lock.
  std::mutex plan_mutex_;
  friend void hold_for_fork();
  friend void let_go_after_fork();
  std::unordered_map<Key, std::shared_ptr<Specialized>, HashKey> specialized_;
};

// Around a fork: no thread is planning or changing records meanwhile, so that the child, which has
// none of these threads, finds nothing half done.
void hold_for_fork();
void let_go_after_fork();

struct CacheCounters {
  int64_t definitions = 0;                       // executors made
  int64_t plans = 0;                             // variants lowered
  int64_t hits = 0, misses = 0;                  // of records
  int64_t specialized = 0, not_specialized = 0;  // kernels; records whose kernels did not build
};
CacheCounters cache_counters();
// Empties the caches of every executor and sets the counters to 0.
void clear_executors();

}  // namespace fuser
