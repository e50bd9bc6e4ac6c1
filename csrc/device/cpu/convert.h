// Conversions of vectors: to<T>(x) gives in each lane what to<T> of convert.cuh gives.
#pragma once

//@ small_float_ : Vec
template <i32 N>
DEVICE Vec<u32, N> small_float_(Vec<u32, N> magnitude, i32 mantissa, i32 bias) {
  typedef Vec<u32, N> B;
  const Vec<f32, N> ulps(float_((u32)(127 + 23 + 1 - bias - mantissa) << 23));
  const B denormal = bits_(float_(magnitude) + ulps) - bits_(ulps);
  const B shift((u32)(23 - mantissa));
  const B half_even = B((1u << (22 - mantissa)) - 1) + ((magnitude >> shift) & B(1u));
  const B normal = ((magnitude + half_even) >> shift) - B((u32)(127 - bias) << mantissa);
  return select_(magnitude < B((u32)(128 - bias) << 23), denormal, normal);
}

//@ wide_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> wide_(Vec<T, N> x) {
  return x;
}

//@ wide_ : bf16
template <i32 N>
DEVICE Vec<f32, N> wide_(Vec<bf16, N> x) {
  return float_(cast_<u32>(x.bits) << Vec<u32, N>(16u));
}

//@ wide_ : f16
template <i32 N>
DEVICE Vec<f32, N> wide_(Vec<f16, N> x) {
#ifdef __F16C__
  if constexpr (!Vec<f32, N>::whole) {
    return join_(wide_(Vec<f16, N / 2>(low_(x.bits))), wide_(Vec<f16, N / 2>(high_(x.bits))));
  } else if constexpr (sizeof(x.bits.v) >= 16) {
    Raw_<f32, N> r;
    asm("vcvtph2ps %1, %0" : "=v"(r) : "v"(x.bits.v));
    return Vec<f32, N>(r);
  }
#endif
  const Vec<u32, N> bits = cast_<u32>(x.bits), magnitude = bits & Vec<u32, N>(0x7fffu);
  const Vec<f32, N> finite = float_(magnitude << Vec<u32, N>(13u)) * Vec<f32, N>(0x1p112f);
  const Vec<u32, N> special = select_(magnitude < Vec<u32, N>(0x7c00u), Vec<u32, N>(0u),
                                      Vec<u32, N>(0x7f800000u));
  const Vec<u32, N> sign = (bits & Vec<u32, N>(0x8000u)) << Vec<u32, N>(16u);
  return float_(bits_(finite) | special | sign);
}

//@ wide_ : f8e4m3
template <i32 N>
DEVICE Vec<f32, N> wide_(Vec<f8e4m3, N> x) {
  const Vec<u32, N> bits = cast_<u32>(x.bits), magnitude = bits & Vec<u32, N>(0x7fu);
  const Vec<f32, N> finite = float_(magnitude << Vec<u32, N>(20u)) * Vec<f32, N>(0x1p120f);
  const Vec<u32, N> special = select_(magnitude == Vec<u32, N>(0x7fu), Vec<u32, N>(0x7fc00000u),
                                      Vec<u32, N>(0u));
  const Vec<u32, N> sign = (bits & Vec<u32, N>(0x80u)) << Vec<u32, N>(24u);
  return float_(bits_(finite) | special | sign);
}

//@ wide_ : f8e5m2
template <i32 N>
DEVICE Vec<f32, N> wide_(Vec<f8e5m2, N> x) {
  return wide_(Vec<f16, N>(cast_<u16>(x.bits) << Vec<u16, N>((u16)8)));
}

//@ saturated_
// Floats truncated to integers T of [low, high]. Clamped numbers are converted, so that each
// conversion is defined; a float may not hold `high`, but `above`, which is high + 1.
template <class T, class I, class S, i32 N>
DEVICE Vec<T, N> saturated_(Vec<S, N> x, T low, T high, S above) {
  typedef Vec<S, N> V;
  const V number = select_(x == x, greatest_(x, V((S)low)), V((S)0));
  if constexpr (sizeof(T) < sizeof(S) || sizeof(T) <= 2) {
    return cast_<T>(cast_<I>(least_(number, V((S)high))));
  } else {
    const Vec<bool, N> over = x >= V(above);
    return select_(over, Vec<T, N>(high), cast_<T>(cast_<I>(select_(over, V((S)0), number))));
  }
}

