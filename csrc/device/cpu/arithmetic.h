// Arithmetic, comparison, rounding and bits of vectors: equal to the scalar functions in each lane.
//
// An op without a vector form runs its scalar function lane by lane.
#pragma once

//@ fma_rn : Vec
template <class T, i32 N>
DEVICE Vec<T, N> fma_rn(Vec<T, N> x, Vec<T, N> y, Vec<T, N> z) {
  typedef typename Vec<T, N>::Type Type;
  if constexpr (!Vec<T, N>::whole) {
    return Vec<T, N>(Type{fma_rn(x.v.low, y.v.low, z.v.low), fma_rn(x.v.high, y.v.high, z.v.high)});
  } else {
#if defined(__clang__)
#if __has_builtin(__builtin_elementwise_fma)
    return Vec<T, N>(__builtin_elementwise_fma(x.v, y.v, z.v));
#endif
#elif defined(__FMA__)
#ifdef __AVX512F__
    if constexpr (sizeof(Type) == 64 && sizeof(T) == 4)
      return Vec<T, N>((Type)__builtin_ia32_vfmaddps512_mask(x.v, y.v, z.v, -1, 4));
    if constexpr (sizeof(Type) == 64 && sizeof(T) == 8)
      return Vec<T, N>((Type)__builtin_ia32_vfmaddpd512_mask(x.v, y.v, z.v, -1, 4));
#endif
    if constexpr (sizeof(Type) == 32 && sizeof(T) == 4)
      return Vec<T, N>((Type)__builtin_ia32_vfmaddps256(x.v, y.v, z.v));
    if constexpr (sizeof(Type) == 32 && sizeof(T) == 8)
      return Vec<T, N>((Type)__builtin_ia32_vfmaddpd256(x.v, y.v, z.v));
    if constexpr (sizeof(Type) == 16 && sizeof(T) == 4)
      return Vec<T, N>((Type)__builtin_ia32_vfmaddps(x.v, y.v, z.v));
    if constexpr (sizeof(Type) == 16 && sizeof(T) == 8)
      return Vec<T, N>((Type)__builtin_ia32_vfmaddpd(x.v, y.v, z.v));
#endif
    Type r;
    UNROLL for (i32 i = 0; i < N; ++i) r[i] = fma_rn((T)x.v[i], (T)y.v[i], (T)z.v[i]);
    return Vec<T, N>(r);
  }
}
template <class A, class B, class C, class V = Mixed<A, B, C>>
DEVICE auto fma_rn(A x, B y, C z) {
  return fma_rn(V(x), V(y), V(z));
}

//@ any_
// Whether a lane is true.
template <i32 N>
DEVICE bool any_(Vec<bool, N> m) {
  if constexpr (!Vec<i32, N>::whole) {
    return any_(low_(m) | high_(m));
  } else {
#if SIMD_BYTES == 64
    if constexpr (sizeof(m.m.v) == 64) {
      u16 lanes;
      asm("vptestmd %1, %1, %0" : "=Yk"(lanes) : "v"(m.m.v));
      return lanes != 0;
    }
#endif
#ifdef __AVX__
    if constexpr (sizeof(m.m.v) == 32 || sizeof(m.m.v) == 16) {
      u32 lanes;
      asm("vmovmskps %1, %0" : "=r"(lanes) : "x"(m.m.v));
      return lanes != 0;
    }
#endif
    u64 lanes[sizeof(m.m.v) / 8 + 1] = {};
    __builtin_memcpy(lanes, &m.m.v, sizeof m.m.v);
    u64 all = 0;
    UNROLL for (u64 some : lanes) all |= some;
    return all != 0;
  }
}

//@ Format_
// Fields of a float: mantissa bits, exponent bias, and 1.5 2^mantissa, whose sum with a smaller number
// has the nearest integer to that number in its low bits.
template <class T>
struct Format_ {
  static constexpr i32 mantissa = sizeof(T) == 4 ? 23 : 52, bias = sizeof(T) == 4 ? 127 : 1023;
  static constexpr T magic = (T)(sizeof(T) == 4 ? 12582912.0 : 6755399441055744.0);
};

//@ sign_bit_
// The vector with the sign bit of a float in each lane.
template <class T, i32 N>
DEVICE auto sign_bit_() {
  if constexpr (sizeof(T) == 4) return Vec<u32, N>(0x80000000u);
  else return Vec<u64, N>((u64)1 << 63);
}

//@ minus_ : Vec
template <class T, i32 N>
DEVICE auto minus_(Vec<T, N> x) {
  return float_(bits_(x) ^ sign_bit_<T, N>());
}

//@ neg_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> neg_(Vec<T, N> x) {
  return Vec<T, N>((T)0) - x;
}

