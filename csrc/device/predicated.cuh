// Loads and stores of which only some elements exist. Accesses that are whole stay whole (one unit); what does not
// exist is never touched, and reads as zero.

//@ load_if
template <i32 N, class T>
DEVICE void load_if(T (&r)[N], const T* p, bool in) {
  if (in) {
    load(r, p);
  } else {
    UNROLL for (i32 v = 0; v < N; ++v) r[v] = T{};
  }
}

//@ load_some
template <i32 N, class T, class I>
DEVICE void load_some(T (&r)[N], const T* p, I count) {
  if (count >= N) {
    load(r, p);
  } else {
    UNROLL for (i32 v = 0; v < N; ++v) {
      if (v < count) r[v] = load1(p + v);
      else r[v] = T{};
    }
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
      r[v] = T{};
      if (v < count) r[v] = load1(p + offset);
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
