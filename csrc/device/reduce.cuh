// Reductions: what a thread keeps, how elements enter and states merge, and the steps from the
// registers of a thread over lanes, warps, a cluster, the rows of a block and the grid to one
// state.
//
// A reduction is a tag R with
//   identity_(R, s)            sets s to the state of no elements
//   accumulate_(R, s, x)       takes in one element; ArgMax, ArgMin: (R, s, x, index)
//   merge_(R, a, b)            the state of the elements of both
// merge_(a, b) and merge_(b, a) are the same bit for bit, any NaN counting as the same, so that a
// butterfly leaves the same bits in every lane. All orders are fixed by the place of a value.
//
// Threads are counted by thread_x: blocks have one axis and a multiple of 32 threads. Functions
// that shuffle or meet are for all threads of the warp or the block, whatever their data says.
// `slots` are shared memory; who publishes to slots again first lets all threads meet behind the
// last read of them.

//@ Sum
struct Sum {};

//@ Prod
struct Prod {};

//@ Max
// NaN when an element is NaN.
struct Max {};

//@ Min
struct Min {};

//@ Any
struct Any {};

//@ All
struct All {};

//@ XorSum
struct XorSum {};

//@ ArgMax
// NaN is larger than all else; of equals the lowest index.
struct ArgMax {};

//@ ArgMin
// NaN is less than all else; of equals the lowest index.
struct ArgMin {};

//@ Welford
struct Welford {};

//@ OnlineSoftmax
struct OnlineSoftmax {};

//@ ArgState
// The extreme element and its index; no elements: index 2^63 - 1.
template <class T>
struct ArgState {
  T f0;
  i64 f1;
};

//@ WelfordState
// Mean, sum of squared deviations from it, count.
template <class T>
struct WelfordState {
  T f0, f1, f2;
};

//@ OnlineState
// Maximum m and sum of exp(x - m).
template <class T>
struct OnlineState {
  T f0, f1;
};

// ---- limits

//@ lowest_
// The least value of a type, infinity included.
template <class T>
DEVICE void lowest_(T& x) {
  x = (T)-1 < (T)0 ? (T)((u64)1 << (8 * sizeof(T) - 1)) : (T)0;
}
DEVICE void lowest_(bool& x) { x = false; }
DEVICE void lowest_(f32& x) { x = float_(0xff800000u); }
DEVICE void lowest_(f64& x) { x = float_((u64)0xfff0000000000000ull); }

//@ highest_
template <class T>
DEVICE void highest_(T& x) {
  x = (T)-1 < (T)0 ? (T)(((u64)1 << (8 * sizeof(T) - 1)) - 1) : (T)-1;
}
DEVICE void highest_(bool& x) { x = true; }
DEVICE void highest_(f32& x) { x = float_(0x7f800000u); }
DEVICE void highest_(f64& x) { x = float_((u64)0x7ff0000000000000ull); }

// ---- one field

//@ identity_ merge_ : Sum
template <class S>
DEVICE void identity_(Sum, S& s) {
  s = S{};
}
template <class S>
DEVICE S merge_(Sum, S a, S b) {
  return add_(a, b);
}
DEVICE f32 merge_(Sum, f32 a, f32 b) { return a + b; }
DEVICE f64 merge_(Sum, f64 a, f64 b) { return a + b; }

//@ identity_ merge_ : Prod
template <class S>
DEVICE void identity_(Prod, S& s) {
  s = S{1};
}
template <class S>
DEVICE S merge_(Prod, S a, S b) {
  return mul_(a, b);
}
DEVICE f32 merge_(Prod, f32 a, f32 b) { return a * b; }
DEVICE f64 merge_(Prod, f64 a, f64 b) { return a * b; }

//@ identity_ merge_ : Max
template <class S>
DEVICE void identity_(Max, S& s) {
  lowest_(s);
}
template <class S>
DEVICE S merge_(Max, S a, S b) {
  return maximum_(a, b);
}

//@ identity_ merge_ : Min
template <class S>
DEVICE void identity_(Min, S& s) {
  highest_(s);
}
template <class S>
DEVICE S merge_(Min, S a, S b) {
  return minimum_(a, b);
}

//@ identity_ merge_ : Any
template <class S>
DEVICE void identity_(Any, S& s) {
  s = (S)0;
}
template <class S>
DEVICE S merge_(Any, S a, S b) {
  return (S)(is_true_(a) | is_true_(b));
}

//@ identity_ merge_ : All
template <class S>
DEVICE void identity_(All, S& s) {
  s = (S)1;
}
template <class S>
DEVICE S merge_(All, S a, S b) {
  return (S)(is_true_(a) & is_true_(b));
}

