#include "kernels/affine.h"

namespace athanor::kernels {
namespace {

template <class T>
ATHANOR_INLINE void forward_rows(const T* x, const T* scale, const T* bias, T* y, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    for (int64_t i = 0; scale && i < width; ++i) store(y[i], load(x[i]) * load(scale[i]) + load(bias[i]));
    for (int64_t i = 0; !scale && i < width; ++i) store(y[i], load(x[i]) + load(bias[i]));
  }
}

template <class T>
ATHANOR_INLINE void backward_rows(const T* dy, const T* x, const T* scale, T* dx, float* dscale, float* dbias,
                                  int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, dy += width) {
    for (int64_t i = 0; i < width; ++i) dbias[i] += load(dy[i]);
    if (!scale) continue;
    for (int64_t i = 0; i < width; ++i) dscale[i] += load(dy[i]) * load(x[i]);
    for (int64_t i = 0; i < width; ++i) store(dx[i], load(dy[i]) * load(scale[i]));
    x += width, dx += width;
  }
}

}  // namespace

template <>
ATHANOR_EACH_ISA void affine_forward<float>(const float* x, const float* scale, const float* bias, float* y,
                                            int64_t rows, int64_t width) {
  forward_rows(x, scale, bias, y, rows, width);
}

template <>
ATHANOR_EACH_ISA void affine_forward<Bf16>(const Bf16* x, const Bf16* scale, const Bf16* bias, Bf16* y, int64_t rows,
                                           int64_t width) {
  forward_rows(x, scale, bias, y, rows, width);
}

template <>
ATHANOR_EACH_ISA void affine_backward<float>(const float* dy, const float* x, const float* scale, float* dx,
                                             float* dscale, float* dbias, int64_t rows, int64_t width) {
  backward_rows(dy, x, scale, dx, dscale, dbias, rows, width);
}

template <>
ATHANOR_EACH_ISA void affine_backward<Bf16>(const Bf16* dy, const Bf16* x, const Bf16* scale, Bf16* dx, float* dscale,
                                            float* dbias, int64_t rows, int64_t width) {
  backward_rows(dy, x, scale, dx, dscale, dbias, rows, width);
}

}  // namespace athanor::kernels
