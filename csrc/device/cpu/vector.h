// Vectors of N lanes in registers. Lane i of a result depends on lane i of each operand alone.
//
// N is a power of two. A vector that exceeds a register consists of two vectors of half its lanes,
// because compilers keep larger vectors of their own in memory.
#pragma once

//@ is_float_
template <class T>
constexpr bool is_float_ = false;
template <>
constexpr bool is_float_<f32> = true;
template <>
constexpr bool is_float_<f64> = true;

//@ Unsigned_
// The unsigned integer that is as wide as T.
template <i32 BYTES>
struct UnsignedOf_;
template <>
struct UnsignedOf_<1> {
  typedef u8 Type;
};
template <>
struct UnsignedOf_<2> {
  typedef u16 Type;
};
template <>
struct UnsignedOf_<4> {
  typedef u32 Type;
};
template <>
struct UnsignedOf_<8> {
  typedef u64 Type;
};
template <class T>
using Unsigned_ = typename UnsignedOf_<sizeof(T)>::Type;

//@ Vec
template <class T, i32 N>
struct Vec;
template <i32 N, class M>
DEVICE Vec<bool, N> mask_(M m);

//@ Raw_ Halves_ Registers_
// The registers of a Vec.
template <class T, i32 N, bool WHOLE>
struct Registers_ {
  typedef T Type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, i32 N>
struct Halves_ {
  Vec<T, N / 2> low, high;
};
template <class T, i32 N>
struct Registers_<T, N, false> {
  typedef Halves_<T, N> Type;
};
template <class T, i32 N>
using Raw_ = typename Registers_<T, N, true>::Type;

//@ Vec
// Integers and floats of the compute dtypes.
template <class T, i32 N>
struct Vec {
  static constexpr bool whole = N * sizeof(T) <= SIMD_BYTES || N == 1;
  typedef typename Registers_<T, N, whole>::Type Type;
  Type v;

  Vec() = default;
  DEVICE explicit Vec(Type registers) : v(registers) {}
  DEVICE Vec(T x) : v(splat_(x)) {}
  DEVICE static Type splat_(T x) {
    if constexpr (whole) return x - Type{};  // x - 0 is x, of -0 too
    else return Type{Vec<T, N / 2>(x), Vec<T, N / 2>(x)};
  }
  DEVICE T operator[](i32 i) const {
    if constexpr (whole) return v[i];
    else return i < N / 2 ? v.low[i] : v.high[i - N / 2];
  }