//@ identity_ merge_ : XorSum
template <class S>
DEVICE void identity_(XorSum, S& s) {
  s = (S)0;
}
template <class S>
DEVICE S merge_(XorSum, S a, S b) {
  return (S)(a ^ b);
}

//@ accumulate_ : Sum Prod Max Min XorSum
template <class R, class S, class T>
DEVICE void accumulate_(R, S& s, T x) {
  s = merge_(R{}, s, (S)x);
}

//@ accumulate_ : Sum
// The product of x and y, unrounded.
template <class T>
DEVICE void accumulate_(Sum, T& s, T x, T y) {
  s = fma_rn(x, y, s);
}

//@ accumulate_ : Any
template <class S, class T>
DEVICE void accumulate_(Any, S& s, T x) {
  s = (S)(is_true_(s) | is_true_(x));
}

//@ accumulate_ : All
template <class S, class T>
DEVICE void accumulate_(All, S& s, T x) {
  s = (S)(is_true_(s) & is_true_(x));
}

// ---- mean and deviations

//@ one_over_
// 1 / x of a count of at least 1; float32: 1 ULP.
DEVICE f32 one_over_(f32 x) { return rcp_approx(x); }
DEVICE f64 one_over_(f64 x) { return 1.0 / x; }

//@ identity_ accumulate_ merge_ welford_take_ : Welford
// float32: the reciprocal adds 2^-23 of each step of the mean to its error, no more than the step's
// own rounding. Counts are exact up to 2^24, so a thread takes in at most that many elements. An
// infinite element leaves no finite deviations.
template <class T>
DEVICE void identity_(Welford, WelfordState<T>& s) {
  s = WelfordState<T>{};
}
template <class T>
DEVICE void accumulate_(Welford, WelfordState<T>& s, T x) {
  const T count = s.f2 + 1;
  const T delta = x - s.f0;
  const T mean = fma_rn(delta, one_over_(count), s.f0);
  s.f1 = fma_rn(delta, x - mean, s.f1);
  s.f0 = mean;
  s.f2 = count;
}
// N elements at the price of one reciprocal: their own mean and deviations, merged. `share` is 1 of
// the elements of both.
template <i32 N, class T>
DEVICE void welford_take_(WelfordState<T>& s, const T (&x)[N], T count, T share) {
  T sums[N];
  UNROLL for (i32 n = 0; n < N; ++n) sums[n] = x[n];
  UNROLL for (i32 width = N; width > 1; width = (width + 1) / 2) {
    UNROLL for (i32 n = 0; n < N / 2; ++n) {
      if (n < width / 2) sums[n] += sums[n + (width + 1) / 2];
    }
  }
  const T mean = sums[0] * ((T)1 / (T)N);
  T squares = 0;
  UNROLL for (i32 n = 0; n < N; ++n) {
    const T d = x[n] - mean;
    squares = fma_rn(d, d, squares);
  }
  const T delta = mean - s.f0;
  s.f1 = s.f1 + fma_rn(delta * (count * (T)N * share), delta, squares);
  s.f0 = fma_rn(delta, (T)N * share, s.f0);
  s.f2 = count + (T)N;
}
template <i32 N, class T>
DEVICE void accumulate_(Welford, WelfordState<T>& s, const T (&x)[N]) {
  welford_take_(s, x, s.f2, one_over_(s.f2 + (T)N));
}
// Chan's formula, from the middle of both means so that nothing tells a from b; the middle is exact
// for equal means, as is the result where a state is empty.
template <class T>
DEVICE WelfordState<T> merge_(Welford, WelfordState<T> a, WelfordState<T> b) {
  const T half = (T)0.5, count = a.f2 + b.f2;
  const T scale = one_over_(count > 1 ? count : (T)1);
  const T middle = a.f0 * half + b.f0 * half;
  const T half_delta = b.f0 * half - a.f0 * half;  // halves first, lest it overflow
  const T mean = fma_rn(half_delta, (b.f2 - a.f2) * scale, middle);
  const T delta = b.f0 - a.f0;
  const T lift = delta * (a.f2 * b.f2 * scale);  // 0 before delta^2 can overflow
  return WelfordState<T>{a.f2 == 0 ? b.f0 : (b.f2 == 0 ? a.f0 : mean),
                         fma_rn(lift, delta, a.f1 + b.f1), count};
}

// ---- maximum and sum of exponentials

