// Loads and stores of vectors at any address. A form with `count` touches the first `count` elements
// alone; lanes beyond them are 0.
#pragma once

//@ load load_
template <class T, i32 N>
DEVICE void load_(Vec<T, N>& r, const T* p) {
  if constexpr (Vec<T, N>::whole) {
    __builtin_memcpy(&r.v, p, sizeof r.v);
  } else {
    load_(r.v.low, p);
    load_(r.v.high, p + N / 2);
  }
}
template <i32 N>
DEVICE void load_(Vec<bool, N>& r, const bool* p) {
  Vec<u8, N> bytes;
  load_(bytes, (const u8*)p);
  r = bytes != Vec<u8, N>((u8)0);
}
template <class T, i32 N>
DEVICE Vec<T, N> load(const T* p) {
  Vec<T, N> r;
  load_(r, p);
  return r;
}

//@ load load_ : bf16
template <i32 N>
DEVICE void load_(Vec<bf16, N>& r, const bf16* p) {
  load_(r.bits, (const u16*)p);
}

//@ load load_ : f16
template <i32 N>
DEVICE void load_(Vec<f16, N>& r, const f16* p) {
  load_(r.bits, (const u16*)p);
}

//@ load load_ : f8e4m3
template <i32 N>
DEVICE void load_(Vec<f8e4m3, N>& r, const f8e4m3* p) {
  load_(r.bits, (const u8*)p);
}

//@ load load_ : f8e5m2
template <i32 N>
DEVICE void load_(Vec<f8e5m2, N>& r, const f8e5m2* p) {
  load_(r.bits, (const u8*)p);
}

//@ load load_ : c64
template <i32 N>
DEVICE void load_(Vec<c64, N>& r, const c64* p) {
  const auto parts = load<f32, 2 * N>((const f32*)p);
  r = Vec<c64, N>(every_other_<0>(parts), every_other_<1>(parts));
}

//@ load load_ : c128
template <i32 N>
DEVICE void load_(Vec<c128, N>& r, const c128* p) {
  const auto parts = load<f64, 2 * N>((const f64*)p);
  r = Vec<c128, N>(every_other_<0>(parts), every_other_<1>(parts));
}

//@ first_lanes_
// The mask of the first `count` of N lanes, for mask registers.
template <i32 N>
DEVICE u64 first_lanes_(i64 count) {
  return count <= 0 ? 0 : ~(u64)0 >> (64 - count);
}

//@ load_masked_
// The elements p[i] of the lanes of a mask, 0 in others; one register.
#if SIMD_BYTES == 64
template <class T, i32 N>
DEVICE void load_masked_(Vec<T, N>& r, const T* p, u64 mask) {
  const Raw_<T, N>& at = *(const Raw_<T, N>*)p;
  if constexpr (sizeof(T) == 8)
    asm("vmovdqu64 %1, %0%{%2%}%{z%}" : "=v"(r.v) : "m"(at), "Yk"((u8)mask));
  else if constexpr (sizeof(T) == 4)
    asm("vmovdqu32 %1, %0%{%2%}%{z%}" : "=v"(r.v) : "m"(at), "Yk"((u16)mask));
  else if constexpr (sizeof(T) == 2)
    asm("vmovdqu16 %1, %0%{%2%}%{z%}" : "=v"(r.v) : "m"(at), "Yk"((u32)mask));
  else
    asm("vmovdqu8 %1, %0%{%2%}%{z%}" : "=v"(r.v) : "m"(at), "Yk"(mask));
}
#endif

//@ lane_mask_
// -1 in the first `count` lanes, which are as wide as T, for instructions that take such masks.
template <class T, i32 N>
DEVICE auto lane_mask_(i64 count) {
  if constexpr (sizeof(T) == 4) return iota<i32, N>(0).v < Vec<i32, N>((i32)count).v;
  else return iota<i64, N>(0).v < Vec<i64, N>(count).v;
}