  friend DEVICE Vec operator+(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v + b.v);
    else return Vec(Type{a.v.low + b.v.low, a.v.high + b.v.high});
  }
  friend DEVICE Vec operator-(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v - b.v);
    else return Vec(Type{a.v.low - b.v.low, a.v.high - b.v.high});
  }
  friend DEVICE Vec operator*(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v * b.v);
    else return Vec(Type{a.v.low * b.v.low, a.v.high * b.v.high});
  }
  friend DEVICE Vec operator/(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v / b.v);
    else return Vec(Type{a.v.low / b.v.low, a.v.high / b.v.high});
  }
  friend DEVICE Vec operator%(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v % b.v);
    else return Vec(Type{a.v.low % b.v.low, a.v.high % b.v.high});
  }
  friend DEVICE Vec operator&(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v & b.v);
    else return Vec(Type{a.v.low & b.v.low, a.v.high & b.v.high});
  }
  friend DEVICE Vec operator|(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v | b.v);
    else return Vec(Type{a.v.low | b.v.low, a.v.high | b.v.high});
  }
  friend DEVICE Vec operator^(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v ^ b.v);
    else return Vec(Type{a.v.low ^ b.v.low, a.v.high ^ b.v.high});
  }
  friend DEVICE Vec operator<<(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v << b.v);
    else return Vec(Type{a.v.low << b.v.low, a.v.high << b.v.high});
  }
  friend DEVICE Vec operator>>(Vec a, Vec b) {
    if constexpr (whole) return Vec(a.v >> b.v);
    else return Vec(Type{a.v.low >> b.v.low, a.v.high >> b.v.high});
  }
  friend DEVICE Vec operator-(Vec a) {
    static_assert((T)0.5 == 0, "minus_ negates floats");
    return Vec((T)0) - a;
  }
  friend DEVICE Vec operator~(Vec a) { return a ^ Vec((T)-1); }

  friend DEVICE Vec<bool, N> operator<(Vec a, Vec b) {
    if constexpr (whole) return mask_<N>(a.v < b.v);
    else return join_(a.v.low < b.v.low, a.v.high < b.v.high);
  }
  friend DEVICE Vec<bool, N> operator<=(Vec a, Vec b) {
    if constexpr (whole) return mask_<N>(a.v <= b.v);
    else return join_(a.v.low <= b.v.low, a.v.high <= b.v.high);
  }
  friend DEVICE Vec<bool, N> operator==(Vec a, Vec b) {
    if constexpr (whole) return mask_<N>(a.v == b.v);
    else return join_(a.v.low == b.v.low, a.v.high == b.v.high);
  }
  friend DEVICE Vec<bool, N> operator!=(Vec a, Vec b) {
    if constexpr (whole) return mask_<N>(a.v != b.v);
    else return join_(a.v.low != b.v.low, a.v.high != b.v.high);
  }
  friend DEVICE Vec<bool, N> operator>(Vec a, Vec b) { return b < a; }
  friend DEVICE Vec<bool, N> operator>=(Vec a, Vec b) { return b <= a; }

  DEVICE Vec& operator+=(Vec b) { return *this = *this + b; }
  DEVICE Vec& operator-=(Vec b) { return *this = *this - b; }
  DEVICE Vec& operator*=(Vec b) { return *this = *this * b; }
  DEVICE Vec& operator|=(Vec b) { return *this = *this | b; }
};

//@ Vec
// Masks: -1 in lanes that are true, 0 in others.
template <i32 N>
struct Vec<bool, N> {
  Vec<i32, N> m;

  Vec() = default;
  DEVICE explicit Vec(Vec<i32, N> mask) : m(mask) {}
  DEVICE Vec(bool x) : m(-(i32)x) {}
  DEVICE bool operator[](i32 i) const { return m[i] != 0; }

  friend DEVICE Vec operator&(Vec a, Vec b) { return Vec(a.m & b.m); }
  friend DEVICE Vec operator|(Vec a, Vec b) { return Vec(a.m | b.m); }
  friend DEVICE Vec operator^(Vec a, Vec b) { return Vec(a.m ^ b.m); }
  friend DEVICE Vec operator&&(Vec a, Vec b) { return a & b; }
  friend DEVICE Vec operator||(Vec a, Vec b) { return a | b; }
  friend DEVICE Vec operator~(Vec a) { return Vec(~a.m); }
  friend DEVICE Vec operator!(Vec a) { return ~a; }
  friend DEVICE Vec operator==(Vec a, Vec b) { return ~(a ^ b); }
  friend DEVICE Vec operator!=(Vec a, Vec b) { return a ^ b; }
  friend DEVICE Vec operator<(Vec a, Vec b) { return ~a & b; }
  friend DEVICE Vec operator>(Vec a, Vec b) { return a & ~b; }
  friend DEVICE Vec operator<=(Vec a, Vec b) { return ~a | b; }
  friend DEVICE Vec operator>=(Vec a, Vec b) { return a | ~b; }
};

//@ Vec : bf16
template <i32 N>
struct Vec<bf16, N> {
  Vec<u16, N> bits;

  Vec() = default;
  DEVICE explicit Vec(Vec<u16, N> x) : bits(x) {}
  DEVICE Vec(bf16 x) : bits(x.bits) {}
  DEVICE bf16 operator[](i32 i) const { return bf16{bits[i]}; }
};

//@ Vec : f16
template <i32 N>
struct Vec<f16, N> {
  Vec<u16, N> bits;