//@ finite_floor_
// The most negative finite number for -infinity and NaN.
#ifdef FUSER_HOST
DEVICE f32 finite_floor_(f32 x) { return x > -0x1.fffffep127f ? x : -0x1.fffffep127f; }
DEVICE f64 finite_floor_(f64 x) {
  return x > -0x1.fffffffffffffp1023 ? x : -0x1.fffffffffffffp1023;
}
#else
DEVICE f32 finite_floor_(f32 x) { return fmaxf(x, -0x1.fffffep127f); }
DEVICE f64 finite_floor_(f64 x) { return fmax(x, -0x1.fffffffffffffp1023); }
#endif

//@ exp_term_
// e^x for x <= 0, NaN for NaN, as a term of a sum that is 1 or more: there is no range to care for,
// and what a product with log2(e) rounds off is small against the sum. float32: the relative error
// is below |x| 2^-23 + 2^-22; below 2^-126 it may be 0.
DEVICE f32 exp_term_(f32 x) { return ex2_approx(x * 1.442695f); }
DEVICE f64 exp_term_(f64 x) { return exp(x); }

//@ identity_ accumulate_ merge_ : OnlineSoftmax
// The state of a row is (amax(x), sum(exp(x - amax(x)))), +infinity and NaN included (the sum is
// then NaN), but for rows of -infinity, whose sum is 0. So exp(x - f0) / f1 is torch.softmax, and
// logsumexp is f0 where that is infinite, else f0 + log(f1).
template <class T>
DEVICE void identity_(OnlineSoftmax, OnlineState<T>& s) {
  lowest_(s.f0);
  s.f1 = 0;
}
// One exponential: either the sum or the element is scaled.
template <class T>
DEVICE void accumulate_(OnlineSoftmax, OnlineState<T>& s, T x) {
  const T e = exp_term_(-abs_(x - finite_floor_(s.f0)));
  const T own = fma_rn(x, (T)0, (T)1);  // 1; NaN for +infinity, as exp(x - x)
  const bool above = x > s.f0;
  s.f1 = fma_rn(s.f1, above ? e : (T)1, above ? own : e);
  s.f0 = maximum_(s.f0, x);
}
// N elements at the price of N + 1 exponentials. The state enters last, so that steps of a row
// overlap.
template <i32 N, class T>
DEVICE void accumulate_(OnlineSoftmax, OnlineState<T>& s, const T (&x)[N]) {
  T top = x[0];
  UNROLL for (i32 n = 1; n < N; ++n) top = maximum_(top, x[n]);
  top = maximum_(top, s.f0);
  const T base = finite_floor_(top);
  T sum = exp_term_(x[0] - base);
  UNROLL for (i32 n = 1; n < N; ++n) sum += exp_term_(x[n] - base);
  s.f1 = fma_rn(s.f1, exp_term_(s.f0 - base), sum);
  s.f0 = top;
}
template <class T>
DEVICE OnlineState<T> merge_(OnlineSoftmax, OnlineState<T> a, OnlineState<T> b) {
  const T top = maximum_(a.f0, b.f0), base = finite_floor_(top);
  return OnlineState<T>{top, a.f1 * exp_term_(a.f0 - base) + b.f1 * exp_term_(b.f0 - base)};
}

// ---- a thread's states

//@ reset
template <class R, i32 N, class S>
DEVICE void reset(S (&r)[N]) {
  UNROLL for (i32 n = 0; n < N; ++n) identity_(R{}, r[n]);
}

//@ accumulate_each
// s[n] takes in x[n], x[N + n], x[2 N + n] and so on.
template <class R, i32 N, i32 COUNT, class S, class T>
DEVICE void accumulate_each(R, S (&s)[N], const T (&x)[COUNT]) {
  T own[COUNT / N];
  UNROLL for (i32 n = 0; n < N; ++n) {
    UNROLL for (i32 k = 0; k < COUNT / N; ++k) own[k] = x[k * N + n];
    accumulate_(R{}, s[n], own);
  }
}

//@ accumulate_each : Welford
// One reciprocal for all: the states hold equally many elements.
template <i32 N, i32 COUNT, class T>
DEVICE void accumulate_each(Welford, WelfordState<T> (&s)[N], const T (&x)[COUNT]) {
  const T count = s[0].f2, share = one_over_(count + (T)(COUNT / N));
  T own[COUNT / N];
  UNROLL for (i32 n = 0; n < N; ++n) {
    UNROLL for (i32 k = 0; k < COUNT / N; ++k) own[k] = x[k * N + n];
    welford_take_(s[n], own, count, share);
  }
}

