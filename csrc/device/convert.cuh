// Conversions between element types: to<T>(x). Floats to integers saturate, NaN gives 0; integers
// wrap; 16-bit and 8-bit floats go through f32 and round to nearest even, as torch does.

//@ small_float_
// The bits, without the sign, of |x| rounded to a float of `mantissa` bits and exponent bias
// `bias`. |x| must not overflow: the exponent is not checked at the top.
DEVICE u32 small_float_(u32 magnitude, i32 mantissa, i32 bias) {
  // Below the least normal number, adding 2^23 units of the last place lets the float adder round.
  const f32 ulps = float_((u32)(127 + 23 + 1 - bias - mantissa) << 23);
  const u32 denormal = bits_(float_(magnitude) + ulps) - bits_(ulps);
  const i32 shift = 23 - mantissa;
  const u32 half_even = (1u << (shift - 1)) - 1 + ((magnitude >> shift) & 1);
  const u32 normal = ((magnitude + half_even) >> shift) - ((u32)(127 - bias) << mantissa);
  return magnitude < ((u32)(128 - bias) << 23) ? denormal : normal;
}

//@ wide_
// The arithmetic or complex value of an element: small floats become f32, the rest stays.
template <class T>
DEVICE T wide_(T x) {
  return x;
}

//@ wide_ : bf16
DEVICE f32 wide_(bf16 x) { return float_((u32)x.bits << 16); }

//@ wide_ : f16
#ifdef FUSER_HOST
DEVICE f32 wide_(f16 x) {
  // The multiplication makes denormals normal; infinity and NaN keep their exponent.
  const f32 finite = float_((u32)(x.bits & 0x7fff) << 13) * 0x1p112f;
  const u32 special = (x.bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
  return float_(bits_(finite) | special | ((u32)(x.bits & 0x8000) << 16));
}
#else
DEVICE f32 wide_(f16 x) {
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
#endif

//@ wide_ : f8e4m3
#if !defined(FUSER_HOST) && __CUDA_ARCH__ >= 890
DEVICE f32 wide_(f8e4m3 x) {
  u32 halves;
  f32 y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((u16)x.bits));
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((u16)halves));
  return y;
}
#else
DEVICE f32 wide_(f8e4m3 x) {
  const u32 magnitude = x.bits & 0x7f;
  const f32 finite = float_(magnitude << 20) * 0x1p120f;
  const u32 special = magnitude == 0x7f ? 0x7fc00000u : 0u;
  return float_(bits_(finite) | special | ((u32)(x.bits & 0x80) << 24));
}
#endif

//@ wide_ : f8e5m2
DEVICE f32 wide_(f8e5m2 x) { return wide_(f16{(u16)(x.bits << 8)}); }

//@ source_
// What of x is converted to T: x, or the real part of a complex x when T is not complex.
template <class S, class T>
DEVICE S source_(S x, Tag<T>) {
  return x;
}

//@ source_ : c64 c128
template <class T>
DEVICE f32 source_(c64 x, Tag<T>) {
  return x.re;
}
template <class T>
DEVICE f64 source_(c128 x, Tag<T>) {
  return x.re;
}
DEVICE c64 source_(c64 x, Tag<c64>) { return x; }
DEVICE c64 source_(c64 x, Tag<c128>) { return x; }
DEVICE c128 source_(c128 x, Tag<c64>) { return x; }
DEVICE c128 source_(c128 x, Tag<c128>) { return x; }
DEVICE bool source_(c64 x, Tag<bool>) { return (x.re != 0) | (x.im != 0); }
DEVICE bool source_(c128 x, Tag<bool>) { return (x.re != 0) | (x.im != 0); }

//@ saturate_
// x truncated to an integer of T's range [low, high]; `above` is high + 1, a power of two.
template <class T, class S>
DEVICE T saturate_(S x, S above, T low, T high) {
#ifdef FUSER_HOST
  const bool inside = (x > (S)low - 1) & (x < above);  // false for NaN: the cast below is defined
  const T outside = x >= above ? high : (x <= (S)low ? low : (T)0);
  // (S)low - 1 rounds to low where S has fewer bits than T; low itself is then caught here.
  return inside ? (T)x : outside;
#else
  return x >= above ? high : (x <= (S)low ? low : (x == x ? (T)x : (T)0));
#endif
}

//@ narrow_
template <class S, class T>
DEVICE T narrow_(S x, Tag<T>) {
  return (T)x;
}
template <class S>
DEVICE bool narrow_(S x, Tag<bool>) {
  return x != 0;
}

//@ narrow_ : i16
DEVICE i16 narrow_(i32 x, Tag<i16>) { return unseen_((i16)x); }
DEVICE i16 narrow_(i64 x, Tag<i16>) { return unseen_((i16)x); }

