// Exponentials, logarithms and what is made of them, on vectors: branch-free, within the bounds of
// ops.def. Polynomials are minimax fits of this project; their relative errors are stated.
//
// Blocks of a name hold the form lane by lane, which serves complex numbers, and then vector forms.
#pragma once

//@ poly_
// c0 + c1 x + c2 x^2 + ..., by fused multiply-adds.
template <class T, i32 N, class C>
DEVICE Vec<T, N> poly_(Vec<T, N>, C c0) {
  return Vec<T, N>((T)c0);
}
template <class T, i32 N, class C, class... D>
DEVICE Vec<T, N> poly_(Vec<T, N> x, C c0, C c1, D... rest) {
  return fma_rn(poly_(x, c1, rest...), x, Vec<T, N>((T)c0));
}

//@ nearest_
// The nearest integer to x, |x| < 2^22 (float64: 2^51).
template <class T, i32 N>
DEVICE Vec<T, N> nearest_(Vec<T, N> x) {
  const Vec<T, N> magic(Format_<T>::magic);
  return (x + magic) - magic;
}

//@ power_of_two_
// 2^n of integers n that are exponents of normal numbers.
template <class T, i32 N>
DEVICE Vec<T, N> power_of_two_(Vec<T, N> n) {
  typedef Unsigned_<T> U;
  const Vec<U, N> bits = bits_(n + Vec<T, N>(Format_<T>::magic));
  return float_((bits + Vec<U, N>((U)Format_<T>::bias)) << Vec<U, N>((U)Format_<T>::mantissa));
}

//@ scale_
// p 2^n of integers n, rounded once; |n| is at most twice the largest exponent.
template <class T, i32 N>
DEVICE Vec<T, N> scale_(Vec<T, N> p, Vec<T, N> n) {
#ifdef __AVX512F__
  if constexpr (!Vec<T, N>::whole) {
    return join_(scale_(p.v.low, n.v.low), scale_(p.v.high, n.v.high));
  } else if constexpr (sizeof(p.v) == 64) {
    if constexpr (sizeof(T) == 4) asm("vscalefps %1, %0, %0" : "+v"(p.v) : "v"(n.v));
    else asm("vscalefpd %1, %0, %0" : "+v"(p.v) : "v"(n.v));
    return p;
  }
#endif
  const Vec<T, N> half = nearest_(n * Vec<T, N>((T)0.5));  // 2^n itself may be no normal number
  return p * power_of_two_(half) * power_of_two_(n - half);
}

//@ clamped_
// x between two numbers; NaN stays.
template <class T, i32 N>
DEVICE Vec<T, N> clamped_(Vec<T, N> x, T low, T high) {
  return least_(Vec<T, N>(high), greatest_(Vec<T, N>(low), x));
}

//@ expm1_poly_
// e^r - 1 for |r| <= 0.3467: error 2^-31 and 2^-57 of r.
template <class T, i32 N>
DEVICE Vec<T, N> expm1_poly_(Vec<T, N> r) {
  Vec<T, N> q;
  if constexpr (sizeof(T) == 4) {
    q = poly_(r, 0.5f, 0.16666667f, 0.041666355f, 0.008333274f, 0.001394105f, 0.00019913612f);
  } else {
    q = poly_(r, 0.5, 0.16666666666666677, 0.041666666666666824, 0.0083333333333215701,
              0.0013888888888809576, 0.00019841269886322323, 2.4801587468154037e-05,
              2.7557244015772356e-06, 2.7557154530801201e-07, 2.5109098577333202e-08,
              2.095075184479139e-09);
  }
  return fma_rn(r * r, q, r);
}

