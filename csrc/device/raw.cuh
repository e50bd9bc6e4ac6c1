// Elements held in registers as they were loaded: two half-precision elements a register. They are
// unpacked anew wherever they are used, because a row that stays on chip would otherwise hold one
// register for each of its elements.

//@ Raw
// N elements that one access moves; N * sizeof(T) is 1, 2, 4, 8 or a multiple of 16 bytes.
#ifdef FUSER_HOST
template <class T, i32 N>
struct Raw {
  T v[N];
};
#else
template <class T, i32 N, bool words = N * sizeof(T) % 4 == 0>
struct Raw;
template <class T, i32 N>
struct Raw<T, N, true> {
  u32 w[N * sizeof(T) / 4];
};
template <class T, i32 N>
struct Raw<T, N, false> {
  T v[N];
};
#endif

//@ raw_zero_
#ifdef FUSER_HOST
template <class T, i32 N>
DEVICE void raw_zero_(Raw<T, N>& r) {
  UNROLL for (i32 v = 0; v < N; ++v) r.v[v] = T{};
}
#else
template <class T, i32 N>
DEVICE void raw_zero_(Raw<T, N, true>& r) {
  UNROLL for (i32 i = 0; i < (i32)(N * sizeof(T) / 4); ++i) r.w[i] = 0;
}
template <class T, i32 N>
DEVICE void raw_zero_(Raw<T, N, false>& r) {
  UNROLL for (i32 v = 0; v < N; ++v) r.v[v] = T{};
}
#endif

//@ load_raw
// ONCE: nothing else reads it, and it takes no place in L1.
#ifdef FUSER_HOST
template <bool ONCE = false, class T, i32 N>
DEVICE void load_raw(Raw<T, N>& r, const T* p) {
  load(r.v, p);
}
#else
template <bool ONCE = false, class T, i32 N>
DEVICE void load_raw(Raw<T, N, true>& r, const T* p) {
  constexpr i32 words = N * sizeof(T) / 4, step = words < 4 ? words : 4;
  UNROLL for (i32 i = 0; i < words; i += step) {
    if constexpr (ONCE && step == 4) {
      asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r.w[i]), "=r"(r.w[i + 1]), "=r"(r.w[i + 2]), "=r"(r.w[i + 3])
                   : "l"((const u32*)p + i));
    } else {
      const Access<step, u32> a = ((const Access<step, u32>*)p)[i / step];
      UNROLL for (i32 k = 0; k < step; ++k) r.w[i + k] = a.v[k];
    }
  }
}
template <bool ONCE = false, class T, i32 N>
DEVICE void load_raw(Raw<T, N, false>& r, const T* p) {
  load(r.v, p);
}
#endif

//@ load_raw_if
template <bool ONCE = false, class R, class T>
DEVICE void load_raw_if(R& r, const T* p, bool in) {
  if (in) load_raw<ONCE>(r, p);
  else raw_zero_(r);
}

//@ unpack
#ifdef FUSER_HOST
template <class T, i32 N>
DEVICE void unpack(T (&r)[N], const Raw<T, N>& raw) {
  UNROLL for (i32 v = 0; v < N; ++v) r[v] = raw.v[v];
}
#else
// The asm hides that the words are those of an earlier unpack: the compiler would keep the unpacked
// elements instead.
template <class T, i32 N>
DEVICE void unpack(T (&r)[N], Raw<T, N, true>& raw) {
  UNROLL for (i32 i = 0; i < (i32)(N * sizeof(T) / 4); ++i) asm volatile("" : "+r"(raw.w[i]));
  UNROLL for (i32 v = 0; v < N; ++v) {
    if constexpr (sizeof(T) >= 4) {
      Access<sizeof(T) / 4, u32> a;
      UNROLL for (i32 i = 0; i < (i32)sizeof(T) / 4; ++i) a.v[i] = raw.w[v * (i32)sizeof(T) / 4 + i];
      r[v] = ((const Access<1, T>*)&a)->v[0];
    } else {
      const i32 byte = v * (i32)sizeof(T);
      element_(raw.w[byte / 4] >> (8 * (byte % 4)), r[v]);
    }
  }
}
template <class T, i32 N>
DEVICE void unpack(T (&r)[N], Raw<T, N, false>& raw) {
  UNROLL for (i32 v = 0; v < N; ++v) r[v] = raw.v[v];
}
#endif

