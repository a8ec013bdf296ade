#include "kernels/rope.h"

namespace athanor::kernels {
namespace {

template <class T>
ATHANOR_INLINE void turn(const T* x, T* y, const float* cos, const float* sin, int64_t tokens, int64_t num_heads,
                         int64_t head_dim, float direction) {
  const int64_t half = head_dim / 2;
  for (int64_t t = 0; t < tokens; ++t, cos += half, sin += half) {
    for (int64_t head = 0; head < num_heads; ++head, x += head_dim, y += head_dim) {
      for (int64_t i = 0; i < half; ++i) {
        const float a = load(x[i]), b = load(x[i + half]), s = direction * sin[i];
        store(y[i], a * cos[i] - b * s);
        store(y[i + half], b * cos[i] + a * s);
      }
    }
  }
}

}  // namespace

template <>
ATHANOR_EACH_ISA void rope<float>(const float* x, float* y, const float* cos, const float* sin, int64_t tokens,
                                  int64_t num_heads, int64_t head_dim, float direction) {
  turn(x, y, cos, sin, tokens, num_heads, head_dim, direction);
}
template <>
ATHANOR_EACH_ISA void rope<Bf16>(const Bf16* x, Bf16* y, const float* cos, const float* sin, int64_t tokens,
                                 int64_t num_heads, int64_t head_dim, float direction) {
  turn(x, y, cos, sin, tokens, num_heads, head_dim, direction);
}

}  // namespace athanor::kernels