//@ exp_parts_ ExpParts_
// x = n ln 2 + r, n an integer, for clamped x.
template <class T, i32 N>
struct ExpParts_ {
  Vec<T, N> n, r;
};
template <class T, i32 N>
DEVICE ExpParts_<T, N> exp_parts_(Vec<T, N> x) {
  typedef Vec<T, N> V;
  const V magic(Format_<T>::magic);
  const V n = fma_rn(x, V((T)1.4426950408889634074), magic) - magic;
  if constexpr (sizeof(T) == 4) {
    return {n, fma_rn(n, V(1.9046542e-09f), fma_rn(n, V(-0.69314718246459961f), x))};
  } else {
    return {n, fma_rn(n, V(-2.3190468138462996e-17), fma_rn(n, V(-0.69314718055994529), x))};
  }
}

//@ exp_clamped_
// x where e^x is neither 0 nor infinity, and the nearest such x elsewhere.
template <class T, i32 N>
DEVICE Vec<T, N> exp_clamped_(Vec<T, N> x) {
  if constexpr (sizeof(T) == 4) return clamped_(x, -104.0f, 89.0f);
  else return clamped_(x, -746.0, 710.0);
}

//@ exp_ : Vec
template <class T, i32 N>
DEVICE auto exp_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return exp_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const auto [n, r] = exp_parts_(exp_clamped_(x));
    return scale_(expm1_poly_(r) + V((T)1), n);
  }
}

//@ exp2_ : Vec
template <class T, i32 N>
DEVICE auto exp2_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return exp2_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const V inside = sizeof(T) == 4 ? clamped_(x, (T)-151, (T)129) : clamped_(x, (T)-1080, (T)1030);
    const V n = nearest_(inside);
    return scale_(expm1_poly_((inside - n) * V((T)0.69314718055994530942)) + V((T)1), n);
  }
}

//@ expm1_ : Vec
template <class T, i32 N>
DEVICE auto expm1_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return expm1_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    // 2 (2^(n - 1) (e^r - 1) + (2^(n - 1) - 1 / 2)): 2^n may overflow where the result does not.
    const V inside = sizeof(T) == 4 ? clamped_(x, (T)-30, (T)89) : clamped_(x, (T)-60, (T)710);
    const auto [n, r] = exp_parts_(inside);
    const V scale = power_of_two_(n - V((T)1));
    const V half = fma_rn(scale, expm1_poly_(r), scale - V((T)0.5));
    return select_(x == V((T)0), x, half + half);
  }
}

//@ exp_term_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> exp_term_(Vec<T, N> x) {
  typedef Vec<T, N> V;
  return exp_(x);
}

//@ ex2_approx : Vec
template <class T, i32 N>
DEVICE Vec<T, N> ex2_approx(Vec<T, N> x) {
  typedef Vec<T, N> V;
  return exp2_(x);
}

//@ rcp_approx : Vec
template <class T, i32 N>
DEVICE Vec<T, N> rcp_approx(Vec<T, N> x) {
  typedef Vec<T, N> V;
  return V((T)1) / x;
}

//@ one_over_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> one_over_(Vec<T, N> x) {
  typedef Vec<T, N> V;
  return V((T)1) / x;
}

//@ finite_floor_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> finite_floor_(Vec<T, N> x) {
  typedef Vec<T, N> V;
  const T least = sizeof(T) == 4 ? (T)-0x1.fffffep127 : (T)-0x1.fffffffffffffp1023;
  return greatest_(x, V(least));
}

//@ at_most_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> at_most_(Vec<T, N> x, Vec<T, N> limit) {
  return least_(x, limit);
}

//@ sigmoid_ : Vec
template <class T, i32 N>
DEVICE auto sigmoid_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return sigmoid_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    // e^-|x| never overflows; left of 0 it is the numerator.
    const V e = exp_(minus_(abs_(x)));
    return select_(x < V((T)0), e, V((T)1)) / (V((T)1) + e);
  }
}

//@ silu_ : Vec
template <class T, i32 N>
DEVICE auto silu_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return silu_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    // x e^-|x| as one product is rounded once where it is denormal.
    const V low((T)(sizeof(T) == 4 ? -120 : -760)), one((T)1);
    const auto [n, r] = exp_parts_(greatest_(low, minus_(abs_(x))));
    const V p = expm1_poly_(r) + one;
    const V y = select_(x < V((T)0), scale_(greatest_(low, x) * p, n), x) / (one + scale_(p, n));
    return fma_rn(least_(V((T)0), x), V((T)0), y);  // NaN at -infinity
  }
}