//@ load load_
// The first `count` elements, count < N, and 0 behind them.
template <class T, i32 N>
DEVICE void load_some_(Vec<T, N>& r, const T* p, i64 count) {
  if constexpr (!Vec<T, N>::whole) {
    load_some_(r.v.low, p, count < N / 2 ? count : N / 2);
    load_some_(r.v.high, p + N / 2, count - N / 2);
    return;
  }
#if SIMD_BYTES == 64
  else if constexpr (sizeof(r.v) >= 16) {
    load_masked_(r, p, first_lanes_<N>(count));
    return;
  }
#elif SIMD_BYTES == 32
  else if constexpr (sizeof(r.v) >= 16 && sizeof(T) >= 4) {
    const auto mask = lane_mask_<T, N>(count);
    const Raw_<T, N>& at = *(const Raw_<T, N>*)p;
    if constexpr (sizeof(T) == 8) asm("vmaskmovpd %1, %2, %0" : "=x"(r.v) : "m"(at), "x"(mask));
    else asm("vmaskmovps %1, %2, %0" : "=x"(r.v) : "m"(at), "x"(mask));
    return;
  }
#endif
  T some[N] = {};
  for (i64 i = 0; i < count; ++i) some[i] = p[i];
  load_(r, some);
}
template <i32 N>
DEVICE void load_some_(Vec<bool, N>& r, const bool* p, i64 count) {
  Vec<u8, N> bytes;
  load_some_(bytes, (const u8*)p, count);
  r = bytes != Vec<u8, N>((u8)0);
}
template <class T, i32 N>
DEVICE Vec<T, N> load(const T* p, i64 count) {
  if (count >= N) return load<T, N>(p);
  Vec<T, N> r;
  load_some_(r, p, count);
  return r;
}

//@ load load_ : bf16
template <i32 N>
DEVICE void load_some_(Vec<bf16, N>& r, const bf16* p, i64 count) {
  load_some_(r.bits, (const u16*)p, count);
}

//@ load load_ : f16
template <i32 N>
DEVICE void load_some_(Vec<f16, N>& r, const f16* p, i64 count) {
  load_some_(r.bits, (const u16*)p, count);
}

//@ load load_ : f8e4m3
template <i32 N>
DEVICE void load_some_(Vec<f8e4m3, N>& r, const f8e4m3* p, i64 count) {
  load_some_(r.bits, (const u8*)p, count);
}

//@ load load_ : f8e5m2
template <i32 N>
DEVICE void load_some_(Vec<f8e5m2, N>& r, const f8e5m2* p, i64 count) {
  load_some_(r.bits, (const u8*)p, count);
}

//@ load load_ : c64
template <i32 N>
DEVICE void load_some_(Vec<c64, N>& r, const c64* p, i64 count) {
  const auto parts = load<f32, 2 * N>((const f32*)p, 2 * count);
  r = Vec<c64, N>(every_other_<0>(parts), every_other_<1>(parts));
}

//@ load load_ : c128
template <i32 N>
DEVICE void load_some_(Vec<c128, N>& r, const c128* p, i64 count) {
  const auto parts = load<f64, 2 * N>((const f64*)p, 2 * count);
  r = Vec<c128, N>(every_other_<0>(parts), every_other_<1>(parts));
}

//@ store
template <class T, i32 N>
DEVICE void store(T* p, Vec<T, N> x) {
  if constexpr (Vec<T, N>::whole) {
    __builtin_memcpy(p, &x.v, sizeof x.v);
  } else {
    store(p, x.v.low);
    store(p + N / 2, x.v.high);
  }
}
template <i32 N>
DEVICE void store(bool* p, Vec<bool, N> x) {
  store((u8*)p, cast_<u8>(x.m & Vec<i32, N>(1)));
}

//@ store : bf16
template <i32 N>
DEVICE void store(bf16* p, Vec<bf16, N> x) {
  store((u16*)p, x.bits);
}

//@ store : f16
template <i32 N>
DEVICE void store(f16* p, Vec<f16, N> x) {
  store((u16*)p, x.bits);
}

//@ store : f8e4m3
template <i32 N>
DEVICE void store(f8e4m3* p, Vec<f8e4m3, N> x) {
  store((u8*)p, x.bits);
}

//@ store : f8e5m2
template <i32 N>
DEVICE void store(f8e5m2* p, Vec<f8e5m2, N> x) {
  store((u8*)p, x.bits);
}

//@ store : c64
template <i32 N>
DEVICE void store(c64* p, Vec<c64, N> x) {
  store((f32*)p, interleave_(x.re, x.im));
}

//@ store : c128
template <i32 N>
DEVICE void store(c128* p, Vec<c128, N> x) {
  store((f64*)p, interleave_(x.re, x.im));
}

