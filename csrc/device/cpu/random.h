// Random bits of vectors of indices. The result has the type of the index, to which it wraps.
#pragma once

//@ random32_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> random32_(Vec<T, N> index, i64 seed, i64 offset) {
  return each_([=](T i) { return (T)random32_(i, seed, offset); }, index);
}
template <class T, i32 N>
DEVICE Vec<T, N> random32_(Vec<T, N> index, Vec<T, N> seed, Vec<T, N> offset) {
  return each_([](T i, T s, T o) { return (T)random32_(i, s, o); }, index, seed, offset);
}

//@ random64_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> random64_(Vec<T, N> index, i64 seed, i64 offset) {
  return each_([=](T i) { return (T)random64_(i, seed, offset); }, index);
}
template <class T, i32 N>
DEVICE Vec<T, N> random64_(Vec<T, N> index, Vec<T, N> seed, Vec<T, N> offset) {
  return each_([](T i, T s, T o) { return (T)random64_(i, s, o); }, index, seed, offset);
}
