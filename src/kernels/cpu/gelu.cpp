#include "kernels/gelu.h"

namespace athanor::kernels {
namespace {

template <GeluForm kForm, class T>
ATHANOR_INLINE void forward(const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) store(y[i], gelu_of<kForm>(load(x[i])));
}

template <GeluForm kForm, class T>
ATHANOR_INLINE void backward(const T* dy, const T* x, T* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) store(dx[i], load(dy[i]) * gelu_slope<kForm>(load(x[i])));
}

template <class T>
ATHANOR_INLINE void gated_backward(const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const GegluGradients gradients = geglu_gradients(load(dout[i]), load(gate[i]), load(up[i]));
    store(dup[i], gradients.dup);
    store(dgate[i], gradients.dgate);
  }
}

}  // namespace

#define ATHANOR_GELU(T)                                                                                             \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void gelu_forward<T>(GeluForm form, const T* x, T* y, int64_t n) {                               \
    form == GeluForm::kTanh ? forward<GeluForm::kTanh>(x, y, n) : forward<GeluForm::kExact>(x, y, n);               \
  }                                                                                                                 \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void gelu_backward<T>(GeluForm form, const T* dy, const T* x, T* dx, int64_t n) {                \
    form == GeluForm::kTanh ? backward<GeluForm::kTanh>(dy, x, dx, n) : backward<GeluForm::kExact>(dy, x, dx, n);   \
  }                                                                                                                 \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void geglu_forward<T>(const T* gate, const T* up, T* out, int64_t n) {                           \
    for (int64_t i = 0; i < n; ++i) store(out[i], geglu_of(load(gate[i]), load(up[i])));                            \
  }                                                                                                                 \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void geglu_backward<T>(const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n) { \
    gated_backward(dout, gate, up, dgate, dup, n);                                                                  \
  }

ATHANOR_GELU(float)
ATHANOR_GELU(Bf16)

}  // namespace athanor::kernels
