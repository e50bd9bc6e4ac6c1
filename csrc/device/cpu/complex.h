// Complex vectors: real and imaginary lanes in vectors of their own.
#pragma once

//@ complex_ : Vec
template <i32 N>
DEVICE Vec<c64, N> complex_(Vec<f32, N> re, Vec<f32, N> im) {
  return Vec<c64, N>(re, im);
}
template <i32 N>
DEVICE Vec<c128, N> complex_(Vec<f64, N> re, Vec<f64, N> im) {
  return Vec<c128, N>(re, im);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto complex_(A re, B im) {
  return complex_(V(re), V(im));
}

//@ add_ : c64 c128
template <i32 N>
DEVICE Vec<c64, N> add_(Vec<c64, N> a, Vec<c64, N> b) {
  return Vec<c64, N>(a.re + b.re, a.im + b.im);
}
template <i32 N>
DEVICE Vec<c128, N> add_(Vec<c128, N> a, Vec<c128, N> b) {
  return Vec<c128, N>(a.re + b.re, a.im + b.im);
}

//@ sub_ : c64 c128
template <i32 N>
DEVICE Vec<c64, N> sub_(Vec<c64, N> a, Vec<c64, N> b) {
  return Vec<c64, N>(a.re - b.re, a.im - b.im);
}
template <i32 N>
DEVICE Vec<c128, N> sub_(Vec<c128, N> a, Vec<c128, N> b) {
  return Vec<c128, N>(a.re - b.re, a.im - b.im);
}

//@ mul_ : c64 c128
template <i32 N>
DEVICE Vec<c64, N> mul_(Vec<c64, N> a, Vec<c64, N> b) {
  return Vec<c64, N>(times_(a.re, b.re) - times_(a.im, b.im),
                     times_(a.re, b.im) + times_(a.im, b.re));
}
template <i32 N>
DEVICE Vec<c128, N> mul_(Vec<c128, N> a, Vec<c128, N> b) {
  return Vec<c128, N>(times_(a.re, b.re) - times_(a.im, b.im),
                     times_(a.re, b.im) + times_(a.im, b.re));
}

//@ neg_ : c64 c128
template <i32 N>
DEVICE Vec<c64, N> neg_(Vec<c64, N> z) {
  return Vec<c64, N>(minus_(z.re), minus_(z.im));
}
template <i32 N>
DEVICE Vec<c128, N> neg_(Vec<c128, N> z) {
  return Vec<c128, N>(minus_(z.re), minus_(z.im));
}

//@ abs_ : c64 c128
template <i32 N>
DEVICE Vec<f32, N> abs_(Vec<c64, N> z) {
  return each_([](c64 a) { return abs_(a); }, z);
}
template <i32 N>
DEVICE Vec<f64, N> abs_(Vec<c128, N> z) {
  return each_([](c128 a) { return abs_(a); }, z);
}

//@ div_ : c64 c128
template <i32 N>
DEVICE Vec<c64, N> div_(Vec<c64, N> a, Vec<c64, N> b) {
  return each_([](c64 x, c64 y) { return div_(x, y); }, a, b);
}
template <i32 N>
DEVICE Vec<c128, N> div_(Vec<c128, N> a, Vec<c128, N> b) {
  return each_([](c128 x, c128 y) { return div_(x, y); }, a, b);
}

//@ times_ : Vec
#if !defined(__clang__) && __GNUC__ >= 12
template <class T, i32 N>
DEVICE Vec<T, N> times_(Vec<T, N> a, Vec<T, N> b) {
  if constexpr (!Vec<T, N>::whole) {
    return join_(times_(a.v.low, b.v.low), times_(a.v.high, b.v.high));
  } else {
    auto product = a.v * b.v;
#ifdef __x86_64__
    // GCC applies the barrier to each lane alone.
    if constexpr (sizeof product >= 16) {
      asm("" : "+x"(product));
      return Vec<T, N>(product);
    }
#endif
    return Vec<T, N>(__builtin_assoc_barrier(product));
  }
}
#endif
