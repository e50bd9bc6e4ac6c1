#include "host/tasks.h"

namespace fuser::host {
namespace {

struct TaskCall {
  void (*run)(void* const* args, int64_t begin, int64_t end);
  void* const* args;
};

void run_range(void* context, uint64_t begin, uint64_t end) {
  const TaskCall& call = *static_cast<const TaskCall*>(context);
  call.run(call.args, static_cast<int64_t>(begin), static_cast<int64_t>(end));
}

}  // namespace

void run_tasks(const HostKernel& kernel, int64_t tasks, void* const* args, int threads, Team team) {
  TaskCall call{kernel.entry->run_tasks, args};
  if (tasks > 0) parallel_for(static_cast<uint64_t>(tasks), threads, run_range, &call, team);
}

}  // namespace fuser::host
