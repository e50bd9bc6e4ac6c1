// Complex functions, built from real ones. Accuracy is that of the whole number (|error| against
// |result|). Products follow the formula. Functions follow annex G of C at zeros, infinities, NaN
// and branch cuts, as torch does.

//@ complex_
DEVICE c64 complex_(f32 re, f32 im) { return c64{re, im}; }
DEVICE c128 complex_(f64 re, f64 im) { return c128{re, im}; }

//@ add_ : c64 c128
DEVICE c64 add_(c64 a, c64 b) { return c64{a.re + b.re, a.im + b.im}; }
DEVICE c128 add_(c128 a, c128 b) { return c128{a.re + b.re, a.im + b.im}; }

//@ sub_ : c64 c128
DEVICE c64 sub_(c64 a, c64 b) { return c64{a.re - b.re, a.im - b.im}; }
DEVICE c128 sub_(c128 a, c128 b) { return c128{a.re - b.re, a.im - b.im}; }

//@ neg_ : c64 c128
DEVICE c64 neg_(c64 z) { return c64{-z.re, -z.im}; }
DEVICE c128 neg_(c128 z) { return c128{-z.re, -z.im}; }

//@ times_
// A product that stays one. GCC 12 makes vfmaddsub of a difference beside a sum of products, in
// spite of -ffp-contract=off: then a * b is not b * a.
#if defined(FUSER_HOST) && !defined(__clang__) && __GNUC__ >= 12
template <class T>
DEVICE T times_(T a, T b) {
  return __builtin_assoc_barrier(a * b);
}
#else
template <class T>
DEVICE T times_(T a, T b) {
  return a * b;
}
#endif

//@ mul_ : c64 c128
DEVICE c64 mul_(c64 a, c64 b) {
  return c64{times_(a.re, b.re) - times_(a.im, b.im), times_(a.re, b.im) + times_(a.im, b.re)};
}
DEVICE c128 mul_(c128 a, c128 b) {
  return c128{times_(a.re, b.re) - times_(a.im, b.im), times_(a.re, b.im) + times_(a.im, b.re)};
}

//@ divide_
// Divides by the larger part of b first, so that |b|^2 is never formed.
template <class C>
DEVICE C divide_(C a, C b) {
  if (abs_(b.re) >= abs_(b.im)) {
    if (b.re == 0) return C{a.re / abs_(b.re), a.im / abs_(b.re)};
    const auto ratio = b.im / b.re;
    const auto scale = b.re + b.im * ratio;
    return C{(a.re + times_(a.im, ratio)) / scale, (a.im - times_(a.re, ratio)) / scale};
  }
  const auto ratio = b.re / b.im;
  const auto scale = b.re * ratio + b.im;
  return C{(times_(a.re, ratio) + a.im) / scale, (times_(a.im, ratio) - a.re) / scale};
}

//@ div_ : c64 c128
DEVICE c64 div_(c64 a, c64 b) { return divide_(a, b); }
DEVICE c128 div_(c128 a, c128 b) { return divide_(a, b); }

//@ reciprocal_ : c64 c128
template <class C>
DEVICE C reciprocal_(C z) {
  return divide_(C{1, 0}, z);
}

//@ abs_ : c64 c128
DEVICE f32 abs_(c64 z) { return hypot_(z.re, z.im); }
DEVICE f64 abs_(c128 z) { return hypot_(z.re, z.im); }

//@ eq_ : c64 c128
DEVICE bool eq_(c64 a, c64 b) { return (a.re == b.re) & (a.im == b.im); }
DEVICE bool eq_(c128 a, c128 b) { return (a.re == b.re) & (a.im == b.im); }

//@ ne_ : c64 c128
DEVICE bool ne_(c64 a, c64 b) { return (a.re != b.re) | (a.im != b.im); }
DEVICE bool ne_(c128 a, c128 b) { return (a.re != b.re) | (a.im != b.im); }

//@ isnan_ : c64 c128
DEVICE bool isnan_(c64 z) { return isnan_(z.re) | isnan_(z.im); }
DEVICE bool isnan_(c128 z) { return isnan_(z.re) | isnan_(z.im); }

//@ isinf_ : c64 c128
DEVICE bool isinf_(c64 z) { return isinf_(z.re) | isinf_(z.im); }
DEVICE bool isinf_(c128 z) { return isinf_(z.re) | isinf_(z.im); }

//@ isfinite_ : c64 c128
DEVICE bool isfinite_(c64 z) { return isfinite_(z.re) & isfinite_(z.im); }
DEVICE bool isfinite_(c128 z) { return isfinite_(z.re) & isfinite_(z.im); }

