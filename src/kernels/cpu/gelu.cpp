#include "kernels/gelu.h"

namespace athanor::kernels {

#define ATHANOR_GELU(T)                                                                 \
  template <>                                                                           \
  ATHANOR_EACH_ISA void gelu_forward<T>(const T* x, T* y, int64_t n) {                  \
    for (int64_t i = 0; i < n; ++i) store(y[i], gelu_of(load(x[i])));                   \
  }                                                                                     \
  template <>                                                                           \
  ATHANOR_EACH_ISA void gelu_backward<T>(const T* dy, const T* x, T* dx, int64_t n) {   \
    for (int64_t i = 0; i < n; ++i) store(dx[i], load(dy[i]) * gelu_slope(load(x[i]))); \
  }

ATHANOR_GELU(float)
ATHANOR_GELU(Bf16)

}  // namespace athanor::kernels
