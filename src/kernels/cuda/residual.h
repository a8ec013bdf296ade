#pragma once
// The residual stream next to a norm: what norm.cpp and layer_norm.cpp share.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace athanor::kernels::cuda {

/// Writes sum = x + branch for the elements [begin, begin + width), by a warp.
template <int N, class T>
ATHANOR_INLINE void add_branch(const Team<kWarp>& team, const T* x, const T* branch, T* sum, int64_t begin,
                               int64_t width) {
  team.each([=](int thread) {
    for (int64_t i = begin + thread * N; i < begin + width; i += kWarp * N) {
      Pack<T, N> a = load_pack<N>(x + i);
      const Pack<T, N> b = load_pack<N>(branch + i);
      for (int l = 0; l < N; ++l) store(a.at[l], load(a.at[l]) + load(b.at[l]));
      store_pack(sum + i, a);
    }
  });
}

/// Adds the stream's gradient to a norm's, after rounding, as if norm and add were two ops.
template <class T, int N>
ATHANOR_INLINE void add_stream_part(const T* dsum, Pack<T, N>& result) {
  const Pack<T, N> stream_part = load_pack<N>(dsum);
  for (int l = 0; l < N; ++l) store(result.at[l], load(stream_part.at[l]) + load(result.at[l]));
}

}  // namespace athanor::kernels::cuda
