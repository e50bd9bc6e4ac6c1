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
template <i32 FIRST, class R, class S, i32... I>
DEVICE R interleaved_from_(S a, S b, Order_<I...>) {
  constexpr i32 lanes = sizeof(S) / sizeof(a[0]);
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, (FIRST + I / 2 + I % 2 * lanes)...);
#else
  return R{(I % 2 == 0 ? a : b)[FIRST + I / 2]...};
#endif
}
template <class T, i32 N>
DEVICE Vec<T, 2 * N> interleave_(Vec<T, N> a, Vec<T, N> b) {
  if constexpr (!Vec<T, N>::whole) {
    return join_(interleave_(low_(a), low_(b)), interleave_(high_(a), high_(b)));
  } else if constexpr (Vec<T, 2 * N>::whole) {
    typedef typename CountFrom_<2 * N, 0>::Type Lanes;
    return Vec<T, 2 * N>(interleaved_from_<0, Raw_<T, 2 * N>>(a.v, b.v, Lanes()));
  } else {
    typedef typename CountFrom_<N, 0>::Type Lanes;
    return join_(Vec<T, N>(interleaved_from_<0, Raw_<T, N>>(a.v, b.v, Lanes())),
                 Vec<T, N>(interleaved_from_<N / 2, Raw_<T, N>>(a.v, b.v, Lanes())));
  }
}

//@ every_other_ every_other_of_
// Lanes FIRST, FIRST + 2, FIRST + 4 and so on, FIRST being 0 or 1.
template <i32 FIRST, class R, class S, i32... I>
DEVICE R every_other_of_(S a, S b, Order_<I...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, (FIRST + 2 * I)...);
#else
  constexpr i32 lanes = sizeof(S) / sizeof(a[0]);
  return R{(2 * I < lanes ? a : b)[(FIRST + 2 * I) % lanes]...};
#endif
}
template <i32 FIRST, class T, i32 N>
DEVICE Vec<T, N / 2> every_other_(Vec<T, N> x) {
  typedef Vec<T, N / 2> V;
  typedef typename CountFrom_<N / 2, 0>::Type Lanes;
  if constexpr (!V::whole) {
    return join_(every_other_<FIRST>(low_(x)), every_other_<FIRST>(high_(x)));
  } else if constexpr (Vec<T, N>::whole) {
    return V(every_other_of_<FIRST, Raw_<T, N / 2>>(x.v, x.v, Lanes()));
  } else {
    return V(every_other_of_<FIRST, Raw_<T, N / 2>>(x.v.low.v, x.v.high.v, Lanes()));
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