//@ store
template <class T, i32 N>
DEVICE void store_some_(T* p, Vec<T, N> x, i64 count) {
  if constexpr (!Vec<T, N>::whole) {
    store_some_(p, x.v.low, count < N / 2 ? count : N / 2);
    store_some_(p + N / 2, x.v.high, count - N / 2);
    return;
  }
#if SIMD_BYTES == 64
  else if constexpr (sizeof(x.v) >= 16) {
    const u64 mask = first_lanes_<N>(count);
    Raw_<T, N>& at = *(Raw_<T, N>*)p;
    if constexpr (sizeof(T) == 8)
      asm("vmovdqu64 %1, %0%{%2%}" : "+m"(at) : "v"(x.v), "Yk"((u8)mask));
    else if constexpr (sizeof(T) == 4)
      asm("vmovdqu32 %1, %0%{%2%}" : "+m"(at) : "v"(x.v), "Yk"((u16)mask));
    else if constexpr (sizeof(T) == 2)
      asm("vmovdqu16 %1, %0%{%2%}" : "+m"(at) : "v"(x.v), "Yk"((u32)mask));
    else
      asm("vmovdqu8 %1, %0%{%2%}" : "+m"(at) : "v"(x.v), "Yk"(mask));
    return;
  }
#elif SIMD_BYTES == 32
  else if constexpr (sizeof(x.v) >= 16 && sizeof(T) >= 4) {
    const auto mask = lane_mask_<T, N>(count);
    Raw_<T, N>& at = *(Raw_<T, N>*)p;
    if constexpr (sizeof(T) == 8) asm("vmaskmovpd %1, %2, %0" : "+m"(at) : "x"(x.v), "x"(mask));
    else asm("vmaskmovps %1, %2, %0" : "+m"(at) : "x"(x.v), "x"(mask));
    return;
  }
#endif
  T some[N];
  store(some, x);
  for (i64 i = 0; i < count; ++i) p[i] = some[i];
}
template <i32 N>
DEVICE void store_some_(bool* p, Vec<bool, N> x, i64 count) {
  store_some_((u8*)p, cast_<u8>(x.m & Vec<i32, N>(1)), count);
}
template <class T, i32 N>
DEVICE void store(T* p, Vec<T, N> x, i64 count) {
  if (count >= N) store(p, x);
  else store_some_(p, x, count);
}

//@ store : bf16
template <i32 N>
DEVICE void store_some_(bf16* p, Vec<bf16, N> x, i64 count) {
  store_some_((u16*)p, x.bits, count);
}

//@ store : f16
template <i32 N>
DEVICE void store_some_(f16* p, Vec<f16, N> x, i64 count) {
  store_some_((u16*)p, x.bits, count);
}

//@ store : f8e4m3
template <i32 N>
DEVICE void store_some_(f8e4m3* p, Vec<f8e4m3, N> x, i64 count) {
  store_some_((u8*)p, x.bits, count);
}

//@ store : f8e5m2
template <i32 N>
DEVICE void store_some_(f8e5m2* p, Vec<f8e5m2, N> x, i64 count) {
  store_some_((u8*)p, x.bits, count);
}

//@ store : c64
template <i32 N>
DEVICE void store_some_(c64* p, Vec<c64, N> x, i64 count) {
  store((f32*)p, interleave_(x.re, x.im), 2 * count);
}

//@ store : c128
template <i32 N>
DEVICE void store_some_(c128* p, Vec<c128, N> x, i64 count) {
  store((f64*)p, interleave_(x.re, x.im), 2 * count);
}

//@ assembled_
// The vector of f(i) for each lane i. Elements of two bytes are put together in words: a load of
// the vector waits for each of the stores that it spans.
template <class T, i32 N, class F>
DEVICE Vec<T, N> assembled_(F f) {
  T r[N];
  if constexpr (sizeof(T) == 2 && N >= 4) {
    u64 words[N / 4];
    UNROLL for (i32 word = 0; word < N / 4; ++word) {
      words[word] = 0;
      UNROLL for (i32 i = 0; i < 4; ++i) {
        u16 bits;
        const T element = f(word * 4 + i);
        __builtin_memcpy(&bits, &element, sizeof bits);
        words[word] |= (u64)bits << (16 * i);
      }
    }
    __builtin_memcpy(r, words, sizeof r);
  } else {
    UNROLL for (i32 i = 0; i < N; ++i) r[i] = f(i);
  }
  return load<T, N>(r);
}

//@ gather
// The elements p[at[i]], or p[i * stride]; with a mask the elements of true lanes, 0 in others.
template <class T, i32 N, class I>
DEVICE Vec<T, N> gather(const T* p, Vec<I, N> at) {
  I places[N];
  store(places, at);
  return assembled_<T, N>([&](i32 i) { return p[places[i]]; });
}
template <class T, i32 N, class I>
DEVICE Vec<T, N> gather(const T* p, Vec<I, N> at, Vec<bool, N> in) {
  if (!any_(in)) return Vec<T, N>(T{});
  // Other lanes read what the first of the true lanes reads: no lane branches.
  bool exists[N];
  store(exists, in);
  i32 first = 0;
  while (!exists[first]) ++first;
  const Vec<I, N> anywhere(at[first]);
  return select_(in, gather<T, N>(p, select_(in, at, anywhere)), Vec<T, N>(T{}));
}

