// Circular functions of vectors and their inverses, within the bounds of ops.def.
//
// One polynomial per float type. The methods are textbook ones: reduction by
// multiples of pi / 2 in three parts (Cody, Waite), and half-angle formulas for the inverses (Muller,
// "Elementary Functions"). The coefficients are minimax fits of this project. Arguments beyond the
// reduction run lane by lane.
#pragma once

//@ reduced_
// x - turns pi for |x| < 2^15 (float64: 2^30) and |result| < 2: the first product is exact, the others
// round relative to the result.
template <class T, i32 N>
DEVICE Vec<T, N> reduced_(Vec<T, N> x, Vec<T, N> turns) {
  typedef Vec<T, N> V;
  constexpr bool single = sizeof(T) == 4;
  V r = fma_rn(turns, V(single ? (T)-3.14159274f : (T)-3.1415926535897931), x);
  r = fma_rn(turns, V(single ? (T)8.74227766e-08f : (T)-1.2246467991473532e-16), r);
  return fma_rn(turns, V(single ? (T)3.43024902e-15f : (T)2.9947698097183397e-33), r);
}

//@ reducible_
// Whether reduced_ serves every lane.
template <class T, i32 N>
DEVICE bool reducible_(Vec<T, N> x) {
  const Vec<T, N> limit((T)(sizeof(T) == 4 ? 32768.0 : 1073741824.0));
  return !__builtin_expect(any_(!(abs_(x) < limit)), false);
}

//@ sine_
// The sine of |r| <= pi / 2: error 2^-26 (float64: 2^-60). The rounding error of the square would be
// half an ULP of float32 results close to 1.
template <class T, i32 N>
DEVICE Vec<T, N> sine_(Vec<T, N> r) {
  const Vec<T, N> z = r * r;
  if constexpr (sizeof(T) == 4) {
    const Vec<T, N> low = fma_rn(r, r, minus_(z));
    const Vec<T, N> p = poly_(z, -0.16666667f, 0.008333213f, -0.00019818515f, 2.622614e-06f);
    return fma_rn(fma_rn(p, z, p * low), r, r);
  } else {
    const Vec<T, N> p = poly_(z, -0.16666666666666666, 0.008333333333333292,
                              -0.00019841269841238985, 2.7557319215490732e-06,
                              -2.5052107216103952e-08, 1.6058954677850878e-10,
                              -7.643331582748041e-13, 2.724316378227041e-15);
    return fma_rn(p * z, r, r);
  }
}

//@ negated_
// x in lanes whose integer is even, -x in others.
template <class T, i32 N>
DEVICE Vec<T, N> negated_(Vec<T, N> x, Vec<T, N> integer) {
  typedef Vec<Unsigned_<T>, N> B;
  const B last = bits_(integer + Vec<T, N>(Format_<T>::magic));
  return float_(bits_(x) ^ (last << B(8 * sizeof(T) - 1)));
}

//@ sin_ : Vec
template <class T, i32 N>
DEVICE auto sin_(Vec<T, N> x) {
  if constexpr (is_float_<T>) {
    if (reducible_(x)) {
      const Vec<T, N> turns = nearest_(x * Vec<T, N>((T)0.31830988618379067));
      const Vec<T, N> y = negated_(sine_(reduced_(x, turns)), turns);
      return select_(x == Vec<T, N>((T)0), x, y);
    }
  }
  return each_([](T a) { return sin_(a); }, x);
}

//@ cos_ : Vec
template <class T, i32 N>
DEVICE auto cos_(Vec<T, N> x) {
  if constexpr (is_float_<T>) {
    if (reducible_(x)) {
      typedef Vec<T, N> V;
      const V turns = nearest_(fma_rn(x, V((T)0.31830988618379067), V((T)0.5)));
      return negated_(sine_(reduced_(x, turns - V((T)0.5))), turns);
    }
  }
  return each_([](T a) { return cos_(a); }, x);
}

//@ tan_ : Vec
// r + r z P(z), or -1 by that in odd quadrants: error 2^-28 (float64: 2^-55).
template <class T, i32 N>
DEVICE auto tan_(Vec<T, N> x) {
  if constexpr (is_float_<T>) {
    if (reducible_(x)) {
      typedef Vec<T, N> V;
      typedef Vec<Unsigned_<T>, N> B;
      const V n = nearest_(x * V((T)0.63661977236758134)), r = reduced_(x, n * V((T)0.5));
      const V z = r * r;
      V p;
      if constexpr (sizeof(T) == 4) {
        p = poly_(z, 0.33333334f, 0.1333311f, 0.05401878f, 0.021458257f, 0.010451458f,
                  0.00050520146f, 0.0041994825f);
      } else {
        p = poly_(z, 0.3333333333333333, 0.13333333333350678, 0.05396825395251407,
                  0.021869489081555615, 0.008863225521471754, 0.003592239816277032,
                  0.0014550157944286633, 0.000594127947584532, 0.0002247695904077514,
                  0.00013226156273479014, -2.11792204980895e-05, 8.53097936508869e-05,
                  -4.294417810985737e-05, 2.0462840404867586e-05);
      }
      const V y = fma_rn(p * z, r, r);
      const Vec<bool, N> odd = (bits_(n + V(Format_<T>::magic)) & B(1)) != B(0);
      return select_(x == V((T)0), x, select_(odd, V((T)-1) / y, y));
    }
  }
  return each_([](T a) { return tan_(a); }, x);
}

