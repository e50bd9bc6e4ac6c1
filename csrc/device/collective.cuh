// What threads of a warp, a block or the grid do together: shuffles, votes, fences, atomics. The
// host twins are members of HostFiber and HostThread (host_cuda.h).
//
// Shuffles and votes are convergent and of full warps: every lane of the warp comes, whatever its
// data says.

//@ sync_warp
#ifndef FUSER_HOST
DEVICE void sync_warp() { __syncwarp(); }
#endif

//@ Words
// A value as 32-bit words; what a last word has beyond the value is 0.
#ifndef FUSER_HOST
template <class T>
struct Words {
  static constexpr i32 count = (sizeof(T) + 3) / 4;
  u32 word[count];
};
#endif

//@ to_words_ from_words_
#ifndef FUSER_HOST
template <class T>
DEVICE Words<T> to_words_(T x) {
  Words<T> words;
  words.word[Words<T>::count - 1] = 0;
  memcpy(words.word, &x, sizeof(T));
  return words;
}
template <class T>
DEVICE T from_words_(Words<T> words) {
  T x;
  memcpy(&x, words.word, sizeof(T));
  return x;
}
#endif

//@ shuffle
// The value of lane `source`.
#ifndef FUSER_HOST
template <class T>
DEVICE T shuffle(T x, i32 source) {
  Words<T> w = to_words_(x);
  UNROLL for (i32 i = 0; i < Words<T>::count; ++i) {
    w.word[i] = __shfl_sync(0xffffffffu, w.word[i], source);
  }
  return from_words_<T>(w);
}
#endif

//@ shuffle_up
// The value of lane - delta; the lane's own where that is below 0.
#ifndef FUSER_HOST
template <class T>
DEVICE T shuffle_up(T x, i32 delta) {
  Words<T> w = to_words_(x);
  UNROLL for (i32 i = 0; i < Words<T>::count; ++i) {
    w.word[i] = __shfl_up_sync(0xffffffffu, w.word[i], delta);
  }
  return from_words_<T>(w);
}
#endif

//@ shuffle_down
// The value of lane + delta; the lane's own where that is above 31.
#ifndef FUSER_HOST
template <class T>
DEVICE T shuffle_down(T x, i32 delta) {
  Words<T> w = to_words_(x);
  UNROLL for (i32 i = 0; i < Words<T>::count; ++i) {
    w.word[i] = __shfl_down_sync(0xffffffffu, w.word[i], delta);
  }
  return from_words_<T>(w);
}
#endif

//@ shuffle_xor
// The value of lane ^ mask.
#ifndef FUSER_HOST
template <class T>
DEVICE T shuffle_xor(T x, i32 mask) {
  Words<T> w = to_words_(x);
  UNROLL for (i32 i = 0; i < Words<T>::count; ++i) {
    w.word[i] = __shfl_xor_sync(0xffffffffu, w.word[i], mask);
  }
  return from_words_<T>(w);
}
#endif

//@ vote_ballot
// One bit a lane.
#ifndef FUSER_HOST
DEVICE u32 vote_ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }
#endif

//@ vote_any
#ifndef FUSER_HOST
DEVICE bool vote_any(bool predicate) { return __any_sync(0xffffffffu, predicate) != 0; }
#endif

//@ vote_all
#ifndef FUSER_HOST
DEVICE bool vote_all(bool predicate) { return __all_sync(0xffffffffu, predicate) != 0; }
#endif

//@ fence_block
#ifndef FUSER_HOST
DEVICE void fence_block() { __threadfence_block(); }
#endif

//@ fence_device
// Release and acquire at the scope of the device, together with the relaxed atomics below.
#ifndef FUSER_HOST
DEVICE void fence_device() { __threadfence(); }
#endif

//@ atomic_add
// Adds and returns what was there. u32, i32, u64: there are no float atomics, results would depend
// on the order.
#ifndef FUSER_HOST
template <class T>
DEVICE T atomic_add(T* address, T value) {
  return atomicAdd(address, value);
}
#endif

//@ atomic_exchange
#ifndef FUSER_HOST
template <class T>
DEVICE T atomic_exchange(T* address, T value) {
  return atomicExch(address, value);
}
#endif

//@ atomic_inc
// old >= limit ? 0 : old + 1, returning old: counts `limit + 1` arrivals and resets itself.
#ifndef FUSER_HOST
DEVICE u32 atomic_inc(u32* address, u32 limit) { return atomicInc(address, limit); }
#endif

//@ grid_barrier
// All threads of a cooperative launch meet; what each wrote before is visible to the others. The
// three counters are 0 before and after: arrivals, whether all have arrived, departures.
#ifdef FUSER_HOST
DEVICE void grid_barrier(u32*) { sync_grid(); }
#else
DEVICE void grid_barrier(u32* counters) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    volatile u32* open = counters + 1;
    if (atomicInc(counters, gridDim.x - 1) == gridDim.x - 1) {
      __threadfence();
      *open = 1;
    } else {
      while (*open == 0) {
      }
    }
    __threadfence();
    if (atomicInc(counters + 2, gridDim.x - 1) == gridDim.x - 1) *open = 0;
  }
  __syncthreads();
}
#endif