//@ load_where
// The elements p[i] of true lanes, 0 in others. Mostly all lanes or none are true: at the borders of
// padded images, and between the operands of a cat.
template <class T, i32 N>
DEVICE Vec<T, N> load_where(const T* p, Vec<bool, N> in) {
  if (!any_(in)) return Vec<T, N>(T{});
  if (!any_(!in)) return load<T, N>(p);
  bool exists[N];
  store(exists, in);
  return assembled_<T, N>([&](i32 i) { return exists[i] ? p[i] : T{}; });
}

//@ gather_strided
template <class T, i32 N>
DEVICE Vec<T, N> gather_strided(const T* p, i64 stride) {
  return assembled_<T, N>([=](i32 i) { return p[i * stride]; });
}
template <class T, i32 N>
DEVICE Vec<T, N> gather_strided(const T* p, i64 stride, i64 count) {
  T r[N] = {};
  for (i64 i = 0; i < N && i < count; ++i) r[i] = p[i * stride];
  return load<T, N>(r);
}

//@ scatter
// Stores lane i to p[at[i]]; with a mask the true lanes.
template <class T, i32 N, class I>
DEVICE void scatter(T* p, Vec<I, N> at, Vec<T, N> x) {
  I places[N];
  T r[N];
  store(places, at);
  store(r, x);
  UNROLL for (i32 i = 0; i < N; ++i) p[places[i]] = r[i];
}
template <class T, i32 N, class I>
DEVICE void scatter(T* p, Vec<I, N> at, Vec<T, N> x, Vec<bool, N> in) {
  I places[N];
  bool exists[N];
  T r[N];
  store(places, at);
  store(exists, in);
  store(r, x);
  for (i32 i = 0; i < N; ++i) {
    if (exists[i]) p[places[i]] = r[i];
  }
}

//@ scatter_strided
template <class T, i32 N>
DEVICE void scatter_strided(T* p, i64 stride, Vec<T, N> x, i64 count = N) {
  T r[N];
  store(r, x);
  for (i64 i = 0; i < N && i < count; ++i) p[i * stride] = r[i];
}

//@ stream
// Stores past the caches where p is aligned to a register. A task that streams ends with
// stream_end(), which makes its elements visible to threads that wait for the task.
template <class T, i32 N>
DEVICE void stream(T* p, Vec<T, N> x) {
#if defined(__x86_64__)
  if constexpr (!Vec<T, N>::whole) {
    stream(p, x.v.low);
    stream(p + N / 2, x.v.high);
  } else if constexpr (sizeof(Raw_<T, N>) >= 16) {
    if (((__UINTPTR_TYPE__)p & (sizeof(Raw_<T, N>) - 1)) == 0) {
#ifdef __AVX__
      asm("vmovntdq %1, %0" : "=m"(*(Raw_<T, N>*)p) : "v"(x.v));
#else
      asm("movntdq %1, %0" : "=m"(*(Raw_<T, N>*)p) : "x"(x.v));
#endif
    } else {
      store(p, x);
    }
  } else {
    store(p, x);
  }
#else
  store(p, x);
#endif
}
template <i32 N>
DEVICE void stream(bool* p, Vec<bool, N> x) {
  stream((u8*)p, cast_<u8>(x.m & Vec<i32, N>(1)));
}

template <class T, i32 N>
DEVICE void stream(T* p, Vec<T, N> x, i64 count) {
  if (count >= N) stream(p, x);
  else store(p, x, count);
}

//@ stream : bf16
template <i32 N>
DEVICE void stream(bf16* p, Vec<bf16, N> x) {
  stream((u16*)p, x.bits);
}

//@ stream : f16
template <i32 N>
DEVICE void stream(f16* p, Vec<f16, N> x) {
  stream((u16*)p, x.bits);
}

//@ stream : f8e4m3
template <i32 N>
DEVICE void stream(f8e4m3* p, Vec<f8e4m3, N> x) {
  stream((u8*)p, x.bits);
}

//@ stream : f8e5m2
template <i32 N>
DEVICE void stream(f8e5m2* p, Vec<f8e5m2, N> x) {
  stream((u8*)p, x.bits);
}

//@ stream : c64
template <i32 N>
DEVICE void stream(c64* p, Vec<c64, N> x) {
  stream((f32*)p, interleave_(x.re, x.im));
}

//@ stream : c128
template <i32 N>
DEVICE void stream(c128* p, Vec<c128, N> x) {
  stream((f64*)p, interleave_(x.re, x.im));
}

//@ stream_end
DEVICE void stream_end() {
#if defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#endif
}
