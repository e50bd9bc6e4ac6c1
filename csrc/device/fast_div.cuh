// Division of an index by a divisor that is known only at launch, by one multiplication.

//@ FastDiv
// Made on the host by make_fast_div (csrc/ir/fast_div.h), which has the same layout.
struct FastDiv {
  u32 divisor, magic, shift;
};

//@ mul_hi_
// The upper 32 bits of the product.
DEVICE u32 mul_hi_(u32 a, u32 b) {
#ifdef FUSER_HOST
  return (u32)(((u64)a * b) >> 32);
#else
  return __umulhi(a, b);
#endif
}

//@ fast_div_
// x / d for 0 <= x < 2^31: the sum below does not overflow then.
DEVICE i32 fast_div_(i32 x, FastDiv d) {
  return (i32)((mul_hi_((u32)x, d.magic) + (u32)x) >> d.shift);
}

//@ fast_mod_
// x % d for 0 <= x < 2^31.
DEVICE i32 fast_mod_(i32 x, FastDiv d) { return x - fast_div_(x, d) * (i32)d.divisor; }
