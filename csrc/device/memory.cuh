// Loads and stores of elements. p is aligned to the size of an access: N * sizeof(T) bytes, which
// is 1, 2, 4, 8 or 16, or a multiple of 16 that is moved as 16-byte accesses.

//@ Access
// One access of N elements, moved as one unit.
template <i32 N, class T>
struct alignas(N * sizeof(T)) Access {
  T v[N];
};

//@ element_
// The element whose bits are the lowest of `bits`.
DEVICE void element_(u32 bits, bool& x) { x = (bits & 0xff) != 0; }
DEVICE void element_(u32 bits, u8& x) { x = (u8)bits; }
DEVICE void element_(u32 bits, i8& x) { x = (i8)bits; }
DEVICE void element_(u32 bits, i16& x) { x = (i16)bits; }

//@ element_ : u16
DEVICE void element_(u32 bits, u16& x) { x = (u16)bits; }

//@ element_ : f16
DEVICE void element_(u32 bits, f16& x) { x.bits = (u16)bits; }

//@ element_ : bf16
DEVICE void element_(u32 bits, bf16& x) { x.bits = (u16)bits; }

//@ element_ : f8e4m3
DEVICE void element_(u32 bits, f8e4m3& x) { x.bits = (u8)bits; }

//@ element_ : f8e5m2
DEVICE void element_(u32 bits, f8e5m2& x) { x.bits = (u8)bits; }

//@ bits_of_
// The bits of an element of less than a word, the upper ones 0.
DEVICE u32 bits_of_(bool x) { return x; }
DEVICE u32 bits_of_(u8 x) { return x; }
DEVICE u32 bits_of_(i8 x) { return (u8)x; }
DEVICE u32 bits_of_(i16 x) { return (u16)x; }

//@ bits_of_ : u16
DEVICE u32 bits_of_(u16 x) { return x; }

//@ bits_of_ : f16
DEVICE u32 bits_of_(f16 x) { return x.bits; }

//@ bits_of_ : bf16
DEVICE u32 bits_of_(bf16 x) { return x.bits; }

//@ bits_of_ : f8e4m3
DEVICE u32 bits_of_(f8e4m3 x) { return x.bits; }

//@ bits_of_ : f8e5m2
DEVICE u32 bits_of_(f8e5m2 x) { return x.bits; }

//@ check_index
// Before an access at an index that was read, which is in range by then: was it as it was given?
#ifdef FUSER_HOST
DEVICE void check_index(i64 index, i64 size, i32 number) { debug_index(index, size, number); }
#else
DEVICE void check_index(i64, i64, i32) {}
#endif

//@ load_words_
// One access of 1, 2, 4, 8 or 16 bytes as words; what is less than a word is the lowest of one.
#ifndef FUSER_HOST
template <i32 BYTES>
DEVICE void load_words_(u32* w, const void* p) {
  if constexpr (BYTES >= 4) {
    const Access<BYTES / 4, u32> a = *(const Access<BYTES / 4, u32>*)p;
    UNROLL for (i32 i = 0; i < BYTES / 4; ++i) w[i] = a.v[i];
  } else if constexpr (BYTES == 2) {
    w[0] = *(const u16*)p;
  } else {
    w[0] = *(const u8*)p;
  }
}
#endif

//@ cut_
// Elements from the words that were loaded: an odd bf16 then becomes a float by one mask.
#ifndef FUSER_HOST
template <i32 N, class T>
DEVICE void cut_(T* r, const u32* w) {
  if constexpr (sizeof(T) >= 4) {
    memcpy(r, w, N * sizeof(T));
  } else {
    UNROLL for (i32 v = 0; v < N; ++v) {
      const i32 byte = v * (i32)sizeof(T);
      element_(w[byte / 4] >> (8 * (byte % 4)), r[v]);
    }
  }
}
#endif

