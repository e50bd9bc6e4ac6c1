// Loads and stores of which only some elements exist. Accesses that are whole stay whole (one unit); what does not
// exist is never touched, and reads as zero.

//@ hidden_zero_
// A zero that the compiler does not know for one. Where it knows what follows from a load that does
// not happen, it computes that beforehand and moves what depends on the load into the branch in which
// it happens, where each load waits for the one before it.
#ifndef FUSER_HOST
DEVICE u32 hidden_zero_() {
  u32 zero;
  asm("mov.u32 %0, 0;" : "=r"(zero));
  return zero;
}
#endif

//@ load_access_if_
#ifdef FUSER_HOST
template <i32 N, class T>
DEVICE void load_access_if_(T* r, const T* p, bool in) {
  if (in) {
    load_access_<N>(r, p);
  } else {
    UNROLL for (i32 v = 0; v < N; ++v) r[v] = T{};
  }
}
#else
template <i32 N, class T>
DEVICE void load_access_if_(T* r, const T* p, bool in) {
  constexpr i32 bytes = N * (i32)sizeof(T), words = (bytes + 3) / 4;
  u32 w[words];
  UNROLL for (i32 i = 0; i < words; ++i) w[i] = hidden_zero_();
  if (in) load_words_<bytes>(w, p);
  cut_<N>(r, w);
}
#endif

//@ load_if
template <i32 N, class T>
DEVICE void load_if(T (&r)[N], const T* p, bool in) {
  constexpr i32 step = N * sizeof(T) <= 16 ? N : (i32)(16 / sizeof(T));
  UNROLL for (i32 v = 0; v < N; v += step) load_access_if_<step>(r + v, p + v, in);
}

//@ load1_if
template <class T>
DEVICE T load1_if(const T* p, bool in) {
  T r;
  load_access_if_<1>(&r, p, in);
  return r;
}

//@ load_some
template <i32 N, class T, class I>
DEVICE void load_some(T (&r)[N], const T* p, I count) {
  if (count >= N) {
    load(r, p);
  } else {
    UNROLL for (i32 v = 0; v < N; ++v) r[v] = load1_if(p + v, v < count);
  }
}

//@ store_if
template <bool ONCE = false, i32 N, class T>
DEVICE void store_if(T* p, const T (&r)[N], bool in) {
  if (in) store<ONCE>(p, r);
}

//@ store_some
template <i32 N, class T, class I>
DEVICE void store_some(T* p, const T (&r)[N], I count) {
  if (count >= N) {
    store(p, r);
  } else {
    UNROLL for (i32 v = 0; v < N; ++v) {
      if (v < count) store1(p + v, r[v]);
    }
  }
}

//@ load_row
// Elements along rows: the first lies `column` elements into a row of `columns`; behind the end of a row the next
// element lies `jump` further on. `count` elements exist.
template <i32 N, class T, class I, class C, class J, class K>
DEVICE void load_row(T (&r)[N], const T* p, I column, C columns, J jump, K count) {
  if (count >= N && column + N <= columns) {
    UNROLL for (i32 v = 0; v < N; ++v) r[v] = load1(p + v);
  } else {
    I offset = 0;
    UNROLL for (i32 v = 0; v < N; ++v) {
      r[v] = load1_if(p + offset, v < count);
      ++offset;
      if (++column == columns) {
        column = 0;
        offset += jump;
      }
    }
  }
}

//@ store_row
template <i32 N, class T, class I, class C, class J, class K>
DEVICE void store_row(T* p, const T (&r)[N], I column, C columns, J jump, K count) {
  I offset = 0;
  UNROLL for (i32 v = 0; v < N; ++v) {
    if (v < count) store1(p + offset, r[v]);
    ++offset;
    if (++column == columns) {
      column = 0;
      offset += jump;
    }
  }
}