//@ narrow_ : i8 i16 i32 i64 u8 u32 u64
DEVICE u8 narrow_(f32 x, Tag<u8>) { return saturate_<u8>(x, 256.0f, 0, 255); }
DEVICE u8 narrow_(f64 x, Tag<u8>) { return saturate_<u8>(x, 256.0, 0, 255); }
DEVICE i8 narrow_(f32 x, Tag<i8>) { return saturate_<i8>(x, 128.0f, -128, 127); }
DEVICE i8 narrow_(f64 x, Tag<i8>) { return saturate_<i8>(x, 128.0, -128, 127); }
DEVICE i16 narrow_(f32 x, Tag<i16>) { return saturate_<i16>(x, 32768.0f, -32768, 32767); }
DEVICE i16 narrow_(f64 x, Tag<i16>) { return saturate_<i16>(x, 32768.0, -32768, 32767); }
DEVICE i32 narrow_(f32 x, Tag<i32>) {
  return saturate_<i32>(x, 0x1p31f, -2147483647 - 1, 2147483647);
}
DEVICE i32 narrow_(f64 x, Tag<i32>) {
  return saturate_<i32>(x, 0x1p31, -2147483647 - 1, 2147483647);
}
DEVICE i64 narrow_(f32 x, Tag<i64>) {
  return saturate_<i64>(x, 0x1p63f, -9223372036854775807ll - 1, 9223372036854775807ll);
}
DEVICE i64 narrow_(f64 x, Tag<i64>) {
  return saturate_<i64>(x, 0x1p63, -9223372036854775807ll - 1, 9223372036854775807ll);
}
DEVICE u32 narrow_(f32 x, Tag<u32>) { return saturate_<u32>(x, 0x1p32f, 0, 4294967295u); }
DEVICE u32 narrow_(f64 x, Tag<u32>) { return saturate_<u32>(x, 0x1p32, 0, 4294967295u); }
DEVICE u64 narrow_(f32 x, Tag<u64>) {
  return saturate_<u64>(x, 0x1p64f, 0, 18446744073709551615ull);
}
DEVICE u64 narrow_(f64 x, Tag<u64>) {
  return saturate_<u64>(x, 0x1p64, 0, 18446744073709551615ull);
}

//@ narrow_ : u16
DEVICE u16 narrow_(f32 x, Tag<u16>) { return saturate_<u16>(x, 65536.0f, 0, 65535); }
DEVICE u16 narrow_(f64 x, Tag<u16>) { return saturate_<u16>(x, 65536.0, 0, 65535); }

//@ narrow_ : bf16
#if !defined(FUSER_HOST) && __CUDA_ARCH__ >= 800
DEVICE bf16 round_bf16_(f32 x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
#else
DEVICE bf16 round_bf16_(f32 x) {
  const u32 bits = bits_(x);
  const u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return bf16{(u16)(x == x ? rounded : 0x7fffu)};
}
#endif
template <class S>
DEVICE bf16 narrow_(S x, Tag<bf16>) {
  return round_bf16_((f32)x);
}

//@ narrow_ : f16
#ifdef FUSER_HOST
DEVICE f16 round_f16_(f32 x) {
  const u32 bits = bits_(x), magnitude = bits & 0x7fffffff;
  const u32 special = x == x ? 0x7c00u : 0x7fffu;
  const u32 rounded = magnitude < bits_(65520.0f) ? small_float_(magnitude, 10, 15) : special;
  return f16{(u16)(rounded | ((bits >> 16) & 0x8000))};
}
#else
DEVICE f16 round_f16_(f32 x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
#endif
template <class S>
DEVICE f16 narrow_(S x, Tag<f16>) {
  return round_f16_((f32)x);
}

//@ narrow_ : f8e4m3
// Infinity and what rounds beyond 448 become 448.
#if !defined(FUSER_HOST) && __CUDA_ARCH__ >= 890
DEVICE f8e4m3 round_f8e4m3_(f32 x) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return f8e4m3{(u8)pair};
}
#else
DEVICE f8e4m3 round_f8e4m3_(f32 x) {
  const u32 bits = bits_(x), magnitude = bits & 0x7fffffff;
  const u32 special = x == x ? 0x7eu : 0x7fu;
  const u32 rounded = magnitude < bits_(464.0f) ? small_float_(magnitude, 3, 7) : special;
  return f8e4m3{(u8)(rounded | ((bits >> 24) & 0x80))};
}
#endif
template <class S>
DEVICE f8e4m3 narrow_(S x, Tag<f8e4m3>) {
  return round_f8e4m3_((f32)x);
}

//@ narrow_ : f8e5m2
// By integers on every machine: the instruction that the GPU has saturates, torch overflows to
// infinity.
DEVICE f8e5m2 round_f8e5m2_(f32 x) {
  const u32 bits = bits_(x), magnitude = bits & 0x7fffffff;
  const u32 special = x == x ? 0x7cu : 0x7fu;
  const u32 rounded = magnitude < bits_(61440.0f) ? small_float_(magnitude, 2, 15) : special;
  return f8e5m2{(u8)(rounded | ((bits >> 24) & 0x80))};
}
template <class S>
DEVICE f8e5m2 narrow_(S x, Tag<f8e5m2>) {
  return round_f8e5m2_((f32)x);
}

//@ narrow_ : c64 c128
template <class S>
DEVICE c64 narrow_(S x, Tag<c64>) {
  return c64{(f32)x, 0};
}
template <class S>
DEVICE c128 narrow_(S x, Tag<c128>) {
  return c128{(f64)x, 0};
}
DEVICE c64 narrow_(c64 x, Tag<c64>) { return x; }
DEVICE c64 narrow_(c128 x, Tag<c64>) { return c64{(f32)x.re, (f32)x.im}; }
DEVICE c128 narrow_(c64 x, Tag<c128>) { return c128{x.re, x.im}; }
DEVICE c128 narrow_(c128 x, Tag<c128>) { return x; }

//@ to
template <class T, class S>
DEVICE T to(S x) {
  return narrow_(source_(wide_(x), Tag<T>()), Tag<T>());
}