//@ isreal_ : c64 c128
DEVICE bool isreal_(c64 z) { return z.im == 0; }
DEVICE bool isreal_(c128 z) { return z.im == 0; }

//@ is_true_ : c64 c128
DEVICE bool is_true_(c64 z) { return (z.re != 0) | (z.im != 0); }
DEVICE bool is_true_(c128 z) { return (z.re != 0) | (z.im != 0); }

//@ lerp_ : c64 c128
template <class C>
DEVICE C lerp_(C a, C b, C w) {
  const C span = sub_(b, a);
  if (w.re * w.re + w.im * w.im < 0.25f) return add_(a, mul_(w, span));
  return sub_(b, mul_(span, sub_(C{1, 0}, w)));
}

//@ polar_
// (a cos(angle), b sin(angle)) of functions a and b of x, which may be 0, infinite or NaN. A part is
// 0 where a function or the angle is 0. Beside an angle that is no number, an infinite real part
// stays infinite, but one that only overflows does not.
template <class C, class T>
DEVICE C polar_(T x, T a, T b, T angle) {
  if (angle == 0) return C{a, signbit_(b) && !isnan_(b) ? -angle : angle};
  if (isfinite_(angle)) return C{a * cos_(angle), b * sin_(angle)};
  const T none = angle - angle;
  const bool exact = x == 0 || isinf_(x);
  return C{exact && isinf_(a) ? abs_(a) : exact && a == 0 ? a : none, exact && b == 0 ? b : none};
}

//@ times_size_
// z times a size that may be infinite; a part of 0 stays 0.
template <class C, class T>
DEVICE C times_size_(C z, T size) {
  return C{z.re == 0 ? z.re : z.re * size, z.im == 0 ? z.im : z.im * size};
}

//@ exp_ : c64 c128
// The size is multiplied in two steps where it overflows and its parts may not.
template <class C>
DEVICE C exp_(C z) {
  const auto size = exp_(z.re);
  if (!isinf_(size) || isinf_(z.re)) return polar_<C>(z.re, size, size, z.im);
  const auto half = exp_(z.re / 2);
  return times_size_(polar_<C>(z.re, half, half, z.im), half);
}

//@ expm1_ : c64 c128
template <class C>
DEVICE C expm1_(C z) {
  const auto half = sin_(z.im / 2);
  return C{expm1_(z.re) * cos_(z.im) - 2 * half * half, exp_(z.re) * sin_(z.im)};
}

//@ log_abs_
// log |z|, without the cancellation of log(hypot) where |z| is close to 1, and without the overflow
// of hypot: of a quarter where |z| may be beyond the largest number.
template <class C>
DEVICE auto log_abs_(C z) {
  const auto re = abs_(z.re), im = abs_(z.im);
  const auto x = re > im ? re : im, y = re > im ? im : re;
  if (x > 0.5f && x < 2) return log1p_((x - 1) * (x + 1) + y * y) / 2;
  if (x > 1e38f) return log_(hypot_(x / 4, y / 4)) + (decltype(z.re))1.38629436111989061883;
  return log_(hypot_(x, y));
}

//@ log_ : c64 c128
template <class C>
DEVICE C log_(C z) {
  return C{log_abs_(z), atan2_(z.im, z.re)};
}

//@ log1p_ : c64 c128
template <class C>
DEVICE C log1p_(C z) {
  const bool small = abs_(z.re) + abs_(z.im) < 0.5f;
  const auto size = small ? log1p_(z.re * (2 + z.re) + z.im * z.im) / 2
                          : log_abs_(C{1 + z.re, z.im});
  return C{size, atan2_(z.im, 1 + z.re)};
}

//@ log2_ : c64 c128
DEVICE c64 log2_(c64 z) {
  const c64 y = log_(z);
  return c64{y.re * 1.44269504088896340736f, y.im * 1.44269504088896340736f};
}
DEVICE c128 log2_(c128 z) {
  const c128 y = log_(z);
  return c128{y.re * 1.44269504088896340736, y.im * 1.44269504088896340736};
}

//@ log10_ : c64 c128
DEVICE c64 log10_(c64 z) {
  const c64 y = log_(z);
  return c64{y.re * 0.43429448190325182765f, y.im * 0.43429448190325182765f};
}
DEVICE c128 log10_(c128 z) {
  const c128 y = log_(z);
  return c128{y.re * 0.43429448190325182765, y.im * 0.43429448190325182765};
}

