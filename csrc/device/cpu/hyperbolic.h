// Hyperbolic functions of vectors and their inverses, within the bounds of ops.def, from exponentials
// and logarithms that carry the rounding error of their argument.
#pragma once

//@ negligible_
// A number whose square is less than half an ULP of 1.
template <class T>
constexpr T negligible_ = sizeof(T) == 4 ? (T)0x1p-13 : (T)0x1p-27;

//@ overflows_
// An argument beyond which sinh and cosh are infinite, and e^x / 4 is finite.
template <class T>
constexpr T overflows_ = sizeof(T) == 4 ? (T)89.6f : (T)710.6;

//@ sinh_ : Vec
// 2 q + q / (2 q + 1 / 2) with q = (e^|x| - 1) / 4.
template <class T, i32 N>
DEVICE auto sinh_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return sinh_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const V w = abs_(x);
    const auto [n, r] = exp_parts_(least_(V(overflows_<T>), w));
    const V scale = power_of_two_(n - V((T)2));
    const V q = fma_rn(scale, expm1_poly_(r), scale - V((T)0.25));
    const V y = fma_rn(q, V((T)2), q / fma_rn(q, V((T)2), V((T)0.5)));
    return copysign_(select_(w < V(negligible_<T>), w, y), x);
  }
}

//@ cosh_ : Vec
// 2 q + 1 / (8 q) with q = e^|x| / 4.
template <class T, i32 N>
DEVICE auto cosh_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return cosh_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const auto [n, r] = exp_parts_(least_(V(overflows_<T>), abs_(x)));
    const V scale = power_of_two_(n - V((T)2));
    const V q = fma_rn(scale, expm1_poly_(r), scale);
    return fma_rn(q, V((T)2), V((T)0.125) / q);
  }
}

//@ log_of_two_
// Whether log(2 x) is the inverse of sinh and of cosh at x > 0.
template <class T, i32 N>
DEVICE Vec<bool, N> log_of_two_(Vec<T, N> x) {
  return x > Vec<T, N>((T)(sizeof(T) == 4 ? 0x1p14 : 0x1p28));
}

//@ log_of_sum_
// log(1 + a + low), or log(2 x) where that serves; x is a number > 0.
template <class T, i32 N>
DEVICE Vec<T, N> log_of_sum_(Vec<T, N> a, Vec<T, N> low, Vec<T, N> x) {
  typedef Vec<T, N> V;
  const Vec<bool, N> large = log_of_two_(x);
  const auto [u, error] = one_plus_(a);
  auto parts = log_parts_(select_(large, x, u));
  parts.rest = parts.rest + select_(large, V((T)0), (error + low) / u);
  parts.e = parts.e + select_(large, V((T)1), V((T)0));
  return select_(x < V(infinity_<T>), log_sum_(parts), x);
}

//@ asinh_ : Vec
// log(1 + w + (sqrt(1 + w^2) - 1)).
template <class T, i32 N>
DEVICE auto asinh_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return asinh_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const V w = abs_(x), one((T)1), square = w * w;
    const V more = square / (one + sqrt_(one + square)), a = w + more;
    const V y = log_of_sum_(a, more - (a - w), w);
    return copysign_(select_(w < V(negligible_<T>), w, y), x);
  }
}

//@ acosh_ : Vec
// log(1 + t + sqrt(t (t + 2))) with t = x - 1.
template <class T, i32 N>
DEVICE auto acosh_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return acosh_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const V one((T)1), t = x - one, root = sqrt_(t * (t + V((T)2))), a = t + root;
    const V y = log_of_sum_(a, t - (a - root), x);
    return select_(x < one, V((T)__builtin_nanf("")), y);
  }
}

//@ atanh_ : Vec
// log(1 + 2 w / (1 - w)) / 2, with the rounding errors of the quotient.
template <class T, i32 N>
DEVICE auto atanh_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return atanh_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const V w = abs_(x), one((T)1), twice = w + w, d = one - w, d_low = (one - d) - w;
    const V q = twice / d, low = (fma_rn(minus_(q), d, twice) - q * d_low) / d;
    const auto [u, error] = one_plus_(q);
    auto parts = log_parts_(u);
    parts.rest = parts.rest + (error + low) / u;
    const V inside = select_(w == one, V(infinity_<T>), log_sum_(parts) * V((T)0.5));
    return copysign_(select_(w <= one, inside, V((T)__builtin_nanf(""))), x);
  }
}
