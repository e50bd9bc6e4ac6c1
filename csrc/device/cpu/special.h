// Error functions, their inverses and the logarithm of the gamma function of vectors, within the bounds
// of ops.def.
//
// Several float32 forms compute in float64, whose rounding errors do not count. The polynomials are
// minimax fits of this project.
#pragma once

//@ scaled_tail_
// e^(w^2) erfc(w), by t = 1 / (1 + 0.35 w). float32: w >= 0, error 2^-28. float64: w >= 0.95, error
// 2^-56.
template <class S, i32 N>
DEVICE Vec<f64, N> scaled_tail_(Vec<f64, N> w, Tag<S>) {
  typedef Vec<f64, N> V;
  const V t = V(1.0) / fma_rn(w, V(0.35), V(1.0));
  if constexpr (sizeof(S) == 4) {
    return t * poly_(t, 0.19746635464842516, 0.19746621508087056, 0.1853793352951583,
                     0.16101262939081967, 0.12900038188988744, 0.07543644141729981,
                     0.09815448733637006, -0.11291503693980504, 0.21372671908191457,
                     -0.2384410978284201, 0.11372049569283796, -0.02000692300642073);
  } else {
    return t * poly_(t, 0.19746635424171471, 0.19746635424171333, 0.1853715400445781,
                     0.16118191164334714, 0.1271198911758469, 0.08763032897473941,
                     0.04869964222769225, 0.016499627648828778, -0.004431243443886769,
                     -0.012068842548701678, -0.01255389954204374, 0.009502623850699917,
                     -0.03917179019191244, 0.12868691622537987, -0.2622649474136231,
                     0.43102424988226234, -0.5272919192082355, 0.4362214418298721,
                     -0.22935766890919196, 0.06962941459078617, -0.009360015335966837);
  }
}

//@ upper_tail_
// erfc(w), by e^(-w^2) and the rounding error of the square.
template <class S, i32 N>
DEVICE Vec<f64, N> upper_tail_(Vec<f64, N> w, Tag<S>) {
  typedef Vec<f64, N> V;
  const V square = w * w, low = fma_rn(w, w, minus_(square)), p = scaled_tail_(w, Tag<S>());
  return fma_rn(minus_(low), p, p) * exp_(minus_(square));
}

//@ center_
// erf(x) for |x| <= 1: error 2^-56.
template <i32 N>
DEVICE Vec<f64, N> center_(Vec<f64, N> x) {
  return x * poly_(x * x, 1.1283791670955126, -0.3761263890318352, 0.112837916709442,
                   -0.026866170643113415, 0.005223977606130842, -0.0008548325929766244,
                   0.0001205529358693695, -1.4924712439534814e-05, 1.6447132699786621e-06,
                   -1.6206318752969208e-07, 1.3710988704190523e-08, -7.779462971761597e-10);
}

//@ erf_ : Vec
// float32: x + x P(x^2) up to 0.92, then 1 - e^Q(|x|): errors 2^-30 and 2^-34.
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
template <i32 N>
DEVICE Vec<f64, N> erf_(Vec<f64, N> x) {
  const Vec<f64, N> one(1.0), w = least_(Vec<f64, N>(6.0), abs_(x));
  const Vec<f64, N> large = copysign_(one - upper_tail_(w, Tag<f64>()), x);
  return select_(w < one, center_(x), large);
}

//@ erfc_ : Vec
// float32: e^(-w^2) times a polynomial in 1 / (1 + 0.35 w), w = |x|, error 2^-27.
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
template <i32 N>
DEVICE Vec<f64, N> erfc_(Vec<f64, N> x) {
  typedef Vec<f64, N> V;
  const V one(1.0), w = least_(V(28.0), abs_(x)), tail = upper_tail_(w, Tag<f64>());
  const V large = select_(x < V(0.0), V(2.0) - tail, tail);
  return select_(w < one, one - center_(x), large);
}

//@ erfcx_ : Vec
// Left of 0 it is 2 e^(x^2) less that of |x|.
template <i32 N>
DEVICE Vec<f32, N> erfcx_(Vec<f32, N> x) {
  typedef Vec<f64, N> V;
  const V wide = cast_<f64>(x), right = scaled_tail_(abs_(wide), Tag<f32>());
  const V left = fma_rn(exp_(wide * wide), V(2.0), minus_(right));
  return cast_<f32>(select_(x < Vec<f32, N>(0.0f), left, right));
}
template <i32 N>
DEVICE Vec<f64, N> erfcx_(Vec<f64, N> x) {
  typedef Vec<f64, N> V;
  const V one(1.0), w = abs_(x), square = x * x, low = fma_rn(x, x, minus_(square));
  const V e = exp_(square) * (one + select_(square < V(720.0), low, V(0.0)));
  const V right = scaled_tail_(w, Tag<f64>());
  const V large = select_(x < V(0.0), fma_rn(e, V(2.0), minus_(right)), right);
  return select_(w < one, e * (one - center_(x)), large);
}