//@ arc_sine_
// asin(s) of |s| <= 1 / 2 with z = s^2: error 2^-30 (float64: 2^-58).
template <class T, i32 N>
DEVICE Vec<T, N> arc_sine_(Vec<T, N> s, Vec<T, N> z) {
  Vec<T, N> p;
  if constexpr (sizeof(T) == 4) {
    p = poly_(z, 0.16666667f, 0.07500179f, 0.04456937f, 0.031432964f, 0.015669297f, 0.03599867f);
  } else {
    p = poly_(z, 0.16666666666666666, 0.07499999999993731, 0.04464285715495179,
              0.030381943555864606, 0.022372193502675972, 0.01735195902116585, 0.013977080449300041,
              0.011426422434488017, 0.010641670690556134, 0.004176655338172629,
              0.020680371020318493, -0.019695781572745912, 0.0318989564957733);
  }
  return fma_rn(p * z, s, s);
}

//@ half_pi_ half_pi_rest_
// pi / 2 in two parts.
template <class T>
constexpr T half_pi_ = sizeof(T) == 4 ? (T)1.57079637f : (T)1.5707963267948966;
template <class T>
constexpr T half_pi_rest_ = sizeof(T) == 4 ? (T)-4.37113883e-08f : (T)6.1232339957367660e-17;

//@ asin_ : Vec
// Beyond 1 / 2 it is pi / 2 - 2 asin(sqrt((1 - |x|) / 2)).
template <class T, i32 N>
DEVICE auto asin_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return asin_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const V w = abs_(x), half((T)0.5), upper = fma_rn(w, V((T)-0.5), half);
    const Vec<bool, N> small = w < half;
    const V y = arc_sine_(select_(small, w, sqrt_(upper)), select_(small, w * w, upper));
    const V large = V(half_pi_<T>) - fma_rn(y, V((T)2), V(-half_pi_rest_<T>));
    return copysign_(select_(small, y, large), x);
  }
}

//@ acos_ : Vec
template <class T, i32 N>
DEVICE auto acos_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return acos_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const V w = abs_(x), half((T)0.5), upper = fma_rn(w, V((T)-0.5), half);
    const Vec<bool, N> small = w < half, below = x < V((T)0);
    const V y = arc_sine_(select_(small, x, sqrt_(upper)), select_(small, x * x, upper));
    const V middle = V(half_pi_<T>) - (y - V(half_pi_rest_<T>));
    const V twice = y + y;
    const V left = V((T)2 * half_pi_<T>) - (twice - V((T)2 * half_pi_rest_<T>));
    return select_(small, middle, select_(below, left, twice));
  }
}

//@ arc_tangent_
// atan(s) of |s| <= 1: error 2^-27 (float64: 2^-54).
template <class T, i32 N>
DEVICE Vec<T, N> arc_tangent_(Vec<T, N> s) {
  const Vec<T, N> z = s * s;
  Vec<T, N> p;
  if constexpr (sizeof(T) == 4) {
    p = poly_(z, -0.33333334f, 0.199995f, -0.14273462f, 0.10996028f, -0.085200645f, 0.059781f,
              -0.03284362f, 0.01173769f, -0.0019635984f);
  } else {
    p = poly_(z, -0.3333333333333333, 0.19999999999948873, -0.14285714280366354,
              0.11111110894229677, -0.09090904332940339, 0.07692242333879479,
              -0.06666055615618859, 0.058782502130829625, -0.05242626069169879,
              0.04683217336434191, -0.04112034409283226, 0.034380029371673164,
              -0.026212414598949414, 0.017340033222421742, -0.009438056108877001,
              0.003984130361400424, -0.0012082278225799016, 0.00023229488247048758,
              -2.115327874313937e-05);
  }
  return fma_rn(p * z, s, s);
}

//@ atan_ : Vec
// Beyond 1 it is pi / 2 - atan(1 / |x|).
template <class T, i32 N>
DEVICE auto atan_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return atan_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const V w = abs_(x), one((T)1);
    const Vec<bool, N> large = w > one;
    const V y = arc_tangent_(select_(large, one / w, w));
    return copysign_(select_(large, V(half_pi_<T>) - (y - V(half_pi_rest_<T>)), y), x);
  }
}

//@ atan2_ : Vec
// The angle of the first octant from the lesser size by the greater one, then its octant.
template <class T, i32 N>
DEVICE Vec<T, N> atan2_(Vec<T, N> y, Vec<T, N> x) {
  typedef Vec<T, N> V;
  const V rise = abs_(y), run = abs_(x), greater = greatest_(rise, run), lesser = least_(rise, run);
  V s = select_(lesser == greater, V((T)1), lesser / greater);  // of two infinities too
  s = select_(greater == V((T)0), V((T)0), s);
  V a = arc_tangent_(s);
  a = select_(rise > run, V(half_pi_<T>) - (a - V(half_pi_rest_<T>)), a);
  const V left = V((T)2 * half_pi_<T>) - (a - V((T)2 * half_pi_rest_<T>));
  a = copysign_(select_(signbit_(x), left, a), y);
  return select_((x == x) & (y == y), a, x + y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto atan2_(A x, B y) {
  return atan2_(V(x), V(y));
}