//@ abs_ : Vec
template <class T, i32 N>
DEVICE auto abs_(Vec<T, N> x) {
  if constexpr (is_float_<T>) return float_(bits_(x) & ~sign_bit_<T, N>());
  else return select_(x < Vec<T, N>((T)0), neg_(x), x);
}

//@ sign_ : Vec
template <class T, i32 N>
DEVICE auto sign_(Vec<T, N> x) {
  const Vec<T, N> zero((T)0), one((T)1);
  return select_(x > zero, one, select_(x < zero, zero - one, zero));
}
template <i32 N>
DEVICE Vec<bool, N> sign_(Vec<bool, N> x) {
  return x;
}

//@ copysign_ : Vec
template <class T, i32 N>
DEVICE auto copysign_(Vec<T, N> x, Vec<T, N> y) {
  const auto sign = sign_bit_<T, N>();
  return float_((bits_(x) & ~sign) | (bits_(y) & sign));
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto copysign_(A x, B y) {
  return copysign_(V(x), V(y));
}

//@ rounded_
// Rounding of floats to integers by MODE: 8 to nearest even, 9 down, 10 up, 11 toward 0. The function
// f does so for one lane.
template <i32 MODE, class T, i32 N, class F>
DEVICE Vec<T, N> rounded_(Vec<T, N> x, F f) {
  if constexpr (!Vec<T, N>::whole) {
    return join_(rounded_<MODE>(x.v.low, f), rounded_<MODE>(x.v.high, f));
  } else {
    typename Vec<T, N>::Type r;
#ifdef __AVX512F__
    if constexpr (sizeof r == 64 && sizeof(T) == 4) {
      asm("vrndscaleps %2, %1, %0" : "=v"(r) : "v"(x.v), "i"(MODE));
      return Vec<T, N>(r);
    }
    if constexpr (sizeof r == 64 && sizeof(T) == 8) {
      asm("vrndscalepd %2, %1, %0" : "=v"(r) : "v"(x.v), "i"(MODE));
      return Vec<T, N>(r);
    }
#endif
#ifdef __AVX__
    if constexpr ((sizeof r == 32 || sizeof r == 16) && sizeof(T) == 4) {
      asm("vroundps %2, %1, %0" : "=x"(r) : "x"(x.v), "i"(MODE));
      return Vec<T, N>(r);
    }
    if constexpr ((sizeof r == 32 || sizeof r == 16) && sizeof(T) == 8) {
      asm("vroundpd %2, %1, %0" : "=x"(r) : "x"(x.v), "i"(MODE));
      return Vec<T, N>(r);
    }
#endif
    UNROLL for (i32 i = 0; i < N; ++i) r[i] = f((T)x.v[i]);
    return Vec<T, N>(r);
  }
}

//@ ceil_ : Vec
template <class T, i32 N>
DEVICE auto ceil_(Vec<T, N> x) {
  return rounded_<10>(x, [](T a) { return ceil_(a); });
}

//@ floor_ : Vec
template <class T, i32 N>
DEVICE auto floor_(Vec<T, N> x) {
  return rounded_<9>(x, [](T a) { return floor_(a); });
}

//@ round_ : Vec
template <class T, i32 N>
DEVICE auto round_(Vec<T, N> x) {
  return rounded_<8>(x, [](T a) { return round_(a); });
}

//@ trunc_ : Vec
template <class T, i32 N>
DEVICE auto trunc_(Vec<T, N> x) {
  return rounded_<11>(x, [](T a) { return trunc_(a); });
}

//@ frac_ : Vec
template <class T, i32 N>
DEVICE auto frac_(Vec<T, N> x) {
  return x - trunc_(x);
}

//@ nextafter_ : Vec
// The bits of numbers of one sign grow with their size.
template <class T, i32 N>
DEVICE Vec<T, N> nextafter_(Vec<T, N> x, Vec<T, N> y) {
  typedef Vec<T, N> V;
  const auto bits = bits_(x), one = decltype(bits)(1);
  const V zero((T)0), least = copysign_(float_(one), y);
  const V next = float_(select_((x < y) == (x > zero), bits + one, bits - one));
  const V y_or_next = select_(x == y, y, select_(x == zero, least, next));
  return select_((x == x) & (y == y), y_or_next, x + y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto nextafter_(A x, B y) {
  return nextafter_(V(x), V(y));
}

//@ least_ greatest_
// x < y ? x : y and x > y ? x : y, one instruction each.
template <class T, i32 N>
DEVICE Vec<T, N> least_(Vec<T, N> x, Vec<T, N> y) {
#ifdef __AVX__
  if constexpr (!Vec<T, N>::whole) {
    return join_(least_(x.v.low, y.v.low), least_(x.v.high, y.v.high));
  } else if constexpr (sizeof(x.v) >= 16) {
    if constexpr (sizeof(T) == 4) asm("vminps %1, %0, %0" : "+v"(x.v) : "v"(y.v));
    else asm("vminpd %1, %0, %0" : "+v"(x.v) : "v"(y.v));
    return x;
  }
#endif
  return select_(x < y, x, y);
}
template <class T, i32 N>
DEVICE Vec<T, N> greatest_(Vec<T, N> x, Vec<T, N> y) {
#ifdef __AVX__
  if constexpr (!Vec<T, N>::whole) {
    return join_(greatest_(x.v.low, y.v.low), greatest_(x.v.high, y.v.high));
  } else if constexpr (sizeof(x.v) >= 16) {
    if constexpr (sizeof(T) == 4) asm("vmaxps %1, %0, %0" : "+v"(x.v) : "v"(y.v));
    else asm("vmaxpd %1, %0, %0" : "+v"(x.v) : "v"(y.v));
    return x;
  }
#endif
  return select_(x > y, x, y);
}

//@ minimum_ : Vec
template <class T, i32 N>
DEVICE auto minimum_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (is_float_<T>) {
    // Equal zeros and a NaN are told by the order of operands: the other order gives the other one.
    return float_(bits_(least_(x, y)) | bits_(least_(y, x)));
  } else {
    return select_(y < x, y, x);
  }
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto minimum_(A x, B y) {
  return minimum_(V(x), V(y));
}

//@ maximum_ : Vec
template <class T, i32 N>
DEVICE auto maximum_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (is_float_<T>) {
    const Vec<T, N> number = float_(bits_(greatest_(x, y)) & bits_(greatest_(y, x)));
    return select_(x == x, select_(y == y, number, y), x);
  } else {
    return select_(x < y, y, x);
  }
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto maximum_(A x, B y) {
  return maximum_(V(x), V(y));
}

//@ relu_ : Vec
template <class T, i32 N>
DEVICE auto relu_(Vec<T, N> x) {
  const Vec<T, N> zero((T)0);
  if constexpr (is_float_<T>) return greatest_(zero, x) + zero;  // NaN as it is, and no -0
  else return maximum_(x, zero);
}

//@ clamp_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> clamp_(Vec<T, N> x, Vec<T, N> low, Vec<T, N> high) {
  return minimum_(maximum_(x, low), high);
}
template <class A, class B, class C, class V = Mixed<A, B, C>>
DEVICE auto clamp_(A x, B y, C z) {
  return clamp_(V(x), V(y), V(z));
}

//@ lerp_ : Vec
template <class T, i32 N>
DEVICE auto lerp_(Vec<T, N> x, Vec<T, N> y, Vec<T, N> weight) {
  if constexpr (is_float_<T>) {
    const Vec<T, N> span = y - x, one((T)1);
    const Vec<bool, N> near = abs_(weight) < Vec<T, N>((T)0.5);
    return fma_rn(select_(near, weight, weight - one), span, select_(near, x, y));
  } else {
    return each_([](T a, T b, T w) { return lerp_(a, b, w); }, x, y, weight);
  }
}
template <class A, class B, class C, class V = Mixed<A, B, C>>
DEVICE auto lerp_(A x, B y, C z) {
  return lerp_(V(x), V(y), V(z));
}

//@ isnan_ : Vec
template <class T, i32 N>
DEVICE auto isnan_(Vec<T, N> x) {
  if constexpr (is_float_<T>) return x != x;
  else return each_([](T a) { return isnan_(a); }, x);
}

//@ infinity_
template <class T>
constexpr T infinity_ = (T)__builtin_inff();

//@ isinf_ : Vec
template <class T, i32 N>
DEVICE auto isinf_(Vec<T, N> x) {
  if constexpr (is_float_<T>) return abs_(x) == Vec<T, N>(infinity_<T>);
  else return each_([](T a) { return isinf_(a); }, x);
}

//@ isfinite_ : Vec
template <class T, i32 N>
DEVICE auto isfinite_(Vec<T, N> x) {
  if constexpr (is_float_<T>) return abs_(x) < Vec<T, N>(infinity_<T>);
  else return each_([](T a) { return isfinite_(a); }, x);
}

//@ isposinf_ : Vec
template <class T, i32 N>
DEVICE auto isposinf_(Vec<T, N> x) {
  if constexpr (is_float_<T>) return x == Vec<T, N>(infinity_<T>);
  else return each_([](T a) { return isposinf_(a); }, x);
}

//@ isneginf_ : Vec
template <class T, i32 N>
DEVICE auto isneginf_(Vec<T, N> x) {
  if constexpr (is_float_<T>) return x == Vec<T, N>(-infinity_<T>);
  else return each_([](T a) { return isneginf_(a); }, x);
}

//@ isreal_ : Vec
template <class T, i32 N>
DEVICE auto isreal_(Vec<T, N> x) {
  if constexpr (is_float_<T>) return Vec<bool, N>(true);
  else return each_([](T a) { return isreal_(a); }, x);
}

//@ signbit_ : Vec
template <class T, i32 N>
DEVICE auto signbit_(Vec<T, N> x) {
  if constexpr (is_float_<T>) return (bits_(x) & sign_bit_<T, N>()) != sign_bit_<T, N>() - sign_bit_<T, N>();
  else return x < Vec<T, N>((T)0);
}

//@ is_true_ : Vec
template <class T, i32 N>
DEVICE Vec<bool, N> is_true_(Vec<T, N> x) {
  return x != Vec<T, N>((T)0);
}
template <i32 N>
DEVICE Vec<bool, N> is_true_(Vec<bool, N> x) {
  return x;
}

//@ is_true_ : c64 c128
template <i32 N>
DEVICE Vec<bool, N> is_true_(Vec<c64, N> x) {
  return is_true_(x.re) | is_true_(x.im);
}
template <i32 N>
DEVICE Vec<bool, N> is_true_(Vec<c128, N> x) {
  return is_true_(x.re) | is_true_(x.im);
}

//@ logical_not_ : Vec
template <class T, i32 N>
DEVICE auto logical_not_(Vec<T, N> x) {
  return ~is_true_(x);
}

//@ logical_and_ : Vec
template <class T, i32 N>
DEVICE auto logical_and_(Vec<T, N> x, Vec<T, N> y) {
  return is_true_(x) & is_true_(y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto logical_and_(A x, B y) {
  return logical_and_(V(x), V(y));
}

//@ logical_or_ : Vec
template <class T, i32 N>
DEVICE auto logical_or_(Vec<T, N> x, Vec<T, N> y) {
  return is_true_(x) | is_true_(y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto logical_or_(A x, B y) {
  return logical_or_(V(x), V(y));
}

//@ logical_xor_ : Vec
template <class T, i32 N>
DEVICE auto logical_xor_(Vec<T, N> x, Vec<T, N> y) {
  return is_true_(x) ^ is_true_(y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto logical_xor_(A x, B y) {
  return logical_xor_(V(x), V(y));
}

//@ bitwise_not_ : Vec
template <class T, i32 N>
DEVICE auto bitwise_not_(Vec<T, N> x) {
  return ~x;
}

//@ bitwise_and_ : Vec
template <class T, i32 N>
DEVICE auto bitwise_and_(Vec<T, N> x, Vec<T, N> y) {
  return x & y;
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto bitwise_and_(A x, B y) {
  return bitwise_and_(V(x), V(y));
}

//@ bitwise_or_ : Vec
template <class T, i32 N>
DEVICE auto bitwise_or_(Vec<T, N> x, Vec<T, N> y) {
  return x | y;
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto bitwise_or_(A x, B y) {
  return bitwise_or_(V(x), V(y));
}

//@ bitwise_xor_ : Vec
template <class T, i32 N>
DEVICE auto bitwise_xor_(Vec<T, N> x, Vec<T, N> y) {
  return x ^ y;
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto bitwise_xor_(A x, B y) {
  return bitwise_xor_(V(x), V(y));
}

//@ add_ : Vec
template <class T, i32 N>
DEVICE auto add_(Vec<T, N> x, Vec<T, N> y) {
  return x + y;
}
template <i32 N>
DEVICE Vec<bool, N> add_(Vec<bool, N> x, Vec<bool, N> y) {
  return x | y;
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto add_(A x, B y) {
  return add_(V(x), V(y));
}

//@ sub_ : Vec
template <class T, i32 N>
DEVICE auto sub_(Vec<T, N> x, Vec<T, N> y) {
  return x - y;
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto sub_(A x, B y) {
  return sub_(V(x), V(y));
}

//@ mul_ : Vec
template <class T, i32 N>
DEVICE auto mul_(Vec<T, N> x, Vec<T, N> y) {
  return x * y;
}
template <i32 N>
DEVICE Vec<bool, N> mul_(Vec<bool, N> x, Vec<bool, N> y) {
  return x & y;
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto mul_(A x, B y) {
  return mul_(V(x), V(y));
}

//@ reciprocal_ : Vec
template <class T, i32 N>
DEVICE auto reciprocal_(Vec<T, N> x) {
  return each_([](T a) { return reciprocal_(a); }, x);
}

//@ eq_ : Vec
template <class T, i32 N>
DEVICE auto eq_(Vec<T, N> x, Vec<T, N> y) {
  return each_([](T a, T b) { return eq_(a, b); }, x, y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto eq_(A x, B y) {
  return eq_(V(x), V(y));
}

//@ ne_ : Vec
template <class T, i32 N>
DEVICE auto ne_(Vec<T, N> x, Vec<T, N> y) {
  return each_([](T a, T b) { return ne_(a, b); }, x, y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto ne_(A x, B y) {
  return ne_(V(x), V(y));
}