//@ truncated_
// Floats as integers, with the ranges of narrow_.
template <class S, i32 N>
DEVICE Vec<u8, N> truncated_(Vec<S, N> x, Tag<u8>) {
  return saturated_<u8, i32>(x, 0, 255, (S)256);
}
template <class S, i32 N>
DEVICE Vec<i8, N> truncated_(Vec<S, N> x, Tag<i8>) {
  return saturated_<i8, i32>(x, -128, 127, (S)128);
}
template <class S, i32 N>
DEVICE Vec<u16, N> truncated_(Vec<S, N> x, Tag<u16>) {
  return saturated_<u16, i32>(x, 0, 65535, (S)65536);
}
template <class S, i32 N>
DEVICE Vec<i16, N> truncated_(Vec<S, N> x, Tag<i16>) {
  return saturated_<i16, i32>(x, -32768, 32767, (S)32768);
}
template <class S, i32 N>
DEVICE Vec<u32, N> truncated_(Vec<S, N> x, Tag<u32>) {
  return saturated_<u32, i64>(x, 0, 4294967295u, (S)0x1p32);
}
template <class S, i32 N>
DEVICE Vec<i32, N> truncated_(Vec<S, N> x, Tag<i32>) {
  return saturated_<i32, i32>(x, -2147483647 - 1, 2147483647, (S)0x1p31);
}
template <class S, i32 N>
DEVICE Vec<u64, N> truncated_(Vec<S, N> x, Tag<u64>) {
  return saturated_<u64, u64>(x, 0, 18446744073709551615ull, (S)0x1p64);
}
template <class S, i32 N>
DEVICE Vec<i64, N> truncated_(Vec<S, N> x, Tag<i64>) {
  return saturated_<i64, i64>(x, -9223372036854775807ll - 1, 9223372036854775807ll, (S)0x1p63);
}

//@ converted_
// to<T> of a vector of integers, floats or complex numbers.
template <class T, class S, i32 N>
DEVICE Vec<T, N> converted_(Vec<S, N> x, Tag<T>) {
  if constexpr (is_float_<S> && !is_float_<T>) return truncated_(x, Tag<T>());
  else return cast_<T>(x);
}
template <class S, i32 N>
DEVICE Vec<bool, N> converted_(Vec<S, N> x, Tag<bool>) {
  return is_true_(x);
}
template <class T, i32 N>
DEVICE Vec<T, N> converted_(Vec<bool, N> x, Tag<T>) {
  return select_(x, Vec<T, N>((T)1), Vec<T, N>((T)0));
}
template <i32 N>
DEVICE Vec<bool, N> converted_(Vec<bool, N> x, Tag<bool>) {
  return x;
}

//@ single_
// x as float32, which conversions to smaller floats start from.
template <class S, i32 N>
DEVICE Vec<f32, N> single_(Vec<S, N> x) {
  return converted_(x, Tag<f32>());
}
template <i32 N>
DEVICE Vec<f32, N> single_(Vec<f32, N> x) {
  return x;
}

//@ upper_halves_
// The upper 16 bits of each lane. Two registers become one by one shuffle.
template <i32 N>
DEVICE Vec<u16, N> upper_halves_(Vec<u32, N> x) {
  if constexpr (Vec<u32, N>::whole) {
    return cast_<u16>(x >> Vec<u32, N>(16u));
  } else if constexpr (SIMD_BYTES == 64 && Vec<u32, N / 2>::whole) {
    typedef Raw_<u16, N> R;
    return Vec<u16, N>(every_other_of_<1, R>((R)x.v.low.v, (R)x.v.high.v,
                                             typename CountFrom_<N, 0>::Type()));
  } else {
    return join_(upper_halves_(x.v.low), upper_halves_(x.v.high));
  }
}

