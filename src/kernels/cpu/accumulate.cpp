#include "kernels/accumulate.h"

namespace athanor::kernels {

template <>
ATHANOR_EACH_ISA void accumulate<float>(float* sum, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

template <>
ATHANOR_EACH_ISA void accumulate<Bf16>(float* sum, const Bf16* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += load(x[i]);
}

}  // namespace athanor::kernels
