#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "lower/passes.h"

namespace fuser {
namespace {

struct Pass {
  const char* name;
  void (*run)(KernelIR&);
  const char* reason;  // why it stands there
};

// The pass list. `loops` comes before it: it makes the KernelIR.
constexpr Pass passes[] = {
    {"addresses", addresses, "first: everything after it sees plain integers, no axes"},
    {"parameters", parameters, "after addresses, whose divisions decide what becomes a divisor"},
    {"share", share, "after parameters, so that only what differs between threads is computed in the kernel"},
    {"renumber", renumber, "last: names follow the order of the final text"},
};

}  // namespace

KernelIR lower(const Problem& problem, const Schedule& schedule, bool index64, const std::string& name) {
  KernelIR kernel = loops(problem, schedule, index64);
  kernel.name = name;
  std::string before = to_text(kernel);
  if (dump_enabled("loops", name)) dump("loops", name, before);
  verify(kernel);
  for (const Pass& pass : passes) {
    pass.run(kernel);
    verify(kernel);
    if (dump_enabled(pass.name, name)) {
      std::string after = to_text(kernel);
      dump(pass.name, name, after == before ? std::string("(unchanged)\n") : after);
      before = std::move(after);
    }
  }
  return kernel;
}

}  // namespace fuser
