// Properties of the compiler's target, before all other blocks of a CPU kernel.
#pragma once

//@ DEVICE CALLED UNROLL
#define FUSER_HOST 1

//@ SIMD_BYTES
// Bytes of the widest vector register for which all integer and float types have instructions.
#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define SIMD_BYTES 64
#elif defined(__AVX2__)
#define SIMD_BYTES 32
#else
#define SIMD_BYTES 16
#endif