//@ rounded_to_ : bf16
template <i32 N>
DEVICE Vec<bf16, N> rounded_to_(Vec<f32, N> x, Tag<bf16>) {
  typedef Vec<u32, N> B;
  const B bits = bits_(x), rounded = bits + B(0x7fffu) + ((bits >> B(16u)) & B(1u));
  return Vec<bf16, N>(upper_halves_(select_(x == x, rounded, B(0x7fff0000u))));
}

//@ rounded_to_ : f16
template <i32 N>
DEVICE Vec<f16, N> rounded_to_(Vec<f32, N> x, Tag<f16>) {
#ifdef __F16C__
  if constexpr (!Vec<f32, N>::whole) {
    return Vec<f16, N>(join_(rounded_to_(low_(x), Tag<f16>()).bits,
                             rounded_to_(high_(x), Tag<f16>()).bits));
  } else if constexpr (sizeof(Raw_<u16, N>) >= 16) {
    Raw_<u16, N> r;
    asm("vcvtps2ph $0, %1, %0" : "=v"(r) : "v"(x.v));
    return Vec<f16, N>(Vec<u16, N>(r));
  }
#endif
  typedef Vec<u32, N> B;
  const B bits = bits_(x), magnitude = bits & B(0x7fffffffu);
  const B special = select_(x == x, B(0x7c00u), B(0x7fffu));
  const B rounded = select_(magnitude < B(0x477ff000u), small_float_(magnitude, 10, 15), special);
  return Vec<f16, N>(cast_<u16>(rounded | ((bits >> B(16u)) & B(0x8000u))));
}

//@ rounded_to_ : f8e4m3
template <i32 N>
DEVICE Vec<f8e4m3, N> rounded_to_(Vec<f32, N> x, Tag<f8e4m3>) {
  typedef Vec<u32, N> B;
  const B bits = bits_(x), magnitude = bits & B(0x7fffffffu);
  const B special = select_(x == x, B(0x7eu), B(0x7fu));
  const B rounded = select_(magnitude < B(0x43e80000u), small_float_(magnitude, 3, 7), special);
  return Vec<f8e4m3, N>(cast_<u8>(rounded | ((bits >> B(24u)) & B(0x80u))));
}

//@ rounded_to_ : f8e5m2
template <i32 N>
DEVICE Vec<f8e5m2, N> rounded_to_(Vec<f32, N> x, Tag<f8e5m2>) {
  typedef Vec<u32, N> B;
  const B bits = bits_(x), magnitude = bits & B(0x7fffffffu);
  const B special = select_(x == x, B(0x7cu), B(0x7fu));
  const B rounded = select_(magnitude < B(0x47700000u), small_float_(magnitude, 2, 15), special);
  return Vec<f8e5m2, N>(cast_<u8>(rounded | ((bits >> B(24u)) & B(0x80u))));
}

//@ converted_ : bf16
template <class S, i32 N>
DEVICE Vec<bf16, N> converted_(Vec<S, N> x, Tag<bf16>) {
  return rounded_to_(single_(x), Tag<bf16>());
}
template <i32 N>
DEVICE Vec<bf16, N> converted_(Vec<bool, N> x, Tag<bf16>) {
  return rounded_to_(single_(x), Tag<bf16>());
}

//@ converted_ : f16
template <class S, i32 N>
DEVICE Vec<f16, N> converted_(Vec<S, N> x, Tag<f16>) {
  return rounded_to_(single_(x), Tag<f16>());
}
template <i32 N>
DEVICE Vec<f16, N> converted_(Vec<bool, N> x, Tag<f16>) {
  return rounded_to_(single_(x), Tag<f16>());
}

//@ converted_ : f8e4m3
template <class S, i32 N>
DEVICE Vec<f8e4m3, N> converted_(Vec<S, N> x, Tag<f8e4m3>) {
  return rounded_to_(single_(x), Tag<f8e4m3>());
}
template <i32 N>
DEVICE Vec<f8e4m3, N> converted_(Vec<bool, N> x, Tag<f8e4m3>) {
  return rounded_to_(single_(x), Tag<f8e4m3>());
}

