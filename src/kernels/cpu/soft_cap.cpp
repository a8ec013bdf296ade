#include "kernels/soft_cap.h"

namespace athanor::kernels {

#define ATHANOR_SOFT_CAP(T)                                                                          \
  template <>                                                                                        \
  ATHANOR_EACH_ISA void soft_cap_forward<T>(const T* x, T* y, int64_t n, float cap) {                \
    for (int64_t i = 0; i < n; ++i) store(y[i], soft_cap_of(load(x[i]), cap));                       \
  }                                                                                                  \
  template <>                                                                                        \
  ATHANOR_EACH_ISA void soft_cap_backward<T>(const T* dy, const T* x, T* dx, int64_t n, float cap) { \
    for (int64_t i = 0; i < n; ++i) store(dx[i], load(dy[i]) * soft_cap_slope(load(x[i]), cap));     \
  }

ATHANOR_SOFT_CAP(float)
ATHANOR_SOFT_CAP(Bf16)

}  // namespace athanor::kernels
