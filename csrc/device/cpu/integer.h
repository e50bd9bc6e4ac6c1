// Division and shifts of vectors of integers, with the meaning of integer.cuh; floats run the scalar
// function of the same name lane by lane.
#pragma once

//@ quotient_
// x / y of integers, truncated; no y is 0. Floats hold the quotient's digits: two integers are further
// apart, relative to the quotient, than a float is from its neighbour.
template <class T, i32 N>
DEVICE Vec<T, N> quotient_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (sizeof(T) <= 2) {
    return cast_<T>(cast_<i32>(cast_<f32>(cast_<i32>(x)) / cast_<f32>(cast_<i32>(y))));
  } else if constexpr (sizeof(T) == 4) {
    return cast_<T>(cast_<i64>(cast_<f64>(x) / cast_<f64>(y)));
  } else {
    return each_([](T a, T b) { return (T)(a / b); }, x, y);
  }
}

//@ divided_
// The quotient, and what it leaves, with the meaning of div_ and mod_.
template <class T, i32 N>
struct Divided_ {
  Vec<T, N> quotient, rest;
};
template <class T, i32 N>
DEVICE Divided_<T, N> divided_(Vec<T, N> x, Vec<T, N> y) {
  const Vec<T, N> zero((T)0), minus_one((T)-1);
  const Vec<bool, N> none = y == zero, wraps = (y == minus_one) & Vec<bool, N>((T)-1 < (T)0);
  const Vec<T, N> q = quotient_(x, select_(none | wraps, Vec<T, N>((T)1), y));
  return {select_(none, minus_one, select_(wraps, zero - x, q)),
          select_(none, x, select_(wraps, zero, x - q * y))};
}

//@ div_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> div_(Vec<T, N> x, Vec<T, N> y) {
  return divided_(x, y).quotient;
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto div_(A x, B y) {
  return div_(V(x), V(y));
}

//@ mod_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> mod_(Vec<T, N> x, Vec<T, N> y) {
  return divided_(x, y).rest;
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto mod_(A x, B y) {
  return mod_(V(x), V(y));
}

//@ steps_
// Whether a quotient that is no integer was truncated upward (DOWN) or downward.
template <bool DOWN, class T, i32 N>
DEVICE Vec<bool, N> steps_(Divided_<T, N> d, Vec<T, N> y) {
  const Vec<T, N> zero((T)0);
  const Vec<bool, N> differs = (d.rest < zero) != (y < zero);
  return (y != zero) & (d.rest != zero) & (DOWN ? differs : ~differs);
}

//@ floor_divide_ : Vec
template <class T, i32 N>
DEVICE auto floor_divide_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (is_float_<T>) {
    return each_([](T a, T b) { return floor_divide_(a, b); }, x, y);
  } else {
    const auto d = divided_(x, y);
    return select_(steps_<true>(d, y), d.quotient - Vec<T, N>((T)1), d.quotient);
  }
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto floor_divide_(A x, B y) {
  return floor_divide_(V(x), V(y));
}

//@ ceil_div_ : Vec
template <class T, i32 N>
DEVICE auto ceil_div_(Vec<T, N> x, Vec<T, N> y) {
  const auto d = divided_(x, y);
  return select_(steps_<false>(d, y), d.quotient + Vec<T, N>((T)1), d.quotient);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto ceil_div_(A x, B y) {
  return ceil_div_(V(x), V(y));
}

//@ fmod_ : Vec
template <class T, i32 N>
DEVICE auto fmod_(Vec<T, N> x, Vec<T, N> y) {
  return each_([](T a, T b) { return fmod_(a, b); }, x, y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto fmod_(A x, B y) {
  return fmod_(V(x), V(y));
}

//@ remainder_ : Vec
template <class T, i32 N>
DEVICE auto remainder_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (is_float_<T>) {
    return each_([](T a, T b) { return remainder_(a, b); }, x, y);
  } else {
    const auto d = divided_(x, y);
    return select_(steps_<true>(d, y), d.rest + y, d.rest);
  }
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto remainder_(A x, B y) {
  return remainder_(V(x), V(y));
}

//@ gcd_ : Vec
template <class T, i32 N>
DEVICE auto gcd_(Vec<T, N> x, Vec<T, N> y) {
  return each_([](T a, T b) { return gcd_(a, b); }, x, y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto gcd_(A x, B y) {
  return gcd_(V(x), V(y));
}

//@ inside_width_ : Vec
template <class T, i32 N>
DEVICE Vec<bool, N> inside_width_(Vec<T, N> count) {
  return (count >= Vec<T, N>((T)0)) & (count < Vec<T, N>((T)(8 * sizeof(T))));
}

//@ Unsigned_
template <i32 BYTES>
struct UnsignedOf_;
template <>
struct UnsignedOf_<1> {
  typedef u8 Type;
};
template <>
struct UnsignedOf_<2> {
  typedef u16 Type;
};
template <>
struct UnsignedOf_<4> {
  typedef u32 Type;
};
template <>
struct UnsignedOf_<8> {
  typedef u64 Type;
};
template <class T>
using Unsigned_ = typename UnsignedOf_<sizeof(T)>::Type;

//@ shl_ : Vec
template <class T, i32 N>
DEVICE auto shl_(Vec<T, N> x, Vec<T, N> y) {
  const Vec<bool, N> inside = inside_width_(y);
  const Vec<T, N> zero((T)0);
  return select_(inside, x << select_(inside, y, zero), zero);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto shl_(A x, B y) {
  return shl_(V(x), V(y));
}

//@ shr_ : Vec
template <class T, i32 N>
DEVICE auto shr_(Vec<T, N> x, Vec<T, N> y) {
  const Vec<bool, N> inside = inside_width_(y);
  const Vec<T, N> shifted = x >> select_(inside, y, Vec<T, N>((T)(8 * sizeof(T) - 1)));
  return (T)-1 < (T)0 ? shifted : select_(inside, shifted, Vec<T, N>((T)0));
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto shr_(A x, B y) {
  return shr_(V(x), V(y));
}

//@ lshr_ : Vec
template <class T, i32 N>
DEVICE auto lshr_(Vec<T, N> x, Vec<T, N> y) {
  typedef Unsigned_<T> U;
  const Vec<bool, N> inside = inside_width_(y);
  const Vec<T, N> zero((T)0);
  return select_(inside, cast_<T>(cast_<U>(x) >> cast_<U>(select_(inside, y, zero))), zero);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto lshr_(A x, B y) {
  return lshr_(V(x), V(y));
}
