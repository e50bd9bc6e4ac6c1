// Partial results (reduce.cuh) that blocks hand to each other through memory.

//@ Word_
// The largest word that a type of this alignment is made of.
#ifndef FUSER_HOST
template <i32 ALIGN>
struct Word_ {
  typedef u64 Type;
};
template <>
struct Word_<4> {
  typedef u32 Type;
};
template <>
struct Word_<2> {
  typedef u16 Type;
};
template <>
struct Word_<1> {
  typedef u8 Type;
};
#endif

//@ load_partial
// A state that another block stored; not from L1, where an older one may lie.
#ifdef FUSER_HOST
template <class S>
DEVICE S load_partial(const S* p) {
  return get_state_(p);
}
#else
template <class S>
DEVICE S load_partial(const S* p) {
  typedef typename Word_<(i32)alignof(S)>::Type Word;
  Word words[sizeof(S) / sizeof(Word)];
  UNROLL for (i32 i = 0; i < (i32)(sizeof(S) / sizeof(Word)); ++i) {
    words[i] = __ldcg((const Word*)p + i);
  }
  S x;
  memcpy(&x, words, sizeof(S));
  return x;
}
#endif

//@ store_partial
#ifdef FUSER_HOST
template <class S>
DEVICE void store_partial(S* p, S x) {
  put_state_(p, x);
}
#else
template <class S>
DEVICE void store_partial(S* p, S x) {
  typedef typename Word_<(i32)alignof(S)>::Type Word;
  Word words[sizeof(S) / sizeof(Word)];
  memcpy(words, &x, sizeof(S));
  UNROLL for (i32 i = 0; i < (i32)(sizeof(S) / sizeof(Word)); ++i) {
    __stcg((Word*)p + i, words[i]);
  }
}
#endif

//@ load_partials
// The same of N states side by side, at a multiple of N; 16 bytes at a time where they are so many.
template <i32 N, class S>
DEVICE void load_partials(S* r, const S* p) {
#ifndef FUSER_HOST
  if constexpr (N * sizeof(S) % 16 == 0) {
    uint4 words[N * sizeof(S) / 16];
    UNROLL for (i32 i = 0; i < (i32)(N * sizeof(S) / 16); ++i) words[i] = __ldcg((const uint4*)p + i);
    memcpy(r, words, N * sizeof(S));
    return;
  }
#endif
  UNROLL for (i32 n = 0; n < N; ++n) r[n] = load_partial(p + n);
}

//@ store_partials
template <i32 N, class S>
DEVICE void store_partials(S* p, const S* r) {
#ifndef FUSER_HOST
  if constexpr (N * sizeof(S) % 16 == 0) {
    uint4 words[N * sizeof(S) / 16];
    memcpy(words, r, N * sizeof(S));
    UNROLL for (i32 i = 0; i < (i32)(N * sizeof(S) / 16); ++i) __stcg((uint4*)p + i, words[i]);
    return;
  }
#endif
  UNROLL for (i32 n = 0; n < N; ++n) store_partial(p + n, r[n]);
}
