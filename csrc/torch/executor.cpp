#include "torch/executor.h"

#include "base/error.h"
#include "base/log.h"
#include "torch/random.h"

namespace fuser::bridge {

using namespace driver;
using namespace ir;
using namespace schedule;

namespace {

void log_record(const Record& record) {
  for (const KernelInfo& k : Executor::kernels(record))
    log(text("launch ", k.name, " grid ", k.grid, " ", k.plan, " registers ", k.registers,
             " built in ", std::lround(k.build_seconds * 1e3), " ms"));
}

}  // namespace

bool python_alive() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

RecordRef prepare(Executor& executor, TorchArguments& arguments, const std::vector<Plan>& plans) {
  RecordRef record = executor.record(arguments.view(), plans);
  if (log_enabled()) log_record(*record);
  // Take random numbers last: a rejected call must not advance the generator.
  if (const RandomState& random = executor.fusion().random; random.ops > 0) {
    const RandomPosition at = take_random_position(arguments.device, random.ops);
    arguments.scalars[random.seed] = {.integer = at.seed};
    arguments.scalars[random.offset] = {.integer = at.offset};
    if (at.seed_at) {
      arguments.added.assign(arguments.scalars.size(), nullptr);
      arguments.added[random.seed] = at.seed_at;
      arguments.added[random.offset] = at.offset_at;
    }
  }
  return record;
}

}  // namespace fuser::bridge
