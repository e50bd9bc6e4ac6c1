// Functions of vectors, within the bounds of ops.def.
#pragma once

//@ sqrt_ : Vec
template <class T, i32 N>
DEVICE auto sqrt_(Vec<T, N> x) {
  return each_([](T a) { return sqrt_(a); }, x);
}

//@ rsqrt_ : Vec
template <class T, i32 N>
DEVICE auto rsqrt_(Vec<T, N> x) {
  return each_([](T a) { return rsqrt_(a); }, x);
}

//@ exp_ : Vec
template <class T, i32 N>
DEVICE auto exp_(Vec<T, N> x) {
  return each_([](T a) { return exp_(a); }, x);
}

//@ exp2_ : Vec
template <class T, i32 N>
DEVICE auto exp2_(Vec<T, N> x) {
  return each_([](T a) { return exp2_(a); }, x);
}

//@ expm1_ : Vec
template <class T, i32 N>
DEVICE auto expm1_(Vec<T, N> x) {
  return each_([](T a) { return expm1_(a); }, x);
}

//@ log_ : Vec
template <class T, i32 N>
DEVICE auto log_(Vec<T, N> x) {
  return each_([](T a) { return log_(a); }, x);
}

//@ log1p_ : Vec
template <class T, i32 N>
DEVICE auto log1p_(Vec<T, N> x) {
  return each_([](T a) { return log1p_(a); }, x);
}

//@ log2_ : Vec
template <class T, i32 N>
DEVICE auto log2_(Vec<T, N> x) {
  return each_([](T a) { return log2_(a); }, x);
}

//@ log10_ : Vec
template <class T, i32 N>
DEVICE auto log10_(Vec<T, N> x) {
  return each_([](T a) { return log10_(a); }, x);
}

//@ sin_ : Vec
template <class T, i32 N>
DEVICE auto sin_(Vec<T, N> x) {
  return each_([](T a) { return sin_(a); }, x);
}

//@ cos_ : Vec
template <class T, i32 N>
DEVICE auto cos_(Vec<T, N> x) {
  return each_([](T a) { return cos_(a); }, x);
}

//@ tan_ : Vec
template <class T, i32 N>
DEVICE auto tan_(Vec<T, N> x) {
  return each_([](T a) { return tan_(a); }, x);
}

//@ asin_ : Vec
template <class T, i32 N>
DEVICE auto asin_(Vec<T, N> x) {
  return each_([](T a) { return asin_(a); }, x);
}

//@ acos_ : Vec
template <class T, i32 N>
DEVICE auto acos_(Vec<T, N> x) {
  return each_([](T a) { return acos_(a); }, x);
}

//@ atan_ : Vec
template <class T, i32 N>
DEVICE auto atan_(Vec<T, N> x) {
  return each_([](T a) { return atan_(a); }, x);
}

//@ sinh_ : Vec
template <class T, i32 N>
DEVICE auto sinh_(Vec<T, N> x) {
  return each_([](T a) { return sinh_(a); }, x);
}

//@ cosh_ : Vec
template <class T, i32 N>
DEVICE auto cosh_(Vec<T, N> x) {
  return each_([](T a) { return cosh_(a); }, x);
}

//@ tanh_ : Vec
template <class T, i32 N>
DEVICE auto tanh_(Vec<T, N> x) {
  return each_([](T a) { return tanh_(a); }, x);
}

//@ asinh_ : Vec
template <class T, i32 N>
DEVICE auto asinh_(Vec<T, N> x) {
  return each_([](T a) { return asinh_(a); }, x);
}

//@ acosh_ : Vec
template <class T, i32 N>
DEVICE auto acosh_(Vec<T, N> x) {
  return each_([](T a) { return acosh_(a); }, x);
}

//@ atanh_ : Vec
template <class T, i32 N>
DEVICE auto atanh_(Vec<T, N> x) {
  return each_([](T a) { return atanh_(a); }, x);
}

//@ sigmoid_ : Vec
template <class T, i32 N>
DEVICE auto sigmoid_(Vec<T, N> x) {
  return each_([](T a) { return sigmoid_(a); }, x);
}

//@ silu_ : Vec
template <class T, i32 N>
DEVICE auto silu_(Vec<T, N> x) {
  return each_([](T a) { return silu_(a); }, x);
}

//@ gelu_erf_ : Vec
template <class T, i32 N>
DEVICE auto gelu_erf_(Vec<T, N> x) {
  return each_([](T a) { return gelu_erf_(a); }, x);
}

