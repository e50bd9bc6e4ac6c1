// Roots, powers, circular and special functions of vectors, within the bounds of ops.def.
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
  if constexpr ((T)0.5 == 0) return integer_pow_(x, y);
  else return each_([](T a, T b) { return pow_(a, b); }, x, y);
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

//@ erf_ : Vec
template <class T, i32 N>
DEVICE auto erf_(Vec<T, N> x) {
  return each_([](T a) { return erf_(a); }, x);
}
// x + x P(x^2) up to 0.92, then 1 - e^Q(|x|): errors 2^-30 and 2^-34.
template <i32 N>
DEVICE Vec<f32, N> erf_(Vec<f32, N> x) {
  typedef Vec<f32, N> V;
  const V w = least_(V(4.1f), abs_(x)), z = w * w;
  const V small = poly_(z, 0.12837917f, -0.37612632f, 0.11283686f, -0.026858818f, 0.005199518f,
                        -0.00081248936f, 8.2928265e-05f);
  const V large = poly_(w, 0.00017587455f, -1.1295208f, -0.63333464f, -0.10829394f, 0.025128625f,
                        -0.0041746427f, 0.00043521888f, -2.1161904e-05f);
  const V y = select_(w < V(0.92f), fma_rn(small, w, w), V(1.0f) - exp_(large));
  return copysign_(y, x);
}

//@ erfc_ : Vec
template <class T, i32 N>
DEVICE auto erfc_(Vec<T, N> x) {
  return each_([](T a) { return erfc_(a); }, x);
}
// In float64, whose rounding errors do not count: e^(-w^2) times a polynomial in 1 / (1 + 0.35 w),
// w = |x|, error 2^-27; left of 0 it is 2 minus that.
template <i32 N>
DEVICE Vec<f32, N> erfc_(Vec<f32, N> x) {
  typedef Vec<f64, N> V;
  const V w = cast_<f64>(least_(Vec<f32, N>(10.5f), abs_(x)));
  const V t = V(1.0) / fma_rn(w, V(0.35), V(1.0));
  const V p = t * poly_(t, 0.19748031470708838, 0.19720192096482858, 0.18740162948297537,
                        0.15341124121569569, 0.13988831079855477, 0.098023622663427165,
                        -0.040453317319044821, 0.19070165352275464, -0.16273860120166492,
                        0.039083232787768145);
  const V tail = p * exp_(minus_(w * w));
  return cast_<f32>(select_(x < Vec<f32, N>(0.0f), V(2.0) - tail, tail));
}

//@ erfcx_ : Vec
template <class T, i32 N>
DEVICE auto erfcx_(Vec<T, N> x) {
  return each_([](T a) { return erfcx_(a); }, x);
}

//@ erfinv_ : Vec
template <class T, i32 N>
DEVICE auto erfinv_(Vec<T, N> x) {
  return each_([](T a) { return erfinv_(a); }, x);
}

//@ erfcinv_ : Vec
template <class T, i32 N>
DEVICE auto erfcinv_(Vec<T, N> x) {
  return each_([](T a) { return erfcinv_(a); }, x);
}

//@ lgamma_ : Vec
template <class T, i32 N>
DEVICE auto lgamma_(Vec<T, N> x) {
  return each_([](T a) { return lgamma_(a); }, x);
}
