#include "kernels/cuda/rope.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

namespace athanor::kernels::cuda {
namespace {

template <class T, int N>
void turn_packs(const Stream& stream, const T* x, T* y, const float* cos, const float* sin, int64_t tokens,
                int64_t num_heads, int64_t head_dim, float direction) {
  const int64_t half = head_dim / 2, packs = half / N;
  for_each_index(stream, "rope", tokens * num_heads * packs, [=] ATHANOR_BODY(int64_t i) {
    const int64_t head = i / packs, at = i % packs * N, angle = head / num_heads * half + at;
    const int64_t first = head * head_dim + at, second = first + half;
    Pack<T, N> a = load_pack<N>(x + first), b = load_pack<N>(x + second);
    for (int l = 0; l < N; ++l) {
      const float xa = load(a.at[l]), xb = load(b.at[l]), c = cos[angle + l], s = direction * sin[angle + l];
      store(a.at[l], xa * c - xb * s);
      store(b.at[l], xb * c + xa * s);
    }
    store_pack(y + first, a);
    store_pack(y + second, b);
  });
}

}  // namespace

template <class T>
void rope(const Stream& stream, const T* x, T* y, const float* cos, const float* sin, int64_t tokens, int64_t num_heads,
          int64_t head_dim, float direction) {
  if (can_pack<T>(head_dim / 2, x, y)) {
    turn_packs<T, kPack<T>>(stream, x, y, cos, sin, tokens, num_heads, head_dim, direction);
  } else {
    turn_packs<T, 1>(stream, x, y, cos, sin, tokens, num_heads, head_dim, direction);
  }
}

template void rope<float>(const Stream&, const float*, float*, const float*, const float*, int64_t, int64_t, int64_t,
                          float);
template void rope<Bf16>(const Stream&, const Bf16*, Bf16*, const float*, const float*, int64_t, int64_t, int64_t,
                         float);

}  // namespace athanor::kernels::cuda
