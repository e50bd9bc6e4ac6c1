// Lanes one by one and as groups: casts, masks and choices, bits, lists of lanes.
#pragma once

//@ resized_ has_resize_
// Lanes as wider or narrower integers, or as float64, by the one instruction that the processor has.
// GCC makes several of most such conversions.
template <class T, class S, i32 N>
constexpr bool has_resize_() {
  constexpr i32 from = sizeof(S), to = sizeof(T), wider = from < to ? to : from;
  constexpr i32 narrower = from < to ? from : to;
  if (from == to || is_float_<S> != is_float_<T> || N * wider != SIMD_BYTES) return false;
  // Compilers have no register for a vector of 8 bytes.
  if (N * narrower < 16) return false;
  if (is_float_<S>) return SIMD_BYTES == 64 && to > from;
  return SIMD_BYTES == 64 || (SIMD_BYTES == 32 && to > from);
}
template <class T, class S, i32 N>
DEVICE Vec<T, N> resized_(Vec<S, N> x) {
  constexpr i32 from = sizeof(S), to = sizeof(T);
  constexpr bool negative = (S)-1 < (S)0;
  Raw_<T, N> r;
#ifdef __AVX2__
  if constexpr (is_float_<S>) asm("vcvtps2pd %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 1 && to == 2 && negative) asm("vpmovsxbw %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 1 && to == 2) asm("vpmovzxbw %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 1 && to == 4 && negative) asm("vpmovsxbd %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 1 && to == 4) asm("vpmovzxbd %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 2 && to == 4 && negative) asm("vpmovsxwd %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 2 && to == 4) asm("vpmovzxwd %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 2 && to == 8 && negative) asm("vpmovsxwq %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 2 && to == 8) asm("vpmovzxwq %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 4 && to == 8 && negative) asm("vpmovsxdq %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 4 && to == 8) asm("vpmovzxdq %1, %0" : "=v"(r) : "v"(x.v));
#endif
#ifdef __AVX512F__
  if constexpr (from == 2 && to == 1) asm("vpmovwb %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 4 && to == 1) asm("vpmovdb %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 4 && to == 2) asm("vpmovdw %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 8 && to == 2) asm("vpmovqw %1, %0" : "=v"(r) : "v"(x.v));
  else if constexpr (from == 8 && to == 4) asm("vpmovqd %1, %0" : "=v"(r) : "v"(x.v));
#endif
  return Vec<T, N>(r);
}

//@ cast_
// Lanes converted as C++ does; float to integer only if the value fits.
template <class T, class S, i32 N>
DEVICE Vec<T, N> cast_(Vec<S, N> x) {
  constexpr bool apart = sizeof(T) == 8 && sizeof(S) == 1;
  if constexpr (has_resize_<T, S, N>()) {
    return resized_<T>(x);
  } else if constexpr (sizeof(S) < 4 && (is_float_<T> || apart)) {
    return cast_<T>(cast_<i32>(x));
  } else if constexpr (sizeof(T) == 1 && sizeof(S) == 8 && !is_float_<S>) {
    return cast_<T>(cast_<i32>(x));
  }
#if SIMD_BYTES == 32
  if constexpr (sizeof(T) == 1 && sizeof(S) == 4 && N == 8 && (S)0.5 == 0) {
    // Clang has no register for a vector of 8 bytes.
    const Raw_<u16, 8> w = (cast_<u16>(x) & Vec<u16, 8>((u16)0xff)).v;
    Raw_<u64, 2> packed;
    Raw_<T, 8> r;
    asm("vpackuswb %1, %1, %0" : "=x"(packed) : "x"(w));
    const u64 bytes = packed[0];
    __builtin_memcpy(&r, &bytes, sizeof r);
    return Vec<T, N>(r);
  }
  if constexpr (sizeof(T) == 4 && sizeof(S) == 1 && N == 8 && (T)0.5 == 0) {
    u64 bytes;
    __builtin_memcpy(&bytes, &x.v, sizeof bytes);
    const Raw_<u64, 2> packed = {bytes, 0};
    Raw_<T, N> r;
    if constexpr ((S)-1 < (S)0) asm("vpmovsxbd %1, %0" : "=x"(r) : "x"(packed));
    else asm("vpmovzxbd %1, %0" : "=x"(r) : "x"(packed));
    return Vec<T, N>(r);
  }
  if constexpr (sizeof(T) == 2 && sizeof(S) == 4 && N == 8 && (S)0.5 == 0) {
    const Vec<u32, 8> w(((Raw_<u32, 8>)x.v) & 0xffffu);
    Raw_<T, 8> r;
    asm("vpackusdw %2, %1, %0" : "=x"(r) : "x"(low_(w).v), "x"(high_(w).v));
    return Vec<T, N>(r);
  }
#endif
  if constexpr (Vec<T, N>::whole && Vec<S, N>::whole) {
    return Vec<T, N>(__builtin_convertvector(x.v, Raw_<T, N>));
  } else {
    return join_(cast_<T>(low_(x)), cast_<T>(high_(x)));
  }
}

//@ mask_
// The mask of a comparison, whose lanes are as wide as those compared.
template <i32 N, class M>
DEVICE Vec<bool, N> mask_(M m) {
  constexpr i32 bytes = sizeof(M) / N;
  if constexpr (bytes == 4) return Vec<bool, N>(Vec<i32, N>((Raw_<i32, N>)m));
  else if constexpr (bytes == 8) return Vec<bool, N>(cast_<i32>(Vec<i64, N>((Raw_<i64, N>)m)));
  else if constexpr (bytes == 2) return Vec<bool, N>(cast_<i32>(Vec<i16, N>((Raw_<i16, N>)m)));
  else return Vec<bool, N>(cast_<i32>(Vec<i8, N>((Raw_<i8, N>)m)));
}

//@ select_
// a in lanes that are true, b in others.
template <class T, i32 N>
DEVICE Vec<T, N> select_(Vec<bool, N> m, Vec<T, N> a, Vec<T, N> b) {
  if constexpr (!Vec<T, N>::whole || !Vec<i32, N>::whole) {
    return join_(select_(low_(m), low_(a), low_(b)), select_(high_(m), high_(a), high_(b)));
  } else if constexpr (sizeof(T) == 4) {
    return Vec<T, N>(m.m.v ? a.v : b.v);
  } else if constexpr (sizeof(T) == 8) {
    return Vec<T, N>(__builtin_convertvector(m.m.v, Raw_<i64, N>) ? a.v : b.v);
  } else if constexpr (sizeof(T) == 2) {
    return Vec<T, N>(__builtin_convertvector(m.m.v, Raw_<i16, N>) ? a.v : b.v);
  } else {
    return Vec<T, N>(__builtin_convertvector(m.m.v, Raw_<i8, N>) ? a.v : b.v);
  }
}
template <i32 N>
DEVICE Vec<bool, N> select_(Vec<bool, N> m, Vec<bool, N> a, Vec<bool, N> b) {
  return (m & a) | (~m & b);
}

//@ select_ : bf16
template <i32 N>
DEVICE Vec<bf16, N> select_(Vec<bool, N> m, Vec<bf16, N> a, Vec<bf16, N> b) {
  return Vec<bf16, N>(select_(m, a.bits, b.bits));
}

//@ select_ : f16
template <i32 N>
DEVICE Vec<f16, N> select_(Vec<bool, N> m, Vec<f16, N> a, Vec<f16, N> b) {
  return Vec<f16, N>(select_(m, a.bits, b.bits));
}

//@ select_ : f8e4m3
template <i32 N>
DEVICE Vec<f8e4m3, N> select_(Vec<bool, N> m, Vec<f8e4m3, N> a, Vec<f8e4m3, N> b) {
  return Vec<f8e4m3, N>(select_(m, a.bits, b.bits));
}

//@ select_ : f8e5m2
template <i32 N>
DEVICE Vec<f8e5m2, N> select_(Vec<bool, N> m, Vec<f8e5m2, N> a, Vec<f8e5m2, N> b) {
  return Vec<f8e5m2, N>(select_(m, a.bits, b.bits));
}

//@ select_ : c64 c128
template <i32 N>
DEVICE Vec<c64, N> select_(Vec<bool, N> m, Vec<c64, N> a, Vec<c64, N> b) {
  return Vec<c64, N>(select_(m, a.re, b.re), select_(m, a.im, b.im));
}
template <i32 N>
DEVICE Vec<c128, N> select_(Vec<bool, N> m, Vec<c128, N> a, Vec<c128, N> b) {
  return Vec<c128, N>(select_(m, a.re, b.re), select_(m, a.im, b.im));
}

//@ Mixed
// The vector type of operands that are vectors and scalars; no type unless both occur.
template <class T>
struct IsVec_ {
  static constexpr bool value = false;
};
template <class T, i32 N>
struct IsVec_<Vec<T, N>> {
  static constexpr bool value = true;
};
template <class... A>
struct FirstVec_ {};
template <class T, i32 N, class... A>
struct FirstVec_<Vec<T, N>, A...> {
  typedef Vec<T, N> Type;
};
template <class S, class... A>
struct FirstVec_<S, A...> : FirstVec_<A...> {};
template <bool ALL, class... A>
struct MixedOf_ : FirstVec_<A...> {};
template <class... A>
struct MixedOf_<true, A...> {};
template <class... A>
using Mixed = typename MixedOf_<(IsVec_<A>::value && ...), A...>::Type;

//@ where_ : Vec
template <i32 N, class T>
DEVICE Vec<T, N> where_(Vec<bool, N> m, Vec<T, N> a, Vec<T, N> b) {
  return select_(m, a, b);
}
template <i32 N, class A, class B, class V = Mixed<A, B>>
DEVICE V where_(Vec<bool, N> m, A a, B b) {
  return select_(m, V(a), V(b));
}
template <i32 N, class T>
DEVICE Vec<T, N> where_(Vec<bool, N> m, T a, T b) {
  return select_(m, Vec<T, N>(a), Vec<T, N>(b));
}

//@ bits_ : Vec
template <i32 N>
DEVICE Vec<u32, N> bits_(Vec<f32, N> x) {
  if constexpr (Vec<f32, N>::whole) return Vec<u32, N>((Raw_<u32, N>)x.v);
  else return join_(bits_(x.v.low), bits_(x.v.high));
}
template <i32 N>
DEVICE Vec<u64, N> bits_(Vec<f64, N> x) {
  if constexpr (Vec<f64, N>::whole) return Vec<u64, N>((Raw_<u64, N>)x.v);
  else return join_(bits_(x.v.low), bits_(x.v.high));
}

//@ float_ : Vec
template <i32 N>
DEVICE Vec<f32, N> float_(Vec<u32, N> bits) {
  if constexpr (Vec<u32, N>::whole) return Vec<f32, N>((Raw_<f32, N>)bits.v);
  else return join_(float_(bits.v.low), float_(bits.v.high));
}
template <i32 N>
DEVICE Vec<f64, N> float_(Vec<u64, N> bits) {
  if constexpr (Vec<u64, N>::whole) return Vec<f64, N>((Raw_<f64, N>)bits.v);
  else return join_(float_(bits.v.low), float_(bits.v.high));
}

//@ splat
template <i32 N, class T>
DEVICE Vec<T, N> splat(T x) {
  return Vec<T, N>(x);
}

//@ iota
// first, first + step, first + 2 step and so on.
template <class T, i32 N>
DEVICE Vec<T, N> iota(T first, T step = 1) {
  if constexpr (Vec<T, N>::whole) {
    Raw_<T, N> count;
    UNROLL for (i32 i = 0; i < N; ++i) count[i] = (T)i;
    return Vec<T, N>(count) * Vec<T, N>(step) + Vec<T, N>(first);
  } else {
    return join_(iota<T, N / 2>(first, step), iota<T, N / 2>(first + step * (T)(N / 2), step));
  }
}

//@ Lanes_ lanes_
// The lanes of a vector as an array.
template <class T, i32 N>
struct Lanes_ {
  T v[N];
};
template <class T, i32 N>
DEVICE Lanes_<T, N> lanes_(Vec<T, N> x) {
  Lanes_<T, N> lanes;
  store(lanes.v, x);
  return lanes;
}

//@ each_
// The vector of f(a[i], b[i], ...) for each lane i. The loop stays a loop, so that a long function
// occurs once.
template <class T, i32 N, class F, class... L>
DEVICE Vec<T, N> each_lane_(F f, const L&... x) {
  T result[N];
  for (i32 i = 0; i < N; ++i) result[i] = f(x.v[i]...);
  Vec<T, N> r;
  load_(r, result);
  return r;
}
template <class F, i32 N, class... S>
DEVICE auto each_(F f, Vec<S, N>... x) {
  return each_lane_<decltype(f(S()...)), N>(f, lanes_(x)...);
}