//@ tanh_ : Vec
template <class T, i32 N>
DEVICE auto tanh_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return tanh_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const V w = abs_(x);
    if constexpr (sizeof(T) == 4) {
      // As tanh_ of activation.cuh: a polynomial where the other form would cancel.
      const V s = x * x;
      const V p = poly_(s, -0.3333327f, 0.13331091f, -0.05370963f, 0.020538727f, -0.005590912f);
      const V large = V(1.0f) - V(2.0f) / (V(1.0f) + exp_(w + w));
      return copysign_(select_(w < V(0.625f), fma_rn(p * s, w, w), large), x);
    } else {
      const V t = expm1_(w * V((T)-2));
      return copysign_(t / (t + V((T)2)), x);
    }
  }
}

//@ gelu_tanh_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> gelu_tanh_(Vec<T, N> x) {
  typedef Vec<T, N> V;
  if constexpr (sizeof(T) == 8) {
    const V u = V(0.7978845608028653559) * x * fma_rn(V(0.044715) * x, x, V(1.0));
    return x * sigmoid_(u + u);
  } else {
    // As gelu_tanh_ of activation.cuh: f carries the rounding errors of the cubic.
    const V left = maximum_(x, V(-10.85f)), inner = least_(left, V(9.0f));
    const V product = inner * V(-0.10294324f);
    const V product_low =
        fma_rn(inner, V(2.0161985e-9f), fma_rn(inner, V(-0.10294324f), minus_(product)));
    const V square = fma_rn(inner, inner, V(22.3642578125f));
    const V square_low = fma_rn(inner, inner, V(22.3642578125f) - square) + V(-3.978103e-4f);
    const V magic(Format_<T>::magic);
    const V n = fma_rn(product, square, magic) - magic;
    V f = fma_rn(product, square, minus_(n));
    f = fma_rn(product_low, square, fma_rn(product, square_low, f));
    const V p = expm1_poly_(f * V(0.69314718f)) + V(1.0f);  // 2^f
    // Both terms times 2^-32 for negative x: x / (1 + 2^t) would be 0 too early.
    const Vec<bool, N> below = x < V(0.0f);
    const V unit = select_(below, V(0x1p-32f), V(1.0f));
    const V scale = power_of_two_(n - select_(below, V(32.0f), V(0.0f)));
    const V y = V(1.0f) / fma_rn(p, scale, unit) * left * unit;
    return fma_rn(least_(V(0.0f), x), V(0.0f), y);
  }
}

//@ gelu_erf_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> gelu_erf_(Vec<T, N> x) {
  typedef Vec<T, N> V;
  if constexpr (sizeof(T) == 8) {
    return V(0.5) * x * erfc_(V(-0.70710678118654752440) * x);
  } else {
    // As gelu_erf_ of activation.cuh: max(x, 0) - w Q(w).
    const V w = least_(abs_(x), V(14.5f));
    const V t = V(1.0f) / fma_rn(w, V(0.27f), V(1.0f));
    const V p = t * poly_(t, 0.10772057f, 0.10754425f, 0.101801224f, 0.07208473f, 0.107746355f,
                          -0.06909998f, 0.1696923f, -0.12644167f, 0.028952233f);
    const V square = w * w, square_low = fma_rn(w, w, minus_(square));
    const V magic(Format_<T>::magic), half_log2e(-0.7213475f);
    const V n = fma_rn(square, half_log2e, magic) - magic;
    V f = fma_rn(square, half_log2e, minus_(n));
    f = fma_rn(square_low, half_log2e, fma_rn(square, V(-9.629815e-9f), f));
    const V tail = w * p * (expm1_poly_(f * V(0.69314718f)) + V(1.0f));
    return scale_(minus_(tail), n) + (x - least_(x, V(0.0f)));
  }
}

