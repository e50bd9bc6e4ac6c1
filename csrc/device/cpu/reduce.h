// Reductions over vectors. A state of vectors is N states side by side: identity_, accumulate_ and
// merge_ of reduce.cuh serve it lane by lane. merge_lanes<R> makes one state of its N.
#pragma once

//@ ArgState : Vec
template <class T, i32 N>
struct ArgState<Vec<T, N>> {
  Vec<T, N> f0;
  Vec<i64, N> f1;
};

//@ lowest_ : Vec
template <class T, i32 N>
DEVICE void lowest_(Vec<T, N>& x) {
  T least;
  lowest_(least);
  x = Vec<T, N>(least);
}

//@ highest_ : Vec
template <class T, i32 N>
DEVICE void highest_(Vec<T, N>& x) {
  T most;
  highest_(most);
  x = Vec<T, N>(most);
}

//@ merge_ : Welford
template <class T, i32 N>
DEVICE WelfordState<Vec<T, N>> merge_(Welford, WelfordState<Vec<T, N>> a,
                                      WelfordState<Vec<T, N>> b) {
  typedef Vec<T, N> V;
  const V half((T)0.5), count = a.f2 + b.f2;
  const V scale = one_over_(maximum_(count, V((T)1)));
  const V middle = a.f0 * half + b.f0 * half;
  const V half_delta = b.f0 * half - a.f0 * half;
  const V mean = fma_rn(half_delta, (b.f2 - a.f2) * scale, middle);
  const V delta = b.f0 - a.f0;
  const V lift = delta * (a.f2 * b.f2 * scale);
  const V chosen = select_(b.f2 == V((T)0), a.f0, mean);
  return WelfordState<V>{select_(a.f2 == V((T)0), b.f0, chosen),
                         fma_rn(lift, delta, a.f1 + b.f1), count};
}

//@ accumulate_ : OnlineSoftmax
template <class T, i32 N>
DEVICE void accumulate_(OnlineSoftmax, OnlineState<Vec<T, N>>& s, Vec<T, N> x) {
  typedef Vec<T, N> V;
  const V e = exp_term_(minus_(abs_(x - finite_floor_(s.f0))));
  const V own = fma_rn(x, V((T)0), V((T)1));  // 1; NaN for +infinity
  const Vec<bool, N> above = x > s.f0;
  s.f1 = fma_rn(s.f1, select_(above, e, V((T)1)), select_(above, own, e));
  s.f0 = maximum_(s.f0, x);
}

//@ identity_ accumulate_ merge_ : ArgMax ArgMin
template <class R, class T, i32 N>
DEVICE void identity_(R, ArgState<Vec<T, N>>& s) {
  ArgState<T> none;
  identity_(R{}, none);
  s = ArgState<Vec<T, N>>{Vec<T, N>(none.f0), Vec<i64, N>(none.f1)};
}
template <class R, class T, i32 N>
DEVICE ArgState<Vec<T, N>> merge_(R, ArgState<Vec<T, N>> a, ArgState<Vec<T, N>> b) {
  const Vec<bool, N> a_nan = a.f0 != a.f0, b_nan = b.f0 != b.f0;
  const Vec<bool, N> tie = (a.f0 == b.f0) | (a_nan & b_nan);
  const Vec<bool, N> takes =
      beyond_(R{}, b.f0, a.f0) | (b_nan & ~a_nan) | (tie & (b.f1 < a.f1));
  return ArgState<Vec<T, N>>{select_(takes, b.f0, a.f0), select_(takes, b.f1, a.f1)};
}
template <class R, class T, i32 N>
DEVICE void accumulate_(R, ArgState<Vec<T, N>>& s, Vec<T, N> x, Vec<i64, N> index) {
  // Few elements are beyond all before them.
  if (any_(!beyond_(R{}, s.f0, x))) s = merge_(R{}, s, ArgState<Vec<T, N>>{x, index});
}

//@ beyond_ : ArgMax
template <class T, i32 N>
DEVICE Vec<bool, N> beyond_(ArgMax, Vec<T, N> x, Vec<T, N> held) {
  return x > held;
}

//@ beyond_ : ArgMin
template <class T, i32 N>
DEVICE Vec<bool, N> beyond_(ArgMin, Vec<T, N> x, Vec<T, N> held) {
  return x < held;
}

//@ merge_lanes
// One state of the states of N lanes: lane i and lane i + N / 2 first, until one is left.
template <class R, class T, i32 N>
DEVICE T merge_lanes(Vec<T, N> s) {
  if constexpr (N == 1) return s[0];
  else if constexpr (N == 2) return merge_(R{}, (T)s[0], (T)s[1]);
  else return merge_lanes<R>(merge_(R{}, low_(s), high_(s)));
}

//@ merge_lanes : WelfordState
template <class R, class T, i32 N>
DEVICE WelfordState<T> merge_lanes(WelfordState<Vec<T, N>> s) {
  if constexpr (N == 1) {
    return WelfordState<T>{s.f0[0], s.f1[0], s.f2[0]};
  } else {
    typedef WelfordState<Vec<T, N / 2>> Half;
    return merge_lanes<R>(merge_(R{}, Half{low_(s.f0), low_(s.f1), low_(s.f2)},
                                 Half{high_(s.f0), high_(s.f1), high_(s.f2)}));
  }
}

//@ merge_lanes : OnlineState
template <class R, class T, i32 N>
DEVICE OnlineState<T> merge_lanes(OnlineState<Vec<T, N>> s) {
  if constexpr (N == 1) {
    return OnlineState<T>{s.f0[0], s.f1[0]};
  } else {
    typedef OnlineState<Vec<T, N / 2>> Half;
    return merge_lanes<R>(
        merge_(R{}, Half{low_(s.f0), low_(s.f1)}, Half{high_(s.f0), high_(s.f1)}));
  }
}

//@ merge_lanes : ArgState
template <class R, class T, i32 N>
DEVICE ArgState<T> merge_lanes(ArgState<Vec<T, N>> s) {
  if constexpr (N == 1) {
    return ArgState<T>{s.f0[0], s.f1[0]};
  } else {
    typedef ArgState<Vec<T, N / 2>> Half;
    return merge_lanes<R>(
        merge_(R{}, Half{low_(s.f0), low_(s.f1)}, Half{high_(s.f0), high_(s.f1)}));
  }
}
