// Transposes of N vectors of N lanes in registers: element k of lane l and element l of lane k change
// places. A vector is cut into chunks of 16 bytes. First the elements of each chunk change places with
// rows, then whole chunks do, because shuffles within chunks are cheaper than any others.
#pragma once

//@ transpose_lanes
template <class S, i32... I>
DEVICE S chosen_(S a, S b, Order_<I...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, I...);
#else
  typedef decltype(a < b) Places;
  return __builtin_shuffle(a, b, Places{I...});
#endif
}
// The lower or upper halves of all chunks of C lanes, those of a alternating with those of b.
template <i32 C, i32 UPPER, class S, i32... I>
DEVICE S interleaved_(S a, S b, Order_<I...>) {
  constexpr i32 n = sizeof...(I);
  return chosen_(a, b, Order_<(I / C * C + UPPER * C / 2 + I % C / 2 + I % 2 * n)...>());
}
// Every second chunk of C lanes of a, then of b.
template <i32 C, i32 ODD, class S, i32... I>
DEVICE S every_second_(S a, S b, Order_<I...>) {
  return chosen_(a, b, Order_<((2 * (I / C) + ODD) * C + I % C)...>());
}
template <class T, i32 N>
DEVICE void transpose_lanes(Vec<T, N>* t) {
  if constexpr (N == 1) {
    return;
  } else if constexpr (!Vec<T, N>::whole) {
    constexpr i32 half = N / 2;
    Vec<T, half> part[4][half];
    UNROLL for (i32 i = 0; i < half; ++i) {
      part[0][i] = t[i].v.low;
      part[1][i] = t[half + i].v.low;
      part[2][i] = t[i].v.high;
      part[3][i] = t[half + i].v.high;
    }
    UNROLL for (i32 k = 0; k < 4; ++k) transpose_lanes(part[k]);
    UNROLL for (i32 i = 0; i < half; ++i) {
      t[i] = Vec<T, N>(typename Vec<T, N>::Type{part[0][i], part[1][i]});
      t[half + i] = Vec<T, N>(typename Vec<T, N>::Type{part[2][i], part[3][i]});
    }
  } else {
    typedef typename CountFrom_<N, 0>::Type Lanes;
    constexpr i32 c = N * sizeof(T) < 16 ? N : 16 / sizeof(T);
    Vec<T, N> s[N];
    // Each step rotates the bits of (row, lane) by one.
    UNROLL for (i32 step = 1; step < c; step *= 2) {
      UNROLL for (i32 i = 0; i < N; ++i) s[i] = t[i];
      UNROLL for (i32 i = 0; i < N / 2; ++i) {
        const i32 first = i / (c / 2) * c, k = i % (c / 2);
        const auto a = s[first + k].v, b = s[first + k + c / 2].v;
        t[first + 2 * k] = Vec<T, N>(interleaved_<c, 0>(a, b, Lanes()));
        t[first + 2 * k + 1] = Vec<T, N>(interleaved_<c, 1>(a, b, Lanes()));
      }
    }
    UNROLL for (i32 step = c; step < N; step *= 2) {
      UNROLL for (i32 i = 0; i < N; ++i) s[i] = t[i];
      UNROLL for (i32 i = 0; i < N / 2; ++i) {
        const i32 k = i / c * 2 * c + i % c;
        const auto a = s[k].v, b = s[k + c].v;
        t[i] = Vec<T, N>(every_second_<c, 0>(a, b, Lanes()));
        t[i + N / 2] = Vec<T, N>(every_second_<c, 1>(a, b, Lanes()));
      }
    }
  }
}
template <i32 N>
DEVICE void transpose_lanes(Vec<bool, N>* t) {
  Vec<i32, N> all[N];
  UNROLL for (i32 i = 0; i < N; ++i) all[i] = t[i].m;
  transpose_lanes(all);
  UNROLL for (i32 i = 0; i < N; ++i) t[i].m = all[i];
}

//@ transpose_lanes : bf16 f16 f8e4m3 f8e5m2
template <class F, class B, i32 N>
DEVICE void transpose_bits_(Vec<F, N>* t, Vec<B, N>) {
  Vec<B, N> all[N];
  UNROLL for (i32 i = 0; i < N; ++i) all[i] = t[i].bits;
  transpose_lanes(all);
  UNROLL for (i32 i = 0; i < N; ++i) t[i].bits = all[i];
}

//@ transpose_lanes : bf16
template <i32 N>
DEVICE void transpose_lanes(Vec<bf16, N>* t) {
  transpose_bits_(t, Vec<u16, N>());
}

//@ transpose_lanes : f16
template <i32 N>
DEVICE void transpose_lanes(Vec<f16, N>* t) {
  transpose_bits_(t, Vec<u16, N>());
}

//@ transpose_lanes : f8e4m3
template <i32 N>
DEVICE void transpose_lanes(Vec<f8e4m3, N>* t) {
  transpose_bits_(t, Vec<u8, N>());
}

//@ transpose_lanes : f8e5m2
template <i32 N>
DEVICE void transpose_lanes(Vec<f8e5m2, N>* t) {
  transpose_bits_(t, Vec<u8, N>());
}

//@ transpose_lanes : c64 c128
template <class C, class F, i32 N>
DEVICE void transpose_parts_(Vec<C, N>* t, Vec<F, N>) {
  Vec<F, N> re[N], im[N];
  UNROLL for (i32 i = 0; i < N; ++i) {
    re[i] = t[i].re;
    im[i] = t[i].im;
  }
  transpose_lanes(re);
  transpose_lanes(im);
  UNROLL for (i32 i = 0; i < N; ++i) t[i] = Vec<C, N>(re[i], im[i]);
}

//@ transpose_lanes : c64
template <i32 N>
DEVICE void transpose_lanes(Vec<c64, N>* t) {
  transpose_parts_(t, Vec<f32, N>());
}

//@ transpose_lanes : c128
template <i32 N>
DEVICE void transpose_lanes(Vec<c128, N>* t) {
  transpose_parts_(t, Vec<f64, N>());
}