//@ converted_ : f8e5m2
template <class S, i32 N>
DEVICE Vec<f8e5m2, N> converted_(Vec<S, N> x, Tag<f8e5m2>) {
  return rounded_to_(single_(x), Tag<f8e5m2>());
}
template <i32 N>
DEVICE Vec<f8e5m2, N> converted_(Vec<bool, N> x, Tag<f8e5m2>) {
  return rounded_to_(single_(x), Tag<f8e5m2>());
}

//@ converted_ : c64
template <class S, i32 N>
DEVICE Vec<c64, N> converted_(Vec<S, N> x, Tag<c64>) {
  const Vec<f32, N> re = converted_(x, Tag<f32>());
  return Vec<c64, N>(re, Vec<f32, N>((f32)0));
}
template <i32 N>
DEVICE Vec<c64, N> converted_(Vec<bool, N> x, Tag<c64>) {
  return Vec<c64, N>(converted_(x, Tag<f32>()), Vec<f32, N>((f32)0));
}

//@ converted_ : c128
template <class S, i32 N>
DEVICE Vec<c128, N> converted_(Vec<S, N> x, Tag<c128>) {
  const Vec<f64, N> re = converted_(x, Tag<f64>());
  return Vec<c128, N>(re, Vec<f64, N>((f64)0));
}
template <i32 N>
DEVICE Vec<c128, N> converted_(Vec<bool, N> x, Tag<c128>) {
  return Vec<c128, N>(converted_(x, Tag<f64>()), Vec<f64, N>((f64)0));
}

//@ converted_ : c64 c128
template <class A, class B, i32 N>
DEVICE Vec<A, N> complex_of_(Vec<B, N> z) {
  typedef decltype(A().re) T;
  return Vec<A, N>(converted_(z.re, Tag<T>()), converted_(z.im, Tag<T>()));
}
template <i32 N>
DEVICE Vec<c64, N> converted_(Vec<c64, N> z, Tag<c64>) {
  return z;
}
template <i32 N>
DEVICE Vec<c64, N> converted_(Vec<c128, N> z, Tag<c64>) {
  return complex_of_<c64>(z);
}
template <i32 N>
DEVICE Vec<c128, N> converted_(Vec<c64, N> z, Tag<c128>) {
  return complex_of_<c128>(z);
}
template <i32 N>
DEVICE Vec<c128, N> converted_(Vec<c128, N> z, Tag<c128>) {
  return z;
}

//@ source_ : Vec
template <class S, i32 N, class T>
DEVICE Vec<S, N> source_(Vec<S, N> x, Tag<T>) {
  return x;
}

//@ source_ : c64 c128
// The real part of complex lanes, if T is not complex.
template <i32 N, class T>
DEVICE auto source_(Vec<c64, N> x, Tag<T>) {
  return x.re;
}
template <i32 N, class T>
DEVICE auto source_(Vec<c128, N> x, Tag<T>) {
  return x.re;
}
template <i32 N>
DEVICE Vec<bool, N> source_(Vec<c64, N> x, Tag<bool>) {
  return is_true_(x);
}
template <i32 N>
DEVICE Vec<bool, N> source_(Vec<c128, N> x, Tag<bool>) {
  return is_true_(x);
}
template <i32 N>
DEVICE Vec<c64, N> source_(Vec<c64, N> x, Tag<c64>) {
  return x;
}
template <i32 N>
DEVICE Vec<c64, N> source_(Vec<c64, N> x, Tag<c128>) {
  return x;
}
template <i32 N>
DEVICE Vec<c128, N> source_(Vec<c128, N> x, Tag<c64>) {
  return x;
}
template <i32 N>
DEVICE Vec<c128, N> source_(Vec<c128, N> x, Tag<c128>) {
  return x;
}

//@ to : Vec
template <class T, class S, i32 N>
DEVICE Vec<T, N> to(Vec<S, N> x) {
  return converted_(source_(wide_(x), Tag<T>()), Tag<T>());
}
