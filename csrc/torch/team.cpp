#include "torch/team.h"

#include <ATen/Parallel.h>
#include <pthread.h>

namespace fuser::bridge {
namespace {

void run_on_torch_threads(int count, void (*run)(void* context, int index), void* context) {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(context, static_cast<int>(i));
  });
}

bool is_forked = false;

}  // namespace

host::Team team() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { is_forked = true; });
  const bool usable = registered == 0 && !is_forked;
#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
  return nullptr;
#endif
  return usable ? run_on_torch_threads : nullptr;
}

}  // namespace fuser::bridge