//@ fold
// Merges r[0..N) into r[0], halves onto halves; the rest of r is spent.
template <class R, i32 COUNT, i32 N, class S>
DEVICE void fold_(S (&r)[N]) {
  if constexpr (COUNT > 1) {
    constexpr i32 half = (COUNT + 1) / 2;
    UNROLL for (i32 n = 0; n < COUNT - half; ++n) r[n] = merge_(R{}, r[n], r[n + half]);
    fold_<R, half>(r);
  }
}
template <class R, i32 N, class S>
DEVICE void fold(S (&r)[N]) {
  fold_<R, N>(r);
}

//@ get_state_
#ifdef FUSER_HOST
template <class S>
DEVICE S get_state_(const S* p) {
  debug_access(p, sizeof(S), alignof(S), false);
  return *p;
}
#else
template <class S>
DEVICE S get_state_(const S* p) {
  return *p;
}
#endif

//@ put_state_
#ifdef FUSER_HOST
template <class S>
DEVICE void put_state_(S* p, S x) {
  debug_access(p, sizeof(S), alignof(S), true);
  *p = x;
}
#else
template <class S>
DEVICE void put_state_(S* p, S x) {
  *p = x;
}
#endif

// ---- lanes and warps

//@ partner_
// The state of lane ^ mask; of an ArgState the fields only, not what lies between them.
template <class S>
DEVICE S partner_(S x, i32 mask) {
  return shuffle_xor(x, mask);
}

//@ partner_ : ArgState
template <class T>
DEVICE ArgState<T> partner_(ArgState<T> x, i32 mask) {
  const T f0 = shuffle_xor(x.f0, mask);
  return ArgState<T>{f0, shuffle_xor(x.f1, mask)};
}

//@ reduce_lanes reduce_strided_
// Merges over aligned groups of W lanes, a power of two up to 32; every lane gets the result.
// reduce_strided_ merges the lanes of a group of W that differ by multiples of STRIDE.
template <class R, i32 W, i32 STRIDE, class S>
DEVICE S reduce_strided_(S x) {
  static_assert(W >= 1 && W <= 32 && (W & (W - 1)) == 0, "lanes group by powers of two");
  UNROLL for (i32 mask = W / 2; mask >= STRIDE; mask /= 2) {
    x = merge_(R{}, x, partner_(x, mask));
  }
  return x;
}
template <class R, i32 W, class S>
DEVICE S reduce_lanes(S x) {
  return reduce_strided_<R, W, 1>(x);
}

//@ publish_warp
// A slot for each warp of the block, written by its lane 0.
template <class S>
DEVICE void publish_warp(S* slots, S x) {
  if ((thread_x() & 31) == 0) put_state_(slots + (thread_x() >> 5), x);
}

//@ collect_warps
// After publish_warp and sync_block: merges over aligned groups of W warps, a power of two up to
// 32 that divides the warps of the block, or all of them; every thread gets its group's result.
template <class R, i32 W, class S>
DEVICE S collect_warps(const S* slots) {
  const i32 warp = thread_x() >> 5, lane = thread_x() & 31;
  if constexpr ((W & (W - 1)) == 0) {
    return reduce_lanes<R, W>(get_state_(slots + ((warp & ~(W - 1)) + (lane & (W - 1)))));
  } else {
    S x;
    identity_(R{}, x);
    if (lane < W) x = merge_(R{}, x, get_state_(slots + lane));
    return reduce_lanes<R, 32>(x);
  }
}

// ---- clusters

//@ ClusterSlot_
// What is sent to other blocks is words: of smaller states several places are one slot.
template <class S>
struct ClusterSlot_ {
  static constexpr i32 STATES = sizeof(S) < 4 ? 4 / (i32)sizeof(S) : 1;
};

//@ publish_cluster
// A slot for each of the W warps of the N blocks of the cluster, in each of these blocks: block
// after block in the order of their ranks. x is the same in all lanes of a warp, N of which write
// one block's slot each; then comes await_cluster. All blocks have met (cluster.cuh) before the
// first publish, and each warp awaits another one between its reads of slots and the next publish
// to them.
template <i32 N, i32 W, class S>
DEVICE void publish_cluster(S* slots, S x, i64* arrival) {
  const i32 lane = thread_x() & 31, at = cluster_rank() * W + (thread_x() >> 5);
  if (lane >= N) return;
  S* const slot = slots + at * ClusterSlot_<S>::STATES;
#ifdef FUSER_HOST
  put_state_(map_shared_rank(slot, lane), x);
#else
  send_(slot, x, arrival, lane);
#endif
}

