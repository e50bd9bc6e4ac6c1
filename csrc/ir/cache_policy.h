// CachePolicy: how an access uses the caches, by the table in cache_policies.def.
#pragma once

#include <cstdint>
#include <span>

namespace fuser::ir {

enum class CachePolicy : uint8_t {
#define FUSER_CACHE_POLICY(name, word, argument) name,
#include "ir/cache_policies.def"
};

struct CachePolicyRow {
  CachePolicy policy{};
  const char* word;      // in texts; empty for the default
  const char* argument;  // template argument of device functions
};
inline constexpr CachePolicyRow cache_policies[] = {
#define FUSER_CACHE_POLICY(name, word, argument) {CachePolicy::name, word, argument},
#include "ir/cache_policies.def"
};
inline const CachePolicyRow& row(CachePolicy policy) {
  return cache_policies[static_cast<int>(policy)];
}

// Calls take(word) for the words in order and returns the policy of the first that it takes, or the
// default.
template <class Take>
CachePolicy parse_cache_policy(Take take) {
  for (const CachePolicyRow& row : cache_policies)
    if (row.policy != CachePolicy{} && take(row.word)) return row.policy;
  return {};
}

}  // namespace fuser::ir
