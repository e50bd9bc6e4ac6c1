// Random bits of vectors of indices, equal to those of random.cuh. The result has the type of the
// index, to which it wraps.
#pragma once

//@ low_products_
// The 64 bits of the products of the lower halves of lanes.
template <i32 N>
DEVICE Vec<u64, N> low_products_(Vec<u64, N> a, Vec<u64, N> b) {
#ifdef __SSE2__
  if constexpr (!Vec<u64, N>::whole) {
    return join_(low_products_(a.v.low, b.v.low), low_products_(a.v.high, b.v.high));
  } else if constexpr (sizeof(a.v) >= 16) {
#ifdef __AVX__
    asm("vpmuludq %1, %0, %0" : "+v"(a.v) : "v"(b.v));
#else
    asm("pmuludq %1, %0" : "+x"(a.v) : "x"(b.v));
#endif
    return a;
  }
#endif
  const Vec<u64, N> lower(0xffffffffull);
  return (a & lower) * (b & lower);
}

//@ fours_
// Lanes A, B, C and D of each four.
template <i32 A, i32 B, i32 C, i32 D, class R, i32... I>
DEVICE R fours_of_(R x, Order_<I...>) {
  constexpr i32 from[] = {A, B, C, D};
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(x, x, (I / 4 * 4 + from[I % 4])...);
#else
  return __builtin_shuffle(x, R{(u32)(I / 4 * 4 + from[I % 4])...});
#endif
}
template <i32 A, i32 B, i32 C, i32 D, i32 N>
DEVICE Vec<u32, N> fours_(Vec<u32, N> x) {
  if constexpr (!Vec<u32, N>::whole) {
    return join_(fours_<A, B, C, D>(x.v.low), fours_<A, B, C, D>(x.v.high));
  } else {
    return Vec<u32, N>(fours_of_<A, B, C, D>(x.v, typename CountFrom_<N, 0>::Type()));
  }
}

//@ philox_calls_
// The four words of M calls. Half a register of calls: the two products of a round are one product of
// vectors, whose lanes 2 i and 2 i + 1 hold words a and c of call i, and others b and d. A register or
// more: a vector has one word of all calls. Upper halves of lanes hold what no product reads.
template <i32 M>
DEVICE Vec<u32, 4 * M> philox_pairs_(u64 low, Vec<u64, M> call, u64 key) {
  typedef Vec<u64, M> V;
  typedef Vec<u64, 2 * M> Both;
  const Both factors = interleave_(V(0xd2511f53ull), V(0xcd9e8d57ull));
  const Both step = interleave_(V(0x9e3779b9ull), V(0xbb67ae85ull));
  Both keys = interleave_(V(key), V(key >> 32));
  Both ac = interleave_(V(low), call), bd = interleave_(V(low >> 32), call >> V(32ull));
  UNROLL for (i32 round = 0; round < 10; ++round) {
    const Vec<u32, 4 * M> product = halves_of_(low_products_(ac, factors));
    ac = lanes_of_(fours_<3, 2, 1, 0>(product)) ^ bd ^ keys;
    bd = lanes_of_(fours_<2, 3, 0, 1>(product));
    keys = keys + step;
  }
  return halves_of_((ac & Both(0xffffffffull)) | (bd << Both(32ull)));
}
template <i32 M>
DEVICE Vec<u32, 4 * M> philox_calls_(u64 low, Vec<u64, M> call, u64 key) {
  if constexpr (M * sizeof(u64) < SIMD_BYTES) {
    return philox_pairs_(low, call, key);
  } else {
    typedef Vec<u64, M> V;
    const V lower(0xffffffffull), half(32ull);
    V a(low), b(low >> 32), c = call, d = call >> half;
    u64 k0 = key, k1 = key >> 32;
    UNROLL for (i32 round = 0; round < 10; ++round) {
      const V p = low_products_(a, V(0xd2511f53ull)), q = low_products_(c, V(0xcd9e8d57ull));
      a = (q >> half) ^ b ^ V(k0);
      b = q;
      c = (p >> half) ^ d ^ V(k1);
      d = p;
      k0 += 0x9e3779b9u;
      k1 += 0xbb67ae85u;
    }
    return halves_of_(interleave_((a & lower) | (b << half), (c & lower) | (d << half)));
  }
}

//@ neighbours_
// Whether the lanes count up from a multiple of `group`.
template <class T, i32 N>
DEVICE bool is_zero_(Vec<T, N> x) {
  if constexpr (Vec<T, N>::whole) return !any_(x != Vec<T, N>((T)0));
  else return is_zero_(x.v.low | x.v.high);
}
template <class T, i32 N>
DEVICE bool neighbours_(Vec<T, N> index, T group) {
  return __builtin_expect(is_zero_(index ^ iota<T, N>(index[0])), true) && index[0] % group == 0;
}

//@ random32_ : Vec
// Neighbours share calls.
template <class T, i32 N>
DEVICE Vec<T, N> random32_(Vec<T, N> index, i64 seed, i64 offset) {
  const u64 low = (u64)offset >> 2;
  if constexpr (N >= 4) {
    if (neighbours_(index, (T)4)) {
      const Vec<u64, N / 4> call = iota<u64, N / 4>((u64)index[0] >> 2);
      return cast_<T>(philox_calls_(low, call, (u64)seed));
    }
  }
  u32 words[4 * N];
  store(words, philox_calls_(low, cast_<u64>(index) >> Vec<u64, N>(2ull), (u64)seed));
  const Vec<i32, N> word = cast_<i32>(index) & Vec<i32, N>(3);
  return cast_<T>(gather<u32, N>(words, iota<i32, N>(0, 4) + word));
}
template <class T, i32 N>
DEVICE Vec<T, N> random32_(Vec<T, N> index, Vec<T, N> seed, Vec<T, N> offset) {
  return each_([](T i, T s, T o) { return (T)random32_(i, s, o); }, index, seed, offset);
}

//@ random64_ : Vec
template <class T, i32 N>
DEVICE Vec<T, N> random64_(Vec<T, N> index, i64 seed, i64 offset) {
  const u64 low = (u64)offset >> 2;
  if constexpr (N >= 2) {
    if (neighbours_(index, (T)2)) {
      const Vec<u64, N / 2> call = iota<u64, N / 2>((u64)index[0] >> 1);
      return cast_<T>(lanes_of_(philox_calls_(low, call, (u64)seed)));
    }
  }
  u64 words[2 * N];
  store(words, lanes_of_(philox_calls_(low, cast_<u64>(index) >> Vec<u64, N>(1ull), (u64)seed)));
  const Vec<i32, N> pair = cast_<i32>(index) & Vec<i32, N>(1);
  return cast_<T>(gather<u64, N>(words, iota<i32, N>(0, 2) + pair));
}
template <class T, i32 N>
DEVICE Vec<T, N> random64_(Vec<T, N> index, Vec<T, N> seed, Vec<T, N> offset) {
  return each_([](T i, T s, T o) { return (T)random64_(i, s, o); }, index, seed, offset);
}
