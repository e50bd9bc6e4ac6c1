// Reductions to an extreme and the place where it is: see reduce.cuh.

//@ takes_place_
// Whether x at `index` stands before what is held; `beyond`: beyond_(R, x, held).
template <class T>
DEVICE bool takes_place_(bool beyond, T held, i64 held_index, T x, i64 index) {
  const bool held_nan = held != held, x_nan = x != x;
  const bool tie = (x == held) | (x_nan & held_nan);
  return beyond | (x_nan & !held_nan) | (tie & (index < held_index));
}

//@ farthest_ beyond_ extreme_ : ArgMax
template <class T>
DEVICE void farthest_(ArgMax, T& x) {
  lowest_(x);
}
template <class T>
DEVICE bool beyond_(ArgMax, T x, T held) {
  return x > held;
}
template <class T>
DEVICE T extreme_(ArgMax, T a, T b) {
  return maximum_(a, b);
}

//@ farthest_ beyond_ extreme_ : ArgMin
template <class T>
DEVICE void farthest_(ArgMin, T& x) {
  highest_(x);
}
template <class T>
DEVICE bool beyond_(ArgMin, T x, T held) {
  return x < held;
}
template <class T>
DEVICE T extreme_(ArgMin, T a, T b) {
  return minimum_(a, b);
}

//@ identity_ accumulate_ merge_ : ArgMax ArgMin
template <class R, class T>
DEVICE void identity_(R, ArgState<T>& s) {
  farthest_(R{}, s.f0);
  s.f1 = 0x7fffffffffffffffll;
}
template <class R, class T>
DEVICE void accumulate_(R, ArgState<T>& s, T x, i64 index) {
  const bool takes = takes_place_(beyond_(R{}, x, s.f0), s.f0, s.f1, x, index);
  s.f0 = takes ? x : s.f0;
  s.f1 = takes ? index : s.f1;
}
template <class R, class T>
DEVICE ArgState<T> merge_(R, ArgState<T> a, ArgState<T> b) {
  const bool takes = takes_place_(beyond_(R{}, b.f0, a.f0), a.f0, a.f1, b.f0, b.f1);
  return ArgState<T>{takes ? b.f0 : a.f0, takes ? b.f1 : a.f1};
}

//@ accumulate_ : ArgMax ArgMin
// N elements at positions that grow, merged as one: their extreme, then where it is first.
template <class R, i32 N, class T>
DEVICE void accumulate_(R, ArgState<T>& s, const T (&x)[N], const i64 (&at)[N]) {
  ArgState<T> own{x[0], at[N - 1]};
  UNROLL for (i32 n = 1; n < N; ++n) own.f0 = extreme_(R{}, own.f0, x[n]);
  if (own.f0 == own.f0) {
    UNROLL for (i32 n = N - 2; n >= 0; --n) own.f1 = beyond_(R{}, own.f0, x[n]) ? own.f1 : at[n];
  } else {
    UNROLL for (i32 n = N - 2; n >= 0; --n) own.f1 = x[n] == x[n] ? own.f1 : at[n];
  }
  s = merge_(R{}, s, own);
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