//@ load_access_
// One access. A bool in memory is true where its byte is not 0.
#ifdef FUSER_HOST
template <i32 N, class T>
DEVICE void load_access_(T* r, const T* p) {
  debug_access(p, (i32)(N * sizeof(T)), (i32)(N * sizeof(T)), false);
  __builtin_memcpy(r, p, N * sizeof(T));
}
template <i32 N>
DEVICE void load_access_(bool* r, const bool* p) {
  debug_access(p, N, N, false);
  const u8* bytes = (const u8*)p;
  UNROLL for (i32 v = 0; v < N; ++v) r[v] = bytes[v] != 0;
}
#else
template <i32 N, class T>
DEVICE void load_access_(T* r, const T* p) {
  constexpr i32 bytes = N * (i32)sizeof(T);
  u32 w[(bytes + 3) / 4];
  load_words_<bytes>(w, p);
  cut_<N>(r, w);
}
#endif

//@ word_
// Elements of less than a word side by side in one.
template <class T>
DEVICE u32 word_(const T* r) {
  u32 word = 0;
  UNROLL for (i32 i = 0; i < (i32)(4 / sizeof(T)); ++i) word |= bits_of_(r[i])
                                                                << (8 * (i32)sizeof(T) * i);
  return word;
}
#ifndef FUSER_HOST
// What is computed by conditions is no word yet: seven instructions, where shifts take eleven.
DEVICE u32 word_(const bool* r) {
  const u32 low = __byte_perm(r[0], r[1], 0x0040), high = __byte_perm(r[2], r[3], 0x0040);
  return __byte_perm(low, high, 0x5410);
}
#endif

//@ store_words_
#ifndef FUSER_HOST
template <bool ONCE, class A>
DEVICE void store_words_(A* p, const A& a) {
  if constexpr (ONCE && sizeof(A) == 16) {
    u32 w[4];
    memcpy(w, &a, 16);
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(p), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
  } else {
    *p = a;
  }
}
#endif

//@ store_access_
#ifdef FUSER_HOST
template <i32 N, bool ONCE = false, class T>
DEVICE void store_access_(T* p, const T* r) {
  debug_access(p, (i32)(N * sizeof(T)), (i32)(N * sizeof(T)), true);
  __builtin_memcpy(p, r, N * sizeof(T));
}
#else
template <i32 N, bool ONCE = false, class T>
DEVICE void store_access_(T* p, const T* r) {
  if constexpr (sizeof(T) < 4 && N * sizeof(T) >= 4) {
    // Words, made as the loads cut them: what was loaded side by side stays the word that it was,
    // and there is a third less for the compiler to do.
    constexpr i32 all = N * sizeof(T) / 4, each = 4 / sizeof(T);
    Access<all, u32> a;
    UNROLL for (i32 w = 0; w < all; ++w) a.v[w] = word_(r + each * w);
    store_words_<ONCE>((Access<all, u32>*)p, a);
  } else {
    Access<N, T> a;
    UNROLL for (i32 v = 0; v < N; ++v) a.v[v] = r[v];
    store_words_<ONCE>((Access<N, T>*)p, a);
  }
}
#endif

//@ part
// N elements of an array, from `first` on, as an array of their own.
template <i32 N, class T, i32 M>
DEVICE T (&part(T (&r)[M], i32 first)) [N] { return *(T(*)[N])(r + first); }

//@ load
template <i32 N, class T>
DEVICE void load(T (&r)[N], const T* p) {
  constexpr i32 step = N * sizeof(T) <= 16 ? N : (i32)(16 / sizeof(T));
  UNROLL for (i32 v = 0; v < N; v += step) load_access_<step>(r + v, p + v);
}

//@ store
// ONCE: it takes no place in L1.
template <bool ONCE = false, i32 N, class T>
DEVICE void store(T* p, const T (&r)[N]) {
  constexpr i32 step = N * sizeof(T) <= 16 ? N : (i32)(16 / sizeof(T));
  UNROLL for (i32 v = 0; v < N; v += step) store_access_<step, ONCE>(p + v, r + v);
}

//@ load1
template <class T>
DEVICE T load1(const T* p) {
  T r;
  load_access_<1>(&r, p);
  return r;
}

//@ store1
template <class T>
DEVICE void store1(T* p, T x) {
  store_access_<1>(p, &x);
}