// ---- short forms

//@ exp2_half_
// 2^x with an error of 2^-18; below 2^-125 it is 0.
template <i32 N>
DEVICE Vec<f32, N> exp2_half_(Vec<f32, N> x) {
  typedef Vec<f32, N> V;
  const V inside = clamped_(x, -125.0f, 128.5f), shifted = inside + V(12582912.0f);
  const V f = inside - (shifted - V(12582912.0f));
  const V p = poly_(f, 1.9999986f, 1.3862436f, 0.4804949f, 0.11183572f, 0.019140193f);  // 2^(1 + f)
  const V large = p * float_((bits_(shifted) + Vec<u32, N>(126u)) << Vec<u32, N>(23u));
  return select_(x < V(-125.0f), V(0.0f), large);
}

//@ exp_half_ : Vec
template <i32 N>
DEVICE Vec<f32, N> exp_half_(Vec<f32, N> x) {
  typedef Vec<f32, N> V;
  return exp2_half_(x * V(1.442695f));
}
template <i32 N>
DEVICE Vec<f64, N> exp_half_(Vec<f64, N> x) {
  return exp_(x);
}

//@ sigmoid_half_ : Vec
template <i32 N>
DEVICE Vec<f32, N> sigmoid_half_(Vec<f32, N> x) {
  typedef Vec<f32, N> V;
  return V(1.0f) / (V(1.0f) + exp2_half_(x * V(-1.442695f)));
}
template <i32 N>
DEVICE Vec<f64, N> sigmoid_half_(Vec<f64, N> x) {
  return sigmoid_(x);
}

//@ silu_half_ : Vec
template <i32 N>
DEVICE Vec<f32, N> silu_half_(Vec<f32, N> x) {
  typedef Vec<f32, N> V;
  return x / (V(1.0f) + exp2_half_(x * V(-1.442695f)));
}
template <i32 N>
DEVICE Vec<f64, N> silu_half_(Vec<f64, N> x) {
  return silu_(x);
}

//@ tanh_half_ : Vec
template <i32 N>
DEVICE Vec<f32, N> tanh_half_(Vec<f32, N> x) {
  typedef Vec<f32, N> V;
  const V e = exp2_half_(x * V(2.88539f));
  const V s = x * x, small = fma_rn(poly_(s, -0.33333333f, 0.13333333f), s * x, x);
  return select_(abs_(x) < V(0.25f), small, V(1.0f) - V(2.0f) / (V(1.0f) + e));
}
template <i32 N>
DEVICE Vec<f64, N> tanh_half_(Vec<f64, N> x) {
  return tanh_(x);
}

//@ gelu_tanh_half_ : Vec
template <i32 N>
DEVICE Vec<f32, N> gelu_tanh_half_(Vec<f32, N> x) {
  typedef Vec<f32, N> V;
  const V t = x * V(-0.10294324f) * fma_rn(x, x, V(22.36386f));
  return x / (V(1.0f) + exp2_half_(t));
}
template <i32 N>
DEVICE Vec<f64, N> gelu_tanh_half_(Vec<f64, N> x) {
  return gelu_tanh_(x);
}

//@ gelu_erf_half_ : Vec
template <i32 N>
DEVICE Vec<f32, N> gelu_erf_half_(Vec<f32, N> x) {
  typedef Vec<f32, N> V;
  const V w = least_(abs_(x), V(16.0f));
  const V t = V(1.0f) / fma_rn(w, V(0.46f), V(1.0f));
  const V p = poly_(t, -0.00057333996f, 0.19295779f, 0.12587799f, 0.30530846f, -0.1235375f);
  const V tail = p * exp2_half_(w * (w * V(-0.7213475f)));
  return fma_rn(minus_(w), tail, x - least_(x, V(0.0f)));
}
template <i32 N>
DEVICE Vec<f64, N> gelu_erf_half_(Vec<f64, N> x) {
  return gelu_erf_(x);
}