  Vec() = default;
  DEVICE explicit Vec(Vec<u16, N> x) : bits(x) {}
  DEVICE Vec(f16 x) : bits(x.bits) {}
  DEVICE f16 operator[](i32 i) const { return f16{bits[i]}; }
};

//@ Vec : f8e4m3
template <i32 N>
struct Vec<f8e4m3, N> {
  Vec<u8, N> bits;

  Vec() = default;
  DEVICE explicit Vec(Vec<u8, N> x) : bits(x) {}
  DEVICE Vec(f8e4m3 x) : bits(x.bits) {}
  DEVICE f8e4m3 operator[](i32 i) const { return f8e4m3{bits[i]}; }
};

//@ Vec : f8e5m2
template <i32 N>
struct Vec<f8e5m2, N> {
  Vec<u8, N> bits;

  Vec() = default;
  DEVICE explicit Vec(Vec<u8, N> x) : bits(x) {}
  DEVICE Vec(f8e5m2 x) : bits(x.bits) {}
  DEVICE f8e5m2 operator[](i32 i) const { return f8e5m2{bits[i]}; }
};

//@ Vec : c64
template <i32 N>
struct Vec<c64, N> {
  Vec<f32, N> re, im;

  Vec() = default;
  DEVICE Vec(Vec<f32, N> real, Vec<f32, N> imaginary) : re(real), im(imaginary) {}
  DEVICE Vec(c64 x) : re(x.re), im(x.im) {}
  DEVICE c64 operator[](i32 i) const { return c64{re[i], im[i]}; }
};

//@ Vec : c128
template <i32 N>
struct Vec<c128, N> {
  Vec<f64, N> re, im;

  Vec() = default;
  DEVICE Vec(Vec<f64, N> real, Vec<f64, N> imaginary) : re(real), im(imaginary) {}
  DEVICE Vec(c128 x) : re(x.re), im(x.im) {}
  DEVICE c128 operator[](i32 i) const { return c128{re[i], im[i]}; }
};

//@ low_ high_ join_ Order_ CountFrom_
// The first and the last half of the lanes, and the vector of two halves. GCC before 12 has no shuffle
// of vectors that changes their size.
template <i32... I>
struct Order_ {};
template <i32 COUNT, i32 FIRST, i32... I>
struct CountFrom_ : CountFrom_<COUNT - 1, FIRST, FIRST + COUNT - 1, I...> {};
template <i32 FIRST, i32... I>
struct CountFrom_<0, FIRST, I...> {
  typedef Order_<I...> Type;
};
template <class R, class S, i32... I>
DEVICE R shuffled_(S a, S b, Order_<I...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, I...);
#else
  const S both[2] = {a, b};
  constexpr i32 first[] = {I...};
  R r;
  __builtin_memcpy(&r, (const char*)both + first[0] * (sizeof r / sizeof...(I)), sizeof r);
  return r;
#endif
}
template <class T, i32 N>
DEVICE Vec<T, N / 2> low_(Vec<T, N> x) {
  if constexpr (!Vec<T, N>::whole) return x.v.low;
  else return Vec<T, N / 2>(
      shuffled_<Raw_<T, N / 2>>(x.v, x.v, typename CountFrom_<N / 2, 0>::Type()));
}
template <class T, i32 N>
DEVICE Vec<T, N / 2> high_(Vec<T, N> x) {
  if constexpr (!Vec<T, N>::whole) return x.v.high;
  else return Vec<T, N / 2>(
      shuffled_<Raw_<T, N / 2>>(x.v, x.v, typename CountFrom_<N / 2, N / 2>::Type()));
}
template <class T, i32 N>
DEVICE Vec<T, 2 * N> join_(Vec<T, N> low, Vec<T, N> high) {
  typedef Vec<T, 2 * N> V;
  if constexpr (!V::whole) return V(typename V::Type{low, high});
  else return V(shuffled_<Raw_<T, 2 * N>>(low.v, high.v, typename CountFrom_<2 * N, 0>::Type()));
}
template <i32 N>
DEVICE Vec<bool, N / 2> low_(Vec<bool, N> x) {
  return Vec<bool, N / 2>(low_(x.m));
}
template <i32 N>
DEVICE Vec<bool, N / 2> high_(Vec<bool, N> x) {
  return Vec<bool, N / 2>(high_(x.m));
}
template <i32 N>
DEVICE Vec<bool, 2 * N> join_(Vec<bool, N> low, Vec<bool, N> high) {
  return Vec<bool, 2 * N>(join_(low.m, high.m));
}

