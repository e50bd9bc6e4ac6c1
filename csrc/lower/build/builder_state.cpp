#include "lower/build/builder_state.h"

#include <algorithm>

namespace fuser::lower {

using namespace fusion;
using namespace ir;
using namespace schedule;

int BuilderState::new_array(std::string name, DType dtype, int extent, std::optional<State> state,
                            int chunk) {
  kernel.arrays.push_back(
      {.name = std::move(name), .dtype = dtype, .extent = extent, .state = state, .chunk = chunk});
  return static_cast<int>(kernel.arrays.size()) - 1;
}

KernelIR declare_kernel(const Problem& problem, const Schedule& schedule, bool index64) {
  KernelIR kernel;
  kernel.threads = schedule.launch.threads;
  kernel.min_blocks = schedule.launch.min_blocks_per_sm;
  kernel.cooperative =
      std::any_of(schedule.reductions.begin(), schedule.reductions.end(),
                  [](const Combination& c) { return c.finish == Finish::Cooperative; });
  kernel.index64 = index64;
  declare_buffers(problem, kernel);
  return kernel;
}

}  // namespace fuser::lower
