// Implements take_random() of fusion/build/define.h: seed and offset of random ops.
#include "base/error.h"
#include "fusion/build/define.h"

namespace fuser::fusion {

using namespace ir;

std::pair<Expr, Expr> take_random(Fusion& fusion, int64_t ops) {
  FUSER_CHECK(ops > 0, User, "random-1", "random_state(): ops is ", ops,
              ", expected the number of random ops, 1 or more");
  RandomState& random = fusion.random;
  const auto scalar = [&](int& index) {
    if (index < 0) {
      index = static_cast<int>(fusion.scalars.size());
      fusion.scalars.push_back(
          {.dtype = DType::Int64, .symbol = fusion.exprs.symbol(Symbol::RngOffset, index)});
    }
    return fusion.scalars[index].symbol;
  };
  const Expr seed = scalar(random.seed), offset = scalar(random.offset);
  const int64_t taken = random.ops;
  random.ops += ops;
  return {seed, fusion.exprs.add(offset, fusion.exprs.constant(4 * taken))};
}

}  // namespace fuser::fusion
