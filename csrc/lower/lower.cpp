#include "base/error.h"
#include "base/log.h"
#include "lower/passes.h"
#include "schedule/verify_schedule.h"

namespace fuser::lower {

using namespace fusion;
using namespace ir;
using namespace schedule;

namespace {

struct Pass {
  const char* name;
  void (*run)(KernelIR&);
  const char* reason;  // reason for the pass's position
};

// Passes in order. One of the builders makes the KernelIR before them.
constexpr Pass passes[] = {
    {"addresses", addresses, "first: all later passes see integers instead of axes"},
    {"parameters", parameters,
     "after addresses, whose divisions determine the divisors among the parameters"},
    {"cse", cse,
     "after parameters, so that the kernel computes only values that differ between threads"},
    {"canonicalize", canonicalize, "last: names follow the order of the final text"},
};

KernelIR build(const Problem& problem, const Schedule& schedule, bool index64) {
  switch (nest_kind(schedule)) {
    case NestKind::Linear:
      return build_pointwise(problem, schedule, index64);
    case NestKind::Rows:
      return build_reduction(problem, schedule, index64);
    case NestKind::Tiles:
      return build_staged(problem, schedule, index64);
  }
  FUSER_ASSERT(false, "a schedule of no kind");
}

KernelIR run_passes(KernelIR kernel, const std::string& name) {
  kernel.name = name;
  kernel.imported.clear();  // the problem may be destroyed before the kernel
  if (dump_enabled("build", name)) dump("build", name, to_text(kernel));
  verify(kernel);
  for (const Pass& pass : passes) {
    const bool dumped = dump_enabled(pass.name, name);
    const std::string before = dumped ? to_text(kernel) : std::string();
    pass.run(kernel);
    verify(kernel);
    if (!dumped) continue;
    const std::string after = to_text(kernel);
    dump(pass.name, name, after == before ? "(unchanged)\n" : after);
  }
  return kernel;
}

}  // namespace

KernelIR lower(const Problem& problem, const Schedule& schedule, bool index64,
               const std::string& name) {
  return run_passes(build(problem, schedule, index64), name);
}

KernelIR lower_cpu(const Problem& problem, const Schedule& schedule, bool index64,
                   const std::string& name) {
  return run_passes(build_cpu(problem, schedule, index64), name);
}

}  // namespace fuser::lower