//@ truediv_half_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> truediv_half_(Vec<T, N> x, Vec<T, N> y) {
  return x / y;
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto truediv_half_(A x, B y) {
  return truediv_half_(V(x), V(y));
}

// ---- logarithms

//@ takes_apart_
// Whether an instruction gives exponents and mantissas of all floats.
template <class T, i32 N>
constexpr bool takes_apart_ = SIMD_BYTES == 64 && N * sizeof(T) >= 16;

//@ binade_ Binade_
// x = 2^e m, 3 / 4 <= m < 3 / 2, of positive numbers. An instruction gives 0 and infinity infinite e,
// and negative numbers and NaN an m of NaN.
template <class T, i32 N>
struct Binade_ {
  Vec<T, N> e, m;
};
template <class T, i32 N>
DEVICE Binade_<T, N> binade_(Vec<T, N> x) {
  typedef Vec<T, N> V;
  typedef Unsigned_<T> U;
  typedef Vec<U, N> B;
#if SIMD_BYTES == 64
  if constexpr (!V::whole) {
    const auto low = binade_(x.v.low), high = binade_(x.v.high);
    return {join_(low.e, high.e), join_(low.m, high.m)};
  } else if constexpr (takes_apart_<T, N>) {
    typename V::Type e, m, left;
    if constexpr (sizeof(T) == 4) {
      asm("vgetmantps $15, %1, %0" : "=v"(m) : "v"(x.v));
      asm("vgetexpps %1, %0" : "=v"(e) : "v"(x.v));
      asm("vgetexpps %1, %0" : "=v"(left) : "v"(m));
    } else {
      asm("vgetmantpd $15, %1, %0" : "=v"(m) : "v"(x.v));
      asm("vgetexppd %1, %0" : "=v"(e) : "v"(x.v));
      asm("vgetexppd %1, %0" : "=v"(left) : "v"(m));
    }
    return {V(e) - V(left), V(m)};
  }
#endif
  constexpr i32 mantissa = Format_<T>::mantissa;
  constexpr U low = sizeof(T) == 4 ? (U)0x3f400000u : (U)0x3fe8000000000000ull;  // 3 / 4
  constexpr T least = sizeof(T) == 4 ? (T)0x1p-126 : (T)0x1p-1022;
  constexpr T lift = sizeof(T) == 4 ? (T)0x1p23 : (T)0x1p52;
  const Vec<bool, N> denormal = x < V(least);
  const B bits = bits_(select_(denormal, x * V(lift), x)) +
                 B(((U)Format_<T>::bias << mantissa) - low);
  const V whole = float_((bits >> B((U)mantissa)) | bits_(V(lift)));
  const V e = whole - select_(denormal, V(lift + (T)(Format_<T>::bias + mantissa)),
                              V(lift + (T)Format_<T>::bias));
  return {e, float_((bits & B(((U)1 << mantissa) - 1)) + B(low))};
}

//@ log_parts_ LogParts_
// x = 2^e (1 + f), 3 / 4 <= 1 + f < 3 / 2, and log(1 + f) = f + rest. The rest has an error of 2^-30 of
// the logarithm (float64: 2^-62).
template <class T, i32 N>
struct LogParts_ {
  Vec<T, N> e, f, rest;
};
template <class T, i32 N>
DEVICE LogParts_<T, N> log_parts_(Vec<T, N> x) {
  typedef Vec<T, N> V;
  const auto [e, m] = binade_(x);
  const V f = m - V((T)1), half = f * f * V((T)0.5);
  if constexpr (sizeof(T) == 4) {
    const V p = poly_(f, 0.3333334f, -0.25000164f, 0.19999605f, -0.16655298f, 0.14276229f,
                      -0.12727752f, 0.117007226f, -0.09116447f, 0.037675083f);
    return {e, f, fma_rn(f * f * f, p, minus_(half))};
  } else {
    const V s = f / (f + V(2.0)), z = s * s;
    const V p = z * poly_(z, 0.666666666666666, 0.4000000000005671, 0.2857142855581974,
                          0.2222222429757185, 0.18181665799825555, 0.15391114755779642,
                          0.13173546687299884, 0.13843430229182066);
    return {e, f, fma_rn(s, half + p, minus_(half))};
  }
}

