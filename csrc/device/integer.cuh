// Integers and bool, with one meaning on every machine: overflow wraps, x / 0 is -1, x % 0 is x, a
// shift by the width or more, or by a negative count, leaves nothing but the sign of an arithmetic
// shift.

//@ add_
template <class T>
DEVICE T add_(T a, T b) {
  return unseen_((T)((u32)a + (u32)b));
}
DEVICE i32 add_(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
DEVICE i64 add_(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
DEVICE bool add_(bool a, bool b) { return a | b; }

//@ sub_
template <class T>
DEVICE T sub_(T a, T b) {
  return unseen_((T)((u32)a - (u32)b));
}
DEVICE i32 sub_(i32 a, i32 b) { return (i32)((u32)a - (u32)b); }
DEVICE i64 sub_(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }

//@ mul_
template <class T>
DEVICE T mul_(T a, T b) {
  return unseen_((T)((u32)a * (u32)b));
}
DEVICE i32 mul_(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
DEVICE i64 mul_(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
DEVICE bool mul_(bool a, bool b) { return a & b; }

//@ mul_ : u64
DEVICE u64 mul_(u64 a, u64 b) { return a * b; }

//@ neg_
template <class T>
DEVICE T neg_(T x) {
  return sub_((T)0, x);
}

//@ abs_
template <class T>
DEVICE T abs_(T x) {
  return x < 0 ? neg_(x) : x;
}

//@ sign_
template <class T>
DEVICE T sign_(T x) {
  return (T)((x > 0) - (x < 0));
}
DEVICE bool sign_(bool x) { return x; }

//@ div_
// Truncates. The one quotient that overflows wraps.
template <class T>
DEVICE T div_(T a, T b) {
  const bool minus_one = (T)-1 < (T)0 && b == (T)-1;
  const T quotient = a / (b == 0 || minus_one ? (T)1 : b);
  return b == 0 ? (T)-1 : (minus_one ? neg_(a) : quotient);
}

//@ mod_
// What div_ leaves; it has the sign of a.
template <class T>
DEVICE T mod_(T a, T b) {
  const bool minus_one = (T)-1 < (T)0 && b == (T)-1;
  const T rest = unseen_(a) % (b == 0 || minus_one ? (T)1 : b);
  return b == 0 ? a : rest;
}

//@ floor_divide_
template <class T>
DEVICE T floor_divide_(T a, T b) {
  const T quotient = div_(a, b);
  const T rest = sub_(a, mul_(quotient, b));
  return b != 0 && rest != 0 && (rest < 0) != (b < 0) ? sub_(quotient, (T)1) : quotient;
}

//@ ceil_div_
template <class T>
DEVICE T ceil_div_(T a, T b) {
  const T quotient = div_(a, b);
  const T rest = sub_(a, mul_(quotient, b));
  return b != 0 && rest != 0 && (rest < 0) == (b < 0) ? add_(quotient, (T)1) : quotient;
}

//@ remainder_
// What floor_divide_ leaves; it has the sign of b.
template <class T>
DEVICE T remainder_(T a, T b) {
  const T rest = mod_(a, b);
  return b != 0 && rest != 0 && (rest < 0) != (b < 0) ? add_(rest, b) : rest;
}

//@ gcd_
template <class T>
DEVICE T gcd_(T a, T b) {
  while (b != 0) {
    const T rest = mod_(a, b);
    a = b;
    b = rest;
  }
  return abs_(a);
}

//@ pow_
// A negative exponent gives 0, but for the bases 1 and -1.
template <class T>
DEVICE T pow_(T base, T exponent) {
  if (exponent < 0) {
    const T odd_power = base == (T)-1 ? base : (T)(base == 1);
    return (exponent & 1) != 0 ? odd_power : mul_(odd_power, odd_power);
  }
  T result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0) result = mul_(result, base);
    base = mul_(base, base);
    exponent = (T)(exponent >> 1);
  }
  return result;
}

//@ minimum_
template <class T>
DEVICE T minimum_(T a, T b) {
  return b < a ? b : a;
}

//@ maximum_
template <class T>
DEVICE T maximum_(T a, T b) {
  return a < b ? b : a;
}

//@ relu_
template <class T>
DEVICE T relu_(T x) {
  return maximum_(x, (T)0);
}

//@ clamp_
template <class T>
DEVICE T clamp_(T x, T low, T high) {
  return minimum_(maximum_(x, low), high);
}

//@ isnan_
template <class T>
DEVICE bool isnan_(T) {
  return false;
}

//@ isinf_
template <class T>
DEVICE bool isinf_(T) {
  return false;
}

//@ isfinite_
template <class T>
DEVICE bool isfinite_(T) {
  return true;
}

//@ isposinf_
template <class T>
DEVICE bool isposinf_(T) {
  return false;
}

//@ isneginf_
template <class T>
DEVICE bool isneginf_(T) {
  return false;
}

//@ isreal_
template <class T>
DEVICE bool isreal_(T) {
  return true;
}

//@ signbit_
template <class T>
DEVICE bool signbit_(T x) {
  return x < (T)0;
}

//@ is_true_
template <class T>
DEVICE bool is_true_(T x) {
  return x != 0;
}

//@ logical_not_
template <class T>
DEVICE bool logical_not_(T x) {
  return !is_true_(x);
}

//@ logical_and_
template <class T>
DEVICE bool logical_and_(T a, T b) {
  return is_true_(a) & is_true_(b);
}

//@ logical_or_
template <class T>
DEVICE bool logical_or_(T a, T b) {
  return is_true_(a) | is_true_(b);
}

//@ logical_xor_
template <class T>
DEVICE bool logical_xor_(T a, T b) {
  return is_true_(a) != is_true_(b);
}

//@ bitwise_not_
template <class T>
DEVICE T bitwise_not_(T x) {
  return (T)~x;
}
DEVICE bool bitwise_not_(bool x) { return !x; }

//@ bitwise_and_
template <class T>
DEVICE T bitwise_and_(T a, T b) {
  return (T)(a & b);
}

//@ bitwise_or_
template <class T>
DEVICE T bitwise_or_(T a, T b) {
  return (T)(a | b);
}

//@ bitwise_xor_
template <class T>
DEVICE T bitwise_xor_(T a, T b) {
  return (T)(a ^ b);
}

//@ inside_width_
// Whether a shift by `count` is defined for T.
template <class T>
DEVICE bool inside_width_(T count) {
  return count >= 0 && count < (T)(8 * sizeof(T));
}

//@ shl_
template <class T>
DEVICE T shl_(T x, T count) {
  return inside_width_(count) ? (T)((u32)x << count) : (T)0;
}
DEVICE i64 shl_(i64 x, i64 count) { return inside_width_(count) ? (i64)((u64)x << count) : 0; }

//@ shr_
template <class T>
DEVICE T shr_(T x, T count) {
  // The width less one leaves the sign of a signed x; an unsigned x was widened to i32: 31 leaves
  // 0.
  return (T)(x >> (inside_width_(count) ? (i32)count : (sizeof(T) == 8 ? 63 : 31)));
}

//@ lshr_
template <class T>
DEVICE T lshr_(T x, T count) {
  const u32 bits = (u32)x & (0xffffffffu >> (32 - 8 * sizeof(T)));
  return inside_width_(count) ? (T)(bits >> count) : (T)0;
}
DEVICE i64 lshr_(i64 x, i64 count) { return inside_width_(count) ? (i64)((u64)x >> count) : 0; }