//@ collect_cluster
// After publish_cluster and await_cluster: merges all COUNT slots; every thread gets the result.
template <class R, i32 COUNT, class S>
DEVICE S collect_cluster(const S* slots) {
  constexpr i32 SLOT = ClusterSlot_<S>::STATES;
  const i32 lane = thread_x() & 31;
  if constexpr (COUNT < 32 && (COUNT & (COUNT - 1)) == 0) {
    return reduce_lanes<R, COUNT>(get_state_(slots + (lane & (COUNT - 1)) * SLOT));
  } else {
    S x;
    identity_(R{}, x);
    UNROLL for (i32 i = 0; i < COUNT; i += 32) {
      if (i + lane < COUNT) x = merge_(R{}, x, get_state_(slots + (i + lane) * SLOT));
    }
    return reduce_lanes<R, 32>(x);
  }
}

// ---- rows of a block

//@ merge_rows_
// Leaves the merge of ROWS rows of PITCH states in row 0: of each column by one thread, the first of
// which is thread t's, so many threads apart. It keeps four states, s[k] of the rows k, k + 4, ....
template <class R, i32 ROWS, i32 PITCH, i32 THREADS, class S>
CALLED void merge_rows_(S* slots, i32 t) {
  constexpr i32 kept = ROWS < 4 ? ROWS : 4, rest = ROWS % kept;
  _Pragma("unroll 1") for (i32 c = t; c < PITCH; c += THREADS) {
    S s[kept];
    UNROLL for (i32 k = 0; k < kept; ++k) s[k] = get_state_(slots + (k * PITCH + c));
    i32 row = kept;
    _Pragma("unroll 1") for (; row < ROWS - rest; row += kept) {
      UNROLL for (i32 k = 0; k < kept; ++k) {
        s[k] = merge_(R{}, s[k], get_state_(slots + ((row + k) * PITCH + c)));
      }
    }
    UNROLL for (i32 k = 0; k < rest; ++k) {
      s[k] = merge_(R{}, s[k], get_state_(slots + ((row + k) * PITCH + c)));
    }
    fold<R>(s);
    put_state_(slots + c, s[0]);
  }
}

//@ reduce_rows
// Thread t = y * COLUMNS + x of ROWS * COLUMNS threads: merges r[n] over y for each x and n; every
// y gets the result. If ROWS * COLUMNS is no multiple of 32, threads beyond it may come and get
// some column's result. Has two block barriers, or none if a thread meets no other warp.
//
// `slots` hold N * ROWS * COLUMNS states, [y][n][x]: lanes then touch neighbouring states, also
// where a warp spans several y or n. The first thing done is to write to slots, the last to read
// them: barriers between uses are the caller's.
template <class R, i32 ROWS, i32 COLUMNS, i32 N, class S>
DEVICE void reduce_rows(S (&r)[N], S* slots) {
  constexpr bool whole = ROWS * COLUMNS % 32 == 0;
  constexpr bool lanes_first = whole && COLUMNS < 32 && 32 % COLUMNS == 0;
  constexpr i32 rows = lanes_first ? ROWS * COLUMNS / 32 : ROWS;
  if constexpr (lanes_first) {
    UNROLL for (i32 n = 0; n < N; ++n) r[n] = reduce_strided_<R, 32, COLUMNS>(r[n]);
  }
  if constexpr (rows > 1) {
    const u32 t = (u32)thread_x();
    const i32 x = (i32)(t % COLUMNS), y = (i32)(lanes_first ? t / 32 : t / COLUMNS);
    if (lanes_first ? t % 32 < COLUMNS : whole || t < ROWS * COLUMNS) {
      UNROLL for (i32 n = 0; n < N; ++n) put_state_(slots + ((y * N + n) * COLUMNS + x), r[n]);
    }
    sync_block();
    merge_rows_<R, rows, N * COLUMNS, ROWS * COLUMNS>(slots, (i32)t);
    sync_block();
    UNROLL for (i32 n = 0; n < N; ++n) r[n] = get_state_(slots + (n * COLUMNS + x));
  }
}

// ---- the grid

//@ last_block
// Whether this is the last of `count` blocks to come here, the same for all threads. What the
// others' threads stored before (store_partial) can then be loaded (load_partial): the barriers
// extend the release and the acquire of thread 0 to its block. The counter is 0 before and after.
// `slot` is shared memory that nobody else uses between the barriers around this call.
DEVICE bool last_block(u32* counter, u32 count, u32* slot) {
  sync_block();
  if (thread_x() == 0) {
    fence_device();
    const u32 before = atomic_inc(counter, count - 1);
    fence_device();
    put_state_(slot, before);
  }
  sync_block();
  return get_state_((const u32*)slot) == count - 1;
}
