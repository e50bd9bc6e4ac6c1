// Reductions to an extreme and the place where it is: see reduce.cuh.

//@ takes_place_
// Whether x at `index` stands before what is held; `beyond`: x > held, or x < held of a minimum.
template <class T>
DEVICE bool takes_place_(bool beyond, T held, i64 held_index, T x, i64 index) {
  const bool held_nan = held != held, x_nan = x != x;
  const bool tie = (x == held) | (x_nan & held_nan);
  return beyond | (x_nan & !held_nan) | (tie & (index < held_index));
}

//@ identity_ accumulate_ merge_ : ArgMax
template <class T>
DEVICE void identity_(ArgMax, ArgState<T>& s) {
  lowest_(s.f0);
  s.f1 = 0x7fffffffffffffffll;
}
template <class T>
DEVICE void accumulate_(ArgMax, ArgState<T>& s, T x, i64 index) {
  const bool takes = takes_place_(x > s.f0, s.f0, s.f1, x, index);
  s.f0 = takes ? x : s.f0;
  s.f1 = takes ? index : s.f1;
}
template <class T>
DEVICE ArgState<T> merge_(ArgMax, ArgState<T> a, ArgState<T> b) {
  const bool takes = takes_place_(b.f0 > a.f0, a.f0, a.f1, b.f0, b.f1);
  return ArgState<T>{takes ? b.f0 : a.f0, takes ? b.f1 : a.f1};
}

//@ identity_ accumulate_ merge_ : ArgMin
template <class T>
DEVICE void identity_(ArgMin, ArgState<T>& s) {
  highest_(s.f0);
  s.f1 = 0x7fffffffffffffffll;
}
template <class T>
DEVICE void accumulate_(ArgMin, ArgState<T>& s, T x, i64 index) {
  const bool takes = takes_place_(x < s.f0, s.f0, s.f1, x, index);
  s.f0 = takes ? x : s.f0;
  s.f1 = takes ? index : s.f1;
}
template <class T>
DEVICE ArgState<T> merge_(ArgMin, ArgState<T> a, ArgState<T> b) {
  const bool takes = takes_place_(b.f0 < a.f0, a.f0, a.f1, b.f0, b.f1);
  return ArgState<T>{takes ? b.f0 : a.f0, takes ? b.f1 : a.f1};
}

//@ accumulate_ : ArgMax
// N elements at positions that grow, merged as one: their maximum, then where it is first.
template <i32 N, class T>
DEVICE void accumulate_(ArgMax, ArgState<T>& s, const T (&x)[N], const i64 (&at)[N]) {
  ArgState<T> own{x[0], at[N - 1]};
  UNROLL for (i32 n = 1; n < N; ++n) own.f0 = maximum_(own.f0, x[n]);
  if (own.f0 == own.f0) {
    UNROLL for (i32 n = N - 2; n >= 0; --n) own.f1 = x[n] < own.f0 ? own.f1 : at[n];
  } else {
    UNROLL for (i32 n = N - 2; n >= 0; --n) own.f1 = x[n] == x[n] ? own.f1 : at[n];
  }
  s = merge_(ArgMax{}, s, own);
}

//@ accumulate_ : ArgMin
template <i32 N, class T>
DEVICE void accumulate_(ArgMin, ArgState<T>& s, const T (&x)[N], const i64 (&at)[N]) {
  ArgState<T> own{x[0], at[N - 1]};
  UNROLL for (i32 n = 1; n < N; ++n) own.f0 = minimum_(own.f0, x[n]);
  if (own.f0 == own.f0) {
    UNROLL for (i32 n = N - 2; n >= 0; --n) own.f1 = x[n] > own.f0 ? own.f1 : at[n];
  } else {
    UNROLL for (i32 n = N - 2; n >= 0; --n) own.f1 = x[n] == x[n] ? own.f1 : at[n];
  }
  s = merge_(ArgMin{}, s, own);
}

//@ accumulate_each : ArgMax ArgMin
template <class R, i32 N, i32 COUNT, class S, class T>
DEVICE void accumulate_each(R, S (&s)[N], const T (&x)[COUNT], const i64 (&at)[COUNT]) {
  T own[COUNT / N];
  i64 places[COUNT / N];
  UNROLL for (i32 n = 0; n < N; ++n) {
    UNROLL for (i32 k = 0; k < COUNT / N; ++k) {
      own[k] = x[k * N + n];
      places[k] = at[k * N + n];
    }
    accumulate_(R{}, s[n], own, places);
  }
}
