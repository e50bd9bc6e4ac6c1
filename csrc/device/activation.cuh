// Exponentials and what is made of them: our own, because the library's forms cost two to three
// times the instructions or lose the tails. float32 works in base 2 with the argument split into an
// integer, which becomes exponent bits, and a fraction that carries the rounding errors of the
// product. float64 is plain. Functions x_half_ serve results that are rounded to 16 bits or fewer
// at once: relative error below 2^-13, results below 2^-100 may be 0.

//@ ex2_approx
// 2^x. GPU: relative error 2^-22.5; a denormal result becomes 0.
#ifdef FUSER_HOST
DEVICE f32 ex2_approx(f32 x) {
  const f32 above = x < -150.0f ? -150.0f : x;  // comparisons that keep NaN
  const f32 inside = above > 129.0f ? 129.0f : above;
  const f32 shifted = inside + 12582912.0f;  // 1.5 * 2^23: rounds to an integer in the low bits
  const f32 f = inside - (shifted - 12582912.0f);
  f32 p = 0.00015353362f;
  p = fma_rn(p, f, 0.0013398875f);
  p = fma_rn(p, f, 0.009618437f);
  p = fma_rn(p, f, 0.055503324f);
  p = fma_rn(p, f, 0.24022648f);
  p = fma_rn(p, f, 0.6931472f);
  p = fma_rn(p, f, 1.0f);
  const i32 n = (i32)(bits_(shifted) - 0x4b400000u);
  const i32 half = n >> 1;  // 2^n itself may be no normal number
  return p * float_((u32)(half + 127) << 23) * float_((u32)(n - half + 127) << 23);
}
#else
DEVICE f32 ex2_approx(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

//@ rcp_approx
// 1 / x. GPU: 1 ULP; denormals are 0 on both sides.
#ifdef FUSER_HOST
DEVICE f32 rcp_approx(f32 x) { return 1.0f / x; }
#else
DEVICE f32 rcp_approx(f32 x) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

//@ at_most_
// The lesser of both; `limit` for NaN.
#ifdef FUSER_HOST
DEVICE f32 at_most_(f32 x, f32 limit) { return x < limit ? x : limit; }  // fminf would be a call
#else
DEVICE f32 at_most_(f32 x, f32 limit) { return fminf(x, limit); }
#endif

//@ fma_floor_
// floor(fraction * span + offset) for fraction clamped to [0, 1] (NaN: 0) and an offset of at least
// 2^23.
#ifdef FUSER_HOST
DEVICE f32 fma_floor_(f32 fraction, f32 span, f32 offset) {
  const f32 positive = fraction > 0 ? fraction : 0.0f;
  return floorf((positive < 1.0f ? positive : 1.0f) * span) + offset;
}
#else
DEVICE f32 fma_floor_(f32 fraction, f32 span, f32 offset) {
  return __fmaf_rd(__saturatef(fraction), span, offset);
}
#endif

//@ exp_split_
// e^(sign * x) = result * 2^lift * scale, scale a power of two in [2^-126, 2^126], sign 1 or -1.
// Where 2^-lift e^(sign x) is out of that range the result takes the rest, infinity and 0 included.
DEVICE f32 exp_split_(f32 x, f32 sign, f32 lift, f32& scale) {
  const f32 log2e = 1.442695f, log2e_low = 1.925963e-8f;
  // 252 steps of one binade; the offset puts the exponent field of `scale` into the low bits.
  const f32 fraction = fma_rn(x, sign * (log2e / 252.0f), (126.0f - lift) / 252.0f);
  const f32 shifted = fma_floor_(fraction, 252.0f, 12582913.0f);
  const f32 n = shifted - (12583039.0f - lift);
  scale = float_(bits_(shifted) << 23);
  return ex2_approx(fma_rn(x, sign * log2e_low, fma_rn(x, sign * log2e, -n)));
}

//@ exp_
DEVICE f32 exp_(f32 x) {
  f32 scale;
  const f32 e = exp_split_(x, 1.0f, 0.0f, scale);
  return e * scale;
}
DEVICE f64 exp_(f64 x) { return exp(x); }

//@ exp2_
#ifdef FUSER_HOST
DEVICE f32 exp2_(f32 x) { return ex2_approx(x); }
#else
DEVICE f32 exp2_(f32 x) { return exp2f(x); }
#endif
DEVICE f64 exp2_(f64 x) { return exp2(x); }

//@ tanh_
#ifdef FUSER_HOST
// Without branches or calls, so that loops over it become vector code: a polynomial where the other
// form would cancel.
DEVICE f32 tanh_(f32 x) {
  const f32 size = fabsf(x), s = x * x;
  f32 p = -0.005590912f;
  p = fma_rn(p, s, 0.020538727f);
  p = fma_rn(p, s, -0.05370963f);
  p = fma_rn(p, s, 0.13331091f);
  p = fma_rn(p, s, -0.3333327f);
  const f32 small = fma_rn(p * s, size, size);
  const f32 large = 1.0f - 2.0f / (1.0f + ex2_approx(size * 2.88539f));
  return copysignf(size < 0.625f ? small : large, x);  // of -0 too
}
#else
DEVICE f32 tanh_(f32 x) { return tanhf(x); }
#endif
DEVICE f64 tanh_(f64 x) { return tanh(x); }

//@ sigmoid_
// 1 / (1 + e^-x), both terms scaled by 2^-32 so that the sum does not overflow before the result is
// 0.
DEVICE f32 sigmoid_(f32 x) {
  f32 scale;
  const f32 e = exp_split_(x, -1.0f, 32.0f, scale);
  return rcp_approx(fma_rn(e, scale, 0x1p-32f)) * 0x1p-32f;
}
DEVICE f64 sigmoid_(f64 x) {
  const f64 e = exp(-fabs(x));
  return (x >= 0 ? 1.0 : e) / (1.0 + e);
}

//@ silu_
// x / (1 + e^-x). The scale of sigmoid_ only for negative x: x * 2^32 may overflow for positive x.
DEVICE f32 silu_(f32 x) {
  f32 scale;
  const f32 e = exp_split_(x, -1.0f, 32.0f, scale);
  const u32 lift = x < 0 ? 0u : 32u << 23;
  const f32 unit = float_(0x2f800000u + lift);  // 2^-32 or 1
  return rcp_approx(fma_rn(e, float_(bits_(scale) + lift), unit)) * x * unit;
}
DEVICE f64 silu_(f64 x) { return x * sigmoid_(x); }

//@ gelu_tanh_
// x (1 + tanh(u)) / 2 = x / (1 + 2^t), t = -2 u / ln 2 = -b x (x^2 + c). tanh would cancel in the
// left tail. NaN at -infinity, as x times 0 is.
DEVICE f32 gelu_tanh_(f32 x) {
  const f32 left = maximum_(x, -10.85f);   // left of it the result is 0
  const f32 inner = at_most_(left, 9.0f);  // right of it, x
  const f32 b = 0.10294324f, b_low = -2.0161985e-9f;
  const f32 c = 22.3642578125f, c_low = -3.978103e-4f;  // c has 15 bits: c - square is exact
  const f32 product = inner * -b;
  const f32 product_low = fma_rn(inner, -b_low, fma_rn(inner, -b, -product));
  const f32 square = fma_rn(inner, inner, c);
  const f32 square_low = fma_rn(inner, inner, c - square) + c_low;
  const f32 shifted = fma_rn(product, square, 12582912.0f);
  const f32 n = shifted - 12582912.0f;
  f32 f = fma_rn(product, square, -n);
  f = fma_rn(product, square_low, f);
  f = fma_rn(product_low, square, f);
  // As in silu_: both terms times 2^-32 for negative x.
  const u32 unit = x < 0 ? 0x2f800000u : 0x3f800000u;
  const f32 scale = float_((bits_(shifted) << 23) + unit);
  const f32 y = rcp_approx(fma_rn(ex2_approx(f), scale, float_(unit))) * left * float_(unit);
  return fma_rn(at_most_(x, 0.0f), 0.0f, y);
}
DEVICE f64 gelu_tanh_(f64 x) {
  const f64 u = 0.7978845608028653559 * x * fma(0.044715 * x, x, 1.0);
  return x * sigmoid_(2.0 * u);
}

//@ gelu_erf_
// x Phi(x) = max(x, 0) - w Q(w), w = |x|, Q the upper tail of the normal distribution: e^(-w^2 / 2)
// times a polynomial in 1 / (1 + 0.27 w), relative error 2.4e-8. max(x, 0) is x - min(x, 0), which
// is NaN at -infinity, as x times 0 is.
DEVICE f32 gelu_erf_(f32 x) {
  const f32 w = at_most_(fabsf(x), 14.5f);  // right of it w Q(w) is 0
  const f32 t = rcp_approx(fma_rn(w, 0.27f, 1.0f));
  f32 p = 0.028952233f;
  p = fma_rn(p, t, -0.12644167f);
  p = fma_rn(p, t, 0.1696923f);
  p = fma_rn(p, t, -0.06909998f);
  p = fma_rn(p, t, 0.107746355f);
  p = fma_rn(p, t, 0.07208473f);
  p = fma_rn(p, t, 0.101801224f);
  p = fma_rn(p, t, 0.10754425f);
  p = fma_rn(p, t, 0.10772057f);
  p = p * t;
  const f32 half_log2e = 0.7213475f, half_log2e_low = 9.629815e-9f;
  const f32 square = w * w, square_low = fma_rn(w, w, -square);
  // -(1.5 * 2^23 + 127 + n): its low bits are the exponent field of 2^n, kept normal.
  const f32 shifted = at_most_(fma_rn(square, half_log2e, -12583039.0f), -12582913.0f);
  f32 f = fma_rn(square, -half_log2e, shifted + 12583039.0f);
  f = fma_rn(square, -half_log2e_low, f);
  f = fma_rn(square_low, -half_log2e, f);
  const f32 tail = w * p * ex2_approx(f);
  return fma_rn(-tail, float_(bits_(shifted) << 23), x - at_most_(x, 0.0f));
}
DEVICE f64 gelu_erf_(f64 x) { return 0.5 * x * erfc(-0.70710678118654752440 * x); }

//@ exp_half_
DEVICE f32 exp_half_(f32 x) { return ex2_approx(x * 1.442695f); }
DEVICE f64 exp_half_(f64 x) { return exp(x); }

//@ sigmoid_half_
DEVICE f32 sigmoid_half_(f32 x) { return rcp_approx(1.0f + ex2_approx(x * -1.442695f)); }
DEVICE f64 sigmoid_half_(f64 x) { return sigmoid_(x); }

//@ silu_half_
DEVICE f32 silu_half_(f32 x) { return x * rcp_approx(1.0f + ex2_approx(x * -1.442695f)); }
DEVICE f64 silu_half_(f64 x) { return silu_(x); }

//@ tanh_half_
// 1 - 2 / (1 + e^2x), whose absolute error of 2^-23 is small enough from 2^-7 on; x itself below.
DEVICE f32 tanh_half_(f32 x) {
  const f32 large = fma_rn(rcp_approx(1.0f + ex2_approx(x * 2.88539f)), -2.0f, 1.0f);
  return fabsf(x) < 0x1p-7f ? x : large;
}
DEVICE f64 tanh_half_(f64 x) { return tanh_(x); }

//@ gelu_tanh_half_
// As gelu_tanh_, without its corrections.
DEVICE f32 gelu_tanh_half_(f32 x) {
  const f32 t = x * -0.10294324f * fma_rn(x, x, 22.36386f);
  return x * rcp_approx(1.0f + ex2_approx(t));
}
DEVICE f64 gelu_tanh_half_(f64 x) { return gelu_tanh_(x); }

//@ gelu_erf_half_
// As gelu_erf_, with a polynomial of relative error 9.9e-5 up to |x| = 12; beyond, results are
// below 2^-100.
DEVICE f32 gelu_erf_half_(f32 x) {
  const f32 w = at_most_(fabsf(x), 16.0f);
  const f32 t = rcp_approx(fma_rn(w, 0.46f, 1.0f));
  f32 p = -0.1235375f;
  p = fma_rn(p, t, 0.30530846f);
  p = fma_rn(p, t, 0.12587799f);
  p = fma_rn(p, t, 0.19295779f);
  p = fma_rn(p, t, -0.00057333996f);
  return fma_rn(-w, p * ex2_approx(w * (w * -0.7213475f)), x - at_most_(x, 0.0f));
}
DEVICE f64 gelu_erf_half_(f64 x) { return gelu_erf_(x); }

//@ erfinv_from_
#ifdef FUSER_HOST
// libm lacks the inverses: a rational first guess of error 4.5e-4, then three steps of third order.
// Close to 0 the step uses erf, in the tail erfc, so that neither difference cancels.
DEVICE f64 erfinv_from_(f64 y, f64 c) {
  const f64 t = sqrt(-2.0 * (log(c) - 0.69314718055994530942));
  const f64 p = 2.515517 + t * (0.802853 + t * 0.010328);
  const f64 q = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
  f64 x = (t - p / q) * 0.70710678118654752440;
  for (i32 i = 0; i < 3; ++i) {
    const f64 residual = y < 0.5 ? erf(x) - y : c - erfc(x);
    const f64 step = residual * 0.88622692545275801365 * exp(x * x);
    x -= step / (1.0 + x * step);
  }
  return x;
}
#endif

//@ erfcinv_
#ifdef FUSER_HOST
DEVICE f64 erfcinv_(f64 c) {
  const f64 tail = c <= 1.0 ? c : 2.0 - c;
  if (!(tail > 0)) return tail == 0 ? (c <= 1.0 ? HUGE_VAL : -HUGE_VAL) : NAN;
  const f64 x = erfinv_from_(1.0 - tail, tail);
  return c <= 1.0 ? x : -x;
}
DEVICE f32 erfcinv_(f32 c) { return (f32)erfcinv_((f64)c); }
#else
DEVICE f32 erfcinv_(f32 x) { return erfcinvf(x); }
DEVICE f64 erfcinv_(f64 x) { return erfcinv(x); }
#endif

//@ erfinv_
#ifdef FUSER_HOST
DEVICE f64 erfinv_(f64 y) {
  const f64 tail = 1.0 - fabs(y);
  if (!(tail > 0)) return tail == 0 ? copysign(HUGE_VAL, y) : NAN;
  return y == 0 ? y : copysign(erfinv_from_(fabs(y), tail), y);
}
DEVICE f32 erfinv_(f32 y) { return (f32)erfinv_((f64)y); }
#else
DEVICE f32 erfinv_(f32 x) { return erfinvf(x); }
DEVICE f64 erfinv_(f64 x) { return erfinv(x); }
#endif

//@ truediv_half_
// Over the full range of float32, 2 ULP: the reciprocal of the divisor, scaled to where it is
// neither 0 nor infinite. The scale is a factor, as div.full has none: what lanes divide by all
// alike is scaled and inverted once.
#ifdef FUSER_HOST
DEVICE f32 truediv_half_(f32 a, f32 b) { return a / b; }
#else
DEVICE f32 truediv_half_(f32 a, f32 b) {
  const f32 size = fabsf(b);
  const f32 scale = size > 0x1p126f ? 0.25f : size < 0x1p-126f ? 0x1p24f : 1.0f;
  f32 inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b * scale));
  return a * scale * inverse;
}
#endif
DEVICE f64 truediv_half_(f64 a, f64 b) { return a / b; }