//@ log_ends_ log_of_parts_
// The logarithm y of x: -infinity at 0, NaN left of it, infinity and NaN as they are.
template <class T, i32 N>
DEVICE Vec<T, N> log_ends_(Vec<T, N> x, Vec<T, N> y) {
  typedef Vec<T, N> V;
  const V infinite(infinity_<T>), none((T)__builtin_nanf(""));
  y = select_(x < infinite, y, x);
  y = select_(x == V((T)0), minus_(infinite), y);
  return select_(x < V((T)0), none, y);
}
template <class T, i32 N>
DEVICE Vec<T, N> log_of_parts_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (takes_apart_<T, N>) return y;  // e and m have led to the ends
  else return log_ends_(x, y);
}

//@ log_sum_
// e ln 2 + f + rest. Both parts of ln 2 are positive: the sum of infinite e is no NaN.
template <class T, i32 N>
DEVICE Vec<T, N> log_sum_(LogParts_<T, N> l) {
  typedef Vec<T, N> V;
  const V high((T)(sizeof(T) == 4 ? 0.693145751953125 : 0.693147180369123816490));
  const V low((T)(sizeof(T) == 4 ? 1.4286068203094173e-06 : 1.90821492927058770002e-10));
  return fma_rn(l.e, high, l.f + fma_rn(l.e, low, l.rest));
}

//@ log_ : Vec
template <class T, i32 N>
DEVICE auto log_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return log_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    return log_of_parts_(x, log_sum_(log_parts_(x)));
  }
}

//@ log2_ : Vec
template <class T, i32 N>
DEVICE auto log2_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return log2_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const auto [e, f, rest] = log_parts_(x);
    const V base((T)1.44269504088896340736);
    const V low((T)(sizeof(T) == 4 ? 1.925963033500e-8 : 2.0355273740931033e-17));
    return log_of_parts_(x, e + fma_rn(f, base, fma_rn(rest, base, f * low)));
  }
}

//@ log10_ : Vec
template <class T, i32 N>
DEVICE auto log10_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return log10_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const auto [e, f, rest] = log_parts_(x);
    const V base((T)0.43429448190325182765);
    const V low((T)(sizeof(T) == 4 ? -1.0162017e-8 : 1.0983196502167651e-17));
    const V high_e((T)(sizeof(T) == 4 ? 0.301025390625 : 0.3010299955494702));
    const V low_e((T)(sizeof(T) == 4 ? 4.605038981195214e-06 : 1.1451100898021838e-10));
    const V small = fma_rn(e, low_e, fma_rn(rest, base, f * low));
    return log_of_parts_(x, fma_rn(e, high_e, fma_rn(f, base, small)));
  }
}

//@ one_plus_ OnePlus_
// 1 + x = sum + error, exactly; the error enters a logarithm in first order.
template <class T, i32 N>
struct OnePlus_ {
  Vec<T, N> sum, error;
};
template <class T, i32 N>
DEVICE OnePlus_<T, N> one_plus_(Vec<T, N> x) {
  const Vec<T, N> one((T)1), u = one + x, back = u - one;
  return {u, (x - back) + (one - (u - back))};
}

//@ log1p_ : Vec
template <class T, i32 N>
DEVICE auto log1p_(Vec<T, N> x) {
  if constexpr (!is_float_<T>) {
    return each_([](T a) { return log1p_(a); }, x);
  } else {
    typedef Vec<T, N> V;
    const auto [u, error] = one_plus_(x);
    auto parts = log_parts_(u);
    parts.rest = parts.rest + error / u;
    const V y = log_ends_(u, log_sum_(parts));
    return select_((x == V((T)0)) | (x == V(infinity_<T>)), x, y);
  }
}

