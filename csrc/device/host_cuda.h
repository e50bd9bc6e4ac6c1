// The CUDA execution model on a CPU, as kernel text sees it: indices, shared memory, collectives,
// atomics.
//
// The text of kernel i is pasted, unchanged, inside `struct K<i> : HostThread` (no collectives: its
// threads are a loop) or `struct K<i> : HostFiber` (its threads are fibers), so that thread_x() and
// its like are members that read members. The object lives in registers after inlining: nothing
// here lets its address escape outside debug builds. A kernel declared plain that uses a collective
// does not compile, because only HostFiber has them.
#pragma once

#include <stdint.h>

#include "host_abi.h"
#include "indices.h"

// What texts call of the C library. To read math.h, which in C++ brings most of the standard
// library's templates, takes longer than to compile a kernel.
//
// The compiler knows none of these functions (-fno-builtin): it would make other formulas of some
// pairs, sin(atan(x)) for one, and numbers of its own of constant operands. It is told only that a
// result follows from the operands.
extern "C" {
#define FUSER_HOST_MATH_1(name)                         \
  __attribute__((const)) double name(double) noexcept; \
  __attribute__((const)) float name##f(float) noexcept;
#define FUSER_HOST_MATH_2(name)                                 \
  __attribute__((const)) double name(double, double) noexcept; \
  __attribute__((const)) float name##f(float, float) noexcept;
FUSER_HOST_MATH_1(acos)
FUSER_HOST_MATH_1(acosh)
FUSER_HOST_MATH_1(asin)
FUSER_HOST_MATH_1(asinh)
FUSER_HOST_MATH_1(atan)
FUSER_HOST_MATH_1(atanh)
FUSER_HOST_MATH_1(cos)
FUSER_HOST_MATH_1(cosh)
FUSER_HOST_MATH_1(erf)
FUSER_HOST_MATH_1(erfc)
FUSER_HOST_MATH_1(exp)
FUSER_HOST_MATH_1(exp2)
FUSER_HOST_MATH_1(expm1)
FUSER_HOST_MATH_1(lgamma)
FUSER_HOST_MATH_1(log)
FUSER_HOST_MATH_1(log10)
FUSER_HOST_MATH_1(log1p)
FUSER_HOST_MATH_1(log2)
FUSER_HOST_MATH_1(sin)
FUSER_HOST_MATH_1(sinh)
FUSER_HOST_MATH_1(tan)
FUSER_HOST_MATH_1(tanh)
FUSER_HOST_MATH_2(atan2)
FUSER_HOST_MATH_2(fmod)
FUSER_HOST_MATH_2(hypot)
FUSER_HOST_MATH_2(nextafter)
FUSER_HOST_MATH_2(pow)
#undef FUSER_HOST_MATH_1
#undef FUSER_HOST_MATH_2
}

#define FUSER_HOST_INLINE inline __attribute__((always_inline))

