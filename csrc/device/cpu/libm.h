// Declarations that the scalar blocks need on a CPU. host_cuda.h has them for the host executor.
//
// Functions of the C library are declared const: -fno-builtin keeps the compiler from folding them,
// and it is told only that a result follows from the operands.
#pragma once

//@ HUGE_VAL
#define HUGE_VAL __builtin_huge_val()

//@ NAN
#define NAN __builtin_nanf("")

//@ ceil ceilf
DEVICE double ceil(double x) noexcept { return __builtin_ceil(x); }
DEVICE float ceilf(float x) noexcept { return __builtin_ceilf(x); }

//@ fabs fabsf
DEVICE double fabs(double x) noexcept { return __builtin_fabs(x); }
DEVICE float fabsf(float x) noexcept { return __builtin_fabsf(x); }

//@ floor floorf
DEVICE double floor(double x) noexcept { return __builtin_floor(x); }
DEVICE float floorf(float x) noexcept { return __builtin_floorf(x); }

//@ rint rintf
DEVICE double rint(double x) noexcept { return __builtin_rint(x); }
DEVICE float rintf(float x) noexcept { return __builtin_rintf(x); }

//@ sqrt sqrtf
DEVICE double sqrt(double x) noexcept { return __builtin_sqrt(x); }
DEVICE float sqrtf(float x) noexcept { return __builtin_sqrtf(x); }

//@ trunc truncf
DEVICE double trunc(double x) noexcept { return __builtin_trunc(x); }
DEVICE float truncf(float x) noexcept { return __builtin_truncf(x); }

//@ copysign copysignf
DEVICE double copysign(double x, double sign) noexcept { return __builtin_copysign(x, sign); }
DEVICE float copysignf(float x, float sign) noexcept { return __builtin_copysignf(x, sign); }

//@ fma fmaf
DEVICE double fma(double x, double y, double z) noexcept { return __builtin_fma(x, y, z); }
DEVICE float fmaf(float x, float y, float z) noexcept { return __builtin_fmaf(x, y, z); }

//@ acos acosf
extern "C" __attribute__((const)) double acos(double) noexcept;
extern "C" __attribute__((const)) float acosf(float) noexcept;

//@ acosh acoshf
extern "C" __attribute__((const)) double acosh(double) noexcept;
extern "C" __attribute__((const)) float acoshf(float) noexcept;

//@ asin asinf
extern "C" __attribute__((const)) double asin(double) noexcept;
extern "C" __attribute__((const)) float asinf(float) noexcept;

//@ asinh asinhf
extern "C" __attribute__((const)) double asinh(double) noexcept;
extern "C" __attribute__((const)) float asinhf(float) noexcept;

//@ atan atanf
extern "C" __attribute__((const)) double atan(double) noexcept;
extern "C" __attribute__((const)) float atanf(float) noexcept;

//@ atanh atanhf
extern "C" __attribute__((const)) double atanh(double) noexcept;
extern "C" __attribute__((const)) float atanhf(float) noexcept;

//@ cos cosf
extern "C" __attribute__((const)) double cos(double) noexcept;
extern "C" __attribute__((const)) float cosf(float) noexcept;

//@ cosh coshf
extern "C" __attribute__((const)) double cosh(double) noexcept;
extern "C" __attribute__((const)) float coshf(float) noexcept;

//@ erf erff
extern "C" __attribute__((const)) double erf(double) noexcept;
extern "C" __attribute__((const)) float erff(float) noexcept;

//@ erfc erfcf
extern "C" __attribute__((const)) double erfc(double) noexcept;
extern "C" __attribute__((const)) float erfcf(float) noexcept;

//@ exp expf
extern "C" __attribute__((const)) double exp(double) noexcept;
extern "C" __attribute__((const)) float expf(float) noexcept;

//@ exp2 exp2f
extern "C" __attribute__((const)) double exp2(double) noexcept;
extern "C" __attribute__((const)) float exp2f(float) noexcept;

//@ expm1 expm1f
extern "C" __attribute__((const)) double expm1(double) noexcept;
extern "C" __attribute__((const)) float expm1f(float) noexcept;

//@ lgamma lgammaf
extern "C" __attribute__((const)) double lgamma(double) noexcept;
extern "C" __attribute__((const)) float lgammaf(float) noexcept;

//@ log logf
extern "C" __attribute__((const)) double log(double) noexcept;
extern "C" __attribute__((const)) float logf(float) noexcept;

//@ log10 log10f
extern "C" __attribute__((const)) double log10(double) noexcept;
extern "C" __attribute__((const)) float log10f(float) noexcept;

//@ log1p log1pf
extern "C" __attribute__((const)) double log1p(double) noexcept;
extern "C" __attribute__((const)) float log1pf(float) noexcept;

//@ log2 log2f
extern "C" __attribute__((const)) double log2(double) noexcept;
extern "C" __attribute__((const)) float log2f(float) noexcept;

//@ sin sinf
extern "C" __attribute__((const)) double sin(double) noexcept;
extern "C" __attribute__((const)) float sinf(float) noexcept;

//@ sinh sinhf
extern "C" __attribute__((const)) double sinh(double) noexcept;
extern "C" __attribute__((const)) float sinhf(float) noexcept;

//@ tan tanf
extern "C" __attribute__((const)) double tan(double) noexcept;
extern "C" __attribute__((const)) float tanf(float) noexcept;

//@ tanh tanhf
extern "C" __attribute__((const)) double tanh(double) noexcept;
extern "C" __attribute__((const)) float tanhf(float) noexcept;

//@ atan2 atan2f
extern "C" __attribute__((const)) double atan2(double, double) noexcept;
extern "C" __attribute__((const)) float atan2f(float, float) noexcept;

//@ fmod fmodf
extern "C" __attribute__((const)) double fmod(double, double) noexcept;
extern "C" __attribute__((const)) float fmodf(float, float) noexcept;

//@ hypot hypotf
extern "C" __attribute__((const)) double hypot(double, double) noexcept;
extern "C" __attribute__((const)) float hypotf(float, float) noexcept;

//@ nextafter nextafterf
extern "C" __attribute__((const)) double nextafter(double, double) noexcept;
extern "C" __attribute__((const)) float nextafterf(float, float) noexcept;

//@ pow powf
extern "C" __attribute__((const)) double pow(double, double) noexcept;
extern "C" __attribute__((const)) float powf(float, float) noexcept;
