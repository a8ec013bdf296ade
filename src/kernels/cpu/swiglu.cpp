#include "kernels/swiglu.h"

namespace athanor::kernels {
namespace {

template <class T>
ATHANOR_INLINE void forward(const T* gate, const T* up, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = load(gate[i]);
    store(out[i], g * sigmoid(g) * load(up[i]));
  }
}

// silu' = σ + g·σ·(1 − σ).
template <class T>
ATHANOR_INLINE void backward(const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = load(gate[i]), u = load(up[i]), d = load(dout[i]);
    const float s = sigmoid(g);
    store(dup[i], d * (g * s));
    store(dgate[i], d * u * (s + g * s * (1.0f - s)));
  }
}

}  // namespace

#define ATHANOR_SWIGLU(T)                                                                                            \
  template <>                                                                                                        \
  ATHANOR_EACH_ISA void swiglu_forward<T>(const T* gate, const T* up, T* out, int64_t n) {                           \
    forward(gate, up, out, n);                                                                                       \
  }                                                                                                                  \
  template <>                                                                                                        \
  ATHANOR_EACH_ISA void swiglu_backward<T>(const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) { \
    backward(dout, gate, up, dgate, dup, n);                                                                         \
  }

ATHANOR_SWIGLU(float)
ATHANOR_SWIGLU(Bf16)

}  // namespace athanor::kernels