//@ inverse_center_ inverse_tail_
// erfinv(y) / y by w = -log(1 - y^2) <= 5, and the inverse of the upper tail by w from 5 to 106: errors
// 2^-27.
template <class T, i32 N>
DEVICE Vec<T, N> inverse_center_(Vec<T, N> w) {
  return poly_(w, 0.8862269f, 0.23201382f, 0.011548654f, -0.0023342965f, -0.00012748149f,
               4.4565175e-05f, 3.983236e-06f, -1.9764582e-06f, 2.2102994e-07f, -8.7909795e-09f);
}
template <class T, i32 N>
DEVICE Vec<T, N> inverse_tail_(Vec<T, N> w) {
  typedef Vec<T, N> V;
  const V s = sqrt_(w);
  return s * poly_(V((T)1) / s - V((T)0.276f), 0.9548564f, -0.19296132f, 0.1200037f, 0.46771416f,
                   -0.79478073f, 0.28948f, -3.783791f, 2.1423364f, 32.419468f, 57.681286f,
                   -328.05692f);
}

//@ erfinv_ : Vec
// The method is Giles', "Approximating the erfinv function" (2011). float64: one step of third order
// from there, by erf or by erfc, so that no difference cancels.
template <class T, i32 N>
DEVICE Vec<T, N> erfinv_(Vec<T, N> y) {
  typedef Vec<T, N> V;
  const V one((T)1), size = abs_(y), w = minus_(log_(fma_rn(minus_(y), y, one)));
  const Vec<bool, N> inside = w < V((T)5);
  const V tail = copysign_(inverse_tail_(w), y), x = select_(inside, y * inverse_center_(w), tail);
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
    const V from = abs_(x);
    const V residual = select_(size < V(0.5), center_(from) - size, (one - size) - erfc_(from));
    const V step = residual * V(0.88622692545275801365) * exp_(from * from);
    const V better = copysign_(from - step / fma_rn(from, step, one), y);
    return select_((size < one) & (y != V(0.0)), better, x);
  }
}

//@ erfcinv_ : Vec
template <i32 N>
DEVICE Vec<f32, N> erfcinv_(Vec<f32, N> c) {
  typedef Vec<f32, N> V;
  const V y = V(1.0f) - c, w = minus_(log_(c * (V(2.0f) - c)));
  const V tail = select_(w < V(infinity_<f32>), inverse_tail_(w), w);
  return select_(w < V(5.0f), y * inverse_center_(w), copysign_(tail, y));
}
template <i32 N>
DEVICE Vec<f64, N> erfcinv_(Vec<f64, N> c) {
  return each_([](f64 a) { return erfcinv_(a); }, c);
}

//@ gamma_right_
// lgamma(y) for y >= 1 / 2. Below 8 it is a polynomial at y - k in [1, 2), error 2^-30, and the
// logarithm of the k factors between; beyond, Stirling's series.
template <i32 N>
DEVICE Vec<f64, N> gamma_right_(Vec<f64, N> y) {
  typedef Vec<f64, N> V;
  const V one(1.0), half(0.5), whole = floor_(least_(V(8.0), y));
  const Vec<bool, N> small = y < V(8.0), below = y < one;
  V factors = one, next = y;
  UNROLL for (i32 i = 1; i <= 6; ++i) {
    next = next - one;
    factors = factors * greatest_(next, one);  // next < 1 if it is behind the k factors
  }
  factors = select_(below | !small, y, factors);  // below 1 one step leads to the right
  const V logarithm = log_sum_(log_parts_(factors)), inverse = one / y;
  const V t = y - whole, u = t - half;  // lgamma(1 + t)
  const V p = poly_(u, 0.4831289504945088, -0.14595990210871285, 0.0629114142036231,
                    -0.031307997896535246, 0.016796497621153705, -0.009436396438219651,
                    0.005456473763230081, -0.0031164022251612988, 0.001848318819643013,
                    -0.001525520588113262, 0.0009599073425890898);
  const V near = fma_rn(t * (t - one), p, select_(below, minus_(logarithm), logarithm));
  const V series = inverse * poly_(inverse * inverse, 0.083333333333333329, -0.0027777777777777779,
                                   0.00079365079365079365);
  const V far = fma_rn(y - half, logarithm, V(0.91893853320467274) - y) + series;
  return select_(small, near, far);
}

//@ lgamma_ : Vec
// Left of 1 / 2 it is log(pi / |sin(pi x)|) less that of 1 - x.
template <i32 N>
DEVICE Vec<f32, N> lgamma_(Vec<f32, N> x) {
  typedef Vec<f64, N> V;
  const V wide = cast_<f64>(x);
  const Vec<bool, N> left = wide < V(0.5);
  V y = gamma_right_(select_(left, V(1.0) - wide, wide));
  if (any_(left)) {
    const V pi(3.1415926535897931), from = greatest_(V(-16777216.0), wide);  // beyond are integers
    const V sine = abs_(sine_((from - nearest_(from)) * pi));
    y = select_(left, log_(pi / sine) - y, y);
  }
  const Vec<f32, N> infinite(infinity_<f32>);
  return select_(abs_(x) == infinite, infinite, cast_<f32>(y));
}
template <i32 N>
DEVICE Vec<f64, N> lgamma_(Vec<f64, N> x) {
  return each_([](f64 a) { return lgamma_(a); }, x);
}
