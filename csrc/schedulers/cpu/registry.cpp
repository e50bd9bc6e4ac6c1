#include "schedulers/schedulers.h"

namespace fuser {

std::span<const Scheduler> cpu_schedulers() { return {}; }

}  // namespace fuser
