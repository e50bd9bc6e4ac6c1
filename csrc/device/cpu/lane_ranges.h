// Ranges of lanes that exist, and lanes at constant offsets. Only the printer of CPU kernels names
// these functions: it finds out how a condition or an index varies over lanes.
#pragma once

//@ LaneRange lanes_below lanes_from
// The condition of the lanes from `first` on and before `end`.
template <i32 N>
struct LaneRange {
  i64 first, end;

  DEVICE bool all() const { return first <= 0 && end >= N; }
  DEVICE bool none() const { return first >= N || end <= 0 || first >= end; }
  DEVICE static i32 within_(i64 x) { return (i32)(x < 0 ? 0 : x > N ? N : x); }
  DEVICE LaneRange<N / 2> low() const { return {first, end}; }
  DEVICE LaneRange<N / 2> high() const { return {first - N / 2, end - N / 2}; }
  // The condition as lanes of a signed integer: -1 or 0.
  template <class I>
  DEVICE auto lanes_() const {
    const Raw_<I, N> i = iota<I, N>((I)0).v;
    return (i >= Vec<I, N>((I)within_(first)).v) & (i < Vec<I, N>((I)within_(end)).v);
  }
  DEVICE Vec<bool, N> mask() const {
    if constexpr (Vec<i32, N>::whole) return mask_<N>(lanes_<i32>());
    else return join_(low().mask(), high().mask());
  }
  friend DEVICE LaneRange operator&&(LaneRange a, LaneRange b) {
    return {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
  }
  friend DEVICE LaneRange operator&&(bool a, LaneRange b) { return {b.first, a ? b.end : 0}; }
  friend DEVICE LaneRange operator&&(LaneRange a, bool b) { return b && a; }
};
template <i32 N>
DEVICE LaneRange<N> lanes_below(i64 end) {
  return {0, end};
}
template <i32 N>
DEVICE LaneRange<N> lanes_from(i64 first) {
  return {first, N};
}

//@ select_range_
// a in lanes of a range, b in others.
template <class T, i32 N>
DEVICE Vec<T, N> select_range_(LaneRange<N> in, Vec<T, N> a, Vec<T, N> b) {
  if constexpr (!Vec<T, N>::whole) {
    return join_(select_range_(in.low(), a.v.low, b.v.low),
                 select_range_(in.high(), a.v.high, b.v.high));
  } else if constexpr (sizeof(T) == 1) {
    return Vec<T, N>(in.template lanes_<i8>() ? a.v : b.v);
  } else if constexpr (sizeof(T) == 2) {
    return Vec<T, N>(in.template lanes_<i16>() ? a.v : b.v);
  } else if constexpr (sizeof(T) == 4) {
    return Vec<T, N>(in.template lanes_<i32>() ? a.v : b.v);
  } else {
    return Vec<T, N>(in.template lanes_<i64>() ? a.v : b.v);
  }
}
template <i32 N>
DEVICE Vec<bool, N> select_range_(LaneRange<N> in, Vec<bool, N> a, Vec<bool, N> b) {
  return Vec<bool, N>(select_range_(in, a.m, b.m));
}

//@ load_range
// The elements p[i] of a range of lanes, 0 in others.
template <class T, i32 N>
DEVICE void load_range_(Vec<T, N>& r, const T* p, LaneRange<N> in) {
  if constexpr (!Vec<T, N>::whole) {
    load_range_(r.v.low, p, in.low());
    load_range_(r.v.high, p + N / 2, in.high());
    return;
  }
#if SIMD_BYTES == 64
  else if constexpr (sizeof(r.v) >= 16) {
    const u64 mask = first_lanes_<N>(in.within_(in.end)) & ~first_lanes_<N>(in.within_(in.first));
    load_masked_(r, p, mask);
    return;
  }
#endif
  T some[N] = {};
  for (i32 i = in.within_(in.first); i < in.within_(in.end); ++i) some[i] = p[i];
  load_(r, some);
}
template <i32 N>
DEVICE void load_range_(Vec<bool, N>& r, const bool* p, LaneRange<N> in) {
  Vec<u8, N> bytes;
  load_range_(bytes, (const u8*)p, in);
  r = bytes != Vec<u8, N>((u8)0);
}
template <class T, i32 N>
DEVICE Vec<T, N> load_range(const T* p, LaneRange<N> in) {
  if (in.all()) return load<T, N>(p);
  if (in.none()) return Vec<T, N>(T{});
  Vec<T, N> r;
  load_range_(r, p, in);
  return r;
}

//@ load_pattern
// Moves lane at[i] - LEAST of x to lane i of the result, of which the lanes I are computed.
template <class AT, i32 LEAST, class T, i32 M, i32... I>
DEVICE Vec<T, (i32)sizeof...(I)> permuted_(Vec<T, M> x, Order_<I...>) {
  constexpr i32 n = sizeof...(I), first[] = {I...};
  if constexpr (!Vec<T, n>::whole) {
    return join_(permuted_<AT, LEAST>(x, typename CountFrom_<n / 2, first[0]>::Type()),
                 permuted_<AT, LEAST>(x, typename CountFrom_<n / 2, first[0] + n / 2>::Type()));
  } else if constexpr (!Vec<T, M>::whole) {
    constexpr i32 middle = LEAST + M / 2;
    if constexpr (((AT::at[I] < middle) && ...)) {
      return permuted_<AT, LEAST>(x.v.low, Order_<I...>());
    } else if constexpr (((AT::at[I] >= middle) && ...)) {
      return permuted_<AT, middle>(x.v.high, Order_<I...>());
    } else {
      typedef Unsigned_<T> U;
      constexpr Raw_<U, n> in_low = {(U)(AT::at[I] < middle ? -1 : 0)...};
      const Raw_<U, n> low = (Raw_<U, n>)permuted_<AT, LEAST>(x.v.low, Order_<I...>()).v;
      const Raw_<U, n> high = (Raw_<U, n>)permuted_<AT, middle>(x.v.high, Order_<I...>()).v;
      return Vec<T, n>((Raw_<T, n>)((low & in_low) | (high & ~in_low)));
    }
  } else {
#if defined(__clang__) || __GNUC__ >= 12
    return Vec<T, n>(__builtin_shufflevector(x.v, x.v, ((AT::at[I] - LEAST) & (M - 1))...));
#else
    return Vec<T, n>(Raw_<T, n>{x.v[(AT::at[I] - LEAST) & (M - 1)]...});
#endif
  }
}

// The lanes of a pattern, and the power of two of lanes that has them all.
template <i32... AT>
struct Pattern_ {
  static constexpr i32 n = sizeof...(AT);
  static constexpr i32 at[n] = {AT...};
  static constexpr i32 least_() {
    i32 least = 0;
    for (i32 i = 0; i < n; ++i) least = at[i] < least ? at[i] : least;
    return least;
  }
  static constexpr i32 most_() {
    i32 most = 0;
    for (i32 i = 0; i < n; ++i) most = at[i] > most ? at[i] : most;
    return most;
  }
  static constexpr i32 least = least_(), span = most_() - least + 1;
  static constexpr i32 window_() {
    i32 window = 1;
    while (window < span) window *= 2;
    return window;
  }
  static constexpr i32 window = window_();
};

// The elements p[AT] by lane; of a pattern that grows, those of the first `count` lanes.
template <class T, i32... AT>
DEVICE void load_pattern_(Vec<T, (i32)sizeof...(AT)>& r, const T* p, Order_<AT...>, i64 count) {
  typedef Pattern_<AT...> Of;
  constexpr i32 n = Of::n;
#if SIMD_BYTES == 64
  const i64 span = count >= n ? Of::span : count > 0 ? Of::at[count - 1] + 1 - Of::least : 0;
  r = permuted_<Of, Of::least>(load<T, Of::window>(p + Of::least, span),
                               typename CountFrom_<n, 0>::Type());
#else
  if (count >= n) {
    r = assembled_<T, n>([=](i32 i) { return p[Of::at[i]]; });
    return;
  }
  T some[n] = {};
  for (i64 i = 0; i < count; ++i) some[i] = p[Of::at[i]];
  load_(r, some);
#endif
}
template <i32... AT>
DEVICE void load_pattern_(Vec<bool, (i32)sizeof...(AT)>& r, const bool* p, Order_<AT...> at,
                          i64 count) {
  Vec<u8, (i32)sizeof...(AT)> bytes;
  load_pattern_(bytes, (const u8*)p, at, count);
  r = bytes != Vec<u8, (i32)sizeof...(AT)>((u8)0);
}
template <class T, i32... AT>
DEVICE Vec<T, (i32)sizeof...(AT)> load_pattern(const T* p, Order_<AT...> at,
                                               i64 count = sizeof...(AT)) {
  Vec<T, (i32)sizeof...(AT)> r;
  load_pattern_(r, p, at, count);
  return r;
}

//@ select_range_ : bf16
template <i32 N>
DEVICE Vec<bf16, N> select_range_(LaneRange<N> in, Vec<bf16, N> a, Vec<bf16, N> b) {
  return Vec<bf16, N>(select_range_(in, a.bits, b.bits));
}

//@ load_range : bf16
template <i32 N>
DEVICE void load_range_(Vec<bf16, N>& r, const bf16* p, LaneRange<N> in) {
  load_range_(r.bits, (const u16*)p, in);
}

//@ load_pattern : bf16
template <i32... AT>
DEVICE void load_pattern_(Vec<bf16, (i32)sizeof...(AT)>& r, const bf16* p, Order_<AT...> at,
                          i64 count) {
  load_pattern_(r.bits, (const u16*)p, at, count);
}

//@ select_range_ : f16
template <i32 N>
DEVICE Vec<f16, N> select_range_(LaneRange<N> in, Vec<f16, N> a, Vec<f16, N> b) {
  return Vec<f16, N>(select_range_(in, a.bits, b.bits));
}

//@ load_range : f16
template <i32 N>
DEVICE void load_range_(Vec<f16, N>& r, const f16* p, LaneRange<N> in) {
  load_range_(r.bits, (const u16*)p, in);
}

//@ load_pattern : f16
template <i32... AT>
DEVICE void load_pattern_(Vec<f16, (i32)sizeof...(AT)>& r, const f16* p, Order_<AT...> at,
                          i64 count) {
  load_pattern_(r.bits, (const u16*)p, at, count);
}

//@ select_range_ : f8e4m3
template <i32 N>
DEVICE Vec<f8e4m3, N> select_range_(LaneRange<N> in, Vec<f8e4m3, N> a, Vec<f8e4m3, N> b) {
  return Vec<f8e4m3, N>(select_range_(in, a.bits, b.bits));
}

//@ load_range : f8e4m3
template <i32 N>
DEVICE void load_range_(Vec<f8e4m3, N>& r, const f8e4m3* p, LaneRange<N> in) {
  load_range_(r.bits, (const u8*)p, in);
}

//@ load_pattern : f8e4m3
template <i32... AT>
DEVICE void load_pattern_(Vec<f8e4m3, (i32)sizeof...(AT)>& r, const f8e4m3* p, Order_<AT...> at,
                          i64 count) {
  load_pattern_(r.bits, (const u8*)p, at, count);
}

//@ select_range_ : f8e5m2
template <i32 N>
DEVICE Vec<f8e5m2, N> select_range_(LaneRange<N> in, Vec<f8e5m2, N> a, Vec<f8e5m2, N> b) {
  return Vec<f8e5m2, N>(select_range_(in, a.bits, b.bits));
}

//@ load_range : f8e5m2
template <i32 N>
DEVICE void load_range_(Vec<f8e5m2, N>& r, const f8e5m2* p, LaneRange<N> in) {
  load_range_(r.bits, (const u8*)p, in);
}

//@ load_pattern : f8e5m2
template <i32... AT>
DEVICE void load_pattern_(Vec<f8e5m2, (i32)sizeof...(AT)>& r, const f8e5m2* p, Order_<AT...> at,
                          i64 count) {
  load_pattern_(r.bits, (const u8*)p, at, count);
}

//@ select_range_ : c64
template <i32 N>
DEVICE Vec<c64, N> select_range_(LaneRange<N> in, Vec<c64, N> a, Vec<c64, N> b) {
  return Vec<c64, N>(select_range_(in, a.re, b.re), select_range_(in, a.im, b.im));
}

//@ load_range : c64
template <i32 N>
DEVICE void load_range_(Vec<c64, N>& r, const c64* p, LaneRange<N> in) {
  c64 some[N] = {};
  for (i32 i = in.within_(in.first); i < in.within_(in.end); ++i) some[i] = p[i];
  load_(r, some);
}

//@ load_pattern : c64
template <i32... AT>
DEVICE void load_pattern_(Vec<c64, (i32)sizeof...(AT)>& r, const c64* p, Order_<AT...>, i64 count) {
  constexpr i32 at[] = {AT...};
  c64 some[sizeof...(AT)] = {};
  for (i64 i = 0; i < (i64)sizeof...(AT) && i < count; ++i) some[i] = p[at[i]];
  load_(r, some);
}

//@ select_range_ : c128
template <i32 N>
DEVICE Vec<c128, N> select_range_(LaneRange<N> in, Vec<c128, N> a, Vec<c128, N> b) {
  return Vec<c128, N>(select_range_(in, a.re, b.re), select_range_(in, a.im, b.im));
}

//@ load_range : c128
template <i32 N>
DEVICE void load_range_(Vec<c128, N>& r, const c128* p, LaneRange<N> in) {
  c128 some[N] = {};
  for (i32 i = in.within_(in.first); i < in.within_(in.end); ++i) some[i] = p[i];
  load_(r, some);
}

//@ load_pattern : c128
template <i32... AT>
DEVICE void load_pattern_(Vec<c128, (i32)sizeof...(AT)>& r, const c128* p, Order_<AT...>, i64 count) {
  constexpr i32 at[] = {AT...};
  c128 some[sizeof...(AT)] = {};
  for (i64 i = 0; i < (i64)sizeof...(AT) && i < count; ++i) some[i] = p[at[i]];
  load_(r, some);
}

//@ where_ : LaneRange
template <i32 N, class T>
DEVICE Vec<T, N> where_(LaneRange<N> in, Vec<T, N> a, Vec<T, N> b) {
  if (in.all()) return a;
  if (in.none()) return b;
  return select_range_(in, a, b);
}
template <i32 N, class A, class B, class V = Mixed<A, B>>
DEVICE V where_(LaneRange<N> in, A a, B b) {
  return where_(in, V(a), V(b));
}
template <i32 N, class T>
DEVICE Vec<T, N> where_(LaneRange<N> in, T a, T b) {
  return where_(in, Vec<T, N>(a), Vec<T, N>(b));
}

//@ pattern constant_mask
// Lane i is `first` and offset i more; the mask of lanes that are 1.
template <class T, i32... AT>
DEVICE Vec<T, (i32)sizeof...(AT)> pattern(T first, Order_<AT...>) {
  constexpr T at[] = {(T)AT...};
  return load<T, (i32)sizeof...(AT)>(at) + Vec<T, (i32)sizeof...(AT)>(first);
}
template <i32... AT>
DEVICE Vec<bool, (i32)sizeof...(AT)> constant_mask(Order_<AT...>) {
  constexpr i32 mask[] = {-AT...};
  return Vec<bool, (i32)sizeof...(AT)>(load<i32, (i32)sizeof...(AT)>(mask));
}
