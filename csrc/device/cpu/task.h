// Functions that only the printer of CPU kernels calls: divided and asserted indices, masked partial
// results, and partial results that tasks hand to each other.
#pragma once

//@ fast_div_ : Vec
template <i32 N>
DEVICE Vec<i32, N> fast_div_(Vec<i32, N> x, FastDiv d) {
  typedef Vec<u64, N> Wide;
  const Vec<u32, N> bits = cast_<u32>(x);
  const Wide product = low_products_(cast_<u64>(bits), Wide(d.magic));
  const Vec<u32, N> upper = cast_<u32>(product >> Wide(32ull));
  return cast_<i32>((upper + bits) >> Vec<u32, N>(d.shift));
}

//@ fast_mod_ : Vec
template <i32 N>
DEVICE Vec<i32, N> fast_mod_(Vec<i32, N> x, FastDiv d) {
  return x - fast_div_(x, d) * Vec<i32, N>((i32)d.divisor);
}

//@ index_failed_
// Records an index out of range. The first one of a launch stays.
__attribute__((noinline, cold)) static void index_failed_(::fuser::IndexStatus* status, i64 index,
                                                          i64 size, i32 number) {
  if (__atomic_exchange_n(&status->failed, 1u, __ATOMIC_RELAXED)) return;
  status->number = number;
  status->index = index;
  status->size = size;
}

//@ assert_index
// Records an index outside of [-size, size).
DEVICE void assert_index(::fuser::IndexStatus* status, i64 index, i64 size, i32 number) {
  if (__builtin_expect(index < -size || index >= size, false))
    index_failed_(status, index, size, number);
}

//@ assert_index : Vec
// Only the lanes of `in` exist.
template <class T, i32 N>
DEVICE void assert_index(::fuser::IndexStatus* status, Vec<T, N> index, i64 size, i32 number,
                         Vec<bool, N> in) {
  if constexpr (sizeof(T) < 4) {
    assert_index(status, cast_<i32>(index), size, number, in);
  } else {
    if (sizeof(T) == 4 && size > 0x7fffffff) return;
    const Vec<bool, N> failed = (index < Vec<T, N>((T)-size) | index >= Vec<T, N>((T)size)) & in;
    if (__builtin_expect(!any_(failed), true)) return;
    const auto indices = lanes_(index);
    const auto found = lanes_(failed.m);
    for (i32 i = 0; i < N; ++i)
      if (found.v[i]) index_failed_(status, (i64)indices.v[i], size, number);
  }
}
template <class T, i32 N>
DEVICE void assert_index(::fuser::IndexStatus* status, Vec<T, N> index, i64 size, i32 number) {
  assert_index(status, index, size, number, Vec<bool, N>(true));
}

//@ select_state_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> select_state_(Vec<bool, N> m, Vec<T, N> a, Vec<T, N> b) {
  return select_(m, a, b);
}

//@ select_state_ : ArgState
template <class T, i32 N>
DEVICE ArgState<Vec<T, N>> select_state_(Vec<bool, N> m, ArgState<Vec<T, N>> a,
                                         ArgState<Vec<T, N>> b) {
  return ArgState<Vec<T, N>>{select_(m, a.f0, b.f0), select_(m, a.f1, b.f1)};
}

//@ select_state_ : WelfordState
template <class T, i32 N>
DEVICE WelfordState<Vec<T, N>> select_state_(Vec<bool, N> m, WelfordState<Vec<T, N>> a,
                                             WelfordState<Vec<T, N>> b) {
  return {select_(m, a.f0, b.f0), select_(m, a.f1, b.f1), select_(m, a.f2, b.f2)};
}

//@ select_state_ : OnlineState
template <class T, i32 N>
DEVICE OnlineState<Vec<T, N>> select_state_(Vec<bool, N> m, OnlineState<Vec<T, N>> a,
                                            OnlineState<Vec<T, N>> b) {
  return {select_(m, a.f0, b.f0), select_(m, a.f1, b.f1)};
}

//@ accumulate_some
// Takes in the elements of the lanes of a mask.
template <class R, i32 N, class S, class... X>
DEVICE void accumulate_some(R, Vec<bool, N> in, S& s, X... x) {
  S all = s;
  accumulate_(R{}, all, x...);
  s = select_state_(in, all, s);
}

//@ load_states store_states
// States of all lanes, in memory for as many scalar states.
template <class S, class T>
DEVICE void load_states(S* s, const T* p) {
  __builtin_memcpy(s, p, sizeof(S));
}
template <class S, class T>
DEVICE void store_states(T* p, const S* s) {
  __builtin_memcpy(p, s, sizeof(S));
}

//@ last_task
// Returns whether this is the last of `count` tasks to arrive. Earlier writes of the other tasks are
// visible to that task. The counter is 0 before and after.
DEVICE bool last_task(u32* counter, i64 count) {
  if (__atomic_add_fetch(counter, 1u, __ATOMIC_ACQ_REL) != (u32)count) return false;
  __atomic_store_n(counter, 0u, __ATOMIC_RELAXED);
  return true;
}