//@ exp2_ : c64 c128
DEVICE c64 exp2_(c64 z) {
  const f32 size = exp2_(z.re);
  return polar_<c64>(z.re, size, size, z.im * 0.69314718055994530942f);
}
DEVICE c128 exp2_(c128 z) {
  const f64 size = exp2_(z.re);
  return polar_<c128>(z.re, size, size, z.im * 0.69314718055994530942);
}

//@ sqrt_ : c64 c128
// The part that does not cancel first, the other from the product of both. Of a sixteenth where
// |z| may be beyond the largest number, of 2^64 times z where |z| may have few digits.
template <class C>
DEVICE C sqrt_(C z) {
  typedef decltype(z.re) T;
  if (z.re == 0 && z.im == 0) return C{0, z.im};
  const T most = abs_(z.re) > abs_(z.im) ? abs_(z.re) : abs_(z.im);
  const T by = most > 1e38f ? 0.0625f : most < 1e-30f ? 18446744073709551616.0f : 1.0f;
  const T back = most > 1e38f ? 4.0f : most < 1e-30f ? 2.3283064365386963e-10f : 1.0f;
  const T size = hypot_(z.re * by, z.im * by);
  if (isinf_(z.im)) return C{size, z.im};
  const T large = sqrt_(abs_(z.re * by) / 2 + size / 2) * back;
  const T small = z.im / (2 * large);
  return z.re >= 0 ? C{large, small} : C{abs_(small), copysign_(large, z.im)};
}

//@ rsqrt_ : c64 c128
template <class C>
DEVICE C rsqrt_(C z) {
  return divide_(C{1, 0}, sqrt_(z));
}

//@ pow_ : c64 c128
// e^(b log a); float32 goes through float64, since b multiplies the error of the logarithm. Of 0 to
// a negative power only the size is known, to an imaginary one nothing.
DEVICE c128 pow_(c128 a, c128 b) {
  if (a.re == 0 && a.im == 0) {
    if (b.re > 0) return c128{0, 0};
    if (b.re == 0 && b.im == 0) return c128{1, 0};
    const f64 pole = 1 / abs_(a.re), unknown = pole * a.re;  // infinity and NaN
    return c128{b.re < 0 ? pole : unknown, unknown};
  }
  return exp_(mul_(b, log_(a)));
}
DEVICE c64 pow_(c64 a, c64 b) {
  const c128 y = pow_(c128{a.re, a.im}, c128{b.re, b.im});
  return c64{(f32)y.re, (f32)y.im};
}

//@ hyperbolic_
// (cosh(x) cos(angle), sinh(x) sin(angle)), and with `odd` (sinh(x) cos(angle), cosh(x) sin(angle)).
// As exp_, in two steps where cosh overflows.
template <class C, class T>
DEVICE C hyperbolic_(T x, T angle, bool odd) {
  T even = cosh_(x), sine = sinh_(x), factor = 1;
  if (isinf_(even) && !isinf_(x)) {
    factor = exp_(abs_(x) / 2);
    even = factor / 2;
    sine = copysign_(even, x);
  }
  return times_size_(polar_<C>(x, odd ? sine : even, odd ? even : sine, angle), factor);
}

//@ sin_ : c64 c128
template <class C>
DEVICE C sin_(C z) {
  const C y = hyperbolic_<C>(z.im, z.re, true);
  return C{y.im, y.re};
}

//@ cos_ : c64 c128
template <class C>
DEVICE C cos_(C z) {
  const C y = hyperbolic_<C>(z.im, z.re, false);
  return C{y.re, -y.im};
}

//@ sinh_ : c64 c128
template <class C>
DEVICE C sinh_(C z) {
  return hyperbolic_<C>(z.re, z.im, true);
}

//@ cosh_ : c64 c128
template <class C>
DEVICE C cosh_(C z) {
  return hyperbolic_<C>(z.re, z.im, false);
}

//@ tanh_ : c64 c128
template <class C>
DEVICE C tanh_(C z) {
  typedef decltype(z.re) T;
  if (isinf_(z.re)) {
    const T turn = isfinite_(z.im) ? sin_(z.im) * cos_(z.im) : z.im;
    return C{copysign_((T)1, z.re), copysign_((T)0, turn)};
  }
  if (!isfinite_(z.im)) return C{z.re == 0 ? z.re : z.im - z.im, z.im - z.im};
  if (z.im == 0) return C{tanh_(z.re), z.im};
  if (abs_(z.re) > 20) {  // sinh would overflow in the end
    const T small = exp_(-abs_(z.re));
    return C{copysign_((T)1, z.re), 4 * sin_(z.im) * cos_(z.im) * small * small};
  }
  const auto t = tan_(z.im), s = sinh_(z.re), beta = 1 + t * t, d = 1 + beta * s * s;
  return C{beta * sqrt_(1 + s * s) * s / d, t / d};
}

