// Element types and the macros of kernel text. Blocks: see csrc/codegen/device_text.h.

//@ DEVICE
#ifdef FUSER_HOST
#define DEVICE inline __attribute__((always_inline))
#else
#define DEVICE __device__ __forceinline__
#endif

//@ CALLED
// A function that stays one: of what is long, and stands in more than one place.
#ifdef FUSER_HOST
#define CALLED inline
#else
#define CALLED __device__ __noinline__
#endif

//@ KERNEL
#ifdef FUSER_HOST
#define KERNEL(threads) inline __attribute__((always_inline))
#elif defined(FUSER_BLOCKS)
// Where the code spills for more resident blocks.
#define KERNEL(threads) extern "C" __global__ __launch_bounds__(threads, FUSER_BLOCKS)
#else
#define KERNEL(threads) extern "C" __global__ __launch_bounds__(threads)
#endif

//@ KERNEL2
// And with so many blocks resident on a processor.
#ifdef FUSER_HOST
#define KERNEL2(threads, blocks) inline __attribute__((always_inline))
#elif defined(FUSER_BLOCKS)
#define KERNEL2(threads, blocks) extern "C" __global__ __launch_bounds__(threads, FUSER_BLOCKS)
#else
#define KERNEL2(threads, blocks) extern "C" __global__ __launch_bounds__(threads, blocks)
#endif

//@ UNROLL
#ifdef FUSER_HOST
#define UNROLL _Pragma("GCC unroll 64")
#else
#define UNROLL _Pragma("unroll")
#endif

//@ u8 i8 u16 i16 u32 i32 u64 i64 f32 f64
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;

//@ Tag
// Chooses an overload by type where a template would need a specialization.
template <class T>
struct Tag {};

//@ f16
struct alignas(2) f16 {
  u16 bits;
};

//@ bf16
struct alignas(2) bf16 {
  u16 bits;
};

//@ f8e4m3
// 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, NaN is 0x7f or 0xff.
struct f8e4m3 {
  u8 bits;
};

//@ f8e5m2
// 1 sign, 5 exponent (bias 15), 2 mantissa bits; the upper byte of a float16.
struct f8e5m2 {
  u8 bits;
};

//@ c64 c128
struct alignas(8) c64 {
  f32 re, im;
};
struct alignas(16) c128 {
  f64 re, im;
};

//@ bits_
// The bits of a float.
#ifdef FUSER_HOST
DEVICE u32 bits_(f32 x) {
  u32 bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}
DEVICE u64 bits_(f64 x) {
  u64 bits;
  __builtin_memcpy(&bits, &x, 8);
  return bits;
}
#else
DEVICE u32 bits_(f32 x) { return __float_as_uint(x); }
DEVICE u64 bits_(f64 x) { return (u64)__double_as_longlong(x); }
#endif

//@ float_
// The float that has these bits.
#ifdef FUSER_HOST
DEVICE f32 float_(u32 bits) {
  f32 x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
DEVICE f64 float_(u64 bits) {
  f64 x;
  __builtin_memcpy(&x, &bits, 8);
  return x;
}
#else
DEVICE f32 float_(u32 bits) { return __uint_as_float(bits); }
DEVICE f64 float_(u64 bits) { return __longlong_as_double((i64)bits); }
#endif

//@ where_
// Its operands are values: `c ? a : b` of two elements of arrays would be the place of one of them,
// and the compiler then branches for each element.
template <class A, class B>
DEVICE auto where_(bool c, A a, B b) {
  return c ? a : b;
}

//@ unseen_
// x, of which a compiler knows no more than its bits. ptxas of CUDA 13.0 forgets that -(-32768) wraps
// where it widens what it sees as neg.s16 or abs.s16, and that |-2^31| does where abs.s32 is divided
// for its rest.
template <class T>
DEVICE T unseen_(T x) {
  return x;
}
#ifndef FUSER_HOST
DEVICE i32 unseen_(i32 x) { return (i32)__byte_perm((u32)x, 0, 0x3210); }
DEVICE i16 unseen_(i16 x) { return (i16)__byte_perm((u32)x, 0, 0x9910); }
#endif
