#include "kernels/row_gate.h"

namespace athanor::kernels {
namespace {

template <class T>
ATHANOR_INLINE void gate_rows(const T* x, const T* gate, T* y, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const float s = sigmoid(load(gate[r]));
    for (int64_t i = 0; i < width; ++i) store(y[i], s * load(x[i]));
  }
}

template <class T>
ATHANOR_INLINE void gate_gradients(const T* dy, const T* x, const T* gate, T* dx, T* dgate, int64_t rows,
                                   int64_t width) {
  for (int64_t r = 0; r < rows; ++r, dy += width, x += width, dx += width) {
    const float s = sigmoid(load(gate[r]));
    const float dot = sum_over(width, [=](int64_t i) { return load(dy[i]) * load(x[i]); });
    for (int64_t i = 0; i < width; ++i) store(dx[i], s * load(dy[i]));
    store(dgate[r], s * (1.0f - s) * dot);
  }
}

}  // namespace

#define ATHANOR_ROW_GATE(T)                                                                                         \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void row_gate_forward<T>(const T* x, const T* gate, T* y, int64_t rows, int64_t width) {         \
    gate_rows(x, gate, y, rows, width);                                                                             \
  }                                                                                                                 \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void row_gate_backward<T>(const T* dy, const T* x, const T* gate, T* dx, T* dgate, int64_t rows, \
                                             int64_t width) {                                                       \
    gate_gradients(dy, x, gate, dx, dgate, rows, width);                                                            \
  }

ATHANOR_ROW_GATE(float)
ATHANOR_ROW_GATE(Bf16)

}  // namespace athanor::kernels