//@ tan_ : c64 c128
template <class C>
DEVICE C tan_(C z) {
  const C y = tanh_(C{-z.im, z.re});  // tan z = -i tanh(i z)
  return C{y.im, -y.re};
}

//@ large_
// Is |z| so large that the inverse functions are a logarithm of it, or no number at all?
template <class C>
DEVICE bool large_(C z) {
  return !(abs_(z.re) < 1e18f && abs_(z.im) < 1e18f);
}

//@ log_2abs_
// log |2 z| of a large z.
template <class C>
DEVICE auto log_2abs_(C z) {
  return log_abs_(z) + (decltype(z.re))0.69314718055994530942;
}

//@ asin_ : c64 c128
template <class C>
DEVICE C asin_(C z) {
  if (large_(z)) {
    const auto re = z.re == 0 ? z.re : copysign_(atan2_(abs_(z.re), abs_(z.im)), z.re);
    return C{re, copysign_(log_2abs_(z), isnan_(z.im) ? abs_(z.im) : z.im)};
  }
  const C p = sqrt_(C{1 + z.re, z.im}), m = sqrt_(C{1 - z.re, -z.im});
  return C{atan2_(z.re, p.re * m.re - p.im * m.im), asinh_(m.re * p.im - m.im * p.re)};
}

//@ acos_ : c64 c128
template <class C>
DEVICE C acos_(C z) {
  typedef decltype(z.re) T;
  if (large_(z)) {
    const T re = z.re == 0 ? (T)1.57079632679489661923 : atan2_(abs_(z.im), z.re);
    return C{re, copysign_(log_2abs_(z), isnan_(z.im) || !signbit_(z.im) ? (T)-1 : (T)1)};
  }
  const C p = sqrt_(C{1 + z.re, z.im}), m = sqrt_(C{1 - z.re, -z.im});
  return C{2 * atan2_(m.re, p.re), asinh_(p.re * m.im - p.im * m.re)};
}

//@ acosh_ : c64 c128
template <class C>
DEVICE C acosh_(C z) {
  if (large_(z)) {
    const C y = acos_(z);
    return C{abs_(y.im), copysign_(y.re, z.im)};
  }
  const C p = sqrt_(C{z.re + 1, z.im}), m = sqrt_(C{z.re - 1, z.im});
  return C{asinh_(m.re * p.re + m.im * p.im), 2 * atan2_(m.im, p.re)};
}

//@ asinh_ : c64 c128
template <class C>
DEVICE C asinh_(C z) {
  const C y = asin_(C{-z.im, z.re});  // asinh z = -i asin(i z)
  return C{y.im, -y.re};
}

//@ atanh_ : c64 c128
template <class C>
DEVICE C atanh_(C z) {
  typedef decltype(z.re) T;
  const T x = z.re, y = z.im, w = abs_(x);
  if (large_(z)) {
    const T turn = isnan_(y) || (isnan_(x) && !isinf_(y)) ? x + y : (T)1.57079632679489661923;
    const T size = hypot_(x, y);
    if (x == 0 || isinf_(size)) return C{copysign_((T)0, x), copysign_(isnan_(y) ? y : turn, y)};
    return C{x / size / size, copysign_(turn, y)};
  }
  // At the poles y^2 would vanish.
  const T re = w == 1 && abs_(y) < 1e-15f ? ((T)0.69314718055994530942 - log_(abs_(y))) / 2
                                          : log1p_(4 * w / ((1 - w) * (1 - w) + y * y)) / 4;
  return C{copysign_(re, x), atan2_(2 * y, (1 - x) * (1 + x) - y * y) / 2};
}

//@ atan_ : c64 c128
template <class C>
DEVICE C atan_(C z) {
  const C y = atanh_(C{-z.im, z.re});  // atan z = -i atanh(i z)
  return C{y.im, -y.re};
}

//@ sigmoid_ : c64 c128
// 1 / (1 + e^-z), on the left e^z / (1 + e^z): the exponential never overflows.
template <class C>
DEVICE C sigmoid_(C z) {
  const bool left = z.re < 0;
  const C e = exp_(left ? z : C{-z.re, -z.im});
  return divide_(left ? e : C{1, 0}, C{1 + e.re, e.im});
}

//@ silu_ : c64 c128
// z sigmoid(z), as that is made.
template <class C>
DEVICE C silu_(C z) {
  const bool left = z.re < 0;
  const C e = exp_(left ? z : C{-z.re, -z.im});
  return divide_(left ? mul_(z, e) : z, C{1 + e.re, e.im});
}