//@ gelu_tanh_ : Vec
template <class T, i32 N>
DEVICE auto gelu_tanh_(Vec<T, N> x) {
  return each_([](T a) { return gelu_tanh_(a); }, x);
}

//@ erf_ : Vec
template <class T, i32 N>
DEVICE auto erf_(Vec<T, N> x) {
  return each_([](T a) { return erf_(a); }, x);
}

//@ erfc_ : Vec
template <class T, i32 N>
DEVICE auto erfc_(Vec<T, N> x) {
  return each_([](T a) { return erfc_(a); }, x);
}

//@ erfcx_ : Vec
template <class T, i32 N>
DEVICE auto erfcx_(Vec<T, N> x) {
  return each_([](T a) { return erfcx_(a); }, x);
}

//@ erfinv_ : Vec
template <class T, i32 N>
DEVICE auto erfinv_(Vec<T, N> x) {
  return each_([](T a) { return erfinv_(a); }, x);
}

//@ erfcinv_ : Vec
template <class T, i32 N>
DEVICE auto erfcinv_(Vec<T, N> x) {
  return each_([](T a) { return erfcinv_(a); }, x);
}

//@ lgamma_ : Vec
template <class T, i32 N>
DEVICE auto lgamma_(Vec<T, N> x) {
  return each_([](T a) { return lgamma_(a); }, x);
}

//@ exp_half_ : Vec
template <class T, i32 N>
DEVICE auto exp_half_(Vec<T, N> x) {
  return each_([](T a) { return exp_half_(a); }, x);
}

//@ sigmoid_half_ : Vec
template <class T, i32 N>
DEVICE auto sigmoid_half_(Vec<T, N> x) {
  return each_([](T a) { return sigmoid_half_(a); }, x);
}

//@ silu_half_ : Vec
template <class T, i32 N>
DEVICE auto silu_half_(Vec<T, N> x) {
  return each_([](T a) { return silu_half_(a); }, x);
}

//@ gelu_erf_half_ : Vec
template <class T, i32 N>
DEVICE auto gelu_erf_half_(Vec<T, N> x) {
  return each_([](T a) { return gelu_erf_half_(a); }, x);
}

//@ tanh_half_ : Vec
template <class T, i32 N>
DEVICE auto tanh_half_(Vec<T, N> x) {
  return each_([](T a) { return tanh_half_(a); }, x);
}

//@ gelu_tanh_half_ : Vec
template <class T, i32 N>
DEVICE auto gelu_tanh_half_(Vec<T, N> x) {
  return each_([](T a) { return gelu_tanh_half_(a); }, x);
}

//@ rcp_approx : Vec
template <class T, i32 N>
DEVICE auto rcp_approx(Vec<T, N> x) {
  return each_([](T a) { return rcp_approx(a); }, x);
}

//@ ex2_approx : Vec
template <class T, i32 N>
DEVICE auto ex2_approx(Vec<T, N> x) {
  return each_([](T a) { return ex2_approx(a); }, x);
}

//@ exp_term_ : Vec
template <class T, i32 N>
DEVICE auto exp_term_(Vec<T, N> x) {
  return each_([](T a) { return exp_term_(a); }, x);
}

//@ one_over_ : Vec
template <class T, i32 N>
DEVICE auto one_over_(Vec<T, N> x) {
  return each_([](T a) { return one_over_(a); }, x);
}

//@ finite_floor_ : Vec
template <class T, i32 N>
DEVICE auto finite_floor_(Vec<T, N> x) {
  return each_([](T a) { return finite_floor_(a); }, x);
}

//@ pow_ : Vec
template <class T, i32 N>
DEVICE auto pow_(Vec<T, N> x, Vec<T, N> y) {
  return each_([](T a, T b) { return pow_(a, b); }, x, y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto pow_(A x, B y) {
  return pow_(V(x), V(y));
}

//@ atan2_ : Vec
template <class T, i32 N>
DEVICE auto atan2_(Vec<T, N> x, Vec<T, N> y) {
  return each_([](T a, T b) { return atan2_(a, b); }, x, y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto atan2_(A x, B y) {
  return atan2_(V(x), V(y));
}

//@ truediv_half_ : Vec
template <class T, i32 N>
DEVICE auto truediv_half_(Vec<T, N> x, Vec<T, N> y) {
  return each_([](T a, T b) { return truediv_half_(a, b); }, x, y);
}
template <class A, class B, class V = Mixed<A, B>>
DEVICE auto truediv_half_(A x, B y) {
  return truediv_half_(V(x), V(y));
}
