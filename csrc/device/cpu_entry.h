// Entries of CPU kernels. The text of kernel i is pasted, unchanged, inside `namespace k<i>`.
//
// A kernel is a function of its arguments and of the range of tasks that it runs:
//   static void name(const float* x, float* y, i32 n, i64 begin, i64 end)
#pragma once

#include <stdint.h>

#include "host_abi.h"
#include "indices.h"

namespace fuser {

// An argument, which converts to the type of its parameter.
struct Argument {
  const void* address;
  template <class T>
  operator T() const {
    return *static_cast<const T*>(address);
  }
};

template <class... Parameters>
constexpr int count_of(void (*)(Parameters...)) {
  return sizeof...(Parameters);
}
template <auto kernel, int... I>
inline void call(void* const* args, int64_t begin, int64_t end, Indices<I...>) {
  kernel(Argument{args[I]}..., begin, end);
}
// Runs tasks of a kernel. Its last two parameters are the range.
template <auto kernel>
void run_tasks(void* const* args, int64_t begin, int64_t end) {
  call<kernel>(args, begin, end, typename CountTo<count_of(kernel) - 2>::Type());
}

}  // namespace fuser

// Export kernel `name` of k<index> as fuser_entry_<index>.
#define FUSER_CPU_ENTRY(index, name)                                                     \
  extern "C" __attribute__((visibility("default")))                                      \
  const ::fuser::HostEntry fuser_entry_##index = {::fuser::kHostAbi, 0, 0, #name, nullptr, \
                                                  ::fuser::run_tasks<&k##index::name>};
