// Real functions of one rounding step or of the math library. float64 and float32; accuracies in
// ops.def.

//@ fma_rn
DEVICE f32 fma_rn(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
DEVICE f64 fma_rn(f64 a, f64 b, f64 c) { return fma(a, b, c); }

//@ minus_
// -x. GCC makes one instruction of -x and the fma that x is, whose 0 has the other sign.
#ifdef FUSER_HOST
DEVICE f32 minus_(f32 x) { return float_(bits_(x) ^ 0x80000000u); }
DEVICE f64 minus_(f64 x) { return float_(bits_(x) ^ (u64)1 << 63); }
#else
DEVICE f32 minus_(f32 x) { return -x; }
DEVICE f64 minus_(f64 x) { return -x; }
#endif

//@ abs_
DEVICE f32 abs_(f32 x) { return fabsf(x); }
DEVICE f64 abs_(f64 x) { return fabs(x); }

//@ sign_
// 0 for NaN, as in torch.
DEVICE f32 sign_(f32 x) { return fabsf(x) > 0 ? copysignf(1.0f, x) : 0.0f; }
DEVICE f64 sign_(f64 x) { return fabs(x) > 0 ? copysign(1.0, x) : 0.0; }

//@ copysign_
DEVICE f32 copysign_(f32 x, f32 sign) { return copysignf(x, sign); }
DEVICE f64 copysign_(f64 x, f64 sign) { return copysign(x, sign); }

//@ ceil_
DEVICE f32 ceil_(f32 x) { return ceilf(x); }
DEVICE f64 ceil_(f64 x) { return ceil(x); }

//@ floor_
DEVICE f32 floor_(f32 x) { return floorf(x); }
DEVICE f64 floor_(f64 x) { return floor(x); }

//@ round_
// Half to even.
DEVICE f32 round_(f32 x) { return rintf(x); }
DEVICE f64 round_(f64 x) { return rint(x); }

//@ trunc_
DEVICE f32 trunc_(f32 x) { return truncf(x); }
DEVICE f64 trunc_(f64 x) { return trunc(x); }

//@ frac_
DEVICE f32 frac_(f32 x) { return x - truncf(x); }
DEVICE f64 frac_(f64 x) { return x - trunc(x); }

//@ nextafter_
DEVICE f32 nextafter_(f32 x, f32 y) { return nextafterf(x, y); }
DEVICE f64 nextafter_(f64 x, f64 y) { return nextafter(x, y); }

//@ fmod_
DEVICE f32 fmod_(f32 a, f32 b) { return fmodf(a, b); }
DEVICE f64 fmod_(f64 a, f64 b) { return fmod(a, b); }

//@ remainder_
// What floor division leaves, with the sign of b.
DEVICE f32 remainder_(f32 a, f32 b) {
  const f32 rest = fmodf(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
DEVICE f64 remainder_(f64 a, f64 b) {
  const f64 rest = fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

//@ floor_divide_
// floor(a / b) of the exact quotient, from the exact remainder; a zero has the sign of a / b. Two
// roundings may change an integer of 22 bits or more (of 51 in f64), so it is corrected.
DEVICE f32 floor_divide_(f32 a, f32 b) {
  if (b == 0) return a / b;
  const f32 rest = fmodf(a, b);
  const f32 below = rest != 0 && (rest < 0) != (b < 0) ? 1.0f : 0.0f;
  const f32 near = rintf((a - rest) / b);
  const bool large = fabsf(near) >= 4194304.0f && near - near == 0;
  const f32 more = large ? rintf((fmaf(-near, b, a) - rest) / b) : 0.0f;
  const f32 quotient = near + (more - below);
  return quotient != 0 ? quotient : copysignf(0.0f, a / b);
}
DEVICE f64 floor_divide_(f64 a, f64 b) {
  if (b == 0) return a / b;
  const f64 rest = fmod(a, b);
  const f64 below = rest != 0 && (rest < 0) != (b < 0) ? 1.0 : 0.0;
  const f64 near = rint((a - rest) / b);
  const bool large = fabs(near) >= 2251799813685248.0 && near - near == 0;
  const f64 more = large ? rint((fma(-near, b, a) - rest) / b) : 0.0;
  const f64 quotient = near + (more - below);
  return quotient != 0 ? quotient : copysign(0.0, a / b);
}

//@ lerp_
// From the nearer end, so that a weight of 0 or 1 gives an end exactly.
DEVICE f32 lerp_(f32 a, f32 b, f32 weight) {
  const f32 span = b - a;
  return fabsf(weight) < 0.5f ? fmaf(weight, span, a) : fmaf(weight - 1.0f, span, b);
}
DEVICE f64 lerp_(f64 a, f64 b, f64 weight) {
  const f64 span = b - a;
  return fabs(weight) < 0.5 ? fma(weight, span, a) : fma(weight - 1.0, span, b);
}

//@ minimum_
// NaN when an operand is NaN; -0 is less than +0.
#if !defined(FUSER_HOST) && __CUDA_ARCH__ >= 800
DEVICE f32 minimum_(f32 a, f32 b) {
  f32 r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#else
DEVICE f32 minimum_(f32 a, f32 b) {
  const f32 equal = float_(bits_(a) | bits_(b));
  const f32 chosen = a < b ? a : b;
  const f32 number = a == b ? equal : chosen;
  return a == a ? number : a;
}
#endif
DEVICE f64 minimum_(f64 a, f64 b) {
  const f64 equal = float_(bits_(a) | bits_(b));
  const f64 chosen = a < b ? a : b;
  const f64 number = a == b ? equal : chosen;
  return a == a ? number : a;
}

//@ maximum_
// NaN when an operand is NaN; -0 is less than +0.
#if !defined(FUSER_HOST) && __CUDA_ARCH__ >= 800
DEVICE f32 maximum_(f32 a, f32 b) {
  f32 r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#else
DEVICE f32 maximum_(f32 a, f32 b) {
  const f32 equal = float_(bits_(a) & bits_(b));
  const f32 chosen = a > b ? a : b;
  const f32 number = a == b ? equal : chosen;
  return a == a ? number : a;
}
#endif
DEVICE f64 maximum_(f64 a, f64 b) {
  const f64 equal = float_(bits_(a) & bits_(b));
  const f64 chosen = a > b ? a : b;
  const f64 number = a == b ? equal : chosen;
  return a == a ? number : a;
}

//@ isnan_
DEVICE bool isnan_(f32 x) { return x != x; }
DEVICE bool isnan_(f64 x) { return x != x; }

//@ isinf_
DEVICE bool isinf_(f32 x) { return fabsf(x) > 3.402823466e38f; }
DEVICE bool isinf_(f64 x) { return fabs(x) > 1.7976931348623157e308; }

//@ isfinite_
DEVICE bool isfinite_(f32 x) { return fabsf(x) <= 3.402823466e38f; }
DEVICE bool isfinite_(f64 x) { return fabs(x) <= 1.7976931348623157e308; }

//@ isposinf_
DEVICE bool isposinf_(f32 x) { return x > 3.402823466e38f; }
DEVICE bool isposinf_(f64 x) { return x > 1.7976931348623157e308; }

//@ isneginf_
DEVICE bool isneginf_(f32 x) { return x < -3.402823466e38f; }
DEVICE bool isneginf_(f64 x) { return x < -1.7976931348623157e308; }

//@ signbit_
DEVICE bool signbit_(f32 x) { return (bits_(x) >> 31) != 0; }
DEVICE bool signbit_(f64 x) { return (bits_(x) >> 63) != 0; }

//@ sqrt_
DEVICE f32 sqrt_(f32 x) { return sqrtf(x); }
DEVICE f64 sqrt_(f64 x) { return sqrt(x); }

//@ rsqrt_
#ifdef FUSER_HOST
DEVICE f32 rsqrt_(f32 x) { return (f32)(1.0 / sqrt((f64)x)); }
DEVICE f64 rsqrt_(f64 x) { return 1.0 / sqrt(x); }
#else
DEVICE f32 rsqrt_(f32 x) { return rsqrtf(x); }
DEVICE f64 rsqrt_(f64 x) { return rsqrt(x); }
#endif

//@ pow_
DEVICE f32 pow_(f32 a, f32 b) { return powf(a, b); }
DEVICE f64 pow_(f64 a, f64 b) { return pow(a, b); }

//@ expm1_
DEVICE f32 expm1_(f32 x) { return expm1f(x); }
DEVICE f64 expm1_(f64 x) { return expm1(x); }

//@ log_
DEVICE f32 log_(f32 x) { return logf(x); }
DEVICE f64 log_(f64 x) { return log(x); }

//@ log1p_
DEVICE f32 log1p_(f32 x) { return log1pf(x); }
DEVICE f64 log1p_(f64 x) { return log1p(x); }

//@ log2_
DEVICE f32 log2_(f32 x) { return log2f(x); }
DEVICE f64 log2_(f64 x) { return log2(x); }

//@ log10_
DEVICE f32 log10_(f32 x) { return log10f(x); }
DEVICE f64 log10_(f64 x) { return log10(x); }

//@ sin_
DEVICE f32 sin_(f32 x) { return sinf(x); }
DEVICE f64 sin_(f64 x) { return sin(x); }

//@ cos_
DEVICE f32 cos_(f32 x) { return cosf(x); }
DEVICE f64 cos_(f64 x) { return cos(x); }

//@ tan_
DEVICE f32 tan_(f32 x) { return tanf(x); }
DEVICE f64 tan_(f64 x) { return tan(x); }

//@ asin_
DEVICE f32 asin_(f32 x) { return asinf(x); }
DEVICE f64 asin_(f64 x) { return asin(x); }

//@ acos_
DEVICE f32 acos_(f32 x) { return acosf(x); }
DEVICE f64 acos_(f64 x) { return acos(x); }

//@ atan_
DEVICE f32 atan_(f32 x) { return atanf(x); }
DEVICE f64 atan_(f64 x) { return atan(x); }

//@ sinh_
DEVICE f32 sinh_(f32 x) { return sinhf(x); }
DEVICE f64 sinh_(f64 x) { return sinh(x); }

//@ cosh_
DEVICE f32 cosh_(f32 x) { return coshf(x); }
DEVICE f64 cosh_(f64 x) { return cosh(x); }

//@ asinh_
DEVICE f32 asinh_(f32 x) { return asinhf(x); }
DEVICE f64 asinh_(f64 x) { return asinh(x); }

//@ acosh_
DEVICE f32 acosh_(f32 x) { return acoshf(x); }
DEVICE f64 acosh_(f64 x) { return acosh(x); }

//@ atanh_
DEVICE f32 atanh_(f32 x) { return atanhf(x); }
DEVICE f64 atanh_(f64 x) { return atanh(x); }

//@ erf_
DEVICE f32 erf_(f32 x) { return erff(x); }
DEVICE f64 erf_(f64 x) { return erf(x); }

//@ erfc_
DEVICE f32 erfc_(f32 x) { return erfcf(x); }
DEVICE f64 erfc_(f64 x) { return erfc(x); }

//@ erfcx_
// exp(x * x) * erfc(x).
#ifdef FUSER_HOST
// libm lacks erfcx. Up to 12 the product is finite, and `rest` is the rounding error of x * x.
// Beyond 12 ten terms of the asymptotic series suffice.
DEVICE f64 erfcx_(f64 x) {
  if (x < -27.0) return HUGE_VAL;
  const f64 square = x * x;
  if (x > 12.0) {
    f64 series = 1.0;
    for (i32 n = 10; n > 0; --n) series = 1.0 - (n - 0.5) / square * series;
    return 0.56418958354775628695 / x * series;
  }
  const f64 rest = fma(x, x, -square);
  return exp(square) * erfc(x) * (1.0 + rest);
}
DEVICE f32 erfcx_(f32 x) { return (f32)erfcx_((f64)x); }
#else
DEVICE f32 erfcx_(f32 x) { return erfcxf(x); }
DEVICE f64 erfcx_(f64 x) { return erfcx(x); }
#endif

//@ lgamma_
DEVICE f32 lgamma_(f32 x) { return lgammaf(x); }
DEVICE f64 lgamma_(f64 x) { return lgamma(x); }

//@ atan2_
DEVICE f32 atan2_(f32 y, f32 x) { return atan2f(y, x); }
DEVICE f64 atan2_(f64 y, f64 x) { return atan2(y, x); }

//@ hypot_
DEVICE f32 hypot_(f32 x, f32 y) { return hypotf(x, y); }
DEVICE f64 hypot_(f64 x, f64 y) { return hypot(x, y); }
