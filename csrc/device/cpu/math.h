// Roots and powers of vectors, within the bounds of ops.def.
#pragma once

//@ sqrt_ : Vec
template <class T, i32 N>
DEVICE auto sqrt_(Vec<T, N> x) {
#ifdef __AVX__
  if constexpr (is_float_<T>) {
    if constexpr (!Vec<T, N>::whole) {
      return join_(sqrt_(x.v.low), sqrt_(x.v.high));
    } else if constexpr (sizeof(x.v) >= 16) {
      typename Vec<T, N>::Type r;
      if constexpr (sizeof(T) == 4) asm("vsqrtps %1, %0" : "=v"(r) : "v"(x.v));
      else asm("vsqrtpd %1, %0" : "=v"(r) : "v"(x.v));
      return Vec<T, N>(r);
    } else {
      return each_([](T a) { return sqrt_(a); }, x);
    }
  } else {
    return each_([](T a) { return sqrt_(a); }, x);
  }
#else
  return each_([](T a) { return sqrt_(a); }, x);
#endif
}

//@ rsqrt_ : Vec
template <class T, i32 N>
DEVICE auto rsqrt_(Vec<T, N> x) {
  if constexpr (is_float_<T>) return Vec<T, N>((T)1) / sqrt_(x);
  else return each_([](T a) { return rsqrt_(a); }, x);
}

//@ pow_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> pow_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (is_float_<T> || __is_class(T)) {
    return each_([](T a, T b) { return pow_(a, b); }, x, y);
  } else {
    return integer_pow_(x, y);
  }
}
// 2^(y log2 |x|) in float64, then the sign of an odd power.
template <i32 N>
DEVICE Vec<f32, N> pow_(Vec<f32, N> x, Vec<f32, N> y) {
  typedef Vec<f32, N> V;
  const V zero(0.0f), one(1.0f), magnitude = abs_(x);
  const auto [e, f, rest] = log_parts_(cast_<f64>(magnitude));
  const Vec<f64, N> logarithm = fma_rn(f + rest, Vec<f64, N>(1.44269504088896340736), e);
  const Vec<f64, N> finite = select_(magnitude == zero, Vec<f64, N>(-1e300), logarithm);
  const Vec<f64, N> large = select_(magnitude < V(infinity_<f32>), finite, Vec<f64, N>(1e300));
  const Vec<f64, N> power = clamped_(large * cast_<f64>(y), -160.0, 130.0);
  const Vec<f64, N> n = nearest_(power);
  const Vec<f64, N> p = poly_(power - n, 1.0, 0.69314718055994531, 0.2402265069591007,
                              0.055504108664821580, 0.0096181291076284772, 0.0013333558146428443,
                              0.00015403530393381610, 0.000015252733804059841);
  V r = cast_<f32>(p * power_of_two_(n));
  const V half = y * V(0.5f);
  const Vec<bool, N> integer = (trunc_(y) == y) & (abs_(y) < V(infinity_<f32>));
  const Vec<bool, N> odd = integer & (trunc_(half) != half);
  const Vec<bool, N> below = x < zero;
  r = select_(odd, copysign_(r, x), r);
  r = select_(below & !integer & (magnitude < V(infinity_<f32>)) & (abs_(y) < V(infinity_<f32>)),
              V(__builtin_nanf("")), r);
  r = select_((x != x) | (y != y), x + y, r);
  const Vec<bool, N> unit = (magnitude == one) & (abs_(y) == V(infinity_<f32>));
  return select_((x == one) | (y == zero) | unit, one, r);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto pow_(A x, B y) {
  return pow_(V(x), V(y));
}
