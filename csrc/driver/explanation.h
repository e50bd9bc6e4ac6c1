// What a call runs and moves, for people (fuser.explain).
#pragma once

#include <string>
#include <vector>

#include "driver/call.h"

namespace fuser {

// How a call runs, for people: what each step reads and writes, counting whole tensors once.
struct Explanation {
  struct Use {
    int tensor = 0;  // by id
    int64_t bytes = 0;
  };
  struct Step {
    std::string kind, name, plan;  // kind: kernel, library or copy
    std::vector<Use> reads, writes;
    std::vector<int> computes;  // tensors by id, ascending; what two steps compute is in both
    double slots = 0.0;         // of a kernel: fusion/work.h
  };
  std::vector<Step> steps;
  int64_t ideal_bytes = 0;  // each input that is read once, each result written once
  std::vector<Parting> partings;
};
Explanation explanation_of(const Call& call, const Arguments& arguments);

}  // namespace fuser
