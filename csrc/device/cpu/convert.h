// Conversions of vectors: to<T>(x) gives in each lane the bits that to<T> of convert.cuh gives.
#pragma once

//@ to : Vec
template <class T, class S, i32 N>
DEVICE Vec<T, N> convert_(Vec<S, N> x, Tag<T>) {
  return each_([](S a) { return to<T>(a); }, x);
}
template <class S, i32 N>
DEVICE Vec<S, N> convert_(Vec<S, N> x, Tag<S>) {
  return x;
}
template <class T, class S, i32 N>
DEVICE Vec<T, N> to(Vec<S, N> x) {
  return convert_(x, Tag<T>());
}
