// Division, powers and shifts of vectors: of integers with the meaning of integer.cuh, of floats with
// that of math.cuh.
#pragma once

//@ double_of_
// Integers of at most 51 bits as float64: they are the low bits of a float64 whose ULP is 1.
template <class T, i32 N>
DEVICE Vec<f64, N> double_of_(Vec<T, N> x) {
  const Vec<f64, N> magic(Format_<f64>::magic);
  return float_(cast_<u64>(x) + bits_(magic)) - magic;
}

//@ quotient_
// x / y of integers, truncated; no y is 0. Floats hold the quotient's digits: two integers are further
// apart, relative to the quotient, than a float is from its neighbour.
template <class T, i32 N>
DEVICE Vec<T, N> quotient_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (sizeof(T) <= 2) {
    return cast_<T>(cast_<i32>(cast_<f32>(cast_<i32>(x)) / cast_<f32>(cast_<i32>(y))));
  } else if constexpr (sizeof(T) == 4) {
    if constexpr ((T)-1 < (T)0) return cast_<T>(cast_<f64>(x) / cast_<f64>(y));
    else return cast_<T>(cast_<i64>(cast_<f64>(x) / cast_<f64>(y)));
  } else {
    const Vec<u64, N> offset((u64)1 << 50), limit((u64)1 << 51);
    const Vec<u64, N> x_bits = cast_<u64>(x) + offset, y_bits = cast_<u64>(y) + offset;
    if (__builtin_expect(any_(x_bits >= limit | y_bits >= limit), false))
      return each_([](T a, T b) { return (T)(a / b); }, x, y);
    const Vec<f64, N> magic(Format_<f64>::magic), q = trunc_(double_of_(x) / double_of_(y));
    return cast_<T>(bits_(q + magic) - bits_(magic));
  }
}

//@ divided_ Divided_
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

//@ float_divided_ FloatDivided_
// The quotient of floats, rounded down (DOWN) or toward 0, and what it leaves: exactly, if the quotient
// is below 2^22 (float64: 2^51) in every lane and no operand is infinite (`exact`).
template <class T, i32 N>
struct FloatDivided_ {
  Vec<T, N> quotient, rest;
  bool exact;
};
template <bool DOWN, class T, i32 N>
DEVICE FloatDivided_<T, N> float_divided_(Vec<T, N> x, Vec<T, N> y) {
  typedef Vec<T, N> V;
  const V span((T)(sizeof(T) == 4 ? 0x1p22 : 0x1p51)), zero((T)0), ratio = x / y;
  V q = DOWN ? floor_(ratio) : trunc_(ratio), rest = fma_rn(minus_(q), y, x);
  const bool exact = !any_(!(abs_(ratio) + (rest - rest) < span));
  // x / y may have been rounded to an integer beyond it: the rest has the other sign.
  const V like = DOWN ? y : x;
  const Vec<bool, N> past = float_(bits_(rest) ^ (bits_(like) & sign_bit_<T, N>())) < zero;
  q = select_(past, q - (DOWN ? V((T)1) : copysign_(V((T)1), ratio)), q);
  rest = select_(past, rest + (DOWN ? y : copysign_(y, x)), rest);
  return {q, select_(rest == zero, copysign_(zero, x), rest), exact};
}

//@ floor_divide_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> floor_divide_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (is_float_<T>) {
    const auto d = float_divided_<true>(x, y);
    if (__builtin_expect(d.exact, true)) return d.quotient;
    if constexpr (sizeof(T) == 4) return cast_<f32>(floor_divide_(cast_<f64>(x), cast_<f64>(y)));
    else return each_([](T a, T b) { return floor_divide_(a, b); }, x, y);
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
DEVICE Vec<T, N> fmod_(Vec<T, N> x, Vec<T, N> y) {
  const auto d = float_divided_<false>(x, y);
  if (__builtin_expect(d.exact, true)) return d.rest;
  if constexpr (sizeof(T) == 4) return cast_<f32>(fmod_(cast_<f64>(x), cast_<f64>(y)));
  else return each_([](T a, T b) { return fmod_(a, b); }, x, y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto fmod_(A x, B y) {
  return fmod_(V(x), V(y));
}

//@ remainder_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> remainder_(Vec<T, N> x, Vec<T, N> y) {
  if constexpr (is_float_<T>) {
    const auto d = float_divided_<true>(x, y);
    if (__builtin_expect(d.exact, true)) return d.rest;
    const Vec<T, N> zero((T)0), rest = fmod_(x, y);
    const Vec<bool, N> differs = (rest < zero) != (y < zero);
    return select_((rest != zero) & differs, rest + y, rest);
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
DEVICE Vec<T, N> gcd_(Vec<T, N> x, Vec<T, N> y) {
  const Vec<T, N> zero((T)0);
  for (Vec<bool, N> left = y != zero; any_(left); left = y != zero) {
    const Vec<T, N> rest = divided_(x, y).rest;
    x = select_(left, y, x);
    y = select_(left, rest, zero);
  }
  return abs_(x);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto gcd_(A x, B y) {
  return gcd_(V(x), V(y));
}

//@ integer_pow_
// As pow_ of integer.cuh, by squares.
template <class T, i32 N>
DEVICE Vec<T, N> integer_pow_(Vec<T, N> base, Vec<T, N> exponent) {
  typedef Vec<T, N> V;
  const V zero((T)0), one((T)1);
  const Vec<bool, N> odd = (exponent & one) != zero;
  const V unit = select_(base == V((T)-1) | base == one, base, zero);
  const V inverse = select_(odd, unit, unit * unit);  // unsigned exponents are never negative
  V result = one, square = base;
  for (V left = exponent; any_(left > zero); left = left >> one) {
    result = select_((left & one) != zero, result * square, result);
    square = square * square;
  }
  return select_(exponent < zero, inverse, result);
}

//@ inside_width_ : Vec
template <class T, i32 N>
DEVICE Vec<bool, N> inside_width_(Vec<T, N> count) {
  return (count >= Vec<T, N>((T)0)) & (count < Vec<T, N>((T)(8 * sizeof(T))));
}

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