// Functions that are instructions, with one result that IEEE 754 states: these are inlined and
// become vector code.
#define FUSER_HOST_EXACT_1(name)                                                   \
  FUSER_HOST_INLINE double name(double x) noexcept { return __builtin_##name(x); } \
  FUSER_HOST_INLINE float name##f(float x) noexcept { return __builtin_##name##f(x); }
FUSER_HOST_EXACT_1(ceil)
FUSER_HOST_EXACT_1(fabs)
FUSER_HOST_EXACT_1(floor)
FUSER_HOST_EXACT_1(rint)
FUSER_HOST_EXACT_1(sqrt)
FUSER_HOST_EXACT_1(trunc)
#undef FUSER_HOST_EXACT_1
FUSER_HOST_INLINE double copysign(double x, double sign) noexcept {
  return __builtin_copysign(x, sign);
}
FUSER_HOST_INLINE float copysignf(float x, float sign) noexcept {
  return __builtin_copysignf(x, sign);
}
FUSER_HOST_INLINE double fma(double x, double y, double z) noexcept {
  return __builtin_fma(x, y, z);
}
FUSER_HOST_INLINE float fmaf(float x, float y, float z) noexcept {
  return __builtin_fmaf(x, y, z);
}
FUSER_HOST_INLINE void* memcpy(void* to, const void* from, __SIZE_TYPE__ bytes) noexcept {
  return __builtin_memcpy(to, from, bytes);
}
FUSER_HOST_INLINE void* memset(void* to, int byte, __SIZE_TYPE__ bytes) noexcept {
  return __builtin_memset(to, byte, bytes);
}
#define HUGE_VAL __builtin_huge_val()
#define NAN __builtin_nanf("")

#define FUSER_HOST 1

namespace fuser {

#ifdef FUSER_DEBUG
// The copies of a thread that are under way. Beyond kMost the list lands early, which hides
// nothing but a forgotten wait.
struct HostCopies {
  static constexpr int kMost = 128;
  struct One {
    void* s;
    const void* g;  // null: zeros
    int bytes, group;
  };
  One of[kMost];
  int count, groups;
};
#endif

struct HostThread {
  int32_t thread_[3];
  int32_t block_[3];
  int32_t block_dim_[3];
  int32_t grid_dim_[3];
  char* shared_;
  void* fiber_;
  const HostLaunch* launch_;

  FUSER_HOST_INLINE int32_t thread_x() const { return thread_[0]; }
  FUSER_HOST_INLINE int32_t thread_y() const { return thread_[1]; }
  FUSER_HOST_INLINE int32_t thread_z() const { return thread_[2]; }
  FUSER_HOST_INLINE int32_t block_x() const { return block_[0]; }
  FUSER_HOST_INLINE int32_t block_y() const { return block_[1]; }
  FUSER_HOST_INLINE int32_t block_z() const { return block_[2]; }
  FUSER_HOST_INLINE int32_t block_dim_x() const { return block_dim_[0]; }
  FUSER_HOST_INLINE int32_t block_dim_y() const { return block_dim_[1]; }
  FUSER_HOST_INLINE int32_t block_dim_z() const { return block_dim_[2]; }
  FUSER_HOST_INLINE int32_t grid_dim_x() const { return grid_dim_[0]; }
  FUSER_HOST_INLINE int32_t grid_dim_y() const { return grid_dim_[1]; }
  FUSER_HOST_INLINE int32_t grid_dim_z() const { return grid_dim_[2]; }

  FUSER_HOST_INLINE int32_t thread_linear() const {
    return thread_[0] + block_dim_[0] * (thread_[1] + block_dim_[1] * thread_[2]);
  }
  FUSER_HOST_INLINE int32_t lane() const { return thread_linear() % kWarpSize; }
  FUSER_HOST_INLINE int32_t warp() const { return thread_linear() / kWarpSize; }

  FUSER_HOST_INLINE char* shared_memory() const { return shared_; }

  // Atomics are at device scope and, unlike CUDA's, ordered: the text states its fences itself.
  template <class T>
  FUSER_HOST_INLINE T atomic_add(T* address, T value) const {
    debug_access(address, sizeof(T), sizeof(T), true);
    return __atomic_fetch_add(address, value, __ATOMIC_ACQ_REL);
  }
  template <class T>
  FUSER_HOST_INLINE T atomic_exchange(T* address, T value) const {
    debug_access(address, sizeof(T), sizeof(T), true);
    return __atomic_exchange_n(address, value, __ATOMIC_ACQ_REL);
  }
  // old >= limit ? 0 : old + 1, returning old: counts `limit + 1` arrivals and resets itself.
  FUSER_HOST_INLINE uint32_t atomic_inc(uint32_t* address, uint32_t limit) const {
    debug_access(address, sizeof(uint32_t), sizeof(uint32_t), true);
    uint32_t old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(address, &old, old >= limit ? 0u : old + 1u, true,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return old;
  }
  FUSER_HOST_INLINE void fence_block() const { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
  FUSER_HOST_INLINE void fence_device() const { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#ifdef FUSER_DEBUG
  HostPosition position() const {
    return {
        {thread_[0], thread_[1], thread_[2]}, {block_[0], block_[1], block_[2]}, shared_, fiber_};
  }
  // Every load and store of `bytes` at `address` passes here first; `align` is what the access
  // assumes.
  void debug_access(const void* address, int bytes, int align, bool store) const {
    const HostPosition at = position();
    launch_->runtime->check_access(launch_, &at, address, bytes, align, store);
  }
  // An index of a dim, negative ones from its end; `number`: into HostOptions::checked.
  void debug_index(int64_t index, int64_t size, int32_t number) const {
    const HostPosition at = position();
    launch_->runtime->check_index(launch_, &at, index, size, number);
  }
#else
  FUSER_HOST_INLINE void debug_access(const void*, int, int, bool) const {}
  FUSER_HOST_INLINE void debug_index(int64_t, int64_t, int32_t) const {}
#endif

  // Copies of N elements from global to shared memory: here they are done at once, in debug builds
  // as late as allowed, and the place holds poison until then.
  template <int N, class T>
  FUSER_HOST_INLINE void copy_async(T* s, const T* g, bool in) {
    constexpr int bytes = N * static_cast<int>(sizeof(T));
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "a copy moves 4, 8 or 16 bytes");
    debug_access(s, bytes, bytes, true);
    if (in) debug_access(g, bytes, bytes, false);
#ifdef FUSER_DEBUG
    memset(s, 0xFF, bytes);
    if (copies_.count == HostCopies::kMost) land_copies(copies_.groups + 1);
    copies_.of[copies_.count++] = {s, in ? g : nullptr, bytes, copies_.groups};
  }
  void commit_copies() { ++copies_.groups; }
  template <int P>
  void wait_copies() {
    land_copies(copies_.groups - P);
  }
  // Those of the groups before `end`.
  void land_copies(int end) {
    int kept = 0;
    for (int i = 0; i < copies_.count; ++i) {
      const HostCopies::One& c = copies_.of[i];
      if (c.group >= end) {
        copies_.of[kept++] = c;
      } else if (c.g) {
        memcpy(c.s, c.g, c.bytes);
      } else {
        memset(c.s, 0, c.bytes);
      }
    }
    copies_.count = kept;
  }
  HostCopies copies_;
#else
    if (in) {
      memcpy(s, g, bytes);
    } else {
      memset(s, 0, bytes);
    }
  }
  FUSER_HOST_INLINE void commit_copies() const {}
  template <int P>
  FUSER_HOST_INLINE void wait_copies() const {}
#endif
};

// Collectives: all threads of the scope arrive. Warps have 32 lanes, the last of a block maybe
// fewer.
struct HostFiber : HostThread {
  FUSER_HOST_INLINE void sync_warp() const { launch_->runtime->sync(fiber_, kScopeWarp); }
  FUSER_HOST_INLINE void sync_block() const { launch_->runtime->sync(fiber_, kScopeBlock); }
  FUSER_HOST_INLINE void sync_cluster() const { launch_->runtime->sync(fiber_, kScopeCluster); }
  FUSER_HOST_INLINE void arrive_cluster() const {}
  FUSER_HOST_INLINE void wait_cluster() const { sync_cluster(); }
  FUSER_HOST_INLINE void sync_grid() const { launch_->runtime->sync(fiber_, kScopeGrid); }

  template <class T>
  FUSER_HOST_INLINE T shuffle(T value, int32_t source) const {
    return shuffled(value, kShuffleIndex, source);
  }
  template <class T>
  FUSER_HOST_INLINE T shuffle_up(T value, int32_t delta) const {
    return shuffled(value, kShuffleUp, delta);
  }
  template <class T>
  FUSER_HOST_INLINE T shuffle_down(T value, int32_t delta) const {
    return shuffled(value, kShuffleDown, delta);
  }
  template <class T>
  FUSER_HOST_INLINE T shuffle_xor(T value, int32_t mask) const {
    return shuffled(value, kShuffleXor, mask);
  }

  FUSER_HOST_INLINE uint32_t vote_ballot(bool predicate) const {
    return launch_->runtime->ballot(fiber_, predicate);
  }
  FUSER_HOST_INLINE bool vote_any(bool predicate) const { return vote_ballot(predicate) != 0; }
  FUSER_HOST_INLINE bool vote_all(bool predicate) const { return vote_ballot(!predicate) == 0; }

  FUSER_HOST_INLINE int32_t cluster_size() const {
    return launch_->cluster[0] * launch_->cluster[1] * launch_->cluster[2];
  }
  FUSER_HOST_INLINE int32_t cluster_rank() const { return launch_->runtime->cluster_rank(fiber_); }
  // The same place of shared memory in the block of that rank of the cluster.
  template <class T>
  FUSER_HOST_INLINE T* map_shared_rank(T* address, int32_t rank) const {
    return (T*)launch_->runtime->map_shared(fiber_, (char*)address, rank);
  }

  template <class T>
  FUSER_HOST_INLINE T shuffled(T value, uint32_t mode, int32_t operand) const {
    uint64_t words[(sizeof(T) + 7) / 8] = {};
    memcpy(words, &value, sizeof(T));
    for (uint64_t& word : words) word = launch_->runtime->shuffle(fiber_, word, mode, operand);
    memcpy(&value, words, sizeof(T));
    return value;
  }
};

template <class K>
FUSER_HOST_INLINE void set_thread(K& k, int32_t x, int32_t y, int32_t z) {
  k.thread_[0] = x;
  k.thread_[1] = y;
  k.thread_[2] = z;
#ifdef FUSER_DEBUG
  k.copies_.count = k.copies_.groups = 0;
#endif
}

template <class K>
FUSER_HOST_INLINE void set_launch(K& k, const HostLaunch* l, char* shared, void* fiber) {
  for (int axis = 0; axis < 3; ++axis) {
    k.block_dim_[axis] = l->block[axis];
    k.grid_dim_[axis] = l->grid[axis];
  }
  k.shared_ = shared;
  k.fiber_ = fiber;
  k.launch_ = l;
}

// Runs one kernel, a member function of K; the types of its arguments come from the member pointer.
template <auto kernel>
struct HostRunner;

template <class K, class... Args, void (K::*kernel)(Args...)>
struct HostRunner<kernel> {
  // The threads of each block as a loop, arguments and indices in registers.
  static void run_plain(const HostLaunch* l) {
    plain(l, typename CountTo<sizeof...(Args)>::Type());
  }
  template <int... I>
  static FUSER_HOST_INLINE void plain(const HostLaunch* l, Indices<I...>) {
    plain_blocks(l, *static_cast<const Args*>(l->args[I])...);
  }
  static FUSER_HOST_INLINE void plain_blocks(const HostLaunch* l, Args... args) {
    const uint64_t width = l->grid[0], height = l->grid[1];
    K k;
    set_launch(k, l, l->shared, nullptr);
    for (uint64_t unit = l->unit_begin; unit < l->unit_end; ++unit) {
      k.block_[0] = static_cast<int32_t>(unit % width);
      k.block_[1] = static_cast<int32_t>(unit / width % height);
      k.block_[2] = static_cast<int32_t>(unit / width / height);
#ifdef FUSER_DEBUG
      const int32_t count = k.block_dim_[0] * k.block_dim_[1] * k.block_dim_[2];
      for (int32_t i = 0; i < count; ++i) {
        const int32_t t = static_cast<int32_t>(l->thread_order[i]);
        set_thread(k, t % k.block_dim_[0], t / k.block_dim_[0] % k.block_dim_[1],
                   t / k.block_dim_[0] / k.block_dim_[1]);
        (k.*kernel)(args...);
      }
#else
      for (int32_t z = 0; z < k.block_dim_[2]; ++z)
        for (int32_t y = 0; y < k.block_dim_[1]; ++y)
          for (int32_t x = 0; x < k.block_dim_[0]; ++x) {
            set_thread(k, x, y, z);
            (k.*kernel)(args...);
          }
#endif
    }
  }

  static void run_fibers(const HostLaunch* l) { l->runtime->run_fibers(l, thread_main); }
  static void thread_main(const HostLaunch* l, const HostPosition* at) {
    fiber(l, at, typename CountTo<sizeof...(Args)>::Type());
  }
  template <int... I>
  static FUSER_HOST_INLINE void fiber(const HostLaunch* l, const HostPosition* at, Indices<I...>) {
    K k;
    set_launch(k, l, at->shared, at->fiber);
    set_thread(k, at->thread[0], at->thread[1], at->thread[2]);
    for (int axis = 0; axis < 3; ++axis) k.block_[axis] = at->block[axis];
    (k.*kernel)(*static_cast<const Args*>(l->args[I])...);
  }
};

}  // namespace fuser

#ifdef FUSER_DEBUG
#define FUSER_HOST_DEBUG 1
#else
#define FUSER_HOST_DEBUG 0
#endif

// Export kernel `name` of struct `type` as fuser_entry_<index>.
#define FUSER_HOST_ENTRY(index, type, name, collectives, run)                     \
  extern "C" __attribute__((visibility("default")))                               \
  const ::fuser::HostEntry fuser_entry_##index = {::fuser::kHostAbi, collectives, \
                                                  FUSER_HOST_DEBUG, #name,        \
                                                  ::fuser::HostRunner<&type::name>::run, nullptr};
#define FUSER_HOST_PLAIN(index, type, name) FUSER_HOST_ENTRY(index, type, name, 0, run_plain)
#define FUSER_HOST_FIBERS(index, type, name) FUSER_HOST_ENTRY(index, type, name, 1, run_fibers)
