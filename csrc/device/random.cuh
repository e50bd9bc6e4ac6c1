// Random bits that depend on coordinates alone: no state, so a value may be computed anywhere,
// twice, or by another kernel, and stays what it is.
//
// Element i of an op (row-major in the shape of that op) takes word i % 4 of call i / 4, or for 64
// bits words 2 (i % 2) (low) and 2 (i % 2) + 1 (high) of call i / 2. A call is Philox4x32-10 with
// the seed as its key and the counter (offset / 4, call), each 64 bits, low word first: what curand
// gives to subsequence `call` at `offset`. Torch numbers its threads by launch, so its numbers are
// others.

//@ Drawn drawn_
// A seed or an offset. In a CUDA graph it is what lies at `at` when the graph runs, plus a number
// that was known when it was captured; elsewhere the number alone.
struct Drawn {
  i64 number;
  const i64* at;
};
DEVICE i64 drawn_(Drawn d) { return d.at ? d.number + *d.at : d.number; }

//@ mul_wide_
// The 64 bits of the product, in one instruction: as a product of 64-bit numbers, ptxas adds a zero
// to its upper half each time.
DEVICE u64 mul_wide_(u32 a, u32 b) {
#ifdef FUSER_HOST
  return (u64)a * b;
#else
  u64 product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#endif
}

//@ Philox philox_
// Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).
struct Philox {
  u32 a, b, c, d;
};
DEVICE Philox philox_(u64 low, u64 high, u64 key) {
  Philox x = {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  UNROLL for (int round = 0; round < 10; ++round) {
    const u64 p = mul_wide_(0xd2511f53u, x.a), q = mul_wide_(0xcd9e8d57u, x.c);
    x = {(u32)(q >> 32) ^ x.b ^ k0, (u32)q, (u32)(p >> 32) ^ x.d ^ k1, (u32)p};
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return x;
}

//@ random32_
// Operands of narrower types are widened, the result wraps to theirs where it is assigned. Selects,
// not an array: one that is indexed at run time would live in local memory.
DEVICE i64 random32_(i64 index, i64 seed, i64 offset) {
  const u64 i = (u64)index;
  const Philox x = philox_((u64)offset >> 2, i >> 2, (u64)seed);
  const u32 low = (i & 1) != 0 ? x.b : x.a, high = (i & 1) != 0 ? x.d : x.c;
  return (i & 2) != 0 ? high : low;
}

//@ random64_
DEVICE i64 random64_(i64 index, i64 seed, i64 offset) {
  const u64 i = (u64)index;
  const Philox x = philox_((u64)offset >> 2, i >> 1, (u64)seed);
  const u32 low = (i & 1) != 0 ? x.c : x.a, high = (i & 1) != 0 ? x.d : x.b;
  return (i64)((u64)high << 32 | low);
}

//@ aligned_
// An index that is a multiple of -mask (a power of two) already, as the first of so many
// neighbours: the compiler sees that these share their calls. It would not, were it free to spread
// what the index is made of over sums that each neighbour has of its own. Nor where the sign might
// be that of a negative number, which no index has.
#ifdef FUSER_HOST
template <class T>
DEVICE T aligned_(T index, i32 mask) {
  return index & mask;
}
#else
DEVICE i32 aligned_(i32 index, i32 mask) {
  asm("mov.b32 %0, %0;" : "+r"(index));
  return index & (mask & 0x7fffffff);
}
DEVICE i64 aligned_(i64 index, i32 mask) {
  asm("mov.b64 %0, %0;" : "+l"(index));
  return index & (mask & 0x7fffffffffffffff);
}
#endif