//@ interleave_
// a[0], b[0], a[1], b[1] and so on.
template <class R, class S, i32... I>
DEVICE R interleaved_(S a, S b, Order_<I...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, (I / 2 + I % 2 * (i32)(sizeof...(I) / 2))...);
#else
  return R{(I % 2 == 0 ? a : b)[I / 2]...};
#endif
}
template <class T, i32 N>
DEVICE Vec<T, 2 * N> interleave_(Vec<T, N> a, Vec<T, N> b) {
  typedef Vec<T, 2 * N> V;
  if constexpr (V::whole) {
    return V(interleaved_<Raw_<T, 2 * N>>(a.v, b.v, typename CountFrom_<2 * N, 0>::Type()));
  } else {
    return join_(interleave_(low_(a), low_(b)), interleave_(high_(a), high_(b)));
  }
}

//@ halves_of_ lanes_of_
// The lower and the upper half of each lane as lanes, and the lanes of such halves.
template <i32 N>
DEVICE Vec<u32, 2 * N> halves_of_(Vec<u64, N> x) {
  if constexpr (!Vec<u64, N>::whole) return join_(halves_of_(x.v.low), halves_of_(x.v.high));
  else return Vec<u32, 2 * N>((Raw_<u32, 2 * N>)x.v);
}
template <i32 N>
DEVICE Vec<u64, N / 2> lanes_of_(Vec<u32, N> x) {
  if constexpr (!Vec<u32, N>::whole) return join_(lanes_of_(x.v.low), lanes_of_(x.v.high));
  else return Vec<u64, N / 2>((Raw_<u64, N / 2>)x.v);
}

//@ low_ high_ : c64 c128
template <i32 N>
DEVICE Vec<c64, N / 2> low_(Vec<c64, N> x) {
  return Vec<c64, N / 2>(low_(x.re), low_(x.im));
}
template <i32 N>
DEVICE Vec<c64, N / 2> high_(Vec<c64, N> x) {
  return Vec<c64, N / 2>(high_(x.re), high_(x.im));
}
template <i32 N>
DEVICE Vec<c128, N / 2> low_(Vec<c128, N> x) {
  return Vec<c128, N / 2>(low_(x.re), low_(x.im));
}
template <i32 N>
DEVICE Vec<c128, N / 2> high_(Vec<c128, N> x) {
  return Vec<c128, N / 2>(high_(x.re), high_(x.im));
}

//@ cast_
// Lanes converted as C++ does; float to integer only if the value fits. GCC makes several instructions
// of conversions for which the processor has one.
template <class T, class S, i32 N>
DEVICE Vec<T, N> cast_(Vec<S, N> x) {
  if constexpr (is_float_<T> && sizeof(S) < 4) {
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
#elif SIMD_BYTES == 64
  if constexpr (N == 16 && sizeof(T) == 1 && sizeof(S) == 4 && (S)0.5 == 0) {
    Raw_<T, N> r;
    asm("vpmovdb %1, %0" : "=v"(r) : "v"(x.v));
    return Vec<T, N>(r);
  }
  if constexpr (N == 16 && sizeof(T) == 4 && sizeof(S) == 1 && (T)0.5 == 0) {
    Raw_<T, N> r;
    if constexpr ((S)-1 < (S)0) asm("vpmovsxbd %1, %0" : "=v"(r) : "v"(x.v));
    else asm("vpmovzxbd %1, %0" : "=v"(r) : "v"(x.v));
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