//@ shift_
// N elements from the two vectors that they lie in, `shift` elements into the first.
#ifndef FUSER_HOST
template <i32 N, class T>
DEVICE void shift_(T (&r)[N], u32 (&w)[2 * N * sizeof(T) / 4], i32 shift) {
  constexpr i32 words = N * (i32)sizeof(T) / 4;
  const i32 bytes = shift * (i32)sizeof(T);
  UNROLL for (i32 step = words / 2; step > 0; step /= 2) {
    const bool move = (bytes / 4 & step) != 0;
    UNROLL for (i32 i = 0; i + step < 2 * words; ++i) w[i] = move ? w[i + step] : w[i];
  }
  Raw<T, N, true> a;
  UNROLL for (i32 i = 0; i < words; ++i) {
    a.w[i] = sizeof(T) >= 4 ? w[i] : __funnelshift_r(w[i], w[i + 1], (bytes % 4) * 8);
  }
  unpack(r, a);
}
#endif

//@ load_shifted
// N elements from base[offset] on; base is aligned to 16 bytes, the offset is not: the two vectors
// they lie in are read, whole, and shifted.
#ifdef FUSER_HOST
template <i32 N, class T, class I>
DEVICE void load_shifted(T (&r)[N], const T* base, I offset) {
  const I shift = offset % N;
  debug_access(base + (offset - shift), (i32)((shift ? 2 * N : N) * sizeof(T)), 1, false);
  UNROLL for (i32 v = 0; v < N; ++v) r[v] = load1(base + offset + v);
}
#else
template <i32 N, class T, class I>
DEVICE void load_shifted(T (&r)[N], const T* base, I offset) {
  constexpr i32 words = N * (i32)sizeof(T) / 4;
  const i32 shift = (i32)((u32)offset % (u32)N);
  const T* p = base + (offset - shift);
  Raw<T, N, true> a, b;
  load_raw(a, p);
  load_raw_if(b, p + N, shift != 0);
  u32 w[2 * words];
  UNROLL for (i32 i = 0; i < words; ++i) {
    w[i] = a.w[i];
    w[words + i] = b.w[i];
  }
  shift_(r, w, shift);
}
#endif

//@ load_shifted_some
// The same of which `count` exist: a vector without any of them is not read. Those that do not
// exist may be anything.
#ifdef FUSER_HOST
template <i32 N, class T, class I, class K>
DEVICE void load_shifted_some(T (&r)[N], const T* base, I offset, K count) {
  UNROLL for (i32 v = 0; v < N; ++v) r[v] = load1_if(base + offset + v, v < count);
}
#else
template <i32 N, class T, class I, class K>
DEVICE void load_shifted_some(T (&r)[N], const T* base, I offset, K count) {
  constexpr i32 bytes = N * (i32)sizeof(T), words = bytes / 4;
  const i32 shift = (i32)((u32)offset % (u32)N);
  const T* p = base + (offset - shift);
  u32 w[2 * words];
  UNROLL for (i32 i = 0; i < 2 * words; ++i) w[i] = hidden_zero_();
  if (count > 0) load_words_<bytes>(w, p);
  if (shift != 0 && count > N - shift) load_words_<bytes>(w + words, p + N);
  shift_(r, w, shift);
}
#endif

//@ load_shifted_by
// The same where the shift is WORDS whole words and less than another: no word is chosen.
#ifdef FUSER_HOST
template <i32 WORDS, i32 N, class T, class I>
DEVICE void load_shifted_by(T (&r)[N], const T* base, I offset) {
  load_shifted(r, base, offset);
}
#else
template <i32 WORDS, i32 N, class T, class I>
DEVICE void load_shifted_by(T (&r)[N], const T* base, I offset) {
  constexpr i32 words = N * (i32)sizeof(T) / 4, behind = WORDS + (sizeof(T) < 4 ? 1 : 0);
  constexpr i32 read = behind > 2 ? 4 : behind;  // of the second vector
  const i32 shift = (i32)((u32)offset % (u32)N);
  const T* p = base + (offset - shift);
  Raw<T, N, true> a;
  load_raw(a, p);
  u32 w[2 * words + 4];
  UNROLL for (i32 i = 0; i < words; ++i) w[i] = a.w[i];
  if constexpr (read > 0) {
    Access<read, u32> b{};
    if (WORDS > 0 || shift != 0) b = *(const Access<read, u32>*)(p + N);
    UNROLL for (i32 i = 0; i < read; ++i) w[words + i] = b.v[i];
  }
  UNROLL for (i32 i = 0; i < words; ++i) {
    const u32 low = w[i + WORDS];
    if constexpr (sizeof(T) >= 4) a.w[i] = low;
    else a.w[i] = __funnelshift_r(low, w[i + WORDS + 1], (shift * (i32)sizeof(T) % 4) * 8);
  }
  unpack(r, a);
}
#endif
