// Explanation of a call for the user: the steps that it runs and the memory that they access
// (fuser.explain).
#pragma once

#include <string>
#include <vector>

#include "driver/call.h"

namespace fuser::driver {

// Steps of a call. Each lists its reads and writes, counting whole tensors once.
struct Explanation {
  struct Use {
    int tensor = 0;  // tensor id
    int64_t bytes = 0;
  };
  struct Step {
    std::string kind, name, plan;  // kind: kernel, library or copy
    std::vector<Use> reads, writes;
    std::vector<int> computes;  // tensor ids, ascending; a rematerialized tensor is in several
                                // steps
    double slots = 0.0;         // issue slots of a kernel: fusion/segment/issue_slots.h
  };
  std::vector<Step> steps;
  int64_t ideal_bytes = 0;  // bytes of each input that is read and of each result, once
  std::vector<fusion::FusionBreak> fusion_breaks;
};
Explanation explanation_of(const Call& call, const Arguments& arguments);

}  // namespace fuser::driver
