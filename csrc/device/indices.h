// The integers 0 to N - 1 as a parameter pack: std::make_index_sequence without a standard header,
// which takes longer to read than a kernel takes to compile.
#pragma once

namespace fuser {

template <int... I>
struct Indices {};
template <int N, int... I>
struct CountTo : CountTo<N - 1, N - 1, I...> {};
template <int... I>
struct CountTo<0, I...> {
  using Type = Indices<I...>;
};

}  // namespace fuser
